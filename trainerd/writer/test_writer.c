/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writer over transports that do what the test says: this file defines the two tables itself,
 * so that the linker does not take the real ones. Each call and each report becomes a word:
 * "open local#1", "attach #1", "write #1 30", "close #1", "CONNECTED u1 t0 local", "WRITTEN u1 t0
 * 30"; an error shows as "!closed".
 */
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "trainerd/writer/writer.h"

#define PATHS_MAX 32
#define RANKS 2u

struct sw_path {
    const struct sw_transport *ops;
    unsigned number;
    bool open, busy;
    uint64_t bytes;
    uint32_t n_tokens;
    sw_path_done done, closed;
    sw_path_broken broken;
    void *arg, *closed_arg;
};

static struct {
    struct sw_writer *writer;
    struct sw_replica *replica;
    uint64_t version; /* which the replica holds */
    struct sw_path paths[PATHS_MAX];
    unsigned n_paths;
    const char *refuse; /* "open", "attach" or "write" fails in the call */
    char words[2048], why[SW_TEXT_MAX + 1];
    unsigned logs, closed;
    uint32_t connections;
} w;

static void word(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void word(const char *format, ...)
{
    const size_t used = strlen(w.words);
    char text[256];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    snprintf(w.words + used, sizeof(w.words) - used, "%s%s", used ? "; " : "", text);
}

#define EXPECT(text)                                                                               \
    do {                                                                                           \
        ck_assert_str_eq(w.words, text);                                                           \
        w.words[0] = '\0';                                                                         \
    } while (0)

/* ---- the transports ---- */

static int refused(const char *step, struct sw_error *e)
{
    if (!w.refuse || strcmp(w.refuse, step) != 0)
        return 0;
    return sw_fail(e, SW_ERR_IO, "%s is refused", step);
}

static int start(struct sw_path *p, sw_path_done done, void *arg)
{
    ck_assert(!p->busy && !p->closed);
    p->busy = true;
    p->done = done;
    p->arg = arg;
    return 0;
}

static int path_open(const struct sw_transport *ops, const struct sw_path_spec *spec,
    sw_path_broken broken, sw_path_done done, void *arg, struct sw_path **out, struct sw_error *e)
{
    struct sw_path *p = &w.paths[w.n_paths + 1];

    if (refused("open", e)) {
        word("no %s", ops->name);
        return e->code;
    }
    ck_assert_uint_lt(++w.n_paths, PATHS_MAX);
    *p = (struct sw_path){.ops = ops, .number = w.n_paths, .open = true, .broken = broken};
    p->n_tokens = spec->n_tokens;
    word("open %s#%u", ops->name, p->number);
    *out = p;
    return start(p, done, arg);
}

static int open_tcp(uv_loop_t *loop, const struct sw_path_spec *spec, sw_path_broken broken,
    sw_path_done done, void *arg, struct sw_path **out, struct sw_error *e)
{
    return path_open(&sw_transport_tcp, spec, broken, done, arg, out, e);
}

static int open_local(uv_loop_t *loop, const struct sw_path_spec *spec, sw_path_broken broken,
    sw_path_done done, void *arg, struct sw_path **out, struct sw_error *e)
{
    return path_open(&sw_transport_local, spec, broken, done, arg, out, e);
}

static int attach(struct sw_path *p, const struct sw_source_memory *m, sw_path_done done, void *arg,
    struct sw_error *e)
{
    if (refused("attach", e))
        return e->code;
    p->bytes = 0;
    word("attach #%u", p->number);
    return start(p, done, arg);
}

static int write_job(struct sw_path *p, const struct sw_write_job *job, sw_path_done done,
    void *arg, struct sw_error *e)
{
    if (refused("write", e))
        return e->code;
    ck_assert_uint_eq(job->window.bytes[0], 77);
    p->bytes = 0;
    for (uint64_t i = 0; i < job->n; i++)
        p->bytes += job->extents[i].length;
    word("write #%u %llu", p->number, (unsigned long long)p->bytes);
    return start(p, done, arg);
}

static void path_close(struct sw_path *p, sw_path_done done, void *arg)
{
    ck_assert(p->open && !p->closed);
    p->closed = done;
    p->closed_arg = arg;
    word("close #%u", p->number);
}

const struct sw_transport sw_transport_tcp = {.name = "tcp",
    .path_open = open_tcp,
    .path_attach = attach,
    .path_write = write_job,
    .path_verify = write_job,
    .path_close = path_close};
const struct sw_transport sw_transport_local = {.name = "local",
    .path_open = open_local,
    .path_attach = attach,
    .path_write = write_job,
    .path_verify = write_job,
    .path_close = path_close};

/* What a path was asked for is done. */
static void done(unsigned number, int code)
{
    struct sw_path *p = &w.paths[number];
    struct sw_error e = {0};

    ck_assert(p->open && p->busy);
    p->busy = false;
    if (code)
        sw_fail(&e, code, "path %u says %d", number, code);
    p->done(p, code ? 0 : p->bytes, &e, p->arg);
}

static void closed(unsigned number, int code)
{
    struct sw_path *p = &w.paths[number];
    struct sw_error e = {0};

    ck_assert(p->open && p->closed);
    if (p->busy)
        done(number, SW_ERR_CLOSED);
    p->open = false;
    if (code)
        sw_fail(&e, code, "path %u may be read on", number);
    p->closed(p, 0, &e, p->closed_arg);
}

static void broke(unsigned number)
{
    struct sw_path *p = &w.paths[number];
    struct sw_error e;

    ck_assert(p->open && !p->busy && !p->closed);
    sw_fail(&e, SW_ERR_CLOSED, "path %u broke", number);
    p->broken(p, &e, p->arg);
}

/* ---- around the writer ---- */

static struct sw_replica_buffer *buffer(uint32_t rank, uint64_t version, void *arg)
{
    return version == w.version ? sw_replica_get(w.replica, rank, 0) : NULL;
}

static bool busy(uint32_t rank)
{
    return sw_replica_buffer_busy(sw_replica_get(w.replica, rank, 0));
}

static void put_outcome(char *text, size_t size, const struct sw_failure *f)
{
    if (f->code)
        snprintf(text, size, " !%s", sw_code_name(f->code));
    snprintf(w.why, sizeof(w.why), "%s", f->reason ? f->reason : "");
}

static void report(struct sw_msg *m, void *arg)
{
    char outcome[64] = "";

    if (m->kind == SW_MSG_CONNECTED) {
        const struct sw_connected *c = &m->u.connected;

        put_outcome(outcome, sizeof(outcome), &c->error);
        if (!c->error.code)
            snprintf(w.why, sizeof(w.why), "%s", c->why);
        word("CONNECTED u%llu t%u %s%s", (unsigned long long)c->update, c->target,
            c->transport ? c->transport : "?", outcome);
    } else {
        ck_assert_int_eq(m->kind, SW_MSG_WRITTEN);
        put_outcome(outcome, sizeof(outcome), &m->u.written.error);
        word("WRITTEN u%llu t%u %llu%s", (unsigned long long)m->u.written.update,
            m->u.written.target, (unsigned long long)m->u.written.bytes, outcome);
    }
    sw_msg_free(m);
}

static void log_text(int level, const char *text, void *arg)
{
    w.logs++;
}

static void on_closed(void *arg)
{
    w.closed++;
}

static void open_writer(enum sw_writer_transport transport)
{
    static const struct sw_identity self = {.group = "test"};
    const struct sw_writer_config config = {
        .self = &self, .transport = transport, .buffer = buffer, .report = report, .log = log_text};

    w.writer = sw_writer_new(&config);
    ck_assert_ptr_nonnull(w.writer);
}

static void place(uint32_t rank)
{
    static uint64_t generation;
    const struct sw_replica_buffer_spec spec = {.rank = rank,
        .generation = generation + 1,
        .bytes = 4096,
        .counter_bytes = 4096,
        .threads = 1};
    struct sw_replica_buffer *b;
    struct sw_error e;

    generation++;
    ck_assert_int_eq(sw_replica_buffer_create(&spec, &b, &e), 0);
    ck_assert_int_eq(sw_replica_put(w.replica, b, &e), 0);
}

static void setup(void)
{

    memset(&w, 0, sizeof(w));
    w.version = 1;
    w.connections = 4;
    w.replica = sw_replica_new();
    for (uint32_t r = 0; r < RANKS; r++)
        place(r);
}

/* Whatever state it is in: when all paths are closed, it is gone, and nobody holds a buffer. */
static void teardown(void)
{
    if (!w.closed)
        sw_writer_close(w.writer, on_closed, NULL);
    for (unsigned n = 1; n <= w.n_paths; n++)
        if (w.paths[n].open)
            closed(n, 0);
    ck_assert_uint_eq(w.closed, 1);
    for (uint32_t r = 0; r < RANKS; r++)
        ck_assert(!busy(r));
    sw_replica_free(w.replica);
}

static void targets(uint64_t layout, uint64_t membership, uint32_t n, bool local)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_TARGETS);
    struct sw_target *items = sw_arena_array(&m->arena, n, sizeof(*items));

    m->u.targets = (struct sw_targets){
        .layout_epoch = layout, .membership_epoch = membership, .total = n, .n = n, .items = items};
    for (uint32_t i = 0; i < n; i++) {
        items[i] = (struct sw_target){.target = i,
            .engine = "A",
            .engine_rank = i,
            .address = "10.0.0.1",
            .unix_path = local ? "/run/i" : ""};
        items[i].engine_instance.bytes[0] = (uint8_t)(i + 1);
    }
    sw_writer_handle(w.writer, m);
}

