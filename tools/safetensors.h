/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of one safetensors file: 8 bytes of length (little-endian), that many bytes of JSON
 * ({"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, ...}), then the data,
 * without holes. Pure: bytes in, table out.
 */
#ifndef SW_TOOLS_SAFETENSORS_H
#define SW_TOOLS_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>
#include <shardwire/dtype.h>
#include <shardwire/error.h>
#include "common/arena.h"

#define SW_SAFETENSORS_HEADER_MAX 100000000ull /* the format's own limit */

struct sw_safetensor {
    const char *name;
    enum sw_dtype dtype;
    uint32_t ndim;
    uint64_t shape[SW_MAX_DIMS];
    uint64_t begin, end; /* bytes, from the start of the data */
};

struct sw_safetensors {
    size_t n;
    struct sw_safetensor *tensors; /* by begin */
    struct sw_arena arena;         /* holds tensors and names */
};

/* The header's length from a file's first 8 bytes, checked against the limit and the file's size.
 */
int sw_safetensors_length(
    const uint8_t first[8], uint64_t file_bytes, uint64_t *length, struct sw_error *e);

/*
 * Reads a header's JSON. `data_bytes` is what follows it in the file. Checked: JSON without
 * duplicate keys, known dtypes, at most SW_MAX_DIMS dimensions, bytes as dtype and shape say, data
 * covered exactly once. Messages name the tensor, not the file. Free *out with
 * sw_safetensors_clear.
 */
int sw_safetensors_parse(const char *json, size_t length, uint64_t data_bytes,
    struct sw_safetensors *out, struct sw_error *e);

void sw_safetensors_clear(struct sw_safetensors *s);

#endif
