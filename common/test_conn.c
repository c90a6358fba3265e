/* SPDX-License-Identifier: Apache-2.0 */
/* Connections on a real loop, over TCP and UNIX sockets. */
#include "common/conn.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/codec.h"
#include "common/frame.h"
#include "common/test_suite.h"

#define SECRET ((const uint8_t *)"0123456789abcdef")

static const struct sw_identity trainerd = {.group = "rl",
    .role = SW_ROLE_TRAINERD,
    .instance = {{1}},
    .host = "train0",
    .secret = SECRET,
    .secret_bytes = 16};
static const struct sw_identity inferd = {.group = "rl",
    .role = SW_ROLE_INFERD,
    .instance = {{2}},
    .host = "infer0",
    .secret = SECRET,
    .secret_bytes = 16};

/* ---- a listener and what happened at both ends ---- */

struct end {
    struct sw_conn *conn; /* NULL when it has ended */
    int ready, closed;
    uint64_t messages;  /* in order, numbered from 0 by STATUS.request */
    uint64_t detach_at; /* tries to detach in the handler of this message */
    int detached;
    uint64_t close_at; /* closes itself in the handler of this message */
    bool out_of_order;
    struct sw_error why;
    struct sw_msg *last;
};

static uv_loop_t loop;
static char folder[64], socket_path[100];
static struct sw_listener *listener;
static struct end client, server;
static int refusals;
static struct sw_error refusal;
static const struct sw_filter *server_filter;
static uint64_t server_early; /* messages that the server sends before the peer is proven */

static void on_ready(struct sw_conn *c, void *arg)
{
    struct end *end = arg;

    end->ready++;
}

static void on_message(struct sw_conn *c, struct sw_msg *msg, void *arg)
{
    struct end *end = arg;

    ck_assert_ptr_eq(end->conn, c);
    if (msg->kind == SW_MSG_STATUS && msg->u.status.request != end->messages)
        end->out_of_order = true;
    end->messages++;
    sw_msg_free(end->last);
    end->last = msg;
    if (end->detach_at && end->messages == end->detach_at)
        end->detached = sw_conn_detach(c);
    if (end->close_at && end->messages == end->close_at)
        sw_conn_close(c, "enough");
}

static void on_closed(struct sw_conn *c, const struct sw_error *why, void *arg)
{
    struct end *end = arg;

    end->conn = NULL;
    end->closed++;
    end->why = *why;
}

static const struct sw_conn_handlers handlers = {on_ready, on_message, on_closed};

static void on_accepted(struct sw_conn *c, void *arg)
{
    server.conn = c;
    server.ready++;
    sw_conn_set_handlers(c, &handlers, &server);
}

static void on_refused(const struct sw_error *why, void *arg)
{
    refusals++;
    refusal = *why;
}

static void send_number(struct sw_conn *c, uint64_t number)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_STATUS);

    msg->u.status.request = number;
    sw_conn_send(c, msg);
}

static void on_connected(struct sw_conn *c, void *arg)
{
    if (server_filter)
        sw_conn_set_filter(c, server_filter);
    for (uint64_t i = 0; i < server_early; i++)
        send_number(c, i);
}

static const struct sw_listener_handlers listening = {on_accepted, on_refused, on_connected};

static void setup(void)
{
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    snprintf(folder, sizeof(folder), "/tmp/shardwire-conn-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(socket_path, sizeof(socket_path), "%s/s.sock", folder);
    memset(&client, 0, sizeof(client));
    memset(&server, 0, sizeof(server));
    refusals = 0;
    listener = NULL;
    server_filter = NULL;
    server_early = 0;
}

static void teardown(void)
{
    if (client.conn)
        sw_conn_close(client.conn, "the test is over");
    if (server.conn)
        sw_conn_close(server.conn, "the test is over");
    sw_listener_close(listener);
    while (uv_run(&loop, UV_RUN_DEFAULT))
        ;
    ck_assert_int_eq(uv_loop_close(&loop), 0); /* no handle is left */
    sw_msg_free(client.last);
    sw_msg_free(server.last);
    unlink(socket_path);
    ck_assert_int_eq(rmdir(folder), 0);
}

#define RUN_UNTIL(condition)                                                                       \
    while (!(condition))                                                                           \
    uv_run(&loop, UV_RUN_ONCE)

static struct sw_listen how_to_listen(bool tcp)
{
    return (struct sw_listen){.host = "127.0.0.1",
        .path = tcp ? NULL : socket_path,
        .mode = 0600,
        .fd = -1,
        .self = &trainerd,
        .roles = 1u << SW_ROLE_INFERD,
        .timeout_ms = 60000,
        .max_connections = 10};
}

static void listen_with(const struct sw_listen *how)
{
    struct sw_error e = {0};
    const int rc = sw_listener_open(&loop, how, &listening, NULL, &listener, &e);

    ck_assert_msg(rc == 0, "%s", e.text);
}

static struct sw_dial how_to_dial(bool tcp)
{
    return (struct sw_dial){.host = "127.0.0.1",
        .port = tcp ? sw_listener_port(listener) : 0,
        .path = tcp ? NULL : socket_path,
        .fd = -1,
        .self = &inferd,
        .timeout_ms = 60000};
}

static void dial_with(const struct sw_dial *how)
{
    struct sw_error e = {0};
    const int rc = sw_conn_dial(&loop, how, &handlers, &client, &client.conn, &e);

    ck_assert_msg(rc == 0, "%s", e.text);
}

static void connect_both(bool tcp)
{
    const struct sw_listen listen_how = how_to_listen(tcp);
    struct sw_dial dial_how;

    listen_with(&listen_how);
    dial_how = how_to_dial(tcp);
    dial_with(&dial_how);
    RUN_UNTIL(client.closed || (client.ready && server.ready));
    ck_assert_msg(!client.closed, "%s", client.why.text);
}

static void check_says(const struct sw_error *e, int code, const char *text)
{
    ck_assert_msg(e->code == code && strstr(e->text, text), "%d: %s", e->code, e->text);
}

/* A proven connection whose client end is a plain descriptor. */
static int raw_client(bool tcp)
{
    int fd;

    connect_both(tcp);
    fd = sw_conn_detach(client.conn);
    ck_assert_int_ge(fd, 0);
    RUN_UNTIL(client.closed);
    check_says(&client.why, SW_ERR_CLOSED, "detached");
    return fd;
}

/* A connection that nothing was sent on. */
static int plain_client(bool tcp)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct sockaddr_in in = {.sin_family = AF_INET};
    const int fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memcpy(un.sun_path, socket_path, sizeof(socket_path));
    in.sin_port = htons((uint16_t)sw_listener_port(listener));
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(tcp ? connect(fd, (struct sockaddr *)&in, sizeof(in))
                         : connect(fd, (struct sockaddr *)&un, sizeof(un)),
        0);
    return fd;
}

