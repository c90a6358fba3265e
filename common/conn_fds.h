/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which descriptors belong to which frame. They are attached to the first byte of their frame, so
 * those of one recvmsg belong to a frame that starts in the bytes of the same call; the kernel ends
 * a call behind the bytes that had descriptors, so it is the only such frame in it. Anything else
 * is a protocol error: descriptors are never guessed. Private to conn.
 */
#ifndef SW_COMMON_CONN_FDS_H
#define SW_COMMON_CONN_FDS_H

#include <shardwire/error.h>
#include "common/message.h"

struct sw_fd_batch {
    uint32_t n;
    int fds[SW_FRAME_FDS_MAX];
    uint64_t after, last; /* the frame's number: after < number <= last */
};

struct sw_fd_queue {
    struct sw_fd_batch old, fresh;
    uint64_t done; /* frames completed */
    bool partial;  /* one more has begun */
};

/* Descriptors (owned from here on) that came with the bytes that are fed next. */
void sw_fd_queue_arrive(struct sw_fd_queue *q, const int *fds, uint32_t n);
/* A frame is complete: moves its n_fds descriptors into msg. */
int sw_fd_queue_frame(
    struct sw_fd_queue *q, uint32_t n_fds, struct sw_msg *msg, struct sw_error *e);
/* All bytes of the call were fed; `partial`: a frame is unfinished. */
int sw_fd_queue_fed(struct sw_fd_queue *q, bool partial, struct sw_error *e);
bool sw_fd_queue_empty(const struct sw_fd_queue *q);
void sw_fd_queue_clear(struct sw_fd_queue *q); /* closes what is left */

#endif
