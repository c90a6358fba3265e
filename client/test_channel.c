/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "client/channel.h"
#include "common/codec.h"
#include "common/frame.h"
#include "common/limits.h"

#define LONG_MS 20000u

static struct sw_error e;
static struct sw_channel *c;
static int peer; /* the other end, as it is */

static void setup(void)
{
    int ends[2];

    memset(&e, 0, sizeof(e));
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ck_assert_int_eq(sw_channel_adopt(ends[0], "the peer", &c, &e), 0);
    peer = ends[1];
}

static void teardown(void)
{
    sw_channel_free(c);
    if (peer >= 0)
        close(peer);
}

static int receive(struct sw_msg **msg)
{
    *msg = NULL;
    return sw_channel_receive(c, sw_deadline_in(LONG_MS), "a message", msg, &e);
}

static void refuses(int code, const char *text)
{
    struct sw_msg *msg;
    int rc = receive(&msg);

    ck_assert_msg(rc == code && strstr(e.text, text), "%d %s", rc, e.text);
    ck_assert(sw_channel_broken(c));
    ck_assert_int_eq(receive(&msg), SW_ERR_CLOSED); /* for good, and it still says why */
    ck_assert_msg(strstr(e.text, text) != NULL, "%s", e.text);
    msg = sw_msg_new(SW_MSG_STATUS);
    ck_assert_int_eq(sw_channel_send(c, msg, NULL, 0, SW_NO_WAIT, &e), SW_ERR_CLOSED);
    sw_msg_free(msg);
}

/* A frame of a STATUS that announces `announced` descriptors. */
static size_t make_frame(uint8_t *out, uint64_t request, uint32_t announced)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_STATUS);
    uint8_t *payload;
    size_t length;

    msg->u.status.request = request;
    ck_assert_int_eq(sw_codec_encode(msg, &payload, &length, &e), 0);
    sw_frame_header(out, (uint32_t)length, announced);
    memcpy(out + SW_FRAME_HEADER, payload, length);
    free(payload);
    sw_msg_free(msg);
    return SW_FRAME_HEADER + length;
}

static void send_with_fds(const uint8_t *bytes, size_t n, uint32_t n_fds)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(250 * sizeof(int))] = {0};
    struct iovec v = {.iov_base = (void *)bytes, .iov_len = n};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    struct cmsghdr *h;

    if (n_fds) {
        m.msg_control = control;
        m.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        for (uint32_t i = 0; i < n_fds; i++)
            memcpy(CMSG_DATA(h) + i * sizeof(int), &peer, sizeof(int));
    }
    ck_assert_int_eq(sendmsg(peer, &m, MSG_NOSIGNAL), (ssize_t)n);
}