static int open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* ---- conversations ---- */

START_TEST(ten_thousand_each_way)
{
    connect_both(_i);
    for (uint64_t i = 0; i < 10000; i++) {
        send_number(client.conn, i);
        send_number(server.conn, i);
    }
    ck_assert_uint_gt(sw_conn_queued(client.conn), 10000 * 8);
    RUN_UNTIL(
        client.closed || server.closed || (client.messages == 10000 && server.messages == 10000));
    ck_assert(!client.closed && !server.closed);
    ck_assert(!client.out_of_order && !server.out_of_order);
    ck_assert_uint_eq(sw_conn_queued(client.conn), 0);
    sw_conn_close(client.conn, "done");
    sw_conn_close(client.conn, "done twice");
    ck_assert_int_eq(client.closed, 0); /* never from inside the call */
    RUN_UNTIL(client.closed && server.closed);
    check_says(&client.why, SW_ERR_CLOSED, "done");
    check_says(&server.why, SW_ERR_CLOSED, "inferd@infer0");
    check_says(&server.why, SW_ERR_CLOSED, "closed by the other side");
}
END_TEST

START_TEST(who_is_there)
{
    connect_both(_i);
    ck_assert_int_eq(sw_conn_peer(server.conn)->role, SW_ROLE_INFERD);
    ck_assert_str_eq(sw_conn_peer(client.conn)->host, "train0");
    ck_assert_int_eq(sw_conn_is_unix(server.conn), !_i);
    if (_i) {
        ck_assert_str_eq(sw_conn_address(server.conn), "127.0.0.1");
        ck_assert_int_eq(sw_conn_pid(server.conn), -1);
        ck_assert_int_eq(sw_conn_pidfd(server.conn), -1);
        ck_assert_ptr_nonnull(strstr(sw_conn_name(server.conn), "inferd@infer0 (127.0.0.1:"));
    } else {
        ck_assert_str_eq(sw_conn_address(server.conn), "");
        ck_assert_int_eq(sw_conn_pid(server.conn), getpid());
        ck_assert_int_eq(sw_conn_uid(server.conn), getuid());
        ck_assert_int_ge(sw_conn_pidfd(server.conn), 0);
        ck_assert_ptr_nonnull(strstr(sw_conn_name(client.conn), socket_path));
    }
}
END_TEST

START_TEST(large_messages)
{
    char *text = malloc(SW_FRAME_MAX - 32);

    memset(text, 'x', SW_FRAME_MAX - 33);
    text[SW_FRAME_MAX - 33] = '\0';
    connect_both(_i);
    for (int i = 0; i < 10; i++) {
        struct sw_msg *msg = sw_msg_new(SW_MSG_STATUS_TEXT);

        text[i] = 'y';
        msg->u.status_text.text = text;
        sw_conn_send(client.conn, msg);
    }
    RUN_UNTIL(client.closed || server.messages == 10);
    ck_assert_str_eq(server.last->u.status_text.text, text);
    free(text);
}
END_TEST

/* Queued before the peer is proven: goes out behind the handshake. */
START_TEST(sent_early)
{
    const struct sw_listen listen_how = how_to_listen(_i);
    struct sw_dial dial_how;

    server_early = 10;
    listen_with(&listen_how);
    dial_how = how_to_dial(_i);
    dial_with(&dial_how);
    for (uint64_t i = 0; i < 10; i++)
        send_number(client.conn, i);
    RUN_UNTIL(client.closed || (server.messages == 10 && client.messages == 10));
    ck_assert(!client.closed && !server.out_of_order && !client.out_of_order);
}
END_TEST

/* What is queued is sent, if the kernel takes it at once. */
START_TEST(close_flushes)
{
    connect_both(_i);
    for (uint64_t i = 0; i < 100; i++)
        send_number(client.conn, i);
    sw_conn_close(client.conn, "bye");
    send_number(client.conn, 100); /* too late, and no harm */
    RUN_UNTIL(client.closed && server.closed);
    ck_assert_uint_eq(server.messages, 100);
}
END_TEST

START_TEST(closed_by_its_handler)
{
    connect_both(_i);
    server.close_at = 3;
    for (uint64_t i = 0; i < 100; i++)
        send_number(client.conn, i);
    RUN_UNTIL(client.closed && server.closed);
    ck_assert_uint_eq(server.messages, 3); /* what was read behind it is not delivered */
    check_says(&server.why, SW_ERR_CLOSED, "enough");
}
END_TEST

START_TEST(error_from_the_peer)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_ERROR);

    connect_both(_i);
    msg->u.error.code = SW_ERR_PLAN;
    msg->u.error.reason = "no source for x";
    sw_conn_send(server.conn, msg);
    sw_conn_close(server.conn, "told");
    send_number(client.conn, 0); /* so that the socket breaks under unread data */
    RUN_UNTIL(client.closed);
    check_says(&client.why, SW_ERR_PLAN, "no source for x");
    check_says(&client.why, SW_ERR_PLAN, "trainerd@train0");
}
END_TEST

