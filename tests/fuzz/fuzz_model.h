/* SPDX-License-Identifier: Apache-2.0 */
/* What a model must hold, whatever it was made of. */
#ifndef SW_TESTS_FUZZ_MODEL_H
#define SW_TESTS_FUZZ_MODEL_H

#include <assert.h>
#include <string.h>
#include "common/limits.h"
#include "trainerd/plan/model.h"

#define LOOK_AT 2000 /* tensors, names and parameters */

struct fuzz_list {
    const struct sw_model *m;
    const struct sw_placement *at;
    struct sw_pieces pieces;
    unsigned n;
};

/* A listed parameter has pieces, which cover it; or its tensors don't exist. */
static int fuzz_parameter(void *arg, const struct sw_model_parameter *p)
{
    struct fuzz_list *l = arg;
    struct sw_parameter d = {.name = p->name, .dtype = p->dtype, .ndim = p->ndim};
    struct sw_error e = {0};
    uint64_t declared = 1, covered = 0;

    assert(strlen(p->name) <= SW_NAME_MAX && p->ndim <= SW_MAX_DIMS);
    memcpy(d.shape, p->shape, sizeof(d.shape));
    if (sw_model_pieces(l->m, l->at, &d, &l->pieces, &e)) {
        assert(e.code < 0 && e.text[0]);
        return ++l->n > LOOK_AT;
    }
    for (uint32_t i = 0; i < p->ndim; i++)
        if (__builtin_mul_overflow(declared, p->shape[i], &declared))
            return ++l->n > LOOK_AT;
    for (uint32_t i = 0; i < l->pieces.n; i++) {
        const struct sw_piece *piece = &l->pieces.items[i];
        uint64_t n = 1;

        for (uint32_t k = 0; k < piece->from.ndim; k++)
            n *= piece->from.len[k];
        assert(piece->kind == SW_PIECE_ZERO || sw_model_exists(l->m, piece->tensor));
        covered += n;
    }
    assert(l->pieces.derived || covered == declared);
    return ++l->n > LOOK_AT;
}

static void fuzz_names(const struct sw_model *m)
{
    char name[SW_NAME_MAX + 1];
    uint64_t origin[SW_MAX_DIMS];
    uint32_t stored, found;

    for (uint32_t i = 0; i < sw_model_stored(m) && i < LOOK_AT; i++) {
        struct sw_stored s;

        sw_model_stored_name(m, i, name);
        sw_model_stored_get(m, i, &s);
        if (sw_model_find(m, name, &found) == SW_KNOWN && found != i) {
            /* Only where this number is of a name that does not exist. */
            sw_model_stored_name(m, found, name);
            assert(sw_model_find(m, name, &stored) == SW_KNOWN && stored == found);
        }
    }
    for (uint32_t i = 0; i < sw_model_tensors(m) && i < LOOK_AT; i++) {
        const struct sw_tensor_role *r = sw_model_role(m, sw_model_role_of(m, i));

        assert(i >= r->first_tensor && i - r->first_tensor < r->n_tensors);
        for (uint32_t w = 0; sw_model_exists(m, i) && sw_model_locate(m, i, w, &stored, origin);
             w++) {
            struct sw_stored s;

            sw_model_stored_get(m, stored, &s);
            for (uint32_t d = 0; d < r->ndim; d++)
                assert(origin[s.ndim - r->ndim + d] + r->shape[d] <= s.shape[s.ndim - r->ndim + d]);
            sw_model_stored_name(m, stored, name);
            assert(sw_model_find(m, name, &found) == SW_KNOWN && found == stored);
        }
    }
}

/* Makes the model for each kind of engine and looks at what it has. */
static void fuzz_model(const struct sw_rules *r, const struct sw_config *c)
{
    for (int kind = SW_ENGINE_ANY; kind <= SW_ENGINE_VLLM; kind++) {
        struct sw_placement at = {
            .kind = (enum sw_engine_kind)kind, .scale = SW_SCALE_FP32, .block = {16, 16}};
        struct fuzz_list l = {.at = &at};
        struct sw_model *m;
        struct sw_error e = {0};

        if (sw_model_make(r, c, (enum sw_engine_kind)kind, &m, &e)) {
            assert(e.code < 0 && e.text[0]);
            continue;
        }
        fuzz_names(m);
        at.at.of[SW_GROUP_TP] = at.at.of[SW_GROUP_EP] = (struct sw_group){1, 2};
        (void)sw_coordinates_complete(&at.at, at.kind, NULL);
        l.m = m;
        (void)sw_model_list(m, &at, true, fuzz_parameter, &l, &e);
        sw_pieces_free(&l.pieces);
        sw_model_free(m);
    }
}

#endif
