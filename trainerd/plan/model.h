/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model: the rules of a layout file applied to a config.json, for one kind of engine. It knows
 * which tensors a checkpoint of the model may have, which parameters an engine rank has at given
 * parallel coordinates, and of which boxes of which tensors each is made. Pure: text in, values
 * out; nothing here opens a file. Immutable once made; may be used by several threads.
 *
 * Three kinds of numbers name tensors, all dense from 0:
 *   role     a [tensor] section of the layout file
 *   tensor   role + its variables' values: what parameters are made of
 *   stored   a name that a checkpoint may have; several tensors can lie in one (packed experts)
 *
 * The grammar: docs/layouts.md.
 */
#ifndef SW_TRAINERD_PLAN_MODEL_H
#define SW_TRAINERD_PLAN_MODEL_H

#include <stddef.h>

#include <shardwire/error.h>
#include "common/placement.h"
#include "common/program.h"

#define SW_RULE_FILE_MAX (1u << 20)   /* bytes of a layout file */
#define SW_CONFIG_FILE_MAX (1u << 20) /* bytes of a config.json */
#define SW_MODEL_TENSORS_MAX 4000000u /* tensors, and stored names, of one model */

/* ---- layout files ---- */

struct sw_rules; /* a layout file with what it includes, parsed */

/* Gives the text of an included file: a NUL-terminated string that the caller frees. */
typedef int sw_rules_read(void *arg, const char *name, char **text, struct sw_error *e);

/*
 * Parses `text`. Errors are SW_ERR_INVALID with "FILE:LINE: [section] key: what was expected".
 * `read` may be NULL: includes are then an error. Unknown tensors, groups, functions are found
 * here; unknown config keys only by sw_model_make.
 */
int sw_rules_parse(const char *file, const char *text, size_t length, sw_rules_read *read,
    void *arg, struct sw_rules **rules, struct sw_error *e);
void sw_rules_free(struct sw_rules *r);

/* The i-th architecture that the file is for; NULL past the end. */
const char *sw_rules_architecture(const struct sw_rules *r, uint32_t i);

/* ---- config.json ---- */

struct sw_config;

/* SW_ERR_INVALID with line and column of broken JSON; SW_ERR_UNSUPPORTED names a quantisation that
 * we don't do (anything in quantization_config but fp8 with a weight_block_size). */
int sw_config_parse(const char *text, size_t length, struct sw_config **config, struct sw_error *e);
void sw_config_free(struct sw_config *c);

/* The i-th entry of "architectures"; NULL past the end. */
const char *sw_config_architecture(const struct sw_config *c, uint32_t i);

/* "torch_dtype" or "dtype"; BF16 where there is none; SW_DTYPE_INVALID for one that is unknown. */
enum sw_dtype sw_config_dtype(const struct sw_config *c);

/* quantization_config's weight_block_size into block[2]; false when the config is not FP8. */
bool sw_config_fp8(const struct sw_config *c, uint32_t block[2]);

/* Whether quantization_config.modules_to_not_convert lists the module of this parameter. */
bool sw_config_unconverted(const struct sw_config *c, const char *parameter);

/* ---- the model ---- */

struct sw_model;

/* `rules` and `config` are borrowed for the call only. */
int sw_model_make(const struct sw_rules *rules, const struct sw_config *config,
    enum sw_engine_kind kind, struct sw_model **model, struct sw_error *e);
void sw_model_free(struct sw_model *m);

/* ---- tensors ---- */

enum sw_axis { SW_AXIS_NONE = 0, SW_AXIS_ROWS = 1, SW_AXIS_COLUMNS = 2 };

struct sw_tensor_role {
    const char *name; /* the section's word */
    const char *rule; /* "FILE:LINE", for messages */
    enum sw_dtype dtype;
    uint32_t ndim;
    uint64_t shape[SW_MAX_DIMS];
    enum sw_axis trainer;
    bool draft;
    bool optional;         /* a checkpoint may lack some of its tensors: sw_model_optional */
    bool expert;           /* has a variable `expert`; it is the last one then */
    uint32_t first_tensor; /* its tensors are first_tensor .. + n_tensors - 1, the last variable
                            * fastest; some of them may not exist (`when`) */
    uint32_t n_tensors;
    uint32_t n_variables;
    int64_t from[2], count[2]; /* values of each variable */
};

uint32_t sw_model_roles(const struct sw_model *m);
const struct sw_tensor_role *sw_model_role(const struct sw_model *m, uint32_t role);
uint32_t sw_model_tensors(const struct sw_model *m); /* of all roles */
uint32_t sw_model_role_of(const struct sw_model *m, uint32_t tensor);
bool sw_model_exists(const struct sw_model *m, uint32_t tensor);   /* `when` */
bool sw_model_optional(const struct sw_model *m, uint32_t tensor); /* of one that exists */

/* ---- stored names ---- */

