/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/control.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "client/channel.h"
#include "common/error.h"
#include "common/handshake.h"
#include "tools/arguments.h"

#define STATUS_BYTES_MAX (64u << 20)

struct sw_control {
    struct sw_channel *channel;
    uint32_t timeout_ms;
    uint64_t requests;
    char name[300]; /* of the daemon, for messages */
    char group[SW_LABEL_MAX + 1];
    char host[256]; /* ours */
    uint8_t *secret;
    size_t secret_bytes;
};

int sw_control_split_host(const char *text, char host[256], char port[6], struct sw_error *e)
{
    const char *colon = strrchr(text, ':');
    const char *start = text;
    size_t n = colon ? (size_t)(colon - text) : 0;
    uint64_t number;

    if (n >= 2 && text[0] == '[' && text[n - 1] == ']') {
        start++;
        n -= 2;
    } else if (n && memchr(text, ':', n)) {
        return sw_fail(e, SW_ERR_INVALID, "\"%.200s\": an IPv6 address goes into []", text);
    }
    if (!n || n > 255 || sw_argument_number(colon + 1, 1, 65535, &number) < 0)
        return sw_fail(e, SW_ERR_INVALID, "\"%.200s\" is no HOST:PORT", text);
    memcpy(host, start, n);
    host[n] = '\0';
    snprintf(port, 6, "%u", (unsigned)number);
    return 0;
}

/* A connect with a deadline: 0 or an errno value. */
static int connect_address(int fd, const struct addrinfo *a, uint64_t deadline)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int err = 0;
    socklen_t n = sizeof(err);

    if (connect(fd, a->ai_addr, a->ai_addrlen) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return errno;
    for (;;) {
        const uint64_t now = sw_clock_ns();
        const int left = now < deadline ? (int)((deadline - now) / 1000000) + 1 : 0;
        const int ready = poll(&p, 1, left);
        if (ready > 0)
            break;
        if (ready == 0)
            return ETIMEDOUT;
        if (errno != EINTR)
            return errno;
    }
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &n) < 0 ? errno : err;
}

/* Tries each address of the host. */
static int dial(
    const struct sw_control_where *where, uint64_t deadline, int *out, struct sw_error *e)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *all, *a;
    char host[256], port[6];
    int fd = -1, err = 0, code = sw_control_split_host(where->host, host, port, e);

    if (code)
        return code;
    err = getaddrinfo(host, port, &hints, &all);
    if (err)
        return sw_fail(e, SW_ERR_NOT_FOUND, "host %s: %s", host, gai_strerror(err));
    for (a = all; a; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        err = fd < 0 ? errno : connect_address(fd, a, deadline);
        if (!err)
            break;
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    freeaddrinfo(all);
    if (fd < 0)
        return sw_fail_errno(
            e, SW_ERR_CLOSED, err, "is a daemon running at %s? it did not answer", where->host);
    *out = fd;
    return 0;
}

static int greet(struct sw_control *c, bool tcp, uint64_t deadline, struct sw_error *e)
{
    struct sw_identity self = {.group = c->group,
        .role = SW_ROLE_CLIENT,
        .host = c->host,
        .secret = c->secret,
        .secret_bytes = c->secret_bytes};
    struct sw_handshake *h;
    struct sw_peer peer;
    int code;

    if (sw_id_random(&self.instance) || !(h = sw_handshake_dial(&self, tcp, NULL)))
        return sw_fail(e, SW_ERR_NOMEM, "no memory or randomness for a handshake");
    code = sw_channel_greet(c->channel, h, deadline, &peer, e);
    sw_handshake_free(h);
    if (!code)
        snprintf(c->name, sizeof(c->name), "%s", sw_role_name(peer.role));
    return code;
}

static int start(struct sw_control *c, const struct sw_control_where *where, struct sw_error *e)
{
    const uint64_t deadline = sw_deadline_in(where->timeout_ms);
    const char *group = where->group ? where->group : SW_GROUP_DEFAULT;
    int fd = -1, code;

    c->timeout_ms = where->timeout_ms;
    if (strlen(group) > SW_LABEL_MAX)
        return sw_fail(
            e, SW_ERR_LIMIT, "group name of %zu bytes, at most %d", strlen(group), SW_LABEL_MAX);
    memcpy(c->group, group, strlen(group) + 1);
    if (gethostname(c->host, sizeof(c->host) - 1) < 0)
        c->host[0] = '\0';
    if (!where->host) {
        code = sw_channel_connect(where->path, where->daemon, deadline, &c->channel, e);
        return code ? code : greet(c, false, deadline, e);
    }
    code = where->secret_file ? sw_secret_load(where->secret_file, &c->secret, &c->secret_bytes, e)
                              : 0;
    if (!code)
        code = dial(where, deadline, &fd, e);
    if (!code)
        code = sw_channel_adopt(fd, "daemon", &c->channel, e);
    if (!code)
        code = greet(c, true, deadline, e);
    return code ? sw_error_context(e, code, "%s", where->host) : 0;
}

int sw_control_open(
    const struct sw_control_where *where, struct sw_control **control, struct sw_error *e)
{
    struct sw_control *c = calloc(1, sizeof(*c));
    int code = c ? start(c, where, e) : sw_fail(e, SW_ERR_NOMEM, "no memory for a connection");

    if (code) {
        sw_control_close(c);
        return code;
    }
    *control = c;
    return 0;
}

