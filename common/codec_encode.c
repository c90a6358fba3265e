/* SPDX-License-Identifier: Apache-2.0 */
/* struct sw_msg -> protobuf structs in a scratch arena -> bytes. */
#include "common/codec.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/codec_check.h"
#include "common/error.h"
#include "shardwire.pb-c.h"

#define NO_INDEX UINT32_MAX

struct encoder {
    struct sw_codec_check check;
    struct sw_arena arena;
};

static int encode_struct(
    struct encoder *c, const struct sw_schema *s, const void *ours, ProtobufCMessage *pb);

static int no_memory(struct encoder *c)
{
    return sw_fail(c->check.e, SW_ERR_NOMEM, "no memory to encode message %s",
        sw_msg_kind_name(c->check.kind));
}

static int encode_name(
    struct encoder *c, const struct sw_field *f, uint32_t index, const char *text, char **out)
{
    int rc;

    if (!text || !*text)
        return 0; /* the protobuf default is the empty string */
    rc = sw_codec_name(&c->check, f, index, text, strlen(text));
    if (rc == 0)
        *out = (char *)text; /* protobuf-c only reads it */
    return rc;
}

/* Texts for people never make a message fail: they are cut, and bytes that are no UTF-8 (half a
 * character, a strange file name) become question marks. */
static int encode_text(struct encoder *c, const struct sw_field *f, const char *text, char **out)
{
    size_t length, valid;
    char *copy;

    if (!text || !*text)
        return 0;
    length = strnlen(text, f->max);
    copy = sw_arena_strndup(&c->arena, text, length);
    if (!copy)
        return no_memory(c);
    for (size_t at = 0; at < length; at += valid + 1) {
        valid = sw_utf8_valid(copy + at, length - at);
        if (at + valid < length)
            copy[at + valid] = '?';
    }
    *out = copy;
    return 0;
}

static bool all_zero(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i])
            return false;
    return true;
}

static void encode_bytes(const uint8_t *bytes, size_t n, ProtobufCBinaryData *out)
{
    if (!all_zero(bytes, n)) {
        out->data = (uint8_t *)bytes;
        out->len = n;
    }
}

static uint32_t dims_of(const struct sw_field *f, const char *item)
{
    return *(const uint32_t *)sw_member(item, f->count);
}

/* How many numbers a dims column has in all; each ndim was checked with its own column before. */
static size_t dims_total(const struct sw_field *f, const char *items, uint32_t size, uint32_t n)
{
    size_t total = 0;

    for (uint32_t i = 0; i < n; i++)
        total += dims_of(f, items + (size_t)i * size);
    return total;
}

static size_t column_width(const struct sw_field *f)
{
    switch (f->type) {
    case SW_FIELD_U64:
    case SW_FIELD_DIMS:
        return sizeof(uint64_t);
    case SW_FIELD_NAME:
        return sizeof(char *);
    default:
        return sizeof(uint32_t);
    }
}

/* One member of one item into its column. */
static int encode_cell(
    struct encoder *c, const struct sw_field *f, uint32_t i, const char *item, void *column)
{
    const void *member = sw_member(item, f->offset);

    switch (f->type) {
    case SW_FIELD_U32:
        ((uint32_t *)column)[i] = *(const uint32_t *)member;
        return sw_codec_number(&c->check, f, i, *(const uint32_t *)member);
    case SW_FIELD_ENUM:
        ((uint32_t *)column)[i] = *(const uint32_t *)member;
        return sw_codec_enum(&c->check, f, i, *(const uint32_t *)member);
    case SW_FIELD_U64:
        ((uint64_t *)column)[i] = *(const uint64_t *)member;
        return sw_codec_number(&c->check, f, i, *(const uint64_t *)member);
    case SW_FIELD_NAME:
        ((const char **)column)[i] = "";
        return encode_name(c, f, i, *(const char *const *)member, &((char **)column)[i]);
    default:
        assert(!"a type that has no columns");
        return 0;
    }
}

static int encode_column(struct encoder *c, const struct sw_field *f, const char *items,
    uint32_t size, uint32_t n, void *pb)
{
    const bool dims = f->type == SW_FIELD_DIMS;
    const size_t length = dims ? dims_total(f, items, size, n) : n;
    char *column = sw_arena_array(&c->arena, length, column_width(f));
    size_t at = 0;
    int rc = 0;

    if (!column)
        return no_memory(c);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        const char *item = items + (size_t)i * size;

        if (dims) {
            memcpy(column + at * 8, sw_member(item, f->offset), (size_t)dims_of(f, item) * 8);
            at += dims_of(f, item);
        } else {
            rc = encode_cell(c, f, i, item, column);
        }
    }
    *(size_t *)sw_member(pb, f->n_pb) = length;
    *(void **)sw_member(pb, f->pb) = column;
    return rc;
}

static int encode_columns(
    struct encoder *c, const struct sw_field *f, const char *items, uint32_t n, void *pb)
{
    int rc = 0;

    for (uint32_t i = 0; i < f->sub->n_fields && rc == 0; i++)
        rc = encode_column(c, &f->sub->fields[i], items, f->size, n, pb);
    return rc;
}

/* A new protobuf message of a schema, filled from ours. */
static int encode_message(
    struct encoder *c, const struct sw_schema *s, const void *ours, ProtobufCMessage **out)
{
    ProtobufCMessage *pb = sw_arena_alloc(&c->arena, s->pb->sizeof_message);

    if (!pb)
        return no_memory(c);
    protobuf_c_message_init(s->pb, pb);
    *out = pb;
    return encode_struct(c, s, ours, pb);
}

