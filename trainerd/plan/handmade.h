/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts made by hand, at random, for tests: small tensors, cut and held in all kinds of ways. */
#ifndef SW_TRAINERD_PLAN_HANDMADE_H
#define SW_TRAINERD_PLAN_HANDMADE_H

#include "trainerd/plan/layout.h"

#define HAND_RANKS 8
#define HAND_ENTRIES 16
#define HAND_GROUPS 4
#define HAND_PARAMETERS 12 /* of a kind */
#define HAND_KINDS 2
#define HAND_TARGETS 4
#define HAND_MANY 2048

struct hand_piece { /* what a parameter is made of: the oracle's side of a want */
    uint32_t entry, format;
    struct sw_box box;        /* of the entry; scales: blocks */
    uint64_t to[SW_MAX_DIMS]; /* in the parameter */
};

struct hand_parameter {
    uint32_t kind, number, n;
    struct hand_piece pieces[8];
};

struct hand {
    struct sw_layout l;
    struct sw_plan_rank ranks[HAND_RANKS];
    uint32_t rank_list[HAND_RANKS];
    struct sw_box boxes[HAND_RANKS][HAND_GROUPS];
    struct sw_source_list list[2];
    struct sw_plan_tensor tensors[2][HAND_ENTRIES];
    uint32_t group[2][HAND_ENTRIES], entry[2][HAND_ENTRIES];
    struct sw_layout_list lists[2];
    struct sw_layout_kind known[HAND_KINDS];
    uint8_t expert[HAND_KINDS][HAND_PARAMETERS];
    uint32_t set[HAND_ENTRIES];
    struct sw_catalogue_entry entries[HAND_ENTRIES];
    uint32_t group_of[HAND_ENTRIES]; /* by entry */
    struct sw_holders holders[HAND_GROUPS];
    struct sw_holder holder_items[HAND_GROUPS * HAND_RANKS];
    struct sw_format formats[4];
    struct sw_box slab_boxes[HAND_MANY];
    struct sw_slab slabs[HAND_MANY];
    struct sw_split splits[HAND_MANY];
    struct sw_cell cells[HAND_MANY];
    struct sw_slab_run runs[HAND_MANY];
    uint64_t bases[HAND_MANY];
    struct sw_want wants[HAND_MANY];
    struct sw_kind kinds[HAND_KINDS];
    uint64_t replica_bytes[HAND_RANKS];
    char names[HAND_ENTRIES][16];
    /* targets */
    uint32_t n_targets, kind_of[HAND_TARGETS];
    struct sw_plan_target targets[HAND_TARGETS];
    struct sw_parameter parameters[HAND_TARGETS][HAND_PARAMETERS];
    uint64_t region_bytes[HAND_TARGETS][2];
    uint32_t n_parameters;
    struct hand_parameter made[HAND_KINDS * HAND_PARAMETERS];
    uint64_t random;
};

/* Another layout for each seed. */
struct hand *hand_make(uint64_t seed);
void hand_free(struct hand *h);

uint64_t hand_random(struct hand *h, uint64_t below);

#endif
