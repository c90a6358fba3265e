/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The storages of one target: its distinct runs of declared bytes. Parameters that are exact
 * aliases of each other share one. Sorted by region and offset.
 */
#ifndef SW_TRAINERD_PLAN_STORAGE_H
#define SW_TRAINERD_PLAN_STORAGE_H

#include "trainerd/plan/plan.h"

struct sw_storage {
    uint32_t region;
    uint64_t offset,
        bytes;         /* bytes may be 0: a parameter without elements is a storage of its own */
    uint32_t first, n; /* its parameters: members[first .. first + n), the root first */
};

struct sw_storages {
    uint32_t n;
    struct sw_storage *items;
    uint32_t *members; /* indexes into the target's parameters */
};

/* SW_ERR_PLAN when a parameter lies outside its region or bytes are declared twice. */
int sw_storages_make(const struct sw_plan_target *t, struct sw_storages *out, struct sw_error *e);
void sw_storages_free(struct sw_storages *s);

/* Only checks. A target whose arrays are those of `like`, which was checked, is as good (NULL: no
 * such target). */
int sw_storages_check(
    const struct sw_plan_target *like, const struct sw_plan_target *t, struct sw_error *e);

#endif
