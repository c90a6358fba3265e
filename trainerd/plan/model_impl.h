/* SPDX-License-Identifier: Apache-2.0 */
/* What a model is inside. Private to model*.c and pieces.c. */
#ifndef SW_TRAINERD_PLAN_MODEL_IMPL_H
#define SW_TRAINERD_PLAN_MODEL_IMPL_H

#include "trainerd/plan/rules.h"

#define SW_NO_FAMILY UINT32_MAX

struct sw_way { /* one way to store the tensors of a role */
    uint32_t family;
    uint32_t n_values;
    uint32_t of[SW_RULE_FOR_MAX]; /* the family's i-th variable is the role's of[i]-th */
    bool whole;                   /* the stored tensor is the tensor */
    struct sw_rule_value origin[SW_MAX_DIMS];
};

struct sw_model_role { /* the role first: what sw_model_role gives */
    struct sw_tensor_role r;
    const struct sw_rule_tensor *rule;
    struct sw_rule_value when, optional;
    uint32_t n_ways;
    struct sw_way *ways;
    bool quantised; /* a parameter made of it may be FP8 */
};

struct sw_family { /* stored tensors of one pattern and one shape; its variables are numbered as
                    * they come in the name */
    struct sw_pattern pattern;
    struct sw_stored s;
    uint32_t n_variables;
    int64_t from[SW_RULE_FOR_MAX], count[SW_RULE_FOR_MAX];
    uint32_t first, n; /* numbers of stored tensors */
    uint32_t scale_of; /* the family that this one has the scales of, or SW_NO_FAMILY */
    uint32_t scales;   /* the other way round */
    const char *at;    /* the rule's "FILE:LINE" */
};

struct sw_model_rule { /* a [parameter] section, bound */
    const struct sw_rule_parameter *rule;
    const struct sw_pattern *pattern; /* its name in this kind of engine */
    int64_t from[SW_RULE_FOR_MAX], count[SW_RULE_FOR_MAX];
    struct sw_rule_value when;
    struct sw_rule_part *parts, *extras; /* bound copies */
    int64_t stack_from, stack_count;
    bool alias;
    bool dead;   /* none of it exists for this config.json */
    bool staged; /* `when` speaks of pipeline stages */
    int layer;   /* which variable is `layer`; -1 = none */
};

struct sw_model {
    struct sw_arena arena;
    struct sw_rules *rules;
    enum sw_engine_kind kind;
    enum sw_dtype dtype;
    bool fp8;
    uint32_t block[2]; /* of the checkpoint */
    uint64_t work;     /* steps that making it may still take */
    uint32_t n_unconverted;
    const char **unconverted; /* sorted */

    uint32_t n_roles, n_tensors;
    struct sw_model_role *roles;
    uint64_t *exists, *optional; /* bits, by tensor */

    uint32_t n_families, n_stored;
    struct sw_family *families;
    uint64_t *known;                /* bits, by stored tensor */
    struct sw_pattern_index stored; /* families, then names to skip */

    uint32_t n_parameters;
    struct sw_model_rule *parameters;
    struct sw_pattern_index names; /* of parameters */
    struct sw_pattern_index derived;
};

static inline bool sw_bit(const uint64_t *bits, uint32_t i)
{
    return bits[i / 64] >> i % 64 & 1;
}

static inline void sw_bit_set(uint64_t *bits, uint32_t i)
{
    bits[i / 64] |= UINT64_C(1) << i % 64;
}

/* ---- making one, in this order ---- */

struct sw_model_making {
    struct sw_model *m;
    const struct sw_config *config;
    struct sw_error *e;
};

/* Binds a value to the variables of `head`; NULL nodes stay. */
int sw_model_bind(struct sw_model_making *k, const struct sw_rule_head *head,
    const struct sw_rule_value *v, struct sw_rule_value *out);
/* A number without variables, from `least` to `most`; `otherwise` when none was given. */
int sw_model_number(struct sw_model_making *k, const struct sw_rule_head *head,
    const struct sw_rule_value *v, int64_t otherwise, int64_t least, int64_t most, int64_t *out);
/* "A to B"; none when B is below A. */
int sw_model_range(struct sw_model_making *k, const struct sw_rule_head *head,
    const struct sw_rule_range *range, int64_t *from, int64_t *count);
int sw_model_ranges(
    struct sw_model_making *k, const struct sw_rule_head *head, int64_t *from, int64_t *count);
/* SW_ERR_LIMIT when it is too much. */
int sw_model_charge(struct sw_model_making *k, uint64_t steps);
int sw_model_no_memory(struct sw_error *e);

int sw_model_make_roles(struct sw_model_making *k);
int sw_model_make_parameters(struct sw_model_making *k); /* also: which roles may be FP8 */
int sw_model_make_stored(struct sw_model_making *k);

/* ---- parameters ---- */

/* The tensor of a role at these values; UINT32_MAX when they are out of its ranges. */
uint32_t sw_role_tensor(const struct sw_model_role *r, const int64_t *values);
/* The values of a role's variables at this tensor. */
void sw_role_values(const struct sw_model_role *r, uint32_t tensor, int64_t *values);

/* The stored tensor of this name in a family; false = none. */
bool sw_family_find(const struct sw_model *m, const struct sw_family *f, const struct sw_name *name,
    uint32_t *stored);

/* Whether config.json leaves the module of this name, or one that it is in, unquantised. */
bool sw_model_unconverted(const struct sw_model *m, const char *name);

struct sw_part_split { /* what this rank has of a part, along the split dimension */
    const struct sw_rule_part *part;
    const struct sw_model_role *role;
    uint32_t axis;                /* dimension of the tensor; only if the part is split */
    uint64_t start, length, zero; /* of the tensor; then zeros */
    uint64_t local[SW_MAX_DIMS];  /* of the part in this rank, zeros included */
};

struct sw_parameter_at { /* a parameter in a rank at its place */
    const struct sw_model *m;
    const struct sw_placement *at;
    const struct sw_model_rule *rule;
    int64_t values[SW_RULE_VARIABLES_MAX];
    const char *name; /* for messages: the parameter's, also where its scales are meant */
    uint32_t ndim;
    uint64_t shape[SW_MAX_DIMS]; /* of the values */
    uint64_t slots;              /* stacked ones, without the extra one */
    uint32_t n_parts;
    struct sw_part_split parts[64], extras[64];
};

/* Whether the rule has a parameter of these values: 1, 0, or a negative code. */
int sw_rule_applies(const struct sw_model_rule *r, const struct sw_placement *at, int64_t *values,
    struct sw_error *e);

/* Fills ndim, shape, slots and parts from rule, values and place. SW_ERR_PLAN when they don't fit.
 */
int sw_parameter_measure(struct sw_parameter_at *p, struct sw_error *e);

/* The shape of its scales; SW_ERR_PLAN when blocks are cut. */
int sw_parameter_measure_scales(
    const struct sw_parameter_at *p, uint64_t *shape, struct sw_error *e);

/* ---- declared parameters ---- */

struct sw_declared {
    struct sw_parameter_at p; /* m and at are given; rule and values are found */
    const struct sw_parameter *declared;
    bool scales;    /* it is the scales of the rule's parameter */
    bool quantised; /* its values are FP8 blocks */
    struct sw_error *e;
};

/* 1: found; 0: the engine makes it itself; or a negative code. */
int sw_declared_find(struct sw_declared *d);

/* Measures it and compares dtype and shape. */
int sw_declared_check(struct sw_declared *d);

#endif
