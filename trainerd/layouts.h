/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder of layout files (docs/layouts.md), read once: every NAME.layout, with what it includes
 * from the same folder. Immutable once read.
 */
#ifndef SW_TRAINERD_LAYOUTS_H
#define SW_TRAINERD_LAYOUTS_H

#include "trainerd/plan/model.h"

#define SW_LAYOUT_FILES_MAX 1024u /* in one folder */

struct sw_layouts;

/*
 * Reads the folder; blocks. One broken file is an error for all (SW_ERR_INVALID, with file and
 * line), as are two files for one architecture. SW_ERR_IO: the folder can't be read. An empty
 * folder is none: only the identity layout is known then.
 */
int sw_layouts_read(const char *folder, struct sw_layouts **layouts, struct sw_error *e);
void sw_layouts_free(struct sw_layouts *l);

uint32_t sw_layouts_count(const struct sw_layouts *l);
/* Names, sorted, without ".layout"; NULL past the end. */
const char *sw_layouts_name(const struct sw_layouts *l, uint32_t i);

/*
 * The rules named `name`; "auto" = those for one of config's architectures. SW_ERR_UNSUPPORTED
 * names what was looked for, and what there is. Borrowed from the layouts.
 */
int sw_layouts_find(const struct sw_layouts *l, const char *name, const struct sw_config *config,
    const struct sw_rules **rules, struct sw_error *e);

#endif
