/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of sw_compact_prove. Each relies on those before it, in this order:
 *
 *   numbers   every index is in range, every box lies in its tensor, formats are sound
 *   tiles     splits cut their slabs exactly; tiles of a rank and wave do not overlap
 *   held      what the plan says that ranks hold is what they declared; each cell lies in its
 *             rank's box
 *   blocks    the ranks that quantise a part of an FP8 block hold all of it together
 *   wants     each parameter of each kind is made up by its wants exactly, of the bytes that the
 *             model (or its name) says
 *   targets   every target is of some kind; its parameters lie in its regions, apart
 */
#ifndef SW_TRAINERD_PLAN_COMPACT_PROOF_H
#define SW_TRAINERD_PLAN_COMPACT_PROOF_H

#include "trainerd/plan/slab_class.h"

struct sw_proof {
    const struct sw_compact *c;
    const struct sw_plan_rank *ranks;
    const struct sw_plan_target *targets;
    uint32_t n_ranks, n_targets;
    struct sw_slab_classes classes; /* after `numbers` */
    uint32_t *by_name;              /* after `held`: hash table of entry + 1; see sw_proof_entry */
    uint32_t by_name_size;          /* a power of two */
};

int sw_proof_numbers(struct sw_proof *p, struct sw_error *e);
int sw_proof_tiles(struct sw_proof *p, struct sw_error *e);
int sw_proof_held(struct sw_proof *p, struct sw_error *e);
int sw_proof_blocks(struct sw_proof *p, struct sw_error *e);
int sw_proof_wants(struct sw_proof *p, struct sw_error *e);
int sw_proof_targets(struct sw_proof *p, struct sw_error *e);

/* The catalogue entry of a name; SW_NONE when there is none. */
uint32_t sw_proof_entry(const struct sw_proof *p, const char *name);

/* The box of an entry that a rank (position) holds, as the plan says; NULL when none. */
const struct sw_box *sw_proof_holds(const struct sw_compact *c, uint32_t entry, uint32_t rank);

/*
 * Which parameters share a storage: root[i] is the one that the aliases of i end at (i itself when
 * it is none's alias). SW_ERR_PLAN names an alias of nothing, or of itself in the end.
 */
int sw_proof_roots(const struct sw_plan_target *t, uint32_t *root, struct sw_error *e);

/* Fails with "the plan is wrong (a defect, please report it): ...". */
int sw_proof_wrong(struct sw_error *e, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int sw_proof_no_memory(struct sw_error *e);

#if defined(__clang_analyzer__) && !defined(SW_PROOF_IMPLEMENTATION)
#define sw_proof_wrong(e, ...) ((void)sw_proof_wrong(e, __VA_ARGS__), SW_ERR_PLAN)
#define sw_proof_no_memory(e) ((void)sw_proof_no_memory(e), SW_ERR_NOMEM)
#endif

#endif
