/* SPDX-License-Identifier: Apache-2.0 */
#include "client/convert.h"

#include <string.h>

#define GATHER 256u /* elements that don't lie side by side are cast so many at a time */

static unsigned size_of(enum sw_dtype dtype)
{
    return sw_dtype_bits(dtype) / 8;
}

/* Adds a dimension inside those that are there, or merges it with its outer neighbour. */
static void add_dimension(struct sw_convert *c, uint64_t count, int64_t src, int64_t dst)
{
    const uint32_t outer = c->n - 1;

    if (count == 1)
        return;
    /* Products are formed as unsigned numbers: a stride times a count that wraps is no match. */
    if (c->n && (uint64_t)c->src[outer] == count * (uint64_t)src &&
        (uint64_t)c->dst[outer] == count * (uint64_t)dst) {
        c->count[outer] *= count;
        c->src[outer] = src;
        c->dst[outer] = dst;
        return;
    }
    c->count[c->n] = count;
    c->src[c->n] = src;
    c->dst[c->n++] = dst;
}

struct sw_convert sw_convert_make(enum sw_dtype from, enum sw_dtype to, uint32_t ndim,
    const uint64_t *len, const int64_t *src_stride, const int64_t *dst_stride)
{
    struct sw_convert c = {.cast = sw_cast_find(sw_isa_best(), from, to),
        .src_size = size_of(from),
        .dst_size = size_of(to),
        .total = 1};

    for (uint32_t d = 0; d < ndim; d++)
        c.total *= len[d];
    if (c.total == 0)
        return (struct sw_convert){0};
    for (uint32_t d = 0; d < ndim; d++)
        add_dimension(&c, len[d], src_stride[d], dst_stride[d]);
    if (c.n == 0) { /* one element */
        c.count[0] = 1;
        c.n = 1;
    }
    return c;
}

/* Elements at any strides, through memory in which they lie side by side. */
static bool cast_apart(const struct sw_convert *c, char *dst, const char *src, uint64_t n,
    int64_t dst_stride, int64_t src_stride)
{
    char in[GATHER * 4], out[GATHER * 4];
    bool finite = true;

    while (n) {
        const uint64_t now = n < GATHER ? n : GATHER;

        for (uint64_t i = 0; i < now; i++)
            memcpy(in + i * c->src_size, src + (int64_t)i * src_stride, c->src_size);
        finite = c->cast(out, in, now, false) && finite;
        for (uint64_t i = 0; i < now; i++)
            memcpy(dst + (int64_t)i * dst_stride, out + i * c->dst_size, c->dst_size);
        n -= now;
        src += n ? (int64_t)now * src_stride : 0;
        dst += n ? (int64_t)now * dst_stride : 0;
    }
    return finite;
}

bool sw_convert_run(
    const struct sw_convert *c, void *dst, const void *src, uint64_t from, uint64_t to, bool stream)
{
    const uint32_t inner = c->n - 1;
    bool finite = true;

    while (from < to) {
        uint64_t rest = from, index = 0, units;
        int64_t s = 0, d = 0;

        for (uint32_t k = c->n; k-- > 0;) {
            index = rest % c->count[k];
            rest /= c->count[k];
            s += (int64_t)index * c->src[k];
            d += (int64_t)index * c->dst[k];
        }
        units = c->count[inner] - from % c->count[inner];
        units = units < to - from ? units : to - from;
        if ((units == 1 || c->src[inner] == (int64_t)c->src_size) &&
            (units == 1 || c->dst[inner] == (int64_t)c->dst_size))
            finite = c->cast((char *)dst + d, (const char *)src + s, units, stream) && finite;
        else
            finite = cast_apart(c, (char *)dst + d, (const char *)src + s, units, c->dst[inner],
                         c->src[inner]) &&
                     finite;
        from += units;
    }
    return finite;
}
