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
    uint64_t n_maxima; /* block maxima that this rank shares with others (floats) */
    uint32_t rank;
    /* So far; they equal the totals when whole. */
    uint32_t n_templates, n_loads, n_grids, n_checks, n_tiles;
    uint32_t total_templates, total_loads, total_grids, total_checks, total_tiles;
    uint32_t room_templates, room_loads, room_grids, room_checks, room_tiles;
    struct sw_load_template *templates;
    struct sw_load *loads;
    struct sw_grid *grids;
    struct sw_alias_check *checks;
    struct sw_tile *tiles;
    /* Set by sw_loads_check; of source s: loads first_load[s] to first_load[s + 1] - 1, by number
     * in load_order: those of FP8 grids first, by grid, then casts, then copies. Those of no source
     * (constant zero) are where a source n_sources would be. Likewise grids and alias checks. */
    uint32_t n_sources;
    uint32_t *first_load, *load_order;
    uint32_t *first_grid, *grid_order;
    uint32_t *first_check, *check_order;
    uint64_t *load_bytes; /* by template: final bytes of one load */
    bool shares;          /* some grid is shared */
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

/* Its last step: finds the loads, grids and alias checks of each source. SW_ERR_NOMEM. */
int sw_loads_index(struct sw_loads *l, uint32_t n_sources, struct sw_error *e);

/* After the check: a version can't end without this source. */
bool sw_loads_wants(const struct sw_loads *l, uint32_t source);
/* Some FP8 block of it is spread over several ranks: it is quantised at the end. */
bool sw_loads_shares(const struct sw_loads *l, uint32_t source);

#endif
