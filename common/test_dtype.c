/* SPDX-License-Identifier: Apache-2.0 */
#include <shardwire/dtype.h>

#include "common/test_suite.h"

START_TEST(names_round_trip)
{
    for (int d = 1; d < SW_DTYPE_COUNT; d++) {
        ck_assert_str_ne(sw_dtype_name((enum sw_dtype)d), "?");
        ck_assert_uint_ne(sw_dtype_bits((enum sw_dtype)d), 0);
        ck_assert_int_eq(sw_dtype_from_name(sw_dtype_name((enum sw_dtype)d)), d);
    }
    ck_assert_str_eq(sw_dtype_name(SW_BF16), "BF16");
    ck_assert_str_eq(sw_dtype_name(SW_F8_E4M3), "F8_E4M3");
    ck_assert_uint_eq(sw_dtype_bits(SW_F6_E2M3), 6);
    ck_assert_uint_eq(sw_dtype_bits(SW_C64), 64);
}
END_TEST

START_TEST(what_is_no_dtype)
{
    ck_assert_uint_eq(sw_dtype_bits(SW_DTYPE_INVALID), 0);
    ck_assert_uint_eq(sw_dtype_bits(SW_DTYPE_COUNT), 0);
    ck_assert_uint_eq(sw_dtype_bits((enum sw_dtype) - 1), 0);
    ck_assert_str_eq(sw_dtype_name((enum sw_dtype)12345), "?");
    ck_assert_int_eq(sw_dtype_from_name("bf16"), SW_DTYPE_INVALID);
    ck_assert_int_eq(sw_dtype_from_name(""), SW_DTYPE_INVALID);
    ck_assert_int_eq(sw_dtype_from_name("?"), SW_DTYPE_INVALID);
    ck_assert_int_eq(sw_dtype_from_name(NULL), SW_DTYPE_INVALID);
}
END_TEST

#define HUGE (1ull << 63)
#define BAD UINT64_MAX

static const struct {
    enum sw_dtype dtype;
    uint32_t ndim;
    uint64_t shape[SW_MAX_DIMS], bytes; /* BAD = refused */
} tensors[] = {
    {SW_F32, 0, {0}, 4},
    {SW_BF16, 2, {3, 5}, 30},
    {SW_U8, 6, {2, 2, 2, 2, 2, 2}, 64},
    {SW_U8, 7, {1, 1, 1, 1, 1, 1}, BAD},
    {SW_DTYPE_INVALID, 1, {1}, BAD},
    {SW_F4, 0, {0}, BAD},
    {SW_F4, 1, {2}, 1},
    {SW_F4, 1, {3}, BAD},
    {SW_F4, 2, {3, 2}, 3},
    {SW_F4, 2, {2, 3}, BAD}, /* whole bytes in all, but not in each row */
    {SW_F6_E3M2, 1, {4}, 3},
    {SW_F6_E2M3, 1, {6}, BAD},
    {SW_U8, 1, {HUGE}, HUGE},
    {SW_U16, 1, {HUGE}, BAD},
    {SW_F4, 1, {HUGE}, HUGE / 2}, /* its bits don't fit 64 bits, its bytes do */
    {SW_F64, 3, {1ull << 30, 1ull << 30, 1}, 1ull << 63},
    {SW_F64, 3, {1ull << 30, 1ull << 30, 2}, BAD},
    {SW_F64, 3, {1ull << 40, 1ull << 40, 0}, 0},
    {SW_F64, 3, {0, HUGE, HUGE}, 0},
    {SW_F4, 2, {0, 3}, BAD},
};

START_TEST(bytes)
{
    uint64_t got = BAD;
    const int rc = sw_tensor_bytes(tensors[_i].dtype, tensors[_i].ndim, tensors[_i].shape, &got);

    ck_assert_int_eq(rc, tensors[_i].bytes == BAD ? -1 : 0);
    ck_assert_uint_eq(got, tensors[_i].bytes); /* untouched on failure */
}
END_TEST

int main(void)
{
    Suite *s = suite_create("dtype");
    TCase *t = tcase_create("dtype");

    tcase_add_test(t, names_round_trip);
    tcase_add_test(t, what_is_no_dtype);
    tcase_add_loop_test(t, bytes, 0, sizeof(tensors) / sizeof(tensors[0]));
    suite_add_tcase(s, t);
    return test_suite_run(s);
}
