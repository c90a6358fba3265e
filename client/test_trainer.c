/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations of a trainer with a trainerd that follows a script. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <shardwire/trainer.h>
#include "client/test_fake.h"
#include "client/trainer_impl.h"
#include "common/memory.h"

/* ---- trainerd's side ---- */

#define REPLICA 160u
#define DATA_BYTES 4096u

static float a_value[32];
static const uint16_t b_value[16] = {1, 2, 3};

/* a f32 [4, 8] and b bf16 [16] have a tile each, tied f32 [32] must equal a, unused u8 [5]. */
static struct sw_msg *program(uint64_t epoch)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_LOAD_PROGRAM);
    struct sw_load_program *p = &msg->u.load_program;

    p->layout_epoch = epoch;
    p->rank = 1;
    p->replica_bytes = REPLICA;
    p->total_templates = p->n_templates = 2;
    p->total_loads = p->n_loads = 2;
    p->total_checks = p->n_checks = 2;
    p->total_tiles = p->n_tiles = 2;
    p->templates = sw_arena_array(&msg->arena, 2, sizeof(*p->templates));
    p->loads = sw_arena_array(&msg->arena, 2, sizeof(*p->loads));
    p->checks = sw_arena_array(&msg->arena, 2, sizeof(*p->checks));
    p->tiles = sw_arena_array(&msg->arena, 2, sizeof(*p->tiles));
    p->templates[0] =
        (struct sw_load_template){SW_TRANSFORM_COPY, SW_F32, SW_F32, 2, {0}, {4, 8}, {32, 4}};
    p->templates[1] =
        (struct sw_load_template){SW_TRANSFORM_COPY, SW_BF16, SW_BF16, 1, {0}, {16}, {2}};
    p->loads[0] = (struct sw_load){0, 0, 0, 0};
    p->loads[1] = (struct sw_load){1, 1, 1, 0};
    p->checks[0] = (struct sw_alias_check){0, 0};
    p->checks[1] = (struct sw_alias_check){2, 0};
    p->tiles[0] = (struct sw_tile){0, 128};
    p->tiles[1] = (struct sw_tile){128, 32};
    return msg;
}

static int memory(void)
{
    struct sw_error e = {0};
    int fd = -1;

    ck_assert_msg(sw_memory_create("test", DATA_BYTES, false, 1, &fd, NULL, &e) == 0, "%s", e.text);
    return fd;
}

static struct sw_msg *buffer(uint32_t index, uint64_t generation)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_BUFFER);

    msg->u.buffer = (struct sw_buffer){.rank = 1,
        .index = index,
        .generation = generation,
        .data_bytes = DATA_BYTES,
        .counter_bytes = DATA_BYTES};
    return msg;
}

/* Sends a buffer; the test's side of it is mapped. */
static void send_buffer(
    struct fake *f, uint32_t index, uint64_t generation, char **data, uint64_t **counters)
{
    int fds[2] = {memory(), memory()};

    if (data) {
        ck_assert_int_eq(
            sw_memory_map(fds[0], DATA_BYTES, true, SW_FILL_LATER, 1, (void **)data, NULL), 0);
        ck_assert_int_eq(
            sw_memory_map(fds[1], DATA_BYTES, true, SW_FILL_LATER, 1, (void **)counters, NULL), 0);
    }
    fake_send_fds(f, buffer(index, generation), fds, 2);
    close(fds[0]);
    close(fds[1]);
}

static struct sw_msg *reply(
    enum sw_msg_kind kind, uint64_t version, uint64_t epoch, int code, const char *reason)
{
    struct sw_msg *msg = sw_msg_new(kind);

    msg->u.rank_reply = (struct sw_rank_reply){.rank = 1,
        .version = version,
        .layout_epoch = epoch,
        .error = {.code = code, .reason = reason}};
    return msg;
}

static struct sw_msg *abort_of(uint64_t version, const char *reason)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_ABORT);

    msg->u.abort = (struct sw_abort){.rank = 0, .version = version, .reason = reason};
    return msg;
}

static void open_and_declare(struct fake *f)
{
    struct sw_msg *msg;

    fake_greet(f);
    msg = fake_expect(f, SW_MSG_TRAINER_OPEN);
    ck_assert(msg->u.trainer_open.rank == 1 && msg->u.trainer_open.world == 2);
    ck_assert(sw_id_equal(&msg->u.trainer_open.trainer, &f->peer));
    sw_msg_free(msg);
    msg = fake_expect(f, SW_MSG_SOURCES);
    ck_assert(msg->u.sources.n == 4 && msg->u.sources.total == 4 && msg->u.sources.rank == 1);
    ck_assert_str_eq(msg->u.sources.items[2].name, "tied");
    ck_assert_uint_eq(msg->u.sources.items[0].box.len[1], 8); /* 0 meant the whole */
    sw_msg_free(msg);
    fake_send(f, reply(SW_MSG_SOURCES_DONE, 0, 0, 0, ""));
}

static void expect_begin(struct fake *f, uint64_t version)
{
    struct sw_msg *msg = fake_expect(f, SW_MSG_BEGIN);

    ck_assert_uint_eq(msg->u.begin.version, version);
    ck_assert_uint_eq(msg->u.begin.rank, 1);
    sw_msg_free(msg);
}

static void expect_abort(struct fake *f, uint64_t version)
{
    struct sw_msg *msg = fake_expect(f, SW_MSG_ABORT);

    ck_assert_uint_eq(msg->u.abort.version, version);
    ck_assert_uint_eq(msg->u.abort.rank, 1);
    sw_msg_free(msg);
}

/* BEGIN of 0, answered by version 7. */
static void grant_first(struct fake *f)
{
    expect_begin(f, 0);
    fake_send(f, program(3));
    send_buffer(f, 0, 1, NULL, NULL);
    fake_send(f, reply(SW_MSG_BEGIN_DONE, 7, 3, 0, ""));
}

static void end_first(struct fake *f)
{
    fake_skip(f, SW_MSG_END);
    fake_send(f, reply(SW_MSG_END_DONE, 7, 0, 0, ""));
}

/* ---- the trainer's side ---- */

static const struct sw_source_tensor tensors[4] = {
    {.name = "a", .dtype = SW_F32, .ndim = 2, .shape = {4, 8}},
    {.name = "b", .dtype = SW_BF16, .ndim = 1, .shape = {16}, .box_len = {16}},
    {.name = "tied", .dtype = SW_F32, .ndim = 1, .shape = {32}},
    {.name = "unused", .dtype = SW_U8, .ndim = 1, .shape = {5}},
};

static struct sw_error e;

static int try_open(const char *path, uint32_t timeout_ms, sw_trainer **t)
{
    const struct sw_trainer_options o = {.size = sizeof(o),
        .socket = path,
        .rank = 1,
        .world = 2,
        .threads = 2,
        .timeout_ms = timeout_ms};

    memset(&e, 0, sizeof(e));
    return sw_trainer_open(&o, t, &e);
}

