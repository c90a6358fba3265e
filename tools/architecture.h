/* SPDX-License-Identifier: Apache-2.0 */
/* From a config.json to the tensors that the model's checkpoint holds. */
#ifndef SW_TOOLS_ARCHITECTURE_H
#define SW_TOOLS_ARCHITECTURE_H

#include <stddef.h>
#include <stdint.h>
#include <shardwire/dtype.h>
#include <shardwire/error.h>
#include "common/arena.h"

struct sw_model_tensor {
    const char *name;
    enum sw_dtype dtype;
    uint32_t ndim;
    uint64_t shape[SW_MAX_DIMS];
    uint64_t bytes;
    const char *tied_to; /* name of the tensor whose value it has; NULL = its own */
};

struct sw_model {
    size_t n;
    struct sw_model_tensor *tensors; /* in the model's order */
    uint64_t bytes;
    struct sw_arena arena;
};

enum sw_tied_head { SW_TIED_HEAD_SAVED = 1, SW_TIED_HEAD_LEFT_OUT = 2 };

/* Reads a config.json's text. SW_ERR_UNSUPPORTED names a model_type that is not known. `tied` says
 * what becomes of lm_head.weight when tie_word_embeddings is true. Free *out with sw_model_clear.
 */
int sw_model_read(const char *json, size_t length, enum sw_tied_head tied, struct sw_model *out,
    struct sw_error *e);

void sw_model_clear(struct sw_model *m);

#endif
