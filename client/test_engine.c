/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations of an engine with an inferd that follows a script. */
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <shardwire/engine.h>
#include "client/test_fake.h"
#include "common/memory.h"
#include "common/program.h"

#define REGION 8192u

static struct fake f;
static struct sw_error e;

#define OK(call) ck_assert_msg((call) == 0, "%s", e.text)

static void fails(int rc, int code, const char *text)
{
    ck_assert_msg(rc == code, "%d instead of %d: %s", rc, code, e.text);
    ck_assert_int_eq(e.code, code);
    ck_assert_msg(strstr(e.text, text) != NULL, "'%s' is not in: %s", text, e.text);
}

/* ---- inferd's side ---- */

static char *region; /* inferd's mapping of region 0 */

static void answer_registration(int code, const char *reason)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_REGISTERED);

    msg->u.registered.engine = "A";
    msg->u.registered.error = (struct sw_failure){code, reason};
    fake_send(&f, msg);
}

/* Takes a registration that claims this version and state; maps the region. */
static void take_registration(uint64_t version, bool torn)
{
    struct sw_msg *msg;
    int fd;

    fake_greet(&f);
    msg = fake_expect(&f, SW_MSG_ENGINE_RANK);
    ck_assert_str_eq(msg->u.engine_rank.engine, "A");
    ck_assert(sw_id_equal(&msg->u.engine_rank.instance, &f.peer));
    ck_assert_uint_eq(msg->u.engine_rank.version, version);
    ck_assert_uint_eq(msg->u.engine_rank.torn, torn);
    ck_assert(msg->u.engine_rank.n_regions == 2 && msg->n_fds == 2);
    ck_assert(msg->u.engine_rank.region_bytes[0] == REGION && msg->u.engine_rank.n_parameters == 3);
    ck_assert(msg->u.engine_rank.at.of[SW_GROUP_TP].rank == 1);
    ck_assert(msg->u.engine_rank.at.of[SW_GROUP_TP].size == 2);
    fd = sw_msg_take_fd(msg, 0);
    ck_assert_int_eq(sw_memory_check(fd, REGION, true, NULL, &e), 0);
    if (!region)
        ck_assert_int_eq(
            sw_memory_map(fd, REGION, true, SW_FILL_LATER, 1, (void **)&region, &e), 0);
    close(fd);
    sw_msg_free(msg);
    msg = fake_expect(&f, SW_MSG_PARAMETERS);
    ck_assert(msg->u.parameters.n == 3 && msg->u.parameters.total == 3);
    ck_assert_ptr_null(msg->u.parameters.items[0].alias_of);
    ck_assert_str_eq(msg->u.parameters.items[1].alias_of, "w");
    ck_assert(msg->u.parameters.items[1].offset == 256 && msg->u.parameters.items[2].region == 1);
    sw_msg_free(msg);
}

static void send_phase(enum sw_phase phase, uint64_t update, uint64_t version)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_PHASE);

    msg->u.phase = (struct sw_phase_msg){
        .phase = phase, .update = update, .version = version, .engine = "A", .instance = f.peer};
    fake_send(&f, msg);
}

static void expect_done(enum sw_phase phase, uint64_t update, int code)
{
    struct sw_msg *msg = fake_expect(&f, SW_MSG_PHASE_DONE);

    ck_assert_int_eq(msg->u.phase_done.phase, phase);
    ck_assert_uint_eq(msg->u.phase_done.update, update);
    ck_assert_msg(msg->u.phase_done.error.code == code, "%s", msg->u.phase_done.error.reason);
    ck_assert_str_eq(msg->u.phase_done.engine, "A");
    ck_assert(sw_id_equal(&msg->u.phase_done.instance, &f.peer));
    sw_msg_free(msg);
}

static void step(enum sw_phase phase, uint64_t update, uint64_t version)
{
    send_phase(phase, update, version);
    expect_done(phase, update, 0);
}

static void send_source(void)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_LOCAL_SOURCE);
    int fd, readonly;
    void *base;

    OK(sw_memory_create("source", 4096, false, 1, &fd, NULL, &e));
    OK(sw_memory_map(fd, 4096, true, SW_FILL_LATER, 1, &base, &e));
    memset(base, 'n', 4096);
    OK(sw_memory_reopen_readonly(fd, &readonly, &e));
    msg->u.local_source = (struct sw_local_source){.source = 5, .bytes = 4096};
    fake_send_fds(&f, msg, &readonly, 1);
    sw_memory_unmap(base, 4096);
    close(fd);
    close(readonly);
    msg = fake_expect(&f, SW_MSG_LOCAL_MAPPED);
    ck_assert_msg(msg->u.local_mapped.error.code == 0, "%s", msg->u.local_mapped.error.reason);
    ck_assert_uint_eq(msg->u.local_mapped.source, 5);
    sw_msg_free(msg);
}