static sw_trainer *open_trainer(const struct fake *f)
{
    sw_trainer *t = NULL;

    ck_assert_msg(try_open(f->path, FAKE_MS, &t) == 0, "%s", e.text);
    return t;
}

#define OK(call) ck_assert_msg((call) == 0, "%s", e.text)

static void fails(int rc, int code, const char *text)
{
    ck_assert_msg(rc == code, "%d instead of %d: %s", rc, code, e.text);
    ck_assert_int_eq(e.code, code);
    ck_assert_msg(strstr(e.text, text) != NULL, "'%s' is not in: %s", text, e.text);
}

static sw_trainer *declared_trainer(const struct fake *f)
{
    sw_trainer *t = open_trainer(f);

    OK(sw_trainer_declare(t, tensors, 4, &e));
    return t;
}

static sw_trainer *begun_trainer(const struct fake *f)
{
    sw_trainer *t = declared_trainer(f);
    uint64_t version = 0;

    OK(sw_trainer_begin(t, 0, FAKE_MS, &version, &e));
    ck_assert_uint_eq(version, 7);
    return t;
}

static int put(sw_trainer *t, uint32_t i)
{
    static const uint8_t unused[5];
    static const void *const values[4] = {a_value, b_value, a_value, unused};
    struct sw_tensor v = {.data = values[i], .dtype = tensors[i].dtype, .ndim = tensors[i].ndim};

    memcpy(v.shape, tensors[i].shape, sizeof(v.shape));
    return sw_trainer_put(t, tensors[i].name, &v, &e);
}

static void put_all(sw_trainer *t)
{
    for (uint32_t i = 0; i < 4; i++)
        OK(put(t, i));
}

static sw_trainer *staged_trainer(const struct fake *f)
{
    sw_trainer *t = begun_trainer(f);

    put_all(t);
    OK(sw_trainer_end(t, FAKE_MS, &e));
    return t;
}

static struct fake f;

/* ---- the whole way ---- */

static void send_result(uint64_t request, int code, const char *reason, uint32_t n)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_RESULT);

    msg->u.result = (struct sw_result){.request = request,
        .version = 7,
        .error = {.code = code, .reason = reason},
        .stage_ns = 11,
        .stage_bytes = 160,
        .n = n};
    msg->u.result.engines = sw_arena_array(&msg->arena, n, sizeof(struct sw_engine_result));
    for (uint32_t i = 0; i < n; i++)
        msg->u.result.engines[i] = (struct sw_engine_result){.engine = i ? "B" : "A",
            .live = !i,
            .version = i ? 6 : 7,
            .state = i ? "torn" : "serving",
            .reason = i ? "its lease ended" : "",
            .transport = "tcp",
            .pause_ns = 5,
            .bytes = 160};
    fake_send(&f, msg);
}

static uint64_t expect_publish(uint64_t version, bool wait_only)
{
    struct sw_msg *msg = fake_expect(&f, SW_MSG_PUBLISH);
    const uint64_t request = msg->u.publish.request;

    ck_assert_uint_eq(msg->u.publish.version, version);
    ck_assert_uint_eq(msg->u.publish.wait_only, wait_only);
    ck_assert_uint_ne(request, 0);
    sw_msg_free(msg);
    return request;
}

static void check_end(const struct sw_msg *msg, const char *data, const uint64_t *counters)
{
    const struct sw_end *end = &msg->u.end;

    ck_assert_uint_eq(end->version, 7);
    ck_assert_uint_eq(end->bytes, REPLICA);
    ck_assert_uint_eq(end->n, 2);
    ck_assert(end->digests[0].source == 0 && end->digests[1].source == 2);
    ck_assert(end->digests[0].low == end->digests[1].low);
    ck_assert(__atomic_load_n(&counters[0], __ATOMIC_ACQUIRE) == 128 && counters[1] == 32);
    ck_assert_mem_eq(data, a_value, sizeof(a_value));
    ck_assert_mem_eq(data + 128, b_value, sizeof(b_value));
}

static void whole_way(struct fake *fake)
{
    uint64_t *counters, request;
    struct sw_msg *msg;
    char *data;

    open_and_declare(fake);
    expect_begin(fake, 0);
    fake_send(fake, program(3));
    send_buffer(fake, 0, 1, &data, &counters);
    fake_send(fake, reply(SW_MSG_BEGIN_DONE, 7, 3, 0, ""));
    msg = fake_expect(fake, SW_MSG_END);
    check_end(msg, data, counters);
    sw_msg_free(msg);
    fake_send(fake, reply(SW_MSG_END_DONE, 7, 0, 0, ""));
    request = expect_publish(7, false);
    send_result(request + 100, 0, "", 1); /* nobody asked this */
    send_result(request, SW_ERR_PARTIAL, "1 of 2 engines", 2);
    request = expect_publish(6, true);
    send_result(request, 0, "", 1);
    expect_begin(fake, 9); /* nothing new: neither program nor buffer */
    memset(counters, 0, 16);
    fake_send(fake, reply(SW_MSG_BEGIN_DONE, 9, 3, 0, ""));
    msg = fake_expect(fake, SW_MSG_END);
    ck_assert_uint_eq(msg->u.end.version, 9);
    ck_assert_uint_eq(counters[0], 128);
    sw_msg_free(msg);
    fake_send(fake, reply(SW_MSG_END_DONE, 9, 0, 0, ""));
    expect_begin(fake, 0);
    send_buffer(fake, 0, 2, NULL, NULL); /* another memfd in place of the first */
    fake_send(fake, reply(SW_MSG_BEGIN_DONE, 10, 3, 0, ""));
    expect_abort(fake, 10); /* closed before it ended */
    ck_assert_uint_eq(counters[0], 128);
    fake_expect_end(fake);
    sw_memory_unmap(data, DATA_BYTES);
    sw_memory_unmap(counters, DATA_BYTES);
}

