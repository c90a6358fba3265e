/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/error.h"
#include "common/test_suite.h"

struct file {
    const char *name, *text;
};

static int read_file(void *arg, const char *name, char **text, struct sw_error *e)
{
    const struct file *f = arg;

    for (; f->name; f++)
        if (strcmp(f->name, name) == 0) {
            *text = strdup(f->text);
            return *text ? 0 : SW_ERR_NOMEM;
        }
    return sw_fail(e, SW_ERR_NOT_FOUND, "no file '%s'", name);
}

static int parse(const struct file *files, struct sw_rules **r, struct sw_error *e)
{
    return sw_rules_parse(
        files->name, files->text, strlen(files->text), read_file, (void *)files, r, e);
}

static struct sw_rules *parse_text(const char *text)
{
    const struct file files[] = {{"t", text}, {0}};
    struct sw_rules *r = NULL;
    struct sw_error e = {0};

    ck_assert_msg(!parse(files, &r, &e), "%s", e.text);
    return r;
}

START_TEST(everything_that_a_file_may_say)
{
    struct sw_rules *r =
        parse_text("\xef\xbb\xbf; a comment\n"
                   "[layout] ; another\r\n"
                   "architectures = AForCausalLM\n"
                   "   BForCausalLM ; and another\n"
                   "\n"
                   "[define]\n"
                   "# and one more\n"
                   "inner = get(intermediate_size,\n"
                   "            4 * hidden_size)   ; over two lines\n"
                   "[tensor gate]\n"
                   "for = layer from 0 to layers - 1\n"
                   "      expert from 0 to 7\n"
                   "when = layer > 2\n"
                   "shape = inner, hidden_size\n"
                   "stored =\n"
                   "   m.{layer}.{expert}.gate\n"
                   "   m.{layer}.packed [8, inner, hidden_size] at expert, 0, 0\n"
                   "dtype = F32\n"
                   "trainer = columns\n"
                   "draft = yes\n"
                   "optional = layer > 5\n"
                   "[tensor up]\n"
                   "shape = 3\n"
                   "stored = up\n"
                   "[parameter x.{layer}.w]\n"
                   "engine = vllm\n"
                   "for = layer from 0 to 3\n"
                   "stack = expert from 0 to 7 over ep\n"
                   "part = gate, rows over moe_tp in units of 2 * 3 shared\n"
                   "       gate(layer - 1, expert) or up, columns over tp padded to 64\n"
                   "extra = up\n"
                   "quantise = yes\n"
                   "listed = no\n"
                   "alias = y.{layer}, 1 > 0\n"
                   "[parameter x.{layer}.w]\n"
                   "for = layer from 0 to 3\n"
                   "vllm = z.{layer}.w\n"
                   "part = up\n"
                   "[skip]\n"
                   "tensor = a.{n}.b\n"
                   "tensor = c\n"
                   "[derived]\n"
                   "parameter = d\n");
    const struct sw_rule_tensor *gate = &r->tensors[0];
    const struct sw_rule_parameter *x = &r->parameters[0];

    ck_assert_str_eq(sw_rules_architecture(r, 0), "AForCausalLM");
    ck_assert_str_eq(sw_rules_architecture(r, 1), "BForCausalLM");
    ck_assert_ptr_null(sw_rules_architecture(r, 2));
    ck_assert_uint_eq(r->n_definitions, 1);
    ck_assert_str_eq(r->definitions[0].value.x.text, "get(intermediate_size, 4 * hidden_size)");
    ck_assert_uint_eq(r->n_tensors, 2);
    ck_assert_str_eq(gate->head.at, "t:10");
    ck_assert_uint_eq(gate->head.n_for, 2);
    ck_assert_uint_eq(gate->ndim, 2);
    ck_assert_uint_eq(gate->n_stored, 2);
    ck_assert_uint_eq(gate->stored[0].ndim, 0);
    ck_assert_uint_eq(gate->stored[1].ndim, 3);
    ck_assert_uint_eq(gate->stored[1].origin[2].line, 17);
    ck_assert_int_eq(gate->head.dtype, SW_F32);
    ck_assert_int_eq(gate->trainer, SW_AXIS_COLUMNS);
    ck_assert(gate->head.draft);
    ck_assert_str_eq(gate->optional.x.text, "layer > 5");
    ck_assert_uint_eq(r->n_parameters, 2);
    ck_assert_int_eq(x->engine, SW_ENGINE_VLLM);
    ck_assert(x->stacked && x->quantise && x->unlisted);
    ck_assert_int_eq(x->stack_group, SW_GROUP_EP);
    ck_assert_uint_eq(x->n_parts, 2);
    ck_assert(x->parts[0].shared);
    ck_assert_int_eq(x->parts[0].axis, SW_AXIS_ROWS);
    ck_assert_str_eq(x->parts[0].units.x.text, "2 * 3");
    ck_assert_str_eq(x->parts[0].at, "t:29");
    ck_assert_uint_eq(x->parts[1].n_choices, 2);
    ck_assert_str_eq(x->parts[1].choices[0].index[0].x.text, "layer - 1");
    ck_assert_str_eq(x->parts[1].padded.x.text, "64");
    ck_assert_uint_eq(x->n_extras, 1);
    ck_assert_str_eq(x->alias, "y.{layer}");
    ck_assert_str_eq(r->parameters[1].vllm.text, "z.{layer}.w");
    ck_assert(!r->parameters[1].unlisted);
    ck_assert_uint_eq(r->n_skipped, 2);
    ck_assert_uint_eq(r->n_derived, 1);
    sw_rules_free(r);
    sw_rules_free(NULL);
}
END_TEST