static void program(
    uint64_t layout, uint64_t membership, uint32_t rank, uint32_t target, uint64_t length)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_WRITE_PROGRAM);
    struct sw_extent *x = sw_arena_array(&m->arena, 1, sizeof(*x));

    *x = (struct sw_extent){.src = 16, .length = length};
    m->u.write_program = (struct sw_write_program){.layout_epoch = layout,
        .membership_epoch = membership,
        .rank = rank,
        .target = target,
        .total = 1,
        .n = 1,
        .extents = x};
    sw_writer_handle(w.writer, m);
}

static void say_connect(
    uint64_t update, uint64_t version, uint32_t target, uint64_t layout, uint64_t membership)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_CONNECT);

    m->u.connect = (struct sw_connect){.update = update,
        .version = version,
        .layout_epoch = layout,
        .membership_epoch = membership,
        .target = target,
        .n = w.connections};
    m->u.connect.tokens = sw_arena_array(&m->arena, w.connections, sizeof(struct sw_token));
    sw_writer_handle(w.writer, m);
}

static void order(enum sw_msg_kind kind, uint64_t update, uint32_t target)
{
    struct sw_msg *m = sw_msg_new(kind);

    if (kind == SW_MSG_WRITE) {
        m->u.write = (struct sw_write){.update = update, .version = update, .target = target};
        m->u.write.window.bytes[0] = 77;
    } else {
        m->u.update_end = (struct sw_update_end){.update = update, .target = target};
    }
    sw_writer_handle(w.writer, m);
}

