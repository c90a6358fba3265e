/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a version in a rank whose FP8 block lies partly in another one. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <shardwire/trainer.h>
#include "client/test_fake.h"
#include "common/memory.h"

#define BYTES 4096u

static struct fake f;
static struct sw_error e;

/* ---- trainerd's side ---- */

static uint8_t *data;
static uint64_t *counters;
static float *maxima;

/* Rows 0 and 1 of w f32 [4, 8], which is one block: values in tile 0, the scale in tile 1. */
static struct sw_msg *program(void)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_LOAD_PROGRAM);
    struct sw_load_program *p = &msg->u.load_program;

    p->layout_epoch = 3;
    p->replica_bytes = 64;
    p->n_maxima = 1;
    p->total_templates = p->n_templates = p->total_loads = p->n_loads = 2;
    p->total_tiles = p->n_tiles = 2;
    p->total_grids = p->n_grids = 1;
    p->templates = sw_arena_array(&msg->arena, 2, sizeof(*p->templates));
    p->loads = sw_arena_array(&msg->arena, 2, sizeof(*p->loads));
    p->grids = sw_arena_array(&msg->arena, 1, sizeof(*p->grids));
    p->tiles = sw_arena_array(&msg->arena, 2, sizeof(*p->tiles));
    p->templates[0] = (struct sw_load_template){
        SW_TRANSFORM_FP8_VALUES, SW_F32, SW_F8_E4M3, 2, {0}, {2, 8}, {8, 1}};
    p->templates[1] =
        (struct sw_load_template){SW_TRANSFORM_FP8_SCALES, SW_F32, SW_F32, 2, {0}, {1, 1}, {4, 4}};
    p->loads[0] = (struct sw_load){.tmpl = 0, .tile = 0};
    p->loads[1] = (struct sw_load){.tmpl = 1, .tile = 1};
    p->grids[0] = (struct sw_grid){.block = {4, 8}, .scale = SW_SCALE_FP32, .shared = 1};
    p->tiles[0] = (struct sw_tile){0, 16};
    p->tiles[1] = (struct sw_tile){16, 4};
    return msg;
}

static void send_buffer(uint32_t n_fds, uint64_t maxima_bytes)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_BUFFER);
    void *base[3];
    int fds[3];

    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(sw_memory_create("test", BYTES, false, 1, &fds[i], NULL, &e), 0);
        ck_assert_int_eq(sw_memory_map(fds[i], BYTES, true, SW_FILL_LATER, 1, &base[i], &e), 0);
    }
    data = base[0];
    counters = base[1];
    maxima = base[2];
    msg->u.buffer = (struct sw_buffer){
        .generation = 1, .data_bytes = BYTES, .counter_bytes = BYTES, .maxima_bytes = maxima_bytes};
    fake_send_fds(&f, msg, fds, n_fds);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
}

static void answer(enum sw_msg_kind kind, int code, const char *reason)
{
    struct sw_msg *msg = sw_msg_new(kind);

    msg->u.rank_reply = (struct sw_rank_reply){
        .version = 7, .layout_epoch = 3, .error = {.code = code, .reason = reason}};
    fake_send(&f, msg);
}

/* All of a grant but its last message. */
static void offer(uint32_t n_fds, uint64_t maxima_bytes)
{
    fake_greet(&f);
    fake_skip(&f, SW_MSG_TRAINER_OPEN);
    fake_skip(&f, SW_MSG_SOURCES);
    answer(SW_MSG_SOURCES_DONE, 0, "");
    fake_skip(&f, SW_MSG_BEGIN);
    fake_send(&f, program());
    send_buffer(n_fds, maxima_bytes);
}

static void grant(uint32_t n_fds, uint64_t maxima_bytes)
{
    offer(n_fds, maxima_bytes);
    answer(SW_MSG_BEGIN_DONE, 0, "");
}

static void expect_maxima(void)
{
    struct sw_msg *msg = fake_expect(&f, SW_MSG_MAXIMA);

    ck_assert(msg->u.maxima.rank == 0 && msg->u.maxima.version == 7);
    sw_msg_free(msg);
    ck_assert(maxima[0] == 2.0f); /* the largest of this rank's rows */
    ck_assert_uint_eq(__atomic_load_n(&counters[0], __ATOMIC_ACQUIRE), 0);
}

/* The other rank's rows go up to 448: the scale is 1. */
static void reduce(void)
{
    maxima[0] = 448;
    answer(SW_MSG_MAXIMA_DONE, 0, "");
}

