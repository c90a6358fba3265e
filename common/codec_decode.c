/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes -> protobuf structs in a budgeted arena -> struct sw_msg. What both take together stays
 * within SW_DECODE_BYTES_MAX, whatever the bytes are.
 */
#include "common/codec.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/codec_check.h"
#include "common/error.h"
#include "shardwire.pb-c.h"

#define NO_INDEX UINT32_MAX

/* ---- protobuf-c's allocator ---- */

struct budget {
    struct sw_arena arena;
    uint32_t count;
    int failed; /* SW_ERR_LIMIT, SW_ERR_NOMEM */
};

/* In front of each allocation. The size is needed again: protobuf-c ends strings with a NUL and
 * drops their length, so that only the size of the allocation tells of a NUL inside. */
struct budget_header {
    _Alignas(16) size_t size;
};

static void *budget_alloc(void *data, size_t size)
{
    struct budget *b = data;
    struct budget_header *header = NULL;

    if (b->count < SW_DECODE_COUNT_MAX && size <= SW_DECODE_BYTES_MAX)
        header = sw_arena_alloc(&b->arena, sizeof(*header) + size);
    if (!header) {
        b->failed = b->count >= SW_DECODE_COUNT_MAX ||
                            size + 2 * sizeof(*header) > SW_DECODE_BYTES_MAX - b->arena.used
                        ? SW_ERR_LIMIT
                        : SW_ERR_NOMEM;
        return NULL;
    }
    b->count++;
    header->size = size;
    return header + 1;
}

static void budget_free(void *data, void *pointer)
{
    /* All at once, with the arena. What was freed still counts: a message that makes protobuf-c
     * allocate and free again and again is none of ours. */
    (void)data;
    (void)pointer;
}

static size_t budget_size(const void *pointer)
{
    return ((const struct budget_header *)pointer - 1)->size;
}

/* ---- protobuf -> ours ---- */

struct decoder {
    struct sw_codec_check check;
    struct sw_arena *arena; /* of the message */
};

static int decode_struct(
    struct decoder *c, const struct sw_schema *s, const ProtobufCMessage *pb, void *ours);

static int no_room(struct decoder *c, size_t bytes)
{
    const char *kind = sw_msg_kind_name(c->check.kind);

    if (bytes + 16 > c->arena->budget - c->arena->used) /* 16: what it is rounded up to */
        return sw_fail(c->check.e, SW_ERR_LIMIT, "decoding a message %s takes more than %u bytes",
            kind, SW_DECODE_BYTES_MAX);
    return sw_fail(c->check.e, SW_ERR_NOMEM, "no memory to decode a message %s", kind);
}

static int decode_name(
    struct decoder *c, const struct sw_field *f, uint32_t index, const char *text, const char **out)
{
    size_t length;
    char *copy;
    int rc;

    *out = f->nullable ? NULL : "";
    if (text == (const char *)protobuf_c_empty_string || !text)
        return 0;
    length = budget_size(text) - 1;
    if (memchr(text, '\0', length))
        return sw_codec_wrong(&c->check, f, index, "a NUL inside a string");
    rc = sw_codec_name(&c->check, f, index, text, length);
    if (rc || length == 0)
        return rc;
    copy = sw_arena_strndup(c->arena, text, length);
    if (!copy)
        return no_room(c, length + 1);
    *out = copy;
    return 0;
}

static int decode_bytes(
    struct decoder *c, const struct sw_field *f, const ProtobufCBinaryData *from, uint8_t *out)
{
    if (from->len != 0 && from->len != f->size)
        return sw_codec_wrong(&c->check, f, NO_INDEX, "a wrong number of bytes");
    if (from->len)
        memcpy(out, from->data, f->size);
    return 0;
}

static int decode_cell(
    struct decoder *c, const struct sw_field *f, uint32_t i, const void *column, char *item)
{
    void *member = sw_member(item, f->offset);

    switch (f->type) {
    case SW_FIELD_U32:
        *(uint32_t *)member = ((const uint32_t *)column)[i];
        return sw_codec_number(&c->check, f, i, *(uint32_t *)member);
    case SW_FIELD_ENUM:
        *(uint32_t *)member = ((const uint32_t *)column)[i];
        return sw_codec_enum(&c->check, f, i, *(uint32_t *)member);
    case SW_FIELD_U64:
        *(uint64_t *)member = ((const uint64_t *)column)[i];
        return sw_codec_number(&c->check, f, i, *(uint64_t *)member);
    case SW_FIELD_NAME:
        return decode_name(c, f, i, ((char *const *)column)[i], member);
    default:
        assert(!"a type that has no columns");
        return 0;
    }
}

