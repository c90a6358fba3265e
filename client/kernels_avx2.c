/* SPDX-License-Identifier: Apache-2.0 */
#include "client/kernels.h"

#if SW_ISA_X86
#include <immintrin.h>
#include <string.h>

#define VECTOR __attribute__((target("avx2,fma,f16c")))
#define INLINE static inline __attribute__((always_inline)) VECTOR
#define LINE 64u
#define ROWS_AHEAD 4 /* of the row whose maxima are found, fetched from memory */
#define INFINITE 0x7f800000

/* ---- numbers: 8 at a time, as single precision ---- */

INLINE unsigned size_of(enum sw_dtype dtype)
{
    return dtype == SW_F32 ? 4 : 2;
}

INLINE __m256i magnitude_of(__m256i f)
{
    return _mm256_and_si256(f, _mm256_set1_epi32(0x7fffffff));
}

INLINE __m256i quiet(__m256i f)
{
    const __m256i nan = _mm256_cmpgt_epi32(magnitude_of(f), _mm256_set1_epi32(INFINITE));

    return _mm256_or_si256(f, _mm256_and_si256(nan, _mm256_set1_epi32(0x400000)));
}

INLINE __m256i load8(enum sw_dtype from, const char *src)
{
    __m128i half;

    if (from == SW_F32)
        return _mm256_loadu_si256((const void *)src);
    half = _mm_loadu_si128((const void *)src);
    if (from == SW_F16)
        return _mm256_castps_si256(_mm256_cvtph_ps(half));
    return _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
}

INLINE __m128i narrow(enum sw_dtype to, __m256i f)
{
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(f, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(_mm256_add_epi32(f, odd), _mm256_set1_epi32(0x7fff));
    const __m256i nan = _mm256_cmpgt_epi32(magnitude_of(f), _mm256_set1_epi32(INFINITE));
    __m256i half;

    if (to == SW_F16)
        return _mm256_cvtps_ph(_mm256_castsi256_ps(f), _MM_FROUND_TO_NEAREST_INT);
    half = _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet(f), nan), 16);
    half = _mm256_permute4x64_epi64(_mm256_packus_epi32(half, half), 0x08);
    return _mm256_castsi256_si128(half);
}

INLINE uint32_t largest32(__m256i most)
{
    uint32_t all[8], max = 0;

    _mm256_storeu_si256((void *)all, most);
    for (int i = 0; i < 8; i++)
        max = all[i] > max ? all[i] : max;
    return max;
}

/* ---- casts ---- */

INLINE __m256i cast8(
    enum sw_dtype from, enum sw_dtype to, char *dst, const char *src, bool stream, __m256i most)
{
    const __m256i f = load8(from, src);

    if (to == SW_F32) {
        const __m256i q = from == SW_BF16 ? quiet(f) : f; /* the conversion from F16 did that */

        if (stream)
            _mm256_stream_si256((void *)dst, q);
        else
            _mm256_storeu_si256((void *)dst, q);
    } else if (stream) {
        _mm_stream_si128((void *)dst, narrow(to, f));
    } else {
        _mm_storeu_si128((void *)dst, narrow(to, f));
    }
    return _mm256_max_epu32(most, magnitude_of(f));
}

INLINE bool cast(
    void *dst, const void *src, uint64_t n, bool stream, enum sw_dtype from, enum sw_dtype to)
{
    sw_cast_fn *const rest = sw_cast_find(SW_ISA_SCALAR, from, to);
    const unsigned in = size_of(from), out = size_of(to);
    uint64_t head = (LINE - (uintptr_t)dst % LINE) % LINE;
    __m256i most = _mm256_setzero_si256();
    const char *s = src;
    char *d = dst;
    bool finite = true;

    if (stream && head % out == 0 && head / out < n) {
        head /= out;
        finite = rest(d, s, head, false);
        s += head * in;
        d += head * out;
        for (n -= head; n >= 32; n -= 32, s += 32 * in, d += 32 * out)
            for (unsigned i = 0; i < 32; i += 8)
                most = cast8(from, to, d + i * out, s + i * in, true, most);
    }
    for (; n >= 8; n -= 8, s += 8 * in, d += 8 * out)
        most = cast8(from, to, d, s, false, most);
    return rest(d, s, n, false) && finite && largest32(most) < INFINITE;
}

#define CAST(name, from, to)                                                                       \
    VECTOR static bool name(void *dst, const void *src, uint64_t n, bool stream)                   \
    {                                                                                              \
        return cast(dst, src, n, stream, from, to);                                                \
    }
CAST(f32_bf16, SW_F32, SW_BF16)
CAST(f32_f16, SW_F32, SW_F16)
CAST(bf16_f32, SW_BF16, SW_F32)
CAST(bf16_f16, SW_BF16, SW_F16)
CAST(f16_f32, SW_F16, SW_F32)
CAST(f16_bf16, SW_F16, SW_BF16)
#undef CAST

