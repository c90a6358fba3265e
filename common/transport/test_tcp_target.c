/* SPDX-License-Identifier: Apache-2.0 */
/* A hostile writer: raw bytes at a tcp port. Nothing is placed, the connection goes, the port stays
 * good for others, and no flood makes it take memory. */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "common/error.h"
#include "common/transport.h"
#include "common/transport/tcp_wire.h"

#define REGION 1000000u

static const struct sw_id window = {{7, 7, 7}};

struct target {
    uv_loop_t loop;
    struct sw_io_pool *pool;
    struct sw_port *port;
    uint8_t *memory;
    bool closed;
    uint64_t bytes;
};

static void on_closed(struct sw_port *p, uint64_t bytes, void *arg)
{
    struct target *t = arg;

    (void)p;
    t->closed = true;
    t->bytes = bytes;
}

static void target_open(struct target *t)
{
    static const struct sw_run runs[] = {{0, 0, 600000}, {0, 700000, 300000}};
    struct sw_port_region region = {NULL, REGION};
    struct sw_port_spec spec = {1, &region, 2, runs, NULL};
    struct sw_error e;

    *t = (struct target){.memory = malloc(REGION)};
    ck_assert_ptr_nonnull(t->memory);
    memset(t->memory, 0xee, REGION);
    region.base = t->memory;
    uv_loop_init(&t->loop);
    ck_assert_int_eq(sw_io_pool_new(2, &t->pool, &e), 0);
    spec.pool = t->pool;
    ck_assert_int_eq(sw_transport_tcp.port_new(&t->loop, &spec, &t->port, &e), 0);
    ck_assert_int_eq(sw_transport_tcp.port_open(t->port, &window, &e), 0);
}

static void target_close(struct target *t)
{
    t->closed = false;
    sw_transport_tcp.port_free(t->port, on_closed, t);
    uv_run(&t->loop, UV_RUN_DEFAULT);
    ck_assert(t->closed);
    sw_io_pool_unref(t->pool);
    ck_assert_int_eq(uv_loop_close(&t->loop), 0);
    free(t->memory);
}

static uint64_t window_close(struct target *t)
{
    t->closed = false;
    sw_transport_tcp.port_close(t->port, on_closed, t);
    ck_assert(t->closed); /* inside the call */
    return t->bytes;
}

static void check_untouched(const struct target *t)
{
    size_t i = 0;

    while (i < REGION && t->memory[i] == 0xee)
        i++;
    ck_assert_uint_eq(i, REGION);
}

/* A writer's socket, whose other end the port has. */
static int attack(struct target *t)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), fd;
    struct sw_error e;

    ck_assert_int_eq(bind(l, (struct sockaddr *)&a, n), 0);
    ck_assert_int_eq(listen(l, 1), 0);
    ck_assert_int_eq(getsockname(l, (struct sockaddr *)&a, &n), 0);
    ck_assert_int_eq(connect(c, (struct sockaddr *)&a, n), 0);
    fd = accept(l, NULL, NULL);
    ck_assert_int_ge(fd, 0);
    close(l);
    ck_assert_int_eq(sw_tcp_port_adopt(t->port, fd, "attacker", &e), 0);
    return c;
}

static void send_all(int fd, const void *bytes, size_t n)
{
    const uint8_t *at = bytes;

    while (n > 0) {
        ssize_t k = send(fd, at, n, MSG_NOSIGNAL);

        if (k <= 0)
            return; /* the other side has gone: the test looks at that */
        at += k;
        n -= (size_t)k;
    }
}

static bool receive_all(int fd, void *bytes, size_t n)
{
    ssize_t k = recv(fd, bytes, n, MSG_WAITALL);

    return k >= 0 && (size_t)k == n;
}

/* The connection ends; *r is a refusal if one came. */
static bool ended(int fd, struct sw_wire_record *r)
{
    uint8_t in[SW_WIRE_RECORD], rest[4096];
    bool refused =
        receive_all(fd, in, sizeof(in)) && sw_wire_get_record(in, r) && r->kind == SW_WIRE_REFUSED;

    while (recv(fd, rest, sizeof(rest), 0) > 0)
        continue;
    close(fd);
    return refused;
}

