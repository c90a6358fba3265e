/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A walk over a box of a tensor in C order, reading at one set of strides and writing at another.
 * Neighbouring dimensions that are dense on both sides are merged, so that a dense box is one run.
 * Pure; positions count the box's bytes in walk order, so that a walk can be cut anywhere.
 */
#ifndef SW_CLIENT_STRIDED_H
#define SW_CLIENT_STRIDED_H

#include <stdint.h>
#include <shardwire/dtype.h>

struct sw_strided {
    uint64_t unit;  /* bytes that are contiguous on both sides */
    uint64_t total; /* bytes of the whole walk */
    uint32_t n;     /* dimensions left around the unit */
    uint64_t count[SW_MAX_DIMS];
    int64_t src[SW_MAX_DIMS]; /* bytes between neighbours */
    int64_t dst[SW_MAX_DIMS];
};

/*
 * A box of `len` elements of `bits` each; strides in bytes. When elements are less than a byte the
 * last dimension is dense on both sides (its strides are not looked at) and fills whole bytes.
 * Numbers must be such that no offset in the box overflows.
 */
struct sw_strided sw_strided_make(unsigned bits, uint32_t ndim, const uint64_t *len,
    const int64_t *src_stride, const int64_t *dst_stride);

/* Moves the bytes [from, to) of the walk. */
void sw_strided_copy(
    const struct sw_strided *s, void *dst, const void *src, uint64_t from, uint64_t to);

/* Sets them to 0; src strides are not looked at. */
void sw_strided_zero(const struct sw_strided *s, void *dst, uint64_t from, uint64_t to);

/* XXH3-128 of all bytes in walk order, as if they were dense. */
void sw_strided_digest(const struct sw_strided *s, const void *src, uint64_t *high, uint64_t *low);

#endif
