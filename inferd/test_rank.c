/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include "inferd/rank.h"

/* Every allowed step, written down a second time: a change of the table must be meant. */
static const struct {
    enum sw_step from;
    const char *to;
} allowed[] = {
    {SW_STEP_CONNECTED, "declaring,gone,"},
    {SW_STEP_MANIFEST, "connected,mapping,gone,"},
    {SW_STEP_MAPPING, "connected,serving,torn,gone,"},
    {SW_STEP_SERVING, "pausing,gone,"},
    {SW_STEP_PAUSING, "pausing,paused,resuming,torn,gone,"},
    {SW_STEP_PAUSED, "preparing,resuming,torn,gone,"},
    {SW_STEP_PREPARING, "paused,prepared,resuming,torn,gone,"},
    {SW_STEP_PREPARED, "opening,resuming,torn,gone,"},
    {SW_STEP_OPENING, "open,closing,closing (torn),gone,"},
    {SW_STEP_OPEN, "closing,closing (torn),gone,"},
    {SW_STEP_CLOSING, "closed,closing (torn),gone,"},
    {SW_STEP_CLOSED, "post-processing,torn,gone,"},
    {SW_STEP_POSTING, "closed,post-processed,torn,gone,"},
    {SW_STEP_POSTED, "activating,torn,gone,"},
    {SW_STEP_ACTIVATING, "post-processed,active,torn,gone,"},
    {SW_STEP_ACTIVE, "resuming,torn,gone,"},
    {SW_STEP_RESUMING, "serving,pausing,gone,"},
    {SW_STEP_TEARING, "torn,gone,"},
    {SW_STEP_TORN, "pausing,paused,gone,"},
    {SW_STEP_GONE, ""},
};

START_TEST(table)
{
    char text[512] = "";

    for (int to = 0; to < SW_STEP_COUNT; to++)
        if (sw_step_allowed(allowed[_i].from, to)) {
            size_t n = strlen(text);

            snprintf(text + n, sizeof(text) - n, "%s,", sw_step_name(to));
        }
    ck_assert_str_eq(text, allowed[_i].to);
}
END_TEST

START_TEST(no_way_back_from_an_open_window_but_activation)
{
    bool reached[SW_STEP_COUNT] = {[SW_STEP_OPENING] = true};

    /* Whatever follows an opened window without ACTIVE, a new pause or the process's end. */
    for (int round = 0; round < SW_STEP_COUNT; round++)
        for (int from = 0; from < SW_STEP_COUNT; from++)
            for (int to = 0; reached[from] && to < SW_STEP_COUNT; to++)
                if (sw_step_allowed(from, to) && to != SW_STEP_ACTIVE && to != SW_STEP_PAUSING &&
                    to != SW_STEP_PAUSED && to != SW_STEP_GONE)
                    reached[to] = true;
    ck_assert(!reached[SW_STEP_RESUMING]);
    ck_assert(!reached[SW_STEP_SERVING]);
    ck_assert(reached[SW_STEP_TORN]);
}
END_TEST

START_TEST(states)
{
    ck_assert_int_eq(sw_step_state(SW_STEP_PREPARED, false), SW_RANK_PAUSED);
    ck_assert_int_eq(sw_step_state(SW_STEP_PREPARED, true), SW_RANK_TORN);
    ck_assert_int_eq(sw_step_state(SW_STEP_TEARING, true), SW_RANK_OPEN);
    ck_assert_int_eq(sw_step_state(SW_STEP_RESUMING, false), SW_RANK_SERVING);
    ck_assert_int_eq(sw_step_state(SW_STEP_COUNT, false), SW_RANK_GONE);
    for (int s = 0; s < SW_STEP_COUNT; s++) {
        bool open = sw_step_state(s, false) == SW_RANK_OPEN;
        ck_assert(sw_step_has_window(s) == open);
    }
    ck_assert(!sw_step_allowed(SW_STEP_COUNT, SW_STEP_GONE));
    ck_assert_str_eq(sw_step_name(SW_STEP_COUNT), "?");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rank");
    TCase *tc = tcase_create("rank");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_loop_test(tc, table, 0, sizeof(allowed) / sizeof(allowed[0]));
    tcase_add_test(tc, no_way_back_from_an_open_window_but_activation);
    tcase_add_test(tc, states);
    suite_add_tcase(suite, tc);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