START_TEST(message_that_cannot_be_sent)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_PHASE); /* phase 0 */

    connect_both(_i);
    sw_conn_send(client.conn, msg);
    RUN_UNTIL(client.closed && server.closed);
    check_says(&client.why, SW_ERR_INVALID, "message PHASE: phase");
    check_says(&server.why, SW_ERR_INVALID, "message PHASE: phase"); /* it was told */
}
END_TEST

START_TEST(over_a_socket_pair)
{
    int pair[2];
    struct sw_dial how = {.self = &inferd, .timeout_ms = 60000};

    /* Nobody answers at the other end; what matters is that it is ours. */
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    how.fd = pair[0];
    dial_with(&how);
    ck_assert_int_eq(sw_conn_pid(client.conn), getpid());
    close(pair[1]);
    RUN_UNTIL(client.closed);
    check_says(&client.why, client.why.code, "");
    ck_assert_int_eq(fcntl(pair[0], F_GETFD), -1);
}
END_TEST

/* ---- descriptors ---- */

static int numbered_memfd(uint32_t number)
{
    const int fd = memfd_create("test", MFD_CLOEXEC);

    ck_assert_int_eq(write(fd, &number, sizeof(number)), sizeof(number));
    return fd;
}

static void check_descriptors(struct sw_conn *c, struct sw_msg *msg, void *arg)
{
    struct end *end = arg;
    const uint32_t i = (uint32_t)end->messages;

    ck_assert_uint_eq(msg->n_fds, i % 4 == 3 ? SW_FRAME_FDS_MAX : i % 4);
    for (uint32_t k = 0; k < msg->n_fds; k++) {
        uint32_t number = 0;

        ck_assert_int_eq(pread(msg->fds[k], &number, sizeof(number), 0), sizeof(number));
        ck_assert_uint_eq(number, i * SW_FRAME_FDS_MAX + k);
        ck_assert_int_eq(fcntl(msg->fds[k], F_GETFD), FD_CLOEXEC);
    }
    on_message(c, msg, arg);
}

START_TEST(descriptors)
{
    static const struct sw_conn_handlers checking = {on_ready, check_descriptors, on_closed};
    int before;

    connect_both(false);
    sw_conn_set_handlers(server.conn, &checking, &server);
    before = open_descriptors();
    for (uint32_t i = 0; i < 200; i++) {
        struct sw_msg *msg = sw_msg_new(SW_MSG_STATUS);

        msg->u.status.request = i;
        msg->n_fds = i % 4 == 3 ? SW_FRAME_FDS_MAX : i % 4;
        for (uint32_t k = 0; k < msg->n_fds; k++)
            msg->fds[k] = numbered_memfd(i * SW_FRAME_FDS_MAX + k);
        sw_conn_send(client.conn, msg);
        if (i % 8 == 7) /* or this process would hold too many */
            RUN_UNTIL(client.closed || server.messages == i + 1);
    }
    ck_assert(!client.closed && !server.out_of_order);
    sw_msg_free(server.last);
    server.last = NULL;
    ck_assert_int_eq(open_descriptors(), before);
}
END_TEST

START_TEST(descriptors_not_over_tcp)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_STATUS);
    const int fd = numbered_memfd(1);

    connect_both(true);
    msg->fds[0] = fd;
    msg->n_fds = 1;
    sw_conn_send(client.conn, msg);
    RUN_UNTIL(client.closed);
    check_says(&client.why, SW_ERR_INVALID, "1 descriptors on a TCP connection");
    ck_assert_int_eq(fcntl(fd, F_GETFD), -1); /* owned, so closed */
}
END_TEST

static size_t frame_of_status(uint8_t *out, uint32_t n_fds)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_STATUS);
    uint8_t *bytes;
    size_t length;

    msg->u.status.request = 0;
    ck_assert_int_eq(sw_codec_encode(msg, &bytes, &length, NULL), 0);
    sw_frame_header(out, (uint32_t)length, n_fds);
    memcpy(out + SW_FRAME_HEADER, bytes, length);
    free(bytes);
    sw_msg_free(msg);
    return SW_FRAME_HEADER + length;
}

static void send_raw(int fd, const uint8_t *bytes, size_t n, int n_fds)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int) * 253)];
    } control = {0};
    struct iovec iov = {.iov_base = (void *)bytes, .iov_len = n};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    int fds[253]; /* the kernel's limit */

    for (int i = 0; i < n_fds; i++)
        fds[i] = fd; /* any will do: the socket itself */
    if (n_fds) {
        struct cmsghdr *head;

        m.msg_control = control.room;
        m.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n_fds);
        head = CMSG_FIRSTHDR(&m);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n_fds);
        memcpy(CMSG_DATA(head), fds, sizeof(int) * (size_t)n_fds);
    }
    ck_assert_int_eq(sendmsg(fd, &m, MSG_NOSIGNAL), n);
}

/* Pieces that are sent one after another: n bytes of the stream, with descriptors. The stream is
 * three frames of 11 bytes, whose headers promise `promised` descriptors. */
