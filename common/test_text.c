/* SPDX-License-Identifier: Apache-2.0 */
#include "common/text.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *in;
    const char *out;
} cases[] = {
    {"", ""},
    {"plain text 123", "plain text 123"},
    {"a\nb\tc\rd", "a\\nb\\tc\\rd"},
    {"\033[31mred\007", "\\x1b[31mred\\x07"},
    {"del\x7f", "del\\x7f"},
    {"gr\xc3\xbc\xc3\x9f \xe6\x97\xa5 \xf0\x9f\x98\x80",
        "gr\xc3\xbc\xc3\x9f \xe6\x97\xa5 \xf0\x9f\x98\x80"},
    {"c1 \xc2\x85 x", "c1 \\u0085 x"},
    /* NOLINTNEXTLINE(misc-misleading-bidirectional): what is tested */
    {"bidi \xe2\x80\xae x", "bidi \\u202e x"},
    {"line \xe2\x80\xa8 x", "line \\u2028 x"},
    {"lone \x80 x", "lone \\x80 x"},
    {"cut \xe6\x97", "cut \\xe6\\x97"},
    {"overlong \xc0\xaf", "overlong \\xc0\\xaf"},
    {"surrogate \xed\xa0\x80", "surrogate \\xed\\xa0\\x80"},
    {"too large \xf4\x90\x80\x80", "too large \\xf4\\x90\\x80\\x80"},
    {"never \xff", "never \\xff"},
};

START_TEST(escape)
{
    char out[128];

    ck_assert_str_eq(sw_text_escape(out, sizeof(out), cases[_i].in), cases[_i].out);
}
END_TEST

/* Whatever the room, the result is inside it, and is the whole or ends in "...". */
START_TEST(fits_any_room)
{
    /* NOLINTNEXTLINE(misc-misleading-bidirectional): what is tested */
    static const char in[] = "a\n\xc3\xbc\x01\xe2\x80\xae\xf0\x9f\x98\x80 and the rest";
    char whole[128];

    sw_text_escape(whole, sizeof(whole), in);
    for (size_t size = 8; size < sizeof(whole); size++) {
        char *out = malloc(size); /* so that a sanitizer sees a byte too many */

        ck_assert_ptr_nonnull(out);
        sw_text_escape(out, size, in);
        ck_assert_uint_lt(strlen(out), size);
        if (strlen(whole) < size) {
            ck_assert_str_eq(out, whole);
        } else {
            const size_t n = strlen(out);

            ck_assert_uint_ge(n, 3);
            ck_assert_str_eq(out + n - 3, "...");
            ck_assert_int_eq(strncmp(out, whole, n - 3), 0);
        }
        free(out);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("text");
    TCase *t = tcase_create("text");
    SRunner *r;
    int failed;

    tcase_add_loop_test(t, escape, 0, sizeof(cases) / sizeof(cases[0]));
    tcase_add_test(t, fits_any_room);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
