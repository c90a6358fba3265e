/* SPDX-License-Identifier: Apache-2.0 */
#include <shardwire/dtype.h>

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    unsigned bits;
} dtypes[SW_DTYPE_COUNT] = {
    [SW_BOOL] = {"BOOL", 8},
    [SW_U8] = {"U8", 8},
    [SW_I8] = {"I8", 8},
    [SW_F8_E5M2] = {"F8_E5M2", 8},
    [SW_F8_E4M3] = {"F8_E4M3", 8},
    [SW_F8_E8M0] = {"F8_E8M0", 8},
    [SW_I16] = {"I16", 16},
    [SW_U16] = {"U16", 16},
    [SW_F16] = {"F16", 16},
    [SW_BF16] = {"BF16", 16},
    [SW_I32] = {"I32", 32},
    [SW_U32] = {"U32", 32},
    [SW_F32] = {"F32", 32},
    [SW_I64] = {"I64", 64},
    [SW_U64] = {"U64", 64},
    [SW_F64] = {"F64", 64},
    [SW_C64] = {"C64", 64},
    [SW_F4] = {"F4", 4},
    [SW_F6_E2M3] = {"F6_E2M3", 6},
    [SW_F6_E3M2] = {"F6_E3M2", 6},
};

static bool known(enum sw_dtype dtype)
{
    return (unsigned)dtype < SW_DTYPE_COUNT && dtypes[dtype].name;
}

unsigned sw_dtype_bits(enum sw_dtype dtype)
{
    return known(dtype) ? dtypes[dtype].bits : 0;
}

const char *sw_dtype_name(enum sw_dtype dtype)
{
    return known(dtype) ? dtypes[dtype].name : "?";
}

enum sw_dtype sw_dtype_from_name(const char *name)
{
    if (!name)
        return SW_DTYPE_INVALID;
    for (unsigned d = SW_DTYPE_INVALID + 1; d < SW_DTYPE_COUNT; d++)
        if (strcmp(dtypes[d].name, name) == 0)
            return (enum sw_dtype)d;
    return SW_DTYPE_INVALID;
}

int sw_tensor_bytes(enum sw_dtype dtype, uint32_t ndim, const uint64_t *shape, uint64_t *bytes)
{
    const unsigned bits = sw_dtype_bits(dtype);
    uint64_t row, total;
    bool empty = false, overflow;

    if (!bits || ndim > SW_MAX_DIMS)
        return -1;
    /* The last dimension in bytes first: so that 4 and 6 bits never lose a part of a byte, and the
     * number of bits, which may not fit where the bytes do, is never formed. */
    row = ndim ? shape[ndim - 1] : 1;
    if ((row % 8) * bits % 8)
        return -1;
    overflow = __builtin_mul_overflow(row / 8, (uint64_t)bits, &total);
    overflow |= __builtin_add_overflow(total, (row % 8) * bits / 8, &total);
    empty = row == 0;
    for (uint32_t d = 0; d + 1 < ndim; d++) {
        overflow |= __builtin_mul_overflow(total, shape[d], &total);
        empty |= shape[d] == 0;
    }
    if (overflow && !empty)
        return -1;
    *bytes = empty ? 0 : total;
    return 0;
}
