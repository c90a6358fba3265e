/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/pattern.h"

#include <stdio.h>
#include <string.h>
#include "common/test_suite.h"

static const char *const variables[] = {"layer", "expert"};
static struct sw_arena arena;

static struct sw_pattern parse(const char *text)
{
    struct sw_pattern p;
    const char *wrong = sw_pattern_parse(&arena, text, variables, 2, false, &p);

    ck_assert_msg(!wrong, "%s: expected %s", text, wrong);
    return p;
}

static bool match(const struct sw_pattern *p, const char *text, int64_t *values)
{
    struct sw_name name;

    return sw_name_read(text, strlen(text), &name) && sw_pattern_match(p, &name, values);
}

START_TEST(names_are_matched_whole_and_printed_back)
{
    const struct sw_pattern p = parse("model.layers.{layer}.mlp.experts.{expert}.w1.weight");
    int64_t v[2] = {-1, -1};
    char name[SW_NAME_MAX + 1];

    ck_assert(match(&p, "model.layers.60.mlp.experts.383.w1.weight", v));
    ck_assert_int_eq(v[0], 60);
    ck_assert_int_eq(v[1], 383);
    ck_assert_uint_eq(sw_pattern_print(&p, v, name), strlen(name));
    ck_assert_str_eq(name, "model.layers.60.mlp.experts.383.w1.weight");
    ck_assert(match(&p, "model.layers.0.mlp.experts.0.w1.weight", v));
}
END_TEST

START_TEST(what_looks_alike_is_no_match)
{
    static const char *const others[] = {
        "model.layers.60.mlp.experts.383.w3.weight",       /* another literal number */
        "model.layers.60.mlp.experts.383.w11.weight",      /* one more digit */
        "model.layers.060.mlp.experts.383.w1.weight",      /* not as it is printed */
        "model.layers.60.mlp.experts.383.w01.weight",      /* likewise */
        "model.layers.6x.mlp.experts.383.w1.weight",       /* no number */
        "model.layers..mlp.experts.383.w1.weight",         /* none at all */
        "model.layers.60.mlp.experts.383.w1.weight_scale", /* longer */
        "xmodel.layers.60.mlp.experts.383.w1.weight",      /* part of a component */
        "model.layers.60.mlp.experts.12345678.w1.weight",  /* too large a number */
        "model.layers.60.mlp.experts.99999999999999999999.w1.weight",
        "model.layers.\x01.mlp.experts.\x01.w\x01.weight", /* a skeleton */
        "",
    };
    const struct sw_pattern p = parse("model.layers.{layer}.mlp.experts.{expert}.w1.weight");
    int64_t v[2];

    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        ck_assert_msg(!match(&p, others[i], v), "%s", others[i]);
}
END_TEST

START_TEST(wrong_patterns_say_what_was_expected)
{
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"a.{layer}.{layer}", "once"},
        {"a.{other}", "only variables"},
        {"a.{layer", "'}'"},
        {"a.{}", "'}'"},
        {"a}", "'{'"},
        {"a b", "ASCII"},
        {"a\x80", "ASCII"},
        {"w1{layer}", "before"},
        {"w{layer}1", "after"},
        {"{layer}{expert}", "after"},
        {"0.1.2.3.4.5.6.7.8", "at most 8"},
        {"", "a name"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct sw_pattern p;
        const char *wrong = sw_pattern_parse(&arena, cases[i].text, variables, 2, false, &p);

        ck_assert_msg(wrong && strstr(wrong, cases[i].expected), "%s: %s", cases[i].text,
            wrong ? wrong : "no error");
    }
}
END_TEST

