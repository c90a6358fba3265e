/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/limits.h"
#include "tools/safetensors.h"

static int parse(const char *json, uint64_t data, struct sw_safetensors *s, struct sw_error *e)
{
    return sw_safetensors_parse(json, strlen(json), data, s, e);
}

START_TEST(test_reads_tensors)
{
    struct sw_safetensors s;
    struct sw_error e = {0};

    ck_assert_int_eq(parse("{\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                           "\"__metadata__\":{\"format\":\"pt\"},"
                           "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                           "\"z\":{\"dtype\":\"F64\",\"shape\":[0,7],\"data_offsets\":[4,4]}}   ",
                         16, &s, &e),
        0);
    ck_assert_uint_eq(s.n, 3);
    ck_assert_str_eq(s.tensors[0].name, "a");
    ck_assert_uint_eq(s.tensors[0].ndim, 0);
    ck_assert_str_eq(s.tensors[1].name, "z");
    ck_assert_str_eq(s.tensors[2].name, "b");
    ck_assert_int_eq(s.tensors[2].dtype, SW_BF16);
    ck_assert_uint_eq(s.tensors[2].ndim, 2);
    ck_assert_uint_eq(s.tensors[2].shape[1], 3);
    ck_assert_uint_eq(s.tensors[2].begin, 4);
    ck_assert_uint_eq(s.tensors[2].end, 16);
    sw_safetensors_clear(&s);
    sw_safetensors_clear(&s);
}
END_TEST

/* Every dtype of the format, by its name: 24 elements of each. */
START_TEST(test_every_dtype)
{
    static const struct {
        const char *name;
        unsigned bytes;
    } all[] = {{"BOOL", 24}, {"U8", 24}, {"I8", 24}, {"F8_E5M2", 24}, {"F8_E4M3", 24},
        {"F8_E8M0", 24}, {"I16", 48}, {"U16", 48}, {"F16", 48}, {"BF16", 48}, {"I32", 96},
        {"U32", 96}, {"F32", 96}, {"I64", 192}, {"U64", 192}, {"F64", 192}, {"C64", 192},
        {"F4", 12}, {"F6_E2M3", 18}, {"F6_E3M2", 18}};
    const unsigned i = (unsigned)_i;
    struct sw_safetensors s;
    struct sw_error e = {0};
    char json[256];

    ck_assert_uint_eq(sizeof(all) / sizeof(all[0]), SW_DTYPE_COUNT - 1);
    snprintf(json, sizeof(json),
        "{\"x\":{\"dtype\":\"%s\",\"shape\":[3,8],\"data_offsets\":[0,%u]}}", all[i].name,
        all[i].bytes);
    ck_assert_msg(parse(json, all[i].bytes, &s, &e) == 0, "%s", e.text);
    ck_assert_str_eq(sw_dtype_name(s.tensors[0].dtype), all[i].name);
    sw_safetensors_clear(&s);
}
END_TEST

#define T(name, dtype, shape, offsets)                                                             \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct {
    const char *json;
    uint64_t data;
    int code;
    const char *text; /* is part of the message */
} bad[] = {
    {"", 0, SW_ERR_INVALID, "no valid JSON"},
    {"{", 0, SW_ERR_INVALID, "no valid JSON"},
    {"{} x", 0, SW_ERR_INVALID, "no valid JSON"},
    {"[]", 0, SW_ERR_INVALID, "no JSON object"},
    {"{}", 1, SW_ERR_INVALID, "1 bytes after the last tensor (there is none)"},
    {"{" T("a", "U8", "[1]", "[0,1]") "," T("a", "U8", "[1]", "[1,2]") "}", 2, SW_ERR_INVALID,
        "duplicate object key"},
    {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
        SW_ERR_INVALID, "duplicate object key"},
    {"{\"a\":7}", 0, SW_ERR_INVALID, "tensor a: its entry is no JSON object"},
    {"{" T("", "U8", "[1]", "[0,1]") "}", 1, SW_ERR_INVALID, "without a name"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, SW_ERR_INVALID, "tensor a: no \"dtype\""},
    {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, SW_ERR_INVALID,
        "tensor a: no \"shape\""},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, SW_ERR_INVALID, "tensor a: \"data_offsets\""},
    {"{" T("a", "F128", "[1]", "[0,16]") "}", 16, SW_ERR_UNSUPPORTED, "unknown dtype \"F128\""},
    {"{" T("a", "bf16", "[1]", "[0,2]") "}", 2, SW_ERR_UNSUPPORTED, "unknown dtype \"bf16\""},
    {"{" T("a", "U8", "[1,1,1,1,1,1,1]", "[0,1]") "}", 1, SW_ERR_UNSUPPORTED, "7 dimensions"},
    {"{" T("a", "U8", "[-1]", "[0,1]") "}", 1, SW_ERR_INVALID, "dimension 0"},
    {"{" T("a", "U8", "[1.0]", "[0,1]") "}", 1, SW_ERR_INVALID, "dimension 0"},
    {"{" T("a", "U8", "[1,\"2\"]", "[0,1]") "}", 1, SW_ERR_INVALID, "dimension 1"},
    {"{" T("a", "U8", "[99999999999999999999]", "[0,1]") "}", 1, SW_ERR_INVALID, "no valid JSON"},
    {"{" T("a", "U8", "[1]", "[0]") "}", 1, SW_ERR_INVALID, "no pair"},
    {"{" T("a", "U8", "[1]", "[0,1,2]") "}", 1, SW_ERR_INVALID, "no pair"},
    {"{" T("a", "U8", "[1]", "[-1,0]") "}", 1, SW_ERR_INVALID, "no pair"},
    {"{" T("a", "U8", "[1]", "[1,0]") "}", 1, SW_ERR_INVALID, "end before they begin (1, 0)"},
    {"{" T("a", "U8", "[4]", "[0,4]") "}", 3, SW_ERR_INVALID,
        "[0, 4] outside of the file's 3 bytes"},
    {"{" T("a", "F32", "[2,3]", "[0,23]") "}", 23, SW_ERR_INVALID,
        "need 24 bytes, data_offsets [0, 23] hold 23"},
    {"{" T("a", "F32", "[4294967296,4294967296,4294967296]", "[0,0]") "}", 0, SW_ERR_INVALID,
        "overflows"},
    {"{" T("a", "F4", "[3]", "[0,2]") "}", 2, SW_ERR_INVALID, "whole bytes of F4"},
    {"{" T("a", "U8", "[4]", "[0,4]") "," T("b", "U8", "[4]", "[3,7]") "}", 7, SW_ERR_INVALID,
        "tensors a and b overlap"},
    {"{" T("a", "U8", "[4]", "[0,4]") "," T("b", "U8", "[4]", "[0,4]") "}", 4, SW_ERR_INVALID,
        "tensors a and b overlap"},
    {"{" T("a", "U8", "[4]", "[0,4]") "," T("b", "U8", "[4]", "[5,9]") "}", 9, SW_ERR_INVALID,
        "hole of 1 bytes at 4 of the data, before tensor b"},
    {"{" T("a", "U8", "[4]", "[1,5]") "}", 5, SW_ERR_INVALID, "hole of 1 bytes at 0"},
    {"{" T("a", "U8", "[4]", "[0,4]") "}", 6, SW_ERR_INVALID,
        "2 bytes after the last tensor (a) belong to none"},
    {"{" T("a\\u0000b", "U8", "[1]", "[0,1]") "}", 1, SW_ERR_INVALID, "no valid JSON"},
    {"{\"\xff\":{}}", 0, SW_ERR_INVALID, "no valid JSON"},
};

