/* SPDX-License-Identifier: Apache-2.0 */
/* Binding to a config.json. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "trainerd/plan/expression_node.h"

#define BIND_DEPTH_MAX 600 /* nodes below each other, definitions included */
#define BIND_WORK 50       /* of binding a node, in evaluations of one */

/* The definitions that are being worked out, the innermost first. */
struct defining {
    const char *name;
    const struct defining *outer;
};

struct binding {
    struct sw_arena *arena;
    const struct sw_expression_scope *scope;
    uint32_t n, depth;
    struct sw_expression_node nodes[SW_EXPRESSION_NODES];
    struct sw_error *e;
};

static int bind(struct binding *b, const struct sw_expression *x, uint32_t from,
    const struct defining *in, uint32_t *node);

/* ---- binding ---- */

static int add(struct binding *b, struct sw_expression_node node, uint32_t *out)
{
    if (b->n == SW_EXPRESSION_NODES)
        return sw_fail(b->e, SW_ERR_LIMIT,
            "expected at most %d terms, with the definitions that it uses", SW_EXPRESSION_NODES);
    b->nodes[b->n] = node;
    *out = b->n++;
    return 0;
}

static int constant(struct binding *b, int64_t value, uint32_t *out)
{
    return add(b, (struct sw_expression_node){.op = SW_OP_CONSTANT, .value = value}, out);
}

static bool is_constant(const struct binding *b, uint32_t node)
{
    return b->nodes[node].op == SW_OP_CONSTANT;
}

static int wrong(
    struct binding *b, const char *before, const char *which, const char *after, uint32_t *out)
{
    char text[200];

    snprintf(text, sizeof(text), "expected %s%s%s", before, which, after);
    return add(b,
        (struct sw_expression_node){.op = SW_OP_WRONG, .text = sw_arena_strdup(b->arena, text)},
        out);
}

static int bind_key(struct binding *b, const char *key, uint32_t *out)
{
    int64_t value = 0;

    switch (sw_config_get(b->scope->config, key, &value)) {
    case SW_CONFIG_NULL:
    case SW_CONFIG_NUMBER:
        return constant(b, value, out);
    case SW_CONFIG_OTHER:
        return wrong(b, "a whole number in config.json's '", key, "', found something else", out);
    case SW_CONFIG_MISSING:
        break;
    }
    return wrong(
        b, "'", key, "' to be a definition, a variable or a key of config.json, found none", out);
}

static int bind_name(struct binding *b, const char *name, const struct defining *in, uint32_t *out)
{
    const struct sw_expression_scope *scope = b->scope;
    const struct defining self = {.name = name, .outer = in};
    const struct sw_expression *x;

    /* A definition's own name in it is config.json's key. */
    x = in && strcmp(in->name, name) == 0 ? NULL : scope->define(scope->arg, name);
    for (const struct defining *d = in; x && d; d = d->outer)
        if (strcmp(d->name, name) == 0)
            return sw_fail(b->e, SW_ERR_INVALID,
                "expected a definition of '%s' without '%s' in it, found a circle", name, name);
    if (x)
        return bind(b, x, x->root, &self, out);
    for (uint32_t i = 0; i < scope->n_variables; i++)
        if (strcmp(scope->variables[i], name) == 0)
            return add(b, (struct sw_expression_node){.op = SW_OP_VARIABLE, .value = i}, out);
    return bind_key(b, name, out);
}

static int bind_get(struct binding *b, const struct sw_expression *x,
    const struct sw_expression_node *from, const struct defining *in, uint32_t *out)
{
    int64_t value;

    switch (sw_config_get(b->scope->config, from->text, &value)) {
    case SW_CONFIG_MISSING:
    case SW_CONFIG_NULL:
        return bind(b, x, from->a, in, out);
    case SW_CONFIG_NUMBER:
    case SW_CONFIG_OTHER:
        break;
    }
    return bind_key(b, from->text, out);
}

