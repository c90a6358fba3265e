/* SPDX-License-Identifier: Apache-2.0 */
/* One suite for all transports: every test runs for each of them. What looks at bytes is skipped
 * for null, which moves none. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "common/error.h"
#include "common/transport/testing.h"

#define MIB (1ull << 20)

static const struct sw_transport *const transports[] = {
    &sw_transport_tcp, &sw_transport_local, &sw_transport_null};

static const struct sw_run runs[] = {
    {0, 0, 1 * MIB}, {0, 2 * MIB, 1 * MIB + 5}, {1, 256, MIB + 100}, {2, 7, 1},
    {2, 4096, 60001}, /* the sum is odd: no even share for two threads */
};
#define RUNS (sizeof(runs) / sizeof(runs[0]))

static const struct sw_stage_config small = {
    .source_bytes = 8 * MIB,
    .region_bytes = {4 * MIB, 2 * MIB, 65536},
    .runs = runs,
    .n_runs = RUNS,
    .threads = 2,
    .connections = 4,
};

static struct sw_stage *stage_with(int i, unsigned threads)
{
    struct sw_stage_config c = small;

    c.transport = transports[i];
    c.threads = threads;
    return sw_stage_new(&c);
}

static struct sw_stage *stage(int i)
{
    return stage_with(i, 2);
}

static bool moves(int i)
{
    return transports[i] != &sw_transport_null;
}

/* Extents that cover all runs, in pieces of 1 .. piece_max bytes, shuffled; *n of them. */
static struct sw_extent *cover(uint64_t piece_max, uint64_t source_bytes, uint64_t *n)
{
    struct sw_extent *x = malloc(400000 * sizeof(*x));
    uint64_t k = 0;

    ck_assert_ptr_nonnull(x);
    for (size_t r = 0; r < RUNS; r++) {
        for (uint64_t at = 0; at < runs[r].length; k++) {
            uint64_t length = 1 + (uint64_t)rand() % piece_max;

            if (length > runs[r].length - at)
                length = runs[r].length - at;
            ck_assert_uint_lt(k, 400000);
            x[k] = (struct sw_extent){(uint64_t)rand() % (source_bytes - length),
                runs[r].offset + at, length, runs[r].region, 0};
            at += length;
        }
    }
    for (uint64_t i = k - 1; i > 0; i--) {
        const uint64_t j = (uint64_t)rand() % (i + 1);
        const struct sw_extent t = x[i];

        x[i] = x[j];
        x[j] = t;
    }
    *n = k;
    return x;
}

static uint64_t bytes_of(const struct sw_extent *x, uint64_t n)
{
    uint64_t sum = 0;

    for (uint64_t i = 0; i < n; i++)
        sum += x[i].length;
    return sum;
}

/* Every byte of the regions is what the extents say, and 0xee elsewhere. */
static void check_memory(struct sw_stage *s, const struct sw_extent *x, uint64_t n)
{
    for (uint32_t r = 0; r < SW_STAGE_REGIONS; r++) {
        uint8_t *expected = malloc(small.region_bytes[r]);

        ck_assert_ptr_nonnull(expected);
        memset(expected, 0xee, small.region_bytes[r]);
        for (uint64_t i = 0; i < n; i++) {
            if (x[i].region == r)
                memcpy(expected + x[i].dst, sw_stage_source_bytes(s) + x[i].src, x[i].length);
        }
        ck_assert_int_eq(memcmp(expected, sw_stage_region(s, r), small.region_bytes[r]), 0);
        free(expected);
    }
}

static void check_untouched(struct sw_stage *s)
{
    check_memory(s, NULL, 0);
}

/* ---- good jobs ---- */