#define T "[tensor a]\nshape = 1\nstored = a\n"

START_TEST(errors_say_where_and_what)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"a = 1\n", "t:1: expected a section before the first key"},
        {"\n[layuot]\n", "t:2: expected [layout], [define]"},
        {"[layout x]\n", "t:1: expected [layout], [define]"},
        {"[tensor]\n", "expected [layout], [define]"},
        {"[layout\n", "t:1: expected one ']'"},
        {"[layout] x\n", "t:1: expected one ']'"},
        {"[layout]\nfoo\n", "t:2: [layout]: expected 'key = value', found 'foo'"},
        {"[layout]\nfoo: 1\n", "t:2: [layout]: expected 'key = value'"},
        {"[layout]\nfoo = 1\n", "t:2: [layout] foo: no key of such a section"},
        {"[layout]\n[layout]\n", "t:2: [layout]: expected this section once, found it in line 1"},
        {"[define]\na = 1\n\na = 2\n", "t:4: [define] a: expected it once, found it in line 2"},
        {"[define]\na b = 1\n", "t:2: [define] a b: expected the end, found 'b'"},
        {"[define]\na = 1 +\n", "t:2: [define] a: expected a number, a name"},
        {"[define]\na = 1 2\n", "t:2: [define] a: expected the end, found '2'"},
        {"[define]\na =\n", "t:2: [define] a: expected a number"},
        {T T, "t:4: [tensor a]: expected this section once, found it in line 1"},
        {"[tensor a-b]\n", "t:1: [tensor a-b]: expected the end, found '-b'"},
        {"[tensor a]\nstored = a\n", "t:1: [tensor a]: expected a key 'shape'"},
        {"[tensor a]\nshape = 1\n", "t:1: [tensor a]: expected a key 'stored'"},
        {"[tensor a]\nshape = 1,2,3,4,5\nstored = a\n", "t:2: [tensor a] shape: expected fewer"},
        {"[tensor a]\nshape = 1\nstored = a.{x}\n",
            "t:3: [tensor a] stored: expected only variables"},
        {"[tensor a]\nfor = x from 0 to 1\nshape = 1\nstored = a\n",
            "t:4: [tensor a] stored: expected every variable"},
        {"[tensor a]\nfor = x from 0\nshape = 1\nstored = a\n",
            "t:2: [tensor a] for: expected 'to'"},
        {"[tensor a]\nfor = x to 1\nshape = 1\nstored = a\n", "expected 'VARIABLE from A to B'"},
        {"[tensor a]\nfor = x from 0 to 1\n   y from 0 to 1\n   z from 0 to 1\n",
            "t:4: [tensor a] for: expected at most two"},
        {"[tensor a]\nfor = x from 0 to 1\n   x from 0 to 1\n", "expected another variable"},
        {"[tensor a]\nfor = expert from 0 to 1\n   x from 0 to 1\n", "the line of `expert` last"},
        {"[define]\nx = 1\n[tensor a]\nfor = x from 0 to 1\n", "the name of a definition too"},
        {"[tensor a]\nshape = 1\nstored = a [1, 2 at 0, 0\n", "expected '] at'"},
        {"[tensor a]\nshape = 1\nstored = a [1, 2] at 0\n", "as many numbers after 'at'"},
        {"[tensor a]\nshape = 1, 1\nstored = a [2] at 0\n", "as many dimensions in []"},
        {"[tensor a]\nshape = 1\nstored = a b\n",
            "t:3: [tensor a] stored: expected '[' or the end"},
        {"[tensor a]\nshape = 1\nstored = a\ndtype = BF17\n",
            "t:4: [tensor a] dtype: expected a type"},
        {"[tensor a]\nshape = 1\nstored = a\ntrainer = no\n", "expected rows, columns or none"},
        {"[tensor a]\nshape = 1\nstored = a\ndraft = 1\n", "expected yes or no, found '1'"},
        {"[tensor a]\nshape = 1\nstored = a\npart = a\n", "t:4: [tensor a] part: no key"},
        {T "[parameter p]\n", "t:4: [parameter p]: expected a key 'part'"},
        {T "[parameter p]\npart = b\n", "t:5: [parameter p] part: expected the name of a [tensor]"},
        {T "[parameter p]\npart = a, rows\n", "expected 'over GROUP', found the end"},
        {T "[parameter p]\npart = a, rows over dp\n", "expected one of tp, attn_tp"},
        {T "[parameter p]\npart = a, rows over etp\n", "found 'etp'"},
        {T "[parameter p]\npart = a, rows over tp in unit of 3\n", "expected 'in units of'"},
        {T "[parameter p]\npart = a, rows over tp shared\n", "'in units of' with 'shared'"},
        {T "[parameter p]\npart = a, rows over tp padded 3\n", "expected 'padded to'"},
        {T "[parameter p]\npart = a, diagonal over tp\n", "'rows over GROUP' or 'columns"},
        {T "[parameter p]\npart = a or a or a\n", "at most one 'or'"},
        {T "[parameter p]\npart = a\nextra = a\n", "expected 'stack' with 'extra'"},
        {T "[parameter p]\npart = a\nengine = trt\n", "expected sglang or vllm"},
        {T "[parameter p]\npart = a\ndraft = yes\n", "begins with 'draft/'"},
        {T "[parameter draft/p]\npart = a\n", "begins with 'draft/'"},
        {T "[parameter p]\npart = a\nvllm = draft/p\n", "t:6: [parameter p] vllm: expected a name"},
        {T "[parameter p]\npart = a\nstack = e from 0 to 3\n", "expected 'over GROUP'"},
        {"[tensor a]\nfor = x from 0 to 1\nshape = 1\nstored = a.{x}\n[parameter p]\npart = a\n",
            "t:6: [parameter p] part: expected a(...) with its variable x"},
        {"[tensor a]\nfor = x from 0 to 1\nshape = 1\nstored = a.{x}\n[parameter p]\npart = a(\n",
            "found the end"},
        {"[skip]\ntensor = a b\n", "t:2: [skip] tensor: expected a name of printable ASCII"},
        {"[skip]\nparameter = a\n", "t:2: [skip] parameter: no key"},
        {"[layout]\ninclude = ../x\n", "t:2: [layout] include: expected the name of a file"},
        {"[layout]\ninclude = .x\n", "expected the name of a file"},
        {"[layout]\ninclude = x\n", "t:2: [layout] include: no file 'x'"},
        {"[layout]\n  ; only a comment\n  [define]\nx\n", "t:4: [define]: expected 'key = value'"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const struct file files[] = {{"t", cases[i].text}, {0}};
        struct sw_rules *r = NULL;
        struct sw_error e = {0};

        ck_assert_msg(parse(files, &r, &e) < 0, "no error: %s", cases[i].text);
        ck_assert_msg(strstr(e.text, cases[i].message), "%s\nnot: %s", e.text, cases[i].message);
        ck_assert_ptr_null(r);
    }
}
END_TEST