static int compare_numbers(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static int bind_holds(struct binding *b, const struct sw_expression *x,
    const struct sw_expression_node *from, const struct defining *in, uint32_t *out)
{
    const size_t n = sw_config_list(b->scope->config, from->text, NULL, 0);
    struct sw_expression_node node = {.op = SW_OP_HOLDS, .value = (int64_t)n};
    int64_t *list;
    int err = bind(b, x, from->a, in, &node.a);

    if (err)
        return err;
    if (n * BIND_WORK >= *b->scope->work)
        return sw_fail(b->e, SW_ERR_LIMIT, "the rules are too much work");
    *b->scope->work -= n * BIND_WORK;
    list = sw_arena_array(b->arena, n, sizeof(*list));
    if (!list)
        return sw_fail(b->e, SW_ERR_NOMEM, "no memory for a list of config.json");
    (void)sw_config_list(b->scope->config, from->text, list, n);
    qsort(list, n, sizeof(*list), compare_numbers);
    node.list = list;
    if (is_constant(b, node.a))
        return constant(b, sw_expression_holds(&node, b->nodes[node.a].value), out);
    if (b->nodes[node.a].op == SW_OP_WRONG) {
        *out = node.a;
        return 0;
    }
    return add(b, node, out);
}

/* `if`: only the branch that counts is worked out when that is known. */
static int bind_if(struct binding *b, const struct sw_expression *x,
    const struct sw_expression_node *from, const struct defining *in, uint32_t *out)
{
    struct sw_expression_node node = {.op = SW_OP_IF};
    int err = bind(b, x, from->a, in, &node.a);

    if (err)
        return err;
    if (is_constant(b, node.a))
        return bind(b, x, b->nodes[node.a].value ? from->b : from->c, in, out);
    if (b->nodes[node.a].op == SW_OP_WRONG) {
        *out = node.a;
        return 0;
    }
    if ((err = bind(b, x, from->b, in, &node.b)) || (err = bind(b, x, from->c, in, &node.c)))
        return err;
    return add(b, node, out);
}

static int bind_logic(struct binding *b, const struct sw_expression *x,
    const struct sw_expression_node *from, const struct defining *in, uint32_t *out)
{
    struct sw_expression_node node = {.op = from->op};
    int err = bind(b, x, from->a, in, &node.a);

    if (err)
        return err;
    if (b->nodes[node.a].op == SW_OP_WRONG) {
        *out = node.a;
        return 0;
    }
    if (is_constant(b, node.a) && (b->nodes[node.a].value != 0) == (from->op == SW_OP_OR))
        return constant(b, from->op == SW_OP_OR, out);
    err = bind(b, x, from->b, in, &node.b);
    if (err || !is_constant(b, node.a))
        return err ? err : add(b, node, out);
    if (is_constant(b, node.b))
        return constant(b, b->nodes[node.b].value != 0, out);
    if (b->nodes[node.b].op == SW_OP_WRONG) {
        *out = node.b;
        return 0;
    }
    return add(b, node, out);
}

static int bind_operator(struct binding *b, const struct sw_expression *x,
    const struct sw_expression_node *from, const struct defining *in, uint32_t *out)
{
    struct sw_expression_node node = {.op = from->op};
    const char *what;
    int64_t value;
    int err = bind(b, x, from->a, in, &node.a);

    node.b = node.a;
    if (!err && !sw_expression_unary(from->op))
        err = bind(b, x, from->b, in, &node.b);
    if (err)
        return err;
    if (b->nodes[node.a].op == SW_OP_WRONG || b->nodes[node.b].op == SW_OP_WRONG) {
        *out = b->nodes[node.a].op == SW_OP_WRONG ? node.a : node.b;
        return 0;
    }
    if (!is_constant(b, node.a) || !is_constant(b, node.b))
        return add(b, node, out);
    what = sw_expression_compute(from->op, b->nodes[node.a].value, b->nodes[node.b].value, &value);
    return what ? wrong(b, "a number, found ", what, "", out) : constant(b, value, out);
}

static int bind_node(struct binding *b, const struct sw_expression *x,
    const struct sw_expression_node *from, const struct defining *in, uint32_t *out)
{
    int64_t value;

    switch (from->op) {
    case SW_OP_CONSTANT:
        return constant(b, from->value, out);
    case SW_OP_NAME:
        return bind_name(b, from->text, in, out);
    case SW_OP_GET:
        return bind_get(b, x, from, in, out);
    case SW_OP_HAS:
        return constant(
            b, sw_config_get(b->scope->config, from->text, &value) >= SW_CONFIG_NUMBER, out);
    case SW_OP_IS:
        return constant(b, sw_config_is(b->scope->config, from->text, from->word), out);
    case SW_OP_HOLDS:
        return bind_holds(b, x, from, in, out);
    case SW_OP_IF:
        return bind_if(b, x, from, in, out);
    case SW_OP_AND:
    case SW_OP_OR:
        return bind_logic(b, x, from, in, out);
    default:
        return bind_operator(b, x, from, in, out);
    }
}

static int bind(struct binding *b, const struct sw_expression *x, uint32_t from,
    const struct defining *in, uint32_t *node)
{
    const uint32_t start = b->n;
    int err;

    if (*b->scope->work < BIND_WORK)
        return sw_fail(b->e, SW_ERR_LIMIT, "the rules are too much work");
    *b->scope->work -= BIND_WORK;
    if (++b->depth > BIND_DEPTH_MAX)
        return sw_fail(b->e, SW_ERR_LIMIT, "expected definitions that are less nested");
    err = bind_node(b, x, &x->nodes[from], in, node);
    b->depth--;
    if (!err && is_constant(b, *node)) { /* what it was made of is not needed any more */
        b->nodes[start] = b->nodes[*node];
        b->n = start + 1;
        *node = start;
    }
    return err;
}

int sw_expression_bind(struct sw_arena *a, const struct sw_expression *x,
    const struct sw_expression_scope *scope, struct sw_expression *out, struct sw_error *e)
{
    struct binding b = {.arena = a, .scope = scope, .e = e};
    struct sw_expression_node *nodes;
    uint32_t root;
    int err = bind(&b, x, x->root, NULL, &root);

    if (err)
        return err;
    if (b.nodes[root].op == SW_OP_WRONG)
        return sw_fail(
            e, SW_ERR_INVALID, "%s", b.nodes[root].text ? b.nodes[root].text : "no memory");
    *out = (struct sw_expression){.text = x->text};
    if (is_constant(&b, root)) {
        out->constant = true;
        out->value = b.nodes[root].value;
    }
    nodes = sw_arena_array(a, b.n, sizeof(*nodes));
    if (!nodes)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for an expression");
    memcpy(nodes, b.nodes, b.n * sizeof(*nodes));
    out->nodes = nodes;
    out->n = b.n;
    out->root = root;
    return 0;
}
