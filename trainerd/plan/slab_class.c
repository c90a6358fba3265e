/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/slab_class.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"

struct key {
    uint32_t split, box, format, holders, ndim, zero; /* zero: no hidden padding is hashed */
    uint64_t shape[SW_MAX_DIMS];
};

static struct key key_of(const struct sw_compact *c, const struct sw_slab *s)
{
    struct key k = {s->split, s->box, s->format, SW_NONE, 0, 0, {0}};

    if (s->source != SW_NONE) {
        const struct sw_catalogue_entry *entry = &c->entries[s->source];

        k.holders = entry->holders;
        k.ndim = entry->ndim;
        memcpy(k.shape, entry->shape, entry->ndim * sizeof(*k.shape));
    }
    return k;
}

struct table { /* open addressing: class + 1; 0 = free */
    uint32_t *slots;
    struct key *keys; /* by class */
    uint32_t size, classes_size;
};

static bool grow_slots(struct table *t, uint32_t n)
{
    const uint32_t size = t->size ? 2 * t->size : 1024;
    uint32_t *slots = calloc(size, sizeof(*slots));

    if (!slots)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = (uint32_t)XXH3_64bits(&t->keys[i], sizeof(t->keys[i])) & (size - 1);

        while (slots[at])
            at = (at + 1) & (size - 1);
        slots[at] = i + 1;
    }
    free(t->slots);
    t->slots = slots;
    t->size = size;
    return true;
}

static bool grow_classes(struct table *t, struct sw_slab_classes *s)
{
    const uint32_t size = t->classes_size ? 2 * t->classes_size : 512;
    uint32_t *first = realloc(s->first, size * sizeof(*first));
    struct key *keys;

    if (!first)
        return false;
    s->first = first;
    keys = realloc(t->keys, size * sizeof(*keys));
    if (!keys)
        return false;
    t->keys = keys;
    t->classes_size = size;
    return true;
}

/* The class of a key, a new one if need be; SW_NONE without memory. */
static uint32_t find(struct table *t, struct sw_slab_classes *s, const struct key *k, uint32_t slab)
{
    uint32_t at;

    if ((s->n == t->classes_size && !grow_classes(t, s)) ||
        (2 * s->n >= t->size && !grow_slots(t, s->n)))
        return SW_NONE;
    at = (uint32_t)XXH3_64bits(k, sizeof(*k)) & (t->size - 1);
    for (; t->slots[at]; at = (at + 1) & (t->size - 1))
        if (!memcmp(&t->keys[t->slots[at] - 1], k, sizeof(*k)))
            return t->slots[at] - 1;
    t->keys[s->n] = *k;
    s->first[s->n] = slab;
    t->slots[at] = ++s->n;
    return s->n - 1;
}

int sw_slab_classes_make(
    const struct sw_compact *c, struct sw_slab_classes *out, struct sw_error *e)
{
    struct table t = {0};
    struct sw_slab_classes s = {.of = malloc((c->n_slabs + 1ull) * sizeof(*s.of))};
    bool able = s.of;

    for (uint32_t i = 0; able && i < c->n_slabs; i++) {
        const struct key k = key_of(c, &c->slabs[i]);

        s.of[i] = find(&t, &s, &k, i);
        able = s.of[i] != SW_NONE;
    }
    free(t.slots);
    free(t.keys);
    if (!able) {
        sw_slab_classes_clear(&s);
        return sw_fail(e, SW_ERR_NOMEM, "no memory to look through %u slabs", c->n_slabs);
    }
    *out = s;
    return 0;
}

void sw_slab_classes_clear(struct sw_slab_classes *s)
{
    free(s->first);
    free(s->of);
    *s = (struct sw_slab_classes){0};
}
