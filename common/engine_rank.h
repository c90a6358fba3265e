/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an engine rank says of itself, checked in one place for the library, inferd and the
 * coordinator. Pure.
 */
#ifndef SW_COMMON_ENGINE_RANK_H
#define SW_COMMON_ENGINE_RANK_H

#include <stdbool.h>

#include "common/message.h"

/* Whether its parameters have checkpoint names and whole tensors: no model is needed. */
bool sw_engine_rank_identity(const struct sw_engine_rank *r);

/*
 * Name, place in the world and in the parallel groups, layout, formats, expert map. NULL strings
 * count as "". SW_ERR_INVALID, SW_ERR_LIMIT or SW_ERR_UNSUPPORTED name engine, rank, what is wrong
 * and what was expected.
 */
int sw_engine_rank_check(const struct sw_engine_rank *r, struct sw_error *e);

/*
 * The placement of a checked rank whose layout is not the identity. `block` is what its config.json
 * says of FP8 blocks, or 0, 0; the rank's own word counts more. Without blocks nothing is
 * quantised, whatever the scale format. The map is borrowed from the rank.
 */
int sw_engine_rank_placement(const struct sw_engine_rank *r, const uint32_t block[2],
    struct sw_placement *out, struct sw_error *e);

#endif
