/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slabs that only their tensor's name tells apart: same box of an equal tensor that the same ranks
 * hold in the same boxes, same format, same split. What is true of one is true of all, so that the
 * proof looks at each class once.
 */
#ifndef SW_TRAINERD_PLAN_SLAB_CLASS_H
#define SW_TRAINERD_PLAN_SLAB_CLASS_H

#include "trainerd/plan/compact.h"

struct sw_slab_classes {
    uint32_t n;
    uint32_t *first; /* slab, by class */
    uint32_t *of;    /* by slab */
};

/* Indices in the slabs must be good. Caller frees with sw_slab_classes_clear. */
int sw_slab_classes_make(
    const struct sw_compact *c, struct sw_slab_classes *out, struct sw_error *e);
void sw_slab_classes_clear(struct sw_slab_classes *s);

#endif