static void check_cover(int i, uint64_t piece_max)
{
    struct sw_stage *s = stage(i);
    struct sw_path *p = sw_stage_path(s, NULL);
    const struct sw_id w = sw_stage_window(s);
    uint64_t n;
    struct sw_extent *x = cover(piece_max, small.source_bytes, &n);
    struct sw_stage_outcome o = sw_stage_write(s, p, &w, x, n);

    ck_assert_msg(o.error.code == 0, "%s", o.error.text);
    ck_assert_uint_eq(o.bytes, bytes_of(x, n));
    o = sw_stage_verify(s, p, &w, x, n);
    ck_assert_msg(o.error.code == 0, "%s", o.error.text);
    ck_assert_uint_eq(o.bytes, bytes_of(x, n));
    if (moves(i)) {
        ck_assert_uint_eq(sw_stage_window_close(s), bytes_of(x, n));
        check_memory(s, x, n);
    }
    ck_assert_int_eq(sw_stage_path_close(s, p).error.code, 0);
    free(x);
    sw_stage_free(s);
}

START_TEST(random_extents)
{
    check_cover(_i / 4, (uint64_t[]){3 * MIB, 300000, 5000, 700}[_i % 4]);
}
END_TEST

START_TEST(tiny_extents)
{
    check_cover(_i, 64); /* some 100,000 of 1 .. 64 bytes */
}
END_TEST

START_TEST(empty_job)
{
    struct sw_stage *s = stage(_i);
    struct sw_path *p = sw_stage_path(s, NULL);
    const struct sw_id w = sw_stage_window(s);
    struct sw_stage_outcome o = sw_stage_write(s, p, &w, NULL, 0);

    ck_assert_msg(o.error.code == 0, "%s", o.error.text);
    ck_assert_uint_eq(o.bytes, 0);
    o = sw_stage_verify(s, p, &w, NULL, 0);
    ck_assert_msg(o.error.code == 0, "%s", o.error.text);
    ck_assert_uint_eq(sw_stage_window_close(s), 0);
    sw_stage_path_close(s, p);
    sw_stage_free(s);
}
END_TEST

START_TEST(reuse)
{
    struct sw_stage *s = stage(_i);
    struct sw_path *p = sw_stage_path(s, NULL);

    for (int k = 0; k < 5; k++) {
        const struct sw_id w = sw_stage_window(s);
        uint64_t n;
        struct sw_extent *x = cover(100000, small.source_bytes, &n);
        struct sw_stage_outcome o = sw_stage_write(s, p, &w, x, n);

        ck_assert_msg(o.error.code == 0, "%s", o.error.text);
        o = sw_stage_write(s, p, &w, x, 1); /* two jobs in one window are counted apart */
        ck_assert_msg(o.error.code == 0, "%s", o.error.text);
        ck_assert_uint_eq(o.bytes, x[0].length);
        if (moves(_i)) {
            ck_assert_uint_eq(sw_stage_window_close(s), bytes_of(x, n) + x[0].length);
            check_memory(s, x, n);
        } else {
            sw_stage_window_close(s);
        }
        free(x);
    }
    sw_stage_path_close(s, p);
    sw_stage_free(s);
}
END_TEST

START_TEST(two_writers)
{
    struct sw_stage *s = stage(_i);
    struct sw_path *p[2] = {sw_stage_path(s, NULL), sw_stage_path(s, NULL)};
    const struct sw_id w = sw_stage_window(s);
    struct sw_stage_outcome o[2] = {{0}};
    struct sw_error e;
    uint64_t n;
    struct sw_extent *x = cover(50000, small.source_bytes, &n);

    for (int k = 0; k < 2; k++) {
        struct sw_write_job *job = malloc(sizeof(*job)); /* itself is not needed after the call */

        *job =
            (struct sw_write_job){w, sw_stage_source(s), k ? x + n / 2 : x, k ? n - n / 2 : n / 2};
        ck_assert_int_eq(transports[_i]->path_write(p[k], job, sw_stage_path_done, &o[k], &e), 0);
        free(job);
    }
    ck_assert(sw_stage_wait(s, &o[0].done) && sw_stage_wait(s, &o[1].done));
    ck_assert_msg(
        o[0].error.code == 0 && o[1].error.code == 0, "%s%s", o[0].error.text, o[1].error.text);
    if (moves(_i)) {
        ck_assert_uint_eq(sw_stage_window_close(s), bytes_of(x, n));
        check_memory(s, x, n);
    }
    /* One goes, the other one stays good. */
    sw_stage_path_close(s, p[0]);
    if (moves(_i)) {
        const struct sw_id w2 = sw_stage_window(s);

        o[1] = sw_stage_write(s, p[1], &w2, x, n);
        ck_assert_msg(o[1].error.code == 0, "%s", o[1].error.text);
    }
    sw_stage_path_close(s, p[1]);
    free(x);
    sw_stage_free(s);
}
END_TEST

