/* SPDX-License-Identifier: Apache-2.0 */
#include "common/copy.h"

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

#define STREAM_MIN (64u << 10) /* smaller copies stay in a cache anyway */
#define LINE 64u

static void stream_line(char *dst, const char *src)
{
    const __m128i *from = (const __m128i *)(const void *)src;
    __m128i *to = (__m128i *)(void *)dst;
    const __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
    const __m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);

    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
}

void sw_copy(void *dst, const void *src, size_t n)
{
    const size_t head = (LINE - (uintptr_t)dst % LINE) % LINE;
    const char *from = src;
    char *to = dst;

    if (n < STREAM_MIN) {
        memcpy(dst, src, n);
        return;
    }
    memcpy(to, from, head);
    to += head;
    from += head;
    n -= head;
    for (; n >= LINE; n -= LINE, to += LINE, from += LINE)
        stream_line(to, from);
    memcpy(to, from, n);
    _mm_sfence(); /* a release store does not wait for streamed ones */
}
#else
void sw_copy(void *dst, const void *src, size_t n)
{
    memcpy(dst, src, n);
}
#endif
