/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes and descriptors of a connection: queueing, sendmsg, recvmsg. */
#include "common/conn_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/codec.h"
#include "common/error.h"

#define READ_BYTES (64u << 10) /* one recvmsg */
#define READ_CALLS 4           /* and as many for each wakeup: others on the loop want their turn */
#define WRITE_BYTES (1u << 20) /* likewise */
#define IOV_COUNT 64
#define EARLY_BYTES (16u << 10) /* what a peer may send before it is proven */
#define WIRE_BYTES (256u << 10) /* wrapped ahead of the socket */

/* ---- out ---- */

static void out_free(struct sw_out *out)
{
    for (uint32_t i = 0; i < out->n_fds; i++)
        if (out->fds[i] >= 0)
            close(out->fds[i]);
    free(out->payload);
    free(out);
}

void sw_out_queue_clear(struct sw_out_queue *q)
{
    struct sw_out *next;

    for (struct sw_out *out = q->head; out; out = next) {
        next = out->next;
        out_free(out);
    }
    *q = (struct sw_out_queue){0};
}

/* About what a frame takes, the allocator's own share included. */
static size_t out_memory(const struct sw_out *out)
{
    return sizeof(*out) + out->length + 32;
}

int sw_conn_queue(
    struct sw_conn *c, struct sw_out_queue *to, const struct sw_msg *msg, struct sw_error *e)
{
    struct sw_out *out;
    int rc;

    if (msg->n_fds > (c->is_unix ? SW_FRAME_FDS_MAX : 0))
        return sw_fail(e, SW_ERR_INVALID, "message %s with %u descriptors on a %s",
            sw_msg_kind_name(msg->kind), msg->n_fds, c->is_unix ? "UNIX socket" : "TCP connection");
    out = calloc(1, sizeof(*out) + msg->n_fds * sizeof(out->fds[0]));
    if (!out)
        return sw_fail(
            e, SW_ERR_NOMEM, "no memory to send message %s", sw_msg_kind_name(msg->kind));
    rc = sw_codec_encode(msg, &out->payload, &out->length, e);
    if (rc) {
        free(out);
        return rc;
    }
    if (c->self->traffic)
        c->self->traffic->sent++;
    sw_frame_header(out->header, (uint32_t)out->length, msg->n_fds);
    out->n_fds = msg->n_fds;
    memcpy(out->fds, msg->fds, msg->n_fds * sizeof(out->fds[0]));
    if (to->tail)
        to->tail->next = out;
    else
        to->head = out;
    to->tail = out;
    to->bytes += SW_FRAME_HEADER + out->length;
    to->memory += out_memory(out);
    return 0;
}

static size_t out_left(const struct sw_out *out)
{
    return SW_FRAME_HEADER + out->length - out->sent;
}

/* The unsent rest of a frame, as one or two pieces. */
static int out_pieces(const struct sw_out *out, struct iovec *iov)
{
    int n = 0;
    size_t skip = out->sent;

    if (skip < SW_FRAME_HEADER) {
        iov[n].iov_base = (void *)(out->header + skip);
        iov[n++].iov_len = SW_FRAME_HEADER - skip;
        skip = 0;
    } else {
        skip -= SW_FRAME_HEADER;
    }
    if (out->length > skip) {
        iov[n].iov_base = out->payload + skip;
        iov[n++].iov_len = out->length - skip;
    }
    return n;
}

static void out_taken(struct sw_out_queue *q, size_t bytes)
{
    q->bytes -= bytes;
    while (bytes) {
        struct sw_out *out = q->head;
        size_t some;

        assert(out); /* never more than was queued */
        some = bytes < out_left(out) ? bytes : out_left(out);
        out->sent += some;
        bytes -= some;
        if (out_left(out))
            break;
        q->head = out->next;
        if (!q->head)
            q->tail = NULL;
        q->memory -= out_memory(out);
        out_free(out);
    }
}

static ssize_t send_retrying(int fd, const struct msghdr *m)
{
    ssize_t sent;

    do
        sent = sendmsg(fd, m, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent;
}

/* A frame with descriptors goes alone, so that they lie at its first byte and nowhere else. */
static ssize_t send_with_fds(struct sw_conn *c, struct sw_out *out)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int) * SW_FRAME_FDS_MAX)];
    } control = {0};
    struct iovec iov[2];
    struct msghdr m = {.msg_iov = iov, .msg_control = control.room};
    struct cmsghdr *head;
    ssize_t sent;

    m.msg_iovlen = (size_t)out_pieces(out, iov);
    m.msg_controllen = CMSG_SPACE(sizeof(int) * out->n_fds);
    head = CMSG_FIRSTHDR(&m);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int) * out->n_fds);
    memcpy(CMSG_DATA(head), out->fds, sizeof(int) * out->n_fds);
    sent = send_retrying(c->fd, &m);
    if (sent > 0) {
        for (uint32_t i = 0; i < out->n_fds; i++)
            close(out->fds[i]);
        out->n_fds = 0;
    }
    return sent;
}

