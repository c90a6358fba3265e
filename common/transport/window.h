/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target's write window: the fence between writers and engine memory.
 *
 * Threads that place bytes enter the window for one bounded, non-blocking step at a time and leave
 * it again; closing waits for those inside, and lets nobody in that comes later (a waiting closer
 * goes first). So when sw_window_close has returned, nothing is placed any more: not by a thread
 * that was in the middle, and not by a writer that wakes up later with an old window's id.
 *
 * Regions and runs never change, so that checking extents needs no lock.
 */
#ifndef SW_COMMON_TRANSPORT_WINDOW_H
#define SW_COMMON_TRANSPORT_WINDOW_H

#include <stdbool.h>
#include "common/message.h"
#include "common/transport.h"

struct sw_window;

/* Copies the arrays of `spec`. Closed at first. */
int sw_window_new(const struct sw_port_spec *spec, struct sw_window **out, struct sw_error *e);
void sw_window_free(struct sw_window *w); /* nobody inside; accepts NULL */

/* SW_ERR_STATE when a window is open, or when `id` is the one that was open last. */
int sw_window_open(struct sw_window *w, const struct sw_id *id, struct sw_error *e);
/* Closes it (or it is closed already); returns the bytes placed since it was opened. */
uint64_t sw_window_close(struct sw_window *w);

/* True: window `id` is open and stays so until sw_window_leave, which counts `placed` bytes. */
bool sw_window_enter(struct sw_window *w, const struct sw_id *id);
void sw_window_leave(struct sw_window *w, uint64_t placed);

/* Whether window `id` is open just now (it may be closed the moment after). */
bool sw_window_is_open(struct sw_window *w, const struct sw_id *id);

/* Checks a write (or read) against regions and declared runs, overflow included. */
int sw_window_check(const struct sw_window *w, uint32_t region, uint64_t offset, uint64_t length,
    struct sw_error *e);
/* Where a checked place lies; to be touched only between enter and leave. */
void *sw_window_at(const struct sw_window *w, uint32_t region, uint64_t offset);

#endif
