/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transports: one-sided writes from a replica into engine memory, behind one table.
 *
 * Source side (trainerd): a `path` leads from this process to one target (engine rank). Target side
 * (inferd): a `port` belongs to one engine rank and holds its write window. All calls and callbacks
 * are made on the owner's libuv loop; what moves bytes may be other threads, or another process.
 *
 * One rule for asynchronous calls: non-zero return = the callback never fires; zero = exactly once.
 */
#ifndef SW_COMMON_TRANSPORT_H
#define SW_COMMON_TRANSPORT_H

#include <uv.h>
#include "common/conn.h"
#include "common/message.h"

/* ---- threads that move bytes (tcp) ---- */

/* Counts references: the maker has one, each path and port another. The last one to go ends the
 * threads (on the thread that lets go: a loop's, never one of them). threads 0 = min(4, CPUs). */
struct sw_io_pool;
int sw_io_pool_new(unsigned threads, struct sw_io_pool **out, struct sw_error *e);
void sw_io_pool_unref(struct sw_io_pool *pool); /* accepts NULL */

/* ---- source side ---- */

struct sw_source_memory { /* a replica buffer, as transports see it; borrowed */
    const void *base;
    uint64_t bytes;
    int fd;      /* read-only descriptor of the same memory (for `local`), borrowed */
    uint64_t id; /* another number = other memory; unique within the process */
};

struct sw_path_spec { /* borrowed during the call only */
    const struct sw_target *target;
    uint64_t layout_epoch;
    uint32_t n_tokens;
    const struct sw_token *tokens;
    const struct sw_identity *self; /* must outlive the path; dials as SW_ROLE_WRITER */
    uint32_t chunk_bytes;           /* 0 = SW_CHUNK_BYTES */
    uint32_t timeout_ms;            /* until the path can be used */
    struct sw_io_pool *pool;        /* tcp only; NULL = one of its own */
};

struct sw_write_job {
    struct sw_id window;
    const struct sw_source_memory *memory; /* base must stay mapped and unchanged until done */
    const struct sw_extent *extents;       /* must live until done */
    uint64_t n;
};

struct sw_path; /* first member of each transport's own path: const struct sw_transport *ops */

/* Outcome of open, attach, write or verify: code 0, or why not. `bytes` were confirmed. */
typedef void (*sw_path_done)(
    struct sw_path *p, uint64_t bytes, const struct sw_error *e, void *arg);
/* An idle path broke (peer gone). It must still be closed. */
typedef void (*sw_path_broken)(struct sw_path *p, const struct sw_error *why, void *arg);

/* ---- target side ---- */

struct sw_port_region {
    void *base;
    uint64_t bytes;
};

struct sw_port_spec { /* the engine rank's memory; arrays are copied, the memory is borrowed */
    uint32_t n_regions;
    const struct sw_port_region *regions;
    uint32_t n_runs;
    const struct sw_run *runs; /* declared bytes, sorted and merged: nothing else can be written */
    struct sw_io_pool *pool;   /* tcp only; NULL = one of its own */
};

struct sw_port;
typedef void (*sw_port_closed)(struct sw_port *p, uint64_t bytes, void *arg);

struct sw_transport {
    const char *name;

    /* Makes the path (dials, proves itself, presents tokens); `done` when it can be used. */
    int (*path_open)(uv_loop_t *loop, const struct sw_path_spec *spec, sw_path_broken broken,
        sw_path_done done, void *arg, struct sw_path **out, struct sw_error *e);
    /* Makes source memory known, before engines pause (maps it at the other end, registers it). */
    int (*path_attach)(struct sw_path *p, const struct sw_source_memory *m, sw_path_done done,
        void *arg, struct sw_error *e);
    /* Writes all extents; done = the target counted them as placed. */
    int (*path_write)(struct sw_path *p, const struct sw_write_job *job, sw_path_done done,
        void *arg, struct sw_error *e);
    /* Reads the target back and compares with the source, inside the window. */
    int (*path_verify)(struct sw_path *p, const struct sw_write_job *job, sw_path_done done,
        void *arg, struct sw_error *e);
    /* Ends the path; a job under way is done with SW_ERR_CLOSED first. After `done` nobody reads
     * the source memory any more, and the path is freed. For `local` this waits for the engine
     * process to acknowledge or to die; if the connection broke before it did, `done` has a code
     * and the engine process may still read: the memory must be replaced, not staged into. */
    void (*path_close)(struct sw_path *p, sw_path_done done, void *arg);

