/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/expression.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/test_suite.h"

static const char json[] = "{\"hidden\": 4096, \"tied\": true, \"off\": false, \"none\": null,"
                           "\"big\": 9223372036854775807, \"whole\": 3.0, \"half\": 0.5,"
                           "\"kind\": \"silu\", \"list\": [5, 1, 3, \"x\"],"
                           "\"text\": {\"heads\": 16}, \"self\": 7}";
static const char *const variables[] = {"layer", "expert"};

static struct sw_arena arena;
static struct sw_config *config;
static uint64_t work;

struct definition {
    const char *name, *text;
    struct sw_expression x;
};

static struct definition definitions[] = {
    {.name = "inner", .text = "4 * hidden"},
    {.name = "sparse", .text = "layer >= 3"},
    {.name = "self", .text = "self + 1"},
    {.name = "round1", .text = "round2"},
    {.name = "round2", .text = "1 + round1"},
    {.name = "twice0", .text = "layer + layer"},
};

static const struct sw_expression *define(void *arg, const char *name)
{
    (void)arg;
    for (size_t i = 0; i < sizeof(definitions) / sizeof(*definitions); i++)
        if (strcmp(definitions[i].name, name) == 0)
            return &definitions[i].x;
    return NULL;
}

static void setup(void)
{
    struct sw_error e = {0};

    ck_assert_msg(!sw_config_parse(json, strlen(json), &config, &e), "%s", e.text);
    for (size_t i = 0; i < sizeof(definitions) / sizeof(*definitions); i++) {
        const char *text = definitions[i].text;

        ck_assert_int_eq(sw_expression_parse(&arena, &text, &definitions[i].x, &e), 0);
    }
    work = 1000000;
}

static void teardown(void)
{
    sw_config_free(config);
    sw_arena_clear(&arena);
}

static int bind(const char *text, struct sw_expression *out, struct sw_error *e)
{
    const struct sw_expression_scope scope = {.config = config,
        .variables = variables,
        .n_variables = 2,
        .define = define,
        .work = &work};
    struct sw_expression x;
    int err = sw_expression_parse(&arena, &text, &x, e);

    if (err)
        return err;
    ck_assert_str_eq(text, "");
    return sw_expression_bind(&arena, &x, &scope, out, e);
}

static int evaluate(const char *text, int64_t layer, int64_t *value, struct sw_error *e)
{
    const int64_t values[] = {layer, 100};
    struct sw_expression x;
    int err = bind(text, &x, e);

    return err ? err : sw_expression_evaluate(&x, values, value, e);
}