/* Copies 64 bytes to `dst` of region 0. */
static void copy(enum sw_local_mode mode, uint64_t dst, int code)
{
    const struct sw_extent extent = {.src = 64, .dst = dst, .length = 64};
    struct sw_msg *msg = sw_msg_new(SW_MSG_LOCAL_COPY);
    const int fd = memfd_create("extents", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    ck_assert_int_eq(write(fd, &extent, sizeof(extent)), sizeof(extent));
    ck_assert_int_eq(
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL), 0);
    msg->u.local_copy =
        (struct sw_local_copy){.copy = 1, .source = 5, .window = f.peer, .mode = mode, .n = 1};
    fake_send_fds(&f, msg, &fd, 1);
    close(fd);
    msg = fake_expect(&f, SW_MSG_LOCAL_DONE);
    ck_assert_msg(msg->u.local_done.error.code == code, "%d %s", msg->u.local_done.error.code,
        msg->u.local_done.error.reason);
    ck_assert_uint_eq(msg->u.local_done.bytes, code ? 0 : 64);
    sw_msg_free(msg);
}

/* ---- the engine's side ---- */

static int try_open(const char *path, uint32_t timeout_ms, sw_engine **en)
{
    const struct sw_engine_options o = {.size = sizeof(o),
        .socket = path,
        .engine = "A",
        .at = {.tp = 1, .tp_size = 2},
        .threads = 2,
        .timeout_ms = timeout_ms};

    memset(&e, 0, sizeof(e));
    return sw_engine_open(&o, en, &e);
}

static char *memory; /* of region 0 */

static sw_engine *open_engine(void)
{
    static const uint64_t shape[2] = {8, 16};
    sw_engine *en = NULL;
    void *second;
    uint32_t r;
    int fd;

    OK(try_open(f.path, FAKE_MS, &en));
    OK(sw_engine_alloc(en, REGION, (void **)&memory, &r, &e));
    ck_assert_uint_eq(r, 0);
    OK(sw_memory_create("own", 4096, false, 1, &fd, NULL, &e));
    OK(sw_memory_map(fd, 4096, true, SW_FILL_LATER, 1, &second, &e));
    OK(sw_engine_region(en, fd, second, 4096, &r, &e));
    ck_assert_uint_eq(r, 1);
    close(fd);
    OK(sw_engine_parameter(en, "w", SW_F32, 2, shape, 0, 256, &e));
    OK(sw_engine_alias(en, "head", "w", &e));
    OK(sw_engine_parameter(en, "v", SW_U8, 1, shape, 1, 0, &e));
    return en;
}

static struct sw_event next(sw_engine *en)
{
    struct sw_event event;

    OK(sw_engine_next_event(en, FAKE_MS, &event, &e));
    return event;
}

static void follow(sw_engine *en, enum sw_event_kind kind, uint64_t update, uint64_t version)
{
    struct sw_event event = next(en);

    ck_assert_int_eq(event.kind, kind);
    ck_assert_uint_eq(event.update, update);
    ck_assert_uint_eq(event.version, version);
    OK(sw_engine_ack(en, &event, 0, NULL, &e));
}

static void expect_state(const sw_engine *en, uint64_t version, int paused)
{
    int p = -1;

    ck_assert_uint_eq(sw_engine_version(en, &p), version);
    ck_assert_int_eq(p, paused);
}

/* ---- the whole way ---- */

static void whole_way(struct fake *fake)
{
    take_registration(0, false);
    answer_registration(0, "");
    send_source();
    copy(SW_LOCAL_WRITE, 256, SW_ERR_STATE); /* it generates */
    step(SW_PHASE_PAUSE, 1, 7);
    copy(SW_LOCAL_WRITE, 256, SW_ERR_STATE); /* not prepared */
    step(SW_PHASE_PREPARE, 1, 7);
    copy(SW_LOCAL_WRITE, 0, SW_ERR_INVALID); /* nobody declared these bytes */
    copy(SW_LOCAL_VERIFY, 256, SW_ERR_IO);
    copy(SW_LOCAL_WRITE, 256, 0);
    copy(SW_LOCAL_VERIFY, 256, 0);
    step(SW_PHASE_POST, 1, 7);
    step(SW_PHASE_ACTIVATE, 1, 7);
    step(SW_PHASE_RESUME, 1, 7);
    copy(SW_LOCAL_WRITE, 256, SW_ERR_STATE);
    step(SW_PHASE_PAUSE, 2, 8); /* and one that comes to nothing */
    step(SW_PHASE_PREPARE, 2, 8);
    step(SW_PHASE_RESUME, 2, 7);
    fake_expect_end(fake);
}