START_TEST(goes_the_whole_way)
{
    struct sw_publish_result r;
    struct sw_trainer_plan plan;
    sw_trainer *t;

    fake_start(&f, SW_ROLE_TRAINERD, whole_way, 0);
    t = declared_trainer(&f);
    ck_assert_int_eq(sw_trainer_plan(t, &plan, &e), SW_ERR_STATE);
    OK(sw_trainer_begin(t, 0, FAKE_MS, NULL, &e));
    OK(sw_trainer_plan(t, &plan, &e));
    ck_assert(plan.layout_epoch == 3 && plan.replica_bytes == REPLICA && plan.n_tensors == 4);
    ck_assert_uint_eq(plan.n_unused, 1);
    ck_assert_str_eq(sw_trainer_unused(t, 0), "unused");
    ck_assert_ptr_null(sw_trainer_unused(t, 1));
    put_all(t);
    OK(sw_trainer_end(t, FAKE_MS, &e));
    OK(sw_trainer_publish(t, 0, &e));
    for (int i = 0; i < 2; i++) { /* the same again */
        fails(sw_trainer_wait(t, 0, FAKE_MS, &r, &e), SW_ERR_PARTIAL, "1 of 2");
        ck_assert(r.version == 7 && r.n_engines == 2 && r.stage_bytes == 160);
        ck_assert(r.engines[0].live && !r.engines[1].live && r.engines[1].version == 6);
        ck_assert_str_eq(r.engines[1].reason, "its lease ended");
    }
    OK(sw_trainer_wait(t, 6, FAKE_MS, &r, &e));
    ck_assert_uint_eq(r.n_engines, 1);
    OK(sw_trainer_begin(t, 9, FAKE_MS, NULL, &e));
    put_all(t);
    OK(sw_trainer_end(t, FAKE_MS, &e));
    OK(sw_trainer_begin(t, 0, FAKE_MS, NULL, &e));
    OK(put(t, 0));
    sw_trainer_close(t);
    fake_stop(&f);
    sw_trainer_close(NULL);
}
END_TEST

/* ---- open ---- */

static void only_accept(struct fake *fake)
{
    fake_accept(fake);
    sem_wait(&fake->go);
}

static void only_greet(struct fake *fake)
{
    fake_greet(fake);
    fake_skip(fake, SW_MSG_TRAINER_OPEN);
}

static void greet_as_inferd(struct fake *fake)
{
    fake_greet(fake);
}

static void greet_other_group(struct fake *fake)
{
    fake->group = "other";
    fake_greet(fake);
}

static void greet_with_garbage(struct fake *fake)
{
    fake_accept(fake);
    fake_garbage(fake);
    sem_wait(&fake->go);
}

static void refuse_rank(struct fake *fake)
{
    fake_greet(fake);
    fake_skip(fake, SW_MSG_TRAINER_OPEN);
    fake_error(fake, SW_ERR_EXISTS, "trainer rank 1 is held by process 4711");
}

START_TEST(open_says_who_is_not_there)
{
    char path[200];
    sw_trainer *t = NULL;
    int fd;

    fails(try_open("/nonexistent/sock", 50, &t), SW_ERR_CLOSED,
        "is trainerd running? tried /nonexistent/sock");
    fake_start(&f, SW_ROLE_TRAINERD, only_greet, 0);
    snprintf(path, sizeof(path), "%s/file", f.dir);
    fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    fails(try_open(path, 50, &t), SW_ERR_CLOSED, "is trainerd running?");
    close(fd);
    unlink(path);
    memset(path, 'x', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    fails(try_open(path, 50, &t), SW_ERR_INVALID, "199 bytes");
    fails(try_open("", 50, &t), SW_ERR_INVALID, "empty");
    OK(try_open(f.path, FAKE_MS, &t));
    sw_trainer_close(t);
    fake_stop(&f);
    fails(try_open(f.path, 50, &t), SW_ERR_CLOSED, "is trainerd running?");
}
END_TEST

START_TEST(open_without_permission)
{
    sw_trainer *t = NULL;

    fake_start(&f, SW_ROLE_TRAINERD, only_greet, 0);
    ck_assert_int_eq(chmod(f.path, 0), 0);
    if (geteuid() == 0) { /* root may do everything */
        ck_assert_int_eq(chmod(f.dir, 0755), 0);
        ck_assert_int_eq(seteuid(65534), 0);
    }
    fails(try_open(f.path, 50, &t), SW_ERR_AUTH, "may not connect");
    ck_assert_int_eq(seteuid(getuid()), 0);
    ck_assert_int_eq(chmod(f.path, 0600), 0);
    OK(try_open(f.path, FAKE_MS, &t));
    sw_trainer_close(t);
    fake_stop(&f);
}
END_TEST

START_TEST(open_is_refused)
{
    static const struct {
        enum sw_role role;
        int code;
        void (*script)(struct fake *f);
        const char *text;
    } cases[] = {
        {SW_ROLE_INFERD, SW_ERR_AUTH, greet_as_inferd, "inferd answered"},
        {SW_ROLE_TRAINERD, SW_ERR_AUTH, greet_other_group, "group"},
        {SW_ROLE_TRAINERD, SW_ERR_PROTOCOL, greet_with_garbage, "trainerd"},
        {SW_ROLE_TRAINERD, SW_ERR_TIMEOUT, only_accept, "the handshake"},
    };
    sw_trainer *t = NULL;

    fake_start(&f, cases[_i].role, cases[_i].script, 0);
    fails(try_open(f.path, cases[_i].code == SW_ERR_TIMEOUT ? 20 : FAKE_MS, &t), cases[_i].code,
        cases[_i].text);
    ck_assert_ptr_null(t);
    sem_post(&f.go);
    fake_stop(&f);
}
END_TEST

START_TEST(open_checks_options)
{
    struct sw_trainer_options o = {.size = sizeof(o), .rank = 2, .world = 2};
    struct {
        struct sw_trainer_options o;
        int more;
    } newer = {.o = {.size = sizeof(newer), .socket = "/nonexistent/sock"}, .more = 1};
    sw_trainer *t = NULL;
    char label[SW_LABEL_MAX + 2];

    fails(sw_trainer_open(&o, &t, &e), SW_ERR_INVALID, "rank 2 of a world of 2");
    o.rank = 0;
    o.size = 0;
    fails(sw_trainer_open(&o, &t, &e), SW_ERR_INVALID, "options.size is 0");
    o.size = sizeof(o);
    memset(label, 'g', sizeof(label) - 1);
    label[SW_LABEL_MAX + 1] = '\0';
    o.group = label;
    fails(sw_trainer_open(&o, &t, &e), SW_ERR_INVALID, "group name");
    fails(sw_trainer_open(&newer.o, &t, &e), SW_ERR_UNSUPPORTED, "newer");
    newer.more = 0;
    fails(sw_trainer_open(&newer.o, &t, &e), SW_ERR_CLOSED, "is trainerd running");
    fails(sw_trainer_open(NULL, &t, &e), SW_ERR_INVALID, "NULL");
    ck_assert_ptr_null(t);
}
END_TEST

START_TEST(the_rank_is_held)
{
    sw_trainer *t;

    fake_start(&f, SW_ROLE_TRAINERD, refuse_rank, 0);
    t = open_trainer(&f);
    fails(sw_trainer_declare(t, tensors, 4, &e), SW_ERR_EXISTS, "process 4711");
    fails(sw_trainer_declare(t, tensors, 4, &e), SW_ERR_CLOSED, "process 4711");
    fails(sw_trainer_begin(t, 0, 0, NULL, &e), SW_ERR_CLOSED, "open another one");
    sw_trainer_close(t);
    fake_stop(&f);
}
END_TEST

/* ---- declare ---- */

static void declare_later(struct fake *fake)
{
    open_and_declare(fake);
    fake_skip(fake, SW_MSG_SOURCES);
    fake_send(fake, reply(SW_MSG_SOURCES_DONE, 0, 0, SW_ERR_PLAN, "two ranks hold a"));
    fake_expect_end(fake);
}

START_TEST(declarations_are_checked)
{
    static const struct {
        struct sw_source_tensor t;
        int code;
        const char *text;
    } cases[] = {
        {{.name = NULL, .dtype = SW_U8}, SW_ERR_INVALID, "has no name"},
        {{.name = "", .dtype = SW_U8}, SW_ERR_INVALID, "has no name"},
        {{.name = "\xff", .dtype = SW_U8}, SW_ERR_INVALID, "UTF-8"},
        {{.name = "b", .dtype = SW_U8}, SW_ERR_EXISTS, "declared twice"},
        {{.name = "x", .dtype = 77}, SW_ERR_INVALID, "dtype 77"},
        {{.name = "x", .dtype = SW_U8, .ndim = 7}, SW_ERR_LIMIT, "7 dimensions"},
        {{.name = "x", .dtype = SW_U8, .ndim = 1, .shape = {1ull << 47}}, SW_ERR_LIMIT, "bytes"},
        {{.name = "x", .dtype = SW_U8, .ndim = 2, .shape = {1ull << 40, 1ull << 40}}, SW_ERR_LIMIT,
            "bytes"},
        {{.name = "x", .dtype = SW_F4, .ndim = 1, .shape = {3}}, SW_ERR_LIMIT, "middle of a byte"},
        {{.name = "x", .dtype = SW_U8, .ndim = 1, .shape = {4}, .box_lo = {2}, .box_len = {3}},
            SW_ERR_INVALID, "leaves dimension 0"},
        {{.name = "x", .dtype = SW_U8, .ndim = 1, .shape = {4}, .box_lo = {2}}, SW_ERR_INVALID,
            "leaves dimension 0"},
        {{.name = "x",
             .dtype = SW_U8,
             .ndim = 1,
             .shape = {4},
             .box_lo = {UINT64_MAX},
             .box_len = {2}},
            SW_ERR_INVALID, "leaves dimension 0"},
        {{.name = "x", .dtype = SW_F4, .ndim = 1, .shape = {8}, .box_lo = {1}, .box_len = {2}},
            SW_ERR_INVALID, "middle of a byte"},
    };
    struct sw_source_tensor two[2] = {tensors[1]};
    char name[SW_NAME_MAX + 2];
    sw_trainer *t;

    fake_start(&f, SW_ROLE_TRAINERD, declare_later, 0);
    t = open_trainer(&f);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        two[1] = cases[i].t;
        fails(sw_trainer_declare(t, two, 2, &e), cases[i].code, cases[i].text);
    }
    memset(name, 'n', sizeof(name) - 1);
    name[SW_NAME_MAX + 1] = '\0';
    two[1] = (struct sw_source_tensor){.name = name, .dtype = SW_U8};
    fails(sw_trainer_declare(t, two, 2, &e), SW_ERR_LIMIT, "512 bytes");
    fails(sw_trainer_declare(t, NULL, 2, &e), SW_ERR_INVALID, "NULL");
    fails(sw_trainer_declare(t, two, SW_TENSORS_MAX + 1ull, &e), SW_ERR_LIMIT, "1000000");
    OK(sw_trainer_declare(t, tensors, 4, &e)); /* none of these reached trainerd */
    fails(sw_trainer_declare(t, tensors, 4, &e), SW_ERR_PLAN, "two ranks hold a");
    fails(sw_trainer_begin(t, 0, 0, NULL, &e), SW_ERR_STATE, "no tensors are declared");
    sw_trainer_close(t);
    fake_stop(&f);
}
END_TEST

