/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A link against a listener in the same loop. link.c is included, so that the back-off can be
 * looked at and the next try be made at once: no test waits for a clock.
 */
/* NOLINTNEXTLINE(bugprone-suspicious-include) */
#include "common/link.c"

#include <check.h>
#include <string.h>

enum server_mode { SERVE, HANG_UP };

static struct {
    uv_loop_t loop;
    struct sw_identity server, self;
    struct sw_listener *listener;
    uint32_t port;
    enum server_mode mode;
    struct sw_conn *accepted;
    unsigned received, accepts;
    /* what the link said */
    struct sw_link *link;
    unsigned ups, downs, firsts, messages, after_close;
    bool was_up, closed, close_in_up, close_in_down, close_in_message;
    char why[SW_ERROR_TEXT];
} s;

static void server_message(struct sw_conn *c, struct sw_msg *msg, void *arg)
{
    s.received++;
    sw_msg_free(msg);
}

static void server_closed(struct sw_conn *c, const struct sw_error *why, void *arg)
{
    if (s.accepted == c)
        s.accepted = NULL;
}

static void accepted(struct sw_conn *c, void *arg)
{
    static const struct sw_conn_handlers handlers = {NULL, server_message, server_closed};

    s.accepts++;
    sw_conn_set_handlers(c, &handlers, NULL);
    if (s.mode == HANG_UP)
        sw_conn_close(c, "not you");
    else
        s.accepted = c;
}

static void refused(const struct sw_error *why, void *arg)
{
}

static void listen_as(enum sw_role role)
{
    static const struct sw_listener_handlers handlers = {.accepted = accepted, .refused = refused};
    struct sw_listen how = {.host = "127.0.0.1",
        .port = s.port,
        .fd = -1,
        .self = &s.server,
        .roles = 1u << s.self.role,
        .timeout_ms = 20000,
        .max_connections = 16};
    struct sw_error e;

    s.server.role = role;
    ck_assert_msg(
        sw_listener_open(&s.loop, &how, &handlers, NULL, &s.listener, &e) == 0, "%s", e.text);
    s.port = sw_listener_port(s.listener);
}

static void close_link(void)
{
    s.closed = true;
    sw_link_close(s.link);
    sw_link_close(s.link); /* once is enough, twice does no harm */
}

static void on_up(struct sw_link *l, void *arg)
{
    s.ups++;
    s.after_close += s.closed;
    ck_assert(sw_link_is_up(l));
    if (s.close_in_up)
        close_link();
}

static void on_link_message(struct sw_link *l, struct sw_msg *msg, void *arg)
{
    s.messages++;
    s.after_close += s.closed;
    ck_assert_int_eq(msg->kind, SW_MSG_STATUS);
    sw_msg_free(msg);
    if (s.close_in_message)
        close_link();
}

static void on_down(
    struct sw_link *l, const struct sw_error *why, bool was_up, bool first, void *arg)
{
    s.downs++;
    s.firsts += first;
    s.was_up = was_up;
    s.after_close += s.closed;
    snprintf(s.why, sizeof(s.why), "%s", why->text);
    ck_assert(!sw_link_is_up(l));
    if (s.close_in_down)
        close_link();
}

static void open_link(void)
{
    static const struct sw_link_handlers handlers = {on_up, on_link_message, on_down};
    const struct sw_link_config config = {.loop = &s.loop,
        .host = "127.0.0.1",
        .port = s.port,
        .self = &s.self,
        .timeout_ms = 20000,
        .expect = SW_ROLE_TRAINERD};
    struct sw_error e;

    ck_assert_int_eq(sw_link_open(&config, &handlers, NULL, &s.link, &e), 0);
}

static void setup(void)
{
    memset(&s, 0, sizeof(s));
    uv_loop_init(&s.loop);
    s.self = (struct sw_identity){.group = "test", .role = SW_ROLE_TRAINERD, .host = "a"};
    s.server = (struct sw_identity){.group = "test", .host = "b"};
    s.self.instance.bytes[0] = 1;
    s.server.instance.bytes[0] = 2;
}

static void stop_listening(void)
{
    if (s.listener)
        sw_listener_close(s.listener);
    s.listener = NULL;
}

/* The loop ends by itself when the link is closed, and nothing is called any more. */
static void teardown(void)
{
    stop_listening();
    if (s.accepted)
        sw_conn_close(s.accepted, "over");
    if (s.link && !s.closed)
        close_link();
    uv_run(&s.loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&s.loop), 0);
    ck_assert_uint_eq(s.after_close, 0);
}

static void wait_for(const unsigned *count, unsigned n)
{
    while (*count < n)
        uv_run(&s.loop, UV_RUN_ONCE);
}

/* Not after the back-off, but now. */
static void try_now(void)
{
    ck_assert(uv_is_active((uv_handle_t *)&s.link->timer));
    uv_timer_start(&s.link->timer, on_timer, 0, 0);
}

START_TEST(test_up_and_again)
{
    listen_as(SW_ROLE_TRAINERD);
    open_link();
    ck_assert(!sw_link_is_up(s.link));
    sw_link_send(s.link, sw_msg_new(SW_MSG_STATUS)); /* dropped: nobody is there */
    wait_for(&s.ups, 1);
    sw_link_send(s.link, sw_msg_new(SW_MSG_STATUS));
    wait_for(&s.received, 1);
    sw_conn_send(s.accepted, sw_msg_new(SW_MSG_STATUS));
    wait_for(&s.messages, 1);
    ck_assert_uint_eq(s.downs, 0);
    sw_conn_close(s.accepted, "enough");
    wait_for(&s.downs, 1);
    ck_assert(s.was_up);
    ck_assert_uint_eq(s.firsts, 1);
    sw_link_send(s.link, sw_msg_new(SW_MSG_STATUS));
    wait_for(&s.ups, 2); /* by itself */
    ck_assert_uint_eq(s.received, 1);
}
END_TEST

