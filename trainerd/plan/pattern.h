/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names with {variables}: "model.layers.{layer}.mlp.gate.weight". A name's skeleton is the name
 * with each run of digits cut out; a pattern has one too, so that one hash finds the few patterns
 * that a name may match, however many layers and experts there are.
 */
#ifndef SW_TRAINERD_PLAN_PATTERN_H
#define SW_TRAINERD_PLAN_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/limits.h"

#define SW_PATTERN_SLOTS 8           /* runs of digits and variables in one name */
#define SW_PATTERN_VALUE_MAX 9999999 /* of a variable */

struct sw_pattern_slot { /* where the skeleton has its mark */
    int variable;        /* index; -1: `digits` as they are */
    uint32_t n_digits;
    const char *digits;
};

struct sw_pattern {
    const char *text; /* as written, for messages */
    const char *skeleton;
    uint32_t length; /* of the skeleton */
    uint32_t n_slots;
    struct sw_pattern_slot slots[SW_PATTERN_SLOTS];
    uint64_t hash; /* of the skeleton */
};

/*
 * Parses `text`, which may hold each of the n variables once. With `any`, unknown variables stand
 * for any number. Copies go to the arena. Returns what was expected and not found; NULL = success.
 */
const char *sw_pattern_parse(struct sw_arena *a, const char *text, const char *const *variables,
    uint32_t n, bool any, struct sw_pattern *out);

/* `p` with `suffix` (no digits in it) behind it; false = no memory, or too long. */
bool sw_pattern_extend(
    struct sw_arena *a, const struct sw_pattern *p, const char *suffix, struct sw_pattern *out);

/* Whether the pattern holds the variable of this index. */
bool sw_pattern_holds(const struct sw_pattern *p, int variable);

/* The name that it stands for, at most SW_NAME_MAX bytes and a NUL; returns the length. */
size_t sw_pattern_print(const struct sw_pattern *p, const int64_t *values, char *name);

/* ---- a name, read once and matched with several patterns ---- */

struct sw_name {
    uint32_t length, n_slots;
    uint64_t hash;
    const char *digits[SW_PATTERN_SLOTS]; /* borrowed from the name */
    uint32_t n_digits[SW_PATTERN_SLOTS];
    char skeleton[SW_NAME_MAX + 1];
};

/* The first `length` bytes of `name`; false when no pattern can match it. */
bool sw_name_read(const char *name, size_t length, struct sw_name *out);

/* Sets values[variable] for each variable of the pattern (not for those of `any`). */
bool sw_pattern_match(const struct sw_pattern *p, const struct sw_name *name, int64_t *values);

/* ---- many patterns ---- */

struct sw_pattern_index {
    uint32_t n, size; /* buckets: a power of two */
    const struct sw_pattern **items;
    uint32_t *next;         /* by item: the next of its bucket + 1, in the order of adding */
    uint32_t *first, *last; /* by bucket, + 1 */
};

/* Patterns are borrowed; memory comes from the arena. False = no memory. */
bool sw_pattern_index_init(struct sw_pattern_index *x, struct sw_arena *a, uint32_t capacity);
/* Items are numbered in the order of adding; at most `capacity` of them. */
void sw_pattern_index_add(struct sw_pattern_index *x, const struct sw_pattern *p);
/* The first (after == UINT32_MAX) or next item whose pattern matches; UINT32_MAX = none. */
uint32_t sw_pattern_index_find(
    const struct sw_pattern_index *x, const struct sw_name *name, uint32_t after, int64_t *values);

#endif
