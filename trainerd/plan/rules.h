/* SPDX-License-Identifier: Apache-2.0 */
/* Layout rules as parsed: expressions are not bound to a config.json yet. Private to trainerd/plan;
 * model.h has what others may use. */
#ifndef SW_TRAINERD_PLAN_RULES_H
#define SW_TRAINERD_PLAN_RULES_H

#include "trainerd/plan/expression.h"
#include "trainerd/plan/model.h"
#include "trainerd/plan/pattern.h"

#define SW_RULE_FOR_MAX 2
#define SW_RULE_SHAPE_MAX 4
#define SW_SCALE_SUFFIX "_scale_inv"

/* What expressions of a parameter may use of the rank, after its own variables; then the sizes of
 * all groups. */
enum sw_rule_engine_variable {
    SW_RULE_FUSED, /* fused_shared_experts */
    SW_RULE_PP_FIRST,
    SW_RULE_PP_LAST,
    SW_RULE_GROUPS,
    SW_RULE_ENGINE_MAX = SW_RULE_GROUPS + SW_GROUP_COUNT
};

#define SW_RULE_VARIABLES_MAX (SW_RULE_FOR_MAX + 1 + SW_RULE_ENGINE_MAX)

struct sw_rule_value {      /* an expression, and where it is written */
    struct sw_expression x; /* x.nodes is NULL when it was not given */
    const char *key, *file;
    uint32_t line;
};

struct sw_rule_range {
    const char *variable;
    struct sw_rule_value from, to;
};

struct sw_rule_head {   /* what [tensor] and [parameter] have in common */
    const char *header; /* "tensor gate" */
    const char *at;     /* "FILE:LINE" */
    uint32_t n_for;
    struct sw_rule_range ranges[SW_RULE_FOR_MAX];
    uint32_t n_variables; /* those of `for` first, then of `stack` */
    uint32_t n_own;       /* of these; the rest are the engine's */
    const char *variables[SW_RULE_VARIABLES_MAX];
    struct sw_rule_value when;
    enum sw_dtype dtype; /* INVALID: the model's */
    bool draft;
};

struct sw_rule_stored {
    struct sw_pattern pattern;
    uint32_t ndim; /* 0: as the tensor */
    struct sw_rule_value shape[SW_MAX_DIMS], origin[SW_MAX_DIMS];
};

struct sw_rule_tensor {
    struct sw_rule_head head;
    const char *name;
    uint32_t ndim;
    struct sw_rule_value shape[SW_RULE_SHAPE_MAX];
    uint32_t n_stored;
    struct sw_rule_stored *stored;
    enum sw_axis trainer;
    struct sw_rule_value optional;
};

struct sw_rule_choice { /* a tensor, and the values of its variables */
    uint32_t tensor;
    struct sw_rule_value index[SW_RULE_FOR_MAX];
};

struct sw_rule_part {
    uint32_t n_choices;
    struct sw_rule_choice choices[2];
    enum sw_axis axis; /* NONE: all of it */
    enum sw_group_kind group;
    bool shared;
    struct sw_rule_value units, padded;
    const char *at; /* "FILE:LINE" */
};

struct sw_rule_parameter {
    struct sw_rule_head head;
    enum sw_engine_kind engine;     /* ANY: all */
    struct sw_pattern pattern;      /* the section's name */
    struct sw_pattern sglang, vllm; /* another name there; text is NULL when it is not given */
    uint32_t n_parts, n_extras;
    struct sw_rule_part *parts, *extras;
    bool stacked, quantise, unlisted;
    struct sw_rule_range stack; /* its variable is number head.n_for */
    enum sw_group_kind stack_group;
    const char *alias; /* as written; NULL = none */
    struct sw_pattern alias_pattern;
    struct sw_rule_value alias_when;
};

struct sw_rule_definition {
    const char *name;
    struct sw_rule_value value;
};

struct sw_rules {
    struct sw_arena arena;
    uint32_t users; /* models keep what they were made of; counted atomically */
    uint32_t n_architectures, n_definitions, n_tensors, n_parameters, n_skipped, n_derived;
    const char **architectures;
    struct sw_rule_definition *definitions; /* sorted by name */
    struct sw_rule_tensor *tensors;
    struct sw_rule_parameter *parameters;
    struct sw_pattern *skipped, *derived;
};

/* One more user, whom sw_rules_free takes away again. */
struct sw_rules *sw_rules_keep(const struct sw_rules *r);

/* "FILE:LINE: [section] key: " in front of the error. */
int sw_rule_value_context(
    struct sw_error *e, int code, const struct sw_rule_head *h, const struct sw_rule_value *v);

#endif