#define LONG_LIST 10000u

static void take_long_list(struct fake *fake)
{
    uint32_t have = 0;

    fake_greet(fake);
    fake_skip(fake, SW_MSG_TRAINER_OPEN);
    while (have < LONG_LIST) {
        struct sw_msg *msg = fake_expect(fake, SW_MSG_SOURCES);

        ck_assert_uint_eq(msg->u.sources.first, have);
        ck_assert_uint_eq(msg->u.sources.total, LONG_LIST);
        ck_assert_uint_gt(msg->u.sources.n, 0);
        have += msg->u.sources.n;
        sw_msg_free(msg);
    }
    fake_send(fake, reply(SW_MSG_SOURCES_DONE, 0, 0, 0, ""));
    fake_expect_end(fake);
}

START_TEST(long_declarations_come_in_parts)
{
    struct sw_source_tensor *many = calloc(LONG_LIST, sizeof(*many));
    char(*names)[SW_NAME_MAX + 1] = calloc(LONG_LIST, sizeof(*names));
    sw_trainer *t;

    for (uint32_t i = 0; i < LONG_LIST; i++) {
        memset(names[i], 'n', i % 2 ? SW_NAME_MAX : 20);
        names[i][snprintf(names[i], 20, "%u", i)] = '.';
        many[i] = (struct sw_source_tensor){
            .name = names[i], .dtype = SW_F32, .ndim = 6, .shape = {1, 2, 3, 4, 5, 6}};
    }
    fake_start(&f, SW_ROLE_TRAINERD, take_long_list, 0);
    t = open_trainer(&f);
    OK(sw_trainer_declare(t, many, LONG_LIST, &e));
    sw_trainer_close(t);
    fake_stop(&f);
    free(names);
    free(many);
}
END_TEST

/* trainerd stops: nothing is read, or nothing is answered. */
static void never_answer(struct fake *fake)
{
    fake_greet(fake);
    sem_wait(&fake->go);
}

START_TEST(declare_times_out)
{
    sw_trainer *t = NULL;

    fake_start(&f, SW_ROLE_TRAINERD, never_answer, 0);
    OK(try_open(f.path, 1000, &t));
    fails(sw_trainer_declare(t, tensors, 4, &e), SW_ERR_TIMEOUT, "the answer to declare");
    fails(sw_trainer_declare(t, tensors, 4, &e), SW_ERR_CLOSED, "declare was not finished");
    sw_trainer_close(t);
    sem_post(&f.go);
    fake_stop(&f);
}
END_TEST

/* ---- put ---- */

static void until_close(struct fake *fake)
{
    open_and_declare(fake);
    grant_first(fake);
    expect_abort(fake, 7);
    fake_expect_end(fake);
}

