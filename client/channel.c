/* SPDX-License-Identifier: Apache-2.0 */
#include "client/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "common/codec.h"
#include "common/error.h"
#include "common/frame.h"
#include "common/limits.h"

#define NS_PER_MS ((uint64_t)1000000)

#define LAST_MESSAGES 64u /* looked through for why the other side ended */

struct sw_channel {
    int fd;
    char peer[32];
    struct sw_error broken;
    /* The message that is coming in. Not a byte more is read than it has: so descriptors are those
     * of this message, and the socket is readable while another one is there. */
    uint8_t header[SW_FRAME_HEADER];
    uint8_t *payload; /* NULL until the header is whole and was checked */
    size_t filled;    /* bytes of both that have come */
    uint32_t length, n_fds;
    int fds[SW_FRAME_FDS_MAX];
    uint32_t held; /* descriptors that have come */
};

uint64_t sw_clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

uint64_t sw_deadline_in(uint32_t ms)
{
    return sw_clock_ns() + ms * NS_PER_MS;
}

/* ---- making one ---- */

static int check_path(const char *path, struct sockaddr_un *address, struct sw_error *e)
{
    const size_t length = strlen(path);

    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (length == 0)
        return sw_fail(e, SW_ERR_INVALID, "the socket's path is empty");
    if (length >= sizeof(address->sun_path))
        return sw_fail(e, SW_ERR_INVALID,
            "socket path of %zu bytes; %zu are possible: choose a shorter one: %s", length,
            sizeof(address->sun_path) - 1, path);
    memcpy(address->sun_path, path, length);
    return 0;
}

static int connect_failed(int err, const char *path, const char *daemon, struct sw_error *e)
{
    switch (err) {
    case ENOENT:
    case ENOTDIR:
    case ECONNREFUSED:
        return sw_fail_errno(e, SW_ERR_CLOSED, err, "is %s running? tried %s", daemon, path);
    case EACCES:
    case EPERM:
        return sw_fail_errno(e, SW_ERR_AUTH, err,
            "user %u may not connect to %s: join the group that owns it, or ask for its mode",
            (unsigned)geteuid(), path);
    case EAGAIN:
    case EINTR:
        return sw_fail(e, SW_ERR_TIMEOUT,
            "%s does not accept connections: is it stopped, or overloaded? tried %s", daemon, path);
    case EPROTOTYPE:
        return sw_fail_errno(e, SW_ERR_INVALID, err, "%s is not a stream socket", path);
    default:
        return sw_fail_errno(e, SW_ERR_IO, err, "connect to %s at %s", daemon, path);
    }
}

/* A connect that waits for room in the backlog, at most until the deadline. */
static int connect_until(int fd, const struct sockaddr_un *address, uint64_t deadline)
{
    const uint64_t now = sw_clock_ns();
    const uint64_t left = deadline > now ? deadline - now : 0;
    const struct timeval wait = {.tv_sec = (time_t)(left / 1000000000ull),
        .tv_usec = (suseconds_t)(left % 1000000000ull / 1000 + 1)};

    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) ||
        connect(fd, (const struct sockaddr *)address, sizeof(*address)))
        return errno;
    return 0;
}

int sw_channel_connect(const char *path, const char *daemon, uint64_t deadline,
    struct sw_channel **channel, struct sw_error *e)
{
    struct sockaddr_un address;
    int rc = check_path(path, &address, e);
    int fd, err;

    if (rc)
        return rc;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return sw_fail_errno(e, SW_ERR_IO, errno, "a socket to %s", daemon);
    do
        err = connect_until(fd, &address, deadline);
    while (err == EINTR && sw_clock_ns() < deadline);
    if (err) {
        close(fd);
        return connect_failed(err, path, daemon, e);
    }
    return sw_channel_adopt(fd, daemon, channel, e);
}

int sw_channel_adopt(int fd, const char *peer, struct sw_channel **channel, struct sw_error *e)
{
    struct sw_channel *c = calloc(1, sizeof(*c));
    const int flags = fcntl(fd, F_GETFL);

    if (!c) {
        close(fd);
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a connection to %s", peer);
    }
    c->fd = fd;
    snprintf(c->peer, sizeof(c->peer), "%s", peer);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK)) {
        const int err = errno;

        sw_channel_free(c);
        return sw_fail_errno(e, SW_ERR_IO, err, "socket to %s", peer);
    }
    *channel = c;
    return 0;
}

static void drop_message(struct sw_channel *c)
{
    for (uint32_t i = 0; i < c->held; i++)
        close(c->fds[i]);
    free(c->payload);
    c->payload = NULL;
    c->filled = 0;
    c->held = 0;
}