static const struct {
    struct {
        int n, fds;
    } pieces[4];
    int promised[3];
    int code; /* of the end, 0 = `messages` arrive */
    const char *says;
    uint64_t messages;
} matching[] = {
    {{{11, 0}}, {0}, 0, NULL, 1},
    {{{11, 2}}, {2}, 0, NULL, 1},
    {{{1, 2}, {10, 0}}, {2}, 0, NULL, 1}, /* at the first byte, the rest later */
    {{{11, 1}, {11, SW_FRAME_FDS_MAX}, {11, 1}}, {1, SW_FRAME_FDS_MAX, 1}, 0, NULL, 3},
    {{{11, 0}, {11, 1}, {11, 0}}, {0, 1, 0}, 0, NULL, 3},
    {{{11, 1}, {1, 3}, {10, 0}}, {1, 3}, 0, NULL, 2},
    {{{1, 1}, {21, 0}}, {0, 1}, SW_ERR_PROTOCOL, "", 1}, /* taken by the next frame, read with it */
    {{{11, 0}}, {1}, SW_ERR_PROTOCOL, "1 descriptors are with it, and 0 are there", 0},
    {{{11, 1}}, {2}, SW_ERR_PROTOCOL, "2 descriptors are with it, and 1 are there", 0},
    {{{11, 2}}, {1}, SW_ERR_PROTOCOL, "1 descriptors are with it, and 2 are there", 0},
    {{{11, 1}}, {0}, SW_ERR_PROTOCOL, "no message says", 1},
    {{{6, 0}, {5, 1}}, {1}, SW_ERR_PROTOCOL, "", 0},      /* in the middle of its frame */
    {{{11, 1}, {11, 0}}, {0, 1}, SW_ERR_PROTOCOL, "", 1}, /* one frame early */
    {{{11, 0}, {11, 1}}, {1, 0}, SW_ERR_PROTOCOL, "", 0}, /* one frame late */
    {{{11, SW_FRAME_FDS_MAX + 1}}, {SW_FRAME_FDS_MAX}, SW_ERR_PROTOCOL,
        "descriptors with a message", 0},
    {{{11, 200}}, {0}, SW_ERR_PROTOCOL, "descriptors with a message", 0},
    {{{11, 0}}, {SW_FRAME_FDS_MAX + 1}, SW_ERR_LIMIT, "descriptors; at most", 0},
    {{{4, 1}, {4, 1}, {3, 1}}, {3}, SW_ERR_PROTOCOL, "", 0},
};

START_TEST(descriptor_matching)
{
    uint8_t stream[64];
    size_t size = 0, at = 0;
    const int fd = raw_client(false), before = open_descriptors();

    for (int i = 0; i < 3; i++)
        size += frame_of_status(stream + size, (uint32_t)matching[_i].promised[i]);
    for (int i = 0; i < 4 && matching[_i].pieces[i].n && !server.closed; i++) {
        const size_t n = (size_t)matching[_i].pieces[i].n;

        ck_assert_uint_le(at + n, size);
        send_raw(fd, stream + at, n, matching[_i].pieces[i].fds);
        at += n;
        uv_run(&loop, UV_RUN_NOWAIT); /* each piece is read by itself */
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    if (matching[_i].code) {
        RUN_UNTIL(server.closed);
        check_says(&server.why, matching[_i].code, matching[_i].says);
        ck_assert_uint_eq(server.messages, matching[_i].messages);
    } else {
        RUN_UNTIL(server.closed || server.messages == matching[_i].messages);
        ck_assert_msg(!server.closed, "%s", server.why.text);
    }
    sw_msg_free(server.last);
    server.last = NULL;
    if (server.closed) /* nothing that came has stayed open; socket and pidfd went with it */
        ck_assert_int_eq(open_descriptors(), before - 2);
    else
        ck_assert_int_eq(open_descriptors(), before);
    close(fd);
}
END_TEST

/* ---- peers that do wrong, or nothing ---- */

static void check_told(int fd, const char *text)
{
    char got[4096] = {0};
    size_t n = 0;
    ssize_t some;

    while ((some = recv(fd, got + n, sizeof(got) - n, MSG_DONTWAIT)) > 0)
        n += (size_t)some;
    ck_assert_msg(memmem(got, n, text, strlen(text)) != NULL, "not told \"%s\"", text);
}

START_TEST(vanished_in_a_message)
{
    uint8_t frame[64];
    const int fd = raw_client(_i);

    send_raw(fd, frame, frame_of_status(frame, 0), 0);
    send_raw(fd, frame, 9, 0);
    close(fd);
    RUN_UNTIL(server.closed);
    check_says(&server.why, SW_ERR_PROTOCOL, "in the middle of a message");
    check_says(&server.why, SW_ERR_PROTOCOL, "inferd@infer0");
    ck_assert_uint_eq(server.messages, 1);
}
END_TEST

START_TEST(nonsense_after_the_handshake)
{
    const int fd = raw_client(_i);

    send_raw(fd, (const uint8_t *)"GET / HTTP/1.1\r\n\r\n", 18, 0);
    RUN_UNTIL(server.closed);
    check_says(&server.why, SW_ERR_PROTOCOL, "HTTP");
    check_told(fd, "HTTP");
    close(fd);
}
END_TEST

START_TEST(silent)
{
    struct sw_listen how = how_to_listen(_i);
    int fd;

    how.timeout_ms = 50;
    listen_with(&how);
    fd = plain_client(_i);
    RUN_UNTIL(refusals);
    check_says(&refusal, SW_ERR_TIMEOUT, "no answer in the handshake");
    check_told(fd, "no answer in the handshake");
    close(fd);
    /* the same, half-way through the handshake's first message */
    fd = plain_client(_i);
    send_raw(fd, (const uint8_t *)"SW\1\0\0\0\0\50", 8, 0);
    RUN_UNTIL(refusals == 2);
    check_says(&refusal, SW_ERR_TIMEOUT, "no answer in the handshake");
    close(fd);
    ck_assert_int_eq(server.ready, 0);
}
END_TEST

/* The deadline is for the handshake alone. */
static void on_over(uv_timer_t *timer)
{
    *(bool *)timer->data = true;
    uv_close((uv_handle_t *)timer, NULL);
}

START_TEST(silent_when_proven)
{
    struct sw_listen listen_how = how_to_listen(false);
    struct sw_dial dial_how;
    static uv_timer_t timer; /* it ends after the test does */
    bool over = false;

    listen_how.timeout_ms = 500;
    listen_with(&listen_how);
    dial_how = how_to_dial(false);
    dial_how.timeout_ms = 500;
    dial_with(&dial_how);
    RUN_UNTIL(client.closed || (client.ready && server.ready));
    uv_timer_init(&loop, &timer);
    timer.data = &over;
    uv_timer_start(&timer, on_over, 600, 0);
    RUN_UNTIL(over);
    ck_assert(!client.closed && !server.closed);
}
END_TEST

/* A listener that accepts and says nothing: the dialler's deadline. */
START_TEST(silent_listener)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct sw_dial how = how_to_dial(false);

    memcpy(un.sun_path, socket_path, sizeof(socket_path));
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
    ck_assert_int_eq(listen(fd, 5), 0);
    how.timeout_ms = 50;
    dial_with(&how);
    RUN_UNTIL(client.closed);
    check_says(&client.why, SW_ERR_TIMEOUT, "no answer in the handshake");
    check_says(&client.why, SW_ERR_TIMEOUT, socket_path);
    ck_assert_int_eq(client.ready, 0);
    close(fd);
}
END_TEST

