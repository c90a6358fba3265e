/* SPDX-License-Identifier: Apache-2.0 */
/* Baseline: plain blocking send and recv over loopback TCP connections. */
#ifndef SW_BENCH_LOOPBACK_H
#define SW_BENCH_LOOPBACK_H

#include <stddef.h>
#include <stdint.h>

#define BENCH_CONNECTIONS_MAX 32u /* two threads each, and 64 run at once */

struct bench_loopback {
    unsigned connections;
    int senders[BENCH_CONNECTIONS_MAX], receivers[BENCH_CONNECTIONS_MAX];
};

void bench_loopback_open(struct bench_loopback *l, unsigned connections);
void bench_loopback_close(struct bench_loopback *l);

/*
 * Sends `bytes` from `src` to `dst` in calls of at most `chunk`, chunk k over connection k modulo
 * their number, with `threads` threads that send and as many that receive. Returns nanoseconds,
 * thread start included.
 */
uint64_t bench_loopback_run(struct bench_loopback *l, void *dst, const void *src, size_t bytes,
    size_t chunk, unsigned threads);

#endif
