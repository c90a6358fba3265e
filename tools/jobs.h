/* SPDX-License-Identifier: Apache-2.0 */
/* A number of independent jobs on a few threads. */
#ifndef SW_TOOLS_JOBS_H
#define SW_TOOLS_JOBS_H

#include <stddef.h>
#include <shardwire/error.h>

/* Does job i; runs on any of the threads, several at once. 0 or a negative enum sw_code with *e. */
typedef int (*sw_job)(size_t i, void *arg, struct sw_error *e);

/*
 * Runs jobs 0..n-1 on up to `threads` threads (the caller's included), in order of their numbers.
 * After a failure no new job starts; the first failure is what is returned. Threads that can't be
 * started are done without.
 */
int sw_jobs_run(unsigned threads, size_t n, sw_job job, void *arg, struct sw_error *e);

/* Processors that this process may use; at least 1. */
unsigned sw_jobs_processors(void);

#endif