    /* A port for one engine rank; its window is closed at first. NULL ops = target has none. */
    int (*port_new)(
        uv_loop_t *loop, const struct sw_port_spec *spec, struct sw_port **out, struct sw_error *e);
    /* Opens the window: writes that name `window` are placed from now on. */
    int (*port_open)(struct sw_port *p, const struct sw_id *window, struct sw_error *e);
    /* Closes it: when `closed` comes, nothing more is placed, whatever the writer does; bytes
     * placed in this window are reported. Comes at once (inside the call) where that is possible.
     * At most 4 calls may wait at a time. */
    void (*port_close)(struct sw_port *p, sw_port_closed closed, void *arg);
    /* Closes the window and every path that leads here; memory may be unmapped when `closed` comes
     * (later, from the loop). The port is freed after it: nothing may be called on it then. */
    void (*port_free)(struct sw_port *p, sw_port_closed closed, void *arg);
};

extern const struct sw_transport sw_transport_tcp;
extern const struct sw_transport sw_transport_local;
extern const struct sw_transport sw_transport_null;

/* By name; NULL = unknown. */
const struct sw_transport *sw_transport_find(const char *name);

/* ---- tcp: the listener hands sockets to ports ---- */

/* A data connection that presented a good token (PATH_DONE was sent already): the port owns fd
 * (and has closed it when this fails). Not after port_free. */
int sw_tcp_port_adopt(struct sw_port *p, int fd, const char *peer, struct sw_error *e);
uint32_t sw_tcp_port_connections(const struct sw_port *p);

/* ---- local: inferd relays between a writer's connection and the engine process ---- */

struct sw_local_relay {
    /* Sends a message (owned) to the engine process of this port. */
    void (*to_engine)(struct sw_msg *msg, void *arg);
    void *arg;
};
void sw_local_port_relay(struct sw_port *p, const struct sw_local_relay *relay);
/* Writer side came (PATH_DONE was sent already); its LOCAL_* messages go to the port from now on.
 * The port owns the connection. */
void sw_local_port_adopt(struct sw_port *p, struct sw_conn *writer);
/* LOCAL_MAPPED or LOCAL_DONE from the engine process (owned). */
void sw_local_port_from_engine(struct sw_port *p, struct sw_msg *msg);
/* The engine process has died (pidfd): nothing is read or written by it any more. */
void sw_local_port_engine_died(struct sw_port *p);

/* ---- local: what the engine process runs (no loop, no I/O but mmap) ---- */

struct sw_local_engine;
struct sw_local_engine *sw_local_engine_new(const struct sw_port_spec *spec, unsigned threads);
void sw_local_engine_free(struct sw_local_engine *l);
/* Handles LOCAL_SOURCE (maps it, populated) or LOCAL_COPY (copies or compares). `msg` is borrowed,
 * its descriptors are taken. Returns the reply to send (LOCAL_MAPPED or LOCAL_DONE); NULL = no
 * memory, nothing was done. The upper half of a source's number is its writer's: source memory that
 * a later number of the same writer replaces is unmapped, and one of 0 bytes without a descriptor
 * only unmaps. Checks every extent against source, region and declared runs. May take long: a
 * thread of its own is the place for it. */
struct sw_msg *sw_local_engine_handle(struct sw_local_engine *l, struct sw_msg *msg);

#endif
