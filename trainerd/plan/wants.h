/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a target wants: for each of its parameters, boxes of catalogue entries and the format in
 * which they are wanted. Boxes are as the rules say; slabs.h cuts them to what is shared.
 */
#ifndef SW_TRAINERD_PLAN_WANTS_H
#define SW_TRAINERD_PLAN_WANTS_H

#include "trainerd/plan/boxes.h"
#include "trainerd/plan/layout.h"
#include "trainerd/plan/storage.h"

#define SW_FORMATS_MAX 64u

struct sw_raw {
    uint32_t entry; /* SW_NONE: zeros */
    uint32_t format, box;
    uint32_t parameter;
    uint64_t offset; /* bytes from the parameter's start */
};

struct sw_model_table { /* what a model calls the catalogue's entries */
    const struct sw_model *model;
    uint32_t *entry;  /* by stored number; SW_NONE: nobody holds it */
    uint8_t *checked; /* by stored number: the entry has the shape that the rules give it */
};

enum { SW_USED_WANTED = 1, SW_USED_QUIET = 2 }; /* quiet: draft layers, and what rules skip */

struct sw_wanting {
    const struct sw_layout *l; /* its catalogue */
    struct sw_index names;
    struct sw_boxes boxes;
    uint32_t n_formats;
    struct sw_format formats[SW_FORMATS_MAX];
    uint32_t n, size;
    struct sw_raw *raw;
    uint32_t n_tables;
    struct sw_model_table *tables;
    struct sw_pieces pieces;
    uint8_t *used;    /* by entry: SW_USED_... */
    uint32_t *parent; /* by entry: alias sets as a union-find; NULL: those of the layout count */
    uint32_t derived; /* parameters left out */
};

/* `join`: alias sets are found; else aliases must be in one set of the layout already. */
int sw_wanting_init(struct sw_wanting *w, const struct sw_layout *l, bool join, struct sw_error *e);
void sw_wanting_free(struct sw_wanting *w);

/*
 * Appends what this target wants, by parameter and offset. Of a storage with several names one
 * parameter has wants: that whose source is taken. *expert: by parameter, whether it has a stack
 * (the caller's; NULL with identity).
 */
int sw_wanting_target(
    struct sw_wanting *w, const struct sw_plan_target *t, uint8_t **expert, struct sw_error *e);

/* The wants of one parameter by its rules (recipe.c). *missing: an error, because nobody holds a
 * tensor; *derived: it has none by rule. */
int sw_wanting_recipe(struct sw_wanting *w, const struct sw_plan_target *t, uint32_t parameter,
    bool *missing, bool *derived, struct sw_error *e);

/* The number of a format; SW_NONE when there are too many. */
uint32_t sw_wanting_format(struct sw_wanting *w, const struct sw_format *f);

int sw_wanting_push(struct sw_wanting *w, uint32_t entry, const struct sw_format *format,
    const struct sw_box *box, uint32_t parameter, uint64_t offset, struct sw_error *e);

/* Finds a set's representative. */
uint32_t sw_set_root(uint32_t *parent, uint32_t i);

#endif
