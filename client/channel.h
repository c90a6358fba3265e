/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A blocking conversation over a UNIX socket, for processes without an event loop: messages of
 * common/message.h in frames, with descriptors. Every wait has a deadline. One thread at a time.
 *
 * A channel is whole or broken. Once a call fails with anything but SW_ERR_TIMEOUT (or times out in
 * the middle of a frame), each later call fails with SW_ERR_CLOSED and the text of that failure.
 */
#ifndef SW_CLIENT_CHANNEL_H
#define SW_CLIENT_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>
#include <shardwire/error.h>
#include "common/handshake.h"
#include "common/message.h"

/* Monotonic times in nanoseconds. */
#define SW_NO_WAIT 0ull /* a deadline: look only */
uint64_t sw_clock_ns(void);
uint64_t sw_deadline_in(uint32_t ms);

struct sw_channel;

/* Connects to the daemon (its name is for messages) that listens at `path`. SW_ERR_CLOSED when
 * nobody does, SW_ERR_AUTH without permission, SW_ERR_INVALID for a path that is too long. */
int sw_channel_connect(const char *path, const char *daemon, uint64_t deadline,
    struct sw_channel **channel, struct sw_error *e);

/* A channel over a connected socket (owned from now on, also on failure); `peer` names the other
 * side in messages. */
int sw_channel_adopt(int fd, const char *peer, struct sw_channel **channel, struct sw_error *e);

/* Runs a handshake (borrowed), either side of it. */
int sw_channel_greet(struct sw_channel *c, struct sw_handshake *h, uint64_t deadline,
    struct sw_peer *peer, struct sw_error *e);

/* Connects, and shakes hands as this dialler. */
int sw_channel_dial(const char *path, const char *daemon, const struct sw_identity *self,
    uint64_t deadline, struct sw_channel **channel, struct sw_error *e);

/* Sends a message (borrowed) and n_fds descriptors beside it (borrowed; those in msg are not
 * sent). */
int sw_channel_send(struct sw_channel *c, const struct sw_msg *msg, const int *fds, uint32_t n_fds,
    uint64_t deadline, struct sw_error *e);

/* Receives the next message (owned by the caller). `what` completes "no answer within 5 s: waited
 * for ...". SW_ERR_CLOSED at the end of the stream. */
int sw_channel_receive(struct sw_channel *c, uint64_t deadline, const char *what,
    struct sw_msg **msg, struct sw_error *e);

/* Readable when a message, or a part of one, is there: nothing is read ahead of a message. */
int sw_channel_fd(const struct sw_channel *c);

bool sw_channel_broken(const struct sw_channel *c);

/* Closes the socket. Accepts NULL. */
void sw_channel_free(struct sw_channel *c);

#endif