static int encode_structs(
    struct encoder *c, const struct sw_field *f, const char *items, uint32_t n, void *pb)
{
    ProtobufCMessage **list = sw_arena_array(&c->arena, n, sizeof(*list));
    int rc = 0;

    if (!list)
        return no_memory(c);
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = encode_message(c, f->sub, items + (size_t)i * f->size, &list[i]);
    *(size_t *)sw_member(pb, f->n_pb) = n;
    *(void **)sw_member(pb, f->pb) = list;
    return rc;
}

static int encode_array(struct encoder *c, const struct sw_field *f, const void *ours, void *pb)
{
    const uint32_t n = *(const uint32_t *)sw_member(ours, f->count);
    void *items = *(void *const *)sw_member(ours, f->offset);
    ProtobufCBinaryData *blob;
    int rc = sw_codec_count(&c->check, f, ours, n);

    if (rc || n == 0)
        return rc;
    switch (f->type) {
    case SW_FIELD_STRUCTS:
        return encode_structs(c, f, items, n, pb);
    case SW_FIELD_COLUMNS:
        return encode_columns(c, f, items, n, pb);
    case SW_FIELD_BLOBS:
        blob = sw_member(pb, f->pb);
        blob->data = items;
        blob->len = (size_t)n * f->size;
        return 0;
    default: /* numbers */
        for (uint32_t i = 0; i < n && rc == 0; i++)
            if (((const uint64_t *)items)[i] > SW_BYTES_MAX)
                rc = sw_codec_wrong(&c->check, f, i, "more bytes than can be");
        *(size_t *)sw_member(pb, f->n_pb) = n;
        *(void **)sw_member(pb, f->pb) = items;
        return rc;
    }
}

static int encode_field(struct encoder *c, const struct sw_field *f, const void *ours, void *pb)
{
    const void *from = sw_member(ours, f->offset);
    void *to = sw_member(pb, f->pb);

    switch (f->type) {
    case SW_FIELD_U32:
        *(uint32_t *)to = *(const uint32_t *)from;
        return sw_codec_number(&c->check, f, NO_INDEX, *(const uint32_t *)from);
    case SW_FIELD_U64:
        *(uint64_t *)to = *(const uint64_t *)from;
        return sw_codec_number(&c->check, f, NO_INDEX, *(const uint64_t *)from);
    case SW_FIELD_BOOL:
        *(protobuf_c_boolean *)to = *(const uint32_t *)from != 0;
        return 0;
    case SW_FIELD_CODE:
        *(int32_t *)to = *(const int32_t *)from;
        return *(const int32_t *)from > 0
                   ? sw_codec_wrong(&c->check, f, NO_INDEX, "codes are never positive")
                   : 0;
    case SW_FIELD_ENUM:
        *(uint32_t *)to = *(const uint32_t *)from;
        return sw_codec_enum(&c->check, f, NO_INDEX, *(const uint32_t *)from);
    case SW_FIELD_NAME:
        return encode_name(c, f, NO_INDEX, *(const char *const *)from, to);
    case SW_FIELD_TEXT:
        return encode_text(c, f, *(const char *const *)from, to);
    case SW_FIELD_BYTES:
        encode_bytes(from, f->size, to);
        return 0;
    case SW_FIELD_STRUCT:
        return encode_message(c, f->sub, from, to);
    default:
        return encode_array(c, f, ours, pb);
    }
}

static int encode_struct(
    struct encoder *c, const struct sw_schema *s, const void *ours, ProtobufCMessage *pb)
{
    int rc = 0;

    for (uint32_t i = 0; i < s->n_fields && rc == 0; i++)
        rc = encode_field(c, &s->fields[i], ours, pb);
    if (rc == 0 && s->rule) {
        const char *broken = s->rule((void *)ours, false);

        if (broken)
            rc = sw_fail(c->check.e, SW_ERR_INVALID, "message %s: %s",
                sw_msg_kind_name(c->check.kind), broken);
    }
    return rc;
}

static int pack(
    struct encoder *c, const Shardwire__V1__Frame *frame, uint8_t **bytes, size_t *length)
{
    const size_t size = shardwire__v1__frame__get_packed_size(frame);
    uint8_t *out;

    if (size > SW_FRAME_MAX)
        return sw_fail(c->check.e, SW_ERR_LIMIT, "message %s has %zu bytes, the limit is %u",
            sw_msg_kind_name(c->check.kind), size, SW_FRAME_MAX);
    out = malloc(size ? size : 1);
    if (!out)
        return no_memory(c);
    *length = shardwire__v1__frame__pack(frame, out);
    *bytes = out;
    return 0;
}

int sw_codec_encode(const struct sw_msg *msg, uint8_t **bytes, size_t *length, struct sw_error *e)
{
    struct encoder c = {.check = {.kind = msg->kind, .e = e}};
    const struct sw_schema *schema = sw_schema_find(msg->kind);
    Shardwire__V1__Frame frame = SHARDWIRE__V1__FRAME__INIT;
    ProtobufCMessage *body;
    int rc;

    if (!schema)
        return sw_fail(
            e, SW_ERR_INVALID, "a message of unknown kind %u can't be sent", (unsigned)msg->kind);
    rc = encode_message(&c, schema, &msg->u, &body);
    if (rc == 0) {
        frame.body_case = (Shardwire__V1__Frame__BodyCase)msg->kind;
        frame.hello = (Shardwire__V1__Hello *)body; /* all bodies are pointers in one union */
        rc = pack(&c, &frame, bytes, length);
    }
    sw_arena_clear(&c.arena);
    return rc;
}
