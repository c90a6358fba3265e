/* SPDX-License-Identifier: Apache-2.0 */
#include "common/listener_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/error.h"

#define BACKLOG 1024
#define LOCK_TRIES 100 /* of 10 ms each */

/* ---- TCP ---- */

static uint32_t bound_port(int fd)
{
    struct sockaddr_storage own = {0};
    socklen_t size = sizeof(own);

    if (getsockname(fd, (struct sockaddr *)&own, &size))
        return 0;
    if (own.ss_family == AF_INET)
        return ntohs(((struct sockaddr_in *)&own)->sin_port);
    return own.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&own)->sin6_port) : 0;
}

static int tcp_refused(const struct sw_listen *how, int err, struct sw_error *e)
{
    switch (err) {
    case EADDRINUSE:
        return sw_fail(e, SW_ERR_EXISTS, "port %u of %s is in use: is another %s running?",
            how->port, how->host, sw_role_name(how->self->role));
    case EACCES:
        return sw_fail(e, SW_ERR_AUTH, "no permission to listen on port %u of %s%s", how->port,
            how->host, how->port < 1024 ? ": ports under 1024 are reserved" : "");
    case EADDRNOTAVAIL:
        return sw_fail(e, SW_ERR_INVALID, "%s is no address of this host", how->host);
    default:
        return sw_fail_errno(e, SW_ERR_IO, err, "listening on port %u of %s", how->port, how->host);
    }
}

static int listen_on(
    const struct sw_listen *how, const struct addrinfo *address, int *out, struct sw_error *e)
{
    const int one = 1;
    const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int rc;

    if (fd < 0)
        return sw_fail_errno(e, SW_ERR_IO, errno, "making a socket");
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, address->ai_addr, address->ai_addrlen) || listen(fd, BACKLOG)) {
        rc = tcp_refused(how, errno, e);
        close(fd);
        return rc;
    }
    *out = fd;
    return 0;
}

static int open_tcp(const struct sw_listen *how, struct sw_listen_socket *out, struct sw_error *e)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list;
    char port[16];
    int rc;

    if (how->port > UINT16_MAX)
        return sw_fail(e, SW_ERR_INVALID, "port %u is over 65535", how->port);
    snprintf(port, sizeof(port), "%u", how->port);
    rc = getaddrinfo(how->host, port, &hints, &list);
    if (rc)
        return sw_fail(e, SW_ERR_INVALID, "no address to listen on for \"%s\": %s", how->host,
            gai_strerror(rc));
    rc = listen_on(how, list, &out->fd, e);
    freeaddrinfo(list);
    return rc;
}

/* ---- UNIX ---- */

/* Whether somebody listens: 1 yes, 0 no, -1 = can't be told (errno). */
static int somebody_listens(const struct sockaddr_un *address)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int rc, err;

    if (fd < 0)
        return -1;
    rc = connect(fd, (const struct sockaddr *)address, sizeof(*address));
    err = errno;
    close(fd);
    errno = err;
    if (rc == 0 || err == EAGAIN)
        return 1;
    return err == ECONNREFUSED || err == ENOENT ? 0 : -1;
}

static int remove_stale(
    const struct sw_listen *how, const struct sockaddr_un *address, struct sw_error *e)
{
    struct stat st;

    if (lstat(how->path, &st))
        return errno == ENOENT ? 0 : sw_fail_errno(e, SW_ERR_IO, errno, "looking at %s", how->path);
    if (!S_ISSOCK(st.st_mode))
        return sw_fail(e, SW_ERR_EXISTS, "%s exists and is no socket", how->path);
    switch (somebody_listens(address)) {
    case 0:
        break;
    case 1:
        return sw_fail(e, SW_ERR_EXISTS, "is another %s running? somebody listens on %s",
            sw_role_name(how->self->role), how->path);
    default:
        return sw_fail_errno(e, SW_ERR_IO, errno, "whether somebody listens on %s", how->path);
    }
    if (unlink(how->path) && errno != ENOENT)
        return sw_fail_errno(e, SW_ERR_IO, errno, "removing the stale socket %s", how->path);
    return 0;
}

static int give_to_group(const struct sw_listen *how, struct sw_error *e)
{
    struct group entry, *found = NULL;
    char room[8192];

    if (!how->owner_group || !how->owner_group[0])
        return 0;
    if (getgrnam_r(how->owner_group, &entry, room, sizeof(room), &found) || !found)
        return sw_fail(e, SW_ERR_NOT_FOUND, "socket %s: there is no group \"%s\"", how->path,
            how->owner_group);
    if (lchown(how->path, (uid_t)-1, found->gr_gid))
        return sw_fail_errno(
            e, SW_ERR_AUTH, errno, "giving socket %s to group %s", how->path, how->owner_group);
    return 0;
}