START_TEST(puts_are_checked)
{
    struct sw_tensor v = {.data = a_value, .dtype = SW_F32, .ndim = 2, .shape = {4, 8}};
    sw_trainer *t;

    fake_start(&f, SW_ROLE_TRAINERD, until_close, 0);
    t = declared_trainer(&f);
    fails(put(t, 0), SW_ERR_STATE, "tensor a: no version is begun");
    OK(sw_trainer_begin(t, 0, FAKE_MS, NULL, &e));
    fails(sw_trainer_put(t, "x", &v, &e), SW_ERR_NOT_FOUND, "tensor x was not declared");
    fails(sw_trainer_put(t, NULL, &v, &e), SW_ERR_INVALID, "name");
    fails(sw_trainer_put(t, "a", NULL, &e), SW_ERR_INVALID, "value");
    v.device = SW_DEVICE_CUDA;
    fails(sw_trainer_put(t, "a", &v, &e), SW_ERR_UNSUPPORTED, "tensor a");
    v.device = SW_DEVICE_CPU;
    v.shape[0] = 3;
    fails(sw_trainer_put(t, "a", &v, &e), SW_ERR_INVALID, "tensor a");
    OK(put(t, 0));
    fails(put(t, 0), SW_ERR_EXISTS, "tensor a was put before");
    fails(sw_trainer_end(t, FAKE_MS, &e), SW_ERR_STATE, "2 of 3 tensors are missing: b, tied;");
    fails(sw_trainer_declare(t, tensors, 4, &e), SW_ERR_STATE, "version 7 is begun");
    fails(sw_trainer_begin(t, 8, 0, NULL, &e), SW_ERR_STATE, "version 7 is begun");
    OK(put(t, 1));
    OK(sw_trainer_abort(t, "enough", &e));
    OK(sw_trainer_abort(t, "nothing to abort", &e));
    fails(put(t, 2), SW_ERR_STATE, "no version is begun");
    fails(sw_trainer_end(t, FAKE_MS, &e), SW_ERR_STATE, "no version is begun");
    sw_trainer_close(t);
    fake_stop(&f);
}
END_TEST

/* ---- trainerd goes away ---- */

/* After so many steps. How it goes: it closes, says an error first, or talks nonsense. */
static void leave(struct fake *fake)
{
    if (fake->arg % 10 == 1)
        fake_error(fake, SW_ERR_LIMIT, "somebody said stop");
    else if (fake->arg % 10 == 2)
        fake_garbage(fake);
    else if (fake->arg % 10 == 3)
        fake_send(fake, sw_msg_new(SW_MSG_WRITE));
    fake_hang_up(fake);
    sem_post(&fake->gone);
}

static void leave_at(struct fake *fake)
{
    const int step = fake->arg / 10;

    fake_greet(fake);
    fake_skip(fake, SW_MSG_TRAINER_OPEN);
    fake_skip(fake, SW_MSG_SOURCES);
    if (step > 0)
        fake_send(fake, reply(SW_MSG_SOURCES_DONE, 0, 0, 0, ""));
    if (step == 1)
        fake_skip(fake, SW_MSG_BEGIN);
    else if (step > 1)
        grant_first(fake);
    if (step == 2)
        sem_wait(&fake->go); /* between two puts */
    if (step == 3)
        fake_skip(fake, SW_MSG_END);
    else if (step > 3)
        end_first(fake);
    if (step == 5)
        fake_skip(fake, SW_MSG_PUBLISH);
    leave(fake);
}

/* Goes on until something fails, and returns what. */
static int go_on(sw_trainer *t, int step)
{
    struct sw_publish_result r;
    int rc = sw_trainer_declare(t, tensors, 4, &e);

    if (!rc)
        rc = sw_trainer_begin(t, 0, FAKE_MS, NULL, &e);
    for (uint32_t i = 0; i < 4 && !rc; i++) {
        rc = put(t, i);
        if (step == 2 && i == 1) {
            sem_post(&f.go);
            sem_wait(&f.gone);
        }
    }
    if (!rc)
        rc = sw_trainer_end(t, FAKE_MS, &e);
    if (step == 4)
        sem_wait(&f.gone);
    if (!rc)
        rc = sw_trainer_publish(t, 0, &e);
    if (!rc)
        rc = sw_trainer_wait(t, 0, FAKE_MS, &r, &e);
    return rc;
}

START_TEST(trainerd_goes_away)
{
    const int step = _i / 4, how = _i % 4;
    sw_trainer *t;
    int rc;

    fake_start(&f, SW_ROLE_TRAINERD, leave_at, step * 10 + how);
    t = open_trainer(&f);
    rc = go_on(t, step);
    /* The first call that finds it out tells the cause; an ERROR's own code means something only
     * before the first declaration is done. */
    if (how == 1)
        fails(rc, step ? SW_ERR_CLOSED : SW_ERR_LIMIT, "somebody said stop");
    else if (how == 0)
        ck_assert_msg(rc == SW_ERR_CLOSED || rc == SW_ERR_IO, "%d %s", rc, e.text);
    else
        ck_assert_msg(
            rc == SW_ERR_PROTOCOL || rc == SW_ERR_CLOSED || rc == SW_ERR_IO, "%d %s", rc, e.text);
    fails(sw_trainer_begin(t, 0, 0, NULL, &e), SW_ERR_CLOSED, "open another one");
    fails(sw_trainer_end(t, 0, &e), SW_ERR_CLOSED, "");
    fails(sw_trainer_abort(t, "x", &e), SW_ERR_CLOSED, "");
    fails(sw_trainer_publish(t, 0, &e), SW_ERR_CLOSED, "");
    fails(sw_trainer_wait(t, 0, 0, NULL, &e), SW_ERR_CLOSED, "");
    fails(sw_trainer_declare(t, tensors, 4, &e), SW_ERR_CLOSED, "");
    ck_assert_int_lt(put(t, 3), 0);
    sw_trainer_close(t);
    fake_stop(&f);
}
END_TEST

/* ---- deadlines ---- */

/* The answer to a begin that was given up comes while nothing is asked. */
static void late_grant(struct fake *fake)
{
    open_and_declare(fake);
    expect_begin(fake, fake->arg ? 5 : 0);
    expect_abort(fake, fake->arg ? 5 : 0); /* its deadline passed */
    fake_send(fake, program(3));
    send_buffer(fake, 0, 1, NULL, NULL);
    fake_send(fake, reply(SW_MSG_BEGIN_DONE, 5, 3, 0, ""));
    sem_post(&fake->gone);
    expect_abort(fake, 5); /* nobody shall wait for this rank */
    expect_begin(fake, fake->arg ? 7 : 0);
    fake_send(fake, reply(SW_MSG_BEGIN_DONE, 5, 3, SW_ERR_ABORTED, "late"));
    fake_send(fake, abort_of(5, "late"));
    fake_send(fake, reply(SW_MSG_BEGIN_DONE, 7, 3, 0, "")); /* program and buffer are known */
    fake_send(fake, abort_of(5, "late"));
    fake_send(fake, reply(SW_MSG_END_DONE, 5, 0, SW_ERR_ABORTED, "late"));
    end_first(fake);
    fake_expect_end(fake);
}