/* ---- verify ---- */

static void flip(struct sw_stage *s)
{
    uint8_t *region = sw_stage_region(s, 1);

    region[256 + 777777] ^= 1;
    region[256 + 777779] ^= 1;
    region[256 + MIB] ^= 1;
}

START_TEST(verify_names_the_first_difference)
{
    const struct sw_extent x[] = {{0, 0, MIB, 0, 0}, {MIB, 256, MIB + 100, 1, 0}};
    struct sw_stage *s = stage(_i);
    struct sw_path *p = sw_stage_path(s, NULL);
    struct sw_id w = sw_stage_window(s);
    struct sw_stage_outcome o = sw_stage_write(s, p, &w, x, 2);

    ck_assert_msg(o.error.code == 0, "%s", o.error.text);
    if (moves(_i)) {
        sw_stage_window_close(s); /* the memory is ours only between two windows */
        flip(s);
        w = sw_stage_window(s);
        o = sw_stage_verify(s, p, &w, x, 2);
        ck_assert_int_eq(o.error.code, SW_ERR_IO);
        ck_assert_msg(strstr(o.error.text, "region 1, offset 778033"), "%s", o.error.text);
        sw_stage_window_close(s);
        flip(s);
        w = sw_stage_window(s);
        o = sw_stage_verify(s, p, &w, x, 2); /* the path is still good */
        ck_assert_msg(o.error.code == 0, "%s", o.error.text);
    }
    sw_stage_path_close(s, p);
    sw_stage_free(s);
}
END_TEST

/* ---- the window ---- */

START_TEST(refused_outside_the_window)
{
    struct sw_stage *s = stage(_i);
    const struct sw_extent x = {0, 0, MIB, 0, 0};
    struct sw_id wrong = {{9, 9}}, w;
    struct sw_stage_outcome o;
    struct sw_path *p;

    if (moves(_i)) {
        for (int k = 0; k < 3; k++) { /* never opened, another one, closed again */
            p = sw_stage_path(s, NULL);
            if (k > 0)
                w = sw_stage_window(s);
            if (k == 2)
                sw_stage_window_close(s);
            o = sw_stage_write(s, p, k == 2 ? &w : &wrong, &x, 1);
            ck_assert_int_eq(o.error.code, SW_ERR_STATE);
            ck_assert_ptr_nonnull(strstr(o.error.text, "not open"));
            if (k == 1)
                ck_assert_uint_eq(sw_stage_window_close(s), 0);
            check_untouched(s);
            sw_stage_path_close(s, p);
        }
        p = sw_stage_path(s, NULL);
        o = sw_stage_verify(s, p, &w, &x, 1);
        ck_assert_int_eq(o.error.code, SW_ERR_STATE);
        sw_stage_path_close(s, p);
    }
    sw_stage_free(s);
}
END_TEST

START_TEST(window_ids_are_used_once)
{
    struct sw_stage *s = stage(_i);
    const struct sw_id none = {{0}}, w = sw_stage_window(s);
    struct sw_error e;

    ck_assert_int_eq(transports[_i]->port_open(sw_stage_port(s), &w, &e), SW_ERR_STATE);
    sw_stage_window_close(s);
    ck_assert_int_eq(transports[_i]->port_open(sw_stage_port(s), &w, &e), SW_ERR_STATE);
    ck_assert_int_eq(transports[_i]->port_open(sw_stage_port(s), &none, &e), SW_ERR_INVALID);
    sw_stage_free(s);
}
END_TEST

