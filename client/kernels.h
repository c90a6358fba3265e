/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for the instructions of one machine: inside of cast.c and quantise.c. */
#ifndef SW_CLIENT_KERNELS_H
#define SW_CLIENT_KERNELS_H

#include "client/cast.h"
#include "client/isa.h"
#include "client/quantise.h"

/* n >> by, to nearest, ties to even; 0 < by < 32. */
static inline uint32_t kernel_shift_even(uint32_t n, uint32_t by)
{
    return (n + (1u << (by - 1)) - 1 + (n >> by & 1)) >> by;
}

struct kernel_casts {
    sw_cast_fn *f32_bf16, *f32_f16, *bf16_f32, *bf16_f16, *f16_f32, *f16_bf16;
};

#if SW_ISA_X86
extern const struct kernel_casts kernel_casts_avx2, kernel_casts_avx512;
extern const struct sw_quantiser kernel_bf16_avx2, kernel_f16_avx2, kernel_f32_avx2;
extern const struct sw_quantiser kernel_bf16_avx512, kernel_f16_avx512, kernel_f32_avx512;
#endif

#endif
