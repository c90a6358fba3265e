/* SPDX-License-Identifier: Apache-2.0 */
/* The state file, and the server on a real loop with real connections. */
#include <check.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainerd/coordinator/server.h"
#include "trainerd/coordinator/state.h"

static char dir[64], path[96];

static void setup(void)
{
    snprintf(dir, sizeof(dir), "/tmp/sw-state-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/g.version", dir);
}

static int remove_one(const char *name, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(name);
}

static void teardown(void)
{
    nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void write_text(const char *text)
{
    FILE *f = fopen(path, "w");

    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

/* ---- the file ---- */

START_TEST(a_version_is_stored_and_read)
{
    static const uint64_t versions[] = {1, 7, 0, UINT64_MAX};
    char aside[128];
    struct sw_error e;
    uint64_t got = 99;
    char *p;

    ck_assert_int_eq(sw_state_path(dir, "g", &p, &e), 0);
    ck_assert_str_eq(p, path);
    ck_assert_int_eq(sw_state_load(p, &got, &e), 0);
    ck_assert_uint_eq(got, 0); /* no file yet */
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        ck_assert_int_eq(sw_state_store(p, versions[i], &e), 0);
        ck_assert_int_eq(sw_state_load(p, &got, &e), 0);
        ck_assert_uint_eq(got, versions[i]);
    }
    snprintf(aside, sizeof(aside), "%s.new", p);
    ck_assert_int_ne(access(aside, F_OK), 0);
    free(p);
}
END_TEST

START_TEST(what_is_no_version_is_never_taken_for_zero)
{
    static const char *const texts[] = {"", "\n", "x", "12x", "-1", " 1", "1\n\n", "0x10",
        "18446744073709551616",
        "99999999999999999999999999999999999999999999999999999999999999999999"};
    struct sw_error e;
    uint64_t got = 99;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        write_text(texts[i]);
        ck_assert_msg(sw_state_load(path, &got, &e) == SW_ERR_INVALID, "'%s'", texts[i]);
        ck_assert_uint_eq(got, 99);
        ck_assert_ptr_nonnull(strstr(e.text, path));
        ck_assert_ptr_nonnull(strstr(e.text, "write the largest version"));
    }
    write_text("42");
    ck_assert_int_eq(sw_state_load(path, &got, &e), 0);
    ck_assert_uint_eq(got, 42);
    unlink(path);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_int_eq(sw_state_load(path, &got, &e), SW_ERR_IO);
    rmdir(path);
    ck_assert_int_eq(symlink("/dev/null", path), 0);
    ck_assert_int_eq(sw_state_load(path, &got, &e), SW_ERR_IO);
}
END_TEST

START_TEST(a_store_that_fails_leaves_the_old_one)
{
    char aside[128];
    struct sw_error e;
    uint64_t got;

    ck_assert_int_eq(sw_state_store(path, 5, &e), 0);
    snprintf(aside, sizeof(aside), "%s.new", path);
    ck_assert_int_eq(mkdir(aside, 0700), 0); /* in the way */
    ck_assert_int_eq(sw_state_store(path, 6, &e), SW_ERR_IO);
    ck_assert_int_eq(sw_state_load(path, &got, &e), 0);
    ck_assert_uint_eq(got, 5);
}
END_TEST

START_TEST(bad_places_are_refused)
{
    struct sw_error e;
    char other[128], *p;

    ck_assert_int_eq(sw_state_path(dir, "a/b", &p, &e), SW_ERR_INVALID);
    ck_assert_int_eq(sw_state_path(dir, "..", &p, &e), SW_ERR_INVALID);
    ck_assert_int_eq(sw_state_path(dir, "", &p, &e), SW_ERR_INVALID);
    snprintf(other, sizeof(other), "%s/no/such", dir);
    ck_assert_int_eq(sw_state_path(other, "g", &p, &e), SW_ERR_IO);
    ck_assert_ptr_nonnull(strstr(e.text, other));
    write_text("1");
    ck_assert_int_eq(sw_state_path(path, "g", &p, &e), SW_ERR_IO); /* a file */
    snprintf(other, sizeof(other), "%s/new", dir);
    ck_assert_int_eq(sw_state_path(other, "g", &p, &e), 0); /* made */
    free(p);
}
END_TEST