static void send_record(int fd, const struct sw_wire_record *r)
{
    uint8_t out[SW_WIRE_RECORD];

    sw_wire_put_record(out, r);
    send_all(fd, out, sizeof(out));
}

/* The port still works: a good write on a new connection is placed and counted. */
static void check_still_good(struct target *t)
{
    const struct sw_wire_record w = {
        .kind = SW_WIRE_WRITE, .n = 1, .window = window, .bytes = 4, .first = {700000, 4, 0}};
    const struct sw_wire_record f = {.kind = SW_WIRE_FLUSH, .window = window};
    struct sw_wire_record r;
    uint8_t in[SW_WIRE_RECORD];
    int fd = attack(t);

    send_record(fd, &w);
    send_all(fd, "\xee\xee\xee\xee", 4);
    send_record(fd, &f);
    ck_assert(receive_all(fd, in, sizeof(in)) && sw_wire_get_record(in, &r));
    ck_assert_uint_eq(r.kind, SW_WIRE_ACK);
    ck_assert_uint_eq(r.bytes, 4);
    close(fd);
}

static const struct {
    struct sw_wire_record record;
    int code;
} bad_records[] = {
    {{SW_WIRE_WRITE, 1, 0, {{7, 7, 7}}, 1ull << 63, {0, 1ull << 63, 0}}, SW_ERR_INVALID},
    {{SW_WIRE_WRITE, 1, 0, {{7, 7, 7}}, UINT64_MAX, {1, UINT64_MAX, 0}}, SW_ERR_INVALID},
    {{SW_WIRE_WRITE, 1, 0, {{7, 7, 7}}, 2, {UINT64_MAX, 2, 0}}, SW_ERR_INVALID},
    {{SW_WIRE_WRITE, 1, 0, {{7, 7, 7}}, 2, {0, 2, 1}}, SW_ERR_INVALID},
    {{SW_WIRE_WRITE, 1, 0, {{7, 7, 7}}, 2, {0, 2, UINT32_MAX}}, SW_ERR_INVALID},
    {{SW_WIRE_WRITE, 1, 0, {{7, 7, 7}}, 2, {599999, 2, 0}}, SW_ERR_INVALID},
    {{SW_WIRE_WRITE, 1, 0, {{7, 7, 7}}, 0, {0, 0, 0}}, SW_ERR_INVALID},
    {{SW_WIRE_WRITE, 1, 0, {{7, 7, 7}}, 3, {0, 2, 0}}, SW_ERR_PROTOCOL},
    {{SW_WIRE_WRITE, 0, 0, {{7, 7, 7}}, 0, {0, 0, 0}}, SW_ERR_PROTOCOL},
    {{SW_WIRE_WRITE, 513, 0, {{7, 7, 7}}, 2, {0, 2, 0}}, SW_ERR_PROTOCOL},
    {{SW_WIRE_WRITE, UINT32_MAX, 0, {{7, 7, 7}}, 2, {0, 2, 0}}, SW_ERR_PROTOCOL},
    {{SW_WIRE_WRITE, 1, 0, {{7, 7, 8}}, 2, {0, 2, 0}}, SW_ERR_STATE},
    {{SW_WIRE_WRITE, 1, 0, {{0}}, 2, {0, 2, 0}}, SW_ERR_STATE},
    {{SW_WIRE_FLUSH, 0, 0, {{7, 7, 8}}, 0, {0, 0, 0}}, SW_ERR_STATE},
    {{SW_WIRE_READ_ASK, 1, 0, {{7, 7, 8}}, 2, {0, 2, 0}}, SW_ERR_STATE},
    {{SW_WIRE_READ_ASK, 1, 0, {{7, 7, 7}}, 2, {600000, 2, 0}}, SW_ERR_INVALID},
    {{SW_WIRE_READ_ASK, 1, 0, {{7, 7, 7}}, 1ull << 63, {0, 1ull << 63, 0}}, SW_ERR_INVALID},
    {{SW_WIRE_READ_ASK, 1, 0, {{7, 7, 7}}, 600000, {0, 600000, 0}}, SW_ERR_PROTOCOL},
    {{SW_WIRE_ACK, 1, 0, {{7, 7, 7}}, 2, {0, 2, 0}}, SW_ERR_PROTOCOL},
    {{77, 1, 0, {{7, 7, 7}}, 2, {0, 2, 0}}, SW_ERR_PROTOCOL},
};

