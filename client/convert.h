/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A walk over a box of a tensor in C order that casts its elements: read at one set of strides,
 * written at another. Pure; positions count elements in walk order, so that it can be cut anywhere.
 */
#ifndef SW_CLIENT_CONVERT_H
#define SW_CLIENT_CONVERT_H

#include <stdbool.h>
#include <stdint.h>
#include "client/cast.h"

struct sw_convert {
    sw_cast_fn *cast;
    unsigned src_size, dst_size; /* bytes of an element */
    uint64_t total;              /* elements */
    uint32_t n;                  /* dimensions; at least 1 when there are elements */
    uint64_t count[SW_MAX_DIMS];
    int64_t src[SW_MAX_DIMS]; /* bytes between neighbours */
    int64_t dst[SW_MAX_DIMS];
};

/* `from` and `to` differ, and are F32, BF16 or F16. Numbers must be such that no offset in the box
 * overflows. */
struct sw_convert sw_convert_make(enum sw_dtype from, enum sw_dtype to, uint32_t ndim,
    const uint64_t *len, const int64_t *src_stride, const int64_t *dst_stride);

/* Casts the elements [from, to) of the walk; false when one of them was not finite. With `stream`
 * stores may go past the caches: sw_isa_fence then. */
bool sw_convert_run(const struct sw_convert *c, void *dst, const void *src, uint64_t from,
    uint64_t to, bool stream);

#endif