START_TEST(no_name_is_longer_than_names_may_be)
{
    char text[SW_NAME_MAX + 32], name[SW_NAME_MAX + 1];
    int64_t v[2] = {9999999, 0};
    struct sw_pattern p;
    struct sw_name n;

    memset(text, 'a', sizeof(text));
    memcpy(text + SW_NAME_MAX - 8, ".{layer}", sizeof(".{layer}"));
    p = parse(text);
    ck_assert_uint_eq(sw_pattern_print(&p, v, name), SW_NAME_MAX);
    memmove(text + 1, text, strlen(text) + 1);
    ck_assert_ptr_nonnull(sw_pattern_parse(&arena, text, variables, 2, false, &p));
    memset(text, 'a', sizeof(text));
    ck_assert(!sw_name_read(text, SW_NAME_MAX + 1, &n));
    ck_assert(sw_name_read(text, SW_NAME_MAX, &n));
}
END_TEST

START_TEST(any_variable_is_any_number)
{
    struct sw_pattern p;
    int64_t v[2];

    ck_assert_ptr_null(sw_pattern_parse(&arena, "a.{x}.b.{y}", NULL, 0, true, &p));
    ck_assert(match(&p, "a.3.b.44", v));
    ck_assert(!match(&p, "a.3.b.044", v));
}
END_TEST

START_TEST(a_suffix_makes_another_pattern)
{
    const struct sw_pattern p = parse("w{layer}.weight");
    struct sw_pattern s;
    int64_t v[2] = {0};
    char name[SW_NAME_MAX + 1];

    ck_assert(sw_pattern_extend(&arena, &p, "_scale_inv", &s));
    ck_assert(match(&s, "w12.weight_scale_inv", v));
    ck_assert_int_eq(v[0], 12);
    ck_assert(!match(&s, "w12.weight", v));
    (void)sw_pattern_print(&s, v, name);
    ck_assert_str_eq(name, "w12.weight_scale_inv");
    ck_assert_str_eq(s.text, "w{layer}.weight_scale_inv");
}
END_TEST

START_TEST(an_index_finds_all_in_their_order)
{
    static const char *const texts[] = {
        "a.{layer}.w1", "a.{layer}.w2", "a.{layer}.w{expert}", "b.{layer}", "a.5.w2"};
    struct sw_pattern p[5];
    struct sw_pattern_index x;
    struct sw_name n;
    int64_t v[2];
    uint32_t i;

    ck_assert(sw_pattern_index_init(&x, &arena, 5));
    for (i = 0; i < 5; i++) {
        p[i] = parse(texts[i]);
        sw_pattern_index_add(&x, &p[i]);
    }
    ck_assert(sw_name_read("a.5.w2", 6, &n));
    i = sw_pattern_index_find(&x, &n, UINT32_MAX, v);
    ck_assert_uint_eq(i, 1);
    i = sw_pattern_index_find(&x, &n, i, v);
    ck_assert_uint_eq(i, 2);
    ck_assert_int_eq(v[1], 2);
    i = sw_pattern_index_find(&x, &n, i, v);
    ck_assert_uint_eq(i, 4);
    ck_assert_uint_eq(sw_pattern_index_find(&x, &n, i, v), UINT32_MAX);
    ck_assert(sw_name_read("c.5", 3, &n));
    ck_assert_uint_eq(sw_pattern_index_find(&x, &n, UINT32_MAX, v), UINT32_MAX);
}
END_TEST

static void clear(void)
{
    sw_arena_clear(&arena);
}

int main(void)
{
    Suite *suite = suite_create("pattern");
    TCase *tc = tcase_create("pattern");

    tcase_add_checked_fixture(tc, NULL, clear);
    tcase_add_test(tc, names_are_matched_whole_and_printed_back);
    tcase_add_test(tc, what_looks_alike_is_no_match);
    tcase_add_test(tc, wrong_patterns_say_what_was_expected);
    tcase_add_test(tc, no_name_is_longer_than_names_may_be);
    tcase_add_test(tc, any_variable_is_any_number);
    tcase_add_test(tc, a_suffix_makes_another_pattern);
    tcase_add_test(tc, an_index_finds_all_in_their_order);
    suite_add_tcase(suite, tc);
    return test_suite_run(suite);
}
