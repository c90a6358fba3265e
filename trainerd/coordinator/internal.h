/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the coordinator share. Each noun has a file:
 *
 *   members.c        connections of trainerds and inferds
 *   trainers.c       the trainer world: ranks, who holds them, their manifests
 *   engines.c        engines: registrations of their ranks, who is complete
 *   plan_input.c     what the planner is given: trainer ranks, engines as targets
 *   models.c         models of engines, shared
 *   epoch.c          the plan: layout epoch, membership epoch
 *   programs.c       programs and targets, as they are sent to trainerds
 *   stage.c          a version from begin to staged; the table of its states
 *   publish.c        a version from publish to its result; who waits for it
 *   engine_update.c  one engine's way through an update; the table of its steps
 *   status.c         all of it as JSON
 *   coordinator.c    events, actions, time
 */
#ifndef SW_TRAINERD_COORDINATOR_INTERNAL_H
#define SW_TRAINERD_COORDINATOR_INTERNAL_H

#include "common/error.h"
#include "common/message.h"
#include "trainerd/coordinator/coordinator.h"
#include "trainerd/coordinator/manifest.h"
#include "trainerd/coordinator/models.h"
#include "trainerd/plan/plan.h"

#define SW_COORD_HISTORY 10 /* updates that are over and remembered */
#define SW_COORD_ABSENT 32  /* engines without any process that are remembered */
#define SW_COORD_NO_RANK UINT32_MAX

enum { LEVEL_ERROR = 3, LEVEL_WARNING = 4, LEVEL_INFO = 6, LEVEL_DEBUG = 7 }; /* syslog's */

struct member {
    uint64_t number;
    enum sw_role role;
    struct sw_id instance;
    char *name, *address;
    bool presented; /* MEMBER came */
    char *advertise, *unix_path;
    uint32_t data_port;
    uint8_t host_nonce[SW_NONCE_BYTES];
    bool closing;  /* its connection is to be closed: nothing is sent or heard any more */
    bool told;     /* the CLOSE action was given out */
    char why[256]; /* of closing */
};

struct trainer {     /* a rank of the trainer world; its number is its position */
    uint64_t member; /* the trainerd that hosts it; 0 = none */
    char *host;      /* that trainerd's name, kept after it is gone */
    struct sw_id process;
    uint32_t pid;
    bool opened; /* some process opened it once */
    bool alive;  /* its process is there */
    struct sw_manifest *manifest, *incoming;
    uint64_t incoming_since;
    /* of the version that begins or stages */
    bool asked, ended, end_waits;
    uint64_t asked_at;
    uint64_t bytes, stage_ns;
    uint32_t n_digests;
    struct sw_digest *digests;
};

struct registration { /* an engine process, as its inferd told of it */
    char *engine;
    uint32_t rank, world;
    uint64_t member;
    char *host;
    struct sw_id instance;
    uint32_t pid;
    struct sw_msg *declared;      /* its ENGINE_RANK */
    struct sw_model_entry *model; /* once it was needed; NULL with identity */
    enum sw_rank_state state;
    uint64_t version;
    char *reason; /* of the state, may be NULL */
    uint32_t n_regions, n_parameters;
    uint64_t *region_bytes;
    struct sw_manifest *manifest; /* complete or coming in */
    uint64_t since;               /* first seen */
    char *shadow;                 /* why it is ignored; NULL = it is not */
    /* whether the layout has its tiles, as far as it was looked at */
    uint64_t fit_serial; /* of the layout that was looked at; 0 = none */
    bool fits;
    bool judged; /* found unfit while that layout was made: making it again would not help */
    char *misfit;
};

struct engine_slot {          /* a rank of an engine */
    struct registration *reg; /* NULL = absent: */
    bool was;                 /* it was there once */
    bool unknown;             /* its inferd is not connected: the process may live */
    char *why;
    uint64_t since, version;
};

struct engine {
    char *name;
    uint32_t world;
    struct engine_slot *slots;
    uint32_t n_present; /* slots with a registration */
    uint64_t absent_since;
};

/* ---- plans ---- */

struct plan_ranks { /* trainer ranks as the planner is given them; layouts made of them share it */
    unsigned refs;
    struct sw_fold *fold;
    const struct sw_plan_rank *items; /* the fold's; numbered by position */
    uint32_t n;
    struct sw_manifest **manifests; /* held: the fold points at their names */
    uint32_t n_hosts;
    uint64_t *hosts; /* by host number: the trainerd */
};

