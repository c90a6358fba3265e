/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors that a model's checkpoint holds, listed from its layout rules. */
#ifndef SW_TOOLS_ARCHITECTURE_H
#define SW_TOOLS_ARCHITECTURE_H

#include <stddef.h>
#include <stdint.h>
#include <shardwire/dtype.h>
#include <shardwire/error.h>
#include "common/arena.h"
#include "trainerd/plan/model.h"

struct sw_architecture_tensor {
    const char *name;
    enum sw_dtype dtype;
    uint32_t ndim;
    uint64_t shape[SW_MAX_DIMS];
    uint64_t bytes;
    const char *tied_to; /* name of the tensor whose value it has; NULL = its own */
};

struct sw_architecture {
    size_t n;
    struct sw_architecture_tensor *tensors; /* layer by layer */
    uint64_t bytes;
    struct sw_arena arena;
};

struct sw_architecture_options {
    bool no_tied_head; /* leave out tensors that the rules call optional: copies of others */
    bool packed;       /* experts as Transformers 5 packs them */
    bool draft;        /* draft (MTP) layers too */
};

/* Free *out with sw_architecture_clear. SW_ERR_LIMIT: more than SW_BYTES_MAX bytes. */
int sw_architecture_list(const struct sw_model *model, const struct sw_architecture_options *o,
    struct sw_architecture *out, struct sw_error *e);

void sw_architecture_clear(struct sw_architecture *a);

#endif
