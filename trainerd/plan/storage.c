/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/storage.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/limits.h"

struct slot { /* a parameter, while storages are put together */
    const char *name, *alias_of;
    uint64_t offset, bytes;
    uint32_t region, index;
};

/* Region, offset, size; within equal ones the root comes first, then the aliases by name. */
static int slot_compare(const void *a, const void *b)
{
    const struct slot *x = a, *y = b;

    if (x->region != y->region)
        return x->region < y->region ? -1 : 1;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    if (!x->alias_of != !y->alias_of)
        return x->alias_of ? 1 : -1;
    return strcmp(x->name, y->name);
}

static int slot_fill(
    const struct sw_plan_target *t, uint32_t i, struct slot *slot, struct sw_error *e)
{
    const struct sw_parameter *p = &t->parameters[i];

    *slot = (struct slot){.name = p->name, .offset = p->offset, .region = p->region, .index = i};
    slot->alias_of = p->alias_of && p->alias_of[0] ? p->alias_of : NULL;
    if (sw_tensor_bytes(p->dtype, p->ndim, p->shape, &slot->bytes))
        return sw_fail(e, SW_ERR_PLAN,
            "engine %s rank %u: parameter %s has a dtype or shape that has no size in bytes",
            t->engine, t->engine_rank, p->name);
    if (p->region >= t->n_regions)
        return sw_fail(e, SW_ERR_PLAN,
            "engine %s rank %u: parameter %s lies in region %u, but there are %u regions",
            t->engine, t->engine_rank, p->name, p->region, t->n_regions);
    if (sw_range_exceeds(p->offset, slot->bytes, t->region_bytes[p->region]))
        return sw_fail(e, SW_ERR_PLAN,
            "engine %s rank %u: parameter %s (%llu bytes at %llu) does not fit in region %u of "
            "%llu bytes",
            t->engine, t->engine_rank, p->name, (unsigned long long)slot->bytes,
            (unsigned long long)p->offset, p->region,
            (unsigned long long)t->region_bytes[p->region]);
    return 0;
}

static bool names_slot(const struct slot *slots, uint32_t n, const char *name)
{
    uint32_t low = 1, high = n;

    if (!strcmp(slots[0].name, name))
        return true;
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        const int order = strcmp(slots[mid].name, name);

        if (order == 0)
            return true;
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return false;
}

static int covered_twice(
    const struct sw_plan_target *t, const struct slot *a, const struct slot *b, struct sw_error *e)
{
    return sw_fail(e, SW_ERR_PLAN,
        "engine %s rank %u: parameters %s (region %u, %llu bytes at %llu) and %s (%llu bytes at "
        "%llu) overlap and are no exact aliases of each other",
        t->engine, t->engine_rank, a->name, a->region, (unsigned long long)a->bytes,
        (unsigned long long)a->offset, b->name, (unsigned long long)b->bytes,
        (unsigned long long)b->offset);
}

/* Slots of one place and size, with bytes: one root, and aliases of one of them. */
static int check_aliases(
    const struct sw_plan_target *t, const struct slot *slots, uint32_t n, struct sw_error *e)
{
    if (slots[0].alias_of)
        return sw_fail(e, SW_ERR_PLAN,
            "engine %s rank %u: parameter %s is declared an alias of %s, which does not lie at the "
            "same place with the same size",
            t->engine, t->engine_rank, slots[0].name, slots[0].alias_of);
    for (uint32_t i = 1; i < n; i++) {
        if (!slots[i].alias_of)
            return covered_twice(t, &slots[0], &slots[i], e);
        if (!names_slot(slots, n, slots[i].alias_of))
            return sw_fail(e, SW_ERR_PLAN,
                "engine %s rank %u: parameter %s is declared an alias of %s, which does not lie at "
                "the same place with the same size",
                t->engine, t->engine_rank, slots[i].name, slots[i].alias_of);
    }
    return 0;
}

static bool same_storage(const struct slot *a, const struct slot *b)
{
    return a->bytes > 0 && a->region == b->region && a->offset == b->offset && a->bytes == b->bytes;
}

static int group(const struct sw_plan_target *t, const struct slot *slots, struct sw_storages *s,
    struct sw_error *e)
{
    const struct slot *last = NULL; /* the last one with bytes */

    for (uint32_t i = 0, n; i < t->n_parameters; i += n) {
        for (n = 1; i + n < t->n_parameters && same_storage(&slots[i], &slots[i + n]);)
            n++;
        if (slots[i].bytes) {
            if (last && last->region == slots[i].region &&
                last->offset + last->bytes > slots[i].offset)
                return covered_twice(t, last, &slots[i], e);
            last = &slots[i];
            if (check_aliases(t, &slots[i], n, e))
                return SW_ERR_PLAN;
        }
        s->items[s->n++] = (struct sw_storage){.region = slots[i].region,
            .offset = slots[i].offset,
            .bytes = slots[i].bytes,
            .first = i,
            .n = n};
        for (uint32_t j = i; j < i + n; j++)
            s->members[j] = slots[j].index;
    }
    return 0;
}

int sw_storages_make(const struct sw_plan_target *t, struct sw_storages *out, struct sw_error *e)
{
    const size_t n = t->n_parameters;
    struct slot *slots = calloc(n + 1, sizeof(*slots));
    struct sw_storages s = {
        .items = calloc(n + 1, sizeof(*s.items)), .members = calloc(n + 1, sizeof(*s.members))};
    int err = 0;

    if (!slots || !s.items || !s.members)
        err = sw_fail(e, SW_ERR_NOMEM, "no memory to plan %zu parameters of engine %s rank %u", n,
            t->engine, t->engine_rank);
    for (uint32_t i = 0; !err && i < n; i++)
        err = slot_fill(t, i, &slots[i], e);
    if (!err) {
        qsort(slots, n, sizeof(*slots), slot_compare);
        err = group(t, slots, &s, e);
    }
    free(slots);
    if (err) {
        sw_storages_free(&s);
        return err;
    }
    *out = s;
    return 0;
}

void sw_storages_free(struct sw_storages *s)
{
    free(s->items);
    free(s->members);
    *s = (struct sw_storages){0};
}

int sw_storages_check(
    const struct sw_plan_target *like, const struct sw_plan_target *t, struct sw_error *e)
{
    struct sw_storages s;
    int err;

    if (like && like->parameters == t->parameters && like->n_parameters == t->n_parameters &&
        like->n_regions == t->n_regions &&
        (t->n_regions == 0 ||
            !memcmp(like->region_bytes, t->region_bytes, t->n_regions * sizeof(*t->region_bytes))))
        return 0;
    err = sw_storages_make(t, &s, e);
    if (!err)
        sw_storages_free(&s);
    return err;
}