struct plan_targets { /* engine ranks as the planner is given them */
    uint32_t n;
    struct sw_plan_target *items;
    struct sw_placement *placements;
    struct sw_model_entry **models;   /* held; NULL with identity */
    struct sw_parameter **parameters; /* by target; owned where it is the first with them */
    const struct sw_manifest **manifests;
};

struct rank_plan { /* of a load program that was written out and sent */
    uint64_t replica_bytes;
    uint32_t n_tiles, n_checks;
    struct sw_alias_check *checks;
};

struct plan { /* a layout, with all that it needs to live */
    struct sw_layout *layout;
    struct plan_ranks *ranks;
    uint32_t n_models;
    struct sw_model_entry **models; /* held */
    struct rank_plan *by_rank;
    struct sw_share_plan *shares; /* by host number */
};

/* ---- a version's life ---- */

enum stage {
    STAGE_NEW,
    STAGE_COLLECTING, /* some ranks asked to begin */
    STAGE_PERSISTING, /* all did, there is a plan; the version is being made durable */
    STAGE_PLANNING,   /* trainerds allocate for a new layout */
    STAGE_STAGING,
    STAGE_STAGED,
    STAGE_PUBLISHING,
    STAGE_LIVE,
    STAGE_PARTIAL,
    STAGE_ABORTED,
    STAGE_COUNT
};

enum step { /* of one engine in an update */
    STEP_NEW,
    STEP_ARM,
    STEP_CONNECT,
    STEP_PAUSE,
    STEP_PREPARE,
    STEP_OPEN,
    STEP_WRITE,
    STEP_CLOSE,
    STEP_POST,
    STEP_ACTIVATE,
    STEP_RESUME,
    STEP_LIVE,
    STEP_ENDING, /* it failed; inferds were asked to abort and have not all answered */
    STEP_FAILED,
    STEP_COUNT
};

struct link { /* a trainerd that writes to a target */
    uint64_t member;
    struct sw_id trainerd;
    char *host;
    uint64_t bytes; /* planned */
    bool waiting, written;
    uint32_t n_tokens;
    struct sw_token *tokens;
    char transport[16], why[128];
};

struct target { /* an engine rank as a destination of a membership epoch */
    uint32_t number, rank;
    char *engine;
    uint64_t member;
    struct sw_id instance;
    uint32_t pid;
    char *host;
    uint64_t bytes; /* planned */
    uint32_t n_links;
    struct link *links;
    /* of the update under way */
    bool lost;    /* process or inferd is gone */
    bool unknown; /* lost, but only its inferd: the process may live */
    bool waiting; /* asked, and no answer yet */
    bool was_torn;
    bool closed, active; /* closed with the planned bytes; activated */
    struct sw_id window;
    enum sw_rank_state state; /* 0 = not known */
    uint64_t version;
};

struct engine_update {
    char *engine;
    enum step step;
    uint64_t since, deadline; /* of the step */
    uint32_t n_targets;
    struct target *targets; /* part of the update's array */
    uint64_t pause_asked, paused, resume_sent, write_asked, closed_at;
    struct sw_engine_result result; /* strings are below */
    char transport[64];
    char state[32];
    char reason[SW_TEXT_MAX + 1];
};

struct update {
    uint64_t version; /* also the update's number in messages: a version is used once */
    uint64_t started, since, publish_started;
    uint64_t layout_epoch, membership_epoch;
    uint64_t stage_ns, stage_bytes;
    enum stage stage;
    uint32_t n_asked, n_ended;
    bool burned; /* made durable: it can't be begun again */
    bool publish_asked;
    bool others_fault;       /* a complete engine is among the others */
    struct sw_error failure; /* of an aborted one */
    uint32_t n_targets;
    struct target *targets;
    uint32_t n_engines; /* that take part */
    struct engine_update *engines;
    uint32_t n_others; /* that do not: results only */
    struct engine_update *others;
};

struct waiter {
    uint64_t member, request, version, since;
    bool wait_only;
};

struct action; /* queued */

struct sw_coordinator {
    struct sw_coordinator_config config;
    char *group;
    bool started, out_of_memory;
    uint64_t started_at, now; /* now: of the last event */
    struct action *first, *last;

    uint32_t n_members, members_size;
    struct member **members;
    uint64_t refused; /* a connection for which there was no memory: to be closed */

