/* SPDX-License-Identifier: Apache-2.0 */
/* Baseline: what memory gives to a loop that reads and writes in a certain proportion and does
 * nothing else. Results go past the caches. */
#ifndef SW_BENCH_MIX_H
#define SW_BENCH_MIX_H

#include <stdint.h>

/* Reads `in` bytes from src for each `out` bytes to dst (2 and 1, 1 and 2, 1 and 1), `bytes` of src
 * in all, cut evenly between the threads; the nanoseconds it took, thread start included. Addresses
 * and parts are multiples of 128. */
uint64_t bench_mix(
    void *dst, const void *src, uint64_t bytes, unsigned in, unsigned out, unsigned threads);

#endif