/* The next message; ERROR becomes an error. */
static int receive_any(
    struct sw_control *c, uint64_t deadline, struct sw_msg **out, struct sw_error *e)
{
    struct sw_msg *msg;
    int code = sw_channel_receive(c->channel, deadline, "the daemon's answer", &msg, e);

    if (code)
        return code;
    if (msg->kind != SW_MSG_ERROR || msg->u.error.code >= 0) {
        *out = msg;
        return 0;
    }
    code = sw_fail(e, msg->u.error.code, "%s says: %s", c->name, msg->u.error.reason);
    sw_msg_free(msg);
    return code;
}

static int unexpected(
    const struct sw_control *c, const struct sw_msg *msg, const char *wanted, struct sw_error *e)
{
    return sw_fail(e, SW_ERR_PROTOCOL, "%s sent %s instead of %s", c->name,
        sw_msg_kind_name(msg->kind), wanted);
}

/* The next message of this kind. */
static int receive(struct sw_control *c, enum sw_msg_kind kind, uint64_t deadline,
    struct sw_msg **out, struct sw_error *e)
{
    struct sw_msg *msg = NULL;
    int code = receive_any(c, deadline, &msg, e);

    if (code)
        return code;
    if (msg->kind == kind) {
        *out = msg;
        return 0;
    }
    code = unexpected(c, msg, sw_msg_kind_name(kind), e);
    sw_msg_free(msg);
    return code;
}

struct text {
    char *bytes;
    size_t n;
};

static int append(struct text *t, const char *part, struct sw_error *e)
{
    const size_t n = strlen(part);
    char *bytes;

    if (n > STATUS_BYTES_MAX - t->n)
        return sw_fail(e, SW_ERR_LIMIT, "a status of more than %u bytes", STATUS_BYTES_MAX);
    bytes = realloc(t->bytes, t->n + n + 1);
    if (!bytes)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a status of %zu bytes", t->n + n);
    memcpy(bytes + t->n, part, n + 1);
    t->bytes = bytes;
    t->n += n;
    return 0;
}

int sw_control_status(struct sw_control *c, char **text, struct sw_error *e)
{
    const uint64_t deadline = sw_deadline_in(c->timeout_ms);
    struct sw_msg *msg = sw_msg_new(SW_MSG_STATUS);
    struct text t = {0};
    bool last = false;
    int code;

    if (!msg)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a message");
    msg->u.status.request = ++c->requests;
    code = sw_channel_send(c->channel, msg, NULL, 0, deadline, e);
    sw_msg_free(msg);
    while (!code && !last) {
        code = receive(c, SW_MSG_STATUS_TEXT, deadline, &msg, e);
        if (code)
            break;
        if (msg->u.status_text.request == c->requests) {
            code = append(&t, msg->u.status_text.text, e);
            last = msg->u.status_text.last;
        }
        sw_msg_free(msg);
    }
    if (code) {
        free(t.bytes);
        return code;
    }
    *text = t.bytes;
    return 0;
}

int sw_control_engines(
    struct sw_control *c, sw_control_take *take, void *arg, uint32_t *n, struct sw_error *e)
{
    const uint64_t deadline = sw_deadline_in(c->timeout_ms);
    struct sw_msg *msg = sw_msg_new(SW_MSG_ENGINES);
    bool done = false;
    int code;

    if (!msg)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a message");
    msg->u.engines.request = ++c->requests;
    code = sw_channel_send(c->channel, msg, NULL, 0, deadline, e);
    sw_msg_free(msg);
    while (!code && !done) {
        code = receive_any(c, deadline, &msg, e);
        if (code)
            break;
        done = msg->kind == SW_MSG_ENGINES_DONE && msg->u.engines_done.request == c->requests;
        if (done)
            *n = msg->u.engines_done.n;
        else if (msg->kind == SW_MSG_ENGINE_RANK || msg->kind == SW_MSG_PARAMETERS)
            code = take(arg, msg, e);
        else
            code = unexpected(c, msg, "its engines", e);
        sw_msg_free(msg);
    }
    return code;
}

int sw_control_publish(struct sw_control *c, uint64_t version, uint32_t timeout_ms,
    struct sw_msg **result, struct sw_error *e)
{
    const uint64_t deadline = sw_deadline_in(timeout_ms);
    struct sw_msg *msg = sw_msg_new(SW_MSG_PUBLISH);
    int code;

    if (!msg)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a message");
    msg->u.publish.request = ++c->requests;
    msg->u.publish.version = version;
    code = sw_channel_send(c->channel, msg, NULL, 0, deadline, e);
    sw_msg_free(msg);
    while (!code) {
        code = receive(c, SW_MSG_RESULT, deadline, &msg, e);
        if (code)
            break;
        if (msg->u.result.request == c->requests) {
            *result = msg;
            return 0;
        }
        sw_msg_free(msg); /* of an earlier request that nobody waits for */
    }
    return code;
}

void sw_control_close(struct sw_control *c)
{
    if (!c)
        return;
    sw_channel_free(c->channel);
    if (c->secret)
        explicit_bzero(c->secret, c->secret_bytes);
    free(c->secret);
    free(c);
}