START_TEST(values)
{
    static const struct {
        const char *text;
        int64_t value; /* with layer 5 */
    } cases[] = {
        {"1 + 2 * 3", 7},
        {"(1 + 2) * 3", 9},
        {"10 - 3 - 2", 5},
        {"-7 / 2", -4},
        {"-7 % 2", 1},
        {"7 / -2", -4},
        {"7 % -2", -1},
        {"--7", 7},
        {"---7", -7},
        {"2 < 3", 1},
        {"3 <= 2", 0},
        {"3 > 2", 1},
        {"2 >= 3", 0},
        {"2 == 2", 1},
        {"2 != 2", 0},
        {"1 + 1 == 2 and 3 > 2", 1},
        {"not 1", 0},
        {"not 0", 1},
        {"not not 7", 1},
        {"not not not 7", 0},
        {"not 1 == 2", 1},
        {"0 or 2", 1},
        {"0 and 1 or 1", 1},
        {"1 or 1 and 0", 1},
        {"5 and 3", 1},
        {"hidden", 4096},
        {"tied", 1},
        {"off", 0},
        {"none", 0},
        {"whole", 3},
        {"text.heads", 16},
        {"get(hidden, 1)", 4096},
        {"get(none, 9)", 9},
        {"get(absent, 2 + 3)", 5},
        {"get(absent, get(none, 4))", 4},
        {"get(text.heads, 0)", 16},
        {"get(text.other, 1)", 1},
        {"has(hidden)", 1},
        {"has(none)", 0},
        {"has(absent)", 0},
        {"has(kind)", 1},
        {"is(kind, silu)", 1},
        {"is(kind, gelu-new)", 0},
        {"is(hidden, silu)", 0},
        {"holds(list, 3)", 1},
        {"holds(list, 2)", 0},
        {"holds(absent, 2)", 0},
        {"holds(list, layer)", 1},
        {"holds(list, layer - 1)", 0},
        {"min(3, 2)", 2},
        {"max(3, 2)", 3},
        {"ceil(7, 2)", 4},
        {"ceil(8, 2)", 4},
        {"ceil(-7, 2)", -3},
        {"up(7, 4)", 8},
        {"up(8, 4)", 8},
        {"up(0, 4)", 0},
        {"if(1, 2, 1 / 0)", 2},
        {"if(0, absent, 3)", 3},
        {"if(layer > 3, 8, absent)", 8},
        {"0 and absent", 0},
        {"1 or absent", 1},
        {"layer < 3 and absent", 0},
        {"layer * 2 + expert", 110},
        {"inner", 16384},
        {"sparse", 1},
        {"sparse and inner", 1},
        {"self", 8},
        {"twice0", 10},
        {"9223372036854775807", INT64_MAX},
        {"-big - 1", INT64_MIN},
        {"1and 2", -1},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct sw_error e = {0};
        int64_t value = -1;

        (void)evaluate(cases[i].text, 5, &value, &e);
        ck_assert_msg(value == cases[i].value, "%s = %" PRId64 ", not %" PRId64 " (%s)",
            cases[i].text, value, cases[i].value, e.text);
    }
}
END_TEST

START_TEST(errors)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "expected a number, a name, a function or '(', found the end"},
        {"1 +", "found the end"},
        {"1 < 2 < 3", "'and' between two comparisons"},
        {"(1", "expected ')'"},
        {"foo(1)", "before '(', found 'foo(1)'"},
        {"get(1, 2)", "a key of config.json"},
        {"get(hidden)", "','"},
        {"if(1, 2)", "','"},
        {"min(1, 2, 3)", "')'"},
        {"and 1", "found 'and 1'"},
        {"9223372036854775808", "below 2^63"},
        {"1.5", "a whole number"},
        {"2x", "a whole number"},
        {"absent", "expected 'absent' to be a definition, a variable or a key"},
        {"half", "whole number in config.json's 'half'"},
        {"kind", "whole number in config.json's 'kind'"},
        {"get(kind, 1)", "whole number in config.json's 'kind'"},
        {"1 / 0", "division by zero"},
        {"1 % off", "division by zero"},
        {"big + 1", "beyond 2^63"},
        {"big * 2", "beyond 2^63"},
        {"0 - big - 2", "beyond 2^63"},
        {"-(0 - big - 1)", "beyond 2^63"},
        {"(0 - big - 1) / -1", "above 2^63"},
        {"up(big, 2)", "above 2^63"},
        {"ceil(1, 0)", "no positive number"},
        {"absent + layer", "'absent'"},
        {"round1", "a circle"},
        {"if(layer > 3, absent, 1)", "'absent'"},
        {"1 / (layer - 5)", "division by zero"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct sw_error e = {0};
        int64_t value;

        ck_assert_msg(evaluate(cases[i].text, 5, &value, &e) < 0, "%s", cases[i].text);
        ck_assert_msg(strstr(e.text, cases[i].message), "%s: %s", cases[i].text, e.text);
    }
}
END_TEST

/* -9223372036854775808 % -1 traps on some machines. */
START_TEST(the_smallest_number_is_divided_safely)
{
    int64_t value = 9;

    ck_assert_int_eq(evaluate("(0 - big - 1) % -1", 0, &value, NULL), 0);
    ck_assert_int_eq(value, 0);
}
END_TEST

START_TEST(what_follows_is_left_for_the_caller)
{
    const char *text = "  layer + 1 to 5", *second;
    struct sw_expression x;

    ck_assert_int_eq(sw_expression_parse(&arena, &text, &x, NULL), 0);
    ck_assert_str_eq(text, "to 5");
    ck_assert_str_eq(x.text, "layer + 1");
    second = "2, 3";
    ck_assert_int_eq(sw_expression_parse(&arena, &second, &x, NULL), 0);
    ck_assert_str_eq(second, ", 3");
}
END_TEST

