/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator's state file: `<state_dir>/<group>.version`, the largest version ever begun, in
 * decimal. It is replaced whole (written aside, synced, renamed, directory synced), so that a crash
 * leaves the old one or the new one.
 */
#ifndef SW_TRAINERD_COORDINATOR_STATE_H
#define SW_TRAINERD_COORDINATOR_STATE_H

#include <stdint.h>
#include <shardwire/error.h>

/* The path for a group (the caller frees). Makes the directory if it is missing (not its parents),
 * and checks that it can be written to. */
int sw_state_path(const char *state_dir, const char *group, char **path, struct sw_error *e);

/* The version in the file; 0 if there is no file. Anything else that can't be read is an error that
 * says what to do: a version that is forgotten could be used twice. */
int sw_state_load(const char *path, uint64_t *version, struct sw_error *e);

/* Durable when it returns 0. Blocks on the disk. */
int sw_state_store(const char *path, uint64_t version, struct sw_error *e);

#endif
