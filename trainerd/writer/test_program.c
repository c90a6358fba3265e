/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/writer/program.h"

static struct sw_program_table table;
static struct sw_error e;

static void setup(void)
{
    memset(&table, 0, sizeof(table));
    memset(&e, 0, sizeof(e));
}

static void teardown(void)
{
    sw_program_table_clear(&table);
}

static int targets(uint64_t epoch, uint32_t first, uint32_t n, uint32_t total)
{
    struct sw_target *items = calloc(n + 1, sizeof(*items));
    uint64_t bytes[] = {4096, 8192};
    struct sw_targets part = {.layout_epoch = 7,
        .membership_epoch = epoch,
        .first = first,
        .total = total,
        .n = n,
        .items = items};
    int code;

    for (uint32_t i = 0; i < n; i++)
        items[i] = (struct sw_target){.target = first + i,
            .engine = "A",
            .address = "10.0.0.1",
            .unix_path = "",
            .n_regions = 2,
            .region_bytes = bytes};
    code = sw_program_table_targets(&table, &part, &e);
    free(items);
    return code;
}

static int extents(
    uint64_t epoch, uint32_t rank, uint32_t target, uint32_t first, uint32_t n, uint32_t total)
{
    struct sw_extent items[8] = {{0}};
    struct sw_write_program part = {.layout_epoch = 7,
        .membership_epoch = epoch,
        .rank = rank,
        .target = target,
        .first = first,
        .total = total,
        .n = n,
        .extents = items};

    for (uint32_t i = 0; i < n; i++)
        items[i] = (struct sw_extent){.src = first + i, .length = 10};
    return sw_program_table_extents(&table, &part, &e);
}

START_TEST(test_parts)
{
    struct sw_programs *p;

    ck_assert_int_eq(targets(1, 0, 2, 3), 0);
    ck_assert_ptr_null(sw_program_table_find(&table, 0, &e)); /* not whole */
    ck_assert_int_eq(targets(1, 2, 1, 3), 0);
    ck_assert_int_eq(extents(1, 4, 2, 0, 3, 5), 0);
    ck_assert_ptr_null(sw_program_table_find(&table, 2, &e));
    ck_assert_ptr_nonnull(strstr(e.text, "not whole"));
    ck_assert_int_eq(extents(1, 4, 2, 3, 2, 5), 0);
    ck_assert_int_eq(extents(1, 5, 2, 0, 0, 0), 0);
    p = sw_program_table_find(&table, 2, &e);
    ck_assert_ptr_nonnull(p);
    ck_assert_uint_eq(p->n, 2);
    ck_assert_uint_eq(p->items[0].bytes, 50);
    ck_assert_uint_eq(p->items[0].extents[4].src, 4);
    ck_assert_uint_eq(p->items[1].n, 0);
    ck_assert_str_eq(p->target.address, "10.0.0.1");
    ck_assert_uint_eq(p->target.region_bytes[1], 8192);
    ck_assert_ptr_nonnull(sw_program_table_find(&table, 1, &e)); /* nothing to write there */
    ck_assert_ptr_null(sw_program_table_find(&table, 3, &e));
    ck_assert_int_eq(e.code, SW_ERR_NOT_FOUND);
}
END_TEST

START_TEST(test_targets_that_do_not_join)
{
    static const uint32_t wrong[][4] = {
        {1, 1, 1, 5}, {1, 3, 1, 5}, {2, 2, 1, 5}, {1, 2, 4, 5}, {1, 2, 1, 6}};
    const uint32_t *w = wrong[_i];

    ck_assert_int_eq(targets(1, 2, 1, 5), SW_ERR_PROTOCOL); /* no first one */
    ck_assert_int_eq(targets(1, 0, 2, 5), 0);
    ck_assert_int_eq(targets(w[0], w[1], w[2], w[3]), SW_ERR_PROTOCOL);
}
END_TEST

START_TEST(test_target_twice)
{
    struct sw_target *items = calloc(2, sizeof(*items));
    struct sw_targets part = {.membership_epoch = 1, .total = 2, .n = 2, .items = items};

    items[0] = (struct sw_target){.target = 4, .engine = "A", .address = "", .unix_path = ""};
    items[1] = items[0];
    ck_assert_int_eq(sw_program_table_targets(&table, &part, &e), SW_ERR_PROTOCOL);
    ck_assert_ptr_null(sw_program_table_find(&table, 4, &e));
    free(items);
}
END_TEST

START_TEST(test_extents_that_do_not_join)
{
    static const uint32_t wrong[][6] = {
        {1, 4, 0, 2, 1, 5}, /* a hole */
        {1, 4, 0, 0, 3, 5}, /* twice */
        {1, 5, 0, 3, 1, 5}, /* another rank */
        {2, 4, 0, 3, 1, 5}, /* another epoch */
        {1, 4, 1, 3, 1, 5}, /* a target that has no first part */
        {1, 4, 9, 3, 1, 5}, /* no such target */
        {1, 4, 0, 3, 3, 5}, /* too many */
        {1, 4, 0, 3, 2, 6}, /* another total */
    };
    const uint32_t *w = wrong[_i];

    ck_assert_int_eq(targets(1, 0, 2, 2), 0);
    ck_assert_int_eq(extents(1, 4, 0, 0, 3, 5), 0);
    ck_assert_int_eq(extents(w[0], w[1], w[2], w[3], w[4], w[5]), SW_ERR_PROTOCOL);
    ck_assert_ptr_null(sw_program_table_find(&table, 0, &e));
}
END_TEST

/* A delivery goes by a target's programs: nothing is changed under it, and they outlive the table.
 */
START_TEST(test_held_programs)
{
    struct sw_programs *p;
    const struct sw_program *first;

    ck_assert_int_eq(targets(1, 0, 1, 1), 0);
    ck_assert_int_eq(extents(1, 4, 0, 0, 1, 1), 0);
    p = sw_programs_hold(sw_program_table_find(&table, 0, &e));
    first = &p->items[0];
    for (uint32_t rank = 5; rank < 40; rank++)
        ck_assert_int_eq(extents(1, rank, 0, 0, 1, 1), SW_ERR_PROTOCOL);
    ck_assert_int_eq(targets(2, 0, 1, 1), 0);
    ck_assert_uint_eq(first->extents[0].length, 10);
    ck_assert_uint_eq(p->n, 1);
    sw_programs_release(p);
    sw_programs_release(NULL);
}
END_TEST

START_TEST(test_new_epoch_replaces)
{
    ck_assert_int_eq(targets(1, 0, 2, 2), 0);
    ck_assert_int_eq(extents(1, 4, 0, 0, 1, 1), 0);
    ck_assert_int_eq(targets(2, 0, 1, 1), 0);
    ck_assert_uint_eq(table.membership_epoch, 2);
    ck_assert_uint_eq(sw_program_table_find(&table, 0, &e)->n, 0);
    ck_assert_int_eq(extents(1, 4, 0, 0, 1, 1), SW_ERR_PROTOCOL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("program");
    TCase *c = tcase_create("parts");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, test_parts);
    tcase_add_loop_test(c, test_targets_that_do_not_join, 0, 5);
    tcase_add_test(c, test_target_twice);
    tcase_add_loop_test(c, test_extents_that_do_not_join, 0, 8);
    tcase_add_test(c, test_held_programs);
    tcase_add_test(c, test_new_epoch_replaces);
    suite_add_tcase(s, c);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
