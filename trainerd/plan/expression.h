/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expressions over whole numbers (docs/layouts.md, "[define]"). Parsed once into a small tree;
 * bound once to a config.json, which leaves constants and variables; evaluated often.
 */
#ifndef SW_TRAINERD_PLAN_EXPRESSION_H
#define SW_TRAINERD_PLAN_EXPRESSION_H

#include <stdbool.h>
#include <stdint.h>

#include <shardwire/error.h>
#include "common/arena.h"
#include "trainerd/plan/config.h"

struct sw_expression_node;

struct sw_expression { /* its nodes lie in the arena */
    uint32_t root, n;
    const struct sw_expression_node *nodes; /* NULL = none was given */
    const char *text;                       /* as written, for messages */
    bool constant;                          /* once bound: `value` is all of it */
    int64_t value;
};

/*
 * Parses as much of **text as is an expression and moves *text behind it and the white space that
 * follows. The error says "expected ..., found ...".
 */
int sw_expression_parse(
    struct sw_arena *a, const char **text, struct sw_expression *out, struct sw_error *e);

struct sw_expression_scope {
    const struct sw_config *config;
    const char *const *variables; /* names; values come with each evaluation, in this order */
    uint32_t n_variables;
    /* The definition of a name; NULL = there is none. */
    const struct sw_expression *(*define)(void *arg, const char *name);
    void *arg;
    uint64_t *work; /* steps that are left, for all of a model */
};

/*
 * Works out everything that does not depend on variables. What is wrong is an error only where it
 * is evaluated: here for an expression without variables, else by sw_expression_evaluate.
 */
int sw_expression_bind(struct sw_arena *a, const struct sw_expression *x,
    const struct sw_expression_scope *scope, struct sw_expression *out, struct sw_error *e);

/* Of a bound expression. SW_ERR_INVALID says what can't be computed. */
int sw_expression_evaluate(
    const struct sw_expression *x, const int64_t *variables, int64_t *value, struct sw_error *e);

/* Whether a bound expression depends on this variable. */
bool sw_expression_uses(const struct sw_expression *x, uint32_t variable);

#endif