static void expect_end(void)
{
    struct sw_msg *msg = fake_expect(&f, SW_MSG_END);

    ck_assert(msg->u.end.version == 7 && msg->u.end.bytes == 20);
    sw_msg_free(msg);
    ck_assert_uint_eq(__atomic_load_n(&counters[0], __ATOMIC_ACQUIRE), 16);
    ck_assert_uint_eq(__atomic_load_n(&counters[1], __ATOMIC_ACQUIRE), 4);
    ck_assert_uint_eq(data[0], 0x38);  /* 1 */
    ck_assert_uint_eq(data[15], 0xc0); /* -2 */
    ck_assert(*(const float *)(const void *)(data + 16) == 1.0f);
}

static void gone(void)
{
    fake_expect_end(&f);
    sw_memory_unmap(data, BYTES);
    sw_memory_unmap(counters, BYTES);
    sw_memory_unmap(maxima, BYTES);
}

/* ---- the trainer's side ---- */

static float values[16];

static sw_trainer *begin(void)
{
    static const struct sw_source_tensor w = {
        .name = "w", .dtype = SW_F32, .ndim = 2, .shape = {4, 8}, .box_len = {2, 8}};
    const struct sw_trainer_options o = {
        .size = sizeof(o), .socket = f.path, .timeout_ms = FAKE_MS};
    sw_trainer *t = NULL;

    memset(&e, 0, sizeof(e));
    ck_assert_msg(sw_trainer_open(&o, &t, &e) == 0, "%s", e.text);
    ck_assert_msg(sw_trainer_declare(t, &w, 1, &e) == 0, "%s", e.text);
    ck_assert_int_eq(sw_trainer_holds(t, "w"), 0); /* no plan yet */
    return t;
}

#define OK(call) ck_assert_msg((call) == 0, "%s", e.text)

static void fails(int rc, int code, const char *text)
{
    ck_assert_msg(rc == code, "%d instead of %d: %s", rc, code, e.text);
    ck_assert_msg(strstr(e.text, text) != NULL, "'%s' is not in: %s", text, e.text);
}

static sw_trainer *put(void)
{
    const struct sw_tensor v = {.data = values, .dtype = SW_F32, .ndim = 2, .shape = {2, 8}};
    sw_trainer *t = begin();

    for (int i = 0; i < 16; i++)
        values[i] = 1;
    values[15] = -2;
    OK(sw_trainer_begin(t, 7, FAKE_MS, NULL, &e));
    ck_assert_int_eq(sw_trainer_holds(t, "w"), 1);
    ck_assert_int_eq(sw_trainer_holds(t, "v"), 0);
    ck_assert_int_eq(sw_trainer_holds(t, NULL), 0);
    OK(sw_trainer_put(t, "w", &v, &e));
    return t;
}

/* ---- conversations ---- */

static void whole_way(struct fake *fake)
{
    grant(3, BYTES);
    expect_maxima();
    reduce();
    expect_end();
    answer(SW_MSG_END_DONE, SW_ERR_STATE, "another rank lacks tensors");
    expect_end(); /* nothing is shared twice */
    answer(SW_MSG_END_DONE, 0, "");
    gone();
    (void)fake;
}

START_TEST(shares_before_it_ends)
{
    sw_trainer *t;

    fake_start(&f, SW_ROLE_TRAINERD, whole_way, 0);
    t = put();
    fails(sw_trainer_end(t, FAKE_MS, &e), SW_ERR_STATE, "lacks tensors");
    OK(sw_trainer_end(t, FAKE_MS, &e));
    sw_trainer_close(t);
    fake_stop(&f);
}
END_TEST

static void slow_others(struct fake *fake)
{
    grant(3, BYTES);
    expect_maxima();
    sem_wait(&fake->go);
    reduce();
    expect_end();
    answer(SW_MSG_END_DONE, 0, "");
    gone();
}

START_TEST(end_goes_on_after_its_deadline)
{
    const struct sw_tensor v = {.data = values, .dtype = SW_F32, .ndim = 2, .shape = {2, 8}};
    sw_trainer *t;

    fake_start(&f, SW_ROLE_TRAINERD, slow_others, 0);
    t = put();
    fails(sw_trainer_end(t, 20, &e), SW_ERR_TIMEOUT, "block maxima");
    fails(sw_trainer_put(t, "w", &v, &e), SW_ERR_STATE, "end was called");
    fails(sw_trainer_begin(t, 8, 20, NULL, &e), SW_ERR_STATE, "version 7 is begun");
    sem_post(&f.go);
    OK(sw_trainer_end(t, FAKE_MS, &e));
    sw_trainer_close(t);
    fake_stop(&f);
}
END_TEST

