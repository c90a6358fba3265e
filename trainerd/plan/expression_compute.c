/* SPDX-License-Identifier: Apache-2.0 */
/* Computing with numbers that are known. */
#include <stdlib.h>

#include "common/error.h"
#include "trainerd/plan/expression_node.h"

static int64_t floor_divide(int64_t a, int64_t b)
{
    const int64_t q = a / b;

    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

/* NULL = done; else what is wrong. */
static const char *divide(enum sw_expression_op op, int64_t a, int64_t b, int64_t *out)
{
    int64_t q;

    if (b == 0)
        return "a division by zero";
    if (b == -1) { /* INT64_MIN / -1 traps */
        *out = 0;
        return op == SW_OP_DIVIDE && __builtin_sub_overflow((int64_t)0, a, out)
                   ? "a result above 2^63"
                   : NULL;
    }
    q = floor_divide(a, b);
    *out = op == SW_OP_DIVIDE ? q : a - q * b;
    return NULL;
}

static const char *round_up(enum sw_expression_op op, int64_t a, int64_t b, int64_t *out)
{
    int64_t q;

    if (b <= 0)
        return "rounding up to no positive number";
    q = floor_divide(a, b) + (a % b != 0);
    if (op == SW_OP_CEIL) {
        *out = q;
        return NULL;
    }
    return __builtin_mul_overflow(q, b, out) ? "a result above 2^63" : NULL;
}

const char *sw_expression_compute(enum sw_expression_op op, int64_t a, int64_t b, int64_t *out)
{
    bool over = false;

    switch (op) {
    case SW_OP_NEGATE:
        over = __builtin_sub_overflow((int64_t)0, a, out);
        break;
    case SW_OP_NOT:
        *out = !a;
        break;
    case SW_OP_ADD:
        over = __builtin_add_overflow(a, b, out);
        break;
    case SW_OP_SUBTRACT:
        over = __builtin_sub_overflow(a, b, out);
        break;
    case SW_OP_MULTIPLY:
        over = __builtin_mul_overflow(a, b, out);
        break;
    case SW_OP_DIVIDE:
    case SW_OP_MODULO:
        return divide(op, a, b, out);
    case SW_OP_LESS:
        *out = a < b;
        break;
    case SW_OP_AT_MOST:
        *out = a <= b;
        break;
    case SW_OP_GREATER:
        *out = a > b;
        break;
    case SW_OP_AT_LEAST:
        *out = a >= b;
        break;
    case SW_OP_EQUAL:
        *out = a == b;
        break;
    case SW_OP_DIFFERENT:
        *out = a != b;
        break;
    case SW_OP_MIN:
        *out = a < b ? a : b;
        break;
    case SW_OP_MAX:
        *out = a > b ? a : b;
        break;
    case SW_OP_CEIL:
    case SW_OP_UP:
        return round_up(op, a, b, out);
    default:
        return "an operator that is none";
    }
    return over ? "a result beyond 2^63" : NULL;
}

bool sw_expression_unary(enum sw_expression_op op)
{
    return op == SW_OP_NEGATE || op == SW_OP_NOT;
}

static int compare_numbers(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

bool sw_expression_holds(const struct sw_expression_node *node, int64_t value)
{
    return node->value > 0 &&
           bsearch(&value, node->list, (size_t)node->value, sizeof(value), compare_numbers);
}

/* ---- evaluating ---- */

static int evaluate(const struct sw_expression_node *nodes, uint32_t at, const int64_t *variables,
    int64_t *out, struct sw_error *e)
{
    const struct sw_expression_node *node = &nodes[at];
    const char *what;
    int64_t a, b;

    if (node->op == SW_OP_CONSTANT || node->op == SW_OP_VARIABLE) {
        *out = node->op == SW_OP_CONSTANT ? node->value : variables[node->value];
        return 0;
    }
    if (node->op == SW_OP_WRONG)
        return sw_fail(e, SW_ERR_INVALID, "%s", node->text ? node->text : "no memory");
    if (evaluate(nodes, node->a, variables, &a, e))
        return SW_ERR_INVALID;
    if (node->op == SW_OP_IF)
        return evaluate(nodes, a ? node->b : node->c, variables, out, e);
    if (node->op == SW_OP_HOLDS) {
        *out = sw_expression_holds(node, a);
        return 0;
    }
    if ((node->op == SW_OP_AND && !a) || (node->op == SW_OP_OR && a)) {
        *out = node->op == SW_OP_OR;
        return 0;
    }
    b = 0;
    if (!sw_expression_unary(node->op) && evaluate(nodes, node->b, variables, &b, e))
        return SW_ERR_INVALID;
    if (node->op == SW_OP_AND || node->op == SW_OP_OR) {
        *out = b != 0;
        return 0;
    }
    what = sw_expression_compute(node->op, a, b, out);
    return what ? sw_fail(e, SW_ERR_INVALID, "expected a number, found %s", what) : 0;
}

int sw_expression_evaluate(
    const struct sw_expression *x, const int64_t *variables, int64_t *value, struct sw_error *e)
{
    if (x->constant) {
        *value = x->value;
        return 0;
    }
    return evaluate(x->nodes, x->root, variables, value, e);
}

bool sw_expression_uses(const struct sw_expression *x, uint32_t variable)
{
    for (uint32_t i = 0; i < x->n; i++)
        if (x->nodes[i].op == SW_OP_VARIABLE && x->nodes[i].value == variable)
            return true;
    return false;
}
