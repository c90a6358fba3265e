/* SPDX-License-Identifier: Apache-2.0 */
/* A small model that has one of everything, for tests. */
#ifndef SW_TRAINERD_PLAN_TEST_SMALL_MODEL_H
#define SW_TRAINERD_PLAN_TEST_SMALL_MODEL_H

#include "trainerd/plan/model.h"

/*
 * 3 layers, the first dense; hidden 64, vocabulary 100, 4 heads and 2 KV heads of 16, dense 96
 * wide, 8 experts and a shared one of 32. A layer for speculative decoding: one norm.
 */
extern const char test_small_rules[];
extern const char test_small_config[];
extern const char test_small_fp8_config[]; /* blocks of 16x16; layer 2's q_proj not converted */

int test_make_model(const char *rules, const char *config, enum sw_engine_kind kind,
    struct sw_model **m, struct sw_error *e);

/* Rank of tp, with ep (ep rank = rank / (tp / ep)), in a stage of pp. */
struct sw_placement test_place(
    enum sw_engine_kind kind, uint32_t tp, uint32_t rank, uint32_t ep, uint32_t stage, uint32_t pp);

struct test_text {
    char text[8192];
    size_t n;
};
void test_append(struct test_text *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