START_TEST(a_late_grant_confuses_nobody)
{
    sw_trainer *t;

    fake_start(&f, SW_ROLE_TRAINERD, late_grant, _i);
    t = declared_trainer(&f);
    fails(sw_trainer_begin(t, _i ? 5 : 0, 20, NULL, &e), SW_ERR_TIMEOUT,
        _i ? "begin of version 5" : "begin of the next version");
    sem_wait(&f.gone);
    OK(sw_trainer_begin(t, _i ? 7 : 0, FAKE_MS, NULL, &e));
    put_all(t);
    OK(sw_trainer_end(t, FAKE_MS, &e));
    sw_trainer_close(t);
    fake_stop(&f);
}
END_TEST

/* Two begins of the next version; the first one's answer comes when the second waits. */
static void crossed(struct fake *fake)
{
    open_and_declare(fake);
    expect_begin(fake, 0);
    expect_abort(fake, 0);
    expect_begin(fake, 0);
    if (fake->arg == 0) { /* it says that the first was given up */
        fake_send(fake, reply(SW_MSG_BEGIN_DONE, 0, 0, SW_ERR_ABORTED, "given up"));
        fake_send(fake, program(3));
        send_buffer(fake, 0, 1, NULL, NULL);
        fake_send(fake, reply(SW_MSG_BEGIN_DONE, 7, 3, 0, ""));
        end_first(fake);
    } else { /* the first was granted before ABORT was read */
        fake_send(fake, program(3));
        send_buffer(fake, 0, 1, NULL, NULL);
        fake_send(fake, reply(SW_MSG_BEGIN_DONE, 7, 3, 0, ""));
        sem_wait(&fake->go);
        fake_send(fake, reply(SW_MSG_BEGIN_DONE, 8, 3, 0, ""));
        sem_post(&fake->gone);
        expect_abort(fake, 8);
        expect_abort(fake, 7);
    }
    fake_expect_end(fake);
}

START_TEST(two_begins_of_the_next_version)
{
    sw_trainer *t;

    fake_start(&f, SW_ROLE_TRAINERD, crossed, _i);
    t = declared_trainer(&f);
    fails(sw_trainer_begin(t, 0, 20, NULL, &e), SW_ERR_TIMEOUT, "waited for begin");
    OK(sw_trainer_begin(t, 0, FAKE_MS, NULL, &e));
    sem_post(&f.go);
    if (_i) {
        sem_wait(&f.gone);
        fails(put(t, 0), SW_ERR_ABORTED, "another version");
        fails(sw_trainer_end(t, FAKE_MS, &e), SW_ERR_ABORTED, "another version");
        fails(sw_trainer_end(t, FAKE_MS, &e), SW_ERR_STATE, "no version is begun");
    } else {
        put_all(t);
        OK(sw_trainer_end(t, FAKE_MS, &e));
    }
    sw_trainer_close(t);
    fake_stop(&f);
}
END_TEST

static void slow_end(struct fake *fake)
{
    uint64_t request;

    open_and_declare(fake);
    grant_first(fake);
    fake_skip(fake, SW_MSG_END);
    sem_wait(&fake->go);
    fake_send(fake, reply(SW_MSG_END_DONE, 7, 0, SW_ERR_STATE, "tile of b is not complete"));
    end_first(fake);
    request = expect_publish(5, true);
    sem_wait(&fake->go);
    send_result(request, SW_ERR_NOT_FOUND, "version 5 was never begun", 0);
    request = expect_publish(5, true);
    send_result(request, 0, "", 1);
    fake_expect_end(fake);
}

START_TEST(end_and_wait_can_be_called_again)
{
    sw_trainer *t;

    fake_start(&f, SW_ROLE_TRAINERD, slow_end, 0);
    t = begun_trainer(&f);
    put_all(t);
    fails(sw_trainer_end(t, 20, &e), SW_ERR_TIMEOUT, "the other trainer ranks to end version 7");
    fails(put(t, 0), SW_ERR_STATE, "end was called");
    fails(sw_trainer_begin(t, 8, 0, NULL, &e), SW_ERR_STATE, "version 7 is begun");
    sem_post(&f.go);
    fails(sw_trainer_end(t, FAKE_MS, &e), SW_ERR_STATE, "tile of b is not complete");
    fails(put(t, 0), SW_ERR_EXISTS, "tensor a");
    OK(sw_trainer_end(t, FAKE_MS, &e));
    fails(sw_trainer_wait(t, 5, 20, NULL, &e), SW_ERR_TIMEOUT, "live at version 5");
    sem_post(&f.go);
    fails(sw_trainer_wait(t, 5, FAKE_MS, NULL, &e), SW_ERR_NOT_FOUND, "never begun");
    OK(sw_trainer_wait(t, 5, FAKE_MS, NULL, &e));
    sw_trainer_close(t);
    fake_stop(&f);
}
END_TEST

/* ---- refusals and aborts ---- */

static void refuse_begin(struct fake *fake)
{
    open_and_declare(fake);
    expect_begin(fake, 3);
    fake_send(fake, reply(SW_MSG_BEGIN_DONE, 3, 0, SW_ERR_VERSION, "3 is not greater than 6"));
    expect_begin(fake, 0);
    fake_send(fake, reply(SW_MSG_BEGIN_DONE, 0, 0, SW_ERR_TIMEOUT, "no engine is complete"));
    expect_begin(fake, 4);
    fake_send(fake, abort_of(3, "an old one"));
    fake_send(fake, abort_of(4, "rank 0 gave up"));
    expect_begin(fake, 0);
    fake_send(fake, abort_of(7, "rank 0 gave up again"));
    fake_send(fake, program(3));
    send_buffer(fake, 0, 1, NULL, NULL);
    fake_send(fake, reply(SW_MSG_BEGIN_DONE, 7, 3, 0, ""));
    fake_expect_end(fake);
}

START_TEST(begin_is_refused)
{
    uint64_t version = 1;
    sw_trainer *t;

    fake_start(&f, SW_ROLE_TRAINERD, refuse_begin, 0);
    t = open_trainer(&f);
    fails(sw_trainer_begin(t, 0, 0, NULL, &e), SW_ERR_STATE, "no tensors are declared");
    OK(sw_trainer_declare(t, tensors, 4, &e));
    fails(sw_trainer_begin(t, 3, FAKE_MS, &version, &e), SW_ERR_VERSION, "greater than 6");
    fails(sw_trainer_begin(t, 0, FAKE_MS, &version, &e), SW_ERR_TIMEOUT, "no engine");
    fails(sw_trainer_begin(t, 4, FAKE_MS, &version, &e), SW_ERR_ABORTED, "rank 0 gave up");
    fails(sw_trainer_begin(t, 0, FAKE_MS, &version, &e), SW_ERR_ABORTED, "gave up again");
    ck_assert_uint_eq(version, 1);
    fails(put(t, 0), SW_ERR_STATE, "no version");
    sw_trainer_close(t);
    fake_stop(&f);
}
END_TEST

