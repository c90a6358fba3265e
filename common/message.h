/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every message of the control channel, decoded. docs/protocol.md tells who sends what, and when.
 *
 * A struct sw_msg is one heap object: strings and arrays lie in its arena, and sw_msg_free releases
 * all of it. No string in a decoded message is NULL (absent = "", only
 * sw_parameter.alias_of is NULL then), no array pointer is used with a
 * count of 0, every count is within limits.h, and enum values are known ones: the codec sees to it.
 * Descriptors travel beside the bytes: `fds` are owned by the message and closed by sw_msg_free,
 * unless taken with sw_msg_take_fd.
 *
 * `error` fields: code 0 means success; `reason` then is "".
 */
#ifndef SW_COMMON_MESSAGE_H
#define SW_COMMON_MESSAGE_H

#include <stddef.h>
#include <stdint.h>
#include "common/arena.h"
#include "common/limits.h"
#include "common/program.h"

struct sw_id { /* random instance id of a process, engine rank or window; all zero = none */
    uint8_t bytes[16];
};

enum sw_role {
    SW_ROLE_TRAINER = 1, /* a trainer process (to trainerd's UNIX socket) */
    SW_ROLE_ENGINE = 2,  /* an engine process (to inferd's UNIX socket) */
    SW_ROLE_TRAINERD = 3,
    SW_ROLE_INFERD = 4,
    SW_ROLE_CLIENT = 5, /* shardctl: status; on trainerd's UNIX socket publish too */
    SW_ROLE_WRITER = 6, /* a data path from trainerd to inferd */
};

enum sw_phase {         /* steps of an update in one engine rank */
    SW_PHASE_ARM = 1,   /* coordinator -> inferd only: who will write; tokens come back */
    SW_PHASE_PAUSE = 2, /* done = the device is idle */
    SW_PHASE_PREPARE = 3,
    SW_PHASE_OPEN = 4,  /* coordinator -> inferd only */
    SW_PHASE_CLOSE = 5, /* coordinator -> inferd only; done carries the bytes counted */
    SW_PHASE_POST = 6,
    SW_PHASE_ACTIVATE = 7,
    SW_PHASE_RESUME = 8,
    SW_PHASE_ABORT = 9, /* coordinator -> inferd only: end this update for the whole engine; inferd
                         * resumes the old version, or keeps the engine paused as torn */
};

enum sw_rank_state {     /* an engine rank as inferd sees it */
    SW_RANK_SERVING = 1, /* generates, or may */
    SW_RANK_PAUSING = 2, /* pause was asked for */
    SW_RANK_PAUSED = 3,  /* paused (and perhaps prepared); its window has not been open */
    SW_RANK_OPEN = 4,
    SW_RANK_CLOSED = 5, /* written to, not activated */
    SW_RANK_ACTIVE = 6, /* activated, not resumed */
    SW_RANK_TORN = 7,   /* stays paused until repaired */
    SW_RANK_GONE = 8,
};

enum sw_update_state {
    SW_UPDATE_IDLE = 1,
    SW_UPDATE_STAGING = 2,
    SW_UPDATE_STAGED = 3,
    SW_UPDATE_PUBLISHING = 4,
    SW_UPDATE_LIVE = 5,    /* published; live on every engine of the update */
    SW_UPDATE_PARTIAL = 6, /* published; some engines failed */
    SW_UPDATE_ABORTED = 7,
};

enum sw_local_mode { SW_LOCAL_WRITE = 1, SW_LOCAL_VERIFY = 2 };

