/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/expression.h"

#include <string.h>
#include "common/error.h"
#include "common/limits.h"
#include "common/text.h"
#include "trainerd/plan/expression_node.h"

#define DEPTH_MAX 64 /* of nested parentheses and functions */

struct parsing {
    struct sw_arena *arena;
    const char *at;
    uint32_t n, depth;
    struct sw_expression_node nodes[SW_EXPRESSION_NODES];
    struct sw_error *e;
};

static int parse_or(struct parsing *p, uint32_t *node);

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool begins_word(char c)
{
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static size_t word_length(const char *at, bool wide)
{
    size_t n = 0;

    while (begins_word(at[n]) || is_digit(at[n]) || at[n] == '.' || (wide && at[n] == '-'))
        n++;
    return n;
}

static void skip_space(struct parsing *p)
{
    while (*p->at == ' ' || *p->at == '\t')
        p->at++;
}

static int expected(struct parsing *p, const char *what)
{
    char shown[64], found[24];

    if (!*p->at)
        return sw_fail(p->e, SW_ERR_INVALID, "expected %s, found the end", what);
    strncpy(found, p->at, sizeof(found) - 1);
    found[sizeof(found) - 1] = '\0';
    return sw_fail(p->e, SW_ERR_INVALID, "expected %s, found '%s'", what,
        sw_text_escape(shown, sizeof(shown), found));
}

static int make(struct parsing *p, enum sw_expression_op op, uint32_t a, uint32_t b, uint32_t *node)
{
    if (p->n == SW_EXPRESSION_NODES)
        return sw_fail(
            p->e, SW_ERR_LIMIT, "expected an expression of at most %d terms", SW_EXPRESSION_NODES);
    p->nodes[p->n] = (struct sw_expression_node){.op = op, .a = a, .b = b};
    *node = p->n++;
    return 0;
}

/* ---- what an expression begins with ---- */

/* Takes the word if it is the next one, whole. */
static bool take_word(struct parsing *p, const char *word)
{
    const size_t n = strlen(word);

    if (word_length(p->at, false) != n || strncmp(p->at, word, n) != 0)
        return false;
    p->at += n;
    skip_space(p);
    return true;
}

static bool take(struct parsing *p, const char *sign)
{
    const size_t n = strlen(sign);

    if (strncmp(p->at, sign, n) != 0)
        return false;
    p->at += n;
    skip_space(p);
    return true;
}

static int parse_number(struct parsing *p, uint32_t *node)
{
    const char *from = p->at;
    int64_t value = 0;

    for (; is_digit(*p->at); p->at++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *p->at - '0', &value)) {
            p->at = from;
            return expected(p, "a number below 2^63");
        }
    }
    if (begins_word(*p->at) || *p->at == '.') {
        p->at = from;
        return expected(p, "a whole number");
    }
    skip_space(p);
    if (make(p, SW_OP_CONSTANT, 0, 0, node))
        return SW_ERR_LIMIT;
    p->nodes[*node].value = value;
    return 0;
}

static int take_text(struct parsing *p, size_t n, const char **out)
{
    *out = sw_arena_strndup(p->arena, p->at, n);
    if (!*out)
        return sw_fail(p->e, SW_ERR_NOMEM, "no memory for an expression");
    p->at += n;
    skip_space(p);
    return 0;
}

/* A key of config.json, or a word to compare with. */
static int parse_key(struct parsing *p, bool word, const char **out)
{
    const size_t n = word_length(p->at, word);

    if (n == 0 || n > SW_LABEL_MAX || (!word && !begins_word(*p->at)))
        return expected(p, word ? "a word" : "a key of config.json");
    return take_text(p, n, out);
}

static int need(struct parsing *p, const char *sign, const char *what)
{
    return take(p, sign) ? 0 : expected(p, what);
}

static const struct function {
    const char *name;
    enum sw_expression_op op;
    bool key;           /* the first argument is a key */
    uint32_t arguments; /* expressions */
} functions[] = {
    {"get", SW_OP_GET, true, 1},
    {"has", SW_OP_HAS, true, 0},
    {"is", SW_OP_IS, true, 0},
    {"holds", SW_OP_HOLDS, true, 1},
    {"min", SW_OP_MIN, false, 2},
    {"max", SW_OP_MAX, false, 2},
    {"ceil", SW_OP_CEIL, false, 2},
    {"up", SW_OP_UP, false, 2},
    {"if", SW_OP_IF, false, 3},
};

static int parse_arguments(struct parsing *p, const struct function *f, uint32_t *node)
{
    struct sw_expression_node out = {.op = f->op};
    uint32_t arguments[3] = {0};
    int err;

    if (f->key && (err = parse_key(p, false, &out.text)))
        return err;
    if (f->op == SW_OP_IS && ((err = need(p, ",", "','")) || (err = parse_key(p, true, &out.word))))
        return err;
    for (uint32_t i = 0; i < f->arguments; i++) {
        if ((f->key || i > 0) && (err = need(p, ",", "','")))
            return err;
        if ((err = parse_or(p, &arguments[i])))
            return err;
    }
    err = need(p, ")", "')'");
    if (err || (err = make(p, f->op, arguments[0], arguments[1], node)))
        return err;
    out.a = arguments[0];
    out.b = arguments[1];
    out.c = arguments[2];
    p->nodes[*node] = out;
    return 0;
}

static bool reserved(const char *word, size_t n)
{
    static const char *const words[] = {"and", "or", "not"};

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (strlen(words[i]) == n && strncmp(words[i], word, n) == 0)
            return true;
    return false;
}

