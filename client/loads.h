/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trainer rank's load program as it comes from trainerd: parts are joined, then all of it is
 * checked against what this rank declared, before anything is touched. After sw_loads_check the
 * executor may trust every index and offset in it.
 */
#ifndef SW_CLIENT_LOADS_H
#define SW_CLIENT_LOADS_H

#include <stdbool.h>
#include <shardwire/error.h>
#include "common/message.h"
#include "common/program.h"

struct sw_loads {
    uint64_t layout_epoch;
    uint64_t replica_bytes;
    uint32_t rank;
    uint32_t n_templates, n_loads, n_checks, n_tiles; /* so far; equal the totals when whole */
    uint32_t total_templates, total_loads, total_checks, total_tiles;
    uint32_t room_templates, room_loads, room_checks, room_tiles;
    struct sw_load_template *templates;
    struct sw_load *loads;
    struct sw_alias_check *checks;
    struct sw_tile *tiles;
    /* Set by sw_loads_check; of source s: loads first_load[s] to first_load[s + 1] - 1, by number
     * in `order`; likewise alias checks. */
    uint32_t n_sources;
    uint32_t *first_load, *load_order;
    uint32_t *first_check, *check_order;
};

struct sw_loads *sw_loads_new(void); /* NULL = no memory */
void sw_loads_free(struct sw_loads *l);

/* Takes the next part (its arrays are copied). SW_ERR_PROTOCOL when it does not join. */
int sw_loads_add(struct sw_loads *l, const struct sw_load_program *part, struct sw_error *e);

/* All parts are there. */
bool sw_loads_whole(const struct sw_loads *l);

/* Checks a whole program against the declared sources. SW_ERR_PROTOCOL names what is wrong. */
int sw_loads_check(
    struct sw_loads *l, const struct sw_source *sources, uint32_t n_sources, struct sw_error *e);

#endif