START_TEST(an_including_file_replaces_sections_in_their_place)
{
    static const struct file files[] = {
        {"top", "[layout]\ninclude = one\ninclude = two\n"
                "[define]\nb = 20\n"
                "[parameter p]\npart = x\n[parameter p]\npart = x\ndtype = F16\n"
                "[tensor y]\nshape = 2\nstored = y\n[skip]\ntensor = s2\n"},
        {"one", "[layout]\narchitectures = Ignored\ninclude = two\n"
                "[define]\na = 1\nb = 2\n[tensor x]\nshape = b\nstored = x\n"
                "[parameter o]\npart = x\n"
                "[parameter p]\nengine = vllm\npart = x\n[parameter q]\npart = x\n"
                "[parameter p]\npart = x\n[skip]\ntensor = s1\n"},
        {"two", "[layout]\ninclude = two\n[tensor z]\nshape = 1\nstored = z\n"}, {0}};
    static const char *const headers[] = {
        "parameter o", "parameter p", "parameter p", "parameter q"};
    struct sw_rules *r = NULL;
    struct sw_error e = {0};

    ck_assert_msg(!parse(files, &r, &e), "%s", e.text);
    ck_assert_uint_eq(r->n_architectures, 0);
    ck_assert_uint_eq(r->n_parameters, 4);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_str_eq(r->parameters[i].head.header, headers[i]);
    ck_assert_str_eq(r->parameters[1].head.at, "top:6");
    ck_assert_str_eq(r->parameters[2].head.at, "top:8");
    ck_assert_str_eq(r->parameters[3].head.at, "one:15");
    ck_assert_uint_eq(r->n_tensors, 3);
    ck_assert_str_eq(r->tensors[0].name, "z"); /* included first, once */
    ck_assert_str_eq(r->tensors[2].head.at, "top:11");
    ck_assert_uint_eq(r->n_definitions, 2);
    ck_assert_str_eq(r->definitions[1].value.x.text, "20");
    ck_assert_uint_eq(r->n_skipped, 2);
    sw_rules_free(r);
}
END_TEST