START_TEST(unproven_nonsense)
{
    const struct sw_listen how = how_to_listen(_i);
    uint8_t junk[20000];
    int fd;

    listen_with(&how);
    fd = plain_client(_i);
    send_raw(fd, (const uint8_t *)"\x16\x03\x01\x02\x00\x01\x00\x01", 8, 0);
    RUN_UNTIL(refusals == 1);
    check_says(&refusal, SW_ERR_PROTOCOL, "TLS");
    check_told(fd, "TLS");
    close(fd);
    /* a message that is right, and has no place before the handshake */
    fd = plain_client(_i);
    send_raw(fd, junk, frame_of_status(junk, 0), 0);
    RUN_UNTIL(refusals == 2);
    check_says(&refusal, SW_ERR_PROTOCOL, "STATUS in the handshake");
    check_told(fd, "STATUS in the handshake");
    close(fd);
    /* a frame larger than any hello, never finished */
    fd = plain_client(_i);
    memset(junk, 0, sizeof(junk));
    sw_frame_header(junk, SW_FRAME_MAX, 0);
    send_raw(fd, junk, sizeof(junk), 0);
    RUN_UNTIL(refusals == 3);
    check_says(&refusal, SW_ERR_LIMIT, "before the handshake is done");
    close(fd);
    fd = plain_client(_i);
    close(fd);
    RUN_UNTIL(refusals == 4);
    check_says(&refusal, SW_ERR_CLOSED, "ended in the handshake");
    ck_assert_int_eq(server.ready, 0);
}
END_TEST

START_TEST(unproven_descriptors)
{
    const struct sw_listen how = how_to_listen(false);
    uint8_t frame[64];
    int fd;

    listen_with(&how);
    fd = plain_client(false);
    send_raw(fd, frame, frame_of_status(frame, 2), 2);
    RUN_UNTIL(refusals);
    check_says(&refusal, SW_ERR_PROTOCOL, "descriptors in the handshake");
    close(fd);
}
END_TEST

START_TEST(slow_reader)
{
    char *text = malloc(1000001);
    const int fd = raw_client(_i);
    int sent = 0;

    memset(text, 'x', 1000000);
    text[1000000] = '\0';
    for (; !server.closed && sent < 1000; sent++) {
        struct sw_msg *msg = sw_msg_new(SW_MSG_STATUS_TEXT);

        msg->u.status_text.text = text;
        sw_conn_send(server.conn, msg);
        ck_assert_uint_le(sw_conn_queued(server.conn), SW_SEND_QUEUE_MAX + SW_FRAME_MAX);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    ck_assert_int_lt(sent, 100);
    check_says(&server.why, SW_ERR_LIMIT, "a peer that does not read");
    check_says(&server.why, SW_ERR_LIMIT, "67108864");
    free(text);
    close(fd);
}
END_TEST

/* Many small messages take more memory than their bytes: that is what is limited. */
START_TEST(slow_reader_of_small_messages)
{
    const int fd = raw_client(_i);
    int sent = 0;

    for (; !server.closed && sent < 2000000; sent++) {
        send_number(server.conn, 1);
        if (sent % 1000 == 0)
            uv_run(&loop, UV_RUN_NOWAIT);
    }
    check_says(&server.why, SW_ERR_LIMIT, "a peer that does not read");
    close(fd);
}
END_TEST

/* A peer with much to say leaves the others on the loop their turns. */
static uint64_t most, seen;

static void on_turn(uv_prepare_t *handle)
{
    if (server.messages - seen > most)
        most = server.messages - seen;
    seen = server.messages;
}

START_TEST(nobody_starves)
{
    uint8_t frames[4096 * 16];
    size_t size = 0;
    uv_prepare_t prepare;
    const int fd = raw_client(_i);

    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){4 << 20}, sizeof(int));
    most = 0;
    seen = server.messages;
    uv_prepare_init(&loop, &prepare);
    uv_prepare_start(&prepare, on_turn);
    for (int i = 0; i < 4096; i++)
        size += frame_of_status(frames + size, 0);
    for (int i = 0; i < 20; i++) { /* more than one turn's worth waits in the socket */
        size_t at = 0;

        while (at < size) {
            const ssize_t n = send(fd, frames + at, size - at, MSG_DONTWAIT | MSG_NOSIGNAL);

            if (n > 0)
                at += (size_t)n;
            else
                uv_run(&loop, UV_RUN_ONCE);
        }
    }
    RUN_UNTIL(server.closed || server.messages == 20 * 4096);
    ck_assert(!server.closed);
    on_turn(&prepare);                            /* what the last turn brought */
    ck_assert_uint_le(most, (4u << 16) / 11 + 4); /* four reads of 64 KiB */
    uv_close((uv_handle_t *)&prepare, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
    close(fd);
}
END_TEST

/* ---- detach ---- */

