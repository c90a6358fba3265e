/* SPDX-License-Identifier: Apache-2.0 */
#include "common/arena.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN ((size_t)16)
#define FIRST_BLOCK ((size_t)512)
#define LARGEST_BLOCK ((size_t)256 << 10)
#define LARGE ((size_t)64 << 10) /* from here on, an allocation has a block of its own */

struct sw_arena_block {
    struct sw_arena_block *next;
    size_t size, used; /* of data */
    _Alignas(16) unsigned char data[];
};

void sw_arena_init(struct sw_arena *a, size_t budget)
{
    *a = (struct sw_arena){.budget = budget};
}

/* A block that holds at least `bytes`. Blocks double, so that a message of any size takes few. */
static struct sw_arena_block *block_new(const struct sw_arena *a, size_t bytes)
{
    struct sw_arena_block *block;
    size_t size = a->head ? a->head->size : FIRST_BLOCK / 2;

    size = size < LARGEST_BLOCK / 2 ? size * 2 : LARGEST_BLOCK;
    if (size < bytes || bytes >= LARGE)
        size = bytes;
    if (size > SIZE_MAX - sizeof(*block))
        return NULL;
    block = calloc(1, sizeof(*block) + size); /* zeroed: nobody writes it before it is handed out */
    if (block)
        block->size = size;
    return block;
}

/* A block that is full at once goes behind the head, whose free rest stays in use. */
static void link_block(struct sw_arena *a, struct sw_arena_block *block, bool full)
{
    if (full && a->head) {
        block->next = a->head->next;
        a->head->next = block;
    } else {
        block->next = a->head;
        a->head = block;
    }
}

static bool over_budget(const struct sw_arena *a, size_t bytes)
{
    return a->budget && (bytes > a->budget || a->used > a->budget - bytes);
}

void *sw_arena_alloc(struct sw_arena *a, size_t bytes)
{
    struct sw_arena_block *block = a->head;
    void *out;

    if (bytes > SIZE_MAX - ALIGN)
        return NULL;
    bytes = bytes ? (bytes + ALIGN - 1) & ~(ALIGN - 1) : ALIGN;
    if (over_budget(a, bytes))
        return NULL;
    if (!block || bytes > block->size - block->used) {
        block = block_new(a, bytes);
        if (!block)
            return NULL;
        link_block(a, block, bytes >= LARGE);
    }
    out = block->data + block->used;
    block->used += bytes;
    a->used += bytes;
    return out;
}

void *sw_arena_array(struct sw_arena *a, size_t count, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(count, size, &bytes))
        return NULL;
    return sw_arena_alloc(a, bytes);
}

char *sw_arena_strndup(struct sw_arena *a, const char *text, size_t length)
{
    char *copy;

    length = strnlen(text, length);
    copy = sw_arena_alloc(a, length + 1);
    if (copy)
        memcpy(copy, text, length);
    return copy;
}

char *sw_arena_strdup(struct sw_arena *a, const char *text)
{
    return sw_arena_strndup(a, text, SIZE_MAX);
}

void sw_arena_clear(struct sw_arena *a)
{
    struct sw_arena_block *next;

    for (struct sw_arena_block *block = a->head; block; block = next) {
        next = block->next;
        free(block);
    }
    a->head = NULL;
    a->used = 0;
}
