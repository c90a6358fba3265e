/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/copy.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct part {
    pthread_t thread;
    char *dst;
    const char *src;
    size_t bytes;
};

uint64_t bench_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *copy_part(void *arg)
{
    struct part *p = arg;

    memcpy(p->dst, p->src, p->bytes);
    return NULL;
}

uint64_t bench_copy(void *dst, const void *src, size_t bytes, unsigned threads)
{
    struct part parts[64] = {0};
    uint64_t start = bench_now();

    if (threads < 1 || threads > 64)
        threads = 1;
    for (unsigned i = 0; i < threads; i++) {
        size_t from = bytes / threads * i;
        size_t to = i + 1 == threads ? bytes : bytes / threads * (i + 1);

        parts[i] = (struct part){
            .dst = (char *)dst + from, .src = (const char *)src + from, .bytes = to - from};
        if (i && pthread_create(&parts[i].thread, NULL, copy_part, &parts[i]))
            abort();
    }
    copy_part(&parts[0]);
    for (unsigned i = 1; i < threads; i++)
        pthread_join(parts[i].thread, NULL);
    return bench_now() - start;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_median(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), by_value);
    return n ? values[n / 2] : 0;
}