/* Bound, then given its mode and group, then listening: nobody connects before the file is as it
 * shall be. */
static int bind_unix(const struct sw_listen *how, const struct sockaddr_un *address,
    struct sw_listen_socket *out, struct sw_error *e)
{
    struct stat st;
    int rc;

    rc = remove_stale(how, address, e);
    if (rc)
        return rc;
    if (bind(out->fd, (const struct sockaddr *)address, sizeof(*address)))
        return errno == EACCES || errno == EPERM
                   ? sw_fail(e, SW_ERR_AUTH, "no permission to make the socket %s", how->path)
                   : sw_fail_errno(e, SW_ERR_IO, errno, "making the socket %s", how->path);
    if (lstat(how->path, &st) == 0) {
        memcpy(out->path, address->sun_path, sizeof(out->path));
        out->device = st.st_dev;
        out->inode = st.st_ino;
    }
    if (chmod(how->path, how->mode & 0777))
        return sw_fail_errno(
            e, SW_ERR_IO, errno, "mode %03o of socket %s", how->mode & 0777, how->path);
    rc = give_to_group(how, e);
    if (rc)
        return rc;
    return listen(out->fd, BACKLOG)
               ? sw_fail_errno(e, SW_ERR_IO, errno, "listening on %s", how->path)
               : 0;
}

/* Two daemons that start at once must not both find a stale socket, and one remove the other's:
 * the folder is locked meanwhile. Bounded, since a stopped process may hold the lock. */
static int lock_folder(const char *path, int *out, struct sw_error *e)
{
    const char *slash = strrchr(path, '/');
    char folder[108];
    int fd;

    snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    fd = open(folder[0] ? folder : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return sw_fail_errno(
            e, errno == EACCES ? SW_ERR_AUTH : SW_ERR_IO, errno, "folder of the socket %s", path);
    for (int i = 0; flock(fd, LOCK_EX | LOCK_NB); i++) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            break; /* a file system without locks: as good as it gets */
        if (i == LOCK_TRIES) {
            close(fd);
            return sw_fail(e, SW_ERR_TIMEOUT,
                "another process holds the lock of the folder of %s: is a daemon stuck there?",
                path);
        }
        poll(NULL, 0, 10);
    }
    *out = fd;
    return 0;
}

static int open_unix(const struct sw_listen *how, struct sw_listen_socket *out, struct sw_error *e)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int lock = -1, rc;

    if (!how->path[0] || strlen(how->path) >= sizeof(address.sun_path))
        return sw_fail(e, SW_ERR_INVALID, "socket path %s has %zu bytes, 1 to %zu can be",
            how->path, strlen(how->path), sizeof(address.sun_path) - 1);
    memcpy(address.sun_path, how->path, strlen(how->path));
    rc = lock_folder(how->path, &lock, e);
    if (rc)
        return rc;
    out->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    rc = out->fd < 0 ? sw_fail_errno(e, SW_ERR_IO, errno, "making a socket")
                     : bind_unix(how, &address, out, e);
    close(lock);
    return rc;
}

/* ---- given ---- */

static int adopt(int fd, struct sw_listen_socket *out, struct sw_error *e)
{
    int listening = 0, flags;
    struct sockaddr_storage own = {0};
    socklen_t size = sizeof(listening);

    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) || !listening)
        return sw_fail(e, SW_ERR_INVALID, "descriptor %d is no listening socket", fd);
    size = sizeof(own);
    flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) || fcntl(fd, F_SETFD, FD_CLOEXEC) ||
        getsockname(fd, (struct sockaddr *)&own, &size))
        return sw_fail_errno(e, SW_ERR_IO, errno, "listening descriptor %d", fd);
    out->fd = fd;
    out->is_unix = own.ss_family == AF_UNIX;
    return 0;
}

void sw_listen_socket_close(struct sw_listen_socket *s)
{
    struct stat st;

    if (s->path[0] && lstat(s->path, &st) == 0 && st.st_dev == s->device && st.st_ino == s->inode)
        unlink(s->path);
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    s->path[0] = '\0';
}

int sw_listen_socket_open(
    const struct sw_listen *how, struct sw_listen_socket *out, struct sw_error *e)
{
    struct sw_listen_socket s = {.fd = -1, .is_unix = how->path != NULL};
    int rc;

    if (how->fd >= 0)
        rc = adopt(how->fd, &s, e);
    else
        rc = how->path ? open_unix(how, &s, e) : open_tcp(how, &s, e);
    if (rc) {
        sw_listen_socket_close(&s);
        return rc;
    }
    s.port = bound_port(s.fd);
    *out = s;
    return 0;
}