/* ---- the server ---- */

struct client { /* a trainerd or an inferd */
    struct sw_conn *conn;
    bool ready, closed;
    uint32_t n;
    struct sw_msg *got[64];
    char why[SW_ERROR_TEXT];
};

static uv_loop_t loop;
static struct sw_coordinator_server *server;
static struct sw_listener *listener;
static struct client trainerd, inferd;
static struct sw_identity self = {
    .group = "g", .role = SW_ROLE_TRAINERD, .host = "c", .instance = {{9}}};
static struct sw_identity ids[2] = {
    {.group = "g", .role = SW_ROLE_TRAINERD, .host = "t", .instance = {{1}}},
    {.group = "g", .role = SW_ROLE_INFERD, .host = "i", .instance = {{2}}}};
static bool server_gone;
static uint32_t n_logs;
static char last_error[SW_TEXT_MAX + 1];

static void on_log(int level, const char *text, void *arg)
{
    (void)arg;
    n_logs++;
    if (level <= 4)
        snprintf(last_error, sizeof(last_error), "%s", text);
}

static void on_accepted(struct sw_conn *c, void *arg)
{
    (void)arg;
    sw_coordinator_server_adopt(server, c);
}

static void on_refused(const struct sw_error *why, void *arg)
{
    (void)arg;
    ck_abort_msg("refused: %s", why->text);
}

static void on_ready(struct sw_conn *c, void *arg)
{
    (void)c;
    ((struct client *)arg)->ready = true;
}

static void on_message(struct sw_conn *c, struct sw_msg *msg, void *arg)
{
    struct client *client = arg;

    (void)c;
    ck_assert_uint_lt(client->n, 64);
    client->got[client->n++] = msg;
}

static void on_closed(struct sw_conn *c, const struct sw_error *why, void *arg)
{
    struct client *client = arg;

    (void)c;
    client->closed = true;
    snprintf(client->why, sizeof(client->why), "%s", why->text);
}

static void on_server_gone(void *arg)
{
    *(bool *)arg = true;
}

static int open_server(struct sw_error *e)
{
    const struct sw_coordinator_config config = {.group = "g",
        .instance = {{9}},
        .tcp_connections = 1,
        .begin_ns = 60000000000,
        .stage_ns = 60000000000,
        .connect_ns = 60000000000,
        .pause_ns = 60000000000,
        .window_ns = 60000000000,
        .write_ns = 60000000000,
        .post_ns = 60000000000,
        .activate_ns = 60000000000,
        .manifest_ns = 60000000000};

    return sw_coordinator_server_new(&loop, &config, dir, on_log, NULL, &server, e);
}

static void dial(struct client *client, const struct sw_identity *id)
{
    static const struct sw_conn_handlers handlers = {on_ready, on_message, on_closed};
    const struct sw_dial how = {.host = "127.0.0.1",
        .port = sw_listener_port(listener),
        .fd = -1,
        .self = id,
        .timeout_ms = 20000};
    struct sw_error e;

    memset(client, 0, sizeof(*client));
    ck_assert_msg(
        sw_conn_dial(&loop, &how, &handlers, client, &client->conn, &e) == 0, "%s", e.text);
    while (!client->ready && !client->closed)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_msg(client->ready, "%s", client->why);
}

static void setup_server(void)
{
    static const struct sw_listener_handlers handlers = {
        .accepted = on_accepted, .refused = on_refused};
    const struct sw_listen how = {.host = "127.0.0.1",
        .fd = -1,
        .self = &self,
        .roles = 1u << SW_ROLE_TRAINERD | 1u << SW_ROLE_INFERD,
        .timeout_ms = 20000,
        .max_connections = 16};
    struct sw_error e;

    setup();
    uv_loop_init(&loop);
    ck_assert_msg(open_server(&e) == 0, "%s", e.text);
    ck_assert_msg(sw_listener_open(&loop, &how, &handlers, NULL, &listener, &e) == 0, "%s", e.text);
    dial(&trainerd, &ids[0]);
    dial(&inferd, &ids[1]);
}