START_TEST(goes_the_whole_way)
{
    sw_engine *en;

    fake_start(&f, SW_ROLE_INFERD, whole_way, 0);
    en = open_engine();
    ck_assert_int_ge(sw_engine_fd(en), 0);
    OK(sw_engine_register(en, &e));
    expect_state(en, 0, 0);
    follow(en, SW_EVENT_PAUSE, 1, 7);
    expect_state(en, 0, 1);
    follow(en, SW_EVENT_PREPARE, 1, 7);
    follow(en, SW_EVENT_POST, 1, 7);
    ck_assert(memory[255] == 0 && memory[256] == 'n' && memory[319] == 'n' && memory[320] == 0);
    expect_state(en, 0, 1);
    follow(en, SW_EVENT_ACTIVATE, 1, 7);
    expect_state(en, 7, 1);
    follow(en, SW_EVENT_RESUME, 1, 7);
    expect_state(en, 7, 0);
    follow(en, SW_EVENT_PAUSE, 2, 8);
    follow(en, SW_EVENT_PREPARE, 2, 8);
    follow(en, SW_EVENT_RESUME, 2, 7);
    expect_state(en, 7, 0);
    sw_engine_close(en);
    fake_stop(&f);
    sw_engine_close(NULL);
}
END_TEST

/* ---- what it says of itself ---- */

static void take_description(uint64_t map_version, uint32_t expert)
{
    struct sw_msg *msg;
    struct sw_engine_rank *r;

    fake_greet(&f);
    msg = fake_expect(&f, SW_MSG_ENGINE_RANK);
    r = &msg->u.engine_rank;
    ck_assert_str_eq(r->layout, "auto");
    ck_assert_str_eq(r->config, "{\"x\": 1}");
    ck_assert_str_eq(r->scale_format, "ue8m0");
    ck_assert(r->kind == SW_ENGINE_SGLANG && r->fused_shared_experts == 1);
    ck_assert(r->block_rows == 64 && r->block_columns == 32);
    for (uint32_t g = 0; g < SW_GROUP_COUNT; g++)
        ck_assert(r->at.of[g].rank == g && r->at.of[g].size == 2 * g + 12);
    ck_assert(r->expert_map_version == map_version && r->expert_map_layers == 1);
    ck_assert(r->n_expert_map == 2 && r->expert_map[1] == expert);
    sw_msg_free(msg);
    fake_skip(&f, SW_MSG_PARAMETERS);
    answer_registration(0, "");
}

static void two_maps(struct fake *fake)
{
    take_description(3, 7);
    fake_expect_end(fake);
    fake_hang_up(fake);
    take_description(4, 9);
    send_phase(SW_PHASE_PAUSE, 1, 7);
    fake_expect_end(fake);
}