    uint32_t world;
    struct trainer *trainers;
    uint32_t n_incoming; /* manifests that are being received */

    uint32_t n_regs, regs_size;
    struct registration **regs; /* oldest first */
    uint32_t n_engines, engines_size;
    struct engine **engines;

    struct sw_models *models;
    struct plan *plan, *next_plan;
    uint64_t layout_epoch, layout_serial, next_serial, membership_epoch;
    bool layout_stale;  /* sources or who holds them have changed since */
    uint32_t n_targets; /* of the membership epoch */
    struct target *targets;
    uint32_t n_plan_waits; /* trainerds that have not said PLAN_DONE */
    uint64_t *plan_waits;
    char *unused; /* a warning about sources that no engine wants */

    uint64_t last_version, live_version;
    struct update *begin;      /* COLLECTING to STAGING */
    struct update *staged;     /* STAGED */
    struct update *publishing; /* PUBLISHING */
    uint32_t n_history;
    struct update *history[SW_COORD_HISTORY]; /* oldest first */
    uint32_t n_waiters, waiters_size;
    struct waiter *waiters;
};

/* ---- coordinator.c ---- */
/* Makes room for one more in an array of pointers or values; -1 = no memory. */
int sw_coord_grow(void *array, uint32_t *size, uint32_t n, size_t element);
void sw_coord_log(struct sw_coordinator *c, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A message to fill; NULL = no memory (sw_coord_send takes NULL and drops the member then). */
struct sw_msg *sw_coord_message(enum sw_msg_kind kind);
/* Text and arrays for a message; with no memory the next sw_coord_send drops the member. */
const char *sw_coord_text(struct sw_coordinator *c, struct sw_msg *m, const char *text);
void *sw_coord_array(struct sw_coordinator *c, struct sw_msg *m, size_t n, size_t size);
void sw_coord_send(struct sw_coordinator *c, uint64_t member, struct sw_msg *m);
void sw_coord_persist(struct sw_coordinator *c, uint64_t version);
/* A name list for messages: "a, b, c and 4 more". */
struct name_list {
    char *out;
    size_t size, used;
    uint32_t n, hidden;
};
void sw_coord_list_add(struct name_list *l, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void sw_coord_list_end(struct name_list *l);
double sw_coord_seconds(uint64_t from, uint64_t to);
void sw_coord_set_text(char **text, const char *to); /* a copy; NULL when there is no memory */

/* ---- members.c ---- */
void sw_coord_member_up(
    struct sw_coordinator *c, const struct sw_coordinator_event *event, uint64_t now);
void sw_coord_member_down(struct sw_coordinator *c, uint64_t number, const char *why, uint64_t now);
struct member *sw_coord_member(const struct sw_coordinator *c, uint64_t number);
const char *sw_coord_member_name(const struct sw_coordinator *c, uint64_t number);
/* Ends a member's connection. What depends on it ends when MEMBER_DOWN comes. */
void sw_coord_drop(struct sw_coordinator *c, uint64_t number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void sw_coord_member_msg(struct sw_coordinator *c, struct member *m, const struct sw_member *msg);
void sw_coord_members_free(struct sw_coordinator *c);

/* ---- trainers.c ---- */
void sw_coord_trainer_open(
    struct sw_coordinator *c, uint64_t member, const struct sw_trainer_open *msg, uint64_t now);
void sw_coord_sources(
    struct sw_coordinator *c, uint64_t member, const struct sw_sources *msg, uint64_t now);
void sw_coord_rank_gone(
    struct sw_coordinator *c, uint64_t member, const struct sw_rank_gone *msg, uint64_t now);
void sw_coord_trainers_member_down(
    struct sw_coordinator *c, uint64_t member, const char *why, uint64_t now);
void sw_coord_trainers_tick(struct sw_coordinator *c, uint64_t now);
uint64_t sw_coord_trainers_deadline(const struct sw_coordinator *c);
void sw_coord_trainers_free(struct sw_coordinator *c);
/* The rank, if this member hosts it. */
struct trainer *sw_coord_trainer(const struct sw_coordinator *c, uint64_t member, uint32_t rank);
void sw_coord_trainer_clear(struct trainer *t); /* forgets begin and end */
/* Calls for each trainerd that hosts ranks, once. */
void sw_coord_each_trainerd(struct sw_coordinator *c,
    void (*call)(struct sw_coordinator *c, uint64_t member, void *arg), void *arg);

/* ---- engines.c ---- */
void sw_coord_engine_rank(
    struct sw_coordinator *c, uint64_t member, const struct sw_engine_rank *msg, uint64_t now);
void sw_coord_parameters(
    struct sw_coordinator *c, uint64_t member, const struct sw_parameters *msg, uint64_t now);
void sw_coord_rank_state(
    struct sw_coordinator *c, uint64_t member, const struct sw_rank_state_msg *msg, uint64_t now);
void sw_coord_engines_member_down(
    struct sw_coordinator *c, uint64_t member, const char *why, uint64_t now);
void sw_coord_engines_tick(struct sw_coordinator *c, uint64_t now);
uint64_t sw_coord_engines_deadline(const struct sw_coordinator *c);
void sw_coord_engines_free(struct sw_coordinator *c);
struct engine *sw_coord_engine(const struct sw_coordinator *c, const char *name);
/* All ranks are registered, with all their parameters. */
bool sw_coord_engine_complete(const struct engine *engine);
/* Why it is not: "ranks 1 and 2 of 4 are not registered". */
void sw_coord_engine_missing(
    const struct sw_coordinator *c, const struct engine *engine, char *out, size_t size);
/* What all its ranks hold at least; 0 = nothing of ours. */
uint64_t sw_coord_engine_version(const struct engine *engine);
/* All its ranks are there and generate with this version. */
bool sw_coord_engine_serves(const struct engine *engine, uint64_t version);
/* The largest version that an engine serves, as far as is known. */
uint64_t sw_coord_live_version(const struct sw_coordinator *c);
/* A registration by what messages name; instance NULL = any. */
struct registration *sw_coord_find_reg(const struct sw_coordinator *c, uint64_t member,
    const char *engine, uint32_t rank, const struct sw_id *instance);
/* The registration of a target's process, if it is still there. */
struct registration *sw_coord_target_reg(
    const struct sw_coordinator *c, const struct target *target);

/* ---- plan_input.c ---- */
/* All ranks of the world, of which each has a manifest; the caller holds a reference. */
int sw_coord_plan_ranks(
    const struct sw_coordinator *c, struct plan_ranks **ranks, struct sw_error *e);
void sw_coord_plan_ranks_release(struct plan_ranks *ranks); /* accepts NULL */
/* All ranks of complete engines. Errors are those of the first that can't be one: its layout is
 * unknown, its config.json broken and so on; SW_ERR_NOMEM. *out is to be cleared in any case. */
int sw_coord_plan_targets(struct sw_coordinator *c, struct engine **engines, uint32_t n,
    struct plan_targets *out, struct sw_error *e);
int sw_coord_plan_target(struct sw_coordinator *c, struct registration *reg,
    struct plan_targets *out, struct sw_error *e);
void sw_coord_plan_targets_clear(struct plan_targets *t);

/* ---- epoch.c ---- */
/* Whether begin needs a new layout. SW_ERR_NOMEM, or 0 with *needed. */
int sw_coord_layout_needed(struct sw_coordinator *c, bool *needed, struct sw_error *e);
/* Makes next_layout from what there is; nobody hears of it yet. */
int sw_coord_layout_make(struct sw_coordinator *c, struct sw_error *e);
/* Makes it the layout, and sends it; plan_waits tells who must answer. Or SW_ERR_NOMEM. */
int sw_coord_layout_install(struct sw_coordinator *c, uint64_t epoch);
void sw_coord_layout_drop(struct sw_coordinator *c); /* the next one, if there is one */
void sw_coord_layout_lost(
    struct sw_coordinator *c); /* the one there is: not all trainerds took it */
/* Whether all ranks of a complete engine have their tiles in the layout; `why` if not. */
bool sw_coord_engine_fits(struct sw_coordinator *c, struct engine *engine, char *why, size_t size);
/* Makes the membership epoch (a new one if it differs) for these engines, and sends it. */
int sw_coord_membership(
    struct sw_coordinator *c, struct engine **engines, uint32_t n_engines, struct sw_error *e);
void sw_coord_targets_free(struct target *targets, uint32_t n);

/* ---- programs.c ---- */
/* Writes out the programs of a member's ranks and sends them; notes what of them is needed later.
 */
void sw_coord_send_loads(struct sw_coordinator *c, uint64_t member);
/* Sends targets and the write programs of a member's ranks. */
void sw_coord_send_writes(
    struct sw_coordinator *c, uint64_t member, const struct sw_writes *writes);
void sw_coord_epoch_free(struct sw_coordinator *c);

/* ---- stage.c ---- */
void sw_coord_begin(
    struct sw_coordinator *c, uint64_t member, const struct sw_begin *msg, uint64_t now);
void sw_coord_persisted(
    struct sw_coordinator *c, uint64_t version, int code, const char *text, uint64_t now);
void sw_coord_plan_done(
    struct sw_coordinator *c, uint64_t member, const struct sw_plan_done *msg, uint64_t now);
void sw_coord_end(
    struct sw_coordinator *c, uint64_t member, const struct sw_end *msg, uint64_t now);
void sw_coord_abort(
    struct sw_coordinator *c, uint64_t member, const struct sw_abort *msg, uint64_t now);
/* A rank has lost its process (or trainerd): what it began and did not end can't be finished. */
void sw_coord_stage_rank_lost(
    struct sw_coordinator *c, uint32_t rank, bool replica_lost, const char *why, uint64_t now);
/* The world is replaced: versions that it staged or began are given up. */
void sw_coord_stage_give_up(struct sw_coordinator *c, const char *why, uint64_t now);
void sw_coord_stage_tick(struct sw_coordinator *c, uint64_t now);
uint64_t sw_coord_stage_deadline(const struct sw_coordinator *c);
const char *sw_coord_stage_name(enum stage stage);
void sw_coord_update_move(struct sw_coordinator *c, struct update *u, enum stage to, uint64_t now);
void sw_coord_update_free(struct update *u);
void sw_coord_remember(struct sw_coordinator *c, struct update *u); /* into the history */
/* A version seen at an engine: ours must be larger from now on. */
void sw_coord_saw_version(struct sw_coordinator *c, uint64_t version, const char *where);

/* ---- publish.c ---- */
void sw_coord_publish(
    struct sw_coordinator *c, uint64_t member, const struct sw_publish *msg, uint64_t now);
/* Starts what is asked for and may start. */
void sw_coord_publish_tick(struct sw_coordinator *c, uint64_t now);
uint64_t sw_coord_publish_deadline(const struct sw_coordinator *c);
/* Some engine's trainerds have not been told yet that this version is the one to read. Staging the
 * next one must not be granted before: it takes the buffer that is not read. */
bool sw_coord_publish_starting(const struct sw_coordinator *c);
/* Tells everyone who waits for this update. */
void sw_coord_tell_waiters(struct sw_coordinator *c, const struct update *u);
/* Ends the waits for a version that will not be. */
void sw_coord_fail_waiters(struct sw_coordinator *c, uint64_t version, const struct sw_error *why);
void sw_coord_waiters_member_down(struct sw_coordinator *c, uint64_t member);
/* Looks whether all engines of the update are through. */
void sw_coord_publish_check(struct sw_coordinator *c, uint64_t now);

/* ---- engine_update.c ---- */
void sw_coord_engine_start(
    struct sw_coordinator *c, struct update *u, struct engine_update *eu, uint64_t now);
void sw_coord_phase_done(
    struct sw_coordinator *c, uint64_t member, const struct sw_phase_done *msg, uint64_t now);
void sw_coord_connected(
    struct sw_coordinator *c, uint64_t member, const struct sw_connected *msg, uint64_t now);
void sw_coord_written(
    struct sw_coordinator *c, uint64_t member, const struct sw_written *msg, uint64_t now);
/* What happened to a process in an update under way. */
void sw_coord_engine_process_lost(struct sw_coordinator *c, const struct registration *reg,
    bool unknown, const char *why, uint64_t now);
void sw_coord_engine_state(struct sw_coordinator *c, const struct registration *reg,
    enum sw_rank_state state, const char *why, uint64_t now);
void sw_coord_engine_trainerd_lost(
    struct sw_coordinator *c, uint64_t member, const char *why, uint64_t now);
void sw_coord_engine_tick(struct sw_coordinator *c, uint64_t now);
uint64_t sw_coord_engine_deadline(const struct sw_coordinator *c);
bool sw_coord_step_over(enum step step);
const char *sw_coord_step_name(enum step step);
void sw_coord_engine_check(const struct update *u, const struct engine_update *eu); /* asserts */

#endif