enum sw_msg_kind {
    /* handshake, on every connection */
    SW_MSG_HELLO = 1,
    SW_MSG_HELLO_REPLY,
    SW_MSG_HELLO_PROOF,
    SW_MSG_HELLO_DONE,
    SW_MSG_ERROR, /* last message before a close */
    /* trainer -> trainerd -> coordinator, and back */
    SW_MSG_TRAINER_OPEN,
    SW_MSG_SOURCES,
    SW_MSG_SOURCES_DONE,
    SW_MSG_BEGIN,
    SW_MSG_BEGIN_DONE,
    SW_MSG_LOAD_PROGRAM,
    SW_MSG_BUFFER,
    SW_MSG_END,
    SW_MSG_END_DONE,
    SW_MSG_ABORT,
    SW_MSG_PUBLISH,
    SW_MSG_RESULT,
    SW_MSG_RANK_GONE,
    /* coordinator <-> trainerd */
    SW_MSG_PLAN_DONE,
    SW_MSG_TARGETS,
    SW_MSG_WRITE_PROGRAM,
    SW_MSG_CONNECT,
    SW_MSG_CONNECTED,
    SW_MSG_WRITE,
    SW_MSG_WRITTEN,
    SW_MSG_UPDATE_END,
    /* engine -> inferd -> coordinator, and back */
    SW_MSG_MEMBER, /* inferd and trainerd present themselves to the coordinator */
    SW_MSG_ENGINE_RANK,
    SW_MSG_PARAMETERS,
    SW_MSG_REGISTERED,
    SW_MSG_PHASE,
    SW_MSG_PHASE_DONE,
    SW_MSG_RANK_STATE,
    /* trainerd -> inferd -> engine: the local transport; and opening a data path */
    SW_MSG_PATH_OPEN,
    SW_MSG_PATH_DONE,
    SW_MSG_LOCAL_SOURCE,
    SW_MSG_LOCAL_MAPPED,
    SW_MSG_LOCAL_COPY,
    SW_MSG_LOCAL_DONE,
    /* anyone -> daemon */
    SW_MSG_STATUS,
    SW_MSG_STATUS_TEXT,
    /* FP8 blocks that several trainer ranks of a host hold parts of */
    SW_MSG_MAXIMA_PROGRAM, /* coordinator -> trainerd */
    SW_MSG_MAXIMA,         /* trainer -> trainerd */
    SW_MSG_MAXIMA_DONE,
    /* client -> inferd */
    SW_MSG_ENGINES, /* ENGINE_RANK and PARAMETERS of every rank come back, then: */
    SW_MSG_ENGINES_DONE,
    SW_MSG_KIND_COUNT
};

struct sw_hello {                        /* HELLO (from the side that dialled), HELLO_REPLY */
    uint32_t protocol_min, protocol_max; /* in the reply both are the version chosen */
    const char *group;
    enum sw_role role; /* in the reply: SW_ROLE_TRAINERD or SW_ROLE_INFERD */
    struct sw_id instance;
    uint8_t nonce[SW_NONCE_BYTES];
    uint32_t has_secret;  /* 1: this side has a secret and wants proof */
    uint8_t proof[32];    /* reply only: HMAC-SHA256, zero without a secret */
    const char *software; /* "shardwire 0.1.0" */
    const char *host;     /* host name, for messages */
};
struct sw_hello_proof {
    uint8_t proof[32];
};
struct sw_failure { /* ERROR; also embedded as a reply's outcome */
    int32_t code;
    const char *reason;
};