static void forget(struct client *client)
{
    for (uint32_t i = 0; i < client->n; i++)
        sw_msg_free(client->got[i]);
    client->n = 0;
}

static void teardown_server(void)
{
    sw_listener_close(listener);
    if (server)
        sw_coordinator_server_close(server, on_server_gone, &server_gone);
    if (!trainerd.closed)
        sw_conn_close(trainerd.conn, "done");
    if (!inferd.closed)
        sw_conn_close(inferd.conn, "done");
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert(server_gone || !server);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    forget(&trainerd);
    forget(&inferd);
    teardown();
}

static struct sw_msg *await(struct client *client, enum sw_msg_kind kind)
{
    for (;;) {
        for (uint32_t i = 0; i < client->n; i++)
            if (client->got[i]->kind == kind)
                return client->got[i];
        ck_assert_msg(!client->closed, "closed: %s", client->why);
        uv_run(&loop, UV_RUN_ONCE);
    }
}

static void send_member(struct client *client)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_MEMBER);

    m->u.member.name = "host";
    sw_conn_send(client->conn, m);
}

static void declare(void)
{
    static struct sw_source item = {
        .name = "a", .dtype = SW_U8, .ndim = 1, .shape = {8}, .box = {.ndim = 1, .len = {8}}};
    static struct sw_parameter parameter = {.name = "a", .dtype = SW_U8, .ndim = 1, .shape = {8}};
    static uint64_t region = 8;
    struct sw_msg *s = sw_msg_new(SW_MSG_SOURCES), *e = sw_msg_new(SW_MSG_ENGINE_RANK);
    struct sw_msg *p = sw_msg_new(SW_MSG_PARAMETERS);

    send_member(&trainerd);
    send_member(&inferd);
    s->u.sources =
        (struct sw_sources){.world = 1, .trainer = {{5}}, .total = 1, .n = 1, .items = &item};
    sw_conn_send(trainerd.conn, s);
    e->u.engine_rank = (struct sw_engine_rank){.engine = "A",
        .world = 1,
        .instance = {{6}},
        .n_parameters = 1,
        .n_regions = 1,
        .region_bytes = &region};
    sw_conn_send(inferd.conn, e);
    p->u.parameters = (struct sw_parameters){
        .engine = "A", .instance = {{6}}, .total = 1, .n = 1, .items = &parameter};
    sw_conn_send(inferd.conn, p);
    ck_assert_int_eq(await(&trainerd, SW_MSG_SOURCES_DONE)->u.rank_reply.error.code, 0);
}

static void begin(uint64_t version)
{
    struct sw_msg *b = sw_msg_new(SW_MSG_BEGIN);

    b->u.begin.version = version;
    sw_conn_send(trainerd.conn, b);
}

START_TEST(a_version_is_durable_before_it_is_granted)
{
    struct sw_msg *done = sw_msg_new(SW_MSG_PLAN_DONE);
    uint64_t stored = 0;
    struct sw_error e;
    json_t *status;

    declare();
    begin(12);
    await(&trainerd, SW_MSG_LOAD_PROGRAM);
    ck_assert_int_eq(sw_state_load(path, &stored, &e), 0);
    ck_assert_uint_eq(stored, 12);
    done->u.plan_done.layout_epoch = 12;
    sw_conn_send(trainerd.conn, done);
    ck_assert_int_eq(await(&trainerd, SW_MSG_BEGIN_DONE)->u.rank_reply.error.code, 0);
    status = sw_coordinator_server_status(server);
    ck_assert_int_eq(json_integer_value(json_object_get(status, "last_version")), 12);
    ck_assert_uint_eq(json_array_size(json_object_get(status, "members")), 2);
    json_decref(status);
}
END_TEST

