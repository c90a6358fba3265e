/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fast random weights: xoshiro256+ (Blackman and Vigna, public domain) seeded by splitmix64, bits
 * masked so that every value is finite: random sign and mantissa, 2^-7 <= |x| < 2. Same seed and
 * stream, same bytes, on any machine of little-endian order.
 */
#ifndef SW_TOOLS_RANDOM_VALUES_H
#define SW_TOOLS_RANDOM_VALUES_H

#include <stddef.h>
#include <stdint.h>
#include <shardwire/dtype.h>

/* Fills `bytes` (whole elements of BF16, F16 or F32) of stream `stream`. */
void sw_random_fill(
    void *buffer, size_t bytes, enum sw_dtype dtype, uint64_t seed, uint64_t stream);

#endif
