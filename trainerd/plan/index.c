/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/index.h"

#include <stdlib.h>
#include <string.h>

uint32_t sw_index_find(
    const struct sw_index *x, uint64_t hash, sw_index_same *same, const void *arg, const void *key)
{
    if (!x->size)
        return UINT32_MAX;
    for (uint32_t i = (uint32_t)hash & (x->size - 1); x->slots[i].item != UINT32_MAX;
         i = (i + 1) & (x->size - 1))
        if (x->slots[i].hash == (uint32_t)hash && same(arg, x->slots[i].item, key))
            return x->slots[i].item;
    return UINT32_MAX;
}

static void put(struct sw_index *x, struct sw_index_slot slot)
{
    uint32_t i = slot.hash & (x->size - 1);

    while (x->slots[i].item != UINT32_MAX)
        i = (i + 1) & (x->size - 1);
    x->slots[i] = slot;
}

static int grow(struct sw_index *x)
{
    struct sw_index more = {.n = x->n, .size = x->size ? x->size * 2 : 16};

    if (x->size > UINT32_MAX / 2)
        return -1;
    more.slots = malloc(more.size * sizeof(*more.slots));
    if (!more.slots)
        return -1;
    memset(more.slots, 0xff, more.size * sizeof(*more.slots));
    for (uint32_t i = 0; i < x->size; i++)
        if (x->slots[i].item != UINT32_MAX)
            put(&more, x->slots[i]);
    free(x->slots);
    *x = more;
    return 0;
}

int sw_index_add(struct sw_index *x, uint64_t hash, uint32_t item)
{
    if (x->n >= x->size / 4 * 3 && grow(x))
        return -1;
    put(x, (struct sw_index_slot){(uint32_t)hash, item});
    x->n++;
    return 0;
}

void sw_index_free(struct sw_index *x)
{
    free(x->slots);
    *x = (struct sw_index){0};
}

int sw_array_room(void *array, uint32_t *size, uint32_t n, size_t item_bytes)
{
    void *old, *more;
    uint32_t larger;

    if (n < *size)
        return 0;
    if (n >= UINT32_MAX - 1)
        return -1;
    /* Half as much again: what is too much is seldom touched, and given back at the end. */
    larger = n < 16 ? 16 : n > UINT32_MAX / 2 ? UINT32_MAX - 1 : n + n / 2;
    memcpy(&old, array, sizeof(old));
    more = realloc(old, larger * item_bytes);
    if (!more)
        return -1;
    memcpy(array, &more, sizeof(more)); /* which is lost on cppcheck */
    *size = larger;
    return 0; // cppcheck-suppress memleak
}

void sw_array_trim(void *array, uint32_t *size, uint32_t n, size_t item_bytes)
{
    void *old, *less;

    memcpy(&old, array, sizeof(old));
    less = old ? realloc(old, (n ? n : 1) * item_bytes) : NULL;
    if (!less)
        return;
    memcpy(array, &less, sizeof(less));
    *size = n ? n : 1;
}