START_TEST(a_disk_that_says_no)
{
    char aside[128];
    struct sw_msg *answer;

    snprintf(aside, sizeof(aside), "%s.new", path);
    ck_assert_int_eq(mkdir(aside, 0700), 0);
    declare();
    begin(3);
    answer = await(&trainerd, SW_MSG_BEGIN_DONE);
    ck_assert_int_eq(answer->u.rank_reply.error.code, SW_ERR_IO);
    ck_assert_ptr_nonnull(strstr(answer->u.rank_reply.error.reason, aside));
    forget(&trainerd);
    rmdir(aside);
    begin(3); /* the number was not used up */
    await(&trainerd, SW_MSG_LOAD_PROGRAM);
}
END_TEST

START_TEST(a_member_that_talks_nonsense_is_told_and_closed)
{
    sw_conn_send(inferd.conn, sw_msg_new(SW_MSG_BEGIN));
    while (!inferd.closed)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_msg(strstr(inferd.why, "BEGIN"), "%s", inferd.why); /* its last words */
    ck_assert_ptr_nonnull(strstr(last_error, "BEGIN"));
}
END_TEST

START_TEST(members_that_leave_are_forgotten)
{
    json_t *status;
    size_t members;

    declare();
    sw_conn_close(inferd.conn, "done");
    do {
        uv_run(&loop, UV_RUN_ONCE);
        status = sw_coordinator_server_status(server);
        members = json_array_size(json_object_get(status, "members"));
        json_decref(status);
    } while (members != 1);
}
END_TEST

START_TEST(close_waits_for_the_disk)
{
    declare();
    begin(1);
    for (uint64_t stored = 0; stored == 0;) { /* until the write has been asked for */
        struct sw_error e;
        json_t *status = sw_coordinator_server_status(server);
        const json_t *b = json_object_get(status, "beginning");

        if (json_is_object(b) && strstr(json_string_value(json_object_get(b, "state")), "storing"))
            stored = 1;
        else if (json_is_object(b))
            ck_assert_int_eq(sw_state_load(path, &stored, &e), 0);
        json_decref(status);
        if (!stored)
            uv_run(&loop, UV_RUN_ONCE);
    }
    sw_coordinator_server_close(server, on_server_gone, &server_gone);
    sw_coordinator_server_close(server, on_server_gone, &server_gone);
    server = NULL;
    while (!server_gone)
        uv_run(&loop, UV_RUN_ONCE);
}
END_TEST

START_TEST(a_bad_state_file_stops_the_start)
{
    struct sw_error e;

    uv_loop_init(&loop);
    write_text("garbage");
    ck_assert_int_eq(open_server(&e), SW_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(e.text, path));
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

START_TEST(a_restart_knows_the_last_version)
{
    struct sw_error e;
    json_t *status;

    uv_loop_init(&loop);
    write_text("77\n");
    ck_assert_int_eq(open_server(&e), 0);
    status = sw_coordinator_server_status(server);
    ck_assert_int_eq(json_integer_value(json_object_get(status, "last_version")), 77);
    json_decref(status);
    sw_coordinator_server_close(server, on_server_gone, &server_gone);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert(server_gone);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("coordinator server");
    TCase *file = tcase_create("state file"), *net = tcase_create("server");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(file, setup, teardown);
    tcase_add_test(file, a_version_is_stored_and_read);
    tcase_add_test(file, what_is_no_version_is_never_taken_for_zero);
    tcase_add_test(file, a_store_that_fails_leaves_the_old_one);
    tcase_add_test(file, bad_places_are_refused);
    tcase_add_test(file, a_bad_state_file_stops_the_start);
    tcase_add_test(file, a_restart_knows_the_last_version);
    suite_add_tcase(suite, file);
    tcase_add_checked_fixture(net, setup_server, teardown_server);
    tcase_add_test(net, a_version_is_durable_before_it_is_granted);
    tcase_add_test(net, a_disk_that_says_no);
    tcase_add_test(net, a_member_that_talks_nonsense_is_told_and_closed);
    tcase_add_test(net, members_that_leave_are_forgotten);
    tcase_add_test(net, close_waits_for_the_disk);
    tcase_set_timeout(net, 60);
    suite_add_tcase(suite, net);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