START_TEST(test_back_off)
{
    uint32_t last = SW_RECONNECT_MIN_MS;

    listen_as(SW_ROLE_TRAINERD);
    stop_listening();
    uv_run(&s.loop, UV_RUN_DEFAULT);
    open_link();
    for (unsigned i = 1; i <= 12; i++) {
        wait_for(&s.downs, i);
        ck_assert(!s.was_up);
        ck_assert_uint_eq(s.firsts, 1); /* one line in the log for all of them */
        ck_assert_uint_eq(
            s.link->back_off_ms, 2 * last > SW_RECONNECT_MAX_MS ? SW_RECONNECT_MAX_MS : 2 * last);
        ck_assert_uint_le(uv_timer_get_due_in(&s.link->timer), last);
        last = s.link->back_off_ms;
        try_now();
    }
    ck_assert_uint_eq(last, SW_RECONNECT_MAX_MS);
    listen_as(SW_ROLE_TRAINERD); /* the same port */
    try_now();
    wait_for(&s.ups, 1);
}
END_TEST

START_TEST(test_another_kind_of_daemon)
{
    /* The handshake knows whom a trainerd may reach; for a client, the link looks itself. */
    s.self.role = _i ? SW_ROLE_CLIENT : SW_ROLE_TRAINERD;
    listen_as(SW_ROLE_INFERD);
    open_link();
    wait_for(&s.downs, 1);
    ck_assert(!s.was_up);
    ck_assert_msg(strstr(s.why, _i ? "another kind of daemon" : "inferd answered"), "%s", s.why);
    try_now();
    wait_for(&s.downs, 2);
    ck_assert_uint_eq(s.firsts, 1);
    ck_assert_uint_eq(s.ups, 0);
}
END_TEST

/* A peer that accepts and hangs up is not dialled ever faster than one that does not answer. */
START_TEST(test_peer_hangs_up_at_once)
{
    s.mode = HANG_UP;
    listen_as(SW_ROLE_TRAINERD);
    open_link();
    for (unsigned i = 1; i <= 4; i++) {
        wait_for(&s.downs, i);
        ck_assert_uint_eq(s.link->back_off_ms, SW_RECONNECT_MIN_MS << i);
        ck_assert_uint_eq(s.firsts, 1);
        try_now();
    }
}
END_TEST

START_TEST(test_link_that_lasted)
{
    s.mode = HANG_UP;
    listen_as(SW_ROLE_TRAINERD);
    open_link();
    wait_for(&s.downs, 1);
    try_now();
    wait_for(&s.downs, 2);
    s.mode = SERVE;
    try_now();
    wait_for(&s.accepts, 3);
    while (!sw_link_is_up(s.link))
        uv_run(&s.loop, UV_RUN_ONCE);
    s.link->up_ms -= SW_RECONNECT_MAX_MS; /* since long ago */
    sw_conn_close(s.accepted, "restart");
    wait_for(&s.downs, 3);
    ck_assert_uint_eq(s.firsts, 2);
    ck_assert_uint_eq(s.link->back_off_ms, 2 * SW_RECONNECT_MIN_MS);
}
END_TEST

/* teardown proves that nothing is left and nothing is called. */
START_TEST(test_close_while_dialling)
{
    listen_as(SW_ROLE_TRAINERD);
    open_link();
    for (int i = 0; i < _i && !s.ups; i++)
        uv_run(&s.loop, UV_RUN_ONCE);
    close_link();
    ck_assert(!sw_link_is_up(s.link));
}
END_TEST

START_TEST(test_close_while_waiting)
{
    listen_as(SW_ROLE_TRAINERD);
    stop_listening();
    uv_run(&s.loop, UV_RUN_DEFAULT);
    open_link();
    wait_for(&s.downs, 1);
    close_link();
}
END_TEST

START_TEST(test_close_in_handlers)
{
    listen_as(SW_ROLE_TRAINERD);
    s.close_in_up = _i == 0;
    s.close_in_message = _i == 1;
    s.close_in_down = _i == 2;
    open_link();
    wait_for(&s.ups, 1);
    if (_i == 1) {
        sw_conn_send(s.accepted, sw_msg_new(SW_MSG_STATUS));
        sw_conn_send(s.accepted, sw_msg_new(SW_MSG_STATUS));
        wait_for(&s.messages, 1);
    } else if (_i == 2) {
        sw_conn_close(s.accepted, "enough");
        wait_for(&s.downs, 1);
    }
    ck_assert(s.closed);
}
END_TEST

START_TEST(test_close_of_nothing)
{
    sw_link_close(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("link");
    TCase *c = tcase_create("link");
    SRunner *r;
    int failed_tests;

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 30);
    tcase_add_test(c, test_up_and_again);
    tcase_add_test(c, test_back_off);
    tcase_add_loop_test(c, test_another_kind_of_daemon, 0, 2);
    tcase_add_test(c, test_peer_hangs_up_at_once);
    tcase_add_test(c, test_link_that_lasted);
    tcase_add_loop_test(c, test_close_while_dialling, 0, 8);
    tcase_add_test(c, test_close_while_waiting);
    tcase_add_loop_test(c, test_close_in_handlers, 0, 3);
    tcase_add_test(c, test_close_of_nothing);
    suite_add_tcase(suite, c);
    r = srunner_create(suite);
    srunner_run_all(r, CK_ENV);
    failed_tests = srunner_ntests_failed(r);
    srunner_free(r);
    return failed_tests ? EXIT_FAILURE : EXIT_SUCCESS;
}
