/* SPDX-License-Identifier: Apache-2.0 */
#define XXH_INLINE_ALL
#include "client/strided.h"

#include <string.h>
#include <xxhash.h>
#include "common/copy.h"

#define GATHER_BYTES (32u << 10)

/* Adds a dimension inside those that are there, or merges it with its outer neighbour. */
static void add_dimension(struct sw_strided *s, uint64_t count, int64_t src, int64_t dst)
{
    const uint32_t outer = s->n - 1;

    if (count == 1)
        return;
    /* Products are formed as unsigned numbers: a stride times a count that wraps is no match. */
    if (s->n && (uint64_t)s->src[outer] == count * (uint64_t)src &&
        (uint64_t)s->dst[outer] == count * (uint64_t)dst) {
        s->count[outer] *= count;
        s->src[outer] = src;
        s->dst[outer] = dst;
        return;
    }
    s->count[s->n] = count;
    s->src[s->n] = src;
    s->dst[s->n++] = dst;
}

struct sw_strided sw_strided_make(unsigned bits, uint32_t ndim, const uint64_t *len,
    const int64_t *src_stride, const int64_t *dst_stride)
{
    struct sw_strided s = {.unit = bits / 8};
    uint32_t dims = ndim;

    if (bits % 8) {
        dims = ndim - 1;
        s.unit = len[dims] / 8 * bits + len[dims] % 8 * bits / 8;
    }
    s.total = s.unit;
    for (uint32_t d = 0; d < dims; d++)
        s.total *= len[d];
    if (s.total == 0)
        return (struct sw_strided){0};
    for (uint32_t d = 0; d < dims; d++)
        add_dimension(&s, len[d], src_stride[d], dst_stride[d]);
    if (s.n && s.src[s.n - 1] == (int64_t)s.unit && s.dst[s.n - 1] == (int64_t)s.unit)
        s.unit *= s.count[--s.n];
    return s;
}

/* Where a walk stands. Offsets, not pointers: those outside of the memory would be undefined. */
struct place {
    uint64_t index[SW_MAX_DIMS];
    int64_t src, dst;
};

static struct place place_of(const struct sw_strided *s, uint64_t unit)
{
    struct place p = {.src = 0};

    for (uint32_t d = s->n; d-- > 0;) {
        p.index[d] = unit % s->count[d];
        unit /= s->count[d];
        p.src += (int64_t)p.index[d] * s->src[d];
        p.dst += (int64_t)p.index[d] * s->dst[d];
    }
    return p;
}

/* Goes `units` further; they end at most at the innermost dimension's end. */
static void advance(const struct sw_strided *s, struct place *p, uint64_t units)
{
    uint32_t d = s->n;

    if (!d)
        return;
    d--;
    p->index[d] += units;
    p->src += (int64_t)units * s->src[d];
    p->dst += (int64_t)units * s->dst[d];
    while (p->index[d] == s->count[d] && d > 0) {
        p->src += s->src[d - 1] - (int64_t)s->count[d] * s->src[d];
        p->dst += s->dst[d - 1] - (int64_t)s->count[d] * s->dst[d];
        p->index[d--] = 0;
        p->index[d]++;
    }
}

/* `n` units side by side. A constant size makes each copy one load and one store. */
static void copy_row(
    char *dst, const char *src, uint64_t unit, uint64_t n, int64_t dst_stride, int64_t src_stride)
{
#define ROW(bytes)                                                                                 \
    for (uint64_t i = 0; i < n; i++)                                                               \
        memcpy(dst + (int64_t)i * dst_stride, src + (int64_t)i * src_stride, (bytes));
    switch (unit) {
    case 1:
        ROW(1)
        break;
    case 2:
        ROW(2)
        break;
    case 4:
        ROW(4)
        break;
    case 8:
        ROW(8)
        break;
    default:
        for (uint64_t i = 0; i < n; i++)
            sw_copy(dst + (int64_t)i * dst_stride, src + (int64_t)i * src_stride, unit);
    }
#undef ROW
}

static void zero_row(char *dst, uint64_t unit, uint64_t n, int64_t dst_stride)
{
    for (uint64_t i = 0; i < n; i++)
        memset(dst + (int64_t)i * dst_stride, 0, unit);
}

/* `bias` is taken off every place in dst: a gather writes its part at the start of a buffer. No
 * src: zeros. */
static void walk(const struct sw_strided *s, char *dst, uint64_t bias, const char *src,
    uint64_t from, uint64_t to)
{
    const uint32_t inner = s->n ? s->n - 1 : 0;
    uint64_t skip;
    struct place p;

    if (from >= to || !s->unit)
        return;
    skip = from % s->unit;
    p = place_of(s, from / s->unit);
    while (from < to) {
        char *d = dst + (p.dst - (int64_t)bias) + skip;
        const char *q = src ? src + p.src + skip : NULL;
        uint64_t units = 1, bytes = s->unit - skip;

        if (skip || to - from < s->unit) { /* a part of a unit, at either end */
            bytes = bytes < to - from ? bytes : to - from;
            if (q)
                sw_copy(d, q, bytes);
            else
                memset(d, 0, bytes);
        } else {
            const uint64_t left = s->n ? s->count[inner] - p.index[inner] : 1;

            units = (to - from) / s->unit < left ? (to - from) / s->unit : left;
            bytes = units * s->unit;
            if (q)
                copy_row(d, q, s->unit, units, s->n ? s->dst[inner] : 0, s->n ? s->src[inner] : 0);
            else
                zero_row(d, s->unit, units, s->n ? s->dst[inner] : 0);
        }
        from += bytes;
        skip = 0;
        if (from < to)
            advance(s, &p, units);
    }
}

void sw_strided_copy(
    const struct sw_strided *s, void *dst, const void *src, uint64_t from, uint64_t to)
{
    walk(s, dst, 0, src, from, to);
}

void sw_strided_zero(const struct sw_strided *s, void *dst, uint64_t from, uint64_t to)
{
    walk(s, dst, 0, NULL, from, to);
}

/* The same walk, written densely. */
static struct sw_strided dense(const struct sw_strided *s)
{
    struct sw_strided out = *s;
    uint64_t bytes = s->unit;

    for (uint32_t d = s->n; d-- > 0;) {
        out.dst[d] = (int64_t)bytes;
        bytes *= s->count[d];
    }
    return out;
}

void sw_strided_digest(const struct sw_strided *s, const void *src, uint64_t *high, uint64_t *low)
{
    const struct sw_strided d = dense(s);
    char buffer[GATHER_BYTES];
    XXH3_state_t state;
    XXH128_hash_t hash;

    if (s->n == 0) {
        hash = XXH3_128bits(s->total ? src : NULL, s->total);
    } else {
        XXH3_128bits_reset(&state);
        for (uint64_t at = 0; at < s->total; at += GATHER_BYTES) {
            const uint64_t left = s->total - at;
            const uint64_t bytes = left < GATHER_BYTES ? left : GATHER_BYTES;

            walk(&d, buffer, at, src, at, at + bytes);
            XXH3_128bits_update(&state, buffer, bytes);
        }
        hash = XXH3_128bits_digest(&state);
    }
    *high = hash.high64;
    *low = hash.low64;
}