START_TEST(bad_record)
{
    struct sw_wire_record r = {0};
    struct target t;
    int fd;

    target_open(&t);
    fd = attack(&t);
    send_record(fd, &bad_records[_i].record);
    ck_assert(ended(fd, &r)); /* nothing else was sent: the refusal arrives */
    ck_assert_int_eq(r.code, bad_records[_i].code);
    fd = attack(&t);
    send_record(fd, &bad_records[_i].record);
    send_all(fd, t.memory, 100000); /* with payload behind it */
    ended(fd, &r);
    check_untouched(&t);
    check_still_good(&t);
    ck_assert_uint_eq(window_close(&t), 4);
    target_close(&t);
}
END_TEST

START_TEST(bad_table)
{
    struct sw_wire_record r = {
        .kind = SW_WIRE_WRITE, .n = 3, .window = window, .bytes = 30, .first = {0, 10, 0}};
    const struct sw_wire_extent good = {20, 10, 0}, bad = {999995, 10, 0};
    uint8_t table[2 * SW_WIRE_EXTENT];
    struct target t;
    int fd;

    target_open(&t);
    fd = attack(&t);
    sw_wire_put_extent(table, &good);
    sw_wire_put_extent(table + SW_WIRE_EXTENT, &bad);
    send_record(fd, &r);
    send_all(fd, table, sizeof(table));
    send_all(fd, "123456789012345678901234567890", 30);
    ended(fd, &r);
    check_untouched(&t); /* not even the good ones */
    check_still_good(&t);
    target_close(&t);
}
END_TEST

START_TEST(garbage)
{
    static const char texts[][80] = {"GET / HTTP/1.1\r\nHost: example\r\nAccept: */*\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "SWDRSWDRSWDRSWDRSWDRSWDRSWDRSWDRSWDRSWDRSWDRSWDRSWDRSWDRSWDRSWDRSWDRSWDR"};
    struct sw_wire_record r;
    struct target t;

    target_open(&t);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        int fd = attack(&t);

        send_all(fd, texts[i], sizeof(texts[i]));
        ended(fd, &r);
    }
    close(attack(&t)); /* nothing at all */
    check_untouched(&t);
    check_still_good(&t);
    target_close(&t);
}
END_TEST

/* Random bytes behind good beginnings; seeds are fixed, so that a failure can be repeated. */
START_TEST(noise)
{
    struct target t;

    srand((unsigned)_i);
    target_open(&t);
    window_close(&t); /* whatever the noise says, nothing may come of it */
    for (int k = 0; k < 50; k++) {
        struct sw_wire_record r = {.kind = (uint32_t)rand() % 8,
            .n = (uint32_t)rand() % 600,
            .window = window,
            .bytes = (uint64_t)rand() % 1000,
            .first = {(uint64_t)rand() % 1000000, (uint64_t)rand() % 1000, 0}};
        uint8_t bytes[3000];
        int fd = attack(&t);

        for (size_t i = 0; i < sizeof(bytes); i++)
            bytes[i] = (uint8_t)rand();
        send_record(fd, &r);
        send_all(fd, bytes, (size_t)rand() % sizeof(bytes));
        shutdown(fd, SHUT_WR);
        ended(fd, &r);
    }
    check_untouched(&t);
    target_close(&t);
}
END_TEST

