/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables that pair the members of our messages with those of the generated protobuf structs. The
 * encoder, the decoder and sw_msg_copy walk them; no message has code of its own. Private to the
 * codec.
 */
#ifndef SW_COMMON_CODEC_SCHEMA_H
#define SW_COMMON_CODEC_SCHEMA_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/message.h"

/* Types marked * can be members of a column list, too. */
enum sw_field_type {
    SW_FIELD_U32,     /* * uint32_t, at most `max` */
    SW_FIELD_U64,     /* * uint64_t, at most `max` */
    SW_FIELD_BOOL,    /* uint32_t 0 or 1 */
    SW_FIELD_CODE,    /* int32_t, 0 or negative (enum sw_code) */
    SW_FIELD_ENUM,    /* * 1 to `max` */
    SW_FIELD_NAME,    /* * const char *, at most `max` bytes */
    SW_FIELD_TEXT,    /* const char * for people: clipped to `max` bytes and mended when sent */
    SW_FIELD_BYTES,   /* `size` bytes in place */
    SW_FIELD_STRUCT,  /* a struct in place <-> a message */
    SW_FIELD_STRUCTS, /* an array of structs <-> repeated messages */
    SW_FIELD_NUMBERS, /* an array of uint64_t <-> packed numbers */
    SW_FIELD_BLOBS,   /* an array of items of `size` bytes <-> one bytes field */
    SW_FIELD_COLUMNS, /* an array of structs <-> one array for each member */
    SW_FIELD_DIMS, /* * uint64_t[SW_MAX_DIMS] of which as many count as the u32 at `count` says */
};

struct sw_schema;

struct sw_field {
    const char *name;
    enum sw_field_type type;
    bool nullable;   /* NAME: decoded as NULL when empty */
    uint64_t max;    /* see above; for arrays: the largest count */
    uint32_t offset; /* of the member in our struct */
    uint32_t count;  /* arrays: offset of the uint32_t count in our struct */
    uint32_t size;   /* bytes of one item */
    uint32_t pb;     /* offset of the member in the protobuf struct */
    uint32_t n_pb;   /* and of its size_t count */
    /* Parts: offsets of `first` and `total` in our struct, and the largest total; 0 = no parts. */
    uint32_t first, total, total_max;
    const struct sw_schema *sub;
};

struct sw_schema {
    const ProtobufCMessageDescriptor *pb; /* NULL for a column list, which lives in its parent */
    uint32_t size;
    uint32_t n_fields;
    const struct sw_field *fields;
    /* What must hold between members, or what decoding adds; NULL = nothing. */
    const char *(*rule)(void *ours, bool decoding);
};

/* The schema of a kind; NULL for a value that is no kind. */
const struct sw_schema *sw_schema_find(unsigned kind);

static inline void *sw_member(const void *base, uint32_t offset)
{
    return (char *)base + offset;
}

#endif
