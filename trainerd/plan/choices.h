/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who can have a slab: either ranks that hold its whole box, one of which is chosen; or, when none
 * does, cells between the boundaries of what ranks hold. Replicas of parts give several variants
 * of such a cut. Equal patterns, boxes and formats share a choice.
 */
#ifndef SW_TRAINERD_PLAN_CHOICES_H
#define SW_TRAINERD_PLAN_CHOICES_H

#include "trainerd/plan/boxes.h"
#include "trainerd/plan/layout.h"

struct sw_choice {
    uint32_t pattern, box, format; /* the box in elements, also of scales */
    uint32_t first, n;             /* variants, in sw_choices.variants */
    uint32_t set;                  /* equal numbers: variant by variant the same ranks */
    bool whole;                    /* each variant is one rank */
};

struct sw_variant {
    uint32_t rank;  /* of a whole one; else SW_NONE */
    uint32_t split; /* SW_NONE: not made yet (of a whole one) */
};

struct sw_rank_set {
    uint32_t first, n; /* in sw_choices.ranks */
};

struct sw_choices { /* empty when zero-initialised */
    uint32_t n, size;
    struct sw_choice *items;
    struct sw_index index;
    uint32_t n_variants, variants_size;
    struct sw_variant *variants;
    uint32_t n_sets, sets_size;
    struct sw_rank_set *sets;
    uint32_t n_ranks, ranks_size;
    uint32_t *ranks;
    struct sw_index set_index;
    struct sw_index split_index;
    uint32_t splits_size, cells_size; /* of the layout's arrays */
};

/* The choice for a box of an entry (SW_NONE: zeros, which every rank has) in a format. SW_ERR_PLAN
 * names the box of the source that no rank holds. */
int sw_choices_get(struct sw_choices *c, struct sw_layout *l, const struct sw_boxes *boxes,
    uint32_t entry, uint32_t box, const struct sw_format *formats, uint32_t format,
    uint32_t *choice, struct sw_error *e);

/* The split of a variant, made when it is first asked for; SW_NONE without memory. */
uint32_t sw_choices_split(struct sw_choices *c, struct sw_layout *l, const struct sw_boxes *boxes,
    const struct sw_format *formats, uint32_t choice, uint32_t variant);

void sw_choices_free(struct sw_choices *c);

#endif
