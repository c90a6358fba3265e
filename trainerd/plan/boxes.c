/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/boxes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* What lies past ndim, and between fields, must not count. */
static void normalise(const struct sw_box *box, struct sw_box *out)
{
    memset(out, 0, sizeof(*out));
    out->ndim = box->ndim;
    memcpy(out->lo, box->lo, box->ndim * sizeof(*box->lo));
    memcpy(out->len, box->len, box->ndim * sizeof(*box->len));
}

static bool same_box(const void *arg, uint32_t item, const void *key)
{
    const struct sw_boxes *b = arg;

    return sw_box_equal(&b->items[item], key);
}

uint32_t sw_boxes_find(const struct sw_boxes *b, const struct sw_box *box)
{
    struct sw_box key;

    normalise(box, &key);
    return sw_index_find(&b->index, XXH3_64bits(&key, sizeof(key)), same_box, b, &key);
}

uint32_t sw_boxes_add(struct sw_boxes *b, const struct sw_box *box)
{
    struct sw_box key;
    uint64_t hash;
    uint32_t found;

    normalise(box, &key);
    hash = XXH3_64bits(&key, sizeof(key));
    found = sw_index_find(&b->index, hash, same_box, b, &key);
    if (found != SW_NONE)
        return found;
    if (sw_array_room(&b->items, &b->size, b->n, sizeof(*b->items)) ||
        sw_index_add(&b->index, hash, b->n))
        return SW_NONE;
    memcpy(&b->items[b->n], &key, sizeof(key));
    return b->n++;
}

void sw_boxes_free(struct sw_boxes *b)
{
    free(b->items);
    sw_index_free(&b->index);
    *b = (struct sw_boxes){0};
}

bool sw_box_equal(const struct sw_box *a, const struct sw_box *b)
{
    return a->ndim == b->ndim && !memcmp(a->lo, b->lo, a->ndim * sizeof(*a->lo)) &&
           !memcmp(a->len, b->len, a->ndim * sizeof(*a->len));
}

uint64_t sw_box_volume(const struct sw_box *box)
{
    uint64_t volume = 1;

    for (uint32_t d = 0; d < box->ndim; d++)
        volume *= box->len[d];
    return volume;
}

uint64_t sw_box_bytes(const struct sw_box *box, enum sw_dtype dtype)
{
    const unsigned bits = sw_dtype_bits(dtype);
    const uint64_t volume = sw_box_volume(box);

    return volume / 8 * bits + volume % 8 * bits / 8;
}

bool sw_box_contains(const struct sw_box *outer, const struct sw_box *inner)
{
    for (uint32_t d = 0; d < inner->ndim; d++)
        if (inner->lo[d] < outer->lo[d] ||
            inner->lo[d] + inner->len[d] > outer->lo[d] + outer->len[d])
            return false;
    return true;
}

bool sw_box_intersect(const struct sw_box *a, const struct sw_box *b, struct sw_box *out)
{
    memset(out, 0, sizeof(*out));
    out->ndim = a->ndim;
    for (uint32_t d = 0; d < a->ndim; d++) {
        const uint64_t x = a->lo[d] + a->len[d], y = b->lo[d] + b->len[d];
        const uint64_t lo = a->lo[d] > b->lo[d] ? a->lo[d] : b->lo[d], hi = x < y ? x : y;

        if (lo >= hi)
            return false;
        out->lo[d] = lo;
        out->len[d] = hi - lo;
    }
    return true;
}

uint64_t sw_block_side(const uint32_t block[2], uint32_t ndim, uint32_t d)
{
    const uint64_t side = d + 1 == ndim ? block[1] : d + 2 == ndim ? block[0] : 1;

    return side ? side : 1;
}

void sw_box_of_blocks(const struct sw_box *blocks, const uint32_t block[2], const uint64_t *shape,
    struct sw_box *elements)
{
    memset(elements, 0, sizeof(*elements));
    elements->ndim = blocks->ndim;
    for (uint32_t d = 0; d < blocks->ndim; d++) {
        const uint64_t side = sw_block_side(block, blocks->ndim, d);
        const uint64_t end = (blocks->lo[d] + blocks->len[d]) * side;

        elements->lo[d] = blocks->lo[d] * side;
        elements->len[d] = (end < shape[d] ? end : shape[d]) - elements->lo[d];
    }
}

const char *sw_box_text(const struct sw_box *box, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");

    for (uint32_t d = 0; d < box->ndim && used < size; d++) {
        const unsigned long long lo = box->lo[d], len = box->len[d];

        used +=
            (size_t)snprintf(text + used, size - used, "%s%llu:%llu", d ? ", " : "", lo, lo + len);
    }
    if (used < size)
        snprintf(text + used, size - used, "]");
    return text;
}

const char *sw_tensor_text(
    enum sw_dtype dtype, uint32_t ndim, const uint64_t *shape, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "%s [", sw_dtype_name(dtype));

    for (uint32_t d = 0; d < ndim && used < size; d++)
        used += (size_t)snprintf(
            text + used, size - used, "%s%llu", d ? ", " : "", (unsigned long long)shape[d]);
    if (used < size)
        snprintf(text + used, size - used, "]");
    return text;
}
