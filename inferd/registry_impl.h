/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the registry share; nobody else includes it.
 *
 *   registry.c         events in, dispatch, registration
 *   phase.c            PHASE of the coordinator, and the engine process's answers
 *   update.c           an engine's update as a whole: members, lease, how it ends
 *   outbox.c           actions out
 *   registry_status.c  status
 *
 * Actions that keep memory safe (open, close, release, map, drop) are bits in the rank, so that
 * they can't be lost for want of memory; only messages and log lines are queued. A message to an
 * engine process that can't be queued drops its session; one to the coordinator is missed there and
 * runs into its deadline.
 */
#ifndef SW_INFERD_REGISTRY_IMPL_H
#define SW_INFERD_REGISTRY_IMPL_H

#include "common/log.h" /* the levels' names only */
#include "inferd/manifest.h"
#include "inferd/rank.h"
#include "inferd/registry.h"
#include "inferd/tokens.h"

/* All manifests kept here together; a million parameters take about 200 MB. */
#define SW_MANIFESTS_BYTES_MAX ((size_t)1 << 30)

enum {
    SW_WANT_MAP = 1,
    SW_WANT_OPEN = 2,
    SW_WANT_CLOSE = 4,
    SW_WANT_RELEASE = 8,
    SW_WANT_DROP = 16,
};

enum sw_announce { /* of a rank to the coordinator */
    SW_ANNOUNCE_NONE = 0,
    SW_ANNOUNCE_DUE,
    SW_ANNOUNCE_PARTS, /* ENGINE_RANK was given out */
    SW_ANNOUNCE_DONE,
};

struct sw_engine { /* the ranks of one engine that are here */
    struct sw_engine *next;
    char name[SW_LABEL_MAX + 1];
    uint32_t world, n_ranks;
    /* The running update; update = 0: none. */
    uint64_t update, version, layout_epoch, membership_epoch;
    uint64_t armed_by; /* the coordinator connection (registry's generation) */
    uint64_t lease_start_ns;
    uint64_t lease_end_ns; /* 0 = not started */
    bool opened;           /* a window was opened in this update */
    bool broken;           /* a member went away before it was active */
    uint64_t last_update;  /* newest one seen, from the present coordinator */
};

struct sw_rank {
    struct sw_rank *next;
    uint64_t session;
    struct sw_id process; /* as proven in the handshake */
    uint32_t pid;
    enum sw_step step;
    bool dropped; /* its connection is being ended: nothing more is heard */
    bool refused; /* its last manifest: parts still on their way are dropped */
    bool released;
    uint64_t manifest_end_ns;
    struct sw_manifest manifest;
    struct sw_engine *engine; /* from ENGINE_RANK to the end of the session */
    uint64_t version;         /* what it serves, or served before it was torn */
    bool torn;                /* its memory is not whole */
    bool paused;              /* the process said so, and no RESUME was sent */

    /* In the running update of its engine. */
    bool member;
    bool failed;         /* a step failed: only ABORT goes on */
    enum sw_phase done;  /* last step completed */
    enum sw_phase asked; /* by the coordinator, not answered yet; 0 = none */
    struct sw_id window;
    uint64_t expected_bytes, placed_bytes;
    struct sw_tokens tokens;
    uint64_t layout_epoch; /* of the last ARM: local paths must name it */

    /* What the process owes an answer to (may outlive the update); 0 = nothing. */
    enum sw_phase awaited;
    uint64_t awaited_update;

    uint64_t abort_update; /* an ABORT that is answered when the window is closed; 0 = none */

    uint32_t want; /* SW_WANT_* */
    enum sw_announce announce;
    uint32_t announce_next;
    enum sw_rank_state told;      /* to the coordinator; 0 = nothing */
    char reason[SW_TEXT_MAX + 1]; /* of the last change by itself, for RANK_STATE and status */
    char drop_text[SW_TEXT_MAX + 1];

    uint64_t updates, bytes_total; /* activated; placed by them */
};

struct sw_out {
    struct sw_out *next;
    struct sw_registry_action action;
};

struct sw_registry {
    struct sw_registry_config config;
    struct sw_rank *ranks;
    struct sw_engine *engines;
    bool coordinator_up;
    struct sw_id coordinator;
    uint64_t generation; /* of coordinator connections */
    bool hold;           /* no manifests to the coordinator for now */
    struct sw_out *first, **last;
};

/* ---- outbox.c ---- */
void sw_out_clear(struct sw_registry *r);
void sw_out_purge_coordinator(struct sw_registry *r);
/* These own `msg` (NULL = it could not be made). */
void sw_out_engine(struct sw_registry *r, struct sw_rank *k, struct sw_msg *msg);
void sw_out_coordinator(struct sw_registry *r, struct sw_msg *msg);
void sw_out_log(struct sw_registry *r, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Ends the session (the first reason stays). */
void sw_out_drop(struct sw_rank *k, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- registry.c ---- */
void sw_rank_go(struct sw_rank *k, enum sw_step to);
/* "engine A/2" and the like, for messages. */
#define SW_RANK_FMT "engine %s rank %u"
#define SW_RANK_ARGS(k) (k)->manifest.engine, (k)->manifest.rank
/* Asserts what must hold for a rank at any time. */
void sw_rank_check(const struct sw_rank *k);
void sw_rank_free(struct sw_rank *k);

/* ---- phase.c ---- */
void sw_phase_handle(struct sw_registry *r, struct sw_msg *msg, uint64_t now_ns);
void sw_phase_answer(
    struct sw_registry *r, struct sw_rank *k, const struct sw_phase_done *done, uint64_t now_ns);
void sw_phase_window_opened(struct sw_registry *r, struct sw_rank *k, int code, const char *text);
void sw_phase_window_closed(struct sw_registry *r, struct sw_rank *k, uint64_t bytes);
/* Answers the coordinator's question about a rank. */
void sw_phase_reply(struct sw_registry *r, struct sw_rank *k, enum sw_phase phase, uint64_t update,
    int code, const char *reason);

/* ---- update.c ---- */
void sw_update_begin(struct sw_registry *r, struct sw_engine *g, const struct sw_phase_msg *arm);
void sw_update_start_lease(struct sw_registry *r, struct sw_engine *g, uint64_t now_ns);
/* Ends the update of an engine by what is known here: resume at v, resume the old version, or
 * torn. `why` is for people; level = log level. */
void sw_update_end(struct sw_registry *r, struct sw_engine *g, int level, const char *why);
/* When the last member has resumed, the update is over. */
void sw_update_finish(struct sw_registry *r, struct sw_engine *g);
/* A rank leaves its engine (and the update). Frees an engine without ranks. */
void sw_update_leave(struct sw_registry *r, struct sw_rank *k);
void sw_update_send_resume(
    struct sw_registry *r, struct sw_rank *k, uint64_t update, uint64_t version);

#endif
