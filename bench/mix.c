/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/mix.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "bench/copy.h"
#include "client/isa.h"

#define LINE 64u

struct part {
    pthread_t thread;
    char *dst;
    const char *src;
    uint64_t lines; /* to write */
    unsigned in, out;
};

/* n lines are written, each from `in` lines if in > 1; of `out` that follow each other from one. */
#if SW_ISA_X86
#include <immintrin.h>

__attribute__((target("avx512f"))) static void mix_wide(const struct part *p)
{
    const char *src = p->src;
    char *dst = p->dst;

    for (uint64_t i = 0; i < p->lines; i += p->out) {
        __m512i x = _mm512_loadu_si512(src);

        if (p->in == 2)
            x = _mm512_xor_si512(x, _mm512_loadu_si512(src + LINE));
        for (unsigned k = 0; k < p->out; k++, dst += LINE)
            _mm512_stream_si512((void *)dst, x);
        src += p->in * LINE;
    }
    _mm_sfence();
}

static void mix_plain(const struct part *p)
{
    const char *src = p->src;
    char *dst = p->dst;

    for (uint64_t i = 0; i < p->lines; i += p->out) {
        __m128i x[4];

        for (unsigned k = 0; k < 4; k++) {
            const __m128i *from = (const __m128i *)(const void *)src + k;

            x[k] = _mm_loadu_si128(from);
            if (p->in == 2)
                x[k] = _mm_xor_si128(x[k], _mm_loadu_si128(from + 4));
        }
        for (unsigned k = 0; k < 4 * p->out; k++, dst += 16)
            _mm_stream_si128((void *)dst, x[k % 4]);
        src += p->in * LINE;
    }
    _mm_sfence();
}

static void mix(const struct part *p)
{
    if (sw_isa_has(SW_ISA_AVX512))
        mix_wide(p);
    else
        mix_plain(p);
}
#else
static void mix(const struct part *p)
{
    const char *src = p->src;
    char *dst = p->dst;

    for (uint64_t i = 0; i < p->lines; i += p->out) {
        uint64_t x[8], y[8];

        memcpy(x, src, LINE);
        memcpy(y, src + (p->in - 1) * LINE, LINE);
        for (unsigned k = 0; k < 8; k++)
            x[k] ^= y[k];
        for (unsigned k = 0; k < p->out; k++, dst += LINE)
            memcpy(dst, x, LINE);
        src += p->in * LINE;
    }
}
#endif

static void *run(void *arg)
{
    mix(arg);
    return NULL;
}

uint64_t bench_mix(
    void *dst, const void *src, uint64_t bytes, unsigned in, unsigned out, unsigned threads)
{
    struct part parts[64] = {0};
    const uint64_t groups = bytes / (in * LINE), start = bench_now();

    if (threads < 1 || threads > 64)
        threads = 1;
    for (unsigned i = 0; i < threads; i++) {
        const uint64_t from = groups / threads * i;
        const uint64_t to = i + 1 == threads ? groups : groups / threads * (i + 1);

        parts[i] = (struct part){.dst = (char *)dst + from * out * LINE,
            .src = (const char *)src + from * in * LINE,
            .lines = (to - from) * out,
            .in = in,
            .out = out};
        if (i && pthread_create(&parts[i].thread, NULL, run, &parts[i]))
            abort();
    }
    run(&parts[0]);
    for (unsigned i = 1; i < threads; i++)
        pthread_join(parts[i].thread, NULL);
    return bench_now() - start;
}