struct sw_trainer_open {
    uint32_t rank, world;
    uint32_t pid; /* set by trainerd from the socket's credentials when it forwards */
    struct sw_id trainer;
};
struct sw_sources { /* a part of one rank's manifest; parts are sent in order, once for a declare */
    uint32_t rank, world;
    struct sw_id trainer; /* the trainer process's instance */
    uint32_t first, total, n;
    struct sw_source *items;
};
struct sw_rank_reply { /* SOURCES_DONE, BEGIN_DONE, MAXIMA_DONE, END_DONE */
    uint32_t rank;
    uint64_t version;      /* 0 in SOURCES_DONE */
    uint64_t layout_epoch; /* BEGIN_DONE: the epoch of the load program to use */
    uint32_t buffer;       /* BEGIN_DONE, trainerd -> trainer: which buffer to stage into */
    struct sw_failure error;
};
struct sw_begin {
    uint32_t rank;
    uint64_t version;
    uint64_t base; /* version whose bytes the tiles that are not staged keep; 0 = all are staged */
};
struct sw_digest { /* XXH3-128 of a source's bytes in C order */
    uint32_t set, source;
    uint64_t high, low;
};
struct sw_end {
    uint32_t rank;
    uint64_t version;
    uint64_t bytes;    /* final bytes staged by this rank */
    uint64_t stage_ns; /* begin granted -> end */
    uint32_t n;
    struct sw_digest *digests;
};
struct sw_abort {
    uint32_t rank; /* who gave up; UINT32_MAX = the coordinator */
    uint64_t version;
    const char *reason;
};
struct sw_load_program { /* parts in order: templates, then loads, grids, checks, tiles */
    uint64_t layout_epoch;
    uint32_t rank;
    uint64_t replica_bytes;
    uint64_t n_maxima; /* floats of block maxima that this rank shares with others */
    uint32_t total_templates, total_loads, total_grids, total_checks, total_tiles;
    uint32_t first_template, first_load, first_grid, first_check, first_tile;
    uint32_t n_templates, n_loads, n_grids, n_checks, n_tiles;
    struct sw_load_template *templates;
    struct sw_load *loads;
    struct sw_grid *grids;
    struct sw_alias_check *checks;
    struct sw_tile *tiles;
};
struct sw_buffer { /* + 2 descriptors: data, counters (u64 for each tile); a third one, the shared
                    * block maxima (floats), when maxima_bytes > 0. All are read-write */
    uint32_t rank, index;
    uint64_t generation; /* another number = another memfd: map anew */
    uint64_t data_bytes, counter_bytes, maxima_bytes;
};
struct sw_maxima_program { /* of one host; parts in order: shares, then members */
    uint64_t layout_epoch;
    uint32_t total_shares, total_members;
    uint32_t first_share, first_member;
    uint32_t n_shares, n_members;
    struct sw_share *shares;
    struct sw_share_member *members;
};
struct sw_maxima { /* this rank's partial maxima of the version lie in the buffer */
    uint32_t rank;
    uint64_t version;
};
struct sw_publish {
    uint64_t request;   /* the asker's number; comes back in RESULT */
    uint64_t version;   /* 0 = the newest staged or staging */
    uint32_t wait_only; /* 1: do not publish, tell the result when there is one */
};
struct sw_engine_result {
    const char *engine;
    uint32_t live;    /* 1: every rank activated and resumed at the version */
    uint64_t version; /* what it serves now; 0 = never updated */
    const char *state;
    const char *reason; /* why not live */
    uint64_t drain_ns;  /* pause asked -> every rank idle */
    uint64_t pause_ns;  /* every rank idle -> resume sent */
    uint64_t write_ns;  /* first write asked -> last confirmed */
    uint64_t post_ns;
    uint64_t bytes; /* counted at the targets */
    const char *transport;
};
struct sw_result {
    uint64_t request, version;
    struct sw_failure error;
    uint64_t stage_ns, stage_bytes;
    uint32_t n;
    struct sw_engine_result *engines;
};
struct sw_rank_gone {
    uint32_t rank;
    struct sw_id trainer;
    const char *reason;
};

struct sw_plan_done { /* trainerd: every rank's replica for this epoch is allocated, or why not */
    uint64_t layout_epoch;
    struct sw_failure error;
};
struct sw_target {   /* one engine rank as a destination */
    uint32_t target; /* number within the membership epoch */
    uint32_t engine_rank;
    const char *engine;
    struct sw_id engine_instance; /* of the engine process */
    struct sw_id inferd;
    const char *address;                /* host or IP of inferd's data port */
    const char *unix_path;              /* inferd's UNIX socket */
    uint8_t host_nonce[SW_NONCE_BYTES]; /* known only to who can ask that inferd */
    uint32_t data_port, n_regions;
    uint64_t *region_bytes;
};
struct sw_targets { /* parts in order; then that epoch's WRITE_PROGRAMs */
    uint64_t layout_epoch, membership_epoch;
    uint32_t first, total, n;
    struct sw_target *items;
};
struct sw_write_program { /* parts in order */
    uint64_t layout_epoch, membership_epoch;
    uint32_t rank, target;
    uint32_t first, total, n;
    struct sw_extent *extents;
};
struct sw_token {
    uint8_t bytes[SW_TOKEN_BYTES];
};
struct sw_connect { /* publish starts: tiles flip; data paths to this target are made */
    uint64_t update, version, layout_epoch, membership_epoch;
    uint32_t target;
    uint32_t n;
    struct sw_token *tokens; /* one for each data connection */
};
struct sw_connected {
    uint64_t update;
    uint32_t target;
    const char *transport; /* "tcp", "local", ... */
    const char *why;       /* the reason for the choice, for status */
    struct sw_failure error;
};
struct sw_write {
    uint64_t update, version;
    uint32_t target;
    struct sw_id window;
};
struct sw_written {
    uint64_t update;
    uint32_t target;
    uint64_t bytes; /* confirmed by the target */
    uint64_t ns;
    struct sw_failure error;
};
struct sw_update_end { /* for one target: nothing more will be asked; stop what still runs */
    uint64_t update;
    uint32_t target;
};