const struct kernel_casts kernel_casts_avx2 = {
    f32_bf16, f32_f16, bf16_f32, bf16_f16, f16_f32, f16_bf16};

/* ---- maxima ---- */

INLINE float widen(enum sw_dtype from, uint32_t bits)
{
    const uint16_t half = (uint16_t)bits;

    return from == SW_F32 ? sw_cast_widen(from, &bits) : sw_cast_widen(from, &half);
}

/* Magnitudes of half precision are ordered like numbers of 16 bits. What is left of a row, less
 * than a vector, is padded with zeros. */
INLINE __m256i raise(enum sw_dtype from, __m256i most, const char *src, uint64_t n)
{
    const unsigned each = 32 / size_of(from);
    const __m256i mask = from == SW_F32 ? _mm256_set1_epi32(0x7fffffff) : _mm256_set1_epi16(0x7fff);
    char rest[32] = {0};

    for (; n >= each; n -= each, src += 32) {
        const __m256i x = _mm256_and_si256(_mm256_loadu_si256((const void *)src), mask);

        most = from == SW_F32 ? _mm256_max_epu32(most, x) : _mm256_max_epu16(most, x);
    }
    if (n) {
        __m256i x;

        memcpy(rest, src, n * size_of(from));
        x = _mm256_and_si256(_mm256_loadu_si256((const void *)rest), mask);
        most = from == SW_F32 ? _mm256_max_epu32(most, x) : _mm256_max_epu16(most, x);
    }
    return most;
}

INLINE float largest(enum sw_dtype from, __m256i most)
{
    if (from == SW_F32)
        return widen(from, largest32(most));
    return widen(from, largest32(_mm256_max_epu32(_mm256_srli_epi32(most, 16),
                           _mm256_and_si256(most, _mm256_set1_epi32(0xffff)))));
}

INLINE bool maxima_of(const __m256i *most, uint32_t n, float *amax, enum sw_dtype from)
{
    bool finite = true;

    for (uint32_t b = 0; b < n; b++) {
        amax[b] = largest(from, most[b]);
        finite = finite && amax[b] <= 3.402823466e38f; /* no NaN is */
    }
    return finite;
}

INLINE bool maxima(const struct sw_panel *p, float *amax, enum sw_dtype from)
{
    const uint32_t n = sw_panel_blocks(p);
    __m256i most[SW_PANEL_BLOCKS];

    for (uint32_t b = 0; b < n; b++)
        most[b] = _mm256_setzero_si256();
    for (uint64_t r = 0; r < p->rows; r++) {
        const char *src = p->src + (int64_t)r * p->stride;
        uint64_t left = p->columns, length = p->first;

        for (uint32_t b = 0; b < n; b++) {
            length = length < left ? length : left;
            most[b] = raise(from, most[b], src, length);
            src += length * size_of(from);
            left -= length;
            length = p->block;
        }
    }
    return maxima_of(most, n, amax, from);
}

/* ---- values ---- */

/* As in kernels_avx512.c, where it is explained, but for the sign, which is left out. */
INLINE __m256i code8(__m256i x, __m256 by)
{
    const __m256i weights = _mm256_set1_epi32(1 << 16 | 16);
    const __m256 y = _mm256_mul_ps(_mm256_castsi256_ps(x), by);
    const __m256 a = _mm256_min_ps(
        _mm256_castsi256_ps(magnitude_of(_mm256_castps_si256(y))), _mm256_set1_ps(448.0f * 8));
    const __m256 place = _mm256_and_ps(
        _mm256_max_ps(a, _mm256_set1_ps(0.125f)), _mm256_castsi256_ps(_mm256_set1_epi32(INFINITE)));
    const __m256 sum = _mm256_fmadd_ps(place, _mm256_set1_ps(1 << 20), a);

    return _mm256_madd_epi16(_mm256_castps_si256(sum), weights);
}

/* The bytes of two times 8, without signs, in words; as pack instructions order them. */
INLINE __m256i bytes16(__m256i a, __m256i b, __m256 by)
{
    const __m256i both = _mm256_packs_epi32(code8(a, by), code8(b, by));

    return _mm256_and_si256(_mm256_srli_epi16(both, 4), _mm256_set1_epi16(0x7f));
}

/* Puts the signs in; those that saturate are negative still. */
INLINE __m256i with_signs(__m256i codes, __m256i signs)
{
    return _mm256_or_si256(codes, _mm256_and_si256(signs, _mm256_set1_epi8((char)0x80)));
}

