/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Casts among F32, BF16 and F16, element by element: to nearest, ties to even. What is too large
 * becomes infinite; a NaN keeps its sign and as much of its payload as fits, and is quiet. Pure,
 * and independent of the thread's floating-point modes.
 */
#ifndef SW_CLIENT_CAST_H
#define SW_CLIENT_CAST_H

#include <stdbool.h>
#include <stdint.h>
#include <shardwire/dtype.h>
#include "client/isa.h"

/*
 * Casts n elements that lie side by side on both sides; no alignment is needed. With `stream` large
 * results go past the caches: sw_isa_fence then. False when one of the elements was not finite; all
 * are cast nevertheless.
 */
typedef bool sw_cast_fn(void *dst, const void *src, uint64_t n, bool stream);

/* NULL: there is no such cast (equal types too), or the machine has no such instructions. */
sw_cast_fn *sw_cast_find(enum sw_isa isa, enum sw_dtype from, enum sw_dtype to);

/* One element of F32, BF16 or F16. */
float sw_cast_widen(enum sw_dtype from, const void *src);

#endif
