/* SPDX-License-Identifier: Apache-2.0 */
#include "client/isa.h"

#if SW_ISA_X86
#include <cpuid.h>
#include <emmintrin.h>

/* Not every compiler lets __builtin_cpu_supports ask for it. */
static bool has_f16c(void)
{
    unsigned a, b, c = 0, d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

bool sw_isa_has(enum sw_isa isa)
{
    __builtin_cpu_init();
    switch (isa) {
    case SW_ISA_SCALAR:
        return true;
    case SW_ISA_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    case SW_ISA_AVX512:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    case SW_ISA_COUNT:
        break;
    }
    return false;
}

void sw_isa_fence(void)
{
    _mm_sfence();
}
#else
bool sw_isa_has(enum sw_isa isa)
{
    return isa == SW_ISA_SCALAR;
}

void sw_isa_fence(void)
{
}
#endif

enum sw_isa sw_isa_best(void)
{
    enum sw_isa isa = SW_ISA_COUNT - 1;

    while (!sw_isa_has(isa))
        isa--;
    return isa;
}

const char *sw_isa_name(enum sw_isa isa)
{
    static const char *const names[SW_ISA_COUNT] = {"scalar", "avx2", "avx512"};

    return isa < SW_ISA_COUNT ? names[isa] : "?";
}
