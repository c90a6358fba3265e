/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trainer sessions of one host, and what each rank's two buffers may be used for. A pure
 * machine: events and the time go in, actions come out. It knows buffers as numbers only; replica/
 * holds them, writer/ reads them.
 *
 * A rank outlives its trainer process: manifest, load program and buffers stay until another
 * process declares something else. A buffer is staged into only when nobody can still write it (its
 * last trainer process said END, ABORT or BEGIN, or is dead) and nobody reads it; otherwise it is
 * replaced. Only a version whose tiles are all there is ever published.
 */
#ifndef SW_TRAINERD_HOST_H
#define SW_TRAINERD_HOST_H

#include <jansson.h>
#include <shardwire/error.h>
#include "common/message.h"
#include "trainerd/host/shares.h"

#define SW_HOST_BUFFERS 2

struct sw_host;

struct sw_host_config {
    struct sw_id instance;
    const char *name;      /* host name, for MEMBER */
    const char *advertise; /* for MEMBER; "" = the address the coordinator sees */
    uint64_t drain_ns, manifest_ns;
    /* The completion counters of a buffer (one u64 a tile), NULL if it is not there. */
    const uint64_t *(*counters)(uint32_t rank, uint32_t buffer, void *arg);
    /* Whether somebody reads the buffer now. */
    bool (*busy)(uint32_t rank, uint32_t buffer, void *arg);
    void *arg;
};

enum sw_host_event_kind {
    SW_HOST_SESSION_UP = 1, /* a trainer process or a client connected: role, instance, pid */
    SW_HOST_SESSION_MESSAGE,
    SW_HOST_SESSION_DOWN, /* the connection ended; the process may live */
    SW_HOST_PROCESS_DIED, /* the process of this session is dead (before or after DOWN) */
    SW_HOST_ALLOCATED,    /* ALLOCATE was carried out; or code and text */
    SW_HOST_REDUCED,      /* REDUCE was; or code and text */
    SW_HOST_COORDINATOR_UP,
    SW_HOST_COORDINATOR_MESSAGE,
    SW_HOST_COORDINATOR_DOWN,
    SW_HOST_TICK,
};

struct sw_host_event {
    enum sw_host_event_kind kind;
    uint64_t session;
    enum sw_role role;
    struct sw_id instance;
    uint32_t pid;
    struct sw_msg *message; /* owned by the machine now */
    uint32_t rank, buffer;  /* ALLOCATED */
    uint64_t generation;    /* ALLOCATED, REDUCED: which request this answers */
    int code;
    const char *text;
};

enum sw_host_action_kind {
    SW_HOST_TO_SESSION = 1, /* message (owned by the caller now); a BUFFER gets its descriptors */
    SW_HOST_TO_COORDINATOR,
    SW_HOST_DROP_SESSION, /* end this connection; `text` says why */
    SW_HOST_ALLOCATE,     /* (re)place buffer (rank, buffer) by one of bytes, counter_bytes,
                           * maxima_bytes
                           */
    SW_HOST_RESET,        /* zero the counters of (rank, buffer) */
    SW_HOST_TO_WRITER, /* TARGETS, WRITE_PROGRAM, CONNECT, WRITE, UPDATE_END from the coordinator */
    SW_HOST_REDUCE,    /* `shares` (released by the caller), in the buffers sw_host_maxima_buffer */
    SW_HOST_RELEASE,   /* the rank is gone for good: free its buffers */
    SW_HOST_LOG,
};

struct sw_host_action {
    enum sw_host_action_kind kind;
    uint64_t session;
    struct sw_msg *message;
    uint32_t rank, buffer;
    uint64_t generation;
    uint64_t bytes, counter_bytes, maxima_bytes;
    struct sw_shares *shares;
    bool copy; /* ALLOCATE: the old buffer has live tiles, copy it over first */
    int level; /* syslog's */
    char text[SW_TEXT_MAX + 1];
};

struct sw_host *sw_host_new(const struct sw_host_config *config);
void sw_host_free(struct sw_host *h);
void sw_host_handle(struct sw_host *h, const struct sw_host_event *event, uint64_t now_ns);
bool sw_host_next(struct sw_host *h, struct sw_host_action *action);
uint64_t sw_host_deadline(const struct sw_host *h);

/* Which buffer holds rank's bytes of this version for publishing; -1 = none. */
int sw_host_live_buffer(const struct sw_host *h, uint32_t rank, uint64_t version);

/* Which buffer a rank's block maxima lie in that are to be reduced now; -1 = none. */
int sw_host_maxima_buffer(const struct sw_host *h, uint32_t rank);

/* Whether the buffer that was allocated for this ALLOCATE still has a place; if not, free it. */
bool sw_host_wants(const struct sw_host *h, uint32_t rank, uint32_t buffer, uint64_t generation);

/* Whether the death of this session's process is still of interest: it may write to a buffer. */
bool sw_host_awaits_death(const struct sw_host *h, uint64_t session);

/* For status (a new reference). */
json_t *sw_host_status(const struct sw_host *h, uint64_t now_ns);

#endif