/* Two ranks write 10 and 20 bytes to target 0. */
static void ready(enum sw_writer_transport transport)
{
    open_writer(transport);
    targets(5, 1, 2, true);
    program(5, 1, 0, 0, 10);
    program(5, 1, 1, 0, 20);
}

/* ---- tests ---- */

START_TEST(test_local_kept_over_updates)
{
    ready(SW_WRITER_AUTO);
    say_connect(1, 1, 0, 5, 1);
    EXPECT("open local#1; open local#2");
    ck_assert(busy(0) && busy(1));
    done(2, 0);
    EXPECT("attach #2");
    done(1, 0);
    done(2, 0);
    EXPECT("attach #1");
    done(1, 0);
    EXPECT("CONNECTED u1 t0 local");
    ck_assert_ptr_nonnull(strstr(w.why, "same host"));
    order(SW_MSG_WRITE, 1, 0);
    EXPECT("write #1 10; write #2 20");
    done(1, 0);
    done(2, 0);
    EXPECT("WRITTEN u1 t0 30");
    ck_assert(busy(0));
    order(SW_MSG_UPDATE_END, 1, 0);
    EXPECT("");
    ck_assert(!busy(0) && !busy(1));
    /* The next one takes the same paths. */
    w.version = 2;
    say_connect(2, 2, 0, 5, 1);
    EXPECT("attach #1; attach #2");
    done(1, 0);
    done(2, 0);
    EXPECT("CONNECTED u2 t0 local");
    order(SW_MSG_WRITE, 2, 0);
    done(2, 0);
    done(1, 0);
    EXPECT("write #1 10; write #2 20; WRITTEN u2 t0 30");
    order(SW_MSG_UPDATE_END, 2, 0);
}
END_TEST

