/* SPDX-License-Identifier: Apache-2.0 */
#include "client/pool.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define PARTS 40u

struct counts {
    atomic_uint seen[PARTS];
};

static void count_part(unsigned i, unsigned n, void *arg)
{
    struct counts *c = arg;

    ck_assert_uint_lt(i, n);
    atomic_fetch_add(&c->seen[i], 1);
}

static void run_once(struct sw_pool *p, unsigned n)
{
    struct counts c = {0};

    sw_pool_run(p, n, count_part, &c);
    for (unsigned i = 0; i < PARTS; i++)
        ck_assert_uint_eq(atomic_load(&c.seen[i]), i < n ? 1 : 0);
}

START_TEST(each_part_runs_once)
{
    static const unsigned threads[] = {0, 1, 2, 5, 1000};
    struct sw_pool *p = sw_pool_new(threads[_i]);

    ck_assert_ptr_nonnull(p);
    for (unsigned round = 0; round < 200; round++)
        run_once(p, round % (PARTS + 1));
    sw_pool_free(p);
}
END_TEST

static void *run_many(void *arg)
{
    for (unsigned round = 0; round < 200; round++)
        run_once(arg, PARTS);
    return NULL;
}

START_TEST(several_callers)
{
    struct sw_pool *p = sw_pool_new(3);
    pthread_t callers[4];

    ck_assert_ptr_nonnull(p);
    for (unsigned i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&callers[i], NULL, run_many, p), 0);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(callers[i], NULL);
    sw_pool_free(p);
    sw_pool_free(NULL);
    p = sw_pool_new(2); /* no job at all */
    ck_assert_ptr_nonnull(p);
    sw_pool_free(p);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pool");
    TCase *c = tcase_create("pool");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(c, each_part_runs_once, 0, 5);
    tcase_add_test(c, several_callers);
    suite_add_tcase(suite, c);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
