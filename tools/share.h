/* SPDX-License-Identifier: Apache-2.0 */
/* Which part of a checkpoint one trainer rank of several holds, as real trainers would have it. */
#ifndef SW_TOOLS_SHARE_H
#define SW_TOOLS_SHARE_H

#include "common/program.h"
#include "tools/checkpoint.h"
#include "trainerd/plan/scene.h"

struct sw_share_options {
    uint32_t rank;
    struct sw_trainer_spec spec;  /* world 1: the rank holds everything, and no model is needed */
    const char *folder;           /* of the checkpoint and its config.json */
    const char *layouts, *layout; /* folder of layout files; a name, or "auto" */
};

/*
 * boxes[i] (the caller frees the array): what the rank holds of the i-th tensor of the checkpoint;
 * a length of 0 in some dimension: nothing. Tensors that no rule knows are held by nobody.
 * SW_ERR_NOT_FOUND names a tensor of the model that the checkpoint lacks.
 */
int sw_share_make(const struct sw_share_options *o, const struct sw_checkpoint *c,
    struct sw_box **boxes, struct sw_error *e);

/* Whether a box has no element. */
bool sw_share_empty(const struct sw_box *b);

#endif
