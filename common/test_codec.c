/* SPDX-License-Identifier: Apache-2.0 */
#include "common/codec.h"

#include <string.h>

#include "common/test_messages.h"
#include "common/test_suite.h"

static void encode(const struct sw_msg *msg, uint8_t **bytes, size_t *length)
{
    struct sw_error e = {0};
    const int rc = sw_codec_encode(msg, bytes, length, &e);

    ck_assert_msg(rc == 0, "%s", e.text);
}

static void round_trip(enum sw_msg_kind kind, uint64_t seed, uint32_t items)
{
    struct sw_msg *msg = test_message(kind, seed, items), *back;
    struct sw_error e = {0};
    char difference[128];
    uint8_t *bytes;
    size_t length;
    int rc;

    encode(msg, &bytes, &length);
    rc = sw_codec_decode(bytes, length, &back, &e);
    ck_assert_msg(rc == 0, "%s", e.text);
    ck_assert_msg(test_message_equal(msg, back, difference), "%s, seed %d: %s",
        sw_msg_kind_name(kind), (int)seed, difference);
    sw_msg_free(msg);
    sw_msg_free(back);
    free(bytes);
}

START_TEST(every_kind)
{
    for (uint64_t seed = 0; seed < 30; seed++)
        round_trip((enum sw_msg_kind)_i, seed, 5);
    round_trip((enum sw_msg_kind)_i, 1000, 300);
}
END_TEST

/* The default of each member, and NULL for each string, is valid wherever no enum is needed. */
START_TEST(empty)
{
    struct sw_msg *msg = sw_msg_new((enum sw_msg_kind)_i), *back = NULL;
    struct sw_error e = {0};
    uint8_t *bytes;
    size_t length;
    int rc = sw_codec_encode(msg, &bytes, &length, &e);

    if (rc) {
        ck_assert_msg(strstr(e.text, "has the unknown value 0") != NULL, "%s", e.text);
    } else {
        ck_assert_int_eq(sw_codec_decode(bytes, length, &back, &e), 0);
        if (_i == SW_MSG_ERROR)
            ck_assert_str_eq(back->u.error.reason, "");
        if (_i == SW_MSG_ENGINE_RANK)
            ck_assert_str_eq(back->u.engine_rank.scale_format, "");
        if (_i == SW_MSG_REGISTERED)
            ck_assert_str_eq(back->u.registered.error.reason, "");
        free(bytes);
    }
    sw_msg_free(msg);
    sw_msg_free(back);
}
END_TEST

/* A whole part of each kind of manifest stays within a frame and the decoder's budget. */
START_TEST(full_parts)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_SOURCES), *back;
    struct sw_sources *u = &msg->u.sources;
    struct sw_error e = {0};
    uint8_t *bytes;
    size_t length;
    int rc;

    u->world = 1;
    u->total = u->n = SW_PART_ITEMS_MAX;
    u->items = sw_arena_array(&msg->arena, u->n, sizeof(*u->items));
    for (uint32_t i = 0; i < u->n; i++) {
        u->items[i].name = "model.layers.47.mlp.experts.127.down_proj.weight_scale_inv.and.more";
        u->items[i].dtype = SW_BF16;
        u->items[i].ndim = u->items[i].box.ndim = 6;
        for (int d = 0; d < 6; d++)
            u->items[i].shape[d] = u->items[i].box.len[d] = 1 << 20;
    }
    encode(msg, &bytes, &length);
    rc = sw_codec_decode(bytes, length, &back, &e);
    ck_assert_msg(rc == 0, "%s", e.text);
    ck_assert_uint_eq(back->u.sources.n, SW_PART_ITEMS_MAX);
    sw_msg_free(back);
    free(bytes);
    sw_msg_free(msg);
    round_trip(SW_MSG_WRITE_PROGRAM, 3, SW_PART_ITEMS_MAX);
    round_trip(SW_MSG_LOAD_PROGRAM, 3, 2000);
    round_trip(SW_MSG_MAXIMA_PROGRAM, 3, SW_PART_ITEMS_MAX);
}
END_TEST

