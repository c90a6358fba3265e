/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: a host machine, what it knows about buffers, and a little language for events and
 * actions, so that a conversation is a table of lines.
 *
 * Events: "up 1" (a trainer connects as session 1), "client 2", "down 1", "died 1", "co up", "co
 * down", "busy 0.1 1", "count 0.1 TILE BYTES", "full 0.1", "done 0.1 g2" (allocated), "fail 0.1
 * g2", "time 5000" (ms pass), "1 begin 7" (session 1 says it), "co begin_done 0 v7 e7" (the
 * coordinator says it; with "!" at the end: an error), "co maxima 2 e7" (ranks 0 and 1 share),
 * "reduced g3" and so on; see say() in talk.c.
 *
 * Actions, joined by "; ": "s1<BEGIN_DONE 0 v7 b0", "c<END 0 v7", "drop 1", "alloc 0.1 g2 8192",
 * "reset 0.1", "reduce g3 0.1 1.0", "w<CONNECT", "release 0"; log lines are left out.
 */
#ifndef SW_TRAINERD_HOST_TALK_H
#define SW_TRAINERD_HOST_TALK_H

#include "trainerd/host/host.h"

#define TALK_RANKS 4u
#define TALK_TILES 2u

struct talk {
    struct sw_host *host;
    uint64_t now;
    uint64_t counters[TALK_RANKS][SW_HOST_BUFFERS][TALK_TILES];
    bool missing[TALK_RANKS][SW_HOST_BUFFERS], busy[TALK_RANKS][SW_HOST_BUFFERS];
    char actions[4096];         /* of the last event */
    char text[SW_TEXT_MAX + 1]; /* the last reason or error among them */
    unsigned logs;
    void (*look)(const struct sw_host_action *a, void *arg); /* NULL, or sees each action */
    void *arg;
};

struct talk_step {
    const char *event, *actions;
};

void talk_start(struct talk *t);
void talk_end(struct talk *t);
/* Gives an event to the machine and collects what it wants done. */
void talk_say(struct talk *t, const char *event);
/* The same with a message (owned) that the language has no words for; session 0 = coordinator. */
void talk_message(struct talk *t, uint64_t session, struct sw_msg *msg);
/* Says every line, and fails the test where the answer is another one. */
void talk_run(struct talk *t, const struct talk_step *steps, size_t n);

/* A whole load program of two tiles for a rank. */
struct sw_msg *talk_program(uint32_t rank, uint64_t epoch, uint64_t replica_bytes);
/* A whole maxima program of one share among ranks 0 .. ranks - 1. */
struct sw_msg *talk_maxima(uint64_t epoch, uint32_t ranks, uint64_t count);
/* Part of a manifest. */
struct sw_msg *talk_sources(uint32_t first, uint32_t n, uint32_t total);

#endif
