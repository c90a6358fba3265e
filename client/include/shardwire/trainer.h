/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trainer's side of Shardwire: put each tensor once, publish when all is staged.
 *
 *     sw_trainer_open -> sw_trainer_declare -> { begin -> put... -> end -> publish -> wait }... ->
 * close
 *
 * One object = one trainer rank, over one connection to this host's trainerd. Calls block, each
 * with a deadline, and never print or exit. Threads: one thread at a time may use an object, except
 * sw_trainer_put, which several threads may call at once (for different tensors), between begin and
 * end. Different objects are independent; there is no global state. After a fork the child must not
 * use the parent's objects.
 *
 * Every function returns 0 or a negative enum sw_code with a message in *e (may be NULL). After
 * SW_ERR_CLOSED (trainerd is gone) the object can only be closed; open another one and declare
 * again.
 *
 * While the world is incomplete (other ranks have not declared or begun), no engine is complete, or
 * a plan is being made, sw_trainer_begin waits, up to its deadline and the coordinator's own
 * (option `begin` of trainerd); the error names what was missing.
 */
#ifndef SHARDWIRE_TRAINER_H
#define SHARDWIRE_TRAINER_H

#include <stddef.h>
#include <stdint.h>
#include <shardwire/api.h>
#include <shardwire/dtype.h>
#include <shardwire/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_trainer sw_trainer;

struct sw_trainer_options {
    size_t size;         /* sizeof(struct sw_trainer_options): set by the caller */
    const char *socket;  /* trainerd's UNIX socket; NULL = /run/shardwire/trainerd.sock */
    const char *group;   /* NULL = "default" */
    uint32_t rank;       /* of this process among the trainer's processes */
    uint32_t world;      /* how many there are; 0 means 1 */
    uint32_t threads;    /* that one put may use for copying, the caller's included; 0 = 1 */
    uint32_t timeout_ms; /* of open and declare; 0 = 30 s */
};

enum sw_device_type { SW_DEVICE_CPU = 0, SW_DEVICE_CUDA = 1 };

/* A source tensor as this rank declares it: the global tensor, and the box of it that this rank
 * puts. */
struct sw_source_tensor {
    const char *name; /* checkpoint (Hugging Face) name, UTF-8 */
    enum sw_dtype dtype;
    uint32_t ndim;
    uint64_t shape[SW_MAX_DIMS];   /* global, in elements */
    uint64_t box_lo[SW_MAX_DIMS];  /* first element of the box in each dimension */
    uint64_t box_len[SW_MAX_DIMS]; /* its elements; all 0 (with ndim > 0) = the whole tensor */
};

/* The value of a declared box. */
struct sw_tensor {
    const void *data; /* first element; may be NULL for a tensor of 0 bytes */
    enum sw_dtype dtype;
    uint32_t ndim;
    uint64_t shape[SW_MAX_DIMS];  /* equals the declared box */
    int64_t strides[SW_MAX_DIMS]; /* in elements; used when has_strides, else dense in C order */
    int has_strides;
    enum sw_device_type device; /* SW_DEVICE_CUDA gives SW_ERR_UNSUPPORTED in this version */
    int device_index;
    void *stream; /* CUDA stream that produced the value; ignored on CPU */
};

struct sw_engine_status {
    const char *engine; /* strings live until the next call on the trainer */
    int live;           /* every rank of it holds the version and generates with it */
    uint64_t version;   /* that it serves now; 0 = none of ours */
    const char *state;
    const char *reason; /* why it is not live; "" if it is */
    const char *transport;
    uint64_t drain_ns; /* pause asked -> all ranks idle on their devices */
    uint64_t pause_ns; /* all ranks idle -> resume sent: the pause */
    uint64_t write_ns; /* within it: first write asked -> last one confirmed */
    uint64_t post_ns;  /* within it: the engine's post-processing */
    uint64_t bytes;    /* counted at the targets */
};

struct sw_publish_result {
    uint64_t version;
    uint64_t stage_ns, stage_bytes;
    size_t n_engines;
    const struct sw_engine_status *engines; /* live until the next call on the trainer */
};

/* Connects and takes the rank. SW_ERR_CLOSED when no daemon answers ("is trainerd running? tried
 * ..."), SW_ERR_AUTH without permission or for another group. SW_ERR_EXISTS when a living process
 * holds the rank (its pid is named): trainerd says so on its own, so that it may be declare that
 * tells. Strings are copied. */
SW_API int sw_trainer_open(
    const struct sw_trainer_options *options, sw_trainer **trainer, struct sw_error *e);

