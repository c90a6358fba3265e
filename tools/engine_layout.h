/* SPDX-License-Identifier: Apache-2.0 */
/* What the reference engine's rank is: its parameters, and what it tells of itself. */
#ifndef SW_TOOLS_ENGINE_LAYOUT_H
#define SW_TOOLS_ENGINE_LAYOUT_H

#include "tools/engine_options.h"
#include "tools/model_files.h"
#include "tools/parameters.h"

struct sw_engine_layout {
    struct sw_rank_parameters parameters;
    struct sw_model_files files; /* empty with the identity layout */
    struct sw_placement place;   /* likewise */
    uint32_t *map;               /* of this rank's slots */
};

/* Reads the checkpoint's headers, or config.json, layout files and the expert map. */
int sw_engine_layout_read(
    const struct sw_engine_arguments *a, struct sw_engine_layout *out, struct sw_error *e);

/* Fills in what the options of an engine say of its layout; they point into `l`. */
void sw_engine_layout_tell(const struct sw_engine_arguments *a, const struct sw_engine_layout *l,
    struct sw_engine_options *options);

void sw_engine_layout_clear(struct sw_engine_layout *l);

#endif
