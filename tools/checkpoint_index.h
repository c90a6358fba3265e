/* SPDX-License-Identifier: Apache-2.0 */
/* Which files make up a checkpoint folder, and which tensor its index says to be in which. */
#ifndef SW_TOOLS_CHECKPOINT_INDEX_H
#define SW_TOOLS_CHECKPOINT_INDEX_H

#include <stddef.h>
#include <jansson.h>
#include <shardwire/error.h>

#define SW_CHECKPOINT_FILES_MAX 4096

struct sw_checkpoint_index {
    size_t n;
    char **files;  /* names in the folder, sorted, each once */
    char *name;    /* of the index file, NULL = there is none */
    json_t *map;   /* tensor name -> file name (strings, checked); NULL without an index */
    char *warning; /* NULL = none */
};

/* Finds the files; `dir` is the folder, opened. They exist, or existed a moment ago. */
int sw_checkpoint_index_read(
    int dir, const char *folder, struct sw_checkpoint_index *out, struct sw_error *e);

void sw_checkpoint_index_clear(struct sw_checkpoint_index *x);

#endif
