/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "common/error.h"
#include "common/transport/window.h"

#define WRITERS 4
#define BYTES 4096

static uint8_t memory[BYTES];

static struct sw_window *make(void)
{
    static const struct sw_port_region regions[] = {{memory, BYTES}, {memory, 100}};
    static const struct sw_run runs[] = {{0, 0, 100}, {0, 200, 1000}, {1, 0, 100}};
    const struct sw_port_spec spec = {2, regions, 3, runs, NULL};
    struct sw_window *w;

    ck_assert_int_eq(sw_window_new(&spec, &w, NULL), 0);
    return w;
}

START_TEST(opens_once_for_each_id)
{
    const struct sw_id a = {{1}}, b = {{2}}, none = {{0}};
    struct sw_window *w = make();

    ck_assert(!sw_window_enter(w, &none)); /* never opened: its id is none as well */
    ck_assert(!sw_window_enter(w, &a));
    ck_assert_int_eq(sw_window_open(w, &none, NULL), SW_ERR_INVALID);
    ck_assert_int_eq(sw_window_open(w, &a, NULL), 0);
    ck_assert_int_eq(sw_window_open(w, &b, NULL), SW_ERR_STATE);
    ck_assert(!sw_window_enter(w, &b));
    ck_assert(sw_window_enter(w, &a));
    sw_window_leave(w, 7);
    ck_assert_uint_eq(sw_window_close(w), 7);
    ck_assert(!sw_window_enter(w, &a));
    ck_assert_uint_eq(sw_window_close(w), 7);
    ck_assert_int_eq(sw_window_open(w, &a, NULL), SW_ERR_STATE);
    ck_assert_int_eq(sw_window_open(w, &b, NULL), 0);
    ck_assert(!sw_window_is_open(w, &a));
    ck_assert(sw_window_is_open(w, &b));
    ck_assert_uint_eq(sw_window_close(w), 0);
    sw_window_free(w);
    sw_window_free(NULL);
}
END_TEST

START_TEST(checks_places)
{
    static const struct {
        uint64_t region, offset, length;
        bool good;
    } cases[] = {
        {0, 0, 100, true},
        {0, 99, 1, true},
        {0, 200, 1000, true},
        {1, 0, 100, true},
        {0, 0, 101, false},
        {0, 100, 1, false},
        {0, 0, 1200, false},
        {0, 199, 2, false},
        {0, 0, 0, false},
        {1, 1, 100, false},
        {2, 0, 1, false},
        {UINT32_MAX, 0, 1, false},
        {0, UINT64_MAX, 1, false},
        {0, 1, UINT64_MAX, false},
        {0, UINT64_MAX - 10, 20, false},
        {0, 0, 1ull << 63, false},
    };
    struct sw_window *w = make();

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sw_error e = {0};
        int rc =
            sw_window_check(w, (uint32_t)cases[i].region, cases[i].offset, cases[i].length, &e);

        ck_assert_msg((rc == 0) == cases[i].good, "case %zu: %s", i, e.text);
    }
    ck_assert_ptr_eq(sw_window_at(w, 0, 5), memory + 5);
    sw_window_free(w);
}
END_TEST

struct fight {
    atomic_uint next; /* each writer has bytes of its own: they do not race with each other */
    struct sw_window *w;
    struct sw_id id;
    atomic_bool stop;
    atomic_uint_fast64_t placed;
    atomic_bool started;
};

/* Never lets go for long: a lock that prefers readers would starve the closer. */
static void *writer(void *arg)
{
    struct fight *f = arg;
    const unsigned me = atomic_fetch_add(&f->next, 1) % WRITERS;

    while (!atomic_load(&f->stop)) {
        if (!sw_window_enter(f->w, &f->id))
            continue;
        for (unsigned i = me; i < BYTES; i += 64)
            ((volatile uint8_t *)memory)[i] = 1;
        atomic_fetch_add(&f->placed, 1);
        sw_window_leave(f->w, 1);
        atomic_store(&f->started, true);
    }
    return NULL;
}

/* Under TSan this also proves that what the writers did happened before the close returned. */
START_TEST(close_is_a_fence)
{
    struct fight f = {.w = make()};
    pthread_t threads[WRITERS];

    for (uint8_t round = 1; round <= 20; round++) {
        uint64_t placed;

        f.id = (struct sw_id){{round}};
        atomic_store(&f.stop, false);
        atomic_store(&f.placed, 0);
        atomic_store(&f.started, false);
        ck_assert_int_eq(sw_window_open(f.w, &f.id, NULL), 0);
        for (int i = 0; i < WRITERS; i++)
            ck_assert_int_eq(pthread_create(&threads[i], NULL, writer, &f), 0);
        while (!atomic_load(&f.started))
            sched_yield();
        placed = sw_window_close(f.w);
        ck_assert_uint_eq(placed, atomic_load(&f.placed));
        memset(memory, 0, sizeof(memory)); /* ours alone now */
        ck_assert_uint_eq(sw_window_close(f.w), placed);
        atomic_store(&f.stop, true);
        for (int i = 0; i < WRITERS; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < BYTES; i++)
            placed += memory[i];
        ck_assert_uint_eq(placed, atomic_load(&f.placed)); /* nothing came */
    }
    sw_window_free(f.w);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("window");
    TCase *tc = tcase_create("all");
    SRunner *r = srunner_create(suite);
    int failed;

    suite_add_tcase(suite, tc);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, opens_once_for_each_id);
    tcase_add_test(tc, checks_places);
    tcase_add_test(tc, close_is_a_fence);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