START_TEST(detached)
{
    char got[64] = {0};
    int a, b;

    connect_both(_i);
    send_number(server.conn, 0);
    RUN_UNTIL(client.messages == 1);
    send_number(server.conn, 1); /* still queued: detaching sends it */
    a = sw_conn_detach(server.conn);
    ck_assert_int_ge(a, 0);
    RUN_UNTIL(client.messages == 2 && server.closed);
    b = sw_conn_detach(client.conn);
    ck_assert_int_ge(b, 0);
    RUN_UNTIL(client.closed);
    ck_assert_int_eq(write(a, "raw bytes", 9), 9);
    ck_assert_int_eq(recv(b, got, sizeof(got), 0), 9);
    ck_assert_str_eq(got, "raw bytes");
    ck_assert_int_ne(fcntl(a, F_GETFL) & O_NONBLOCK, 0);
    close(a);
    close(b);
}
END_TEST

/* In the handler of a message: possible, unless bytes behind it were read already. */
START_TEST(detached_by_its_handler)
{
    connect_both(_i);
    server.detach_at = 1;
    send_number(client.conn, 0);
    send_number(client.conn, 1);
    RUN_UNTIL(server.messages == 2);
    ck_assert_int_eq(server.detached, -1);
    ck_assert(!server.closed);
    server.detach_at = 3;
    send_number(client.conn, 2);
    RUN_UNTIL(server.closed);
    ck_assert_int_ge(server.detached, 0);
    close(server.detached);
}
END_TEST

START_TEST(not_detachable)
{
    uint8_t frame[64];
    char *text = calloc(1, 1000001);
    const int fd = raw_client(_i);

    send_raw(fd, frame, frame_of_status(frame, 0), 0);
    send_raw(fd, frame, 5, 0); /* half a frame behind it */
    RUN_UNTIL(server.messages == 1);
    uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_int_eq(sw_conn_detach(server.conn), -1);
    send_raw(fd, frame + 5, frame_of_status(frame, 0) - 5, 0);
    RUN_UNTIL(server.messages == 2);
    memset(text, 'x', 1000000);
    for (int i = 0; i < 20; i++) { /* more than the kernel takes */
        struct sw_msg *msg = sw_msg_new(SW_MSG_STATUS_TEXT);

        msg->u.status_text.text = text;
        sw_conn_send(server.conn, msg);
    }
    ck_assert_int_eq(sw_conn_detach(server.conn), -1);
    ck_assert(!server.closed); /* it goes on */
    free(text);
    close(fd);
}
END_TEST

/* ---- dialling and listening: errors by name ---- */

static void dial_fails(const struct sw_dial *how, int code, const char *text)
{
    struct sw_error e = {0};

    ck_assert_int_eq(sw_conn_dial(&loop, how, &handlers, &client, &client.conn, &e), code);
    check_says(&e, code, text);
    ck_assert_ptr_null(client.conn);
}