struct sw_stored {
    uint32_t ndim;
    uint64_t shape[SW_MAX_DIMS];
    enum sw_dtype dtype; /* when it is not quantised */
    bool draft;
    bool fp8;   /* config.json says that checkpoints have it as F8_E4M3, with scales beside it */
    bool scale; /* F32: the scales of another one, in blocks as config.json says */
};

enum sw_known { SW_UNKNOWN = 0, SW_KNOWN = 1, SW_SKIPPED = 2 };

uint32_t sw_model_stored(const struct sw_model *m); /* how many there may be */
/* What a checkpoint's name is; SW_KNOWN sets *stored. */
enum sw_known sw_model_find(const struct sw_model *m, const char *name, uint32_t *stored);
void sw_model_stored_get(const struct sw_model *m, uint32_t stored, struct sw_stored *out);
/* Its name into `name` (SW_NAME_MAX + 1 bytes). */
void sw_model_stored_name(const struct sw_model *m, uint32_t stored, char *name);

/*
 * With an FP8 config.json: the stored tensor with the scales of this one (NAME + "_scale_inv"), in
 * a checkpoint that has it as F8_E4M3. False when it never is quantised. Where a tensor begins at
 * `origin` of the stored one, its scales begin at `origin` / block in the last two dimensions; a
 * tensor that begins inside a block has none of its own.
 */
bool sw_model_scale_of(const struct sw_model *m, uint32_t stored, uint32_t *scale);

/*
 * The i-th way to store a tensor (0 = the first): the stored tensor, and where in it the tensor
 * begins (as many numbers as the stored one has dimensions). False past the last way.
 */
bool sw_model_locate(
    const struct sw_model *m, uint32_t tensor, uint32_t i, uint32_t *stored, uint64_t *origin);

/* ---- parameters ---- */

struct sw_model_parameter { /* borrowed during the callback */
    const char *name;
    enum sw_dtype dtype;
    uint32_t ndim;
    uint64_t shape[SW_MAX_DIMS];
    const char *alias_of; /* or NULL */
    bool expert;          /* has a stack */
    bool draft;
    bool scale; /* the scales of the parameter given just before */
};

typedef int sw_model_parameter_fn(void *arg, const struct sw_model_parameter *p);

/*
 * Every parameter of an engine rank at `at`, in the order of the layout file, layer by layer (all
 * parameters of a layer before the next one's; what has no layer before the first or after the last
 * as in the file). at->of[SW_GROUP_PP] splits layers into contiguous, nearly equal stages; which of
 * them have one more is the engine's habit (SGLang: the last ones; vLLM: the last but one and those
 * before it; else the first). What stands before layers goes to the first stage, what stands after
 * them to the last, and what says in `when` in which stage it is, there. Draft parameters only if
 * `draft`, all in the last stage. Stops at the callback's first non-zero return, and returns it.
 */
int sw_model_list(const struct sw_model *m, const struct sw_placement *at, bool draft,
    sw_model_parameter_fn *fn, void *arg, struct sw_error *e);

enum sw_piece_kind {
    SW_PIECE_VALUES = 1, /* the tensor's values, in the parameter's dtype */
    SW_PIECE_SCALES = 2, /* the scales of its blocks; `from` counts blocks */
    SW_PIECE_ZERO = 3,   /* constant zero; `tensor` is UINT32_MAX, `from.lo` 0 */
};

struct sw_piece { /* a box of a tensor -> a box of a parameter, of the same lengths */
    enum sw_piece_kind kind;
    uint32_t tensor;          /* one that exists */
    uint32_t others;          /* index + 1 into sw_pieces.others of a second choice; 0 = none */
    struct sw_box from;       /* in the tensor; ndim = the tensor's */
    uint64_t to[SW_MAX_DIMS]; /* where it begins in the parameter, whose last dimensions are the
                               * box's; any before them have length 1 */
};

struct sw_pieces { /* reused from call to call; zeroed at first */
    uint32_t n, size;
    struct sw_piece *items;
    uint32_t n_others, others_size;
    uint32_t *others; /* second choices: tensors */
    bool derived;     /* the parameter is made by the engine itself: no pieces */
    bool expert;      /* it has a stack: goes after those that have none */
    bool quantised;   /* values are FP8 blocks */
    const char *rule; /* "FILE:LINE" */
};
void sw_pieces_free(struct sw_pieces *p);

/*
 * The pieces of a parameter that a rank at `at` declared, in the order of their place in it; they
 * cover it exactly once. SW_ERR_PLAN names parameter, rule, expected and found when no rule covers
 * it, its shape or dtype contradicts the rule, sizes don't divide, a split lies inside a block, the
 * expert map has a hole, or the format isn't one of ours.
 */
int sw_model_pieces(const struct sw_model *m, const struct sw_placement *at,
    const struct sw_parameter *p, struct sw_pieces *pieces, struct sw_error *e);

#endif
