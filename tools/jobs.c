/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/jobs.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#define THREADS_MAX 256

struct run {
    atomic_size_t next;
    size_t n;
    sw_job job;
    void *arg;
    atomic_bool failed;
    pthread_mutex_t lock; /* of the two below */
    int code;
    struct sw_error error;
};

static void *work(void *arg)
{
    struct run *r = arg;
    struct sw_error e;

    while (!atomic_load(&r->failed)) {
        const size_t i = atomic_fetch_add(&r->next, 1);
        if (i >= r->n)
            break;
        e = (struct sw_error){0};
        const int code = r->job(i, r->arg, &e);
        if (!code)
            continue;
        pthread_mutex_lock(&r->lock);
        if (!r->code) {
            r->code = code;
            r->error = e;
        }
        pthread_mutex_unlock(&r->lock);
        atomic_store(&r->failed, true);
    }
    return NULL;
}

int sw_jobs_run(unsigned threads, size_t n, sw_job job, void *arg, struct sw_error *e)
{
    struct run r = {.n = n, .job = job, .arg = arg, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t helpers[THREADS_MAX];
    unsigned started = 0;

    if (threads > THREADS_MAX)
        threads = THREADS_MAX;
    while (started + 1 < threads && started + 1 < n &&
           pthread_create(&helpers[started], NULL, work, &r) == 0)
        started++;
    work(&r);
    for (unsigned i = 0; i < started; i++)
        pthread_join(helpers[i], NULL);
    pthread_mutex_destroy(&r.lock);
    if (r.code && e)
        *e = r.error;
    return r.code;
}

unsigned sw_jobs_processors(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) < 0)
        return 1;
    return CPU_COUNT(&set) > 0 ? (unsigned)CPU_COUNT(&set) : 1;
}