/* ABORT comes after: begin, one put, END, END_DONE, END_DONE (and begin goes on), PUBLISH. */
static void abort_at(struct fake *fake)
{
    open_and_declare(fake);
    grant_first(fake);
    if (fake->arg == 1)
        sem_wait(&fake->go);
    if (fake->arg == 2)
        fake_skip(fake, SW_MSG_END);
    if (fake->arg > 2)
        end_first(fake);
    if (fake->arg == 5)
        fake_skip(fake, SW_MSG_PUBLISH);
    fake_send(fake, abort_of(6, "another version"));
    fake_send(fake, abort_of(7, "alias sources differ"));
    sem_post(&fake->gone);
    if (fake->arg < 3)
        expect_abort(fake, 7); /* from now on nobody writes here */
    expect_begin(fake, 8);
    fake_send(fake, reply(SW_MSG_BEGIN_DONE, 8, 3, 0, ""));
    expect_abort(fake, 8);
    fake_expect_end(fake);
}

/* Puts look at the channel from time to time only: until the next one does. */
static void next_look(void)
{
    const uint64_t until = sw_clock_ns() + TRAINER_LOOK_NS;

    while (sw_clock_ns() <= until)
        ;
}

static void meet_abort(sw_trainer *t, int when)
{
    const char *why = "version 7 was aborted: alias sources differ";

    if (when == 0) {
        sem_wait(&f.gone);
        fails(put(t, 0), SW_ERR_ABORTED, why);
        fails(put(t, 1), SW_ERR_ABORTED, why);
        fails(sw_trainer_begin(t, 8, 0, NULL, &e), SW_ERR_ABORTED, why);
        return;
    }
    OK(put(t, 0));
    if (when == 1) {
        sem_post(&f.go);
        sem_wait(&f.gone);
        next_look();
        fails(put(t, 1), SW_ERR_ABORTED, why);
        OK(sw_trainer_abort(t, "no more", &e)); /* which is what was wanted */
        return;
    }
    for (uint32_t i = 1; i < 4; i++)
        OK(put(t, i));
    if (when == 2) {
        fails(sw_trainer_end(t, FAKE_MS, &e), SW_ERR_ABORTED, why);
        return;
    }
    OK(sw_trainer_end(t, FAKE_MS, &e));
    if (when == 5) {
        OK(sw_trainer_publish(t, 0, &e));
        fails(sw_trainer_wait(t, 0, FAKE_MS, NULL, &e), SW_ERR_ABORTED, why);
        return;
    }
    sem_wait(&f.gone);
    if (when == 3)
        fails(sw_trainer_publish(t, 0, &e), SW_ERR_ABORTED, why);
}

START_TEST(aborted_by_others)
{
    sw_trainer *t;

    fake_start(&f, SW_ROLE_TRAINERD, abort_at, _i);
    t = begun_trainer(&f);
    meet_abort(t, _i);
    fails(put(t, 2), SW_ERR_STATE, _i == 4 ? "" : "no version is begun");
    OK(sw_trainer_begin(t, 8, FAKE_MS, NULL, &e)); /* the session goes on */
    OK(put(t, 2));
    OK(sw_trainer_abort(t, "enough", &e));
    sw_trainer_close(t);
    fake_stop(&f);
}
END_TEST

static void own_aborts(struct fake *fake)
{
    uint64_t request;

    open_and_declare(fake);
    grant_first(fake);
    end_first(fake);
    expect_abort(fake, 7);
    expect_begin(fake, 8);
    fake_send(fake, reply(SW_MSG_BEGIN_DONE, 8, 3, 0, ""));
    fake_skip(fake, SW_MSG_END);
    fake_send(fake, reply(SW_MSG_END_DONE, 8, 0, SW_ERR_ABORTED, "a and tied differ"));
    expect_begin(fake, 9);
    fake_send(fake, reply(SW_MSG_BEGIN_DONE, 9, 3, 0, ""));
    fake_skip(fake, SW_MSG_END);
    fake_send(fake, reply(SW_MSG_END_DONE, 9, 0, 0, ""));
    request = expect_publish(9, false);
    send_result(request, SW_ERR_STATE, "no complete engine", 0);
    fake_expect_end(fake);
}

START_TEST(aborted_by_ourselves)
{
    struct sw_publish_result r = {.version = 1};
    sw_trainer *t;

    fake_start(&f, SW_ROLE_TRAINERD, own_aborts, 0);
    t = staged_trainer(&f);
    OK(sw_trainer_abort(t, NULL, &e)); /* between end and publish */
    OK(sw_trainer_begin(t, 8, FAKE_MS, NULL, &e));
    put_all(t);
    fails(sw_trainer_end(t, FAKE_MS, &e), SW_ERR_ABORTED, "a and tied differ");
    fails(sw_trainer_end(t, FAKE_MS, &e), SW_ERR_STATE, "no version is begun");
    OK(sw_trainer_begin(t, 9, FAKE_MS, NULL, &e));
    put_all(t);
    OK(sw_trainer_end(t, FAKE_MS, &e));
    OK(sw_trainer_publish(t, 0, &e));
    fails(sw_trainer_abort(t, "too late", &e), SW_ERR_STATE, "being published");
    fails(sw_trainer_wait(t, 0, FAKE_MS, &r, &e), SW_ERR_STATE, "no complete engine");
    ck_assert(r.version == 0 && r.n_engines == 0);
    sw_trainer_close(t);
    fake_stop(&f);
}
END_TEST

/* ---- wrong buffers and programs ---- */

static int unsealed(void)
{
    const int fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    ck_assert_int_eq(ftruncate(fd, DATA_BYTES), 0);
    return fd;
}