/* The largest config.json and expert map fit into one frame together, with all regions. */
START_TEST(full_engine)
{
    struct sw_msg *msg = test_message(SW_MSG_ENGINE_RANK, 1, SW_REGIONS_MAX), *back;
    struct sw_engine_rank *u = &msg->u.engine_rank;
    char *config = malloc(SW_CONFIG_TEXT_MAX + 2);
    struct sw_error e = {0};
    char difference[128];
    uint8_t *bytes;
    size_t length;

    memset(config, '{', SW_CONFIG_TEXT_MAX + 1);
    config[SW_CONFIG_TEXT_MAX] = '\0';
    u->config = config;
    u->expert_map_layers = 128;
    u->expert_map_slots = SW_EXPERT_MAP_MAX / 128;
    u->n_expert_map = SW_EXPERT_MAP_MAX;
    u->expert_map = sw_arena_array(&msg->arena, SW_EXPERT_MAP_MAX, sizeof(*u->expert_map));
    for (uint32_t i = 0; i < SW_EXPERT_MAP_MAX; i++)
        u->expert_map[i] = SW_EXPERTS_MAX - 1;
    encode(msg, &bytes, &length);
    ck_assert_int_eq(sw_codec_decode(bytes, length, &back, &e), 0);
    ck_assert_msg(test_message_equal(msg, back, difference), "%s", difference);
    free(bytes);
    sw_msg_free(back);
    config[SW_CONFIG_TEXT_MAX] = '{';
    config[SW_CONFIG_TEXT_MAX + 1] = '\0';
    ck_assert_int_eq(sw_codec_encode(msg, &bytes, &length, &e), SW_ERR_LIMIT);
    ck_assert_ptr_nonnull(strstr(e.text, "config"));
    free(config);
    sw_msg_free(msg);
}
END_TEST

START_TEST(truncated)
{
    struct sw_msg *msg = test_message((enum sw_msg_kind)_i, 11, 2), *back = NULL;
    uint8_t *bytes;
    size_t length;

    encode(msg, &bytes, &length);
    for (size_t n = 0; n < length; n++) {
        uint8_t *copy = malloc(n ? n : 1);
        struct sw_error e = {0};

        memcpy(copy, bytes, n);
        ck_assert_int_eq(sw_codec_decode(copy, n, &back, &e), SW_ERR_PROTOCOL);
        ck_assert_int_eq(e.code, SW_ERR_PROTOCOL);
        ck_assert_ptr_null(back);
        free(copy);
    }
    free(bytes);
    sw_msg_free(msg);
}
END_TEST

/* One byte changed: whatever comes out, nothing breaks, and what is decoded can be encoded. */
START_TEST(flipped)
{
    struct sw_msg *msg = test_message((enum sw_msg_kind)_i, 5, 2);
    uint64_t state = (uint64_t)_i;
    uint8_t *bytes, *again;
    size_t length, n;

    encode(msg, &bytes, &length);
    for (int i = 0; i < 300; i++) {
        const size_t at = test_random(&state) % length;
        const uint8_t old = bytes[at];
        struct sw_msg *back;

        bytes[at] ^= (uint8_t)(1u << test_random(&state) % 8);
        if (sw_codec_decode(bytes, length, &back, NULL) == 0) {
            if (sw_codec_encode(back, &again, &n, NULL) == 0)
                free(again);
            sw_msg_free(back);
        }
        bytes[at] = old;
    }
    free(bytes);
    sw_msg_free(msg);
}
END_TEST

/* ---- hand-made protobuf ---- */

struct raw {
    uint8_t bytes[4096];
    size_t n;
};

static void varint(struct raw *r, uint64_t value)
{
    do {
        r->bytes[r->n++] = (uint8_t)((value & 127) | (value > 127 ? 128 : 0));
        value >>= 7;
    } while (value);
}

static void field_bytes(struct raw *r, uint32_t field, const void *bytes, size_t n)
{
    varint(r, field << 3 | 2);
    varint(r, n);
    if (n)
        memcpy(r->bytes + r->n, bytes, n);
    r->n += n;
}

static void field_text(struct raw *r, uint32_t field, const char *text)
{
    field_bytes(r, field, text, strlen(text));
}

static void field_number(struct raw *r, uint32_t field, uint64_t value)
{
    varint(r, field << 3);
    varint(r, value);
}