static ssize_t send_frames(struct sw_conn *c)
{
    struct iovec iov[IOV_COUNT];
    struct msghdr m = {.msg_iov = iov};
    int n = 0;

    if (c->out.head->n_fds)
        return send_with_fds(c, c->out.head);
    for (const struct sw_out *o = c->out.head; o && !o->n_fds && n + 2 <= IOV_COUNT; o = o->next)
        n += out_pieces(o, iov + n);
    m.msg_iovlen = (size_t)n;
    return send_retrying(c->fd, &m);
}

/* With a filter: frames become wire bytes first. Whole frames, so that the queue's accounts hold.
 */
static int wrap_frames(struct sw_conn *c, struct sw_error *e)
{
    int rc = 0;

    while (c->out.head && c->wire.n - c->wire.used < WIRE_BYTES && rc == 0) {
        const struct sw_out *out = c->out.head;

        rc = c->filter.wrap(
            c->filter.state, out->header, SW_FRAME_HEADER, &c->wire.data, &c->wire.n, e);
        if (rc == 0)
            rc = c->filter.wrap(
                c->filter.state, out->payload, out->length, &c->wire.data, &c->wire.n, e);
        out_taken(&c->out, out_left(out));
    }
    return rc;
}

static ssize_t send_wire(struct sw_conn *c)
{
    struct iovec iov = {
        .iov_base = c->wire.data + c->wire.used, .iov_len = c->wire.n - c->wire.used};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    const ssize_t sent = send_retrying(c->fd, &m);

    if (sent > 0)
        c->wire.used += (size_t)sent;
    if (c->wire.used == c->wire.n) { /* the buffer is kept for the next frames */
        c->wire.n = 0;
        c->wire.used = 0;
    }
    return sent;
}

static bool anything_to_send(const struct sw_conn *c)
{
    return c->out.head || c->wire.n > c->wire.used;
}

void sw_conn_flush(struct sw_conn *c, struct sw_error *e)
{
    size_t total = 0;

    e->code = 0;
    while (total < WRITE_BYTES) {
        ssize_t sent;

        if (c->has_filter && wrap_frames(c, e))
            return;
        if (!anything_to_send(c))
            break;
        sent = c->has_filter ? send_wire(c) : send_frames(c);
        if (sent < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK)
                sw_fail_errno(e, SW_ERR_IO, errno, "sending");
            break;
        }
        total += (size_t)sent;
        if (!c->has_filter)
            out_taken(&c->out, (size_t)sent);
    }
    sw_conn_want(c, UV_READABLE | (anything_to_send(c) ? UV_WRITABLE : 0));
}

/* ---- in ---- */

static int take_frame(
    struct sw_conn *c, const uint8_t *payload, uint32_t length, uint32_t n_fds, struct sw_error *e)
{
    struct sw_msg *msg;
    int rc = sw_codec_decode(payload, length, &msg, e);

    if (rc)
        return rc;
    if (n_fds && c->state != SW_CONN_READY)
        rc = sw_fail(e, SW_ERR_PROTOCOL, "descriptors in the handshake");
    if (rc == 0)
        rc = sw_fd_queue_frame(&c->received, n_fds, msg, e);
    if (rc)
        sw_msg_free(msg);
    else
        sw_conn_handle(c, msg);
    return rc;
}

/* Feeds what one recvmsg gave. Stops when a handler ended the connection. */
static int feed(struct sw_conn *c, const uint8_t *bytes, size_t n, struct sw_error *e)
{
    const uint8_t *payload;
    uint32_t length, n_fds;
    size_t used;
    int rc = 0;

    while (n && rc == 0 && !sw_conn_ended(c)) {
        rc = sw_splitter_feed(c->splitter, bytes, n, &used, &payload, &length, &n_fds, e);
        if (rc)
            break;
        bytes += used;
        n -= used;
        if (c->state != SW_CONN_READY && (c->early_bytes += used) > EARLY_BYTES)
            return sw_fail(
                e, SW_ERR_LIMIT, "over %u bytes before the handshake is done", EARLY_BYTES);
        c->unfed = n;
        if (payload)
            rc = take_frame(c, payload, length, n_fds, e);
    }
    c->unfed = 0;
    if (rc == 0 && !sw_conn_ended(c))
        rc = sw_fd_queue_fed(&c->received, sw_splitter_partial(c->splitter), e);
    return rc;
}

