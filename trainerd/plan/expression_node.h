/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of an expression. Private to expression*.c. */
#ifndef SW_TRAINERD_PLAN_EXPRESSION_NODE_H
#define SW_TRAINERD_PLAN_EXPRESSION_NODE_H

#include "trainerd/plan/expression.h"

#define SW_EXPRESSION_NODES 512 /* of one expression; this also bounds its depth */

enum sw_expression_op {
    SW_OP_CONSTANT,
    SW_OP_VARIABLE, /* value: its index */
    SW_OP_WRONG,    /* text: what is wrong; an error when it is evaluated */
    /* before binding only */
    SW_OP_NAME,
    SW_OP_GET,
    SW_OP_HAS,
    SW_OP_IS,
    SW_OP_HOLDS, /* bound: `list` has `value` numbers, sorted */
    /* one or two operands */
    SW_OP_NEGATE,
    SW_OP_NOT,
    SW_OP_ADD,
    SW_OP_SUBTRACT,
    SW_OP_MULTIPLY,
    SW_OP_DIVIDE,
    SW_OP_MODULO,
    SW_OP_LESS,
    SW_OP_AT_MOST,
    SW_OP_GREATER,
    SW_OP_AT_LEAST,
    SW_OP_EQUAL,
    SW_OP_DIFFERENT,
    SW_OP_MIN,
    SW_OP_MAX,
    SW_OP_CEIL,
    SW_OP_UP,
    /* the second only if it matters */
    SW_OP_AND,
    SW_OP_OR,
    SW_OP_IF, /* a ? b : c */
};

struct sw_expression_node {
    enum sw_expression_op op;
    uint32_t a, b, c; /* operands: indexes of nodes */
    int64_t value;
    const char *text, *word;
    const int64_t *list;
};

bool sw_expression_unary(enum sw_expression_op op);

/* One operation on numbers. Returns what is wrong, or NULL. */
const char *sw_expression_compute(enum sw_expression_op op, int64_t a, int64_t b, int64_t *out);

/* Whether the list of a bound HOLDS has the number. */
bool sw_expression_holds(const struct sw_expression_node *node, int64_t value);

#endif