static int decode_body(
    enum sw_msg_kind kind, const struct raw *body, struct sw_msg **msg, struct sw_error *e)
{
    struct raw frame = {.n = 0};

    field_bytes(&frame, kind, body->bytes, body->n);
    return sw_codec_decode(frame.bytes, frame.n, msg, e);
}

static void expect(enum sw_msg_kind kind, const struct raw *body, int code, const char *says)
{
    struct sw_msg *msg = NULL;
    struct sw_error e = {0};
    const int rc = decode_body(kind, body, &msg, &e);

    ck_assert_msg(rc == code, "%d instead of %d: %s", rc, code, e.text);
    if (says)
        ck_assert_msg(strstr(e.text, says) != NULL, "\"%s\" lacks \"%s\"", e.text, says);
    sw_msg_free(msg);
}

START_TEST(strings)
{
    static const struct {
        const char *bytes;
        size_t n;
        int code;
        const char *says;
    } cases[] = {
        {"fine", 4, 0, NULL},
        {"", 0, 0, NULL},
        {"a\0b", 3, SW_ERR_PROTOCOL, "NUL"},
        {"\0", 1, SW_ERR_PROTOCOL, "NUL"},
        {"ab\0", 3, SW_ERR_PROTOCOL, "NUL"},
        {"\xff", 1, SW_ERR_PROTOCOL, "UTF-8"},
        {"a\xc3", 2, SW_ERR_PROTOCOL, "UTF-8"},
        {"\xc0\xaf", 2, SW_ERR_PROTOCOL, "UTF-8"},
        {"\xe0\x80\x80", 3, SW_ERR_PROTOCOL, "UTF-8"},
        {"\xed\xa0\x80", 3, SW_ERR_PROTOCOL, "UTF-8"},
        {"\xf4\x90\x80\x80", 4, SW_ERR_PROTOCOL, "UTF-8"},
        {"\xf5\x80\x80\x80", 4, SW_ERR_PROTOCOL, "UTF-8"},
        {"\xe2\x82\xac", 3, 0, NULL},
    };
    char longest[SW_LABEL_MAX + 2];
    struct raw body;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        body.n = 0;
        field_bytes(&body, 1, cases[i].bytes, cases[i].n); /* REGISTERED.engine */
        expect(SW_MSG_REGISTERED, &body, cases[i].code, cases[i].says);
    }
    memset(longest, 'e', sizeof(longest) - 1);
    longest[SW_LABEL_MAX + 1] = '\0';
    body.n = 0;
    field_text(&body, 1, longest);
    expect(SW_MSG_REGISTERED, &body, SW_ERR_LIMIT, "the limit is 64");
    body.n = 0;
    field_text(&body, 1, longest + 1);
    expect(SW_MSG_REGISTERED, &body, 0, NULL);
}
END_TEST

START_TEST(values)
{
    static const uint8_t zeros[32 * 65];
    struct raw body = {.n = 0};

    field_number(&body, 4, 7); /* HELLO.role */
    expect(SW_MSG_HELLO, &body, SW_ERR_PROTOCOL, "role has the unknown value 7");
    body.n = 0;
    field_number(&body, 4, UINT64_MAX); /* -1 */
    expect(SW_MSG_HELLO, &body, SW_ERR_PROTOCOL, "role has the unknown value");
    body.n = 0;
    expect(SW_MSG_HELLO, &body, SW_ERR_PROTOCOL, "role has the unknown value 0");
    field_number(&body, 4, 3);
    expect(SW_MSG_HELLO, &body, 0, NULL);
    field_bytes(&body, 5, "short", 5);
    expect(SW_MSG_HELLO, &body, SW_ERR_PROTOCOL, "instance: a wrong number of bytes");
    body.n = 0;
    field_number(&body, 1, 2); /* ERROR.code: zigzag, +1 */
    expect(SW_MSG_ERROR, &body, SW_ERR_PROTOCOL, "never positive");
    body.n = 0;
    field_bytes(&body, 6, zeros, 33); /* CONNECT.tokens */
    expect(SW_MSG_CONNECT, &body, SW_ERR_PROTOCOL, "not a whole number");
    body.n = 0;
    field_bytes(&body, 6, zeros, 32 * 65);
    expect(SW_MSG_CONNECT, &body, SW_ERR_LIMIT, "the limit is 64");
    body.n = 0;
    field_number(&body, 7, 65536); /* TARGET.data_port, in TARGETS */
    {
        struct raw targets = {.n = 0};

        field_number(&targets, 4, 1);
        field_bytes(&targets, 5, body.bytes, body.n);
        expect(SW_MSG_TARGETS, &targets, SW_ERR_LIMIT, "data_port is 65536");
    }
    body.n = 0;
    field_number(&body, 2, SW_WORLD_MAX + 1);
    expect(SW_MSG_TRAINER_OPEN, &body, SW_ERR_LIMIT, "world");
}
END_TEST

