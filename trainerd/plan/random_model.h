/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: a random model. A checkpoint with random sizes and values, the layout rules that
 * describe it, and engine ranks with what each must hold after an update, told from the engine's
 * side: which rows and columns of which tensors, without the rules.
 */
#ifndef SW_TRAINERD_PLAN_RANDOM_MODEL_H
#define SW_TRAINERD_PLAN_RANDOM_MODEL_H

#include <check.h>

#include "trainerd/plan/plan.h"

/* Check tells its parent of every ck_assert: too much for each byte. */
#define random_must(condition)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            ck_abort_msg("%s", #condition);                                                        \
    } while (0)

/* ---- numbers ---- */

uint64_t random_next(uint64_t *state);
uint64_t random_below(uint64_t *state, uint64_t n);

/* ---- values ---- */

float value_read(enum sw_dtype dtype, const uint8_t *at); /* BF16 or F32 */
void value_write(enum sw_dtype dtype, uint8_t *at, float v);
uint8_t value_to_e4m3(float v);                             /* nearest, ties to even */
float value_scale(enum sw_scale_format format, float amax); /* of a block */
void value_write_scale(enum sw_dtype dtype, uint8_t *at, float scale);
/* The FP8 value of v in a block with this scale. */
uint8_t value_quantise(float v, float scale);

/* ---- the checkpoint ---- */

enum role {
    R_EMBED,
    R_HEAD,
    R_NORM,
    R_Q,
    R_K,
    R_V,
    R_Q_BIAS,
    R_O,
    R_KVA,
    R_GATE,
    R_UP,
    R_DOWN,
    R_ROUTER,
    R_CORRECTION,
    R_EG,
    R_EU,
    R_ED,
    R_SG,
    R_SU,
    R_SD,
    R_COUNT
};

struct stored {
    char name[64];
    enum sw_dtype dtype;
    uint32_t ndim;
    uint64_t shape[3];
    uint32_t pattern; /* equal layers and experts: the same number */
    uint8_t *data;
    uint64_t bytes;
};

struct where {             /* a tensor in what stores it */
    struct stored *stored; /* NULL: not in this checkpoint */
    uint64_t first;        /* element; its rows lie one after another */
    struct stored *scales; /* of an FP8 checkpoint */
    uint64_t first_scale;  /* its rows of blocks lie one after another */
};

#define LAYERS_MAX 3
#define EXPERTS_MAX 6

struct random_model {
    uint64_t state;
    uint32_t layers, experts, heads, kv, hidden, inner, moe_inner, vocab, pad;
    bool tied, packed;
    bool fp8; /* the checkpoint is in FP8 blocks, with its scales */
    uint32_t block[2];
    enum sw_dtype dtype;
    uint64_t rows[R_COUNT], columns[R_COUNT]; /* of a tensor; a vector has 1 column */
    struct where where[R_COUNT][LAYERS_MAX][EXPERTS_MAX];
    uint32_t n_stored;
    struct stored *stored;
    char rules[8192], config[1024];
};

void random_model_make(struct random_model *m, uint64_t seed);
void random_model_clear(struct random_model *m);

/* With an FP8 checkpoint: the byte of a value, and the scale of its block, as they are stored. */
const uint8_t *random_model_byte(const struct random_model *m, const struct where *w,
    enum role role, uint64_t row, uint64_t column);
const uint8_t *random_model_stored_scale(const struct random_model *m, const struct where *w,
    enum role role, uint64_t row, uint64_t column);

/* Of a tensor as one: value, and the scale of the block that has (row, column). */
float random_model_value(const struct random_model *m, enum role role, uint32_t layer,
    uint32_t expert, uint64_t row, uint64_t column);
float random_model_scale(const struct random_model *m, enum role role, uint32_t layer,
    uint32_t expert, uint64_t row, uint64_t column, const uint32_t block[2],
    enum sw_scale_format format);

#endif
