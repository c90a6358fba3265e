/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include "inferd/test_support.h"
#include "inferd/tokens.h"

static uint64_t seed;
static struct sw_tokens tokens;
static struct sw_token out[SW_TCP_CONNECTIONS_MAX + 1];
static struct sw_error e;

static int issue(uint8_t writer, uint32_t count, uint64_t epoch, uint64_t expires)
{
    struct sw_id id = make_id(writer, 'w');
    return sw_tokens_issue(&tokens, &id, count, epoch, expires, make_random, &seed, out, &e);
}

static int use(const struct sw_token *token, uint8_t writer, uint64_t epoch, uint64_t now)
{
    struct sw_id id = make_id(writer, 'w');
    return sw_tokens_use(&tokens, token, &id, epoch, now, &e);
}

static void teardown(void)
{
    sw_tokens_clear(&tokens);
}

START_TEST(used_once)
{
    ck_assert_int_eq(issue(1, 2, 10, 100), 0);
    ck_assert_int_eq(use(&out[1], 1, 10, 99), 0);
    ck_assert_int_eq(use(&out[1], 1, 10, 99), SW_ERR_AUTH);
    ck_assert_int_eq(use(&out[0], 1, 10, 99), 0);
    ck_assert_uint_eq(tokens.n, 0);
}
END_TEST

START_TEST(bound)
{
    ck_assert_int_eq(issue(1, 4, 10, 100), 0);
    ck_assert_int_eq(use(&out[0], 2, 10, 0), SW_ERR_AUTH);
    ck_assert_ptr_nonnull(strstr(e.text, "another writer"));
    ck_assert_int_eq(use(&out[0], 1, 10, 0), SW_ERR_AUTH); /* a stolen one is spent */
    ck_assert_int_eq(use(&out[1], 1, 11, 0), SW_ERR_AUTH);
    ck_assert_ptr_nonnull(strstr(e.text, "epoch 10, not 11"));
    ck_assert_int_eq(use(&out[2], 1, 10, 100), SW_ERR_AUTH);
    ck_assert_ptr_nonnull(strstr(e.text, "expired"));
    out[3].bytes[31] ^= 1;
    ck_assert_int_eq(use(&out[3], 1, 10, 0), SW_ERR_AUTH);
    out[3].bytes[31] ^= 1;
    ck_assert_int_eq(use(&out[3], 1, 10, 0), 0);
}
END_TEST

START_TEST(replaced)
{
    struct sw_token first, other;

    ck_assert_int_eq(issue(1, 1, 10, 100), 0);
    first = out[0];
    ck_assert_int_eq(issue(2, 1, 10, 100), 0);
    other = out[0];
    ck_assert_int_eq(issue(1, 1, 10, 100), 0);
    ck_assert_int_eq(use(&first, 1, 10, 0), SW_ERR_AUTH);
    ck_assert_int_eq(use(&other, 2, 10, 0), 0);
    ck_assert_int_eq(use(&out[0], 1, 10, 0), 0);
}
END_TEST

START_TEST(bounded)
{
    uint32_t writers = SW_TOKENS_MAX / SW_TCP_CONNECTIONS_MAX;

    ck_assert_int_eq(issue(1, SW_TCP_CONNECTIONS_MAX + 1, 10, 100), SW_ERR_LIMIT);
    for (uint32_t i = 0; i < writers; i++)
        ck_assert_int_eq(issue((uint8_t)i, SW_TCP_CONNECTIONS_MAX, 10, 100), 0);
    ck_assert_uint_eq(tokens.n, SW_TOKENS_MAX);
    ck_assert_int_eq(issue(200, 1, 10, 100), SW_ERR_LIMIT);
    ck_assert_int_eq(issue(0, SW_TCP_CONNECTIONS_MAX, 10, 100), 0); /* in place of its own */
    ck_assert_int_eq(use(&out[5], 0, 10, 0), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokens");
    TCase *tc = tcase_create("tokens");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tc, NULL, teardown);
    tcase_add_test(tc, used_once);
    tcase_add_test(tc, bound);
    tcase_add_test(tc, replaced);
    tcase_add_test(tc, bounded);
    suite_add_tcase(suite, tc);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
