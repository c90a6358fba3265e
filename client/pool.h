/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that help with one job at a time. They are started by the first job and wait for the next
 * ones: starting a thread for each would cost as much as copying 100 KB.
 */
#ifndef SW_CLIENT_POOL_H
#define SW_CLIENT_POOL_H

struct sw_pool;

/* `threads` that work on a job, the caller included (1 to 64). NULL: no memory. */
struct sw_pool *sw_pool_new(unsigned threads);
void sw_pool_free(struct sw_pool *p); /* no job may run; ends the threads */

/* Calls run(i, n, arg) for each i below n, in any order, several at once; returns when all are
 * done. The caller works as well, and alone while another thread's job has the helpers. */
void sw_pool_run(
    struct sw_pool *p, unsigned n, void (*run)(unsigned i, unsigned n, void *arg), void *arg);

#endif
