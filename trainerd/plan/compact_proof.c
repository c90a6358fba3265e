/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proof of a plan in its compact form. It shares nothing with the planner: it takes what was
 * declared, what the model says of each parameter, and what the plan says, and compares. What is
 * equal is looked at once, so that it costs about what the compact form has values.
 */
#define SW_PROOF_IMPLEMENTATION
#include "trainerd/plan/compact_proof.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"

int sw_proof_wrong(struct sw_error *e, const char *format, ...)
{
    char text[SW_ERROR_TEXT];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return sw_fail(e, SW_ERR_PLAN, "the plan is wrong (a defect, please report it): %s", text);
}

int sw_proof_no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory to prove the plan");
}

int sw_compact_prove(const struct sw_compact *c, const struct sw_plan_rank *ranks, uint32_t n_ranks,
    const struct sw_plan_target *targets, uint32_t n_targets, struct sw_error *e)
{
    struct sw_proof p = {
        .c = c, .ranks = ranks, .n_ranks = n_ranks, .targets = targets, .n_targets = n_targets};
    int (*const parts[])(struct sw_proof *, struct sw_error *) = {sw_proof_numbers, sw_proof_tiles,
        sw_proof_held, sw_proof_blocks, sw_proof_wants, sw_proof_targets};
    int err = 0;

    for (size_t i = 0; !err && i < sizeof(parts) / sizeof(*parts); i++)
        err = parts[i](&p, e);
    sw_slab_classes_clear(&p.classes);
    free(p.by_name);
    return err;
}