START_TEST(parts_and_columns)
{
    struct raw body = {.n = 0};

    /* two items, of which the part's place is wrong */
    field_number(&body, 4, 9);
    field_number(&body, 5, 10);
    field_text(&body, 6, "a");
    field_text(&body, 6, "b");
    expect(SW_MSG_SOURCES, &body, SW_ERR_PROTOCOL, "a part of 2 items from 9 on, of 10 in all");
    field_number(&body, 4, UINT32_MAX);
    expect(SW_MSG_SOURCES, &body, SW_ERR_LIMIT, NULL);
    field_number(&body, 4, 0);
    field_number(&body, 5, SW_TENSORS_MAX + 1);
    expect(SW_MSG_SOURCES, &body, SW_ERR_LIMIT, NULL);
    /* columns that don't fit each other */
    body.n = 0;
    field_number(&body, 5, 2);
    field_text(&body, 6, "a");
    field_text(&body, 6, "b");
    expect(SW_MSG_SOURCES, &body, SW_ERR_PROTOCOL, "dtype: columns of different lengths");
    field_bytes(&body, 7, "\x0a\x0a", 2);
    field_bytes(&body, 8, "\x01\x02", 2);
    expect(SW_MSG_SOURCES, &body, SW_ERR_PROTOCOL, "shape[0]: fewer numbers");
    field_bytes(&body, 9, "\x05\x06", 2);
    expect(SW_MSG_SOURCES, &body, SW_ERR_PROTOCOL, "shape[1]: fewer numbers");
    field_bytes(&body, 9, "\x07", 1);
    expect(SW_MSG_SOURCES, &body, SW_ERR_PROTOCOL, "box_lo[0]: fewer");
    field_bytes(&body, 10, "\x00\x00\x00", 3);
    field_bytes(&body, 11, "\x05\x06\x07", 3);
    expect(SW_MSG_SOURCES, &body, 0, NULL);
    field_bytes(&body, 11, "\x08", 1);
    expect(SW_MSG_SOURCES, &body, SW_ERR_PROTOCOL, "box_len: more numbers");
    /* values inside columns */
    body.n = 0;
    field_number(&body, 5, 1);
    field_text(&body, 6, "a");
    field_bytes(&body, 7, "\x15", 1); /* dtype 21 */
    field_bytes(&body, 8, "\x07", 1);
    expect(SW_MSG_SOURCES, &body, SW_ERR_PROTOCOL, "dtype has the unknown value 21");
    body.n = 0;
    field_number(&body, 5, 1);
    field_text(&body, 6, "a");
    field_bytes(&body, 7, "\x0a", 1);
    field_bytes(&body, 8, "\x07", 1); /* 7 dimensions */
    field_bytes(&body, 9, "\x01\x01\x01\x01\x01\x01\x01", 7);
    expect(SW_MSG_SOURCES, &body, SW_ERR_LIMIT, "ndim is 7");
}
END_TEST