/* Declares all source tensors of this rank (strings copied); replaces an earlier declaration. Not
 * between begin and end. The same declaration as last time keeps plan and replica. One that
 * trainerd refuses leaves nothing declared; SW_ERR_TIMEOUT ends the session. */
SW_API int sw_trainer_declare(
    sw_trainer *t, const struct sw_source_tensor *tensors, size_t n, struct sw_error *e);

/* Starts staging a version. `version` is greater than every one ever begun in the group
 * (SW_ERR_VERSION otherwise); 0 asks for the next one. *begun (may be NULL) gets it. timeout_ms 0 =
 * the coordinator's deadline decides (but an hour at most, here as in end and wait: a stopped
 * daemon keeps no deadlines). On an error nothing is begun. */
SW_API int sw_trainer_begin(
    sw_trainer *t, uint64_t version, uint32_t timeout_ms, uint64_t *begun, struct sw_error *e);

/*
 * Puts one tensor in its final form into the replica: sliced, cast (BF16, F16, F32: to nearest,
 * ties to even), or quantised to FP8 by blocks, as the engines hold it. When it returns the caller
 * may reuse the memory (CPU). Errors, all naming the tensor: SW_ERR_NOT_FOUND undeclared,
 * SW_ERR_INVALID another shape or dtype, or a NaN or infinite value in what is quantised or cast to
 * fewer bits (the message says where), SW_ERR_EXISTS put before in this version, SW_ERR_STATE
 * outside begin..end. They leave the version as it was: a right value can be put then, and end
 * waits for one. A tensor that no engine wants is accepted and not copied. One that
 * sw_trainer_holds is read again by end: it must stay as it is until end has returned anything but
 * SW_ERR_TIMEOUT.
 */
SW_API int sw_trainer_put(
    sw_trainer *t, const char *name, const struct sw_tensor *value, struct sw_error *e);

/* Says that this rank has put everything, and waits until the whole world has and the version is
 * staged. SW_ERR_STATE with the names of the first tensors missing: put them and end again. With
 * SW_ERR_ABORTED the version is over (another rank gave up, alias sources differ, ...); put,
 * publish and wait may return it too, when they hear of it first. After SW_ERR_TIMEOUT end is still
 * under way: call it again (no puts in between), or abort. Where FP8 blocks lie in several ranks,
 * end waits for the others of them first, and quantises what was held. */
SW_API int sw_trainer_end(sw_trainer *t, uint32_t timeout_ms, struct sw_error *e);

/* Gives the version up, between begin and publish. Also when nothing is begun (then it does
 * nothing). `reason` is what others are told. */
SW_API int sw_trainer_abort(sw_trainer *t, const char *reason, struct sw_error *e);

/* Asks to publish (0 = the version begun last) and returns at once; one rank asks, wait tells. Any
 * rank may ask again: a repeated publish is the same publish. */
SW_API int sw_trainer_publish(sw_trainer *t, uint64_t version, struct sw_error *e);

/* Waits for the result of a version (0 = begun last), whoever published it. 0: live on every
 * engine. SW_ERR_PARTIAL: the result tells which are not, and why. *result (may be NULL) is set in
 * both cases, else emptied. timeout_ms 0 = until the coordinator's deadlines decide. SW_ERR_TIMEOUT
 * leaves the update running; wait again. */
SW_API int sw_trainer_wait(sw_trainer *t, uint64_t version, uint32_t timeout_ms,
    struct sw_publish_result *result, struct sw_error *e);

/* What the plan made of this rank's declaration; valid after a begin. */
struct sw_trainer_plan {
    uint64_t layout_epoch;
    uint64_t replica_bytes; /* final bytes, one buffer */
    size_t n_tensors;       /* declared */
    size_t n_unused;        /* declared, and wanted by no engine */
};
SW_API int sw_trainer_plan(const sw_trainer *t, struct sw_trainer_plan *plan, struct sw_error *e);
/* The i-th unused tensor's name, NULL past the end; lives as long as the declaration. */
SW_API const char *sw_trainer_unused(const sw_trainer *t, size_t i);

/* 1 when a tensor's FP8 blocks lie partly in other ranks, so that it must stay as it was put until
 * end; valid after a begin. */
SW_API int sw_trainer_holds(const sw_trainer *t, const char *name);

/* Ends the session; a version not ended is aborted. What was staged stays in trainerd. Accepts
 * NULL. */
SW_API void sw_trainer_close(sw_trainer *t);

/* "0.1.0" */
SW_API const char *sw_version_string(void);

#ifdef __cplusplus
}
#endif
#endif