START_TEST(test_tcp_is_shared_by_ranks)
{
    ready(SW_WRITER_TCP);
    say_connect(1, 1, 0, 5, 1);
    EXPECT("open tcp#1");
    ck_assert_uint_eq(w.paths[1].n_tokens, 4);
    done(1, 0);
    EXPECT("attach #1");
    done(1, 0);
    EXPECT("attach #1");
    done(1, 0);
    EXPECT("CONNECTED u1 t0 tcp");
    ck_assert_str_eq(w.why, "option transport=tcp");
    order(SW_MSG_WRITE, 1, 0);
    EXPECT("write #1 10");
    done(1, 0);
    EXPECT("write #1 20");
    done(1, 0);
    EXPECT("WRITTEN u1 t0 30");
    order(SW_MSG_UPDATE_END, 1, 0);
    ck_assert(!busy(0) && !busy(1));
}
END_TEST

START_TEST(test_a_target_of_nobody)
{
    ready(SW_WRITER_TCP);
    say_connect(1, 1, 1, 5, 1); /* this host writes nothing there */
    EXPECT("CONNECTED u1 t1 tcp");
    order(SW_MSG_WRITE, 1, 1);
    EXPECT("WRITTEN u1 t1 0");
    order(SW_MSG_UPDATE_END, 1, 1);
}
END_TEST

START_TEST(test_without_a_unix_socket)
{
    open_writer(SW_WRITER_AUTO);
    targets(5, 1, 1, false);
    program(5, 1, 0, 0, 10);
    say_connect(1, 1, 0, 5, 1);
    EXPECT("open tcp#1");
    done(1, 0);
    done(1, 0);
    EXPECT("attach #1; CONNECTED u1 t0 tcp");
    ck_assert_ptr_nonnull(strstr(w.why, "no UNIX socket"));
}
END_TEST

START_TEST(test_falls_back_to_tcp)
{
    ready(SW_WRITER_AUTO);
    say_connect(1, 1, 0, 5, 1);
    EXPECT("open local#1; open local#2");
    switch (_i) {
    case 0: /* the first one can't be opened */
        done(1, SW_ERR_AUTH);
        EXPECT("close #1; close #2; open tcp#3");
        break;
    case 1: /* one is attached, the other can't be */
        done(1, 0);
        done(1, 0);
        done(2, 0);
        EXPECT("attach #1; attach #2");
        done(2, SW_ERR_NOMEM);
        EXPECT("close #2; close #1; open tcp#3");
        break;
    default: /* in the call */
        w.refuse = "attach";
        done(2, 0);
        w.refuse = NULL;
        EXPECT("close #2; close #1; open tcp#3");
    }
    ck_assert_uint_eq(w.paths[3].n_tokens, 4);
    closed(1, 0);
    done(3, 0);
    done(3, 0);
    closed(2, 0);
    done(3, 0);
    EXPECT("attach #3; attach #3; CONNECTED u1 t0 tcp");
    ck_assert_int_eq(strncmp(w.why, "not local: ", 11), 0);
    order(SW_MSG_WRITE, 1, 0);
    done(3, 0);
    done(3, 0);
    EXPECT("write #3 10; write #3 20; WRITTEN u1 t0 30");
    order(SW_MSG_UPDATE_END, 1, 0);
    ck_assert(!busy(0) && !busy(1));
    ck_assert_uint_eq(w.logs, 0); /* that is no failure */
    /* The next update goes by what was found, with the reason. */
    say_connect(2, 1, 0, 5, 1);
    EXPECT("attach #3");
    done(3, 0);
    done(3, 0);
    ck_assert_int_eq(strncmp(w.why, "not local: ", 11), 0);
}
END_TEST

START_TEST(test_no_transport)
{
    ready(_i ? SW_WRITER_LOCAL : SW_WRITER_AUTO);
    w.refuse = "open";
    say_connect(1, 1, 0, 5, 1);
    w.refuse = NULL;
    if (_i)
        EXPECT("no local; CONNECTED u1 t0 local !i/o");
    else
        EXPECT("no local; no tcp; CONNECTED u1 t0 tcp !i/o");
    ck_assert_ptr_nonnull(strstr(w.why, "update 1, version 1, engine A rank 0: open is refused"));
    ck_assert_uint_eq(w.logs, 1);
    ck_assert(busy(0)); /* until the update ends */
    order(SW_MSG_WRITE, 1, 0);
    EXPECT("WRITTEN u1 t0 0 !i/o");
    order(SW_MSG_UPDATE_END, 1, 0);
    ck_assert(!busy(0));
}
END_TEST

