/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/copy.h"

struct side { /* one thread: connections i, i + threads, ... of one direction */
    pthread_t thread;
    const struct bench_loopback *l;
    bool sends;
    unsigned i, threads;
    char *at;
    size_t bytes, chunk;
};

static void die(const char *what)
{
    fprintf(stderr, "bench: %s\n", what);
    exit(EXIT_FAILURE);
}

static void connect_pair(int *sender, int *receiver)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    const int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    *sender = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(l, (struct sockaddr *)&a, n) || listen(l, 1) ||
        getsockname(l, (struct sockaddr *)&a, &n) || connect(*sender, (struct sockaddr *)&a, n))
        die("loopback connection");
    *receiver = accept(l, NULL, NULL);
    if (*receiver < 0)
        die("loopback connection");
    close(l);
    setsockopt(*sender, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void bench_loopback_open(struct bench_loopback *l, unsigned connections)
{
    if (connections < 1 || connections > BENCH_CONNECTIONS_MAX)
        die("too many connections");
    l->connections = connections;
    for (unsigned i = 0; i < connections; i++)
        connect_pair(&l->senders[i], &l->receivers[i]);
}

void bench_loopback_close(struct bench_loopback *l)
{
    for (unsigned i = 0; i < l->connections; i++) {
        close(l->senders[i]);
        close(l->receivers[i]);
    }
}

static void *move(void *arg)
{
    const struct side *s = arg;

    for (size_t k = 0; k * s->chunk < s->bytes; k++) {
        const unsigned c = (unsigned)(k % s->l->connections);
        const size_t rest = s->bytes - k * s->chunk;
        size_t left = rest < s->chunk ? rest : s->chunk;
        char *at = s->at + k * s->chunk;

        if (c % s->threads != s->i)
            continue;
        while (left > 0) {
            ssize_t done = s->sends ? send(s->l->senders[c], at, left, 0)
                                    : recv(s->l->receivers[c], at, left, 0);

            if (done <= 0)
                die("plain transfer");
            at += done;
            left -= (size_t)done;
        }
    }
    return NULL;
}

uint64_t bench_loopback_run(struct bench_loopback *l, void *dst, const void *src, size_t bytes,
    size_t chunk, unsigned threads)
{
    const uint64_t start = bench_now();
    struct side sides[2 * BENCH_CONNECTIONS_MAX];

    if (threads > l->connections)
        threads = l->connections;
    for (unsigned i = 0; i < 2 * threads; i++) {
        const bool sends = i < threads;

        sides[i] = (struct side){.l = l,
            .sends = sends,
            .i = sends ? i : i - threads,
            .threads = threads,
            .at = sends ? (char *)(uintptr_t)src : dst,
            .bytes = bytes,
            .chunk = chunk};
        if (pthread_create(&sides[i].thread, NULL, move, &sides[i]))
            die("thread");
    }
    for (unsigned i = 0; i < 2 * threads; i++)
        pthread_join(sides[i].thread, NULL);
    return bench_now() - start;
}
