/* SPDX-License-Identifier: Apache-2.0 */
#include "common/codec_check.h"

#include <inttypes.h>

#include "common/error.h"

static int fail_wrong(const struct sw_codec_check *c)
{
    return c->decoding ? SW_ERR_PROTOCOL : SW_ERR_INVALID;
}

int sw_codec_wrong(
    const struct sw_codec_check *c, const struct sw_field *f, uint32_t index, const char *what)
{
    const char *kind = sw_msg_kind_name(c->kind);

    if (index == UINT32_MAX)
        return sw_fail(c->e, fail_wrong(c), "message %s: %s: %s", kind, f->name, what);
    return sw_fail(c->e, fail_wrong(c), "message %s: %s[%u]: %s", kind, f->name, index, what);
}

int sw_codec_number(
    const struct sw_codec_check *c, const struct sw_field *f, uint32_t index, uint64_t value)
{
    if (value <= f->max)
        return 0;
    return sw_fail(c->e, SW_ERR_LIMIT, "message %s: %s is %" PRIu64 ", the limit is %" PRIu64,
        sw_msg_kind_name(c->kind), f->name, value, f->max);
}

int sw_codec_enum(
    const struct sw_codec_check *c, const struct sw_field *f, uint32_t index, uint32_t value)
{
    if (value >= 1 && value <= f->max)
        return 0;
    return sw_fail(c->e, fail_wrong(c), "message %s: %s has the unknown value %u",
        sw_msg_kind_name(c->kind), f->name, value);
}

int sw_codec_name(const struct sw_codec_check *c, const struct sw_field *f, uint32_t index,
    const char *text, size_t length)
{
    if (length > f->max)
        return sw_fail(c->e, SW_ERR_LIMIT,
            "message %s: %s \"%.60s...\" has %zu bytes, the limit is %" PRIu64,
            sw_msg_kind_name(c->kind), f->name, sw_utf8_valid(text, 60) == 60 ? text : "", length,
            f->max);
    if (sw_utf8_valid(text, length) != length)
        return sw_codec_wrong(c, f, index, "not valid UTF-8");
    return 0;
}

int sw_codec_count(
    const struct sw_codec_check *c, const struct sw_field *f, const void *ours, uint64_t count)
{
    const char *kind = sw_msg_kind_name(c->kind);
    uint32_t first, total;

    if (count > f->max)
        return sw_fail(c->e, SW_ERR_LIMIT, "message %s: %" PRIu64 " %s, the limit is %" PRIu64,
            kind, count, f->name, f->max);
    if (!f->total_max)
        return 0;
    first = *(const uint32_t *)sw_member(ours, f->first);
    total = *(const uint32_t *)sw_member(ours, f->total);
    if (total > f->total_max)
        return sw_fail(c->e, SW_ERR_LIMIT, "message %s: %u %s in all, the limit is %u", kind, total,
            f->name, f->total_max);
    if (first > total || count > total - first)
        return sw_fail(c->e, fail_wrong(c),
            "message %s: a part of %" PRIu64 " %s from %u on, of %u in all", kind, count, f->name,
            first, total);
    return 0;
}

/* Bytes of the character that starts here; 0 = none that is valid. */
static size_t utf8_character(const unsigned char *s, size_t left)
{
    size_t n;
    unsigned char low = 0x80, high = 0xbf; /* bounds of the second byte */

    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    n = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (left < n)
        return 0;
    if (s[0] == 0xe0)
        low = 0xa0; /* overlong */
    else if (s[0] == 0xed)
        high = 0x9f; /* surrogates */
    else if (s[0] == 0xf0)
        low = 0x90; /* overlong */
    else if (s[0] == 0xf4)
        high = 0x8f; /* beyond U+10FFFF */
    if (s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

size_t sw_utf8_valid(const char *text, size_t length)
{
    size_t at = 0;

    while (at < length) {
        const size_t n = utf8_character((const unsigned char *)text + at, length - at);

        if (n == 0)
            break;
        at += n;
    }
    return at;
}
