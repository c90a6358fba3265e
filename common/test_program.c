/* SPDX-License-Identifier: Apache-2.0 */
#include "common/program.h"

#include "common/test_messages.h"
#include "common/test_suite.h"

static const struct sw_run runs[] = {{0, 100, 50}, {0, 200, 10}, {2, 0, 5}, {2, UINT64_MAX - 9, 9}};

static const struct {
    uint32_t region;
    bool inside;
    uint64_t offset, length;
} asked[] = {
    {0, true, 100, 50}, {0, true, 100, 1}, {0, true, 149, 1}, {0, false, 99, 2}, {0, false, 149, 2},
    {0, false, 150, 1}, {0, false, 100, 110}, /* over a hole, from one run into the next */
    {0, true, 200, 10}, {0, false, 209, UINT64_MAX}, {0, false, 200, UINT64_MAX - 199},
    {1, false, 100, 1}, {2, true, 0, 5}, {2, false, 5, 1}, {2, true, UINT64_MAX - 9, 9},
    {2, false, UINT64_MAX - 9, 10}, {3, false, 0, 1}, {0, false, 0, 1},
    {0, false, 120, 0}, /* no extent is empty */
};

START_TEST(contain)
{
    ck_assert_int_eq(sw_runs_contain(runs, 4, asked[_i].region, asked[_i].offset, asked[_i].length),
        asked[_i].inside);
    ck_assert(!sw_runs_contain(NULL, 0, asked[_i].region, asked[_i].offset, asked[_i].length));
}
END_TEST

START_TEST(merge)
{
    struct sw_run in[] = {{1, 10, 5}, {0, 50, 10}, {0, 60, 5}, {0, 10, 20}, {0, 15, 3}, {0, 25, 10},
        {1, 16, 1}, {3, 7, 0}, {2, UINT64_MAX - 5, 100}, {2, UINT64_MAX - 3, 2}};
    static const struct sw_run out[] = {
        {0, 10, 25}, {0, 50, 15}, {1, 10, 5}, {1, 16, 1}, {2, UINT64_MAX - 5, 5}};
    const uint32_t n = sw_runs_merge(in, sizeof(in) / sizeof(in[0]));

    ck_assert_uint_eq(n, sizeof(out) / sizeof(out[0]));
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_uint_eq(in[i].region, out[i].region);
        ck_assert_uint_eq(in[i].offset, out[i].offset);
        ck_assert_uint_eq(in[i].length, out[i].length);
    }
    ck_assert_uint_eq(sw_runs_merge(NULL, 0), 0);
}
END_TEST

/* Against a map of bytes. */
START_TEST(merge_random)
{
    uint64_t state = (uint64_t)_i;
    bool map[2][300] = {0};
    struct sw_run in[20];
    uint32_t n = 0;

    for (; n < 20; n++) {
        in[n].region = (uint32_t)(test_random(&state) % 2);
        in[n].offset = test_random(&state) % 250;
        in[n].length = test_random(&state) % 30;
        for (uint64_t b = 0; b < in[n].length; b++)
            map[in[n].region][in[n].offset + b] = true;
    }
    n = sw_runs_merge(in, n);
    for (uint32_t i = 1; i < n; i++) /* sorted, and a hole between neighbours */
        ck_assert(
            in[i - 1].region < in[i].region || in[i - 1].offset + in[i - 1].length < in[i].offset);
    for (uint32_t r = 0; r < 2; r++)
        for (uint64_t from = 0; from < 299; from++) {
            ck_assert_int_eq(sw_runs_contain(in, n, r, from, 1), map[r][from]);
            ck_assert_int_eq(sw_runs_contain(in, n, r, from, 2), map[r][from] && map[r][from + 1]);
        }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("program");
    TCase *t = tcase_create("program");

    tcase_add_loop_test(t, contain, 0, sizeof(asked) / sizeof(asked[0]));
    tcase_add_test(t, merge);
    tcase_add_loop_test(t, merge_random, 0, 20);
    suite_add_tcase(s, t);
    return test_suite_run(s);
}