START_TEST(extents_outside)
{
    static const struct sw_extent bad_here[] = {
        {8 * MIB - 1, 0, 2, 0, 0},
        {UINT64_MAX, 0, 2, 0, 0},
        {1, 0, UINT64_MAX, 0, 0},
        {0, 4 * MIB - 1, 2, 0, 0},
        {0, UINT64_MAX, 2, 0, 0},
        {0, 0, 1, 3, 0},
        {0, 0, 0, 0, 0},
    };
    static const struct sw_extent bad_there[] = {
        {0, MIB - 1, 2, 0, 0}, /* over a run's end */
        {0, 1 * MIB, 1, 0, 0}, /* between two */
        {0, 255, 2, 1, 0},     /* before one */
        {0, 2 * MIB - 10, 20, 0, 0},
    };
    struct sw_stage *s = stage(_i);
    struct sw_path *p = sw_stage_path(s, NULL);
    const struct sw_id w = sw_stage_window(s);
    struct sw_stage_outcome o;

    for (size_t k = 0; k < sizeof(bad_here) / sizeof(bad_here[0]); k++) {
        const struct sw_extent x[] = {{0, 0, 1, 0, 0}, bad_here[k]};

        o = sw_stage_write(s, p, &w, x, 2);
        ck_assert(!o.done && o.error.code == SW_ERR_INVALID);
        o = sw_stage_verify(s, p, &w, x, 2);
        ck_assert(!o.done && o.error.code == SW_ERR_INVALID);
    }
    sw_stage_path_close(s, p);
    for (size_t k = 0; moves(_i) && k < sizeof(bad_there) / sizeof(bad_there[0]); k++) {
        p = sw_stage_path(s, NULL);
        o = sw_stage_write(s, p, &w, &bad_there[k], 1);
        ck_assert_int_eq(o.error.code, SW_ERR_INVALID);
        ck_assert_ptr_nonnull(strstr(o.error.text, "declared"));
        sw_stage_path_close(s, p);
        p = sw_stage_path(s, NULL);
        o = sw_stage_verify(s, p, &w, &bad_there[k], 1);
        ck_assert_int_eq(o.error.code, SW_ERR_INVALID);
        sw_stage_path_close(s, p);
    }
    sw_stage_window_close(s);
    check_untouched(s);
    sw_stage_free(s);
}
END_TEST

/* ---- in the middle of a job ---- */

/* A job that writes the first MiB over and over: tcp would need minutes, so that whatever the test
 * does comes in the middle. The engine process cannot be stopped in a copy: less for local. */
#define BIG_TCP 200000ull
#define BIG_LOCAL 100ull

/* TSan rightly calls it a race when two threads place the same bytes; a plan never asks for it. */
#ifdef __SANITIZE_THREAD__
#define BIG_THREADS 1
#else
#define BIG_THREADS 2
#endif

struct big {
    struct sw_stage *s;
    struct sw_path *p;
    struct sw_id w;
    struct sw_extent *x;
    struct sw_stage_outcome o;
};

/* Reads what another thread is writing just now. */
__attribute__((no_sanitize("thread"), noinline)) static bool first_byte_is_there(struct big *b)
{
    return *(volatile uint8_t *)sw_stage_region(b->s, 0) == sw_stage_source_bytes(b->s)[0];
}

/* Writes what another thread may be sending just now. */
__attribute__((no_sanitize("thread"), noinline)) static void overwrite_source(struct big *b)
{
    volatile uint8_t *bytes = sw_stage_source_bytes(b->s);

    for (size_t i = 0; i < MIB; i++)
        bytes[i] = 0x55;
}

static void on_poll(uv_timer_t *t)
{
    (void)t;
}

static void big_start(struct big *b, int i)
{
    const uint64_t n = transports[i] == &sw_transport_tcp ? BIG_TCP : BIG_LOCAL;
    struct sw_write_job job;
    struct sw_error e;
    uv_timer_t poll;

    b->s = stage_with(i, BIG_THREADS);
    b->p = sw_stage_path(b->s, NULL);
    b->w = sw_stage_window(b->s);
    b->x = calloc(n, sizeof(*b->x));
    ck_assert_ptr_nonnull(b->x);
    for (uint64_t k = 0; k < n; k++)
        b->x[k].length = MIB;
    b->o = (struct sw_stage_outcome){0};
    job = (struct sw_write_job){b->w, sw_stage_source(b->s), b->x, n};
    ck_assert_int_eq(transports[i]->path_write(b->p, &job, sw_stage_path_done, &b->o, &e), 0);
    if (!moves(i))
        return;
    uv_timer_init(sw_stage_loop(b->s), &poll);
    uv_timer_start(&poll, on_poll, 1, 1);
    while (!b->o.done && !first_byte_is_there(b))
        uv_run(sw_stage_loop(b->s), UV_RUN_ONCE);
    uv_close((uv_handle_t *)&poll, NULL);
    uv_run(sw_stage_loop(b->s), UV_RUN_NOWAIT);
}