/* Descriptors of a recvmsg: all are taken over, whatever else is wrong with the message. */
static int collect_fds(struct sw_conn *c, struct msghdr *m, struct sw_error *e)
{
    int fds[SW_FRAME_FDS_MAX];
    uint32_t n = 0, surplus = 0;

    for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
        size_t count;

        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(fd));
            if (n < SW_FRAME_FDS_MAX) {
                fds[n++] = fd;
            } else {
                close(fd);
                surplus++;
            }
        }
    }
    if (n)
        sw_fd_queue_arrive(&c->received, fds, n);
    if (surplus || (m->msg_flags & MSG_CTRUNC))
        return sw_fail(e, SW_ERR_PROTOCOL,
            "more than %u descriptors with a message, or more than this process may open",
            SW_FRAME_FDS_MAX);
    return 0;
}

static int end_of_stream(const struct sw_conn *c, struct sw_error *e)
{
    if (sw_splitter_partial(c->splitter))
        return sw_fail(e, SW_ERR_PROTOCOL, "the connection ended in the middle of a message");
    if (c->state != SW_CONN_READY)
        return sw_fail(e, SW_ERR_CLOSED, "the connection ended in the handshake");
    return sw_fail(e, SW_ERR_CLOSED, "closed by the other side");
}

static int unwrap(struct sw_conn *c, const uint8_t *bytes, size_t n, struct sw_error *e)
{
    struct sw_bytes plain = {0};
    int rc = c->filter.unwrap(c->filter.state, bytes, n, &plain.data, &plain.n, e);

    if (rc == 0)
        rc = feed(c, plain.data, plain.n, e);
    free(plain.data);
    if (rc == 0 && !sw_conn_ended(c)) {
        /* The filter may have something of its own to answer. */
        rc = c->filter.wrap(c->filter.state, NULL, 0, &c->wire.data, &c->wire.n, e);
        if (anything_to_send(c))
            sw_conn_want(c, UV_READABLE | UV_WRITABLE);
    }
    return rc;
}

/* One recvmsg. *more = there may be more to read. */
static int read_once(struct sw_conn *c, bool *more, struct sw_error *e)
{
    uint8_t buffer[READ_BYTES];
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int) * SW_FRAME_FDS_MAX)];
    } control;
    struct iovec iov = {.iov_base = buffer, .iov_len = sizeof(buffer)};
    struct msghdr m = {.msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = c->is_unix ? control.room : NULL,
        .msg_controllen = c->is_unix ? sizeof(control.room) : 0};
    ssize_t got;
    int rc;

    *more = false;
    do
        got = recvmsg(c->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK
                   ? 0
                   : sw_fail_errno(
                         e, errno == ETIMEDOUT ? SW_ERR_TIMEOUT : SW_ERR_IO, errno, "receiving");
    rc = collect_fds(c, &m, e);
    if (rc)
        return rc;
    if (got == 0)
        return end_of_stream(c, e);
    *more = true;
    return c->has_filter ? unwrap(c, buffer, (size_t)got, e) : feed(c, buffer, (size_t)got, e);
}

/* Reads up to the bound for one wakeup. What goes wrong ends the connection. */
static void read_some(struct sw_conn *c)
{
    bool more = true;

    for (int i = 0; i < READ_CALLS && more && !sw_conn_ended(c); i++) {
        struct sw_error e = {0};
        const int rc = read_once(c, &more, &e);

        if (rc && !sw_conn_ended(c))
            /* The peer is told what it did wrong, not that it is gone. */
            sw_conn_end(c, &e, rc == SW_ERR_PROTOCOL || rc == SW_ERR_LIMIT || rc == SW_ERR_NOMEM);
    }
}

/* The socket can't be written to any more, or is in error: the peer's last message, an ERROR
 * perhaps, may still lie in it, and says more than "broken pipe". */
static void broken(struct sw_conn *c, const struct sw_error *why)
{
    read_some(c);
    if (!sw_conn_ended(c))
        sw_conn_end(c, why, false);
}

static void socket_error(struct sw_conn *c, int status)
{
    struct sw_error e = {0};
    int err = 0;
    socklen_t size = sizeof(err);

    read_some(c);
    if (sw_conn_ended(c))
        return;
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &size) || !err)
        err = -status;
    sw_fail_errno(&e, err == ETIMEDOUT ? SW_ERR_TIMEOUT : SW_ERR_IO, err, "connection lost");
    sw_conn_end(c, &e, false);
}

void sw_conn_events(struct sw_conn *c, int status, int events)
{
    struct sw_error e = {0};

    if (status < 0) {
        socket_error(c, status);
        return;
    }
    if (events & UV_READABLE)
        read_some(c);
    if (sw_conn_ended(c) || !(events & UV_WRITABLE))
        return;
    sw_conn_flush(c, &e);
    if (e.code)
        broken(c, &e);
}