static int decode_dims(struct decoder *c, const struct sw_field *f, const uint64_t *column,
    size_t length, char *items, uint32_t size, uint32_t n)
{
    size_t at = 0;

    for (uint32_t i = 0; i < n; i++) {
        char *item = items + (size_t)i * size;
        const uint32_t ndim = *(uint32_t *)sw_member(item, f->count); /* <= SW_MAX_DIMS: checked */

        if (ndim > length - at)
            return sw_codec_wrong(&c->check, f, i, "fewer numbers than dimensions");
        if (ndim)
            memcpy(sw_member(item, f->offset), column + at, (size_t)ndim * 8);
        at += ndim;
    }
    if (at != length)
        return sw_codec_wrong(&c->check, f, NO_INDEX, "more numbers than dimensions");
    return 0;
}

static int decode_column(struct decoder *c, const struct sw_field *f, const void *pb, char *items,
    uint32_t size, uint32_t n)
{
    const size_t length = *(const size_t *)sw_member(pb, f->n_pb);
    const void *column = *(void *const *)sw_member(pb, f->pb);
    int rc = 0;

    if (f->type == SW_FIELD_DIMS)
        return decode_dims(c, f, column, length, items, size, n);
    if (length != n)
        return sw_codec_wrong(&c->check, f, NO_INDEX, "columns of different lengths");
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = decode_cell(c, f, i, column, items + (size_t)i * size);
    return rc;
}

static int decode_columns(
    struct decoder *c, const struct sw_field *f, const void *pb, char *items, uint32_t n)
{
    int rc = 0;

    for (uint32_t i = 0; i < f->sub->n_fields && rc == 0; i++)
        rc = decode_column(c, &f->sub->fields[i], pb, items, f->size, n);
    return rc;
}

static int decode_structs(
    struct decoder *c, const struct sw_field *f, const void *pb, char *items, uint32_t n)
{
    ProtobufCMessage *const *list = *(ProtobufCMessage *const *const *)sw_member(pb, f->pb);
    int rc = 0;

    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = decode_struct(c, f->sub, list[i], items + (size_t)i * f->size);
    return rc;
}

static int decode_numbers(
    struct decoder *c, const struct sw_field *f, const void *pb, uint64_t *items, uint32_t n)
{
    if (n)
        memcpy(items, *(void *const *)sw_member(pb, f->pb), (size_t)n * sizeof(*items));
    for (uint32_t i = 0; i < n; i++)
        if (items[i] > SW_BYTES_MAX)
            return sw_codec_wrong(&c->check, f, i, "more bytes than can be");
    return 0;
}

static int array_length(
    struct decoder *c, const struct sw_field *f, const void *pb, uint64_t *length)
{
    const ProtobufCBinaryData *blob;

    switch (f->type) {
    case SW_FIELD_COLUMNS:
        *length = *(const size_t *)sw_member(pb, f->sub->fields[0].n_pb);
        return 0;
    case SW_FIELD_BLOBS:
        blob = sw_member(pb, f->pb);
        *length = blob->len / f->size;
        return blob->len % f->size
                   ? sw_codec_wrong(&c->check, f, NO_INDEX, "not a whole number of items")
                   : 0;
    default:
        *length = *(const size_t *)sw_member(pb, f->n_pb);
        return 0;
    }
}

static int decode_array(struct decoder *c, const struct sw_field *f, const void *pb, void *ours)
{
    uint64_t length;
    uint32_t n;
    void *items;
    int rc = array_length(c, f, pb, &length);

    if (rc == 0)
        rc = sw_codec_count(&c->check, f, ours, length);
    if (rc)
        return rc;
    n = (uint32_t)length;
    items = sw_arena_array(c->arena, n, f->size);
    if (!items)
        return no_room(c, (size_t)n * f->size);
    *(uint32_t *)sw_member(ours, f->count) = n;
    *(void **)sw_member(ours, f->offset) = items;
    switch (f->type) {
    case SW_FIELD_STRUCTS:
        return decode_structs(c, f, pb, items, n);
    case SW_FIELD_COLUMNS:
        return decode_columns(c, f, pb, items, n);
    case SW_FIELD_BLOBS:
        if (n)
            memcpy(items, ((ProtobufCBinaryData *)sw_member(pb, f->pb))->data, (size_t)n * f->size);
        return 0;
    default:
        return decode_numbers(c, f, pb, items, n);
    }
}

/* A struct in place; an absent message is one whose members all have their defaults. */
static int decode_embedded(
    struct decoder *c, const struct sw_schema *s, const ProtobufCMessage *pb, void *ours)
{
    union {
        ProtobufCMessage base;
        uint64_t room[32];
    } absent;

    if (!pb) {
        assert(s->pb->sizeof_message <= sizeof(absent));
        protobuf_c_message_init(s->pb, &absent);
        pb = &absent.base;
    }
    return decode_struct(c, s, pb, ours);
}

