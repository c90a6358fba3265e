/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's side of Shardwire: an engine process (one rank, one GPU or host memory) registers
 * its weight memory and follows the steps of each update.
 *
 *     sw_engine_open -> regions, parameters, aliases -> sw_engine_register
 *         -> { sw_engine_next_event -> act -> sw_engine_ack }... -> sw_engine_close
 *
 * One object is used by one thread at a time (an engine usually gives it a thread of its own).
 * Calls never print or exit; there is no global state. Copies of the `local` transport run inside
 * sw_engine_next_event, on its thread (and `threads` - 1 helpers), while the engine is paused: so
 * call it again soon after each ack.
 *
 * While other ranks of the engine are missing, registration succeeds and nothing happens: updates
 * go to engines whose whole world is registered.
 */
#ifndef SHARDWIRE_ENGINE_H
#define SHARDWIRE_ENGINE_H

#include <stddef.h>
#include <stdint.h>
#include <shardwire/api.h>
#include <shardwire/dtype.h>
#include <shardwire/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_engine sw_engine;

/*
 * Rank and size of each parallel group; 0/0 = not said, which is right for most: attention, dense
 * MLP and so on then follow from tp, ep and dp as the engine does it (docs/layouts.md, "GROUP").
 */
struct sw_engine_coordinates {
    uint32_t pp, pp_size, tp, tp_size, ep, ep_size, dp, dp_size;
    uint32_t attn_tp, attn_tp_size, moe_tp, moe_tp_size, mlp_tp, mlp_tp_size;
    uint32_t shared_tp, shared_tp_size, embed_tp, embed_tp_size, head_tp, head_tp_size;
};

struct sw_engine_options {
    size_t size;          /* sizeof(struct sw_engine_options): set by the caller */
    const char *socket;   /* inferd's UNIX socket; NULL = /run/shardwire/inferd.sock */
    const char *group;    /* NULL = "default" */
    const char *engine;   /* name of the engine; all its ranks give the same */
    uint32_t rank, world; /* world 0 means 1 */
    struct sw_engine_coordinates at;
    /* How its parameters come from a checkpoint: NULL or "identity" = the same names, whole; "auto"
     * = by the layout file for config.json's architecture; or a layout file's name. The last two
     * need kind and config. */
    const char *layout;
    const char *kind;   /* whose parameter names: "sglang" or "vllm" */
    const char *config; /* text of the model's config.json, at most 256 KiB */
    /* FP8 weights: rows and columns of a block (0 = config.json's), and the format of its scales.
     */
    uint32_t block_rows, block_columns;
    const char *scale_format;      /* NULL = fp32, "fp32" or "ue8m0" */
    uint32_t fused_shared_experts; /* 1: the shared expert is one more slot of the routed ones */
    /* Which expert lies in which slot of this rank: a row of `slots` ids for each layer (row number
     * = layer number, also of layers without experts), or one row for all. Version 0, no map:
     * contiguous, by id. */
    uint64_t expert_map_version;
    uint32_t expert_map_layers, expert_map_slots;
    const uint32_t *expert_map;
    uint32_t threads;    /* for local copies, the caller's included; 0 = 1 */
    uint32_t timeout_ms; /* of open and register; 0 = 30 s */
};

/* Connects. SW_ERR_CLOSED when no daemon answers ("is inferd running? tried ..."). Strings are
 * copied. */
SW_API int sw_engine_open(
    const struct sw_engine_options *options, sw_engine **engine, struct sw_error *e);

/* A region of `bytes` (> 0) that the library allocates: a sealed memfd, mapped at *memory, zeroed,
 * owned by the engine object until close. *region is its number. */
SW_API int sw_engine_alloc(
    sw_engine *en, uint64_t bytes, void **memory, uint32_t *region, struct sw_error *e);

/* A region from a memfd of yours, sealed against shrinking (F_SEAL_SHRINK) and open for writing;
 * the descriptor is duplicated. `memory` is your mapping of it, which stays valid until close. */
SW_API int sw_engine_region(
    sw_engine *en, int memfd, void *memory, uint64_t bytes, uint32_t *region, struct sw_error *e);

/* A parameter: dense, in C order, at `offset` bytes of a region. Names and shapes are those that
 * the layout knows: the checkpoint's with "identity", else the engine's own. Checked here:
 * duplicate name, bounds, dtype. */
SW_API int sw_engine_parameter(sw_engine *en, const char *name, enum sw_dtype dtype, uint32_t ndim,
    const uint64_t *shape, uint32_t region, uint64_t offset, struct sw_error *e);

/* `name` is another name for the storage of `of` (a tied embedding): same region, offset, shape. */
SW_API int sw_engine_alias(sw_engine *en, const char *name, const char *of, struct sw_error *e);

/*
 * Registers all of it. After SW_ERR_CLOSED from any call (inferd went away) call it again, with
 * back-off, until it succeeds: it connects anew and tells what the memory holds. It refuses with
 * SW_ERR_EXISTS while another living process holds the same engine and rank. If the engine was
 * paused then and its memory is clean, its next event is RESUME (of update 0); if the memory may
 * have been written, it stays paused until an update repairs it. An event that was not acknowledged
 * is void.
 */
SW_API int sw_engine_register(sw_engine *en, struct sw_error *e);

/*
 * Another expert map (options.expert_map*), after the engine has moved its experts. Copied. Not
 * while the engine is paused (SW_ERR_STATE). A registered engine is unregistered by it: call
 * sw_engine_register next.
 */
SW_API int sw_engine_expert_map(sw_engine *en, uint64_t version, uint32_t layers, uint32_t slots,
    const uint32_t *map, struct sw_error *e);

enum sw_event_kind {
    SW_EVENT_NONE = 0,     /* the time was up */
    SW_EVENT_PAUSE = 1,    /* stop using the weights; ack when the device is idle */
    SW_EVENT_PREPARE = 2,  /* memory will be written: run restore hooks, if any; ack */
    SW_EVENT_POST = 3,     /* all bytes are there: derive weights, quantisation hooks; ack */
    SW_EVENT_ACTIVATE = 4, /* event.version is what you hold; ack */
    SW_EVENT_RESUME = 5,   /* generate again (with event.version); ack */
};

struct sw_event {
    enum sw_event_kind kind;
    uint64_t update;
    uint64_t version; /* RESUME: what the engine holds, which is the old version after an abort */
};

/* Waits for the next event, at most timeout_ms (0 = look only). SW_ERR_CLOSED: register again.
 * Every event but NONE must be acknowledged before the next comes. */
SW_API int sw_engine_next_event(
    sw_engine *en, uint32_t timeout_ms, struct sw_event *event, struct sw_error *e);

/* Acknowledges. code 0 = done; else it failed and `reason` says why: the update of this engine ends
 * (before the window opened: old version; after: torn). */
SW_API int sw_engine_ack(
    sw_engine *en, const struct sw_event *event, int code, const char *reason, struct sw_error *e);

/* A descriptor that is readable when sw_engine_next_event has something to do; -1 = not connected.
 * It changes when the engine registers again; call sw_engine_next_event once after that in any
 * case: it may have to resume the engine by itself. */
SW_API int sw_engine_fd(const sw_engine *en);

/* The version that the memory holds, 0 = none of ours; *paused (may be NULL): 1 between PAUSE and
 * RESUME. */
SW_API uint64_t sw_engine_version(const sw_engine *en, int *paused);

/* Leaves the group; regions made by sw_engine_alloc are unmapped. Accepts NULL. */
SW_API void sw_engine_close(sw_engine *en);

#ifdef __cplusplus
}
#endif
#endif
