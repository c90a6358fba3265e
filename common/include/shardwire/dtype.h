/* SPDX-License-Identifier: Apache-2.0 */
/* Element types, by their safetensors names. Values are part of the wire protocol: only append. */
#ifndef SHARDWIRE_DTYPE_H
#define SHARDWIRE_DTYPE_H

#include <stdint.h>
#include <shardwire/api.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SW_MAX_DIMS 6

enum sw_dtype {
    SW_DTYPE_INVALID = 0,
    SW_BOOL = 1,
    SW_U8 = 2,
    SW_I8 = 3,
    SW_F8_E5M2 = 4,
    SW_F8_E4M3 = 5,
    SW_F8_E8M0 = 6,
    SW_I16 = 7,
    SW_U16 = 8,
    SW_F16 = 9,
    SW_BF16 = 10,
    SW_I32 = 11,
    SW_U32 = 12,
    SW_F32 = 13,
    SW_I64 = 14,
    SW_U64 = 15,
    SW_F64 = 16,
    SW_C64 = 17,
    SW_F4 = 18,      /* 4 bits; the last dimension must fill whole bytes */
    SW_F6_E2M3 = 19, /* 6 bits, likewise */
    SW_F6_E3M2 = 20, /* 6 bits, likewise */
    SW_DTYPE_COUNT
};

/* Bits of one element; 0 for a value that is no dtype. */
SW_API unsigned sw_dtype_bits(enum sw_dtype dtype);

/* The safetensors name ("BF16"); "?" for a value that is no dtype. */
SW_API const char *sw_dtype_name(enum sw_dtype dtype);

/* The dtype of a safetensors name, SW_DTYPE_INVALID when there is none. */
SW_API enum sw_dtype sw_dtype_from_name(const char *name);

/* Bytes of a dense tensor into *bytes. 0, or -1 on overflow, on more than SW_MAX_DIMS dimensions,
 * or when sub-byte elements do not fill whole bytes. A tensor with a zero dimension has 0 bytes. */
SW_API int sw_tensor_bytes(
    enum sw_dtype dtype, uint32_t ndim, const uint64_t *shape, uint64_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