/* What must hold between members of one message. */
START_TEST(joint_rules)
{
    struct sw_msg *msg = test_message(SW_MSG_LOAD_PROGRAM, 2, 3);
    struct sw_load_program *p = &msg->u.load_program;
    struct sw_error e = {0};
    struct raw body = {.n = 0};
    uint8_t *bytes = NULL;
    size_t length;

    p->templates[0].transform = SW_TRANSFORM_ZERO;
    p->templates[0].src_dtype = SW_BF16;
    ck_assert_int_eq(sw_codec_encode(msg, &bytes, &length, &e), SW_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(e.text, "constant zero"));
    p->templates[0].transform = SW_TRANSFORM_CAST;
    p->templates[0].src_dtype = SW_DTYPE_INVALID;
    ck_assert_int_eq(sw_codec_encode(msg, &bytes, &length, &e), SW_ERR_INVALID);
    p->templates[0].src_dtype = SW_F32;
    p->loads[0].source = SW_TENSORS_MAX;
    ck_assert_int_eq(sw_codec_encode(msg, &bytes, &length, &e), SW_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(e.text, "source"));
    p->loads[0].source = 0;
    p->loads[0].grid = SW_TENSORS_MAX;
    ck_assert_int_eq(sw_codec_encode(msg, &bytes, &length, &e), SW_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(e.text, "grid"));
    p->loads[0].grid = UINT32_MAX;
    p->grids[0].shared = 2;
    ck_assert_int_eq(sw_codec_encode(msg, &bytes, &length, &e), SW_ERR_LIMIT);
    p->grids[0].shared = 1;
    p->grids[0].scale = SW_SCALE_NONE;
    ck_assert_int_eq(sw_codec_encode(msg, &bytes, &length, &e), SW_ERR_INVALID);
    ck_assert_ptr_null(bytes);
    sw_msg_free(msg);

    field_number(&body, 19, 2); /* ENGINE_RANK: a map of 2 x 2 with 3 numbers */
    field_number(&body, 20, 2);
    field_bytes(&body, 21, "\x01\x02\x03", 3);
    expect(SW_MSG_ENGINE_RANK, &body, SW_ERR_PROTOCOL, "layers times slots");
    field_bytes(&body, 21, "\x04", 1);
    expect(SW_MSG_ENGINE_RANK, &body, 0, NULL);
    field_number(&body, 14, 3);
    expect(SW_MSG_ENGINE_RANK, &body, SW_ERR_LIMIT, "kind is 3");
    body.n = 0;
    field_number(&body, 19, UINT32_MAX);
    expect(SW_MSG_ENGINE_RANK, &body, SW_ERR_LIMIT, "expert_map_layers");
    body.n = 0; /* LOAD_PROGRAM without the newest column */
    field_number(&body, 14, 1);
    field_bytes(&body, 15, "\x00", 1);
    field_bytes(&body, 16, "\x00", 1);
    field_bytes(&body, 17, "\x00", 1);
    field_bytes(&body, 18, "\x00", 1);
    expect(SW_MSG_LOAD_PROGRAM, &body, SW_ERR_PROTOCOL, "load_grid: columns of different lengths");
}
END_TEST

START_TEST(kinds)
{
    struct raw frame = {.n = 0};
    struct sw_msg *msg = NULL;
    struct sw_error e = {0};
    uint8_t *bytes = NULL;
    size_t length;

    field_bytes(&frame, 77, "", 0);
    ck_assert_int_eq(sw_codec_decode(frame.bytes, frame.n, &msg, &e), SW_ERR_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(e.text, "unknown kind 77"));
    ck_assert_int_eq(sw_codec_decode(frame.bytes, 0, &msg, &e), SW_ERR_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(e.text, "without a message"));
    ck_assert_int_eq(
        sw_codec_decode(frame.bytes, SW_FRAME_MAX + 1, &msg, &e), SW_ERR_LIMIT); /* not read */
    msg = sw_msg_new((enum sw_msg_kind)77);
    ck_assert_int_eq(sw_codec_encode(msg, &bytes, &length, &e), SW_ERR_INVALID);
    ck_assert_ptr_null(bytes);
    sw_msg_free(msg);
    /* what a later release adds to a message is passed over */
    frame.n = 0;
    field_number(&frame, 1, 5);
    field_text(&frame, 999, "from the future");
    expect(SW_MSG_STATUS, &frame, 0, NULL);
}
END_TEST

/* ---- floods: a whole frame of one thing ---- */