void sw_channel_free(struct sw_channel *c)
{
    if (!c)
        return;
    close(c->fd);
    drop_message(c);
    free(c);
}

int sw_channel_fd(const struct sw_channel *c)
{
    return c->fd;
}

bool sw_channel_broken(const struct sw_channel *c)
{
    return c->broken.code != 0;
}

/* ---- failing ---- */

/* Remembers why the channel is broken. Returns the code in `why`, which is also put into *e. */
static int break_with(struct sw_channel *c, const struct sw_error *why, struct sw_error *e)
{
    c->broken = *why;
    if (e)
        *e = *why;
    return why->code;
}

static int still_broken(const struct sw_channel *c, struct sw_error *e)
{
    return sw_fail(
        e, SW_ERR_CLOSED, "the connection to %s is closed: %.900s", c->peer, c->broken.text);
}

static int gone(struct sw_channel *c, int err, const char *what, struct sw_error *e)
{
    struct sw_error why;

    if (err == 0)
        sw_fail(&why, SW_ERR_CLOSED, "%s closed the connection %s %s%s", c->peer,
            c->filled ? "in the middle of a message, while we waited for" : "while we waited for",
            what, c->filled ? "" : ": did it end?");
    else if (err == EPIPE || err == ECONNRESET)
        sw_fail_errno(&why, SW_ERR_CLOSED, err, "%s is gone: %s", c->peer, what);
    else
        sw_fail_errno(&why, SW_ERR_IO, err, "connection to %s: %s", c->peer, what);
    return break_with(c, &why, e);
}

/* ---- waiting ---- */

/* Waits for an event on the socket. 0; SW_ERR_TIMEOUT without a text. */
static int wait_for(const struct sw_channel *c, short events, uint64_t deadline)
{
    struct pollfd p = {.fd = c->fd, .events = events};
    uint64_t now, ms;
    int n;

    if (deadline == SW_NO_WAIT)
        return SW_ERR_TIMEOUT;
    do {
        now = sw_clock_ns();
        /* Rounded up, so that the last wait does not turn into a spin. */
        ms = deadline > now ? (deadline - now + NS_PER_MS - 1) / NS_PER_MS : 0;
        n = poll(&p, 1, ms > 60000 ? 60000 : (int)ms);
    } while ((n < 0 && errno == EINTR) || (n == 0 && ms > 60000));
    return n > 0 ? 0 : SW_ERR_TIMEOUT;
}

/* ---- sending ---- */

static void attach(
    struct msghdr *m, void *control, size_t control_bytes, const int *fds, uint32_t n)
{
    struct cmsghdr *h;

    memset(control, 0, control_bytes);
    m->msg_control = control;
    m->msg_controllen = CMSG_SPACE(n * sizeof(int));
    h = CMSG_FIRSTHDR(m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(n * sizeof(int));
    memcpy(CMSG_DATA(h), fds, n * sizeof(int));
}

/* Header and payload as far as they are not sent; descriptors go with the first byte. */
static ssize_t send_some(
    const struct sw_channel *c, struct iovec v[2], size_t sent, const int *fds, uint32_t n_fds)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(SW_FRAME_FDS_MAX * sizeof(int))];
    struct iovec rest[2] = {v[0], v[1]};
    struct msghdr m = {.msg_iov = rest, .msg_iovlen = 2};

    if (sent < v[0].iov_len) {
        rest[0].iov_base = (char *)v[0].iov_base + sent;
        rest[0].iov_len -= sent;
    } else {
        m.msg_iov = &rest[1];
        m.msg_iovlen = 1;
        rest[1].iov_base = (char *)v[1].iov_base + (sent - v[0].iov_len);
        rest[1].iov_len -= sent - v[0].iov_len;
    }
    if (sent == 0 && n_fds)
        attach(&m, control, sizeof(control), fds, n_fds);
    return sendmsg(c->fd, &m, MSG_NOSIGNAL);
}

static int send_timeout(struct sw_channel *c, size_t sent, const char *kind, struct sw_error *e)
{
    struct sw_error why;

    sw_fail(&why, SW_ERR_TIMEOUT, "%s does not read: %s could not be sent in time", c->peer, kind);
    if (sent == 0) { /* nothing of it is on the way: the stream is whole */
        if (e)
            *e = why;
        return why.code;
    }
    return break_with(c, &why, e);
}

static bool last_words(struct sw_channel *c, struct sw_error *why);

