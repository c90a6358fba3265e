/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of single values, the same when encoding and decoding. Private to the codec. */
#ifndef SW_COMMON_CODEC_CHECK_H
#define SW_COMMON_CODEC_CHECK_H

#include <shardwire/error.h>
#include "common/codec_schema.h"

struct sw_codec_check {
    enum sw_msg_kind kind; /* for messages */
    bool decoding;         /* wrong values: SW_ERR_PROTOCOL; otherwise SW_ERR_INVALID */
    struct sw_error *e;
};

/* Something is wrong in itself with a member; `index` of an item, or UINT32_MAX. */
int sw_codec_wrong(
    const struct sw_codec_check *c, const struct sw_field *f, uint32_t index, const char *what);

int sw_codec_number(
    const struct sw_codec_check *c, const struct sw_field *f, uint32_t index, uint64_t value);
int sw_codec_enum(
    const struct sw_codec_check *c, const struct sw_field *f, uint32_t index, uint32_t value);
/* `length` bytes without a NUL. */
int sw_codec_name(const struct sw_codec_check *c, const struct sw_field *f, uint32_t index,
    const char *text, size_t length);
/* An array's count, and its place among the parts. `ours` is the struct around the array. */
int sw_codec_count(
    const struct sw_codec_check *c, const struct sw_field *f, const void *ours, uint64_t count);

/* Bytes of the longest valid UTF-8 start of a text. */
size_t sw_utf8_valid(const char *text, size_t length);

#endif