static void flood(enum sw_msg_kind kind, const char *unit, size_t unit_size, int code)
{
    uint8_t *bytes = malloc(SW_FRAME_MAX);
    struct raw head = {.n = 0};
    struct sw_msg *msg = NULL;
    struct sw_error e = {0};
    size_t body = SW_FRAME_MAX - 8, at;

    body -= body % unit_size;
    varint(&head, (uint64_t)kind << 3 | 2);
    varint(&head, body);
    memcpy(bytes, head.bytes, head.n);
    for (at = head.n; at < head.n + body; at += unit_size)
        memcpy(bytes + at, unit, unit_size);
    ck_assert_int_eq(sw_codec_decode(bytes, at, &msg, &e), code);
    ck_assert_ptr_null(msg);
    free(bytes);
}

START_TEST(floods)
{
    flood(SW_MSG_RESULT, "\x32\x00", 2, SW_ERR_LIMIT);  /* empty engines */
    flood(SW_MSG_TARGETS, "\x2a\x00", 2, SW_ERR_LIMIT); /* empty targets */
    flood(SW_MSG_SOURCES, "\x32\x00", 2, SW_ERR_LIMIT); /* empty names */
    flood(SW_MSG_PHASE_DONE, "\x52\x00", 2, SW_ERR_LIMIT);
    flood(SW_MSG_STATUS, "\x7a\x00", 2, SW_ERR_LIMIT);             /* unknown fields */
    flood(SW_MSG_STATUS, "\x08\x01", 2, SW_ERR_LIMIT);             /* one number again and again */
    flood(SW_MSG_REGISTERED, "\x0a\x00", 2, SW_ERR_LIMIT);         /* one string */
    flood(SW_MSG_REGISTERED, "\x1a\x02\x08\x01", 4, SW_ERR_LIMIT); /* one sub-message, merged */
    flood(SW_MSG_WRITE_PROGRAM, "\x3a\x01\x01", 3, SW_ERR_LIMIT);  /* packed, one number each */
}
END_TEST

/* Frames that hold the same body many times: protobuf merges them. */
START_TEST(flood_of_bodies)
{
    uint8_t *bytes = malloc(SW_FRAME_MAX);
    struct sw_msg *msg = NULL;
    size_t at = 0;

    for (; at + 5 <= SW_FRAME_MAX; at += 5)
        memcpy(bytes + at,
            "\x3a\x03\x32\x01"
            "a",
            5); /* SOURCES with one name */
    ck_assert_int_eq(sw_codec_decode(bytes, at, &msg, NULL), SW_ERR_LIMIT);
    ck_assert_ptr_null(msg);
    free(bytes);
}
END_TEST

/* A packed array whose numbers take eight times the bytes of the frame. */
START_TEST(flood_of_numbers)
{
    uint8_t *bytes = calloc(1, SW_FRAME_MAX);
    struct raw head = {.n = 0};
    const size_t numbers = SW_FRAME_MAX - 16;
    struct sw_msg *msg = NULL;
    struct sw_error e = {0};
    size_t inner;

    varint(&head, 7 << 3 | 2); /* WRITE_PROGRAM.extent_src */
    varint(&head, numbers);
    inner = head.n + numbers;
    head.n = 0;
    varint(&head, SW_MSG_WRITE_PROGRAM << 3 | 2);
    varint(&head, inner);
    varint(&head, 7 << 3 | 2);
    varint(&head, numbers);
    memcpy(bytes, head.bytes, head.n);
    ck_assert_int_eq(sw_codec_decode(bytes, head.n + numbers, &msg, &e), SW_ERR_LIMIT);
    ck_assert_ptr_null(msg);
    free(bytes);
}
END_TEST

/* ---- what may not be sent ---- */

