/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/random_values.h"

#include <assert.h>
#include <string.h>

struct generator {
    uint64_t s[4];
};

static uint64_t splitmix(uint64_t *x)
{
    uint64_t z = *x += 0x9e3779b97f4a7c15ull;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static uint64_t rotate(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

static uint64_t next(struct generator *g)
{
    const uint64_t result = g->s[0] + g->s[3], t = g->s[1] << 17;

    g->s[2] ^= g->s[0];
    g->s[3] ^= g->s[1];
    g->s[1] ^= g->s[2];
    g->s[0] ^= g->s[3];
    g->s[2] ^= t;
    g->s[3] = rotate(g->s[3], 45);
    return result;
}

struct mask { /* for a word of 64 bits: random & keep | fixed, fixed being the exponent's base */
    uint64_t keep, fixed;
};

/* The exponent's three low bits stay random; the others are those of 2^-7. */
static struct mask make_mask(unsigned bits, unsigned mantissa, uint64_t bias)
{
    uint64_t keep = 1ull << (bits - 1) | ((8ull << mantissa) - 1);
    uint64_t fixed = (bias - 7) << mantissa;

    assert((bias - 7) % 8 == 0);
    for (unsigned b = bits; b < 64; b *= 2) {
        keep |= keep << b;
        fixed |= fixed << b;
    }
    return (struct mask){keep, fixed};
}

static struct mask mask_of(enum sw_dtype dtype)
{
    switch (dtype) {
    case SW_BF16:
        return make_mask(16, 7, 127);
    case SW_F16:
        return make_mask(16, 10, 15);
    default:
        assert(dtype == SW_F32);
        return make_mask(32, 23, 127);
    }
}

void sw_random_fill(void *buffer, size_t bytes, enum sw_dtype dtype, uint64_t seed, uint64_t stream)
{
    const struct mask m = mask_of(dtype);
    uint64_t x = seed, word;
    struct generator g;
    size_t i;

    x = splitmix(&x) ^ stream;
    for (int k = 0; k < 4; k++)
        g.s[k] = splitmix(&x);
    for (i = 0; i + sizeof(word) <= bytes; i += sizeof(word)) {
        word = (next(&g) & m.keep) | m.fixed;
        memcpy((char *)buffer + i, &word, sizeof(word));
    }
    word = (next(&g) & m.keep) | m.fixed;
    memcpy((char *)buffer + i, &word, bytes - i);
}