START_TEST(test_connect_refusals)
{
    ready(SW_WRITER_TCP);
    say_connect(1, 1, 7, 5, 1);
    EXPECT("CONNECTED u1 t7 ? !not found");
    say_connect(1, 1, 0, 5, 2);
    EXPECT("CONNECTED u1 t0 ? !state");
    say_connect(1, 1, 0, 6, 1);
    EXPECT("CONNECTED u1 t0 ? !state");
    say_connect(1, 2, 0, 5, 1); /* not in the replica */
    EXPECT("CONNECTED u1 t0  !not found");
    ck_assert(!busy(0));
    order(SW_MSG_UPDATE_END, 1, 0);
    targets(5, 2, 1, true);
    program(5, 2, 0, 0, 4090); /* ends outside */
    say_connect(2, 1, 0, 5, 2);
    EXPECT("CONNECTED u2 t0  !plan");
    order(SW_MSG_UPDATE_END, 2, 0);
    ck_assert(!busy(0));
    ck_assert_uint_eq(w.n_paths, 0);
}
END_TEST

START_TEST(test_connect_fails)
{
    ready(SW_WRITER_TCP);
    say_connect(1, 1, 0, 5, 1);
    if (_i) {
        done(1, 0);
        EXPECT("open tcp#1; attach #1");
    } else {
        EXPECT("open tcp#1");
    }
    done(1, SW_ERR_TIMEOUT);
    EXPECT("close #1; CONNECTED u1 t0 tcp !timeout");
    order(SW_MSG_UPDATE_END, 1, 0);
    ck_assert(busy(0)); /* until the path is closed */
    closed(1, 0);
    ck_assert(!busy(0));
    EXPECT("");
}
END_TEST

static void to_connected(void)
{
    ready(SW_WRITER_AUTO);
    say_connect(1, 1, 0, 5, 1);
    for (int i = 0; i < 2; i++) {
        done(1, 0);
        done(2, 0);
    }
    EXPECT("open local#1; open local#2; attach #1; attach #2; CONNECTED u1 t0 local");
}

START_TEST(test_write_fails)
{
    to_connected();
    order(SW_MSG_WRITE, 1, 0);
    EXPECT("write #1 10; write #2 20");
    if (_i == 0) {
        done(1, SW_ERR_IO);
    } else {
        w.paths[1].bytes = 9; /* fewer than asked */
        done(1, 0);
    }
    EXPECT("close #1; WRITTEN u1 t0 0 !i/o");
    done(2, 0); /* too late to matter */
    EXPECT("");
    order(SW_MSG_UPDATE_END, 1, 0);
    ck_assert(busy(0));
    closed(1, 0);
    ck_assert(!busy(0));
    /* The whole path is kept, the other one is made anew. */
    say_connect(2, 1, 0, 5, 1);
    EXPECT("open local#3; attach #2");
}
END_TEST

START_TEST(test_write_refused_in_the_call)
{
    to_connected();
    w.refuse = "write";
    order(SW_MSG_WRITE, 1, 0);
    w.refuse = NULL;
    EXPECT("WRITTEN u1 t0 0 !i/o");
    order(SW_MSG_UPDATE_END, 1, 0);
    EXPECT("");
}
END_TEST

START_TEST(test_update_end_in_each_state)
{
    ready(SW_WRITER_AUTO);
    say_connect(1, 1, 0, 5, 1);
    w.words[0] = '\0';
    if (_i >= 1) {
        done(1, 0);
        done(2, 0);
    }
    if (_i >= 2) {
        done(1, 0);
        done(2, 0);
    }
    if (_i >= 3)
        order(SW_MSG_WRITE, 1, 0);
    if (_i >= 4)
        done(1, 0);
    w.words[0] = '\0';
    order(SW_MSG_UPDATE_END, 1, 0);
    if (_i == 2) { /* idle: both are whole */
        EXPECT("");
    } else if (_i == 4) {
        EXPECT("close #2");
        closed(2, 0);
    } else {
        EXPECT("close #2; close #1");
        ck_assert(busy(0) && busy(1));
        closed(1, 0);
        ck_assert(busy(0));
        closed(2, 0);
    }
    EXPECT("");
    ck_assert(!busy(0) && !busy(1));
    order(SW_MSG_UPDATE_END, 1, 0); /* again, of nothing */
    EXPECT("");
    ck_assert_uint_eq(w.logs, 0);
    say_connect(2, 1, 0, 5, 1);
    if (_i == 2)
        EXPECT("attach #1; attach #2");
    else if (_i == 4)
        EXPECT("attach #1; open local#3");
    else
        EXPECT("open local#3; open local#4");
}
END_TEST

