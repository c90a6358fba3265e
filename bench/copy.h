/* SPDX-License-Identifier: Apache-2.0 */
/* Baseline: memcpy of one block, split evenly over threads. */
#ifndef SW_BENCH_COPY_H
#define SW_BENCH_COPY_H

#include <stddef.h>
#include <stdint.h>

/* Copies and returns the nanoseconds it took, thread start included (as in the product). */
uint64_t bench_copy(void *dst, const void *src, size_t bytes, unsigned threads);

uint64_t bench_now(void);                      /* CLOCK_MONOTONIC, nanoseconds */
double bench_median(double *values, size_t n); /* sorts in place */

#endif