START_TEST(only_what_depends_on_variables_is_left)
{
    struct sw_expression x;

    ck_assert_int_eq(bind("inner * 2 + get(none, 1)", &x, NULL), 0);
    ck_assert(x.constant && x.value == 32769);
    ck_assert_int_eq(bind("if(tied, expert, layer) + inner", &x, NULL), 0);
    ck_assert(!x.constant);
    ck_assert(sw_expression_uses(&x, 1));
    ck_assert(!sw_expression_uses(&x, 0));
}
END_TEST

/* `n` times `part`, between `before` and `after`. */
static const char *repeat(const char *before, const char *part, size_t n, const char *after)
{
    const size_t size = strlen(before) + strlen(part) * n + strlen(after) + 1;
    char *text = sw_arena_alloc(&arena, size);
    size_t at;

    ck_assert_ptr_nonnull(text);
    at = (size_t)snprintf(text, size, "%s", before);
    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(text + at, size - at, "%s", part);
    snprintf(text + at, size - at, "%s", after);
    return text;
}

START_TEST(depth_and_length_are_bounded)
{
    struct sw_error e = {0};
    int64_t value;

    ck_assert_int_eq(evaluate(repeat("", "(", 60, repeat("1", ")", 60, "")), 0, &value, &e), 0);
    ck_assert_int_lt(evaluate(repeat("", "(", 5000, "1"), 0, &value, &e), 0);
    ck_assert_msg(strstr(e.text, "64 levels"), "%s", e.text);
    ck_assert_int_eq(evaluate(repeat("1", " + 1", 200, ""), 0, &value, &e), 0);
    ck_assert_int_eq(value, 201);
    ck_assert_int_eq(evaluate(repeat("1", " + 1", 5000, ""), 0, &value, &e), SW_ERR_LIMIT);
    ck_assert_int_eq(evaluate(repeat("", "-", 5000, "1"), 0, &value, &e), 0);
    ck_assert_int_eq(evaluate(repeat("", "not ", 5000, "1"), 0, &value, &e), 0);
    ck_assert_int_eq(value, 1);
}
END_TEST

/* Definitions that double: 2^12 terms from a few lines. */
START_TEST(definitions_do_not_blow_up)
{
    struct definition saved = definitions[5];
    char text[16][16];
    struct sw_error e = {0};
    int64_t value;
    int err;

    work = 100000;
    for (size_t i = 0; i < 5; i++) {
        const char *at = text[i];

        snprintf(text[i], sizeof(text[i]), "d%zu + d%zu", i + 1, i + 1);
        ck_assert_int_eq(sw_expression_parse(&arena, &at, &definitions[i].x, &e), 0);
        definitions[i].name = i == 0 ? "d0" : i == 1 ? "d1" : i == 2 ? "d2" : i == 3 ? "d3" : "d4";
    }
    definitions[5].name = "d5";
    err = evaluate("d0 + d0 + d0 + d0 + d0 + d0 + d0 + d0 + d0 + d0 + d0", 1, &value, &e);
    ck_assert_int_eq(err, SW_ERR_LIMIT);
    definitions[5] = saved;
    work = 10;
    ck_assert_int_eq(evaluate("1 + 1", 1, &value, &e), SW_ERR_LIMIT);
    ck_assert_msg(strstr(e.text, "too much work"), "%s", e.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("expression");
    TCase *tc = tcase_create("expression");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, values);
    tcase_add_test(tc, errors);
    tcase_add_test(tc, the_smallest_number_is_divided_safely);
    tcase_add_test(tc, what_follows_is_left_for_the_caller);
    tcase_add_test(tc, only_what_depends_on_variables_is_left);
    tcase_add_test(tc, depth_and_length_are_bounded);
    tcase_add_test(tc, definitions_do_not_blow_up);
    suite_add_tcase(suite, tc);
    return test_suite_run(suite);
}