static void failing_reduction(struct fake *fake)
{
    grant(3, BYTES);
    expect_maxima();
    answer(SW_MSG_MAXIMA_DONE, SW_ERR_NOMEM, "no memory to reduce");
    expect_maxima();
    answer(SW_MSG_MAXIMA_DONE, SW_ERR_ABORTED, "block maxima of trainer rank 1 did not come");
    fake_skip(fake, SW_MSG_BEGIN);
    fake_skip(fake, SW_MSG_ABORT); /* that begin timed out */
    gone();
}

START_TEST(refusals)
{
    sw_trainer *t;

    fake_start(&f, SW_ROLE_TRAINERD, failing_reduction, 0);
    t = put();
    fails(sw_trainer_end(t, FAKE_MS, &e), SW_ERR_NOMEM, "no memory to reduce");
    fails(sw_trainer_end(t, FAKE_MS, &e), SW_ERR_ABORTED, "trainer rank 1");
    fails(sw_trainer_end(t, FAKE_MS, &e), SW_ERR_STATE, "no version is begun");
    fails(sw_trainer_begin(t, 8, 20, NULL, &e), SW_ERR_TIMEOUT, "version 8");
    sw_trainer_close(t);
    fake_stop(&f);
}
END_TEST

/* 0: by others; 1: by ourselves; 2: the session is closed. */
static void aborted(struct fake *fake)
{
    struct sw_msg *msg;

    grant(3, BYTES);
    expect_maxima();
    if (fake->arg == 0) {
        msg = sw_msg_new(SW_MSG_ABORT);
        msg->u.abort = (struct sw_abort){.rank = 1, .version = 7, .reason = "had enough"};
        fake_send(fake, msg);
    }
    msg = fake_expect(fake, SW_MSG_ABORT);
    ck_assert_uint_eq(msg->u.abort.version, 7);
    sw_msg_free(msg);
    gone();
}

START_TEST(aborted_while_it_shares)
{
    sw_trainer *t;

    fake_start(&f, SW_ROLE_TRAINERD, aborted, _i);
    t = put();
    if (_i == 0) {
        fails(sw_trainer_end(t, FAKE_MS, &e), SW_ERR_ABORTED, "had enough");
    } else {
        fails(sw_trainer_end(t, 20, &e), SW_ERR_TIMEOUT, "block maxima");
        if (_i == 1)
            OK(sw_trainer_abort(t, "enough", &e));
    }
    sw_trainer_close(t);
    fake_stop(&f);
}
END_TEST

static const struct {
    const char *says;
    uint64_t bytes;
    uint32_t fds;
    int code;
} wrong[] = {
    {"0 maxima; the plan needs", 0, 2, SW_ERR_PROTOCOL},
    {"0 maxima; the plan needs", 3, 3, SW_ERR_PROTOCOL},
    {"2 descriptors instead of 3", BYTES, 2, SW_ERR_PROTOCOL},
    {"3 descriptors instead of 2", 0, 3, SW_ERR_PROTOCOL},
    {"maxima of buffer 0", BYTES + 1, 3, SW_ERR_INVALID},
};

static void wrong_buffer(struct fake *fake)
{
    offer(wrong[fake->arg].fds, wrong[fake->arg].bytes);
    if (fake->arg != 2 && fake->arg != 3) { /* those end the session, at once */
        answer(SW_MSG_BEGIN_DONE, 0, "");
        fake_skip(fake, SW_MSG_ABORT);
    }
    gone();
}

START_TEST(wrong_buffers)
{
    sw_trainer *t;

    fake_start(&f, SW_ROLE_TRAINERD, wrong_buffer, _i);
    t = begin();
    fails(sw_trainer_begin(t, 7, FAKE_MS, NULL, &e), wrong[_i].code, wrong[_i].says);
    sw_trainer_close(t);
    fake_stop(&f);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("trainer-end");
    TCase *c = tcase_create("maxima");
    SRunner *r;
    int failed;

    tcase_add_test(c, shares_before_it_ends);
    tcase_add_test(c, end_goes_on_after_its_deadline);
    tcase_add_test(c, refusals);
    tcase_add_loop_test(c, aborted_while_it_shares, 0, 3);
    tcase_add_loop_test(c, wrong_buffers, 0, 5);
    tcase_set_timeout(c, 60);
    suite_add_tcase(s, c);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