START_TEST(encoding_checks)
{
    struct sw_msg *msg = test_message(SW_MSG_SOURCES, 1, 3);
    struct sw_error e = {0};
    uint8_t *bytes = NULL;
    size_t length;

    msg->u.sources.items[0].box.ndim++;
    ck_assert_int_eq(sw_codec_encode(msg, &bytes, &length, &e), SW_ERR_INVALID);
    msg->u.sources.items[0].box.ndim--;
    msg->u.sources.items[0].name = "not \xff UTF-8";
    ck_assert_int_eq(sw_codec_encode(msg, &bytes, &length, &e), SW_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(e.text, "name[0]: not valid UTF-8"));
    msg->u.sources.items[0].name = "fine";
    msg->u.sources.items[0].dtype = SW_DTYPE_COUNT;
    ck_assert_int_eq(sw_codec_encode(msg, &bytes, &length, &e), SW_ERR_INVALID);
    msg->u.sources.items[0].dtype = SW_U8;
    msg->u.sources.items[0].ndim = 7;
    ck_assert_int_eq(sw_codec_encode(msg, &bytes, &length, &e), SW_ERR_LIMIT);
    msg->u.sources.items[0].ndim = msg->u.sources.items[0].box.ndim = 0;
    msg->u.sources.n = SW_PART_ITEMS_MAX + 1;
    ck_assert_int_eq(sw_codec_encode(msg, &bytes, &length, &e), SW_ERR_LIMIT);
    ck_assert_ptr_null(bytes);
    sw_msg_free(msg);
}
END_TEST

START_TEST(too_long_for_a_frame)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_STATUS_TEXT);
    struct sw_error e = {0};
    char *text = malloc(SW_FRAME_MAX + 1);
    uint8_t *bytes = NULL;
    size_t length;

    memset(text, 'x', SW_FRAME_MAX);
    text[SW_FRAME_MAX] = '\0';
    msg->u.status_text.text = text;
    ck_assert_int_eq(sw_codec_encode(msg, &bytes, &length, &e), SW_ERR_LIMIT);
    ck_assert_ptr_null(bytes);
    text[SW_FRAME_MAX - 16] = '\0';
    encode(msg, &bytes, &length);
    free(bytes);
    free(text);
    sw_msg_free(msg);
}
END_TEST

/* Reasons are cut and mended, never a reason to fail. */
START_TEST(reasons)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_ERROR), *back;
    char reason[2000];
    uint8_t *bytes;
    size_t length;

    memset(reason, 'r', sizeof(reason));
    reason[SW_TEXT_MAX - 1] = '\xc3'; /* the limit cuts this character in half */
    reason[SW_TEXT_MAX] = '\xbc';
    reason[10] = '\xff';
    reason[sizeof(reason) - 1] = '\0';
    msg->u.error.code = SW_ERR_STATE;
    msg->u.error.reason = reason;
    encode(msg, &bytes, &length);
    ck_assert_int_eq(sw_codec_decode(bytes, length, &back, NULL), 0);
    ck_assert_uint_eq(strlen(back->u.error.reason), SW_TEXT_MAX);
    ck_assert_int_eq(back->u.error.reason[10], '?');
    ck_assert_int_eq(back->u.error.reason[SW_TEXT_MAX - 1], '?');
    free(bytes);
    sw_msg_free(back);
    msg->u.error.code = 0; /* success has no reason */
    encode(msg, &bytes, &length);
    ck_assert_int_eq(sw_codec_decode(bytes, length, &back, NULL), 0);
    ck_assert_str_eq(back->u.error.reason, "");
    free(bytes);
    sw_msg_free(back);
    sw_msg_free(msg);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("codec");
    TCase *t = tcase_create("codec");

    tcase_add_loop_test(t, every_kind, 1, SW_MSG_KIND_COUNT);
    tcase_add_loop_test(t, empty, 1, SW_MSG_KIND_COUNT);
    tcase_add_test(t, full_parts);
    tcase_add_test(t, full_engine);
    tcase_add_loop_test(t, truncated, 1, SW_MSG_KIND_COUNT);
    tcase_add_loop_test(t, flipped, 1, SW_MSG_KIND_COUNT);
    tcase_add_test(t, strings);
    tcase_add_test(t, values);
    tcase_add_test(t, parts_and_columns);
    tcase_add_test(t, joint_rules);
    tcase_add_test(t, kinds);
    tcase_add_test(t, floods);
    tcase_add_test(t, flood_of_bodies);
    tcase_add_test(t, flood_of_numbers);
    tcase_add_test(t, encoding_checks);
    tcase_add_test(t, too_long_for_a_frame);
    tcase_add_test(t, reasons);
    suite_add_tcase(s, t);
    return test_suite_run(s);
}
