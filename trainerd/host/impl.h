/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the host machine: shared by its files only. */
#ifndef SW_TRAINERD_HOST_IMPL_H
#define SW_TRAINERD_HOST_IMPL_H

#include "trainerd/host/host.h"

enum rank_state {
    RANK_NEW = 0,   /* opened, nothing declared */
    RANK_DECLARING, /* parts arrive, or the coordinator has not answered */
    RANK_IDLE,
    RANK_BEGINNING, /* the coordinator has not answered BEGIN */
    RANK_PREPARING, /* granted; the back buffer is being replaced */
    RANK_STAGING,
    RANK_SHARING,  /* MAXIMA came; other ranks' are awaited, or the reduction */
    RANK_DRAINING, /* END came; tiles not all complete yet */
    RANK_ENDED,    /* END forwarded, END_DONE awaited */
    RANK_STATE_COUNT
};

struct parts { /* messages of a manifest or program, kept in order */
    struct sw_msg **items;
    size_t n, capacity;
    bool complete;
};

struct buffer {
    bool have, allocating;
    uint64_t generation; /* of what is there, or of the request under way */
    uint64_t bytes, counter_bytes, maxima_bytes;
    uint64_t content; /* version staged (or being staged) here; 0 = none */
    bool whole;       /* all of it is here: it may be published */
    uint64_t writer;  /* session whose process may still write here; 0 = none */
};

struct tile_live { /* where a tile's live bytes are */
    uint64_t version;
    uint8_t buffer;
};

struct rank {
    struct rank *next;
    uint32_t rank, world, pid;
    struct sw_id trainer;
    uint64_t session; /* 0 = no process holds the rank */
    enum rank_state state;
    uint64_t since_ns; /* state entered */

    struct parts sources;
    uint32_t n_sources;

    uint64_t layout_epoch;
    struct parts program;
    uint32_t n_tiles;
    struct program_received {
        uint32_t templates, loads, grids, checks, tiles;
    } received;
    uint64_t *tile_bytes;
    uint32_t *tile_source; /* first source that fills it, for messages; UINT32_MAX = none */
    struct tile_live *live;
    uint64_t replica_bytes;
    uint64_t n_maxima; /* block maxima that it shares with others; 0 = none */

    struct buffer buffers[SW_HOST_BUFFERS];
    int live_buffer; /* -1 = none */
    uint64_t live_version;
    uint64_t sent_layout;                      /* to the current session */
    uint64_t sent_generation[SW_HOST_BUFFERS]; /* likewise */

    uint64_t version; /* asked, or being staged */
    unsigned back;
    uint64_t begin_ns, deadline_ns;
    struct sw_msg *end; /* END, while draining */
    uint64_t shared;    /* version whose block maxima this rank said are there; 0 = none */
    bool reduced;       /* they are those of all by now */
    uint32_t
        stale; /* begins that were aborted before the coordinator's answer: one each will come */
};

struct session {
    struct session *next;
    uint64_t id;
    enum sw_role role;
    struct sw_id instance;
    uint32_t pid;
    struct rank *rank; /* trainer: the rank it holds */
    bool dead;         /* the process is; what it sent before is still read ... */
    uint64_t drop_ns;  /* ... until then; UINT64_MAX = no such time */
};

struct request { /* a PUBLISH that was forwarded; session 0 = nobody waits any more */
    struct request *next;
    uint64_t number, session, theirs;
};

struct queued {
    struct queued *next;
    struct sw_host_action action;
};

struct sw_host {
    struct sw_host_config config;
    char name[SW_LABEL_MAX * 4 + 1], advertise[SW_LABEL_MAX * 4 + 1];
    struct session *sessions;
    struct rank *ranks;
    struct request *requests;
    uint32_t n_requests;
    uint64_t next_request, next_generation;
    uint64_t plan_epoch;      /* epoch whose PLAN_DONE is owed; 0 = none */
    uint64_t failed_epoch;    /* the last one that was answered with an error */
    struct sw_shares *shares; /* of the newest plan; NULL = no block is shared */
    uint64_t reducing;        /* number of the reduction under way; 0 = none */
    uint64_t reducing_version;
    bool coordinator;
    uint64_t now;
    struct queued *head, **tail;
};