START_TEST(describes_itself)
{
    static const uint64_t shape[1] = {4};
    uint32_t map[2] = {4, 7};
    char config[] = "{\"x\": 1}";
    struct sw_engine_options o = {.size = sizeof(o),
        .engine = "A",
        .at = {0, 12, 1, 14, 2, 16, 3, 18, 4, 20, 5, 22, 6, 24, 7, 26, 8, 28, 9, 30},
        .layout = "auto",
        .kind = "sglang",
        .config = config,
        .block_rows = 64,
        .block_columns = 32,
        .scale_format = "ue8m0",
        .fused_shared_experts = 1,
        .expert_map_version = 3,
        .expert_map_layers = 1,
        .expert_map_slots = 2,
        .expert_map = map,
        .timeout_ms = FAKE_MS};
    struct sw_event event;
    sw_engine *en = NULL;
    void *base;

    fake_start(&f, SW_ROLE_INFERD, two_maps, 0);
    o.socket = f.path;
    o.at.dp_size = 3; /* "a coordinate must be less than its size" */
    fails(sw_engine_open(&o, &en, &e), SW_ERR_INVALID, "dp 3/3");
    o.at.dp_size = 18;
    OK(sw_engine_open(&o, &en, &e));
    memset(config, '!', sizeof(config) - 1); /* everything was copied */
    OK(sw_engine_alloc(en, 4096, &base, NULL, &e));
    OK(sw_engine_parameter(en, "w", SW_U8, 1, shape, 0, 0, &e));
    OK(sw_engine_register(en, &e));
    map[1] = 9;
    fails(sw_engine_expert_map(en, 3, 1, 2, map, &e), SW_ERR_VERSION, "version 3 is not above 3");
    fails(sw_engine_expert_map(en, 4, 1, 2, NULL, &e), SW_ERR_INVALID, "numbers");
    OK(sw_engine_next_event(en, 0, &event, &e));
    OK(sw_engine_expert_map(en, 4, 1, 2, map, &e));
    map[1] = 10;
    fails(sw_engine_next_event(en, 0, &event, &e), SW_ERR_STATE, "not registered");
    OK(sw_engine_register(en, &e));
    event = next(en);
    ck_assert_int_eq(event.kind, SW_EVENT_PAUSE);
    fails(sw_engine_expert_map(en, 5, 1, 2, map, &e), SW_ERR_STATE, "after RESUME");
    sw_engine_close(en);
    fake_stop(&f);
}
END_TEST

/* ---- open and declare ---- */

static void only_greet(struct fake *fake)
{
    fake_greet(fake);
    fake_expect_end(fake);
}

static void only_accept(struct fake *fake)
{
    fake_accept(fake);
    sem_wait(&fake->go);
}

START_TEST(open_says_what_is_wrong)
{
    struct sw_engine_options o = {.size = sizeof(o), .engine = "A", .rank = 1};
    sw_engine *en = NULL;

    fails(try_open("/nonexistent/sock", 50, &en), SW_ERR_CLOSED,
        "is inferd running? tried /nonexistent/sock");
    fails(sw_engine_open(&o, &en, &e), SW_ERR_INVALID, "rank 1 of a world of 1");
    o.rank = 0;
    o.engine = NULL;
    fails(sw_engine_open(&o, &en, &e), SW_ERR_INVALID, "engine name");
    o.engine = "A";
    o.at.ep = 1;
    fails(sw_engine_open(&o, &en, &e), SW_ERR_INVALID, "ep 1/0");
    o.at.ep = 0;
    o.scale_format = "fp64";
    fails(sw_engine_open(&o, &en, &e), SW_ERR_UNSUPPORTED, "fp64");
    o.scale_format = NULL;
    o.kind = "tgi";
    fails(sw_engine_open(&o, &en, &e), SW_ERR_UNSUPPORTED, "tgi");
    o.kind = NULL;
    o.layout = "auto";
    fails(sw_engine_open(&o, &en, &e), SW_ERR_INVALID, "sglang or vllm");
    o.kind = "vllm";
    fails(sw_engine_open(&o, &en, &e), SW_ERR_INVALID, "config.json");
    o.expert_map_layers = 2;
    o.expert_map_slots = 3;
    o.config = "{}";
    o.expert_map_version = 1;
    fails(sw_engine_open(&o, &en, &e), SW_ERR_INVALID, "2 layers with 3 slots");
    o.size = 1;
    fails(sw_engine_open(&o, &en, &e), SW_ERR_INVALID, "size");
    fails(sw_engine_open(NULL, &en, &e), SW_ERR_INVALID, "NULL");
    fake_start(&f, SW_ROLE_INFERD, only_accept, 0);
    fails(try_open(f.path, 20, &en), SW_ERR_TIMEOUT, "the handshake");
    sem_post(&f.go);
    fake_stop(&f);
    fake_start(&f, SW_ROLE_TRAINERD, only_greet, 0);
    fails(try_open(f.path, FAKE_MS, &en), SW_ERR_AUTH, "trainerd");
    fake_stop(&f);
    ck_assert_ptr_null(en);
}
END_TEST

