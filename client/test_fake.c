/* SPDX-License-Identifier: Apache-2.0 */
#include "client/test_fake.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void *run(void *arg)
{
    struct fake *f = arg;

    f->script(f);
    fake_hang_up(f);
    return NULL;
}

void fake_start(struct fake *f, enum sw_role role, void (*script)(struct fake *f), int arg)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memset(f, 0, sizeof(*f));
    f->role = role;
    f->script = script;
    f->arg = arg;
    f->group = SW_GROUP_DEFAULT;
    snprintf(f->dir, sizeof(f->dir), "/tmp/shardwire-test-XXXXXX");
    ck_assert(mkdtemp(f->dir));
    snprintf(f->path, sizeof(f->path), "%s/socket", f->dir);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", f->path);
    f->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(f->listener, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(f->listener, 4), 0);
    sem_init(&f->go, 0, 0);
    sem_init(&f->gone, 0, 0);
    ck_assert_int_eq(pthread_create(&f->thread, NULL, run, f), 0);
}

void fake_stop(struct fake *f)
{
    pthread_join(f->thread, NULL);
    close(f->listener);
    unlink(f->path);
    rmdir(f->dir);
    sem_destroy(&f->go);
    sem_destroy(&f->gone);
}

void fake_accept(struct fake *f)
{
    const int fd = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(sw_channel_adopt(fd, "the client", &f->c, NULL), 0);
}

void fake_greet(struct fake *f)
{
    struct sw_identity self = {.group = f->group, .role = f->role, .host = "fake"};
    struct sw_handshake *h;
    struct sw_peer peer;
    struct sw_error e = {0};

    fake_accept(f);
    ck_assert_int_eq(sw_id_random(&self.instance), 0);
    h = sw_handshake_listen(
        &self, false, 1u << SW_ROLE_TRAINER | 1u << SW_ROLE_ENGINE | 1u << SW_ROLE_CLIENT);
    /* What refuses is the test's affair: it sees it at the other side. */
    if (sw_channel_greet(f->c, h, sw_deadline_in(FAKE_MS), &peer, &e) == 0)
        f->peer = peer.instance;
    sw_handshake_free(h);
}

void fake_hang_up(struct fake *f)
{
    sw_channel_free(f->c);
    f->c = NULL;
}

struct sw_msg *fake_expect(struct fake *f, enum sw_msg_kind kind)
{
    struct sw_error e = {0};
    struct sw_msg *msg = NULL;

    ck_assert_msg(
        sw_channel_receive(f->c, sw_deadline_in(FAKE_MS), sw_msg_kind_name(kind), &msg, &e) == 0,
        "%s", e.text);
    ck_assert_msg(
        msg->kind == kind, "%s came, not %s", sw_msg_kind_name(msg->kind), sw_msg_kind_name(kind));
    return msg;
}

void fake_skip(struct fake *f, enum sw_msg_kind kind)
{
    sw_msg_free(fake_expect(f, kind));
}

void fake_send_fds(struct fake *f, struct sw_msg *msg, const int *fds, uint32_t n)
{
    struct sw_error e = {0};

    ck_assert_msg(
        sw_channel_send(f->c, msg, fds, n, sw_deadline_in(FAKE_MS), &e) == 0, "%s", e.text);
    sw_msg_free(msg);
}

void fake_send(struct fake *f, struct sw_msg *msg)
{
    fake_send_fds(f, msg, NULL, 0);
}

void fake_expect_end(struct fake *f)
{
    struct sw_error e = {0};
    struct sw_msg *msg;
    int rc = sw_channel_receive(f->c, sw_deadline_in(FAKE_MS), "the end", &msg, &e);

    ck_assert_msg(rc == SW_ERR_CLOSED || rc == SW_ERR_IO, "%d, %s", rc,
        rc ? e.text : sw_msg_kind_name(msg->kind));
}

void fake_error(struct fake *f, int code, const char *text)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_ERROR);

    msg->u.error.code = code;
    msg->u.error.reason = text;
    fake_send(f, msg);
    fake_hang_up(f);
}

void fake_garbage(struct fake *f)
{
    ck_assert_int_eq(send(sw_channel_fd(f->c), "HTTP/1.1 200 OK\r\n", 17, MSG_NOSIGNAL), 17);
}
