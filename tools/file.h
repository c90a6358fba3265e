/* SPDX-License-Identifier: Apache-2.0 */
/* Small files, read whole and bounded. */
#ifndef SW_TOOLS_FILE_H
#define SW_TOOLS_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <shardwire/error.h>

/* Opens a regular file of a folder for reading. SW_ERR_NOT_FOUND when there is none. `folder` is
 * for messages. */
int sw_file_open(
    int dir, const char *folder, const char *name, int *fd, uint64_t *bytes, struct sw_error *e);

/* Reads exactly `n` bytes at `offset`; `name` is for messages. */
int sw_file_pread(
    int fd, const char *name, void *buffer, size_t n, uint64_t offset, struct sw_error *e);

/* Writes all `n` bytes at `offset`. */
int sw_file_pwrite(
    int fd, const char *name, const void *buffer, size_t n, uint64_t offset, struct sw_error *e);

/* The whole file, NUL-terminated, at most `max` bytes; the caller frees *text. */
int sw_file_read(int dir, const char *folder, const char *name, uint64_t max, char **text,
    size_t *length, struct sw_error *e);

#endif