/* A writer that is stopped in the middle of a payload, and wakes up when its window is gone. */
START_TEST(late_writer)
{
    const struct sw_wire_record w = {
        .kind = SW_WIRE_WRITE, .n = 1, .window = window, .bytes = 500000, .first = {0, 500000, 0}};
    const struct sw_id next = {{8}};
    uint8_t *payload = malloc(500000);
    struct sw_wire_record r;
    struct sw_error e;
    struct target t;
    int fd;

    ck_assert_ptr_nonnull(payload);
    memset(payload, 0x11, 500000);
    target_open(&t);
    fd = attack(&t);
    send_record(fd, &w);
    send_all(fd, payload, 1000);
    for (uint64_t seen = 0; seen < 1000;) { /* until it is placed */
        seen = window_close(&t);
        if (seen == 1000)
            break;
        ck_assert_uint_eq(seen, 0); /* not read yet: a window of another id, and again */
        close(fd);
        target_close(&t);
        target_open(&t);
        fd = attack(&t);
        send_record(fd, &w);
        send_all(fd, payload, 1000);
        poll(NULL, 0, 1);
    }
    if (_i == 1)
        ck_assert_int_eq(sw_transport_tcp.port_open(t.port, &next, &e), 0);
    send_all(fd, payload + 1000, 499000);
    ended(fd, &r);
    ck_assert_int_eq(memcmp(t.memory, payload, 1000), 0);
    memset(t.memory, 0xee, 1000);
    check_untouched(&t);
    if (_i == 1)
        ck_assert_uint_eq(window_close(&t), 0);
    free(payload);
    target_close(&t);
}
END_TEST

/* Asks for everything again and again and reads nothing: the port stops reading, holds nothing. */
START_TEST(flood_without_reading)
{
    const struct sw_wire_record reads = {.kind = SW_WIRE_READ_ASK,
        .n = 1,
        .window = window,
        .bytes = SW_WIRE_READ,
        .first = {0, SW_WIRE_READ, 0}};
    const struct sw_wire_record flushes = {.kind = SW_WIRE_FLUSH, .window = window};
    uint8_t out[64 * SW_WIRE_RECORD];
    struct target t;
    uint64_t sent = 0;
    int fd, small = 4096;

    for (int i = 0; i < 64; i++)
        sw_wire_put_record(out + i * SW_WIRE_RECORD, _i ? &flushes : &reads);
    target_open(&t);
    fd = attack(&t);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    for (;;) { /* until the pipe is full and stays so */
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        ssize_t n;

        if (poll(&p, 1, 300) == 0)
            break;
        n = send(fd, out, sizeof(out), MSG_DONTWAIT | MSG_NOSIGNAL);
        ck_assert(n > 0 || errno == EAGAIN);
        sent += n > 0 ? (uint64_t)n : 0;
        ck_assert_uint_lt(sent, 64u << 20);
    }
    check_still_good(&t); /* others are served meanwhile */
    window_close(&t);     /* and closing does not wait for the reader */
    close(fd);
    target_close(&t);
}
END_TEST

START_TEST(read_gives_what_is_there)
{
    struct sw_wire_record r = {
        .kind = SW_WIRE_READ_ASK, .n = 2, .window = window, .bytes = 15, .first = {100, 10, 0}};
    const struct sw_wire_extent second = {700003, 5, 0};
    uint8_t table[SW_WIRE_EXTENT], in[SW_WIRE_RECORD], bytes[15];
    struct target t;
    int fd;

    target_open(&t);
    memcpy(t.memory + 100, "abcdefghij", 10);
    memcpy(t.memory + 700003, "ABCDE", 5);
    fd = attack(&t);
    sw_wire_put_extent(table, &second);
    for (int i = 0; i < 3; i++) {
        send_record(fd, &r);
        send_all(fd, table, sizeof(table));
    }
    for (int i = 0; i < 3; i++) {
        struct sw_wire_record got;

        ck_assert(receive_all(fd, in, sizeof(in)) && sw_wire_get_record(in, &got));
        ck_assert_uint_eq(got.kind, SW_WIRE_READ_REPLY);
        ck_assert_uint_eq(got.bytes, 15);
        ck_assert(receive_all(fd, bytes, 15));
        ck_assert_int_eq(memcmp(bytes, "abcdefghijABCDE", 15), 0);
    }
    close(fd);
    target_close(&t);
}
END_TEST

