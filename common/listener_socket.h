/* SPDX-License-Identifier: Apache-2.0 */
/* Listening sockets: made, named errors, stale UNIX sockets replaced. Private to listener.c. */
#ifndef SW_COMMON_LISTENER_SOCKET_H
#define SW_COMMON_LISTENER_SOCKET_H

#include <sys/stat.h>
#include "common/conn.h"

struct sw_listen_socket {
    int fd;
    bool is_unix;
    uint32_t port;  /* TCP */
    char path[108]; /* UNIX, ours to remove; "" = not ours */
    dev_t device;   /* which file that is: it is removed only if it still is the same */
    ino_t inode;
};

int sw_listen_socket_open(
    const struct sw_listen *how, struct sw_listen_socket *out, struct sw_error *e);
void sw_listen_socket_close(struct sw_listen_socket *s);

#endif
