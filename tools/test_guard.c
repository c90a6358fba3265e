/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "tools/guard.h"

#define MIB ((size_t)1 << 20)
#define C_BYTES (16 * MIB) /* enough to be interrupted in the middle */
#define ALL_BYTES (MIB + C_BYTES)

static uint8_t *memory, *others; /* the same pages twice: ours, and somebody's who writes late */
static struct sw_weight items[3];
static struct sw_weight_region regions[2];
static struct sw_weights weights;
static struct sw_guard *guard;

static void start(uint32_t interval_ms)
{
    const int fd = memfd_create("test", MFD_CLOEXEC);

    ck_assert_int_eq(ftruncate(fd, ALL_BYTES), 0);
    memory = mmap(NULL, ALL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    others = mmap(NULL, ALL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    ck_assert(memory != MAP_FAILED && others != MAP_FAILED);
    items[0] = (struct sw_weight){"a", memory, 3, 0};
    items[1] = (struct sw_weight){"b", memory, 3, 0}; /* a's storage */
    items[2] = (struct sw_weight){"c", memory + MIB, C_BYTES, 2};
    regions[0] = (struct sw_weight_region){memory, MIB};
    regions[1] = (struct sw_weight_region){memory + MIB, C_BYTES};
    weights = (struct sw_weights){.n = 3, .n_regions = 2, .items = items, .regions = regions};
    memcpy(memory, "abc", 3);
    ck_assert_int_eq(sw_guard_new(&weights, 2, interval_ms, &guard, NULL), 0);
}

static void stop(void)
{
    sw_guard_free(guard);
    munmap(memory, ALL_BYTES);
    munmap(others, ALL_BYTES);
    sw_guard_free(NULL);
}

static bool has_news(int timeout_ms)
{
    struct pollfd p = {.fd = sw_guard_fd(guard), .events = POLLIN};
    return poll(&p, 1, timeout_ms) == 1;
}

static struct sw_guard_report take(void)
{
    struct sw_guard_report r;

    ck_assert(has_news(20000));
    sw_guard_take(guard, &r);
    ck_assert(!has_news(0));
    return r;
}

static struct sw_guard_report digests(void)
{
    struct sw_guard_report r;

    sw_guard_request(guard);
    r = take();
    ck_assert_int_eq(r.news, SW_GUARD_DIGESTS);
    return r;
}

#define ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define ZERO_C "080acf35a507ac9849cfcba47dc2ad83e01b75663a516279c8b9d243b719643e" /* of 16 MiB */

START_TEST(test_digests)
{
    struct sw_guard_report r;

    start(0);
    sw_guard_resume(guard, 7, true);
    r = digests();
    ck_assert_uint_eq(r.version, 7);
    ck_assert_str_eq(r.hex[0], ABC);
    ck_assert_str_eq(r.hex[1], ABC);
    ck_assert_str_eq(r.hex[2], ZERO_C);
    stop();
}
END_TEST

START_TEST(test_digests_wait_for_resume)
{
    struct sw_guard_report r;

    start(1);
    sw_guard_request(guard);
    sw_guard_request(guard);
    ck_assert(!has_news(50));
    memory[0] = 'x'; /* nobody minds while it is paused */
    sw_guard_resume(guard, 1, true);
    r = take();
    ck_assert_int_eq(r.news, SW_GUARD_DIGESTS);
    ck_assert_str_ne(r.hex[0], ABC);
    sw_guard_pause(guard);
    memory[0] = 'a';
    sw_guard_resume(guard, 2, true);
    r = digests();
    ck_assert_str_eq(r.hex[0], ABC);
    ck_assert_uint_eq(r.version, 2);
    stop();
}
END_TEST

/* Until the guard has seen every block. */
static void let_it_learn(void)
{
    for (int i = 0; i < 20000 && sw_guard_rounds(guard) == 0; i++)
        poll(NULL, 0, 1);
    ck_assert_uint_gt(sw_guard_rounds(guard), 0);
}

START_TEST(test_sees_a_change)
{
    struct sw_guard_report r;

    start(1);
    sw_guard_resume(guard, 3, true);
    let_it_learn();
    others[2 * MIB + 5] ^= 1;
    r = take();
    ck_assert_int_eq(r.news, SW_GUARD_CHANGED);
    ck_assert_uint_eq(r.version, 3);
    ck_assert_uint_eq(r.region, 1);
    ck_assert_uint_eq(r.offset, MIB);
    ck_assert_uint_eq(r.bytes, MIB);
    ck_assert_str_eq(sw_weights_at(&weights, regions[r.region].base + r.offset)->name, "c");
    stop();
}
END_TEST

/* A pause without an activation: the old bytes must be there still. */
START_TEST(test_sees_a_change_in_a_pause)
{
    start(1);
    sw_guard_resume(guard, 3, true);
    let_it_learn();
    sw_guard_pause(guard);
    sw_guard_resume(guard, 3, false);
    let_it_learn();
    sw_guard_pause(guard);
    memory[0] ^= 1;
    sw_guard_resume(guard, 3, false);
    ck_assert_int_eq(take().news, SW_GUARD_CHANGED);
    sw_guard_pause(guard);
    stop();
}
END_TEST

START_TEST(test_allows_changes_of_an_update)
{
    start(1);
    for (int i = 0; i < 30; i++) {
        sw_guard_resume(guard, (uint64_t)i, true);
        digests();
        sw_guard_pause(guard);
        memset(memory, i, ALL_BYTES);
    }
    sw_guard_resume(guard, 30, true);
    digests();
    ck_assert(!has_news(20));
    stop();
}
END_TEST

/* A pause in the middle: digests are whole, of the version before the pause or of the one after. */
START_TEST(test_pause_interrupts_digests)
{
    char want[2][65];

    start(1);
    for (int i = 0; i < 2; i++) {
        memset(memory + MIB, i, C_BYTES);
        sw_guard_resume(guard, (uint64_t)i, true);
        memcpy(want[i], digests().hex[2], sizeof(want[i]));
        sw_guard_pause(guard);
    }
    ck_assert_str_eq(want[0], ZERO_C);
    for (unsigned i = 0; i < 60; i++) {
        struct sw_guard_report r;
        sw_guard_resume(guard, (i + 1) % 2, true);
        sw_guard_request(guard);
        poll(NULL, 0, (int)(i % 3)); /* so that pauses come at several moments */
        sw_guard_pause(guard);
        memset(memory + MIB, (int)i % 2, C_BYTES);
        sw_guard_resume(guard, i % 2, true);
        r = take();
        ck_assert_int_eq(r.news, SW_GUARD_DIGESTS);
        ck_assert_str_eq(r.hex[2], want[r.version]);
        sw_guard_pause(guard);
    }
    stop();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("guard");
    TCase *c = tcase_create("guard");
    SRunner *runner;
    int failed;

    tcase_set_timeout(c, 60);
    tcase_add_test(c, test_digests);
    tcase_add_test(c, test_digests_wait_for_resume);
    tcase_add_test(c, test_sees_a_change);
    tcase_add_test(c, test_sees_a_change_in_a_pause);
    tcase_add_test(c, test_allows_changes_of_an_update);
    tcase_add_test(c, test_pause_interrupts_digests);
    suite_add_tcase(suite, c);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