START_TEST(close_of_the_window_in_the_middle)
{
    uint8_t *snapshot = malloc(MIB);
    struct big b;

    big_start(&b, _i);
    ck_assert_ptr_nonnull(snapshot);
    sw_stage_window_close(b.s);
    memcpy(snapshot, sw_stage_region(b.s, 0), MIB);
    overwrite_source(&b); /* it would be seen, if it came */
    ck_assert(sw_stage_wait(b.s, &b.o.done));
    if (transports[_i] == &sw_transport_tcp)
        ck_assert_int_lt(b.o.error.code, 0);
    sw_stage_window(b.s); /* another window lets nothing of the old one in */
    ck_assert_int_eq(sw_stage_path_close(b.s, b.p).error.code, 0);
    ck_assert_int_eq(memcmp(snapshot, sw_stage_region(b.s, 0), MIB), 0);
    if (moves(_i))
        ck_assert_uint_eq(sw_stage_window_close(b.s), 0);
    free(b.x);
    free(snapshot);
    sw_stage_free(b.s);
}
END_TEST

START_TEST(path_close_in_the_middle)
{
    struct sw_stage_outcome closed = {0};
    struct big b;

    big_start(&b, _i);
    transports[_i]->path_close(b.p, sw_stage_path_done, &closed);
    ck_assert(!closed.done);
    ck_assert(sw_stage_wait(b.s, &closed.done));
    ck_assert(b.o.done); /* before */
    ck_assert_int_eq(b.o.error.code, SW_ERR_CLOSED);
    ck_assert_int_eq(closed.error.code, 0);
    /* Nobody reads it now: a read would be a fault. The engine keeps its own mapping. */
    ck_assert_int_eq(mprotect(sw_stage_source_bytes(b.s), small.source_bytes, PROT_NONE), 0);
    sw_stage_window_close(b.s);
    free(b.x);
    sw_stage_free(b.s);
}
END_TEST

START_TEST(port_free_in_the_middle)
{
    struct big b;

    big_start(&b, _i);
    sw_stage_port_free(b.s);
    for (uint32_t r = 0; moves(_i) && r < SW_STAGE_REGIONS; r++) {
        /* Nobody writes it now; a snapshot would have to be taken as above. */
        memset(sw_stage_region(b.s, r), 0xee, small.region_bytes[r]);
    }
    ck_assert(sw_stage_wait(b.s, &b.o.done));
    if (transports[_i] == &sw_transport_tcp)
        ck_assert_int_lt(b.o.error.code, 0); /* refused, or dropped */
    sw_stage_path_close(b.s, b.p);
    check_untouched(b.s);
    free(b.x);
    sw_stage_free(b.s);
}
END_TEST

START_TEST(target_drops_an_idle_path)
{
    struct sw_stage *s = stage(_i);
    struct sw_stage_outcome broken;
    struct sw_path *p = sw_stage_path(s, &broken);
    const struct sw_extent x = {0, 0, 1, 0, 0};
    struct sw_id w = {{1}};

    sw_stage_port_free(s);
    if (moves(_i)) {
        struct sw_stage_outcome o;

        ck_assert(sw_stage_wait(s, &broken.done));
        ck_assert_int_eq(broken.error.code, SW_ERR_CLOSED);
        o = sw_stage_write(s, p, &w, &x, 1);
        ck_assert(!o.done && o.error.code == SW_ERR_CLOSED);
    }
    ck_assert_int_eq(sw_stage_path_close(s, p).error.code, 0);
    sw_stage_free(s);
}
END_TEST