static void check_regions(sw_engine *en)
{
    const int plain = memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    void *base;
    int fd;

    fails(sw_engine_alloc(en, 0, &base, NULL, &e), SW_ERR_INVALID, "0 bytes");
    fails(sw_engine_alloc(en, SW_BYTES_MAX + 1, &base, NULL, &e), SW_ERR_INVALID, "bytes");
    fails(sw_engine_alloc(en, SW_BYTES_MAX, &base, NULL, &e), SW_ERR_NOMEM, "");
    ck_assert_int_eq(ftruncate(plain, 4096), 0);
    ck_assert_int_lt(sw_engine_region(en, plain, &f, 4096, NULL, &e), 0);
    ck_assert_int_lt(sw_engine_region(en, null, &f, 4096, NULL, &e), 0);
    OK(sw_memory_create("own", 4096, false, 1, &fd, NULL, &e));
    ck_assert_int_lt(sw_engine_region(en, fd, &f, 4097, NULL, &e), 0); /* smaller than said */
    fails(sw_engine_region(en, fd, NULL, 4096, NULL, &e), SW_ERR_INVALID, "NULL");
    for (int i = 2; i < SW_FRAME_FDS_MAX; i++)
        OK(sw_engine_alloc(en, 4096, &base, NULL, &e));
    fails(sw_engine_alloc(en, 4096, &base, NULL, &e), SW_ERR_LIMIT, "can have ");
    close(plain);
    close(null);
    close(fd);
}

START_TEST(declarations_are_checked)
{
    const uint64_t shape[2] = {1ull << 40, 1ull << 40}, one[1] = {1}, row[1] = {3};
    struct sw_event event = {.kind = SW_EVENT_PAUSE};
    sw_engine *en;

    fake_start(&f, SW_ROLE_INFERD, only_greet, 0);
    en = NULL;
    OK(try_open(f.path, FAKE_MS, &en));
    fails(sw_engine_register(en, &e), SW_ERR_STATE, "0 regions and 0 parameters");
    fails(sw_engine_next_event(en, 0, &event, &e), SW_ERR_STATE, "not registered");
    fails(sw_engine_ack(en, &event, 0, NULL, &e), SW_ERR_STATE, "not registered");
    OK(sw_engine_alloc(en, REGION, (void **)&memory, NULL, &e));
    OK(sw_engine_alloc(en, REGION, (void **)&memory, NULL, &e));
    check_regions(en);
    OK(sw_engine_parameter(en, "w", SW_U8, 1, one, 0, REGION - 1, &e));
    fails(sw_engine_parameter(en, "w", SW_U8, 1, one, 1, 0, &e), SW_ERR_EXISTS, "w is declared");
    fails(sw_engine_parameter(en, "x", SW_U8, 1, one, 0, REGION, &e), SW_ERR_INVALID, "x: 1 bytes");
    fails(sw_engine_parameter(en, "x", SW_U8, 1, one, 0, UINT64_MAX, &e), SW_ERR_INVALID, "x:");
    fails(sw_engine_parameter(en, "x", SW_U8, 1, one, SW_FRAME_FDS_MAX, 0, &e), SW_ERR_INVALID,
        "x: region");
    fails(sw_engine_parameter(en, "x", 99, 1, one, 0, 0, &e), SW_ERR_INVALID, "dtype 99");
    fails(sw_engine_parameter(en, "x", SW_U8, 2, shape, 0, 0, &e), SW_ERR_INVALID, "overflows");
    fails(sw_engine_parameter(en, "x", SW_F4, 1, row, 0, 0, &e), SW_ERR_INVALID, "middle");
    fails(sw_engine_parameter(en, "x", SW_U8, 7, shape, 0, 0, &e), SW_ERR_INVALID, "7 dim");
    fails(sw_engine_parameter(en, NULL, SW_U8, 1, one, 0, 0, &e), SW_ERR_INVALID, "no name");
    fails(sw_engine_parameter(en, "\xc3", SW_U8, 1, one, 0, 0, &e), SW_ERR_INVALID, "UTF-8");
    fails(sw_engine_alias(en, "x", "y", &e), SW_ERR_NOT_FOUND, "x of y");
    fails(sw_engine_alias(en, "w", "w", &e), SW_ERR_EXISTS, "w is declared");
    fails(sw_engine_alias(en, NULL, "w", &e), SW_ERR_INVALID, "no name");
    sw_engine_close(en);
    fake_stop(&f);
}
END_TEST

/* ---- register ---- */

static void refuse_twice(struct fake *fake)
{
    take_registration(0, false);
    answer_registration(SW_ERR_EXISTS, "registered already, by process 4711");
    fake_expect_end(fake);
    fake_hang_up(fake);
    take_registration(0, false);
    fake_error(fake, SW_ERR_LIMIT, "too many engines");
    take_registration(0, false);
    send_phase(SW_PHASE_PAUSE, 1, 1); /* before the answer */
    fake_expect_end(fake);
    fake_hang_up(fake);
    take_registration(0, false);
    fake_hang_up(fake);
    take_registration(0, false);
    answer_registration(0, "");
    sem_wait(&fake->go);
}

