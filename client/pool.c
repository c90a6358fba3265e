/* SPDX-License-Identifier: Apache-2.0 */
#include "client/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

#define THREADS_MAX 64u

struct sw_pool {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    unsigned threads; /* wanted, the caller included */
    unsigned started;
    pthread_t ids[THREADS_MAX];
    bool ending, busy; /* busy: there is a job */

    /* the job */
    void (*run)(unsigned i, unsigned n, void *arg);
    void *arg;
    unsigned n, next, finished;
};

struct sw_pool *sw_pool_new(unsigned threads)
{
    struct sw_pool *p = calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->done, NULL);
    p->threads = threads < 1 ? 1 : threads > THREADS_MAX ? THREADS_MAX : threads;
    return p;
}

/* Does parts of the job until none is left to take. Locked. */
static void take_parts(struct sw_pool *p)
{
    while (p->next < p->n) {
        const unsigned i = p->next++;

        pthread_mutex_unlock(&p->lock);
        p->run(i, p->n, p->arg);
        pthread_mutex_lock(&p->lock);
        if (++p->finished == p->n)
            pthread_cond_signal(&p->done);
    }
}

static void *helper(void *arg)
{
    struct sw_pool *p = arg;

    pthread_mutex_lock(&p->lock);
    while (!p->ending) {
        take_parts(p);
        pthread_cond_wait(&p->work, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* A helper that can't be started leaves its parts to the others. Locked. */
static void start(struct sw_pool *p)
{
    sigset_t all, old;

    sigfillset(&all); /* signals are the program's affair */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (p->started + 1 < p->threads && pthread_create(&p->ids[p->started], NULL, helper, p) == 0)
        p->started++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void sw_pool_run(
    struct sw_pool *p, unsigned n, void (*run)(unsigned i, unsigned n, void *arg), void *arg)
{
    pthread_mutex_lock(&p->lock);
    if (p->busy || n < 2 || p->threads < 2) {
        pthread_mutex_unlock(&p->lock);
        for (unsigned i = 0; i < n; i++)
            run(i, n, arg);
        return;
    }
    start(p);
    p->busy = true;
    p->run = run;
    p->arg = arg;
    p->next = p->finished = 0;
    p->n = n;
    pthread_cond_broadcast(&p->work);
    take_parts(p);
    while (p->finished < p->n)
        pthread_cond_wait(&p->done, &p->lock);
    p->n = p->next = 0; /* for a helper that wakes up late */
    p->busy = false;
    pthread_mutex_unlock(&p->lock);
}

void sw_pool_free(struct sw_pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->ending = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < p->started; i++)
        pthread_join(p->ids[i], NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