/* The engine process may read on, and nobody will tell when it stops. */
START_TEST(test_spoiled_buffer)
{
    struct sw_replica_buffer *b = sw_replica_get(w.replica, 0, 0);

    to_connected();
    order(SW_MSG_WRITE, 1, 0);
    done(2, 0);
    done(1, SW_ERR_CLOSED);
    order(SW_MSG_UPDATE_END, 1, 0);
    closed(1, SW_ERR_CLOSED);
    ck_assert(sw_replica_buffer_busy(b));
    ck_assert(!busy(1));
    place(0); /* replaced, as the host machine does */
    ck_assert(!busy(0));
}
END_TEST

START_TEST(test_path_breaks_before_the_write)
{
    to_connected();
    broke(1);
    EXPECT("CONNECTED u1 t0 local !closed; close #1");
    ck_assert_uint_eq(w.logs, 1);
    order(SW_MSG_WRITE, 1, 0);
    EXPECT("WRITTEN u1 t0 0 !closed");
    ck_assert_ptr_nonnull(strstr(w.why, "path 1 broke"));
    if (_i)
        closed(1, 0);
    order(SW_MSG_UPDATE_END, 1, 0);
    if (!_i)
        closed(1, 0);
    ck_assert(!busy(0) && !busy(1));
    say_connect(2, 1, 0, 5, 1);
    EXPECT("open local#3; attach #2");
}
END_TEST

START_TEST(test_kept_path_breaks)
{
    to_connected();
    order(SW_MSG_UPDATE_END, 1, 0);
    broke(2);
    EXPECT("close #2");
    ck_assert_uint_eq(w.logs, 0);
    say_connect(2, 1, 0, 5, 1);
    EXPECT("attach #1; open local#3");
    closed(2, 0);
    done(3, 0);
    done(3, 0);
    done(1, 0);
    EXPECT("attach #3; CONNECTED u2 t0 local");
}
END_TEST

START_TEST(test_orders_out_of_turn)
{
    ready(SW_WRITER_TCP);
    order(SW_MSG_WRITE, 1, 0);
    EXPECT("WRITTEN u1 t0 0 !state");
    order(SW_MSG_UPDATE_END, 1, 0);
    EXPECT("");
    say_connect(1, 1, 0, 5, 1);
    order(SW_MSG_WRITE, 1, 0);
    EXPECT("open tcp#1; WRITTEN u1 t0 0 !state");
    say_connect(1, 1, 0, 5, 1);
    EXPECT("CONNECTED u1 t0 ? !state");
    done(1, 0);
    done(1, 0);
    done(1, 0);
    EXPECT("attach #1; attach #1; CONNECTED u1 t0 tcp");
    program(5, 1, 7, 0, 10); /* of a target in use */
    ck_assert_uint_eq(w.logs, 1);
    order(SW_MSG_WRITE, 2, 0);
    EXPECT("WRITTEN u2 t0 0 !state");
    order(SW_MSG_WRITE, 1, 0);
    EXPECT("write #1 10");
    order(SW_MSG_WRITE, 1, 0);
    EXPECT("WRITTEN u1 t0 0 !state");
    sw_writer_handle(w.writer, sw_msg_new(SW_MSG_PHASE));
    order(SW_MSG_UPDATE_END, 1, 0);
    EXPECT("close #1");
    closed(1, 0);
    ck_assert(!busy(0) && !busy(1));
}
END_TEST