START_TEST(test_refuses)
{
    struct sw_safetensors s = {.n = 77};
    struct sw_error e = {0};

    ck_assert_int_eq(parse(bad[_i].json, bad[_i].data, &s, &e), bad[_i].code);
    ck_assert_int_eq(e.code, bad[_i].code);
    ck_assert_msg(strstr(e.text, bad[_i].text), "\"%s\" has no \"%s\"", e.text, bad[_i].text);
    ck_assert_uint_eq(s.n, 77); /* outputs are set on success only */
}
END_TEST

START_TEST(test_refuses_long_name)
{
    char json[2048], name[SW_NAME_MAX + 2];
    struct sw_safetensors s;
    struct sw_error e = {0};

    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    snprintf(json, sizeof(json), "{\"%s\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}",
        name);
    ck_assert_int_eq(parse(json, 1, &s, &e), SW_ERR_LIMIT);
    name[SW_NAME_MAX] = '\0';
    snprintf(json, sizeof(json), "{\"%s\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}",
        name);
    ck_assert_int_eq(parse(json, 1, &s, &e), 0);
    sw_safetensors_clear(&s);
}
END_TEST

START_TEST(test_length)
{
    static const uint8_t two[8] = {2}, million[8] = {0x40, 0x42, 0x0f}, huge[8] = {0, 0, 0, 0, 1},
                         all[8] = {255, 255, 255, 255, 255, 255, 255, 255};
    uint64_t n = 5;
    struct sw_error e = {0};

    ck_assert_int_eq(sw_safetensors_length(two, 10, &n, &e), 0);
    ck_assert_uint_eq(n, 2);
    ck_assert_int_eq(sw_safetensors_length(two, 7, &n, &e), SW_ERR_INVALID);
    ck_assert_int_eq(sw_safetensors_length(two, 0, &n, &e), SW_ERR_INVALID);
    ck_assert_int_eq(sw_safetensors_length(two, 9, &n, &e), SW_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(e.text, "a header of 2 bytes in a file of 9"));
    ck_assert_int_eq(sw_safetensors_length(million, 1000008, &n, &e), 0);
    ck_assert_uint_eq(n, 1000000);
    ck_assert_int_eq(sw_safetensors_length(huge, UINT64_MAX, &n, &e), SW_ERR_LIMIT);
    ck_assert_int_eq(sw_safetensors_length(all, UINT64_MAX, &n, &e), SW_ERR_LIMIT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("safetensors");
    TCase *c = tcase_create("header");
    SRunner *runner;
    int failed;

    tcase_add_test(c, test_reads_tensors);
    tcase_add_loop_test(c, test_every_dtype, 0, SW_DTYPE_COUNT - 1);
    tcase_add_loop_test(c, test_refuses, 0, sizeof(bad) / sizeof(bad[0]));
    tcase_add_test(c, test_refuses_long_name);
    tcase_add_test(c, test_length);
    suite_add_tcase(suite, c);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
