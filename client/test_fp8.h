/* SPDX-License-Identifier: Apache-2.0 */
/* FP8 quantisation as a test's own oracle: from the formula and the format's numbers, by search. */
#ifndef SW_CLIENT_TEST_FP8_H
#define SW_CLIENT_TEST_FP8_H

#include <math.h>
#include <stdint.h>
#include "common/placement.h"

static inline double fp8_value(unsigned code)
{
    const int exponent = (int)(code >> 3 & 15);

    return exponent ? ldexp(8 + (int)(code & 7), exponent - 10) : ldexp((int)(code & 7), -9);
}

/* Halfway between neighbours, exactly. */
static inline double fp8_middle(unsigned code)
{
    static double known[127];

    if (known[code] == 0)
        known[code] = (fp8_value(code) + fp8_value(code + 1)) / 2;
    return known[code];
}

static inline uint8_t fp8_of(float x, float scale)
{
    volatile float inverse = 1.0f / scale; /* single precision, whatever the machine likes */
    volatile float y = x * inverse;
    const float c = y > 448.0f ? 448.0f : y < -448.0f ? -448.0f : y;
    const double a = fabs((double)c);
    unsigned code = 0, high = 126;

    while (code < high) { /* the first whose middle to the next one is not below */
        const unsigned at = (code + high) / 2;

        if (a > fp8_middle(at) || (a == fp8_middle(at) && at % 2 == 1))
            code = at + 1;
        else
            high = at;
    }
    return (uint8_t)(code | (signbit(c) ? 0x80 : 0));
}

static inline float fp8_scale(enum sw_scale_format format, float amax)
{
    const float least = format == SW_SCALE_UE8M0 ? 1e-4f : 1e-10f;
    volatile float ratio = (amax > least ? amax : least) / 448.0f;
    int exponent;

    if (format != SW_SCALE_UE8M0)
        return ratio;
    return frexp((double)ratio, &exponent) == 0.5 ? (float)ldexp(1, exponent - 1)
                                                  : (float)ldexp(1, exponent);
}

#endif
