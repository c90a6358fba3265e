/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/random_trainer.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/plan/random_model.h"

#define WORLD_MAX 8

enum way {
    WAY_WHOLE,   /* all ranks all of it */
    WAY_ONE,     /* one rank */
    WAY_SOME,    /* some ranks */
    WAY_ROWS,    /* FSDP: ceil(rows / world) each, the last ones nothing */
    WAY_HYBRID,  /* HSDP: the same rows on several ranks */
    WAY_COLUMNS, /* the last dimension, evenly as can be */
    WAY_CUT,     /* cut in two again and again, anywhere */
    WAY_HALO,    /* FSDP, and a row more on both sides */
    WAY_COUNT
};

struct cut {
    uint64_t *state;
    struct sw_box *boxes; /* by rank */
    bool whole_bytes;     /* the last dimension stays whole */
};

static void slice_rows(struct sw_box *b, uint32_t d, uint64_t n, uint64_t i, uint64_t halo)
{
    const uint64_t each = (b->len[d] + n - 1) / n, length = b->len[d];
    uint64_t lo = i * each < length ? i * each : length;
    uint64_t end = lo + each < length ? lo + each : length;

    if (lo < end) {
        lo -= lo < halo ? lo : halo;
        end = end + halo < length ? end + halo : length;
    }
    b->lo[d] = lo;
    b->len[d] = end - lo;
}

/* Gives a box to ranks from..to - 1. */
static void cut(const struct cut *c, const struct sw_box *b, uint32_t from, uint32_t to)
{
    const uint32_t dims = b->ndim - (c->whole_bytes && b->ndim ? 1 : 0);
    struct sw_box low = *b, high = *b;
    uint32_t mid = (from + to) / 2, d = 0;

    if (to - from > 1 && dims) {
        d = (uint32_t)random_below(c->state, dims);
        for (uint32_t i = 0; i < dims && b->len[d] < 2; i++)
            d = (d + 1) % dims;
    }
    if (to - from == 1 || !dims || b->len[d] < 2) {
        c->boxes[from] = *b;
        return;
    }
    low.len[d] = 1 + random_below(c->state, b->len[d] - 1);
    high.lo[d] += low.len[d];
    high.len[d] -= low.len[d];
    cut(c, &low, from, mid);
    cut(c, &high, mid, to);
}

static void hold(uint64_t *state, enum way way, uint32_t world, const struct held_tensor *t,
    struct sw_box *boxes)
{
    const bool whole_bytes = sw_dtype_bits(t->dtype) % 8;
    const uint32_t last = t->ndim ? t->ndim - 1 : 0;
    const struct cut c = {state, boxes, whole_bytes};
    const uint32_t one = (uint32_t)random_below(state, world);
    struct sw_box whole = {.ndim = t->ndim};

    memcpy(whole.len, t->shape, t->ndim * sizeof(*t->shape));
    memset(boxes, 0, world * sizeof(*boxes));
    if (t->ndim == 0 || (t->ndim == 1 && whole_bytes && way != WAY_ONE && way != WAY_SOME))
        way = WAY_WHOLE;
    for (uint32_t r = 0; r < world; r++) {
        boxes[r].ndim = t->ndim;
        if (way == WAY_CUT || (way == WAY_ONE && r != one) ||
            (way == WAY_SOME && r != one && random_below(state, 2)))
            continue;
        boxes[r] = whole;
        if (way == WAY_ROWS)
            slice_rows(&boxes[r], 0, world, r, 0);
        else if (way == WAY_HALO)
            slice_rows(&boxes[r], 0, world, r, 1);
        else if (way == WAY_HYBRID)
            slice_rows(&boxes[r], 0, (world + 1) / 2, r % ((world + 1) / 2), 0);
        else if (way == WAY_COLUMNS)
            slice_rows(&boxes[r], whole_bytes ? 0 : last, world, r, 0);
    }
    if (way == WAY_CUT)
        cut(&c, &whole, 0, world);
}

static bool is_empty(const struct sw_box *b)
{
    for (uint32_t d = 0; d < b->ndim; d++)
        if (b->len[d] == 0)
            return true;
    return false;
}

struct sw_fold *random_trainer(
    uint64_t *state, uint32_t world, const struct held_tensor *tensors, uint32_t n)
{
    struct sw_fold *fold = sw_fold_new();
    struct sw_source *sources = calloc((size_t)world * n + 1, sizeof(*sources));
    uint32_t counts[WORLD_MAX] = {0};
    uint64_t seeds[32];
    enum way ways[32];
    struct sw_error e;

    ck_assert(fold && sources && world <= WORLD_MAX);
    for (uint32_t i = 0; i < 32; i++) {
        ways[i] = (enum way)random_below(state, WAY_COUNT);
        seeds[i] = random_next(state);
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct held_tensor *t = &tensors[i];
        const bool alike = random_below(state, 8);
        uint64_t seed = alike ? seeds[t->pattern] : random_next(state);
        struct sw_box boxes[WORLD_MAX];

        hold(&seed, alike ? ways[t->pattern] : (enum way)random_below(state, WAY_COUNT), world, t,
            boxes);
        for (uint32_t r = 0; r < world; r++) {
            struct sw_source *s = &sources[r * n + counts[r]];

            if (is_empty(&boxes[r]) && random_below(state, 4))
                continue;
            *s = (struct sw_source){
                .name = t->name, .dtype = t->dtype, .ndim = t->ndim, .box = boxes[r]};
            memcpy(s->shape, t->shape, t->ndim * sizeof(*t->shape));
            counts[r]++;
        }
    }
    for (uint32_t r = 0; r < world; r++)
        ck_assert_msg(
            sw_fold_add(fold, r, 0, counts[r], sources + (size_t)r * n, &e) == 0, "%s", e.text);
    free(sources);
    return fold;
}