START_TEST(registration_is_refused_and_tried_again)
{
    void *base;
    sw_engine *en;
    int rc;

    fake_start(&f, SW_ROLE_INFERD, refuse_twice, 0);
    en = open_engine();
    fails(sw_engine_register(en, &e), SW_ERR_EXISTS, "process 4711");
    ck_assert_int_eq(sw_engine_fd(en), -1);
    fails(sw_engine_register(en, &e), SW_ERR_LIMIT, "too many engines");
    fails(sw_engine_register(en, &e), SW_ERR_PROTOCOL, "PHASE before");
    rc = sw_engine_register(en, &e);
    ck_assert_msg(rc == SW_ERR_CLOSED || rc == SW_ERR_IO, "%d %s", rc, e.text);
    OK(sw_engine_register(en, &e));
    fails(sw_engine_register(en, &e), SW_ERR_STATE, "registered already");
    fails(sw_engine_alloc(en, 1, &base, NULL, &e), SW_ERR_STATE, "is fixed");
    fails(sw_engine_alias(en, "x", "w", &e), SW_ERR_STATE, "is fixed");
    sem_post(&f.go);
    sw_engine_close(en);
    fake_stop(&f);
    fails(try_open(f.path, 50, &en), SW_ERR_CLOSED, "is inferd running");
}
END_TEST

static void never_answer(struct fake *fake)
{
    take_registration(0, false);
    sem_wait(&fake->go);
}

START_TEST(registration_times_out)
{
    static const uint64_t shape[2] = {8, 16};
    sw_engine *en = NULL;

    fake_start(&f, SW_ROLE_INFERD, never_answer, 0);
    OK(try_open(f.path, 1000, &en));
    OK(sw_engine_alloc(en, REGION, (void **)&memory, NULL, &e));
    OK(sw_engine_alloc(en, 4096, (void **)&memory, NULL, &e));
    OK(sw_engine_parameter(en, "w", SW_F32, 2, shape, 0, 256, &e));
    OK(sw_engine_alias(en, "head", "w", &e));
    OK(sw_engine_parameter(en, "v", SW_U8, 1, shape, 1, 0, &e));
    fails(sw_engine_register(en, &e), SW_ERR_TIMEOUT, "the answer to register");
    sem_post(&f.go);
    sw_engine_close(en);
    fake_stop(&f);
}
END_TEST

/* ---- events ---- */

static void odd_events(struct fake *fake)
{
    struct sw_msg *msg;

    take_registration(0, false);
    answer_registration(0, "");
    sem_wait(&fake->go);
    send_phase(SW_PHASE_PREPARE, 1, 7); /* without a pause */
    expect_done(SW_PHASE_PREPARE, 1, SW_ERR_STATE);
    send_phase(SW_PHASE_ACTIVATE, 1, 7);
    expect_done(SW_PHASE_ACTIVATE, 1, SW_ERR_STATE);
    send_phase(SW_PHASE_OPEN, 1, 7); /* not for engine processes */
    expect_done(SW_PHASE_OPEN, 1, SW_ERR_STATE);
    msg = sw_msg_new(SW_MSG_PHASE);
    msg->u.phase = (struct sw_phase_msg){.phase = SW_PHASE_PAUSE, .update = 1};
    fake_send(fake, msg); /* another instance */
    expect_done(SW_PHASE_PAUSE, 1, SW_ERR_STATE);
    send_phase(SW_PHASE_PAUSE, 2, 7);
    expect_done(SW_PHASE_PAUSE, 2, SW_ERR_INVALID); /* "cannot" */
    step(SW_PHASE_RESUME, 2, 0);
    send_source();
    step(SW_PHASE_PAUSE, 3, 7);
    send_phase(SW_PHASE_POST, 3, 7);
    expect_done(SW_PHASE_POST, 3, SW_ERR_STATE); /* not prepared */
    step(SW_PHASE_PREPARE, 3, 7);
    copy(SW_LOCAL_WRITE, 256, 0);
    send_phase(SW_PHASE_RESUME, 3, 0); /* a torn engine does not resume */
    expect_done(SW_PHASE_RESUME, 3, SW_ERR_STATE);
    send_phase(SW_PHASE_POST, 3, 7);
    expect_done(SW_PHASE_POST, 3, SW_ERR_NOMEM);
    step(SW_PHASE_PREPARE, 4, 8); /* repaired by the next update */
    step(SW_PHASE_POST, 4, 8);
    step(SW_PHASE_ACTIVATE, 4, 8);
    step(SW_PHASE_RESUME, 4, 8);
    fake_expect_end(fake);
}