INLINE __m256i code32(enum sw_dtype from, const char *src, __m256 by)
{
    const __m256i a = _mm256_loadu_si256((const void *)src);
    const __m256i b = _mm256_loadu_si256((const void *)(src + 32));
    const __m256i zero = _mm256_setzero_si256();
    __m256i c, d, codes;

    if (from == SW_BF16) { /* a zero below each makes them single precision */
        codes = _mm256_packus_epi16(
            bytes16(_mm256_unpacklo_epi16(zero, a), _mm256_unpackhi_epi16(zero, a), by),
            bytes16(_mm256_unpacklo_epi16(zero, b), _mm256_unpackhi_epi16(zero, b), by));
        codes = with_signs(codes, _mm256_packs_epi16(a, b));
        return _mm256_permute4x64_epi64(codes, 0xd8);
    }
    if (from == SW_F16) {
        c = bytes16(load8(from, src), load8(from, src + 16), by);
        d = bytes16(load8(from, src + 32), load8(from, src + 48), by);
        codes = _mm256_packus_epi16(c, d);
        codes = _mm256_permutevar8x32_epi32(codes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        return with_signs(codes, _mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), 0xd8));
    }
    c = _mm256_loadu_si256((const void *)(src + 64));
    d = _mm256_loadu_si256((const void *)(src + 96));
    codes = with_signs(_mm256_packus_epi16(bytes16(a, b, by), bytes16(c, d, by)),
        _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d)));
    return _mm256_permutevar8x32_epi32(codes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* At most 32. */
INLINE void some(enum sw_dtype from, char *dst, const char *src, uint64_t n, __m256 by)
{
    char in[32 * 4] = {0}, out[32];

    memcpy(in, src, n * size_of(from));
    _mm256_storeu_si256((void *)out, code32(from, in, by));
    memcpy(dst, out, n);
}

INLINE void row(
    enum sw_dtype from, char *dst, const char *src, uint64_t n, float inverse, bool stream)
{
    const unsigned step = 32 * size_of(from), line = 2 * step;
    const __m256 by = _mm256_set1_ps(inverse * 8);
    uint64_t head = (LINE - (uintptr_t)dst % LINE) % LINE;

    if (stream && head < n) {
        n -= head;
        for (; head; head -= head < 32 ? head : 32) {
            const uint64_t now = head < 32 ? head : 32;

            some(from, dst, src, now, by);
            dst += now;
            src += now * size_of(from);
        }
        for (; n >= LINE; n -= LINE, dst += LINE, src += line) {
            _mm256_stream_si256((void *)dst, code32(from, src, by));
            _mm256_stream_si256((void *)(dst + 32), code32(from, src + step, by));
        }
    }
    for (; n >= 32; n -= 32, dst += 32, src += step)
        _mm256_storeu_si256((void *)dst, code32(from, src, by));
    if (n)
        some(from, dst, src, n, by);
}

INLINE void fetch(const char *src, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += LINE)
        _mm_prefetch(src + at, _MM_HINT_T1);
}

INLINE bool values(const struct sw_panel *p, const float *inverse, char *dst, int64_t dst_stride,
    bool stream, float *amax, enum sw_dtype from)
{
    const uint32_t n = sw_panel_blocks(p);
    const unsigned size = size_of(from);
    __m256i most[SW_PANEL_BLOCKS];

    for (uint32_t b = 0; b < n; b++)
        most[b] = _mm256_setzero_si256();
    for (uint64_t r = 0; r < p->rows; r++) {
        const int64_t at = (int64_t)r * p->stride;
        uint64_t c = 0, length = p->first;

        for (uint32_t b = 0; b < n; b++, c += length, length = p->block) {
            length = length < p->columns - c ? length : p->columns - c;
            row(from, dst + (int64_t)r * dst_stride + c, p->src + at + c * size, length, inverse[b],
                stream);
            if (!p->next)
                continue;
            if (r + ROWS_AHEAD < p->rows)
                fetch(p->next + at + ROWS_AHEAD * p->stride + c * size, length * size);
            if (amax)
                most[b] = raise(from, most[b], p->next + at + c * size, length);
        }
    }
    return !p->next || !amax || maxima_of(most, n, amax, from);
}

#define QUANTISER(name, from)                                                                      \
    VECTOR static bool maxima_##name(const struct sw_panel *p, float *amax)                        \
    {                                                                                              \
        return maxima(p, amax, from);                                                              \
    }                                                                                              \
    VECTOR static bool values_##name(const struct sw_panel *p, const float *inverse, char *dst,    \
        int64_t dst_stride, bool stream, float *amax)                                              \
    {                                                                                              \
        return values(p, inverse, dst, dst_stride, stream, amax, from);                            \
    }                                                                                              \
    const struct sw_quantiser kernel_##name##_avx2 = {maxima_##name, values_##name};
QUANTISER(bf16, SW_BF16)
QUANTISER(f16, SW_F16)
QUANTISER(f32, SW_F32)
#undef QUANTISER

#endif