START_TEST(dialling_nobody)
{
    struct sw_dial how = {.fd = -1, .self = &inferd, .path = socket_path};
    char path[200];
    int fd;

    dial_fails(&how, SW_ERR_CLOSED, "is trainerd running? tried /tmp/");
    memset(path, 'p', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    how.path = path;
    dial_fails(&how, SW_ERR_INVALID, "199 bytes, at most 107");
    how.path = NULL;
    how.host = "127.0.0.1";
    how.port = 65536;
    dial_fails(&how, SW_ERR_INVALID, "not in 1 to 65535");
    how.fd = fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dial_fails(&how, SW_ERR_IO, "socket");
    ck_assert_int_eq(fcntl(fd, F_GETFD), -1); /* owned, so closed */
    ck_assert_int_eq(client.closed, 0);
}
END_TEST

START_TEST(dialling_a_closed_port)
{
    struct sw_listen listen_how = how_to_listen(true);
    struct sw_dial how;

    listen_with(&listen_how);
    how = how_to_dial(true);
    sw_listener_close(listener);
    listener = NULL;
    while (uv_run(&loop, UV_RUN_DEFAULT))
        ;
    dial_with(&how);
    RUN_UNTIL(client.closed);
    check_says(&client.why, SW_ERR_CLOSED, "nobody listens there: is trainerd running?");
    check_says(&client.why, SW_ERR_CLOSED, "127.0.0.1:");
}
END_TEST

START_TEST(dialling_a_name)
{
    struct sw_dial how = {.fd = -1, .self = &inferd, .port = 7470, .host = "no..name"};

    dial_with(&how);
    RUN_UNTIL(client.closed);
    check_says(&client.why, SW_ERR_NOT_FOUND, "no..name:7470: no address");
    client.closed = 0;
    dial_with(&how);
    sw_conn_close(client.conn, "changed my mind"); /* while the lookup runs */
    RUN_UNTIL(client.closed);
    check_says(&client.why, SW_ERR_CLOSED, "changed my mind");
}
END_TEST

START_TEST(dialling_another_group)
{
    const struct sw_listen listen_how = how_to_listen(_i);
    struct sw_identity other = inferd;
    struct sw_dial how;

    listen_with(&listen_how);
    how = how_to_dial(_i);
    other.group = "other";
    how.self = &other;
    dial_with(&how);
    RUN_UNTIL(client.closed && refusals);
    check_says(&client.why, SW_ERR_AUTH, "\"other\" came to \"rl\"");
    check_says(&refusal, SW_ERR_AUTH, "\"other\" came to \"rl\"");
    other = inferd;
    other.role = SW_ROLE_CLIENT;
    client.closed = refusals = 0;
    dial_with(&how);
    RUN_UNTIL(client.closed && refusals);
    check_says(&client.why, SW_ERR_AUTH, "takes no client");
    ck_assert_int_eq(server.ready, 0);
}
END_TEST

START_TEST(another_instance)
{
    static const struct sw_id wanted = {{77}};
    const struct sw_listen listen_how = how_to_listen(_i);
    struct sw_dial how;

    listen_with(&listen_how);
    how = how_to_dial(_i);
    how.expect = &wanted;
    dial_with(&how);
    RUN_UNTIL(client.closed && refusals);
    check_says(&client.why, SW_ERR_AUTH, "it was restarted");
}
END_TEST

static void listen_fails(const struct sw_listen *how, int code, const char *text)
{
    struct sw_listener *l = NULL;
    struct sw_error e = {0};

    ck_assert_int_eq(sw_listener_open(&loop, how, &listening, NULL, &l, &e), code);
    check_says(&e, code, text);
    ck_assert_ptr_null(l);
}

START_TEST(taken)
{
    struct sw_listen how = how_to_listen(_i);

    listen_with(&how);
    if (_i) {
        how.port = sw_listener_port(listener);
        listen_fails(&how, SW_ERR_EXISTS, "is in use: is another trainerd running?");
    } else {
        listen_fails(&how, SW_ERR_EXISTS, "is another trainerd running? somebody listens on /tmp");
    }
}
END_TEST

START_TEST(stale_socket)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct stat st;

    memcpy(un.sun_path, socket_path, sizeof(socket_path));
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
    close(fd); /* the file stays, as after a kill */
    connect_both(false);
    ck_assert_int_eq(stat(socket_path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
    sw_listener_close(listener);
    listener = NULL;
    ck_assert_int_eq(stat(socket_path, &st), -1); /* it takes its file away */
    send_number(client.conn, 0);                  /* and accepted connections live on */
    RUN_UNTIL(server.messages == 1);
}
END_TEST

START_TEST(bad_places)
{
    struct sw_listen how = how_to_listen(false);
    struct stat st;
    char path[200];

    how.owner_group = "no such group";
    listen_fails(&how, SW_ERR_NOT_FOUND, "there is no group \"no such group\"");
    ck_assert_int_eq(stat(socket_path, &st), -1); /* nothing is left behind */
    how.owner_group = "";
    memset(path, 'p', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    how.path = path;
    listen_fails(&how, SW_ERR_INVALID, "199 bytes, 1 to 107");
    how.path = "/nonexistent/s.sock";
    listen_fails(&how, SW_ERR_IO, "folder of the socket /nonexistent/s.sock: No such file");
    how.path = socket_path;
    close(open(socket_path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    listen_fails(&how, SW_ERR_EXISTS, "is no socket");
    unlink(socket_path);
    how = how_to_listen(true);
    how.host = "192.0.2.1"; /* for documentation: nobody has it */
    listen_fails(&how, SW_ERR_INVALID, "192.0.2.1 is no address of this host");
    how.host = "no..name";
    listen_fails(&how, SW_ERR_INVALID, "no address to listen on");
    how.fd = 0;
    listen_fails(&how, SW_ERR_INVALID, "no listening socket");
}
END_TEST

START_TEST(adopted_socket)
{
    struct sw_listen how = how_to_listen(true);
    struct sw_dial dial_how;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_eq(listen(fd, 5), 0); /* bound to any free port */
    how.fd = fd;
    how.host = NULL;
    listen_with(&how);
    dial_how = how_to_dial(true);
    dial_with(&dial_how);
    RUN_UNTIL(client.closed || client.ready);
    ck_assert(!client.closed);
}
END_TEST

/* ---- many ---- */

START_TEST(too_many)
{
    struct sw_listen how = how_to_listen(_i);
    struct sw_dial dial_how;
    int fd;

    how.max_connections = 1;
    listen_with(&how);
    fd = plain_client(_i);
    dial_how = how_to_dial(_i);
    dial_with(&dial_how);
    RUN_UNTIL(client.closed);
    check_says(&client.why, SW_ERR_LIMIT, "1 connections are open, which is the limit");
    check_says(&refusal, SW_ERR_LIMIT, "1 connections are open");
    close(fd);
    RUN_UNTIL(refusals == 2); /* its place is free again */
    client.closed = 0;
    dial_with(&dial_how);
    RUN_UNTIL(client.closed || client.ready);
    ck_assert(!client.closed);
    sw_conn_close(server.conn, "proven ones count, too, until they end");
    RUN_UNTIL(client.closed);
    client.closed = client.ready = 0;
    dial_with(&dial_how);
    RUN_UNTIL(client.closed || client.ready);
    ck_assert(!client.closed);
}
END_TEST

START_TEST(no_descriptors_left)
{
    struct sw_listen how = how_to_listen(false);
    struct rlimit limit, tight;
    uint64_t then;
    int a;

    listen_with(&how);
    uv_run(&loop, UV_RUN_NOWAIT);
    a = plain_client(false);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    tight = limit;
    tight.rlim_cur = (rlim_t)a + 1; /* the highest in use; lower ones may be free */
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &tight), 0);
    while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0)
        ;
    RUN_UNTIL(refusals);
    check_says(&refusal, SW_ERR_LIMIT, "new connections have to wait");
    /* Each of these turns has to wait for the next try; a spinning listener takes no time. */
    then = uv_now(&loop);
    for (int i = 0; i < 4; i++)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_uint_ge(uv_now(&loop) - then, 300);
    ck_assert_int_eq(refusals, 1); /* told once */
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    close(a);
    RUN_UNTIL(refusals == 2); /* accepted at last, to find that it has gone */
    check_says(&refusal, SW_ERR_CLOSED, "ended in the handshake");
    for (int fd = 3; fd <= a; fd++) /* what was opened above */
        if (fcntl(fd, F_GETFD) == FD_CLOEXEC) {
            char link[64], target[64] = {0};

            snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
            if (readlink(link, target, sizeof(target) - 1) > 0 && !strcmp(target, "/dev/null"))
                close(fd);
        }
}
END_TEST

START_TEST(closing_the_listener)
{
    const struct sw_listen how = how_to_listen(_i);
    int fd;

    connect_both(_i);
    fd = plain_client(_i);
    uv_run(&loop, UV_RUN_NOWAIT);
    uv_run(&loop, UV_RUN_NOWAIT);
    sw_listener_close(listener);
    listener = NULL;
    send_number(client.conn, 0);
    RUN_UNTIL(server.messages == 1);
    ck_assert_int_eq(refusals, 0); /* nothing is called after the close */
    ck_assert_ptr_nonnull(how.self);
    close(fd);
}
END_TEST

static void ignore_accepted(struct sw_conn *c, void *arg)
{
    server.ready++;
}

START_TEST(nobody_takes_it)
{
    static const struct sw_listener_handlers idle = {ignore_accepted, on_refused, NULL};
    const struct sw_listen how = how_to_listen(_i);
    struct sw_dial dial_how;

    ck_assert_int_eq(sw_listener_open(&loop, &how, &idle, NULL, &listener, NULL), 0);
    dial_how = how_to_dial(_i);
    dial_with(&dial_how);
    RUN_UNTIL(client.closed);
    ck_assert_int_eq(server.ready, 1);
}
END_TEST

/* ---- filter ---- */

static int freed;

/* Each byte doubled and inverted. */
static int wrap(
    void *state, const uint8_t *in, size_t n, uint8_t **out, size_t *out_n, struct sw_error *e)
{
    uint8_t *grown;

    if (n == 0)
        return 0;
    grown = realloc(*out, *out_n + 2 * n);
    ck_assert_ptr_nonnull(grown);
    for (size_t i = 0; i < n; i++)
        grown[*out_n + 2 * i] = grown[*out_n + 2 * i + 1] = (uint8_t)~in[i];
    *out = grown;
    *out_n += 2 * n;
    return 0;
}

struct half {
    bool have;
    uint8_t byte;
};

static int unwrap(
    void *state, const uint8_t *in, size_t n, uint8_t **out, size_t *out_n, struct sw_error *e)
{
    struct half *half = state;
    uint8_t *grown = realloc(*out, *out_n + n / 2 + 1);

    ck_assert_ptr_nonnull(grown);
    *out = grown;
    for (size_t i = 0; i < n; i++) {
        if (!half->have)
            half->byte = in[i];
        else if (half->byte == in[i])
            grown[(*out_n)++] = (uint8_t)~in[i];
        else
            return e->code = SW_ERR_PROTOCOL;
        half->have = !half->have;
    }
    return 0;
}

static void free_filter(void *state)
{
    freed++;
    free(state);
}

START_TEST(filtered)
{
    struct sw_filter at_server = {calloc(1, sizeof(struct half)), wrap, unwrap, free_filter};
    struct sw_filter at_client = {calloc(1, sizeof(struct half)), wrap, unwrap, free_filter};
    const struct sw_listen listen_how = how_to_listen(true);
    struct sw_dial dial_how;

    freed = 0;
    server_filter = &at_server;
    listen_with(&listen_how);
    dial_how = how_to_dial(true);
    dial_with(&dial_how);
    sw_conn_set_filter(client.conn, &at_client);
    for (uint64_t i = 0; i < 500; i++)
        send_number(client.conn, i);
    RUN_UNTIL(client.closed || server.messages == 500);
    ck_assert_msg(!client.closed, "%s", client.why.text);
    for (uint64_t i = 0; i < 500; i++)
        send_number(server.conn, i);
    RUN_UNTIL(client.closed || client.messages == 500);
    ck_assert(!client.out_of_order && !server.out_of_order);
    ck_assert_uint_eq(sw_conn_queued(server.conn), 0);
    sw_conn_close(server.conn, "done");
    RUN_UNTIL(client.closed && server.closed);
    ck_assert_int_eq(freed, 2);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("conn");
    TCase *t = tcase_create("conn");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 30);
    tcase_add_loop_test(t, ten_thousand_each_way, 0, 2);
    tcase_add_loop_test(t, who_is_there, 0, 2);
    tcase_add_loop_test(t, large_messages, 0, 2);
    tcase_add_loop_test(t, sent_early, 0, 2);
    tcase_add_loop_test(t, close_flushes, 0, 2);
    tcase_add_loop_test(t, closed_by_its_handler, 0, 2);
    tcase_add_loop_test(t, error_from_the_peer, 0, 2);
    tcase_add_loop_test(t, message_that_cannot_be_sent, 0, 2);
    tcase_add_test(t, over_a_socket_pair);
    tcase_add_test(t, descriptors);
    tcase_add_test(t, descriptors_not_over_tcp);
    tcase_add_loop_test(t, descriptor_matching, 0, sizeof(matching) / sizeof(matching[0]));
    tcase_add_loop_test(t, vanished_in_a_message, 0, 2);
    tcase_add_loop_test(t, nonsense_after_the_handshake, 0, 2);
    tcase_add_loop_test(t, silent, 0, 2);
    tcase_add_test(t, silent_when_proven);
    tcase_add_test(t, silent_listener);
    tcase_add_loop_test(t, unproven_nonsense, 0, 2);
    tcase_add_test(t, unproven_descriptors);
    tcase_add_loop_test(t, slow_reader, 0, 2);
    tcase_add_test(t, slow_reader_of_small_messages);
    tcase_add_loop_test(t, nobody_starves, 0, 2);
    tcase_add_loop_test(t, detached, 0, 2);
    tcase_add_loop_test(t, detached_by_its_handler, 0, 2);
    tcase_add_loop_test(t, not_detachable, 0, 2);
    tcase_add_test(t, dialling_nobody);
    tcase_add_test(t, dialling_a_closed_port);
    tcase_add_test(t, dialling_a_name);
    tcase_add_loop_test(t, dialling_another_group, 0, 2);
    tcase_add_loop_test(t, another_instance, 0, 2);
    tcase_add_loop_test(t, taken, 0, 2);
    tcase_add_test(t, stale_socket);
    tcase_add_test(t, bad_places);
    tcase_add_test(t, adopted_socket);
    tcase_add_loop_test(t, too_many, 0, 2);
    tcase_add_test(t, no_descriptors_left);
    tcase_add_loop_test(t, closing_the_listener, 0, 2);
    tcase_add_loop_test(t, nobody_takes_it, 0, 2);
    tcase_add_test(t, filtered);
    suite_add_tcase(s, t);
    return test_suite_run(s);
}
