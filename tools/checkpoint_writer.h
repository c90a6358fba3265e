/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a model with random values as a Hugging Face checkpoint folder. */
#ifndef SW_TOOLS_CHECKPOINT_WRITER_H
#define SW_TOOLS_CHECKPOINT_WRITER_H

#include <stdbool.h>
#include <stdint.h>
#include <shardwire/error.h>
#include "tools/architecture.h"

struct sw_write_options {
    uint64_t seed;        /* another seed = other values */
    uint64_t shard_bytes; /* a file gets no further tensor that would make it larger */
    unsigned threads;
    bool replace;       /* a folder that this wrote earlier, and that is another checkpoint now */
    const char *config; /* config.json's text, which is put into the folder */
    size_t config_bytes;
};

/* How many files it takes. */
size_t sw_checkpoint_shards(const struct sw_architecture *m, uint64_t shard_bytes);

/*
 * Makes `folder` with model-0000i-of-0000n.safetensors, their index, config.json and a marker. The
 * folder appears whole (written beside and renamed) or not at all. *kept = true: it was there
 * already, written for the same config, seed and shards, and is whole. SW_ERR_EXISTS when something
 * else is there.
 */
int sw_checkpoint_write(const char *folder, const struct sw_architecture *m,
    const struct sw_write_options *options, bool *kept, struct sw_error *e);

#endif
