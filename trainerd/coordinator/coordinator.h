/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator of one group: membership, plan, versions, updates. A pure machine: events and the
 * time go in, actions come out; no sockets, no clock, no libuv. server.c puts it on the network.
 *
 * Members are connections of trainerds and inferds (the coordinator's own trainerd is a member like
 * any other), named by a number that the caller never uses twice.
 */
#ifndef SW_TRAINERD_COORDINATOR_H
#define SW_TRAINERD_COORDINATOR_H

#include <jansson.h>
#include "common/message.h"
#include "trainerd/layouts.h"
#include <shardwire/error.h>

struct sw_coordinator;

struct sw_coordinator_config { /* times in nanoseconds */
    const char *group;
    struct sw_id instance;
    uint64_t last_version;            /* from the state file; 0 = none */
    uint32_t tcp_connections;         /* data tokens asked for each (trainerd, target) */
    const struct sw_layouts *layouts; /* borrowed; NULL = only the identity layout is known */
    uint64_t begin_ns, stage_ns, connect_ns, pause_ns, window_ns, write_ns, post_ns, activate_ns,
        manifest_ns;
};

enum sw_coordinator_event_kind {
    SW_COORD_MEMBER_UP = 1, /* a proven connection */
    SW_COORD_MEMBER_DOWN,   /* it ended; `text` says why */
    SW_COORD_MESSAGE,       /* from a member */
    SW_COORD_PERSISTED,     /* the state file holds `version`; or `error` */
    SW_COORD_TICK,          /* time passed: deadlines are looked at (any event does that too) */
};

struct sw_coordinator_event {
    enum sw_coordinator_event_kind kind;
    uint64_t member;
    enum sw_role role;      /* MEMBER_UP: SW_ROLE_TRAINERD or SW_ROLE_INFERD */
    struct sw_id instance;  /* MEMBER_UP */
    const char *name;       /* MEMBER_UP: host name */
    const char *address;    /* MEMBER_UP: its IP as seen here; "" for a socket pair */
    struct sw_msg *message; /* MESSAGE; owned by the machine now */
    uint64_t version;       /* PERSISTED */
    const char *text;       /* MEMBER_DOWN, PERSISTED */
    int code;               /* PERSISTED: 0 or SW_ERR_* */
};

enum sw_coordinator_action_kind {
    SW_COORD_SEND = 1, /* message (owned by the caller now) to member */
    SW_COORD_CLOSE,    /* end this member's connection; `text` says why */
    SW_COORD_PERSIST,  /* write `version` to the state file, durably, then PERSISTED */
    SW_COORD_LOG,      /* `level` (syslog's: 3 error, 4 warning, 6 info, 7 debug) and `text` */
};

struct sw_coordinator_action {
    enum sw_coordinator_action_kind kind;
    uint64_t member;
    struct sw_msg *message;
    uint64_t version;
    int level;
    char text[SW_TEXT_MAX + 1];
};

struct sw_coordinator *sw_coordinator_new(const struct sw_coordinator_config *config);
void sw_coordinator_free(struct sw_coordinator *c);

/* Takes an event at a time (monotonic, nanoseconds, never going back). */
void sw_coordinator_handle(
    struct sw_coordinator *c, const struct sw_coordinator_event *event, uint64_t now_ns);

/* Takes the next action, in order; false = none left. */
bool sw_coordinator_next(struct sw_coordinator *c, struct sw_coordinator_action *action);

/* When a TICK is wanted, at the latest; UINT64_MAX = no deadline runs. */
uint64_t sw_coordinator_deadline(const struct sw_coordinator *c);

/* Everything, for status (a new reference): epochs, members, trainer ranks, engines with each
 * rank's version and state, the running update and the last ten. */
json_t *sw_coordinator_status(const struct sw_coordinator *c, uint64_t now_ns);

#endif