START_TEST(busy_path_refuses_a_second_job)
{
    struct sw_write_job job = {0};
    struct sw_error e;
    struct big b;

    big_start(&b, _i);
    job.memory = sw_stage_source(b.s);
    if (!b.o.done)
        ck_assert_int_eq(
            transports[_i]->path_write(b.p, &job, sw_stage_path_done, &b.o, &e), SW_ERR_STATE);
    sw_stage_path_close(b.s, b.p);
    free(b.x);
    sw_stage_free(b.s);
}
END_TEST

/* ---- local alone ---- */

static void mark_closed(struct sw_port *p, uint64_t bytes, void *arg)
{
    (void)p;
    (void)bytes;
    *(bool *)arg = true;
}

START_TEST(engine_that_dies)
{
    struct sw_stage_config c = small;
    const struct sw_extent x = {0, 0, MIB, 0, 0};
    struct sw_stage_outcome o = {0};
    struct sw_write_job job;
    bool closed = false;
    struct sw_stage *s;
    struct sw_error e;
    struct sw_path *p;

    c.transport = &sw_transport_local;
    c.mute_engine = true;
    s = sw_stage_new(&c);
    p = sw_stage_path(s, NULL);
    job = (struct sw_write_job){sw_stage_window(s), sw_stage_source(s), &x, 1};
    ck_assert_int_eq(sw_transport_local.path_write(p, &job, sw_stage_path_done, &o, &e), 0);
    ck_assert(sw_stage_wait(s, sw_stage_engine_has_copy(s)));
    sw_transport_local.port_close(sw_stage_port(s), mark_closed, &closed);
    ck_assert(!closed && !o.done); /* it may be writing */
    sw_stage_engine_died(s);
    ck_assert(closed);
    ck_assert(sw_stage_wait(s, &o.done));
    ck_assert_int_eq(o.error.code, SW_ERR_CLOSED);
    ck_assert_ptr_nonnull(strstr(o.error.text, "has died"));
    ck_assert_int_eq(sw_stage_path_close(s, p).error.code, 0);
    sw_stage_free(s);
}
END_TEST

/* A writer of raw messages, to vanish when it wants to. */
struct raw_writer {
    struct sw_stage *stage;
    struct sw_conn *conn;
    struct sw_id window;
    bool open, mapped, closed;
};

static void raw_ready(struct sw_conn *c, void *arg)
{
    sw_conn_send(c, sw_stage_path_open(((struct raw_writer *)arg)->stage));
}

static void raw_message(struct sw_conn *c, struct sw_msg *msg, void *arg)
{
    struct raw_writer *w = arg;

    (void)c;
    w->open |= msg->kind == SW_MSG_PATH_DONE;
    w->mapped |= msg->kind == SW_MSG_LOCAL_MAPPED && msg->u.local_mapped.error.code == 0;
    sw_msg_free(msg);
}

static void raw_closed(struct sw_conn *c, const struct sw_error *why, void *arg)
{
    (void)c;
    (void)why;
    ((struct raw_writer *)arg)->closed = true;
}

static void raw_send(struct raw_writer *w, enum sw_msg_kind kind)
{
    struct sw_msg *m = sw_msg_new(kind);

    m->fds[0] = dup(sw_stage_source(w->stage)->fd);
    m->n_fds = 1;
    if (kind == SW_MSG_LOCAL_SOURCE) {
        m->u.local_source.source = 1;
        m->u.local_source.bytes = small.source_bytes;
    } else {
        m->u.local_copy.copy = m->u.local_copy.source = 1;
        m->u.local_copy.window = w->window;
        m->u.local_copy.mode = SW_LOCAL_WRITE;
    }
    sw_conn_send(w->conn, m);
}