static unsigned open_files(void)
{
    unsigned n = 0;

    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

START_TEST(descriptors_come_with_their_message)
{
    uint8_t bytes[256];
    size_t n = make_frame(bytes, 1, 0);
    const unsigned before = open_files();
    struct sw_msg *msg;

    n += make_frame(bytes + n, 2, 0);
    send_with_fds(bytes, n, 0); /* two at once, then one that has descriptors */
    n = make_frame(bytes, 3, 2);
    send_with_fds(bytes, n, 2);
    for (uint64_t i = 1; i <= 3; i++) {
        ck_assert_msg(receive(&msg) == 0, "%s", e.text);
        ck_assert_uint_eq(msg->u.status.request, i);
        ck_assert_uint_eq(msg->n_fds, i == 3 ? 2 : 0);
        if (i == 3)
            ck_assert_int_eq(fcntl(msg->fds[1], F_GETFD), FD_CLOEXEC);
        sw_msg_free(msg);
    }
    ck_assert_uint_eq(open_files(), before);
}
END_TEST

/* {announced, sent}: what differs is refused, and no descriptor stays open. */
START_TEST(descriptors_must_be_as_announced)
{
    static const uint32_t cases[][2] = {{1, 0}, {0, 1}, {2, 1}, {1, 2}, {SW_FRAME_FDS_MAX + 1, 0},
        {SW_FRAME_FDS_MAX, SW_FRAME_FDS_MAX + 1}, {1, 250}};
    const unsigned before = open_files();
    uint8_t bytes[128];
    const size_t n = make_frame(bytes, 1, cases[_i][0] % 256);

    send_with_fds(bytes, n, cases[_i][1]);
    refuses(cases[_i][0] > SW_FRAME_FDS_MAX ? SW_ERR_LIMIT : SW_ERR_PROTOCOL, "descriptors");
    sw_channel_free(c);
    c = NULL;
    ck_assert_uint_eq(open_files(), before - 1);
    ck_assert_int_eq(sw_channel_adopt(dup(peer), "x", &c, &e), 0);
}
END_TEST

START_TEST(a_message_in_pieces)
{
    uint8_t bytes[128];
    const size_t n = make_frame(bytes, 77, 1);
    struct sw_msg *msg;

    for (size_t i = 0; i < n; i++) {
        ck_assert_int_eq(sw_channel_receive(c, SW_NO_WAIT, "the rest", &msg, &e), SW_ERR_TIMEOUT);
        ck_assert(strstr(e.text, "waited for the rest"));
        send_with_fds(bytes + i, 1, i == 0);
    }
    ck_assert_int_eq(receive(&msg), 0);
    ck_assert(msg->u.status.request == 77 && msg->n_fds == 1);
    sw_msg_free(msg);
}
END_TEST

START_TEST(an_end_in_the_middle)
{
    uint8_t bytes[128];
    const size_t n = make_frame(bytes, 77, 1);

    send_with_fds(bytes, _i ? n - 1 : 3, 1);
    shutdown(peer, SHUT_RDWR);
    refuses(SW_ERR_CLOSED, "in the middle of a message");
}
END_TEST

START_TEST(too_long)
{
    uint8_t header[SW_FRAME_HEADER];

    sw_frame_header(header, SW_FRAME_MAX, 0);
    header[4] = 0xff;
    send_with_fds(header, sizeof(header), 0);
    refuses(SW_ERR_LIMIT, "the peer");
}
END_TEST

/* A reader that does not read: at first nothing of a message is on the way, then half of one. */
START_TEST(nobody_reads)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_STATUS_TEXT);
    char *text = malloc(300001);
    int rc;

    memset(text, 't', 300000);
    text[300000] = '\0';
    msg->u.status_text.text = text;
    do
        rc = sw_channel_send(c, msg, NULL, 0, SW_NO_WAIT, &e);
    while (rc == 0);
    ck_assert_int_eq(rc, SW_ERR_TIMEOUT);
    ck_assert(strstr(e.text, "STATUS_TEXT could not be sent"));
    ck_assert(sw_channel_broken(c)); /* half of it is on the way */
    ck_assert_int_eq(sw_channel_send(c, msg, NULL, 0, SW_NO_WAIT, &e), SW_ERR_CLOSED);
    sw_msg_free(msg);
    free(text);
}
END_TEST

START_TEST(whole_when_nothing_was_sent)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_STATUS), *got;
    const char fill[1024] = {0};
    uint8_t bytes[128];

    while (send(sw_channel_fd(c), fill, sizeof(fill), MSG_DONTWAIT) > 0)
        ;
    ck_assert_int_eq(sw_channel_send(c, msg, NULL, 0, SW_NO_WAIT, &e), SW_ERR_TIMEOUT);
    ck_assert(!sw_channel_broken(c));
    send_with_fds(bytes, make_frame(bytes, 5, 0), 0);
    ck_assert_int_eq(receive(&got), 0);
    sw_msg_free(got);
    sw_msg_free(msg);
}
END_TEST

START_TEST(the_last_words_are_told)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_ERROR);
    uint8_t header[SW_FRAME_HEADER], *payload;
    size_t length;

    msg->u.error = (struct sw_failure){SW_ERR_EXISTS, "process 4711 has it"};
    ck_assert_int_eq(sw_codec_encode(msg, &payload, &length, &e), 0);
    sw_frame_header(header, (uint32_t)length, 0);
    send_with_fds(header, sizeof(header), 0);
    send_with_fds(payload, length, 0);
    close(peer);
    peer = -1;
    ck_assert_int_eq(sw_channel_send(c, msg, NULL, 0, sw_deadline_in(LONG_MS), &e), SW_ERR_EXISTS);
    ck_assert_msg(strstr(e.text, "process 4711 has it") != NULL, "%s", e.text);
    free(payload);
    sw_msg_free(msg);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("channel");
    TCase *t = tcase_create("channel");
    SRunner *runner;
    int failed;

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, descriptors_come_with_their_message);
    tcase_add_loop_test(t, descriptors_must_be_as_announced, 0, 7);
    tcase_add_test(t, a_message_in_pieces);
    tcase_add_loop_test(t, an_end_in_the_middle, 0, 2);
    tcase_add_test(t, too_long);
    tcase_add_test(t, nobody_reads);
    tcase_add_test(t, whole_when_nothing_was_sent);
    tcase_add_test(t, the_last_words_are_told);
    suite_add_tcase(suite, t);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
