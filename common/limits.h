/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every default port, path, limit and deadline, in one place. README.md's table "Defaults" repeats
 * those that a user can see (a test compares them). Times are milliseconds, sizes are bytes.
 */
#ifndef SW_COMMON_LIMITS_H
#define SW_COMMON_LIMITS_H

/* ---- the wire ---- */
#define SW_PROTOCOL_MIN 1
#define SW_PROTOCOL_MAX 1
#define SW_FRAME_MAX (1u << 20)           /* one control frame's payload */
#define SW_FRAME_FDS_MAX 64               /* descriptors that one frame may carry */
#define SW_DECODE_BYTES_MAX (8u << 20)    /* memory that decoding one frame may take */
#define SW_DECODE_COUNT_MAX 200000u       /* and the allocations that it may make */
#define SW_PART_ITEMS_MAX 4096            /* items in one part of a long manifest */
#define SW_PART_BYTES_TARGET (512u << 10) /* a sender starts a new part here */
#define SW_SEND_QUEUE_MAX (64u << 20)     /* bytes queued for a reader that does not read */
#define SW_NAME_MAX 512                   /* tensor and parameter names */
#define SW_LABEL_MAX 64                   /* group and engine names */
#define SW_TEXT_MAX 1023                  /* reasons and error texts */
#define SW_CONNECTIONS_MAX 4096           /* control connections that a daemon serves */

/* ---- what one group may hold ---- */
#define SW_TENSORS_MAX 1000000u      /* source tensors of one trainer rank */
#define SW_HOST_TENSORS_MAX 4000000u /* those of all trainer ranks of one host, together */
#define SW_PARAMETERS_MAX 1000000u   /* parameters of one engine rank */
#define SW_REGIONS_MAX 64u   /* regions of one engine rank: their descriptors come in one frame */
#define SW_WORLD_MAX 16384u  /* trainer ranks, or ranks of one engine */
#define SW_ENGINES_MAX 4096u /* engines of one group */
#define SW_EXTENTS_MAX 16000000u        /* extents of one write program */
#define SW_CONFIG_TEXT_MAX (256u << 10) /* an engine's config.json, as it is sent */
#define SW_EXPERT_MAP_MAX 131072u       /* numbers in an expert map: layers times slots */
#define SW_EXPERTS_MAX 65536u           /* experts of one layer */
#define SW_BYTES_MAX (1ull << 46)       /* one tensor, region or replica: 64 TiB */

/* ---- where ---- */
#define SW_TRAINERD_PORT 7470
#define SW_INFERD_PORT 7471
#define SW_INFERD_DATA_PORT 7472
#define SW_TRAINERD_SOCKET "/run/shardwire/trainerd.sock"
#define SW_INFERD_SOCKET "/run/shardwire/inferd.sock"
#define SW_CONFIG_DIR "/etc/shardwire"
#define SW_STATE_DIR "/var/lib/shardwire"
#define SW_GROUP_DEFAULT "default"

/* ---- data ---- */
#define SW_TCP_CONNECTIONS 4 /* data connections for each target */
#define SW_TCP_CONNECTIONS_MAX 64
#define SW_CHUNK_BYTES (1u << 20) /* one posted write carries at most this */
#define SW_REPLICA_ALIGN 4096     /* a rank's replica is a multiple of this */
#define SW_PARAMETER_ALIGN 256    /* sw_engine_alloc places parameters at multiples of it */
#define SW_TOKEN_BYTES 32
#define SW_NONCE_BYTES 32
#define SW_SECRET_MIN 16 /* bytes of a shared secret, at least */

/* ---- deadlines: each is an option of the daemon that waits ---- */
#define SW_HANDSHAKE_MS 5000    /* both: from connect to a proven peer */
#define SW_MANIFEST_MS 30000    /* both: from the first part of a manifest to its last */
#define SW_BEGIN_MS 60000       /* coordinator: begin waits for ranks, an engine and the plan */
#define SW_STAGE_MS 600000      /* coordinator: from begin to the last rank's end */
#define SW_DRAIN_MS 5000        /* trainerd: from end to the last tile's counter */
#define SW_CONNECT_MS 10000     /* coordinator: tokens and data paths, before any pause */
#define SW_PAUSE_MS 60000       /* coordinator: pause and prepare, acknowledged by every rank */
#define SW_WINDOW_MS 5000       /* coordinator: opening or closing of write windows */
#define SW_WRITE_MS 60000       /* coordinator: from window open to the last confirmed write */
#define SW_POST_MS 120000       /* coordinator: post-processing in the engine */
#define SW_ACTIVATE_MS 5000     /* coordinator: activate, and resume */
#define SW_LEASE_MS 240000      /* inferd: an engine stays paused at most this long */
#define SW_TOKEN_MS 30000       /* inferd: a data token is good for this long */
#define SW_RECONNECT_MIN_MS 100 /* back-off of dialling the coordinator */
#define SW_RECONNECT_MAX_MS 5000
#define SW_TCP_SILENT_MS 30000 /* both: a TCP peer that acknowledges nothing is taken for gone */
#define SW_CLIENT_MS 30000     /* libshardwire: a request that the daemon answers by itself */

#endif
