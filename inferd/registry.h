/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inferd's registry: the engine ranks of this host, their windows, leases and versions. A pure
 * machine: events and the time go in, actions come out.
 *
 * An engine rank is keyed by the instance id of its process, never by its connection; `session` is
 * the caller's number for the engine process's connection, never used twice.
 */
#ifndef SW_INFERD_REGISTRY_H
#define SW_INFERD_REGISTRY_H

#include <jansson.h>
#include <stdbool.h>
#include "common/message.h"
#include "inferd/manifest.h"
#include "common/program.h"
#include <shardwire/error.h>

struct sw_registry;

struct sw_registry_config { /* times in nanoseconds */
    struct sw_id instance;
    uint8_t host_nonce[SW_NONCE_BYTES];
    uint64_t lease_ns, token_ns, manifest_ns;
    /* Fills bytes from the kernel's random source (or a seeded one in a simulation). */
    void (*random)(void *bytes, size_t n, void *arg);
    void *random_arg;
};

enum sw_registry_event_kind {
    SW_REG_ENGINE_UP = 1, /* an engine process connected (proven); pid, instance */
    SW_REG_ENGINE_MESSAGE,
    SW_REG_ENGINE_DOWN,   /* its connection ended */
    SW_REG_MAPPED,        /* MAP was carried out; or `code` and `text` */
    SW_REG_WINDOW_OPENED, /* WINDOW_OPEN was carried out; or `code` and `text` */
    SW_REG_WINDOW_CLOSED, /* `bytes` were placed */
    SW_REG_RELEASED,      /* RELEASE was carried out */
    SW_REG_COORDINATOR_UP,
    SW_REG_COORDINATOR_MESSAGE,
    SW_REG_COORDINATOR_DOWN,
    SW_REG_TICK,
};

struct sw_registry_event {
    enum sw_registry_event_kind kind;
    uint64_t session;
    struct sw_id instance;
    uint32_t pid;
    struct sw_msg *message; /* owned by the machine now */
    uint64_t bytes;
    int code;
    const char *text;
};

enum sw_registry_action_kind {
    SW_REG_TO_ENGINE = 1, /* message (owned by the caller now) */
    SW_REG_TO_COORDINATOR,
    SW_REG_DROP_ENGINE,  /* end this session's connection; `text` says why */
    SW_REG_MAP,          /* check and map the regions: sw_registry_regions, _fds; then MAPPED */
    SW_REG_WINDOW_OPEN,  /* open the window `window` on this session's ports; then WINDOW_OPENED */
    SW_REG_WINDOW_CLOSE, /* close it, then WINDOW_CLOSED */
    SW_REG_RELEASE,      /* close window and paths, unmap, then RELEASED */
    SW_REG_LOG,
};

struct sw_registry_action {
    enum sw_registry_action_kind kind;
    uint64_t session;
    struct sw_msg *message;
    struct sw_id window;
    int level;
    char text[SW_TEXT_MAX + 1];
};

struct sw_registry *sw_registry_new(const struct sw_registry_config *config);
void sw_registry_free(struct sw_registry *r);
void sw_registry_handle(
    struct sw_registry *r, const struct sw_registry_event *event, uint64_t now_ns);
bool sw_registry_next(struct sw_registry *r, struct sw_registry_action *action);
uint64_t sw_registry_deadline(const struct sw_registry *r);

/* While held, no manifests are given out for the coordinator (its connection is full); everything
 * else is. */
void sw_registry_hold(struct sw_registry *r, bool hold);

/* For MAP: the region descriptors (owned by the machine), sizes, and the declared runs, merged. */
struct sw_registry_memory {
    uint32_t n_regions;
    const int *fds;
    const uint64_t *region_bytes;
    uint32_t n_runs;
    const struct sw_run *runs;
};
int sw_registry_memory(
    const struct sw_registry *r, uint64_t session, struct sw_registry_memory *out);

/*
 * A writer wants a data path: checks its token (used up by this call, bound to both instances and
 * the layout epoch, in time) or, for a local one, the host nonce. Gives the session whose port is
 * meant.
 */
int sw_registry_admit(struct sw_registry *r, const struct sw_id *writer,
    const struct sw_path_open *open, uint64_t now_ns, uint64_t *session, struct sw_error *e);

/* Calls for every rank that is registered, until one call says false. */
void sw_registry_each(const struct sw_registry *r,
    bool (*call)(const struct sw_manifest *m, uint32_t pid, void *arg), void *arg);

/* For status (a new reference): each rank's engine, state, version, window, lease, bytes. */
json_t *sw_registry_status(const struct sw_registry *r, uint64_t now_ns);

#endif