struct sw_member {
    const char *name; /* host name */
    const char
        *advertise;     /* address for data connections; "" = the one this connection comes from */
    uint32_t data_port; /* inferd */
    const char *unix_path;              /* inferd */
    uint8_t host_nonce[SW_NONCE_BYTES]; /* inferd */
};
struct sw_engine_rank { /* engine -> inferd: + one descriptor for each region */
    const char *engine;
    uint32_t rank, world;
    struct sw_id instance; /* of the engine process */
    struct sw_coordinates at;
    const char *layout;       /* "" and "identity": checkpoint names; "auto": by the config's
                               * architecture; else a layout file's name */
    enum sw_engine_kind kind; /* whose names its parameters have */
    const char *config;       /* the model's config.json; "" with identity */
    const char *scale_format; /* "", "fp32", "ue8m0" */
    uint32_t block_rows, block_columns; /* of FP8 blocks; 0 = what the config says */
    uint32_t fused_shared_experts;      /* 0 or 1 */
    uint64_t expert_map_version;
    /* Slot -> expert, a row for each layer or one for all; none: by the experts' ids. */
    uint32_t expert_map_layers, expert_map_slots, n_expert_map;
    uint32_t *expert_map;
    uint64_t version;      /* what the engine process knows it holds; 0 = nothing of ours */
    uint32_t torn;         /* 1: it was paused for an update whose end it never saw */
    uint32_t pid;          /* set by inferd when it forwards */
    uint32_t n_parameters; /* how many PARAMETERS items follow */
    uint32_t n_regions;
    uint64_t *region_bytes;
};
struct sw_parameters {
    const char *engine;
    uint32_t rank;
    struct sw_id instance;
    uint32_t first, total, n;
    struct sw_parameter *items;
};
struct sw_registered {
    const char *engine;
    uint32_t rank;
    struct sw_failure error;
};
struct sw_writer_ref {
    struct sw_id trainerd;
    uint32_t connections; /* tokens wanted */
};
struct sw_phase_msg {
    enum sw_phase phase;
    uint64_t update, version, layout_epoch, membership_epoch;
    const char *engine;
    uint32_t rank;
    struct sw_id instance;   /* of the engine process; another one = refused */
    uint64_t expected_bytes; /* OPEN: what the window will be given in all */
    const char *reason;      /* ABORT */
    uint32_t n;
    struct sw_writer_ref *writers; /* ARM */
};
struct sw_issued {
    struct sw_id trainerd;
    uint32_t n;
    struct sw_token *tokens;
};
struct sw_phase_done {
    enum sw_phase phase;
    uint64_t update;
    const char *engine;
    uint32_t rank;
    struct sw_id instance;
    struct sw_failure error;
    struct sw_id window;      /* OPEN */
    uint64_t bytes;           /* CLOSE: bytes placed while the window was open */
    enum sw_rank_state state; /* after the phase; engine -> inferd leaves SW_RANK_SERVING */
    uint32_t n;
    struct sw_issued *issued; /* ARM */
};
struct sw_rank_state_msg { /* inferd -> coordinator: what no phase asked for, e.g. a lease that
                              ended */
    const char *engine;
    uint32_t rank;
    struct sw_id instance;
    enum sw_rank_state state;
    uint64_t version;
    const char *reason;
};

