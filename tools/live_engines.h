/* SPDX-License-Identifier: Apache-2.0 */
/* What an inferd has registered, asked over its UNIX socket or control port: plain values. */
#ifndef SW_TOOLS_LIVE_ENGINES_H
#define SW_TOOLS_LIVE_ENGINES_H

#include "common/message.h"
#include "tools/control.h"

struct sw_live_rank {
    const struct sw_engine_rank *rank; /* checked (common/engine_rank.h); instance is none */
    uint32_t n_parameters;
    const struct sw_parameter *parameters; /* each inside its region */
};

struct sw_live_engines { /* by engine name, then rank */
    uint32_t n;
    struct sw_live_rank *items;
};

/* Blocks, where->timeout_ms at most for connecting and as long for the answer. SW_ERR_PROTOCOL when
 * inferd tells something that can't be. */
int sw_live_engines_ask(
    const struct sw_control_where *where, struct sw_live_engines **engines, struct sw_error *e);
void sw_live_engines_free(struct sw_live_engines *engines); /* accepts NULL */

#endif
