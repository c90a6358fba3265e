/* SPDX-License-Identifier: Apache-2.0 */
/* A hash index: numbers of things that are kept elsewhere, found by the hash of what they are. */
#ifndef SW_TRAINERD_PLAN_INDEX_H
#define SW_TRAINERD_PLAN_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sw_index_slot {
    uint32_t hash, item; /* item UINT32_MAX: free */
};

struct sw_index { /* empty when zero-initialised */
    struct sw_index_slot *slots;
    uint32_t n, size; /* size is 0 or a power of two */
};

/* Whether an item is what `key` says. */
typedef bool sw_index_same(const void *arg, uint32_t item, const void *key);

/* The item; UINT32_MAX when there is none. */
uint32_t sw_index_find(
    const struct sw_index *x, uint64_t hash, sw_index_same *same, const void *arg, const void *key);

/* Adds an item that is not there yet. 0, or -1 without memory. */
int sw_index_add(struct sw_index *x, uint64_t hash, uint32_t item);
void sw_index_free(struct sw_index *x);

/* Makes room for one more item in a growing array of `n` items. 0, or -1 without memory (or with
 * 2^32 - 1 items). `array` points to the pointer. */
int sw_array_room(void *array, uint32_t *size, uint32_t n, size_t item_bytes);

/* Gives back what a finished array doesn't need. */
void sw_array_trim(void *array, uint32_t *size, uint32_t n, size_t item_bytes);

#endif