static int parse_word(struct parsing *p, uint32_t *node)
{
    const size_t n = word_length(p->at, false);
    const char *after = p->at + n;
    int err;

    if (reserved(p->at, n) || n > SW_LABEL_MAX)
        return expected(p, "a number, a name, a function or '('");
    while (*after == ' ' || *after == '\t')
        after++;
    if (*after == '(') {
        for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
            if (!take_word(p, functions[i].name))
                continue;
            (void)take(p, "(");
            return parse_arguments(p, &functions[i], node);
        }
        return expected(p, "get, has, is, holds, min, max, ceil, up or if before '('");
    }
    err = make(p, SW_OP_NAME, 0, 0, node);
    return err ? err : take_text(p, n, &p->nodes[*node].text);
}

static int parse_primary(struct parsing *p, uint32_t *node)
{
    int err;

    if (is_digit(*p->at))
        return parse_number(p, node);
    if (begins_word(*p->at))
        return parse_word(p, node);
    if (!take(p, "("))
        return expected(p, "a number, a name, a function or '('");
    err = parse_or(p, node);
    return err ? err : need(p, ")", "')'");
}

/* ---- operators, the ones that bind most closely first ---- */

static int parse_unary(struct parsing *p, uint32_t *node)
{
    uint32_t minus = 0;
    int err;

    while (take(p, "-"))
        minus++;
    err = parse_primary(p, node);
    return err || minus % 2 == 0 ? err : make(p, SW_OP_NEGATE, *node, 0, node);
}

static int parse_product(struct parsing *p, uint32_t *node)
{
    int err = parse_unary(p, node);

    while (!err) {
        const char sign = *p->at;
        uint32_t right = 0;

        if (!take(p, "*") && !take(p, "/") && !take(p, "%"))
            break;
        err = parse_unary(p, &right);
        if (!err)
            err = make(p,
                sign == '*'   ? SW_OP_MULTIPLY
                : sign == '/' ? SW_OP_DIVIDE
                              : SW_OP_MODULO,
                *node, right, node);
    }
    return err;
}

static int parse_sum(struct parsing *p, uint32_t *node)
{
    int err = parse_product(p, node);

    while (!err) {
        const char sign = *p->at;
        uint32_t right = 0;

        if (!take(p, "+") && !take(p, "-"))
            break;
        err = parse_product(p, &right);
        if (!err)
            err = make(p, sign == '+' ? SW_OP_ADD : SW_OP_SUBTRACT, *node, right, node);
    }
    return err;
}

static bool take_comparison(struct parsing *p, enum sw_expression_op *op)
{
    static const struct {
        const char *sign;
        enum sw_expression_op op;
    } signs[] = {{"<=", SW_OP_AT_MOST}, {">=", SW_OP_AT_LEAST}, {"==", SW_OP_EQUAL},
        {"!=", SW_OP_DIFFERENT}, {"<", SW_OP_LESS}, {">", SW_OP_GREATER}};

    for (size_t i = 0; i < sizeof(signs) / sizeof(*signs); i++) {
        *op = signs[i].op;
        if (take(p, signs[i].sign))
            return true;
    }
    return false;
}

static int parse_comparison(struct parsing *p, uint32_t *node)
{
    enum sw_expression_op op;
    uint32_t right = 0;
    int err = parse_sum(p, node);

    if (err || !take_comparison(p, &op))
        return err;
    err = parse_sum(p, &right);
    if (err || (err = make(p, op, *node, right, node)))
        return err;
    return take_comparison(p, &op) ? expected(p, "'and' between two comparisons") : 0;
}

static int parse_not(struct parsing *p, uint32_t *node)
{
    uint32_t nots = 0;
    int err;

    while (take_word(p, "not"))
        nots++;
    err = parse_comparison(p, node);
    for (uint32_t i = 0; !err && i < (nots ? 2 - nots % 2 : 0); i++)
        err = make(p, SW_OP_NOT, *node, 0, node);
    return err;
}

static int parse_and(struct parsing *p, uint32_t *node)
{
    int err = parse_not(p, node);

    while (!err && take_word(p, "and")) {
        uint32_t right = 0;

        err = parse_not(p, &right);
        if (!err)
            err = make(p, SW_OP_AND, *node, right, node);
    }
    return err;
}

static int parse_or(struct parsing *p, uint32_t *node)
{
    int err;

    if (++p->depth > DEPTH_MAX)
        return expected(p, "at most 64 levels of parentheses, not one more");
    err = parse_and(p, node);
    while (!err && take_word(p, "or")) {
        uint32_t right = 0;

        err = parse_and(p, &right);
        if (!err)
            err = make(p, SW_OP_OR, *node, right, node);
    }
    p->depth--;
    return err;
}

int sw_expression_parse(
    struct sw_arena *a, const char **text, struct sw_expression *out, struct sw_error *e)
{
    struct parsing p = {.arena = a, .at = *text, .e = e};
    struct sw_expression_node *nodes;
    const char *end;
    uint32_t root = 0;
    int err;

    skip_space(&p);
    *text = p.at;
    err = parse_or(&p, &root);
    if (err)
        return err;
    for (end = p.at; end > *text && (end[-1] == ' ' || end[-1] == '\t');)
        end--;
    nodes = sw_arena_array(a, p.n, sizeof(*nodes));
    *out = (struct sw_expression){.root = root,
        .n = p.n,
        .nodes = nodes,
        .text = sw_arena_strndup(a, *text, (size_t)(end - *text))};
    if (!nodes || !out->text)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for an expression");
    memcpy(nodes, p.nodes, p.n * sizeof(*nodes));
    *text = p.at;
    return 0;
}
