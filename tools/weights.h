/* SPDX-License-Identifier: Apache-2.0 */
/* The weights of one engine rank, in memory of libshardwire. */
#ifndef SW_TOOLS_WEIGHTS_H
#define SW_TOOLS_WEIGHTS_H

#include <stddef.h>
#include <stdint.h>
#include <shardwire/engine.h>
#include "tools/parameters.h"

struct sw_weight {
    const char *name;
    const uint8_t *data;
    uint64_t bytes;
    size_t same_as; /* number of the weight whose storage it has; its own number = none */
};

struct sw_weight_region {
    const uint8_t *base;
    uint64_t bytes;
};

struct sw_weights { /* plain values; memory belongs to the engine */
    size_t n, n_regions;
    struct sw_weight *items; /* by name */
    struct sw_weight_region *regions;
    uint64_t bytes; /* of all weights, those with the same storage once */
    char *names;    /* storage of the names */
};

/*
 * Allocates regions of at most region_bytes (a larger parameter has one of its own), and declares
 * parameters and aliases. Not registered yet. Free *out with sw_weights_clear, before or after the
 * engine is closed.
 */
int sw_weights_declare(sw_engine *en, const struct sw_rank_parameters *parameters,
    uint64_t region_bytes, struct sw_weights *out, struct sw_error *e);

/* The weight at a place of a region, NULL between weights. */
const struct sw_weight *sw_weights_at(const struct sw_weights *w, const uint8_t *place);

void sw_weights_clear(struct sw_weights *w);

#endif