START_TEST(events_out_of_order)
{
    struct sw_event event, other;
    struct pollfd p;
    sw_engine *en;

    fake_start(&f, SW_ROLE_INFERD, odd_events, 0);
    en = open_engine();
    OK(sw_engine_register(en, &e));
    OK(sw_engine_next_event(en, 0, &event, &e));
    ck_assert_int_eq(event.kind, SW_EVENT_NONE);
    OK(sw_engine_next_event(en, 10, &event, &e));
    ck_assert_int_eq(event.kind, SW_EVENT_NONE);
    fails(sw_engine_ack(en, &event, 0, NULL, &e), SW_ERR_STATE, "no event waits");
    sem_post(&f.go);
    p = (struct pollfd){.fd = sw_engine_fd(en), .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, FAKE_MS), 1);
    event = next(en); /* what is wrong was answered by the library */
    ck_assert(event.kind == SW_EVENT_PAUSE && event.update == 2);
    fails(sw_engine_next_event(en, 0, &other, &e), SW_ERR_STATE, "pause of update 2");
    ck_assert_int_eq(other.kind, SW_EVENT_NONE);
    other = event;
    other.update = 3;
    fails(sw_engine_ack(en, &other, 0, NULL, &e), SW_ERR_STATE, "pause of update 2");
    OK(sw_engine_ack(en, &event, 5, "cannot", &e));
    expect_state(en, 0, 1);
    follow(en, SW_EVENT_RESUME, 2, 0);
    expect_state(en, 0, 0);
    follow(en, SW_EVENT_PAUSE, 3, 7);
    follow(en, SW_EVENT_PREPARE, 3, 7);
    event = next(en);
    ck_assert_int_eq(event.kind, SW_EVENT_POST);
    OK(sw_engine_ack(en, &event, SW_ERR_NOMEM, NULL, &e));
    expect_state(en, 0, 1);
    follow(en, SW_EVENT_PREPARE, 4, 8);
    follow(en, SW_EVENT_POST, 4, 8);
    follow(en, SW_EVENT_ACTIVATE, 4, 8);
    follow(en, SW_EVENT_RESUME, 4, 8);
    expect_state(en, 8, 0);
    sw_engine_close(en);
    fake_stop(&f);
}
END_TEST

/* ---- inferd goes away ---- */

/* After as many steps of an update as `arg` says; then it comes back and hears what is held. */
static void leave_after(struct fake *fake)
{
    static const enum sw_phase phases[] = {
        SW_PHASE_PAUSE, SW_PHASE_PREPARE, SW_PHASE_POST, SW_PHASE_ACTIVATE, SW_PHASE_RESUME};
    const int done = fake->arg;
    struct sw_id first;

    take_registration(0, false);
    first = fake->peer;
    answer_registration(0, "");
    for (int i = 0; i < done; i++)
        step(phases[i], 1, 7);
    fake_hang_up(fake);
    take_registration(done > 3 ? 7 : 0, done == 2 || done == 3);
    ck_assert(!sw_id_equal(&first, &fake->peer));
    answer_registration(0, "");
    sem_wait(&fake->go);          /* the engine resumed by itself, where it may */
    if (done == 2 || done == 3) { /* torn: inferd acknowledges the pause by itself */
        step(SW_PHASE_PREPARE, 9, 9);
    } else {
        step(SW_PHASE_PAUSE, 9, 9);
        step(SW_PHASE_PREPARE, 9, 9);
    }
    step(SW_PHASE_POST, 9, 9);
    step(SW_PHASE_ACTIVATE, 9, 9);
    step(SW_PHASE_RESUME, 9, 9);
    fake_error(fake, SW_ERR_CLOSED, "inferd is shutting down");
}

