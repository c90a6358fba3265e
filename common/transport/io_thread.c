/* SPDX-License-Identifier: Apache-2.0 */
#include "common/transport/io_thread.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "common/error.h"

#define EVENTS 32
#define THREADS_DEFAULT 4
#define THREADS_MAX 256

struct sw_io_thread {
    pthread_t id;
    bool started;
    int epoll, wake;
    pthread_mutex_t lock;
    struct sw_io_task *head, **tail; /* under lock */
    bool stop;                       /* under lock */
    struct epoll_event events[EVENTS];
    int n_events; /* of the batch in hand */
};

struct sw_io_pool {
    atomic_uint references;
    atomic_uint next;
    unsigned n;
    struct sw_io_thread threads[];
};

static void wake(struct sw_io_thread *t)
{
    const uint64_t one = 1;

    while (write(t->wake, &one, sizeof(one)) < 0 && errno == EINTR)
        continue;
}

void sw_io_thread_post(struct sw_io_thread *t, struct sw_io_task *task)
{
    bool first;

    task->next = NULL;
    pthread_mutex_lock(&t->lock);
    first = !t->head;
    *t->tail = task;
    t->tail = &task->next;
    pthread_mutex_unlock(&t->lock);
    if (first)
        wake(t);
}

/* Runs what is queued now; tasks that tasks post wait for the next round. False: stop. */
static bool run_tasks(struct sw_io_thread *t)
{
    struct sw_io_task *task;
    uint64_t count;
    bool stop;

    while (read(t->wake, &count, sizeof(count)) < 0 && errno == EINTR)
        continue;
    pthread_mutex_lock(&t->lock);
    task = t->head;
    t->head = NULL;
    t->tail = &t->head;
    stop = t->stop;
    pthread_mutex_unlock(&t->lock);
    while (task) {
        struct sw_io_task *next = task->next;

        task->run(task);
        task = next;
    }
    return !stop;
}

static void *thread_main(void *arg)
{
    struct sw_io_thread *t = arg;
    bool tasks, go = true;

    while (go) {
        int n = epoll_wait(t->epoll, t->events, EVENTS, -1);

        if (n < 0) {
            assert(errno == EINTR);
            continue;
        }
        tasks = false;
        t->n_events = n;
        for (int i = 0; i < n; i++) {
            struct sw_io_watch *w = t->events[i].data.ptr;

            if (w)
                w->ready(w, t->events[i].events);
            else if (t->events[i].events)
                tasks = true;
        }
        t->n_events = 0;
        if (tasks)
            go = run_tasks(t);
    }
    return NULL;
}

int sw_io_thread_watch(struct sw_io_thread *t, struct sw_io_watch *w)
{
    struct epoll_event event = {.events = w->events, .data.ptr = w};

    return epoll_ctl(t->epoll, EPOLL_CTL_ADD, w->fd, &event) == 0 ? 0 : errno;
}

int sw_io_thread_change(struct sw_io_thread *t, struct sw_io_watch *w, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = w};

    if (w->events == events)
        return 0;
    if (epoll_ctl(t->epoll, EPOLL_CTL_MOD, w->fd, &event) != 0)
        return errno;
    w->events = events;
    return 0;
}

void sw_io_thread_unwatch(struct sw_io_thread *t, struct sw_io_watch *w)
{
    epoll_ctl(t->epoll, EPOLL_CTL_DEL, w->fd, NULL);
    for (int i = 0; i < t->n_events; i++) { /* the rest of the batch may still name it */
        if (t->events[i].data.ptr == w) {
            t->events[i].data.ptr = NULL;
            t->events[i].events = 0;
        }
    }
}

/* ---- the pool ---- */

static int thread_start(struct sw_io_thread *t)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    sigset_t all, old;
    int err;

    t->tail = &t->head;
    pthread_mutex_init(&t->lock, NULL);
    t->epoll = epoll_create1(EPOLL_CLOEXEC);
    t->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (t->epoll < 0 || t->wake < 0 || epoll_ctl(t->epoll, EPOLL_CTL_ADD, t->wake, &event) != 0)
        return errno;
    sigfillset(&all); /* signals are the program's affair */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    err = pthread_create(&t->id, NULL, thread_main, t);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    t->started = !err;
    return err;
}

static void thread_end(struct sw_io_thread *t)
{
    if (t->started) {
        pthread_mutex_lock(&t->lock);
        t->stop = true;
        pthread_mutex_unlock(&t->lock);
        wake(t);
        pthread_join(t->id, NULL);
    }
    if (t->epoll >= 0)
        close(t->epoll);
    if (t->wake >= 0)
        close(t->wake);
    pthread_mutex_destroy(&t->lock);
}

int sw_io_pool_new(unsigned threads, struct sw_io_pool **out, struct sw_error *e)
{
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    struct sw_io_pool *pool;

    if (threads == 0)
        threads = cpus > 0 && cpus < THREADS_DEFAULT ? (unsigned)cpus : THREADS_DEFAULT;
    if (threads > THREADS_MAX)
        return sw_fail(
            e, SW_ERR_LIMIT, "%u I/O threads, at most %d can be had", threads, THREADS_MAX);
    pool = calloc(1, sizeof(*pool) + threads * sizeof(pool->threads[0]));
    if (!pool)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for %u I/O threads", threads);
    atomic_init(&pool->references, 1);
    for (unsigned i = 0; i < threads; i++) {
        int err = thread_start(&pool->threads[i]);

        pool->n = i + 1;
        if (err) {
            sw_io_pool_unref(pool);
            return sw_fail_errno(e, SW_ERR_IO, err, "starting I/O thread %u of %u", i + 1, threads);
        }
    }
    *out = pool;
    return 0;
}

struct sw_io_pool *sw_io_pool_ref(struct sw_io_pool *pool)
{
    atomic_fetch_add(&pool->references, 1);
    return pool;
}

void sw_io_pool_unref(struct sw_io_pool *pool)
{
    if (!pool || atomic_fetch_sub(&pool->references, 1) != 1)
        return;
    for (unsigned i = 0; i < pool->n; i++)
        thread_end(&pool->threads[i]);
    free(pool);
}

struct sw_io_thread *sw_io_pool_pick(struct sw_io_pool *pool)
{
    return &pool->threads[atomic_fetch_add(&pool->next, 1) % pool->n];
}