/* The other side does not read any more. If it said why, that is what is told. */
static int send_failed(struct sw_channel *c, int err, const char *kind, struct sw_error *e)
{
    struct sw_error why;

    if ((err == EPIPE || err == ECONNRESET) && last_words(c, &why))
        return break_with(c, &why, e);
    return gone(c, err, kind, e);
}

static int send_frame(struct sw_channel *c, struct iovec v[2], const int *fds, uint32_t n_fds,
    const char *kind, uint64_t deadline, struct sw_error *e)
{
    const size_t total = v[0].iov_len + v[1].iov_len;
    size_t sent = 0;

    while (sent < total) {
        const ssize_t n = send_some(c, v, sent, fds, n_fds);

        if (n >= 0)
            sent += (size_t)n;
        else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (wait_for(c, POLLOUT, deadline))
                return send_timeout(c, sent, kind, e);
        } else if (errno != EINTR) {
            return send_failed(c, errno, kind, e);
        }
    }
    return 0;
}

int sw_channel_send(struct sw_channel *c, const struct sw_msg *msg, const int *fds, uint32_t n_fds,
    uint64_t deadline, struct sw_error *e)
{
    uint8_t header[SW_FRAME_HEADER], *payload;
    struct iovec v[2] = {{.iov_base = header, .iov_len = sizeof(header)}};
    size_t length;
    int rc;

    if (c->broken.code)
        return still_broken(c, e);
    if (n_fds > SW_FRAME_FDS_MAX)
        return sw_fail(e, SW_ERR_LIMIT, "%s with %u descriptors; %d are possible",
            sw_msg_kind_name(msg->kind), n_fds, SW_FRAME_FDS_MAX);
    rc = sw_codec_encode(msg, &payload, &length, e);
    if (rc)
        return rc;
    sw_frame_header(header, (uint32_t)length, n_fds);
    v[1] = (struct iovec){.iov_base = payload, .iov_len = length};
    rc = send_frame(c, v, fds, n_fds, sw_msg_kind_name(msg->kind), deadline, e);
    free(payload);
    return rc;
}

/* ---- receiving ---- */

/* Takes the descriptors that came with some bytes; false when they are more than may come. */
static bool hold_fds(struct sw_channel *c, struct msghdr *m)
{
    bool fits = !(m->msg_flags & MSG_CTRUNC);

    for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
        const size_t n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < n; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(fd));
            if (c->held < SW_FRAME_FDS_MAX) {
                c->fds[c->held++] = fd;
            } else {
                close(fd);
                fits = false;
            }
        }
    }
    return fits;
}

static ssize_t receive_some(struct sw_channel *c, bool *fits)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(SW_FRAME_FDS_MAX * sizeof(int))];
    struct iovec v = {.iov_base = c->header + c->filled, .iov_len = SW_FRAME_HEADER - c->filled};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    ssize_t n;

    if (c->payload) {
        v.iov_base = c->payload + (c->filled - SW_FRAME_HEADER);
        v.iov_len = c->length - (c->filled - SW_FRAME_HEADER);
    }
    n = recvmsg(c->fd, &m, MSG_CMSG_CLOEXEC);
    *fits = n <= 0 || hold_fds(c, &m);
    return n;
}

/* The header is whole: checks it and makes room for what it announces. */
static int start_payload(struct sw_channel *c, struct sw_error *e)
{
    int rc = sw_frame_parse(c->header, &c->length, &c->n_fds, e);

    if (rc)
        return sw_error_context(e, rc, "%s", c->peer);
    c->payload = malloc(c->length + 1u);
    if (!c->payload)
        return sw_fail(
            e, SW_ERR_NOMEM, "no memory for a message of %u bytes from %s", c->length, c->peer);
    return 0;
}

/* Reads on until a message is whole. SW_ERR_TIMEOUT has no text; other failures break the channel.
 */
static int fill(struct sw_channel *c, uint64_t deadline, const char *what, struct sw_error *e)
{
    struct sw_error why;
    bool fits;

    while (!c->payload || c->filled < SW_FRAME_HEADER + (size_t)c->length) {
        const ssize_t n = receive_some(c, &fits);

        if (n == 0)
            return gone(c, 0, what, e);
        if (n < 0) {
            if (errno == EAGAIN || errno == EWOULDBLOCK) {
                if (wait_for(c, POLLIN, deadline))
                    return SW_ERR_TIMEOUT;
            } else if (errno != EINTR) {
                return gone(c, errno, what, e);
            }
            continue;
        }
        c->filled += (size_t)n;
        if (!fits) {
            sw_fail(&why, SW_ERR_PROTOCOL, "%s sent more than %d descriptors with one message",
                c->peer, SW_FRAME_FDS_MAX);
            return break_with(c, &why, e);
        }
        if (c->filled == SW_FRAME_HEADER && start_payload(c, &why))
            return break_with(c, &why, e);
    }
    return 0;
}

