/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which vector instructions this machine has. Kernels of every kind give the same bits: they differ
 * in speed only.
 */
#ifndef SW_CLIENT_ISA_H
#define SW_CLIENT_ISA_H

#include <stdbool.h>

enum sw_isa {
    SW_ISA_SCALAR = 0, /* plain C, everywhere; the reference of the others */
    SW_ISA_AVX2,       /* with FMA and F16C */
    SW_ISA_AVX512,     /* F, BW, DQ and VL */
    SW_ISA_COUNT
};

#ifdef __x86_64__
#define SW_ISA_X86 1
#else
#define SW_ISA_X86 0
#endif

bool sw_isa_has(enum sw_isa isa);
enum sw_isa sw_isa_best(void);
const char *sw_isa_name(enum sw_isa isa);

/* Stores past the caches that this thread made come before its later release stores. */
void sw_isa_fence(void);

#endif