static int small(void)
{
    const int fd = memfd_create("small", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    ck_assert_int_eq(ftruncate(fd, 100), 0);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    return fd;
}

static int readonly(void)
{
    const int fd = memory();
    int out = -1;

    ck_assert_int_eq(sw_memory_reopen_readonly(fd, &out, NULL), 0);
    close(fd);
    return out;
}

static int no_memory(void)
{
    return open("/dev/null", O_RDWR | O_CLOEXEC);
}

static int (*const makers[])(void) = {unsealed, small, readonly, no_memory};

/* Sends a begin whose buffer or program is wrong; what the client says of it is *text. */
static void send_wrong(struct fake *fake, int what)
{
    int fds[3] = {memory(), memory(), memory()};
    struct sw_msg *msg = buffer(0, 1), *p = program(3);
    uint32_t n = 2;

    if (what < 8) {
        close(fds[what % 2]);
        fds[what % 2] = makers[what / 2]();
    }
    n = what == 8 ? 1 : what == 9 ? 3 : 2;
    if (what == 10)
        msg->u.buffer.data_bytes = REPLICA - 1;
    if (what == 11)
        msg->u.buffer.counter_bytes = 8;
    if (what == 12)
        msg->u.buffer.index = 1; /* and 0 is to be used */
    if (what == 13)
        msg->u.buffer.rank = 0;
    if (what == 14)
        p->u.load_program.rank = 0;
    if (what == 15)
        p->u.load_program.layout_epoch = 2;
    if (what == 16)
        p->u.load_program.loads[1].source = 3;
    if (what == 17)
        p->u.load_program.first_load = p->u.load_program.n_loads = 1;
    if (what == 18)
        p->u.load_program.n_tiles = 1; /* and the rest never comes */
    if (what == 19)
        msg->u.buffer.data_bytes = 2 * DATA_BYTES;
    if (what == 20)
        msg->u.buffer.index = 2;
    fake_send(fake, p);
    if (what == 14 || what == 17) /* nobody hears it any more */
        sw_msg_free(msg);
    else
        fake_send_fds(fake, msg, fds, n);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
}
#define WRONG_COUNT 21

/* These end the session; the others the version. */
static bool ends_session(int what)
{
    return what == 8 || what == 9 || what == 13 || what == 14 || what == 17 || what == 20;
}

static void wrong_begin(struct fake *fake)
{
    open_and_declare(fake);
    expect_begin(fake, 0);
    send_wrong(fake, fake->arg);
    if (!ends_session(fake->arg)) {
        fake_send(fake, reply(SW_MSG_BEGIN_DONE, 7, 3, 0, ""));
        expect_abort(fake, 7);
        expect_begin(fake, 8);
        fake_send(fake, program(4));
        send_buffer(fake, 0, 2, NULL, NULL);
        fake_send(fake, reply(SW_MSG_BEGIN_DONE, 8, 4, 0, ""));
        expect_abort(fake, 8);
    }
    fake_expect_end(fake);
}

START_TEST(wrong_buffers_and_programs)
{
    sw_trainer *t;
    int rc;

    fake_start(&f, SW_ROLE_TRAINERD, wrong_begin, _i);
    t = declared_trainer(&f);
    rc = sw_trainer_begin(t, 0, FAKE_MS, NULL, &e);
    ck_assert_msg(
        rc < 0 && rc != SW_ERR_TIMEOUT && rc != SW_ERR_CLOSED, "%d: %d %s", _i, rc, e.text);
    ck_assert_int_lt(put(t, 0), 0);
    rc = sw_trainer_begin(t, 8, FAKE_MS, NULL, &e);
    if (ends_session(_i)) {
        fails(rc, SW_ERR_CLOSED, "open another one");
    } else {
        OK(rc);
        put_all(t);
        OK(sw_trainer_abort(t, "enough", &e));
    }
    sw_trainer_close(t);
    fake_stop(&f);
}
END_TEST

/* A buffer that comes while it is staged into is no buffer to map anew. */
static void buffer_too_late(struct fake *fake)
{
    open_and_declare(fake);
    grant_first(fake);
    if (fake->arg)
        fake_send(fake, program(3));
    else
        send_buffer(fake, 0, 2, NULL, NULL);
    sem_post(&fake->gone);
    fake_expect_end(fake);
}

START_TEST(nothing_changes_under_puts)
{
    sw_trainer *t;

    fake_start(&f, SW_ROLE_TRAINERD, buffer_too_late, _i);
    t = begun_trainer(&f);
    sem_wait(&f.gone);
    fails(put(t, 0), SW_ERR_PROTOCOL, "while version 7 is staged");
    fails(sw_trainer_end(t, FAKE_MS, &e), SW_ERR_CLOSED, "while version 7 is staged");
    sw_trainer_close(t);
    fake_stop(&f);
}
END_TEST

/* ---- puts from several threads, while an ABORT comes ---- */

static void abort_midway(struct fake *fake)
{
    open_and_declare(fake);
    grant_first(fake);
    sem_wait(&fake->go);
    fake_send(fake, abort_of(7, "midway"));
    expect_abort(fake, 7);
    fake_expect_end(fake);
}

static void *put_until_aborted(void *arg)
{
    struct sw_tensor v = {.data = a_value, .dtype = SW_F32, .ndim = 2, .shape = {4, 8}};
    struct sw_error mine;
    int rc;

    do { /* by name, since the same tensor can be put only once */
        rc = sw_trainer_put(arg, "a", &v, &mine);
        sem_post(&f.go);
    } while (rc == 0 || rc == SW_ERR_EXISTS);
    ck_assert_int_eq(rc, SW_ERR_ABORTED);
    return NULL;
}

START_TEST(puts_of_many_threads_hear_of_an_abort)
{
    pthread_t threads[4];
    sw_trainer *t;

    fake_start(&f, SW_ROLE_TRAINERD, abort_midway, 0);
    t = begun_trainer(&f);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, put_until_aborted, t), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    fails(sw_trainer_end(t, FAKE_MS, &e), SW_ERR_ABORTED, "midway");
    sw_trainer_close(t);
    fake_stop(&f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("trainer");
    TCase *c = tcase_create("session");
    SRunner *runner;
    int failed;

    for (int i = 0; i < 32; i++)
        a_value[i] = (float)i;
    tcase_set_timeout(c, 60);
    tcase_add_test(c, goes_the_whole_way);
    tcase_add_test(c, open_says_who_is_not_there);
    tcase_add_test(c, open_without_permission);
    tcase_add_loop_test(c, open_is_refused, 0, 4);
    tcase_add_test(c, open_checks_options);
    tcase_add_test(c, the_rank_is_held);
    tcase_add_test(c, declarations_are_checked);
    tcase_add_test(c, long_declarations_come_in_parts);
    tcase_add_test(c, declare_times_out);
    tcase_add_test(c, puts_are_checked);
    tcase_add_loop_test(c, trainerd_goes_away, 0, 24);
    tcase_add_loop_test(c, a_late_grant_confuses_nobody, 0, 2);
    tcase_add_loop_test(c, two_begins_of_the_next_version, 0, 2);
    tcase_add_test(c, end_and_wait_can_be_called_again);
    tcase_add_test(c, begin_is_refused);
    tcase_add_loop_test(c, aborted_by_others, 0, 6);
    tcase_add_test(c, aborted_by_ourselves);
    tcase_add_loop_test(c, wrong_buffers_and_programs, 0, WRONG_COUNT);
    tcase_add_loop_test(c, nothing_changes_under_puts, 0, 2);
    tcase_add_test(c, puts_of_many_threads_hear_of_an_abort);
    suite_add_tcase(suite, c);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
