/* SPDX-License-Identifier: Apache-2.0 */
/* Vessels come to one level, up to the size of what is poured. */
#include <check.h>
#include <stdbool.h>
#include <string.h>

#include "common/test_suite.h"
#include "trainerd/plan/water.h"

#define VESSELS 16
#define AMOUNTS 4000

static uint64_t seed;

static uint64_t pick(uint64_t n)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (seed >> 33) % n;
}

static uint64_t largest(const uint64_t *of, uint32_t n)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < n; i++)
        most = of[i] > most ? of[i] : most;
    return most;
}

/* Many small amounts and some large ones fill vessels that hold different loads already. */
START_TEST(vessels_come_to_one_level)
{
    static uint64_t amounts[AMOUNTS];
    static uint32_t vessel[AMOUNTS];
    uint64_t loads[VESSELS], held[VESSELS], scratch[VESSELS], sum = 0, average, light;
    uint32_t n, runs = 0;

    seed = (uint64_t)_i + 77;
    n = 2 + (uint32_t)pick(VESSELS - 1);
    for (uint32_t i = 0; i < AMOUNTS; i++)
        sum += amounts[i] = pick(40) ? 1 + pick(1000) : pick(20000);
    for (uint32_t v = 0; v < n; v++)
        sum += loads[v] = held[v] = pick(20000);
    average = sum / n;
    light = average / 128;
    sw_pour(amounts, AMOUNTS, loads, n, scratch, vessel);
    for (uint32_t i = 0; i < AMOUNTS; i++) {
        ck_assert_uint_lt(vessel[i], n);
        held[vessel[i]] += amounts[i];
    }
    for (uint32_t i = 0, last = 0; i < AMOUNTS; i++) /* the light ones are in runs, in order */
        if (amounts[i] <= light) {
            ck_assert_uint_ge(vessel[i], last);
            runs += vessel[i] != last;
            last = vessel[i];
        }
    ck_assert_uint_lt(runs, n);
    ck_assert_uint_le(largest(held, n), average + 2 * (light < 1000 ? light : 1000));
}
END_TEST

START_TEST(full_vessels_get_nothing)
{
    const uint64_t amounts[] = {5, 5, 5, 5};
    uint64_t loads[] = {100, 0, 100, 0}, scratch[4];
    uint32_t vessel[4];

    sw_pour(amounts, 4, loads, 4, scratch, vessel);
    ck_assert_uint_eq(vessel[0], 1);
    ck_assert_uint_eq(vessel[1], 1);
    ck_assert_uint_eq(vessel[2], 3);
    ck_assert_uint_eq(vessel[3], 3);
}
END_TEST

START_TEST(nothing_and_zeros_are_no_trouble)
{
    const uint64_t zeros[] = {0, 0};
    uint64_t loads[] = {0, 0}, scratch[2];
    uint32_t vessel[2] = {9, 9};

    sw_pour(NULL, 0, loads, 2, scratch, vessel);
    ck_assert_uint_eq(vessel[0], 9);
    sw_pour(zeros, 2, loads, 2, scratch, vessel);
    ck_assert_uint_lt(vessel[0], 2);
    ck_assert_uint_lt(vessel[1], 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("water");
    TCase *c = tcase_create("water");

    tcase_add_loop_test(c, vessels_come_to_one_level, 0, 50);
    tcase_add_test(c, full_vessels_get_nothing);
    tcase_add_test(c, nothing_and_zeros_are_no_trouble);
    suite_add_tcase(suite, c);
    return test_suite_run(suite);
}
