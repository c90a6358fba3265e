/* SPDX-License-Identifier: Apache-2.0 */
/* Staging a checkpoint folder, or one trainer rank's part of it: what push and stage have in
 * common.
 */
#ifndef SW_TOOLS_STAGING_H
#define SW_TOOLS_STAGING_H

#include <shardwire/trainer.h>
#include "tools/shardctl.h"

/*
 * Opens the checkpoint, takes the trainer's rank, declares, begins, puts and ends; prints progress
 * and warnings. On success *trainer (owned by the caller) has staged *version. On an error nothing
 * is staged: the version was aborted.
 */
int sw_staging_run(
    const struct sw_ctl *ctl, sw_trainer **trainer, uint64_t *version, struct sw_error *e);

#endif
