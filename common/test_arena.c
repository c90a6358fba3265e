/* SPDX-License-Identifier: Apache-2.0 */
#include "common/arena.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "common/test_suite.h"

static bool filled_with(const unsigned char *bytes, size_t n, unsigned char value)
{
    return n == 0 || (bytes[0] == value && memcmp(bytes, bytes + 1, n - 1) == 0);
}

START_TEST(zeroed_aligned_and_apart)
{
    static const size_t sizes[] = {1, 16, 17, 500, 4000, 100000, 70000, 3, 300000, 0, 8};
    struct sw_arena a = {0};
    unsigned char *all[600];
    size_t size[600], n = 0, used = 0;

    for (int round = 0; round < 50; round++)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++, n++) {
            size[n] = sizes[i];
            all[n] = sw_arena_alloc(&a, sizes[i]);
            ck_assert_ptr_nonnull(all[n]);
            ck_assert_uint_eq((uintptr_t)all[n] % 16, 0);
            ck_assert(filled_with(all[n], size[n], 0));
            memset(all[n], (int)n % 255 + 1, size[n]);
            used += size[n] ? (size[n] + 15) / 16 * 16 : 16;
        }
    ck_assert_uint_eq(a.used, used);
    for (size_t i = 0; i < n; i++) /* nobody wrote over anybody */
        ck_assert(filled_with(all[i], size[i], (unsigned char)(i % 255 + 1)));
    sw_arena_clear(&a);
}
END_TEST

START_TEST(budget)
{
    struct sw_arena a;

    sw_arena_init(&a, 100);
    ck_assert_ptr_null(sw_arena_alloc(&a, 101));
    ck_assert_ptr_nonnull(sw_arena_alloc(&a, 60)); /* 64 */
    ck_assert_ptr_null(sw_arena_alloc(&a, 40));    /* 48: 112 in all */
    ck_assert_ptr_nonnull(sw_arena_alloc(&a, 32));
    ck_assert_ptr_null(sw_arena_alloc(&a, 0));
    ck_assert_uint_eq(a.used, 96);
    sw_arena_clear(&a);
    ck_assert_uint_eq(a.used, 0);
    ck_assert_ptr_nonnull(sw_arena_alloc(&a, 96)); /* the budget is still there, all of it */
    ck_assert_ptr_null(sw_arena_alloc(&a, 1));
    sw_arena_clear(&a);
}
END_TEST

START_TEST(sizes_that_overflow)
{
    struct sw_arena a = {0};

    ck_assert_ptr_null(sw_arena_alloc(&a, SIZE_MAX));
    ck_assert_ptr_null(sw_arena_alloc(&a, SIZE_MAX - 15));
    ck_assert_ptr_null(sw_arena_alloc(&a, SIZE_MAX - 16));
    ck_assert_ptr_null(sw_arena_array(&a, SIZE_MAX / 8 + 1, 8));
    ck_assert_ptr_null(sw_arena_array(&a, SIZE_MAX / 2, 3));
    ck_assert_ptr_nonnull(sw_arena_array(&a, 0, 8));
    ck_assert_ptr_nonnull(sw_arena_array(&a, 8, 0));
    sw_arena_clear(&a);
}
END_TEST

START_TEST(texts)
{
    struct sw_arena a = {0};

    ck_assert_str_eq(sw_arena_strdup(&a, "shardwire"), "shardwire");
    ck_assert_str_eq(sw_arena_strdup(&a, ""), "");
    ck_assert_str_eq(sw_arena_strndup(&a, "shardwire", 5), "shard");
    ck_assert_str_eq(sw_arena_strndup(&a, "shard", 50), "shard");
    sw_arena_clear(&a);
    sw_arena_clear(&a);
    sw_arena_init(&a, 16);
    ck_assert_ptr_null(sw_arena_strdup(&a, "sixteen letters!")); /* the NUL is over the budget */
    ck_assert_ptr_nonnull(sw_arena_strdup(&a, "fifteen letters"));
    sw_arena_clear(&a);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("arena");
    TCase *t = tcase_create("arena");

    tcase_add_test(t, zeroed_aligned_and_apart);
    tcase_add_test(t, budget);
    tcase_add_test(t, sizes_that_overflow);
    tcase_add_test(t, texts);
    suite_add_tcase(s, t);
    return test_suite_run(s);
}