START_TEST(an_error_in_an_included_file_names_it)
{
    static const struct file files[] = {
        {"top", "[layout]\ninclude = one\n"}, {"one", "\n[define]\na = (\n"}, {0}};
    struct sw_rules *r;
    struct sw_error e = {0};

    ck_assert_int_eq(parse(files, &r, &e), SW_ERR_INVALID);
    ck_assert_msg(strstr(e.text, "one:3: [define] a: expected"), "%s", e.text);
}
END_TEST

static int endless(void *arg, const char *name, char **text, struct sw_error *e)
{
    unsigned *n = arg;

    (void)name;
    (void)e;
    *text = malloc(64);
    if (!*text)
        return SW_ERR_NOMEM;
    snprintf(*text, 64, "[layout]\ninclude = f%u\ninclude = g%u\n", *n, *n);
    ++*n;
    return 0;
}

START_TEST(inclusion_ends)
{
    static const char text[] = "[layout]\ninclude = a\n";
    struct sw_rules *r;
    struct sw_error e = {0};
    unsigned n = 0;

    ck_assert_int_eq(sw_rules_parse("t", text, strlen(text), endless, &n, &r, &e), SW_ERR_LIMIT);
    ck_assert_msg(strstr(e.text, "inside each other"), "%s", e.text);
    ck_assert_int_eq(sw_rules_parse("t", text, strlen(text), NULL, NULL, &r, &e), SW_ERR_INVALID);
}
END_TEST

/* `n` times `part` behind `before`. */
static char *repeat(const char *before, const char *part, size_t n)
{
    const size_t size = strlen(before) + strlen(part) * n + 1;
    char *text = malloc(size);
    size_t at;

    ck_assert_ptr_nonnull(text);
    at = (size_t)snprintf(text, size, "%s", before);
    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(text + at, size - at, "%s", part);
    return text;
}

START_TEST(size_is_bounded)
{
    static const struct {
        const char *before, *part;
        size_t n;
        const char *message;
    } cases[] = {
        {"[layout]\n", ";\n", 600000, "1048576 bytes"},
        {"[define]\na = 1", " + 1", 60, "at most 197 bytes"},
        {"[define]\na = 1\n", " + 1\n", 200000, "less than 4096 bytes"},
        {"", "[parameter p]\n", 3000, "2048 sections"},
        {"[skip]\n", "tensor = a\n", 5000, "4096 values"},
        {"[", "a", 3000, "512 bytes"},
        {"[define]\n", "a", 60, "'key = value'"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char *text = repeat(cases[i].before, cases[i].part, cases[i].n);
        struct sw_rules *r;
        struct sw_error e = {0};

        ck_assert_int_lt(sw_rules_parse("t", text, strlen(text), NULL, NULL, &r, &e), 0);
        ck_assert_msg(strstr(e.text, cases[i].message), "%s", e.text);
        free(text);
    }
}
END_TEST

START_TEST(bytes_that_are_no_text)
{
    static const char nul[] = "[layout]\nincl\0ude = x\n", strange[] = "[parameter a\x1b[31m]\n";
    struct sw_rules *r;
    struct sw_error e = {0};

    ck_assert_int_lt(sw_rules_parse("t", nul, sizeof(nul) - 1, NULL, NULL, &r, &e), 0);
    ck_assert_msg(strstr(e.text, "t:2: [layout]: expected text without NUL"), "%s", e.text);
    ck_assert_int_lt(sw_rules_parse("t", strange, strlen(strange), NULL, NULL, &r, &e), 0);
    ck_assert_msg(!strchr(e.text, '\x1b'), "%s", e.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rules");
    TCase *tc = tcase_create("rules");

    tcase_add_test(tc, everything_that_a_file_may_say);
    tcase_add_test(tc, errors_say_where_and_what);
    tcase_add_test(tc, an_including_file_replaces_sections_in_their_place);
    tcase_add_test(tc, an_error_in_an_included_file_names_it);
    tcase_add_test(tc, inclusion_ends);
    tcase_add_test(tc, size_is_bounded);
    tcase_add_test(tc, bytes_that_are_no_text);
    suite_add_tcase(suite, tc);
    return test_suite_run(suite);
}