/* Decodes the whole message that is there. */
static int decode(struct sw_channel *c, struct sw_msg **msg, struct sw_error *e)
{
    struct sw_msg *m;
    int rc;

    if (c->held != c->n_fds)
        return sw_fail(e, SW_ERR_PROTOCOL,
            "%s announced %u descriptors with a message, and sent %u", c->peer, c->n_fds, c->held);
    rc = sw_codec_decode(c->payload, c->length, &m, e);
    if (rc)
        return sw_error_context(e, rc, "from %s", c->peer);
    memcpy(m->fds, c->fds, c->held * sizeof(int));
    m->n_fds = c->held;
    c->held = 0; /* they are the message's now */
    *msg = m;
    return 0;
}

int sw_channel_receive(struct sw_channel *c, uint64_t deadline, const char *what,
    struct sw_msg **msg, struct sw_error *e)
{
    const uint64_t start = sw_clock_ns();
    struct sw_error why;
    int rc;

    if (c->broken.code)
        return still_broken(c, e);
    rc = fill(c, deadline, what, e);
    if (rc == SW_ERR_TIMEOUT)
        return sw_fail(e, SW_ERR_TIMEOUT, "%s did not answer within %" PRIu64 " ms: waited for %s",
            c->peer, (sw_clock_ns() - start) / NS_PER_MS, what);
    if (rc)
        return rc;
    rc = decode(c, msg, &why);
    drop_message(c);
    if (rc)
        break_with(c, &why, e);
    return rc;
}

/* Looks for an ERROR among what arrived before the end. */
static bool last_words(struct sw_channel *c, struct sw_error *why)
{
    bool found = false;

    for (unsigned i = 0; i < LAST_MESSAGES && !found; i++) {
        struct sw_msg *msg;

        if (sw_channel_receive(c, SW_NO_WAIT, "its last words", &msg, NULL))
            return false;
        found = msg->kind == SW_MSG_ERROR;
        if (found)
            sw_fail(why, msg->u.error.code < 0 ? msg->u.error.code : SW_ERR_CLOSED,
                "%s ended the session: %.900s", c->peer, msg->u.error.reason);
        sw_msg_free(msg);
    }
    return found;
}

/* ---- the handshake ---- */

static int greet_failed(const struct sw_channel *c, struct sw_error *e, int rc)
{
    return sw_error_context(e, rc, "handshake with %s", c->peer);
}

int sw_channel_greet(struct sw_channel *c, struct sw_handshake *h, uint64_t deadline,
    struct sw_peer *peer, struct sw_error *e)
{
    struct sw_msg *out = sw_handshake_start(h);
    bool done = false;
    int rc = 0;

    if (out)
        rc = sw_channel_send(c, out, NULL, 0, deadline, e);
    sw_msg_free(out);
    while (rc == 0 && !done) {
        struct sw_msg *in;
        struct sw_error refused;

        rc = sw_channel_receive(c, deadline, "the handshake", &in, e);
        if (rc)
            break;
        out = NULL;
        rc = sw_handshake_step(h, in, &out, &done, peer, e);
        if (out) { /* on a failure too: it tells the other side why */
            const int sent = sw_channel_send(c, out, NULL, 0, deadline, rc ? &refused : e);

            rc = rc ? rc : sent;
        }
        sw_msg_free(out);
        sw_msg_free(in);
    }
    return rc ? greet_failed(c, e, rc) : 0;
}

static int greet_as(
    struct sw_channel *c, const struct sw_identity *self, uint64_t deadline, struct sw_error *e)
{
    struct sw_handshake *h = sw_handshake_dial(self, false, NULL);
    struct sw_peer peer;
    int rc;

    if (!h)
        return sw_fail(e, SW_ERR_NOMEM, "no memory or randomness for a handshake with %s", c->peer);
    rc = sw_channel_greet(c, h, deadline, &peer, e);
    sw_handshake_free(h);
    return rc;
}

int sw_channel_dial(const char *path, const char *daemon, const struct sw_identity *self,
    uint64_t deadline, struct sw_channel **channel, struct sw_error *e)
{
    struct sw_channel *c;
    int rc = sw_channel_connect(path, daemon, deadline, &c, e);

    if (rc)
        return rc;
    rc = greet_as(c, self, deadline, e);
    if (rc) {
        sw_channel_free(c);
        return sw_error_context(e, rc, "%s", path);
    }
    *channel = c;
    return 0;
}
