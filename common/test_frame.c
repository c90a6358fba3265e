/* SPDX-License-Identifier: Apache-2.0 */
#include "common/frame.h"

#include <string.h>

#include "common/limits.h"
#include "common/test_messages.h"
#include "common/test_suite.h"

START_TEST(header_round_trip)
{
    static const uint32_t lengths[] = {0, 1, 255, 256, 65537, SW_FRAME_MAX};
    uint8_t h[SW_FRAME_HEADER];
    uint32_t length, n_fds;

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
        for (uint32_t fds = 0; fds <= SW_FRAME_FDS_MAX; fds++) {
            sw_frame_header(h, lengths[i], fds);
            ck_assert_int_eq(sw_frame_parse(h, &length, &n_fds, NULL), 0);
            ck_assert_uint_eq(length, lengths[i]);
            ck_assert_uint_eq(n_fds, fds);
        }
    sw_frame_header(h, 0, SW_FRAME_FDS_MAX + 1);
    ck_assert_int_eq(sw_frame_parse(h, &length, &n_fds, NULL), SW_ERR_LIMIT);
    sw_frame_header(h, 0x012345, 3); /* as documented */
    ck_assert_mem_eq(h, "SW\x01\x03\x00\x01\x23\x45", 8);
}
END_TEST

static const struct {
    const char *bytes;
    int code;
    const char *says;
} wrong[] = {
    {"GET / HT", SW_ERR_PROTOCOL, "HTTP"},
    {"POST /up", SW_ERR_PROTOCOL, "HTTP"},
    {"HTTP/1.1", SW_ERR_PROTOCOL, "HTTP"},
    {"PRI * HT", SW_ERR_PROTOCOL, "HTTP/2"},
    {"SSH-2.0-", SW_ERR_PROTOCOL, "SSH"},
    {"\x16\x03\x01\x02\x00\x01\x00\x01", SW_ERR_PROTOCOL, "TLS"},
    {"\x15\x03\x03\x00\x02\x02\x46\x00", SW_ERR_PROTOCOL, "TLS"},
    {"\x00\x00\x00\x00\x00\x00\x00\x00", SW_ERR_PROTOCOL, "does not speak Shardwire"},
    {"SX\x01\x00\x00\x00\x00\x00", SW_ERR_PROTOCOL, "does not speak Shardwire"},
    {"SW\x02\x00\x00\x00\x00\x00", SW_ERR_PROTOCOL, "format 2"},
    {"SW\x00\x00\x00\x00\x00\x00", SW_ERR_PROTOCOL, "format 0"},
    {"SW\x01\xff\x00\x00\x00\x00", SW_ERR_LIMIT, "255 descriptors"},
    {"SW\x01\x00\x00\x10\x00\x01", SW_ERR_LIMIT, "1048577 bytes"},
    {"SW\x01\x00\xff\xff\xff\xff", SW_ERR_LIMIT, "4294967295 bytes"},
};

START_TEST(wrong_headers)
{
    struct sw_splitter *s = sw_splitter_new();
    struct sw_error e = {0};
    const uint8_t *payload;
    uint32_t length = 77, n_fds = 77;
    size_t used;

    ck_assert_int_eq(
        sw_frame_parse((const uint8_t *)wrong[_i].bytes, &length, &n_fds, &e), wrong[_i].code);
    ck_assert_msg(strstr(e.text, wrong[_i].says) != NULL, "%s", e.text);
    ck_assert_uint_eq(length, 77); /* nothing is set */
    ck_assert_int_eq(sw_splitter_feed(s, (const uint8_t *)wrong[_i].bytes, 8, &used, &payload,
                         &length, &n_fds, &e),
        wrong[_i].code);
    ck_assert_ptr_null(payload);
    sw_splitter_free(s);
}
END_TEST

#define FRAMES 40

static uint32_t length_of(int frame)
{
    static const uint32_t lengths[] = {0, 1, 7, 100, 3000, 70000};

    return lengths[frame % 6];
}

static uint8_t byte_of(int frame, uint32_t i)
{
    return (uint8_t)(frame * 31 + i * 7);
}

static bool is_payload_of(const uint8_t *payload, int frame)
{
    for (uint32_t i = 0; i < length_of(frame); i++)
        if (payload[i] != byte_of(frame, i))
            return false;
    return true;
}

static uint8_t *make_stream(size_t *size)
{
    uint8_t *stream, *at;

    *size = 0;
    for (int f = 0; f < FRAMES; f++)
        *size += SW_FRAME_HEADER + length_of(f);
    stream = at = malloc(*size);
    ck_assert_ptr_nonnull(stream);
    for (int f = 0; f < FRAMES; f++) {
        sw_frame_header(at, length_of(f), (uint32_t)f % 3);
        at += SW_FRAME_HEADER;
        for (uint32_t i = 0; i < length_of(f); i++)
            *at++ = byte_of(f, i);
    }
    return stream;
}

/* _i = 1: byte by byte; 0: all at once; others: random pieces. */
START_TEST(splits)
{
    struct sw_splitter *s = sw_splitter_new();
    uint64_t state = (uint64_t)_i;
    const uint8_t *payload;
    uint32_t length, n_fds;
    size_t size, at = 0;
    int frame = 0;
    uint8_t *stream = make_stream(&size);

    ck_assert(!sw_splitter_partial(s));
    while (at < size) {
        size_t piece = _i == 0 ? size : _i == 1 ? 1 : 1 + test_random(&state) % 5000, used;
        uint8_t *copy; /* on the heap, so that reading behind it is noticed */

        if (piece > size - at)
            piece = size - at;
        copy = malloc(piece ? piece : 1);
        memcpy(copy, stream + at, piece);
        if (sw_splitter_feed(s, copy, piece, &used, &payload, &length, &n_fds, NULL))
            ck_abort_msg("refused at byte %zu", at);
        free(copy);
        at += used;
        if (sw_splitter_partial(s) != !payload || (!payload && used != piece))
            ck_abort_msg("at byte %zu", at);
        if (!payload)
            continue;
        ck_assert_uint_eq(length, length_of(frame));
        ck_assert_uint_eq(n_fds, (uint32_t)frame % 3);
        ck_assert(is_payload_of(payload, frame));
        frame++;
    }
    ck_assert_int_eq(frame, FRAMES);
    free(stream);
    sw_splitter_free(s);
    sw_splitter_free(NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("frame");
    TCase *t = tcase_create("frame");

    tcase_add_test(t, header_round_trip);
    tcase_add_loop_test(t, wrong_headers, 0, sizeof(wrong) / sizeof(wrong[0]));
    tcase_add_loop_test(t, splits, 0, 10);
    suite_add_tcase(s, t);
    return test_suite_run(s);
}