/* host.c: actions */
void host_send(struct sw_host *h, uint64_t session, struct sw_msg *msg);
void host_report(struct sw_host *h, struct sw_msg *msg); /* to the coordinator */
void host_drop(struct sw_host *h, uint64_t session, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void host_log(struct sw_host *h, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool host_act(struct sw_host *h, const struct sw_host_action *a); /* false = no memory */
struct rank *host_rank(const struct sw_host *h, uint32_t rank);
/* A reply of this kind to the rank's session (dropped without one). code 0 = success. */
void host_reply(struct sw_host *h, struct rank *r, enum sw_msg_kind kind, uint64_t version,
    int code, const char *format, ...) __attribute__((format(printf, 6, 7)));
/* Tells the coordinator that this rank gives up this version. */
void host_abort(struct sw_host *h, uint32_t rank, uint64_t version, const char *reason);

/* rank.c */
void rank_free(struct rank *r);
void rank_enter(struct sw_host *h, struct rank *r, enum rank_state state);
const char *rank_state_name(enum rank_state state);
void parts_clear(struct parts *p);
bool parts_add(struct parts *p, struct sw_msg *msg); /* takes the message; false = no memory */
void rank_forget_sources(struct rank *r);
void rank_forget_program(struct rank *r);
const char *rank_source_name(const struct rank *r, uint32_t source);
/* Takes a part (owned); 0, or an error: SW_ERR_PROTOCOL when parts do not join, SW_ERR_NOMEM. */
int rank_take_sources(struct rank *r, struct sw_msg *msg, struct sw_error *e);
int rank_take_program(struct rank *r, struct sw_msg *msg, struct sw_error *e);

/* staging.c */
void staging_program(struct sw_host *h, struct sw_msg *msg);
void staging_allocated(struct sw_host *h, const struct sw_host_event *event);
void staging_begin(struct sw_host *h, struct rank *r, struct sw_msg *msg);
void staging_granted(struct sw_host *h, struct sw_msg *msg);
void staging_end(struct sw_host *h, struct rank *r, struct sw_msg *msg);
void staging_ended(struct sw_host *h, struct sw_msg *msg);
void staging_drain(struct sw_host *h, struct rank *r);
void staging_aborted(struct sw_host *h, struct sw_msg *msg);
void staging_flip(struct sw_host *h, uint64_t version, uint64_t layout_epoch);
/* What is staged of the rank's version is worth nothing any more. */
void staging_forget(struct rank *r);
/* The rank's version is over: whoever waits in its trainer is told (code: of an unanswered begin).
 */
void staging_withdraw(struct sw_host *h, struct rank *r, int code, const char *reason);
void staging_drained_by(struct sw_host *h, uint64_t session);
void staging_plan_done(struct sw_host *h);
void staging_plan_failed(struct sw_host *h, int code, const char *text);

/* maxima.c */
void maxima_program(struct sw_host *h, struct sw_msg *msg);
/* Whether the plan under way has shares of the rank, so that a load program for it must come. */
bool maxima_awaits(const struct sw_host *h, const struct rank *r);
/* Whether the plan that is whole has the shares that its ranks need, all of them sound. */
int maxima_planned(struct sw_host *h, struct sw_error *e);
void maxima_came(struct sw_host *h, struct rank *r, struct sw_msg *msg);
void maxima_reduced(struct sw_host *h, const struct sw_host_event *event);
/* The rank's version is over while it shares: tells it why, and for whom it waited. */
void maxima_withdraw(struct sw_host *h, struct rank *r, const char *reason);

#endif
