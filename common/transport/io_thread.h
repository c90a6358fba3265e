/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that move bytes: each has an epoll set and a queue of tasks, woken by an eventfd. What is
 * queued or watched is embedded in the caller's objects, so that nothing here can run out of memory
 * once a thread runs. Watches belong to one thread: they are changed on it only (from a task or a
 * ready callback).
 */
#ifndef SW_COMMON_TRANSPORT_IO_THREAD_H
#define SW_COMMON_TRANSPORT_IO_THREAD_H

#include <stdint.h>
#include "common/transport.h"

struct sw_io_thread;

struct sw_io_task {
    struct sw_io_task *next;
    void (*run)(struct sw_io_task *t); /* may free the task's memory */
};

struct sw_io_watch {
    int fd;
    uint32_t events; /* EPOLLIN, EPOLLOUT: level-triggered; errors and hang-ups always come */
    void (*ready)(struct sw_io_watch *w, uint32_t events);
};

struct sw_io_pool *sw_io_pool_ref(struct sw_io_pool *pool); /* returns pool */
/* The next thread of the pool, in turn. Any thread. */
struct sw_io_thread *sw_io_pool_pick(struct sw_io_pool *pool);

/* Runs the task on the thread, in order of posting. Not again before it has run. Any thread. */
void sw_io_thread_post(struct sw_io_thread *t, struct sw_io_task *task);

/* These on the thread itself. 0 or an errno. */
int sw_io_thread_watch(struct sw_io_thread *t, struct sw_io_watch *w);
int sw_io_thread_change(struct sw_io_thread *t, struct sw_io_watch *w, uint32_t events);
/* After it, ready does not come any more, not even for events that are there already. */
void sw_io_thread_unwatch(struct sw_io_thread *t, struct sw_io_watch *w);

#endif