START_TEST(writer_that_vanishes_while_the_engine_copies)
{
    static const struct sw_conn_handlers handlers = {raw_ready, raw_message, raw_closed};
    struct sw_stage_config c = small;
    struct raw_writer w = {0};
    bool closed = false;
    struct sw_error e;

    c.transport = &sw_transport_local;
    c.mute_engine = true;
    w.stage = sw_stage_new(&c);
    ck_assert_int_eq(sw_stage_dial(w.stage, &handlers, &w, &w.conn, &e), 0);
    ck_assert(sw_stage_wait(w.stage, &w.open));
    raw_send(&w, SW_MSG_LOCAL_SOURCE);
    ck_assert(sw_stage_wait(w.stage, &w.mapped));
    w.window = sw_stage_window(w.stage);
    raw_send(&w, SW_MSG_LOCAL_COPY);
    ck_assert(sw_stage_wait(w.stage, sw_stage_engine_has_copy(w.stage)));
    sw_conn_close(w.conn, "gone");
    ck_assert(sw_stage_wait(w.stage, &w.closed));
    for (int k = 0; k < 20; k++) /* inferd notices as well */
        uv_run(sw_stage_loop(w.stage), UV_RUN_NOWAIT);
    sw_transport_local.port_close(sw_stage_port(w.stage), mark_closed, &closed);
    ck_assert(!closed); /* the engine process may be writing still */
    sw_stage_engine_died(w.stage);
    ck_assert(closed);
    sw_stage_free(w.stage);
}
END_TEST

START_TEST(new_source_replaces_the_old_one)
{
    struct sw_stage_config c = small;
    const struct sw_extent x = {0, 0, MIB, 0, 0};
    struct sw_source_memory other;
    struct sw_stage_outcome o = {0};
    struct sw_stage *s;
    struct sw_error e;
    struct sw_path *p;
    struct sw_id w;

    c.transport = &sw_transport_local;
    s = sw_stage_new(&c);
    p = sw_stage_path(s, NULL);
    other = *sw_stage_source(s);
    other.id = 2;
    ck_assert_int_eq(sw_transport_local.path_attach(p, &other, sw_stage_path_done, &o, &e), 0);
    ck_assert(sw_stage_wait(s, &o.done) && o.error.code == 0);
    w = sw_stage_window(s);
    o = sw_stage_write(s, p, &w, &x, 1); /* names id 1 */
    ck_assert(!o.done && o.error.code == SW_ERR_STATE);
    *sw_stage_source(s) = other;
    o = sw_stage_write(s, p, &w, &x, 1);
    ck_assert_msg(o.error.code == 0, "%s", o.error.text);
    sw_stage_path_close(s, p);
    sw_stage_free(s);
}
END_TEST

/* ---- lookup ---- */

START_TEST(find)
{
    ck_assert_ptr_eq(sw_transport_find("tcp"), &sw_transport_tcp);
    ck_assert_ptr_eq(sw_transport_find("local"), &sw_transport_local);
    ck_assert_ptr_eq(sw_transport_find("null"), &sw_transport_null);
    ck_assert_ptr_null(sw_transport_find("verbs "));
}
END_TEST

int main(void)
{
    static const int all = sizeof(transports) / sizeof(transports[0]);
    Suite *suite = suite_create("transport");
    TCase *tc = tcase_create("all");
    SRunner *r = srunner_create(suite);
    int failed;

    suite_add_tcase(suite, tc);
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, random_extents, 0, all * 4);
    tcase_add_loop_test(tc, tiny_extents, 0, all);
    tcase_add_loop_test(tc, empty_job, 0, all);
    tcase_add_loop_test(tc, reuse, 0, all);
    tcase_add_loop_test(tc, two_writers, 0, all);
    tcase_add_loop_test(tc, verify_names_the_first_difference, 0, all);
    tcase_add_loop_test(tc, refused_outside_the_window, 0, all);
    tcase_add_loop_test(tc, window_ids_are_used_once, 0, all);
    tcase_add_loop_test(tc, extents_outside, 0, all);
    tcase_add_loop_test(tc, close_of_the_window_in_the_middle, 0, all);
    tcase_add_loop_test(tc, path_close_in_the_middle, 0, all);
    tcase_add_loop_test(tc, port_free_in_the_middle, 0, all);
    tcase_add_loop_test(tc, target_drops_an_idle_path, 0, all);
    tcase_add_loop_test(tc, busy_path_refuses_a_second_job, 0, all);
    tcase_add_test(tc, engine_that_dies);
    tcase_add_test(tc, writer_that_vanishes_while_the_engine_copies);
    tcase_add_test(tc, new_source_replaces_the_old_one);
    tcase_add_test(tc, find);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