static int decode_field(struct decoder *c, const struct sw_field *f, const void *pb, void *ours)
{
    const void *from = sw_member(pb, f->pb);
    void *to = sw_member(ours, f->offset);

    switch (f->type) {
    case SW_FIELD_U32:
        *(uint32_t *)to = *(const uint32_t *)from;
        return sw_codec_number(&c->check, f, NO_INDEX, *(uint32_t *)to);
    case SW_FIELD_U64:
        *(uint64_t *)to = *(const uint64_t *)from;
        return sw_codec_number(&c->check, f, NO_INDEX, *(uint64_t *)to);
    case SW_FIELD_BOOL:
        *(uint32_t *)to = *(const protobuf_c_boolean *)from ? 1 : 0;
        return 0;
    case SW_FIELD_CODE:
        *(int32_t *)to = *(const int32_t *)from;
        return *(int32_t *)to > 0
                   ? sw_codec_wrong(&c->check, f, NO_INDEX, "codes are never positive")
                   : 0;
    case SW_FIELD_ENUM:
        *(uint32_t *)to = *(const uint32_t *)from;
        return sw_codec_enum(&c->check, f, NO_INDEX, *(uint32_t *)to);
    case SW_FIELD_NAME:
    case SW_FIELD_TEXT:
        return decode_name(c, f, NO_INDEX, *(char *const *)from, to);
    case SW_FIELD_BYTES:
        return decode_bytes(c, f, from, to);
    case SW_FIELD_STRUCT:
        return decode_embedded(c, f->sub, *(ProtobufCMessage *const *)from, to);
    default:
        return decode_array(c, f, pb, ours);
    }
}

static int decode_struct(
    struct decoder *c, const struct sw_schema *s, const ProtobufCMessage *pb, void *ours)
{
    const char *broken;
    int rc = 0;

    for (uint32_t i = 0; i < s->n_fields && rc == 0; i++)
        rc = decode_field(c, &s->fields[i], pb, ours);
    if (rc || !s->rule)
        return rc;
    broken = s->rule(ours, true);
    if (broken)
        return sw_fail(
            c->check.e, SW_ERR_PROTOCOL, "message %s: %s", sw_msg_kind_name(c->check.kind), broken);
    return 0;
}

static int no_body(const Shardwire__V1__Frame *frame, struct sw_error *e)
{
    if (frame->base.n_unknown_fields)
        return sw_fail(e, SW_ERR_PROTOCOL,
            "a message of unknown kind %u: the other side has another release",
            frame->base.unknown_fields[0].tag);
    return sw_fail(e, SW_ERR_PROTOCOL, "a frame without a message");
}

static int decode_body(
    const Shardwire__V1__Frame *frame, size_t budget, struct sw_msg **out, struct sw_error *e)
{
    const struct sw_schema *schema = sw_schema_find(frame->body_case);
    struct decoder c = {.check = {.decoding = true, .e = e}};
    struct sw_msg *msg;
    int rc;

    if (!schema || !frame->hello) /* all bodies are pointers in one union */
        return no_body(frame, e);
    c.check.kind = (enum sw_msg_kind)frame->body_case;
    msg = sw_msg_new(c.check.kind);
    if (!msg)
        return sw_fail(
            e, SW_ERR_NOMEM, "no memory to decode a message %s", sw_msg_kind_name(c.check.kind));
    sw_arena_init(&msg->arena, budget);
    c.arena = &msg->arena;
    rc = decode_struct(&c, schema, (const ProtobufCMessage *)frame->hello, &msg->u);
    if (rc) {
        sw_msg_free(msg);
        return rc;
    }
    msg->arena.budget = 0; /* who owns it may add to it */
    *out = msg;
    return 0;
}

static int no_frame(const struct budget *b, size_t length, struct sw_error *e)
{
    if (b->failed == SW_ERR_LIMIT)
        return sw_fail(e, SW_ERR_LIMIT,
            "decoding a frame of %zu bytes takes more than %u bytes or %u allocations", length,
            SW_DECODE_BYTES_MAX, SW_DECODE_COUNT_MAX);
    if (b->failed)
        return sw_fail(e, SW_ERR_NOMEM, "no memory to decode a frame of %zu bytes", length);
    return sw_fail(e, SW_ERR_PROTOCOL, "a frame of %zu bytes is no valid protobuf", length);
}

int sw_codec_decode(const uint8_t *bytes, size_t length, struct sw_msg **msg, struct sw_error *e)
{
    struct budget b = {0};
    ProtobufCAllocator allocator = {
        .alloc = budget_alloc, .free = budget_free, .allocator_data = &b};
    Shardwire__V1__Frame *frame;
    int rc;

    if (length > SW_FRAME_MAX)
        return sw_fail(
            e, SW_ERR_LIMIT, "a frame of %zu bytes; the limit is %u", length, SW_FRAME_MAX);
    sw_arena_init(&b.arena, SW_DECODE_BYTES_MAX);
    frame = shardwire__v1__frame__unpack(&allocator, length, bytes);
    if (frame)
        rc = decode_body(frame, SW_DECODE_BYTES_MAX - b.arena.used + 1, msg, e);
    else
        rc = no_frame(&b, length, e);
    sw_arena_clear(&b.arena);
    return rc;
}
