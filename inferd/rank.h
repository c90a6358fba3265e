/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The states of an engine rank in inferd, and which may follow which. The wire knows fewer of them
 * (enum sw_rank_state): here the time between a question and its answer is a state of its own.
 */
#ifndef SW_INFERD_RANK_H
#define SW_INFERD_RANK_H

#include <stdbool.h>
#include "common/message.h"

enum sw_step {
    SW_STEP_CONNECTED, /* an engine process is there; nothing declared */
    SW_STEP_MANIFEST,  /* ENGINE_RANK came, PARAMETERS are coming */
    SW_STEP_MAPPING,
    SW_STEP_SERVING,
    SW_STEP_PAUSING, /* also after the update's end, until the process answers */
    SW_STEP_PAUSED,
    SW_STEP_PREPARING,
    SW_STEP_PREPARED,
    SW_STEP_OPENING,
    SW_STEP_OPEN,
    SW_STEP_CLOSING,
    SW_STEP_CLOSED,
    SW_STEP_POSTING,
    SW_STEP_POSTED,
    SW_STEP_ACTIVATING,
    SW_STEP_ACTIVE,
    SW_STEP_RESUMING, /* RESUME was sent: it may generate */
    SW_STEP_TEARING,  /* the update ended with the window open: it closes now */
    SW_STEP_TORN,
    SW_STEP_GONE, /* the process went; its memory is being released */
    SW_STEP_COUNT
};

bool sw_step_allowed(enum sw_step from, enum sw_step to);
const char *sw_step_name(enum sw_step step);

/* A window is open, or may be. */
bool sw_step_has_window(enum sw_step step);

/* Registered and not gone: the coordinator may know it. */
bool sw_step_registered(enum sw_step step);

/* What the wire calls it. `torn`: the memory is not whole, although a new update is under way. */
enum sw_rank_state sw_step_state(enum sw_step step, bool torn);

#endif