/* Everything in pieces of one byte: records, table and payload are put together again. */
START_TEST(byte_by_byte)
{
    struct sw_wire_record w = {
        .kind = SW_WIRE_WRITE, .n = 2, .window = window, .bytes = 6, .first = {0, 3, 0}};
    const struct sw_wire_record f = {.kind = SW_WIRE_FLUSH, .window = window};
    const struct sw_wire_extent second = {10, 3, 0};
    uint8_t all[2 * (2 * SW_WIRE_RECORD + SW_WIRE_EXTENT + 6)], in[SW_WIRE_RECORD];
    size_t n = 0;
    struct target t;
    int fd;

    for (int i = 0; i < 2; i++) {
        sw_wire_put_record(all + n, &w);
        sw_wire_put_extent(all + n + SW_WIRE_RECORD, &second);
        memcpy(all + n + SW_WIRE_RECORD + SW_WIRE_EXTENT, "abcdef", 6);
        n += SW_WIRE_RECORD + SW_WIRE_EXTENT + 6;
        sw_wire_put_record(all + n, &f);
        n += SW_WIRE_RECORD;
    }
    target_open(&t);
    fd = attack(&t);
    for (size_t i = 0; i < n; i++)
        send_all(fd, all + i, 1);
    for (int i = 0; i < 2; i++) {
        struct sw_wire_record r;

        ck_assert(receive_all(fd, in, sizeof(in)) && sw_wire_get_record(in, &r));
        ck_assert_uint_eq(r.kind, SW_WIRE_ACK);
        ck_assert_uint_eq(r.bytes, 6);
    }
    ck_assert_uint_eq(window_close(&t), 12);
    ck_assert_int_eq(memcmp(t.memory,
                         "abc\xee\xee\xee\xee\xee\xee\xee"
                         "def\xee",
                         14),
        0);
    close(fd);
    target_close(&t);
}
END_TEST

/* A record that came along with a payload is worked on even if nothing else comes to wake the
 * thread, however many there were before it. */
START_TEST(many_records_at_once)
{
    const struct sw_wire_record w = {
        .kind = SW_WIRE_WRITE, .n = 1, .window = window, .bytes = 3, .first = {0, 3, 0}};
    const struct sw_wire_record f = {.kind = SW_WIRE_FLUSH, .window = window};
    uint8_t all[40 * (SW_WIRE_RECORD + 3) + SW_WIRE_RECORD], in[SW_WIRE_RECORD];
    struct sw_wire_record r;
    struct target t;
    int fd;

    target_open(&t);
    fd = attack(&t);
    for (uint32_t n = 0; n < 40; n++) {
        size_t at = 0;

        for (uint32_t i = 0; i < n; i++, at += SW_WIRE_RECORD + 3) {
            sw_wire_put_record(all + at, &w);
            memcpy(all + at + SW_WIRE_RECORD, "abc", 3);
        }
        sw_wire_put_record(all + at, &f);
        send_all(fd, all, at + SW_WIRE_RECORD);
        ck_assert(receive_all(fd, in, sizeof(in)) && sw_wire_get_record(in, &r));
        ck_assert_uint_eq(r.bytes, 3u * n);
    }
    close(fd);
    target_close(&t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tcp_target");
    TCase *tc = tcase_create("all");
    SRunner *r = srunner_create(suite);
    int failed;

    suite_add_tcase(suite, tc);
    tcase_set_timeout(tc, 20);
    tcase_add_loop_test(tc, bad_record, 0, (int)(sizeof(bad_records) / sizeof(bad_records[0])));
    tcase_add_test(tc, bad_table);
    tcase_add_test(tc, garbage);
    tcase_add_loop_test(tc, noise, 0, 5);
    tcase_add_loop_test(tc, late_writer, 0, 2);
    tcase_add_loop_test(tc, flood_without_reading, 0, 2);
    tcase_add_test(tc, read_gives_what_is_there);
    tcase_add_test(tc, byte_by_byte);
    tcase_add_test(tc, many_records_at_once);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