START_TEST(inferd_goes_away)
{
    static const enum sw_event_kind kinds[] = {
        SW_EVENT_PAUSE, SW_EVENT_PREPARE, SW_EVENT_POST, SW_EVENT_ACTIVATE, SW_EVENT_RESUME};
    const bool torn = _i == 2 || _i == 3;
    struct sw_event event;
    sw_engine *en;

    fake_start(&f, SW_ROLE_INFERD, leave_after, _i);
    en = open_engine();
    OK(sw_engine_register(en, &e));
    for (int i = 0; i < _i; i++)
        follow(en, kinds[i], 1, 7);
    fails(sw_engine_next_event(en, FAKE_MS, &event, &e), SW_ERR_CLOSED, "register again");
    fails(sw_engine_next_event(en, FAKE_MS, &event, &e), SW_ERR_CLOSED, "register again");
    ck_assert_int_eq(sw_engine_fd(en), -1);
    expect_state(en, _i > 3 ? 7 : 0, _i > 0 && _i < 5);
    OK(sw_engine_register(en, &e));
    if (_i == 1 || _i == 4) /* paused and clean */
        follow(en, SW_EVENT_RESUME, 0, _i > 3 ? 7 : 0);
    expect_state(en, _i > 3 ? 7 : 0, torn);
    sem_post(&f.go);
    if (!torn)
        follow(en, SW_EVENT_PAUSE, 9, 9);
    for (int i = 1; i < 5; i++)
        follow(en, kinds[i], 9, 9);
    fails(sw_engine_next_event(en, FAKE_MS, &event, &e), SW_ERR_CLOSED, "shutting down");
    sw_engine_close(en);
    fake_stop(&f);
}
END_TEST

/* It goes while the engine works on an event. */
static void leave_during(struct fake *fake)
{
    take_registration(0, false);
    answer_registration(0, "");
    step(SW_PHASE_PAUSE, 1, 7);
    if (fake->arg)
        step(SW_PHASE_PREPARE, 1, 7);
    send_phase(fake->arg ? SW_PHASE_POST : SW_PHASE_PREPARE, 1, 7);
    if (fake->arg == 2) {
        fake_garbage(fake);
        fake_hang_up(fake);
    } else {
        fake_error(fake, SW_ERR_CLOSED, "inferd is shutting down");
    }
    sem_post(&fake->gone);
    take_registration(0, true);
    answer_registration(0, "");
    fake_expect_end(fake);
}

START_TEST(inferd_goes_away_during_an_event)
{
    struct sw_event event;
    sw_engine *en;

    fake_start(&f, SW_ROLE_INFERD, leave_during, _i);
    en = open_engine();
    OK(sw_engine_register(en, &e));
    follow(en, SW_EVENT_PAUSE, 1, 7);
    if (_i)
        follow(en, SW_EVENT_PREPARE, 1, 7);
    event = next(en);
    sem_wait(&f.gone);
    /* Prepared or not, inferd may have heard it: the memory counts as written. */
    fails(sw_engine_ack(en, &event, 0, NULL, &e), SW_ERR_CLOSED, _i == 2 ? "" : "shutting down");
    OK(sw_engine_register(en, &e));
    OK(sw_engine_next_event(en, 0, &event, &e));
    ck_assert_int_eq(event.kind, SW_EVENT_NONE); /* torn: it does not resume by itself */
    expect_state(en, 0, 1);
    sw_engine_close(en);
    fake_stop(&f);
}
END_TEST

static void talk_nonsense(struct fake *fake)
{
    take_registration(0, false);
    answer_registration(0, "");
    if (fake->arg == 0)
        fake_garbage(fake);
    else if (fake->arg == 1)
        fake_send(fake, sw_msg_new(SW_MSG_BEGIN));
    else
        answer_registration(0, "");
    fake_expect_end(fake);
}

START_TEST(inferd_talks_nonsense)
{
    struct sw_event event;
    sw_engine *en;

    fake_start(&f, SW_ROLE_INFERD, talk_nonsense, _i);
    en = open_engine();
    OK(sw_engine_register(en, &e));
    fails(sw_engine_next_event(en, FAKE_MS, &event, &e), SW_ERR_CLOSED, "register again");
    sw_engine_close(en);
    fake_stop(&f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine");
    TCase *c = tcase_create("session");
    SRunner *runner;
    int failed;

    tcase_set_timeout(c, 60);
    tcase_add_test(c, goes_the_whole_way);
    tcase_add_test(c, describes_itself);
    tcase_add_test(c, open_says_what_is_wrong);
    tcase_add_test(c, declarations_are_checked);
    tcase_add_test(c, registration_is_refused_and_tried_again);
    tcase_add_test(c, registration_times_out);
    tcase_add_test(c, events_out_of_order);
    tcase_add_loop_test(c, inferd_goes_away, 0, 6);
    tcase_add_loop_test(c, inferd_goes_away_during_an_event, 0, 3);
    tcase_add_loop_test(c, inferd_talks_nonsense, 0, 3);
    suite_add_tcase(suite, c);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
