/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dialling: name lookup in libuv's pool, then one non-blocking connect after another until an
 * address answers. The lookup is an object of its own, since it can't be stopped once it runs.
 */
#include "common/conn_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/error.h"

struct sw_resolve {
    uv_getaddrinfo_t request;
    struct sw_conn *conn; /* NULL once nobody wants the answer */
};

struct sw_attempts {
    struct addrinfo *list, *next;
    struct sw_error last; /* why the last address did not do */
};

/* The daemon that somebody of this role dials. */
static const char *daemon_of(enum sw_role dialler)
{
    switch (dialler) {
    case SW_ROLE_ENGINE:
    case SW_ROLE_WRITER:
        return "inferd";
    case SW_ROLE_CLIENT:
        return "the daemon";
    default:
        return "trainerd";
    }
}

void sw_conn_dial_clear(struct sw_conn *c)
{
    if (c->resolve) {
        c->resolve->conn = NULL;
        uv_cancel((uv_req_t *)&c->resolve->request);
        c->resolve = NULL;
    }
    if (c->attempts) {
        uv_freeaddrinfo(c->attempts->list);
        free(c->attempts);
        c->attempts = NULL;
    }
}

static int start_handshake(struct sw_conn *c, int fd, struct sw_error *e)
{
    struct sockaddr_storage self = {0};
    socklen_t size = sizeof(self);

    if (getsockname(fd, (struct sockaddr *)&self, &size))
        return sw_fail_errno(e, SW_ERR_IO, errno, "the dialled socket");
    return sw_conn_start(c, fd,
        sw_handshake_dial(c->self, self.ss_family != AF_UNIX, c->has_expect ? &c->expect : NULL),
        e);
}

static void connect_failed(struct sw_conn *c, int err)
{
    const char *daemon = daemon_of(c->self->role);
    struct sw_error *e = &c->attempts->last;

    if (err == ECONNREFUSED)
        sw_fail(e, SW_ERR_CLOSED, "nobody listens there: is %s running?", daemon);
    else if (err == ETIMEDOUT)
        sw_fail(e, SW_ERR_TIMEOUT, "the host does not answer");
    else
        sw_fail_errno(e, SW_ERR_IO, err, "connecting to %s", daemon);
}

/* Begins with the next address that can be tried; without one the connection ends. */
static void try_next(struct sw_conn *c)
{
    struct sw_attempts *a = c->attempts;
    struct sw_error e;

    while (a->next) {
        const struct addrinfo *address = a->next;
        const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

        a->next = address->ai_next;
        if (fd < 0) {
            sw_fail_errno(&a->last, SW_ERR_IO, errno, "making a socket");
            continue;
        }
        if (connect(fd, address->ai_addr, address->ai_addrlen) && errno != EINPROGRESS) {
            connect_failed(c, errno);
            close(fd);
            continue;
        }
        if (sw_conn_watch(c, fd, UV_WRITABLE, &a->last) == 0)
            return; /* also when connected at once: the loop tells */
        close(fd);
    }
    e = a->last;
    sw_conn_end(c, &e, false);
}

void sw_conn_connecting(struct sw_conn *c, int status)
{
    struct sw_error e = {0};
    int err = 0;
    socklen_t size = sizeof(err);

    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &size))
        err = errno;
    if (!err && status < 0 && status != UV_EBADF)
        err = -status;
    if (err) {
        connect_failed(c, err);
        sw_conn_unwatch(c);
        close(c->fd);
        c->fd = -1;
        try_next(c);
    } else if (start_handshake(c, c->fd, &e)) {
        sw_conn_end(c, &e, false);
    }
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *list)
{
    struct sw_resolve *r = (struct sw_resolve *)request;
    struct sw_conn *c = r->conn;
    struct sw_error e = {0};

    free(r);
    if (!c) {
        uv_freeaddrinfo(list);
        return;
    }
    c->resolve = NULL;
    if (status < 0) {
        uv_freeaddrinfo(list);
        sw_fail(&e, SW_ERR_NOT_FOUND, "no address for this host name: %s", uv_strerror(status));
        sw_conn_end(c, &e, false);
        return;
    }
    c->attempts->list = c->attempts->next = list;
    try_next(c);
}

