/* SPDX-License-Identifier: Apache-2.0 */
/* A bump allocator: many small things of one lifetime, freed together. Not thread-safe. */
#ifndef SW_COMMON_ARENA_H
#define SW_COMMON_ARENA_H

#include <stddef.h>

struct sw_arena {
    struct sw_arena_block *head;
    size_t used;   /* bytes handed out, alignment included */
    size_t budget; /* at most this many; 0 = no limit */
};

/* An arena is ready when zero-initialised; this also sets its budget. */
void sw_arena_init(struct sw_arena *a, size_t budget);

/* Zeroed memory, aligned to 16. NULL when the budget or the system's memory is used up. */
void *sw_arena_alloc(struct sw_arena *a, size_t bytes);

/* `count` items of `size` bytes with an overflow check; NULL as above. count 0 gives a valid
 * pointer. */
void *sw_arena_array(struct sw_arena *a, size_t count, size_t size);

/* A NUL-terminated copy; NULL as above. */
char *sw_arena_strdup(struct sw_arena *a, const char *text);
char *sw_arena_strndup(struct sw_arena *a, const char *text, size_t length);

/* Frees everything; the arena may be used again. */
void sw_arena_clear(struct sw_arena *a);

#endif
