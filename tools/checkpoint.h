/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Hugging Face checkpoint folder, read only. Its files, in this order of preference:
 * `model.safetensors`; those named by `model.safetensors.index.json`, or by the only
 * `*.safetensors.index.json`; the only `*.safetensors`.
 *
 * Everything is checked when it is opened; data is mapped and read when somebody looks at it.
 * Opened objects don't change: any number of threads may read.
 */
#ifndef SW_TOOLS_CHECKPOINT_H
#define SW_TOOLS_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <shardwire/dtype.h>
#include <shardwire/error.h>

struct sw_checkpoint;

struct sw_checkpoint_tensor {
    const char *name;
    enum sw_dtype dtype;
    uint32_t ndim;
    uint64_t shape[SW_MAX_DIMS];
    uint32_t file;   /* number of its file */
    uint64_t offset; /* of its first byte in the file */
    uint64_t bytes;
    const void *data; /* in the mapping; NULL when it has 0 bytes, or only headers were read */
};

enum sw_checkpoint_mode {
    SW_CHECKPOINT_HEADERS = 1, /* names, shapes, dtypes */
    SW_CHECKPOINT_DATA = 2,    /* files stay open and mapped as well */
};

/* Messages name file, tensor and numbers. */
int sw_checkpoint_open(const char *folder, enum sw_checkpoint_mode mode,
    struct sw_checkpoint **checkpoint, struct sw_error *e);

/* All tensors, by (file, offset). */
const struct sw_checkpoint_tensor *sw_checkpoint_tensors(const struct sw_checkpoint *c, size_t *n);
const struct sw_checkpoint_tensor *sw_checkpoint_find(
    const struct sw_checkpoint *c, const char *name);
uint64_t sw_checkpoint_bytes(const struct sw_checkpoint *c); /* of all tensors */

size_t sw_checkpoint_files(const struct sw_checkpoint *c);
const char *sw_checkpoint_file(const struct sw_checkpoint *c, size_t i); /* name in the folder */

/* What is odd and no error, e.g. tensors in a file that the index does not name; NULL past the end.
 */
const char *sw_checkpoint_warning(const struct sw_checkpoint *c, size_t i);

/* config.json says tie_word_embeddings: `lm_head.weight` is `model.embed_tokens.weight`. */
bool sw_checkpoint_tied(const struct sw_checkpoint *c);

/*
 * Call it after reading data (SW_CHECKPOINT_DATA): 0 if all that was read came from the files as
 * they were when they were opened. A file that is cut short or written to meanwhile never crashes
 * the reader: what was lost reads as zeros, and this says so (SW_ERR_IO).
 */
int sw_checkpoint_intact(const struct sw_checkpoint *c, struct sw_error *e);

void sw_checkpoint_close(struct sw_checkpoint *c); /* accepts NULL */

#endif