static int dial_tcp(struct sw_conn *c, const struct sw_dial *how, struct sw_error *e)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    char port[8];
    int rc;

    if (how->port == 0 || how->port > UINT16_MAX)
        return sw_fail(
            e, SW_ERR_INVALID, "port %u of host %s is not in 1 to 65535", how->port, how->host);
    snprintf(port, sizeof(port), "%u", how->port);
    snprintf(c->name, sizeof(c->name), strchr(how->host, ':') ? "[%.200s]:%s" : "%.200s:%s",
        how->host, port);
    c->attempts = calloc(1, sizeof(*c->attempts));
    c->resolve = calloc(1, sizeof(*c->resolve));
    if (!c->attempts || !c->resolve) {
        free(c->resolve);
        c->resolve = NULL;
        return sw_fail(e, SW_ERR_NOMEM, "no memory to dial %s", c->name);
    }
    sw_fail(&c->attempts->last, SW_ERR_NOT_FOUND, "no address for this host name");
    c->resolve->conn = c;
    rc = uv_getaddrinfo(c->loop, &c->resolve->request, on_resolved, how->host, port, &hints);
    if (rc) {
        free(c->resolve);
        c->resolve = NULL;
        return sw_fail_errno(e, SW_ERR_IO, -rc, "looking up %s", c->name);
    }
    return 0;
}

static int unix_refused(const struct sw_conn *c, int err, const char *path, struct sw_error *e)
{
    const char *daemon = daemon_of(c->self->role);

    switch (err) {
    case ENOENT:
    case ECONNREFUSED:
    case ENOTDIR:
        return sw_fail(e, SW_ERR_CLOSED, "is %s running? tried %s: %s", daemon, path,
            err == ECONNREFUSED ? "nobody listens" : "no such socket");
    case EACCES:
    case EPERM:
        return sw_fail(e, SW_ERR_AUTH,
            "no permission to connect to %s: is this user in the socket's group?", path);
    case EAGAIN:
        return sw_fail(e, SW_ERR_LIMIT,
            "too many connections wait for %s at %s: is it stopped or overloaded?", daemon, path);
    default:
        return sw_fail_errno(e, SW_ERR_IO, err, "connecting to %s", path);
    }
}

static int dial_unix(struct sw_conn *c, const char *path, struct sw_error *e)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd, rc;

    if (strlen(path) >= sizeof(address.sun_path))
        return sw_fail(e, SW_ERR_INVALID, "socket path %s has %zu bytes, at most %zu can be", path,
            strlen(path), sizeof(address.sun_path) - 1);
    memcpy(address.sun_path, path, strlen(path));
    snprintf(c->name, sizeof(c->name), "%s", path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return sw_fail_errno(e, SW_ERR_IO, errno, "making a socket");
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)))
        rc = unix_refused(c, errno, path, e);
    else
        rc = start_handshake(c, fd, e);
    if (rc && c->fd != fd)
        close(fd); /* otherwise the connection has it */
    if (rc == 0) { /* says more than the pid, which may be that of whoever made the socket */
        snprintf(c->place, sizeof(c->place), "%s", path);
        snprintf(c->name, sizeof(c->name), "%s", path);
    }
    return rc;
}

static int dial_socket(struct sw_conn *c, int fd, struct sw_error *e)
{
    const int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) || fcntl(fd, F_SETFD, FD_CLOEXEC))
        return sw_fail_errno(e, SW_ERR_IO, errno, "descriptor %d as a connection", fd);
    return start_handshake(c, fd, e);
}

int sw_conn_dial(uv_loop_t *loop, const struct sw_dial *how,
    const struct sw_conn_handlers *handlers, void *arg, struct sw_conn **out, struct sw_error *e)
{
    struct sw_conn *c = sw_conn_new(loop, how->self);
    struct sw_error own = {0};
    int rc;

    if (!c) {
        rc = sw_fail(e, SW_ERR_NOMEM, "no memory for a connection");
        if (how->fd >= 0)
            close(how->fd);
        return rc;
    }
    if (how->expect) {
        c->expect = *how->expect;
        c->has_expect = true;
    }
    if (how->fd >= 0)
        rc = dial_socket(c, how->fd, &own);
    else if (how->path)
        rc = dial_unix(c, how->path, &own);
    else
        rc = dial_tcp(c, how, &own);
    if (rc) {
        if (how->fd >= 0 && c->fd != how->fd)
            close(how->fd);
        sw_conn_end(c, &own, false); /* no handlers are set: nothing is called */
        if (e)
            *e = own;
        return rc;
    }
    sw_conn_set_handlers(c, handlers, arg);
    sw_conn_deadline(c, how->timeout_ms);
    *out = c;
    return 0;
}
