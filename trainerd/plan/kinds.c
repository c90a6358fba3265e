/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/kinds.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"
#include "trainerd/plan/storage.h"

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory for the kinds of engine ranks");
}

static const char *alias(const struct sw_parameter *p)
{
    return p->alias_of && p->alias_of[0] ? p->alias_of : NULL;
}

static void feed_text(XXH3_state_t *state, const char *text)
{
    XXH3_128bits_update(state, text, strlen(text) + 1);
}

/* Of what makes parameters equal; where they lie counts nothing. */
static int digest(const struct sw_plan_target *t, uint64_t out[2], struct sw_error *e)
{
    XXH3_state_t *state = XXH3_createState();
    XXH128_hash_t hash;

    if (!state)
        return no_memory(e);
    XXH3_128bits_reset(state);
    for (uint32_t i = 0; i < t->n_parameters; i++) {
        const struct sw_parameter *p = &t->parameters[i];
        const uint32_t numbers[] = {(uint32_t)p->dtype, p->ndim, alias(p) != NULL};

        feed_text(state, p->name);
        XXH3_128bits_update(state, numbers, sizeof(numbers));
        if (p->ndim && p->ndim <= SW_MAX_DIMS) /* storages refuse others */
            XXH3_128bits_update(state, p->shape, p->ndim * sizeof(*p->shape));
        if (alias(p))
            feed_text(state, alias(p));
    }
    hash = XXH3_128bits_digest(state);
    out[0] = hash.low64;
    out[1] = hash.high64;
    XXH3_freeState(state);
    return 0;
}

static bool same_parameters(const struct sw_plan_target *a, const struct sw_plan_target *b)
{
    if (a->n_parameters != b->n_parameters)
        return false;
    for (uint32_t i = 0; a->parameters != b->parameters && i < a->n_parameters; i++) {
        const struct sw_parameter *p = &a->parameters[i], *q = &b->parameters[i];
        const char *x = alias(p), *y = alias(q);

        if (p->dtype != q->dtype || p->ndim != q->ndim || !x != !y)
            return false;
        if (p->ndim && p->ndim <= SW_MAX_DIMS &&
            memcmp(p->shape, q->shape, p->ndim * sizeof(*p->shape)) != 0)
            return false;
        if (strcmp(p->name, q->name) != 0 || (x && strcmp(x, y) != 0))
            return false;
    }
    return true;
}

static bool same_kind(
    const struct sw_layout_kind *k, const struct sw_plan_target *t, const uint64_t sum[2])
{
    if (k->n != t->n_parameters || k->model != t->model || k->digest[0] != sum[0] ||
        k->digest[1] != sum[1] || (k->single && k->target != t->target))
        return false;
    if (!k->has_placement || !t->placement)
        return !k->has_placement && !t->placement;
    return sw_placement_equal(&k->placement, t->placement);
}

uint32_t sw_layout_kind_of(const struct sw_layout *l, const struct sw_plan_target *t)
{
    uint64_t sum[2];

    if (digest(t, sum, NULL))
        return SW_NONE;
    for (uint32_t k = 0; k < l->c.n_kinds; k++)
        if (same_kind(&l->known[k], t, sum))
            return k;
    return SW_NONE;
}

void sw_kind_clear(struct sw_layout_kind *k)
{
    free((void *)k->placement.map);
    free(k->expert);
    *k = (struct sw_layout_kind){0};
}

static int copy_placement(
    struct sw_layout_kind *k, const struct sw_placement *from, struct sw_error *e)
{
    const size_t cells = (size_t)from->map_layers * from->map_slots;
    uint32_t *map = NULL;

    if (from->map && cells) {
        map = malloc(cells * sizeof(*map));
        if (!map)
            return no_memory(e);
        memcpy(map, from->map, cells * sizeof(*map));
    }
    k->placement = *from;
    k->placement.map = map;
    k->has_placement = true;
    return 0;
}

static int add_kind(struct sw_layout *l, const struct sw_plan_target *t, uint32_t position,
    const uint64_t sum[2], bool single, struct sw_error *e)
{
    const size_t n = (size_t)l->c.n_kinds + 1;
    struct sw_layout_kind *known = realloc(l->known, n * sizeof(*known));
    struct sw_kind *kinds;

    if (!known)
        return no_memory(e);
    l->known = known;
    kinds = realloc(l->c.kinds, n * sizeof(*kinds));
    if (!kinds)
        return no_memory(e);
    l->c.kinds = kinds;
    known += l->c.n_kinds;
    *known = (struct sw_layout_kind){.digest = {sum[0], sum[1]},
        .n = t->n_parameters,
        .model = t->model,
        .single = single,
        .target = t->target};
    if (t->placement && copy_placement(known, t->placement, e))
        return SW_ERR_NOMEM;
    kinds[l->c.n_kinds++] = (struct sw_kind){.target = position};
    return 0;
}

/* The kind of a target among those found, by its array if that is shared, else by digest and
 * then exactly. */
static int find_kind(const struct sw_layout *l, const struct sw_plan_target *targets,
    const struct sw_plan_target *t, uint64_t sum[2], uint32_t *kind, struct sw_error *e)
{
    bool known = false;

    for (uint32_t k = l->c.n_kinds; !known && k-- > 0;) {
        const struct sw_plan_target *first = &targets[l->c.kinds[k].target];

        known = first->parameters == t->parameters && first->n_parameters == t->n_parameters;
        if (known)
            memcpy(sum, l->known[k].digest, sizeof(l->known[k].digest));
    }
    if (!known && digest(t, sum, e))
        return SW_ERR_NOMEM;
    for (uint32_t k = 0; k < l->c.n_kinds; k++)
        if (same_kind(&l->known[k], t, sum) && same_parameters(&targets[l->c.kinds[k].target], t)) {
            *kind = k;
            return 0;
        }
    *kind = SW_NONE;
    return 0;
}

int sw_kinds_make(struct sw_layout *l, const struct sw_plan_target *targets, uint32_t n_targets,
    bool single, uint32_t *kind_of, struct sw_error *e)
{
    for (uint32_t i = 0; i < n_targets; i++) {
        const struct sw_plan_target *t = &targets[i];
        uint64_t sum[2];
        int err = find_kind(l, targets, t, sum, &kind_of[i], e);

        if (err)
            return err;
        if (kind_of[i] == SW_NONE) { /* its storages are looked at when its wants are found */
            kind_of[i] = l->c.n_kinds;
            err = add_kind(l, t, i, sum, single, e);
        } else {
            err = sw_storages_check(&targets[l->c.kinds[kind_of[i]].target], t, e);
        }
        if (err)
            return err;
    }
    return 0;
}