struct sw_path_open { /* WRITER role, after the handshake */
    const char *engine;
    uint32_t engine_rank;
    struct sw_id engine_instance;
    uint64_t layout_epoch;
    uint32_t local;                     /* 1: local transport, on inferd's UNIX socket */
    uint8_t host_nonce[SW_NONCE_BYTES]; /* local */
    struct sw_token token;
};
struct sw_path_done {
    struct sw_failure error; /* after success a tcp path speaks common/transport/tcp_wire.h */
};
struct sw_local_source { /* + 1 descriptor: the replica, read-only */
    uint64_t source;     /* sender's number for it; a new number = new memory */
    uint64_t bytes;
};
struct sw_local_mapped {
    uint64_t source;
    struct sw_failure error;
};
struct sw_local_copy { /* + 1 descriptor: struct sw_extent[n], a sealed memfd */
    uint64_t copy;     /* sender's number */
    uint64_t source;
    struct sw_id window;
    enum sw_local_mode mode;
    uint64_t n; /* extents */
};
struct sw_local_done {
    uint64_t copy;
    uint64_t bytes;
    struct sw_failure error;
};
struct sw_status {
    uint64_t request;
};
struct sw_engines {
    uint64_t request;
};
struct sw_engines_done {
    uint64_t request;
    uint32_t n; /* ranks that were told */
};
struct sw_status_text { /* JSON in parts; they are concatenated */
    uint64_t request;
    uint32_t last;
    const char *text;
};

struct sw_msg {
    enum sw_msg_kind kind;
    uint32_t n_fds;
    int fds[SW_FRAME_FDS_MAX]; /* -1 when taken */
    struct sw_arena arena;
    union {
        struct sw_hello hello;             /* HELLO, HELLO_REPLY */
        struct sw_hello_proof hello_proof; /* HELLO_PROOF */
        struct sw_failure error;           /* ERROR; HELLO_DONE has no body */
        struct sw_trainer_open trainer_open;
        struct sw_sources sources;
        struct sw_rank_reply rank_reply; /* SOURCES_DONE, BEGIN_DONE, END_DONE */
        struct sw_begin begin;
        struct sw_load_program load_program;
        struct sw_buffer buffer;
        struct sw_maxima_program maxima_program;
        struct sw_maxima maxima;
        struct sw_end end;
        struct sw_abort abort;
        struct sw_publish publish;
        struct sw_result result;
        struct sw_rank_gone rank_gone;
        struct sw_plan_done plan_done;
        struct sw_targets targets;
        struct sw_write_program write_program;
        struct sw_connect connect;
        struct sw_connected connected;
        struct sw_write write;
        struct sw_written written;
        struct sw_update_end update_end;
        struct sw_member member;
        struct sw_engine_rank engine_rank;
        struct sw_parameters parameters;
        struct sw_registered registered;
        struct sw_phase_msg phase;
        struct sw_phase_done phase_done;
        struct sw_rank_state_msg rank_state;
        struct sw_path_open path_open;
        struct sw_path_done path_done;
        struct sw_local_source local_source;
        struct sw_local_mapped local_mapped;
        struct sw_local_copy local_copy;
        struct sw_local_done local_done;
        struct sw_status status;
        struct sw_engines engines;
        struct sw_engines_done engines_done;
        struct sw_status_text status_text;
    } u;
};

/* A zeroed message of a kind (strings are NULL: the encoder sends NULL as ""); NULL = no memory. */
struct sw_msg *sw_msg_new(enum sw_msg_kind kind);

/* Closes the descriptors, frees everything. Accepts NULL. */
void sw_msg_free(struct sw_msg *msg);

/* A deep copy with all strings and arrays; descriptors are not copied. NULL = no memory. */
struct sw_msg *sw_msg_copy(const struct sw_msg *msg);

/* Takes descriptor i out of the message (the caller owns it now); -1 when there is none. */
int sw_msg_take_fd(struct sw_msg *msg, uint32_t i);

const char *sw_msg_kind_name(enum sw_msg_kind kind); /* "BEGIN"; never NULL */
const char *sw_phase_name(enum sw_phase phase);      /* "pause" */
const char *sw_role_name(enum sw_role role);         /* "trainerd" */
const char *sw_rank_state_name(enum sw_rank_state state);
const char *sw_update_state_name(enum sw_update_state state);

bool sw_id_equal(const struct sw_id *a, const struct sw_id *b);
bool sw_id_is_none(const struct sw_id *a);
/* First 8 bytes in hex, for messages and status; `out` has 17 bytes. Returns out. */
const char *sw_id_short(const struct sw_id *id, char out[17]);

#endif
