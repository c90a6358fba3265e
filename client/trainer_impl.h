/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of a trainer session: shared by trainer*.c only. */
#ifndef SW_CLIENT_TRAINER_IMPL_H
#define SW_CLIENT_TRAINER_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <shardwire/trainer.h>
#include "client/buffers.h"
#include "client/channel.h"
#include "client/declaration.h"
#include "client/executor.h"
#include "client/loads.h"
#include "common/message.h"

#define TRAINER_LOOK_NS 50000u /* between two looks of puts at the channel */

enum trainer_state {
    TRAINER_IDLE = 0,
    TRAINER_DECLARING, /* SOURCES_DONE is awaited */
    TRAINER_BEGINNING, /* BEGIN_DONE is awaited */
    TRAINER_STAGING,   /* puts */
    TRAINER_SHARING,   /* MAXIMA_DONE is awaited, perhaps by a second call of end */
    TRAINER_ENDING,    /* END_DONE is awaited, likewise */
    TRAINER_STAGED,
    TRAINER_PUBLISHED, /* we asked for it */
};

struct trainer_request { /* a PUBLISH of ours */
    uint64_t number;     /* 0 = none */
    uint64_t version;
    struct sw_msg *result; /* RESULT, once it came */
};

struct sw_trainer {
    char group[SW_LABEL_MAX + 1];
    uint32_t rank, world, threads, timeout_ms;
    struct sw_id instance;
    struct sw_channel *channel;
    /* Taken by puts that look at the channel; other calls are alone by contract. */
    pthread_mutex_t lock;

    struct sw_declaration *declared; /* NULL: nothing, or refused */
    struct sw_loads *coming;         /* parts of a load program that is not whole yet */
    struct sw_loads *loads;
    struct sw_executor *executor; /* over `loads` and `declared`; NULL unless checked */
    uint32_t *unused, n_unused;   /* declared, in no load and no alias check */
    bool checked;                 /* loads were checked against `declared` */
    struct sw_buffers *buffers;

    enum trainer_state state;
    uint32_t stale_begins; /* BEGINs given up whose BEGIN_DONE may still come */
    uint64_t asked;        /* BEGINNING: version asked for */
    uint64_t version;      /* begun last */
    uint64_t dead;         /* versions up to this one were begun, and are over */
    uint64_t stale_asked;  /* version that the last of them asked for */
    uint64_t aborted;      /* BEGINNING a version still unknown: an ABORT that came */
    struct sw_error aborted_why;
    uint64_t granted_ns;
    bool shared;              /* the maxima of its FP8 blocks are those of all ranks */
    _Atomic uint64_t look_ns; /* when a put looks at the channel next */

    bool replied; /* the reply that the state awaits has come */
    struct sw_rank_reply reply;
    struct sw_error outcome; /* of the reply */

    struct sw_error over;  /* the version begun was given up: the next call says so */
    struct sw_error fault; /* the session is closed; its code, until it was told, is the cause's */
    atomic_bool trouble;   /* one of the two is set: for puts */

    uint64_t requests;
    struct trainer_request published, waited;
    struct sw_engine_status *statuses; /* given out by wait */
};

/* ---- trainer_session.c ---- */

/* A version is begun and has not ended. */
bool trainer_staging(const struct sw_trainer *t);
/* 0 = the daemons' deadlines decide. */
uint64_t trainer_deadline(uint32_t timeout_ms);

/* Sends a message (owned; NULL = no memory). */
int trainer_post(struct sw_trainer *t, struct sw_msg *msg, uint64_t deadline, struct sw_error *e);
/* ABORT of a version; failures show up at the next receive. */
void trainer_send_abort(struct sw_trainer *t, uint64_t version, const char *reason);

/* Handles what has arrived, without waiting. */
void trainer_look(struct sw_trainer *t);
/* Start of a call: looks; SW_ERR_ABORTED once when the version begun was given up, SW_ERR_CLOSED
 * (or at first the cause's own code) when the session is closed. */
int trainer_enter(struct sw_trainer *t, struct sw_error *e);
/* The version begun is over: acknowledges, and tells why. */
int trainer_take_over(struct sw_trainer *t, struct sw_error *e);
int trainer_closed(struct sw_trainer *t, struct sw_error *e);

/* Waits until `done` says so. SW_ERR_TIMEOUT names `what`. */
int trainer_await(struct sw_trainer *t, bool (*done)(const struct sw_trainer *t), uint64_t deadline,
    const char *what, struct sw_error *e);

/* A version that was begun is over: what still comes of it is late. */
void trainer_bury(struct sw_trainer *t, uint64_t version);
/* Forgets what was made of program and declaration together. */
void trainer_uncheck(struct sw_trainer *t);

/* ---- trainer_publish.c ---- */
void trainer_take_result(struct sw_trainer *t, struct sw_msg *msg); /* owned */
void trainer_forget_results(struct sw_trainer *t);

#endif