START_TEST(test_new_epochs)
{
    to_connected();
    targets(5, 2, 2, true); /* while the update runs: it keeps its own */
    EXPECT("");
    order(SW_MSG_WRITE, 1, 0);
    EXPECT("write #1 10; write #2 20");
    done(1, 0);
    done(2, 0);
    EXPECT("WRITTEN u1 t0 30");
    order(SW_MSG_UPDATE_END, 1, 0);
    targets(5, 3, 2, true);
    EXPECT("");
    targets(5, 4, 0, true); /* that engine is no target any more */
    EXPECT("close #2; close #1");
    closed(1, 0);
    closed(2, 0);
    targets(6, 5, 2, true);
    program(6, 5, 0, 0, 10);
    say_connect(2, 1, 0, 6, 5);
    EXPECT("open local#3");
    done(3, 0);
    done(3, 0);
    order(SW_MSG_UPDATE_END, 2, 0);
    w.words[0] = '\0';
    targets(7, 6, 2, true); /* tokens and programs of another layout */
    EXPECT("close #3");
}
END_TEST

START_TEST(test_coordinator_lost)
{
    ready(SW_WRITER_AUTO);
    say_connect(1, 1, 0, 5, 1);
    for (int i = 0; i < _i; i++) {
        done(1, 0);
        done(2, 0);
    }
    if (_i == 2)
        order(SW_MSG_WRITE, 1, 0);
    w.words[0] = '\0';
    sw_writer_reset(w.writer);
    EXPECT("close #2; close #1");
    ck_assert(busy(0));
    say_connect(1, 1, 0, 5, 1); /* its epochs are forgotten */
    EXPECT("CONNECTED u1 t0 ? !state");
    /* The next coordinator may use the same numbers. */
    targets(5, 1, 1, true);
    program(5, 1, 0, 0, 10);
    say_connect(1, 1, 0, 5, 1);
    EXPECT("open local#3");
    closed(1, 0);
    closed(2, 0);
    ck_assert(busy(0) && !busy(1));
    done(3, 0);
    done(3, 0);
    EXPECT("attach #3; CONNECTED u1 t0 local");
    order(SW_MSG_UPDATE_END, 1, 0);
    ck_assert(!busy(0));
}
END_TEST

START_TEST(test_close)
{
    to_connected();
    order(SW_MSG_WRITE, 1, 0);
    w.words[0] = '\0';
    sw_writer_close(w.writer, on_closed, NULL);
    EXPECT("close #2; close #1");
    say_connect(9, 1, 0, 5, 1); /* nothing new begins */
    EXPECT("");
    closed(2, 0);
    ck_assert_uint_eq(w.closed, 0);
    closed(1, 0);
    ck_assert_uint_eq(w.closed, 1);
}
END_TEST

START_TEST(test_close_idle)
{
    open_writer(SW_WRITER_AUTO);
    sw_writer_close(w.writer, on_closed, NULL);
    ck_assert_uint_eq(w.closed, 1);
}
END_TEST

START_TEST(test_status)
{
    json_t *s, *path;

    to_connected();
    s = sw_writer_status(w.writer);
    ck_assert_ptr_nonnull(s);
    ck_assert_uint_eq(json_array_size(json_object_get(s, "paths")), 2);
    path = json_array_get(json_object_get(s, "paths"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(path, "transport")), "local");
    ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(path, "why")), "same host"));
    path = json_array_get(json_object_get(s, "deliveries"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(path, "state")), "connected");
    json_decref(s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("writer");
    TCase *c = tcase_create("deliveries");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, test_local_kept_over_updates);
    tcase_add_test(c, test_tcp_is_shared_by_ranks);
    tcase_add_test(c, test_a_target_of_nobody);
    tcase_add_test(c, test_without_a_unix_socket);
    tcase_add_loop_test(c, test_falls_back_to_tcp, 0, 3);
    tcase_add_loop_test(c, test_no_transport, 0, 2);
    tcase_add_test(c, test_connect_refusals);
    tcase_add_loop_test(c, test_connect_fails, 0, 2);
    tcase_add_loop_test(c, test_write_fails, 0, 2);
    tcase_add_test(c, test_write_refused_in_the_call);
    tcase_add_loop_test(c, test_update_end_in_each_state, 0, 5);
    tcase_add_test(c, test_spoiled_buffer);
    tcase_add_loop_test(c, test_path_breaks_before_the_write, 0, 2);
    tcase_add_test(c, test_kept_path_breaks);
    tcase_add_test(c, test_orders_out_of_turn);
    tcase_add_test(c, test_new_epochs);
    tcase_add_loop_test(c, test_coordinator_lost, 0, 3);
    tcase_add_test(c, test_close);
    tcase_add_test(c, test_close_idle);
    tcase_add_test(c, test_status);
    suite_add_tcase(s, c);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
