/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/progress.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WIDTH 30
#define REDRAW_NS 100000000

struct sw_progress {
    const char *what;
    uint64_t total;
    atomic_uint_fast64_t done;
    struct timespec start;
    bool drawing; /* the thread runs */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool over;
};

static uint64_t elapsed_ns(const struct sw_progress *p)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)(now.tv_sec - p->start.tv_sec) * 1000000000ull + (uint64_t)now.tv_nsec -
           (uint64_t)p->start.tv_nsec;
}

static void draw(const struct sw_progress *p)
{
    const uint64_t done = atomic_load(&p->done);
    const uint64_t part = p->total ? (done < p->total ? done : p->total) * 1000 / p->total : 1000;
    char bar[WIDTH + 1], bytes[32], total[32], rate[32];

    memset(bar, '.', WIDTH);
    memset(bar, '#', part * WIDTH / 1000);
    bar[WIDTH] = '\0';
    fprintf(stderr, "\r\033[K%s [%s] %s of %s, %s", p->what, bar, sw_format_bytes(done, bytes),
        sw_format_bytes(p->total, total), sw_format_rate(done, elapsed_ns(p), rate));
    fflush(stderr);
}

static void *run(void *arg)
{
    struct sw_progress *p = arg;
    struct timespec next = p->start;

    pthread_mutex_lock(&p->lock);
    while (!p->over) {
        draw(p);
        next.tv_nsec += REDRAW_NS;
        if (next.tv_nsec >= 1000000000) {
            next.tv_nsec -= 1000000000;
            next.tv_sec++;
        }
        while (!p->over && pthread_cond_timedwait(&p->wake, &p->lock, &next) != ETIMEDOUT)
            ;
    }
    pthread_mutex_unlock(&p->lock);
    fputs("\r\033[K", stderr);
    return NULL;
}

struct sw_progress *sw_progress_start(const char *what, uint64_t total_bytes)
{
    struct sw_progress *p = calloc(1, sizeof(*p));
    pthread_condattr_t monotonic;

    if (!p)
        return NULL;
    p->what = what;
    p->total = total_bytes;
    clock_gettime(CLOCK_MONOTONIC, &p->start);
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&p->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (isatty(STDERR_FILENO))
        p->drawing = pthread_create(&p->thread, NULL, run, p) == 0;
    return p;
}

void sw_progress_add(struct sw_progress *p, uint64_t bytes)
{
    if (p)
        atomic_fetch_add(&p->done, bytes);
}

double sw_progress_end(struct sw_progress *p)
{
    double seconds;

    if (!p)
        return 0;
    seconds = (double)elapsed_ns(p) / 1e9;
    if (p->drawing) {
        pthread_mutex_lock(&p->lock);
        p->over = true;
        pthread_cond_signal(&p->wake);
        pthread_mutex_unlock(&p->lock);
        pthread_join(p->thread, NULL);
    }
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p);
    return seconds;
}

char *sw_format_bytes(uint64_t bytes, char out[32])
{
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
    double value = (double)bytes;
    int unit = -1;

    while (value >= 999.5 && unit < 5) {
        value /= 1000;
        unit++;
    }
    if (unit < 0)
        snprintf(out, 32, "%u B", (unsigned)bytes);
    else
        snprintf(out, 32, "%.*f %s", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, units[unit]);
    return out;
}

char *sw_format_rate(uint64_t bytes, uint64_t ns, char out[32])
{
    if (!ns || !bytes)
        snprintf(out, 32, "-");
    else
        snprintf(out, 32, "%.2f GB/s", (double)bytes / (double)ns);
    return out;
}

char *sw_format_time(uint64_t ns, char out[32])
{
    const double ms = (double)ns / 1e6;

    if (ms < 1000)
        snprintf(out, 32, "%.*f ms", ms < 10 ? 2 : 1, ms);
    else
        snprintf(out, 32, "%.2f s", ms / 1000);
    return out;
}
