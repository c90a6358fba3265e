/* SPDX-License-Identifier: Apache-2.0 */
#define XXH_INLINE_ALL
#include "client/names.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <shardwire/error.h>

struct slot {
    const char *name; /* NULL = free */
    uint64_t hash;
    uint32_t index;
};

struct sw_names {
    struct slot *slots;
    size_t size; /* a power of two; at most half of it is used */
    size_t used;
};

struct sw_names *sw_names_new(void)
{
    return calloc(1, sizeof(struct sw_names));
}

void sw_names_free(struct sw_names *n)
{
    if (!n)
        return;
    free(n->slots);
    free(n);
}

/* The slot that holds the name, or the free one where it belongs. */
static struct slot *probe(struct slot *slots, size_t size, const char *name, uint64_t hash)
{
    size_t at = hash & (size - 1);

    while (slots[at].name && (slots[at].hash != hash || strcmp(slots[at].name, name) != 0))
        at = (at + 1) & (size - 1);
    return &slots[at];
}

static int grow(struct sw_names *n)
{
    const size_t size = n->size ? 2 * n->size : 64;
    struct slot *slots = calloc(size, sizeof(*slots));

    if (!slots)
        return SW_ERR_NOMEM;
    for (size_t i = 0; i < n->size; i++)
        if (n->slots[i].name)
            *probe(slots, size, n->slots[i].name, n->slots[i].hash) = n->slots[i];
    free(n->slots);
    n->slots = slots;
    n->size = size;
    return 0;
}

int sw_names_add(struct sw_names *n, const char *name, uint32_t index)
{
    const uint64_t hash = XXH3_64bits(name, strlen(name));

    if (2 * n->used >= n->size && grow(n))
        return SW_ERR_NOMEM;
    *probe(n->slots, n->size, name, hash) = (struct slot){name, hash, index};
    n->used++;
    return 0;
}

uint32_t sw_names_find(const struct sw_names *n, const char *name)
{
    const struct slot *slot;

    if (!n->used)
        return SW_NAMES_NONE;
    slot = probe(n->slots, n->size, name, XXH3_64bits(name, strlen(name)));
    return slot->name ? slot->index : SW_NAMES_NONE;
}
