/* SPDX-License-Identifier: Apache-2.0 */
#include "inferd/rank.h"

#define TO(step) (1u << SW_STEP_##step)

static const struct {
    const char *name;
    uint32_t next; /* bits of the steps that may follow */
    enum sw_rank_state state;
} steps[SW_STEP_COUNT] = {
    [SW_STEP_CONNECTED] = {"connected", TO(MANIFEST) | TO(GONE), SW_RANK_GONE},
    [SW_STEP_MANIFEST] = {"declaring", TO(CONNECTED) | TO(MAPPING) | TO(GONE), SW_RANK_GONE},
    [SW_STEP_MAPPING] = {"mapping", TO(CONNECTED) | TO(SERVING) | TO(TORN) | TO(GONE),
        SW_RANK_GONE},
    [SW_STEP_SERVING] = {"serving", TO(PAUSING) | TO(GONE), SW_RANK_SERVING},
    /* A pause that the process did not answer before the update ended is asked again by the next
     * update (PAUSING), or answered late (RESUMING). */
    [SW_STEP_PAUSING] = {"pausing", TO(PAUSING) | TO(PAUSED) | TO(RESUMING) | TO(TORN) | TO(GONE),
        SW_RANK_PAUSING},
    [SW_STEP_PAUSED] = {"paused", TO(PREPARING) | TO(RESUMING) | TO(TORN) | TO(GONE),
        SW_RANK_PAUSED},
    [SW_STEP_PREPARING] = {"preparing",
        TO(PREPARED) | TO(PAUSED) | TO(RESUMING) | TO(TORN) | TO(GONE), SW_RANK_PAUSED},
    [SW_STEP_PREPARED] = {"prepared", TO(OPENING) | TO(RESUMING) | TO(TORN) | TO(GONE),
        SW_RANK_PAUSED},
    [SW_STEP_OPENING] = {"opening", TO(OPEN) | TO(CLOSING) | TO(TEARING) | TO(GONE), SW_RANK_OPEN},
    [SW_STEP_OPEN] = {"open", TO(CLOSING) | TO(TEARING) | TO(GONE), SW_RANK_OPEN},
    [SW_STEP_CLOSING] = {"closing", TO(CLOSED) | TO(TEARING) | TO(GONE), SW_RANK_OPEN},
    [SW_STEP_CLOSED] = {"closed", TO(POSTING) | TO(TORN) | TO(GONE), SW_RANK_CLOSED},
    [SW_STEP_POSTING] = {"post-processing", TO(POSTED) | TO(CLOSED) | TO(TORN) | TO(GONE),
        SW_RANK_CLOSED},
    [SW_STEP_POSTED] = {"post-processed", TO(ACTIVATING) | TO(TORN) | TO(GONE), SW_RANK_CLOSED},
    [SW_STEP_ACTIVATING] = {"activating", TO(ACTIVE) | TO(POSTED) | TO(TORN) | TO(GONE),
        SW_RANK_CLOSED},
    [SW_STEP_ACTIVE] = {"active", TO(RESUMING) | TO(TORN) | TO(GONE), SW_RANK_ACTIVE},
    [SW_STEP_RESUMING] = {"resuming", TO(SERVING) | TO(PAUSING) | TO(GONE), SW_RANK_SERVING},
    [SW_STEP_TEARING] = {"closing (torn)", TO(TORN) | TO(GONE), SW_RANK_OPEN},
    [SW_STEP_TORN] = {"torn", TO(PAUSING) | TO(PAUSED) | TO(GONE), SW_RANK_TORN},
    [SW_STEP_GONE] = {"gone", 0, SW_RANK_GONE},
};

bool sw_step_allowed(enum sw_step from, enum sw_step to)
{
    return from < SW_STEP_COUNT && to < SW_STEP_COUNT && (steps[from].next >> to & 1) != 0;
}

const char *sw_step_name(enum sw_step step)
{
    return step < SW_STEP_COUNT ? steps[step].name : "?";
}

bool sw_step_has_window(enum sw_step step)
{
    return step == SW_STEP_OPENING || step == SW_STEP_OPEN || step == SW_STEP_CLOSING ||
           step == SW_STEP_TEARING;
}

bool sw_step_registered(enum sw_step step)
{
    return step >= SW_STEP_SERVING && step < SW_STEP_GONE;
}

enum sw_rank_state sw_step_state(enum sw_step step, bool torn)
{
    if (step >= SW_STEP_COUNT)
        return SW_RANK_GONE;
    if (torn && step >= SW_STEP_PAUSING && step <= SW_STEP_PREPARED)
        return SW_RANK_TORN;
    return steps[step].state;
}
