/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon for tests: a thread that accepts one connection after another on a socket in a new
 * directory and holds each test's side of the conversation. A ck_assert in it ends the test.
 */
#ifndef SW_CLIENT_TEST_FAKE_H
#define SW_CLIENT_TEST_FAKE_H

#include <pthread.h>
#include <semaphore.h>
#include "client/channel.h"
#include "common/message.h"

#define FAKE_MS 20000u /* nothing in a test should take that long */

struct fake {
    char dir[64], path[96];
    const char *group;
    enum sw_role role;
    int listener;
    pthread_t thread;
    void (*script)(struct fake *f);
    struct sw_channel *c; /* the connection of now */
    struct sw_id peer;    /* instance that the other side gave */
    sem_t go, gone;       /* for scripts and tests to wait for each other */
    int arg;
};

/* Starts; `script` runs in the thread and begins with fake_accept. */
void fake_start(struct fake *f, enum sw_role role, void (*script)(struct fake *f), int arg);
/* Waits for the script's end and removes the socket. */
void fake_stop(struct fake *f);

void fake_accept(struct fake *f); /* without the handshake */
void fake_greet(struct fake *f);  /* with it */
void fake_hang_up(struct fake *f);
/* The next message must be of this kind; the caller frees it. */
struct sw_msg *fake_expect(struct fake *f, enum sw_msg_kind kind);
void fake_skip(struct fake *f, enum sw_msg_kind kind);
void fake_send(struct fake *f, struct sw_msg *msg); /* owned */
void fake_send_fds(struct fake *f, struct sw_msg *msg, const int *fds, uint32_t n);
/* The other side must close without saying more. */
void fake_expect_end(struct fake *f);
/* ERROR, and the end. */
void fake_error(struct fake *f, int code, const char *text);
/* Bytes that are no frame. */
void fake_garbage(struct fake *f);

#endif
