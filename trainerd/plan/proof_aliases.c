/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/proof_aliases.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

struct digest { /* a rank's, of its box of a source */
    const struct sw_box *box;
    uint32_t set;
};

struct check { /* what is given, and each rank's checks by source */
    const struct sw_proof_names *names;
    const struct sw_plan_rank *ranks;
    uint32_t n_ranks;
    const struct sw_load_plan *loads;
    struct sw_alias_check **checks;
    struct digest *digests; /* of the pair at hand */
};

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory to prove the plan");
}

int sw_proof_pairs_add(struct sw_proof_pairs *p, uint32_t a, uint32_t b,
    const struct sw_plan_target *target, const struct sw_parameter *parameter, struct sw_error *e)
{
    if (a == b || a == SW_PROOF_NONE || b == SW_PROOF_NONE)
        return 0;
    if (p->n == p->size) {
        const size_t size = p->size ? p->size * 2 : 16;
        struct sw_proof_pair *more = realloc(p->items, size * sizeof(*more));

        if (!more)
            return no_memory(e);
        p->items = more;
        p->size = size;
    }
    p->items[p->n++] = (struct sw_proof_pair){a < b ? a : b, a < b ? b : a, target, parameter};
    return 0;
}

void sw_proof_pairs_free(struct sw_proof_pairs *p)
{
    free(p->items);
    *p = (struct sw_proof_pairs){0};
}

static int pair_compare(const void *a, const void *b)
{
    const struct sw_proof_pair *x = a, *y = b;

    if (x->a != y->a)
        return x->a < y->a ? -1 : 1;
    return x->b < y->b ? -1 : x->b > y->b;
}

static int source_compare(const void *a, const void *b)
{
    const struct sw_alias_check *x = a, *y = b;

    return x->source < y->source ? -1 : x->source > y->source;
}

static int box_compare(const struct sw_box *a, const struct sw_box *b)
{
    if (a->ndim != b->ndim)
        return a->ndim < b->ndim ? -1 : 1;
    for (uint32_t d = 0; d < a->ndim; d++) {
        if (a->lo[d] != b->lo[d])
            return a->lo[d] < b->lo[d] ? -1 : 1;
        if (a->len[d] != b->len[d])
            return a->len[d] < b->len[d] ? -1 : 1;
    }
    return 0;
}

static int digest_compare(const void *a, const void *b)
{
    return box_compare(((const struct digest *)a)->box, ((const struct digest *)b)->box);
}

static int set_compare(const void *a, const void *b)
{
    const struct digest *x = a, *y = b;

    if (x->set != y->set)
        return x->set < y->set ? -1 : 1;
    return box_compare(x->box, y->box);
}

static int not_compared(const struct sw_proof_pair *p, struct sw_error *e)
{
    return sw_fail(e, SW_ERR_PLAN,
        "the plan is wrong (a defect, please report it): engine %s rank %u, parameter %s: its "
        "aliases' sources are not compared",
        p->target->engine, p->target->engine_rank, p->parameter->name);
}

/* The digests of one source of a pair; -1 when some rank that holds it makes none. */
static int add_digests(const struct check *c, uint32_t name, size_t *n)
{
    for (uint32_t r = 0; r < c->n_ranks; r++) {
        const uint32_t tensor = sw_proof_tensor(c->names, c->ranks, r, name);
        const struct sw_alias_check key = {.source = tensor};
        const struct sw_alias_check *found;

        if (tensor == SW_PROOF_NONE)
            continue;
        found = c->loads[r].n_checks
                    ? bsearch(&key, c->checks[r], c->loads[r].n_checks, sizeof(key), source_compare)
                    : NULL;
        if (!found)
            return -1;
        c->digests[(*n)++] =
            (struct digest){&c->ranks[r].boxes[c->ranks[r].list->group[tensor]], found->set};
    }
    return 0;
}

static int check_pair(const struct check *c, const struct sw_proof_pair *p, struct sw_error *e)
{
    size_t n = 0;

    if (add_digests(c, p->a, &n) || add_digests(c, p->b, &n))
        return not_compared(p, e);
    qsort(c->digests, n, sizeof(*c->digests), digest_compare);
    for (size_t i = 1; i < n; i++)
        if (!digest_compare(&c->digests[i - 1], &c->digests[i]) &&
            c->digests[i - 1].set != c->digests[i].set)
            return not_compared(p, e);
    qsort(c->digests, n, sizeof(*c->digests), set_compare);
    for (size_t i = 1; i < n; i++)
        if (c->digests[i - 1].set == c->digests[i].set &&
            digest_compare(&c->digests[i - 1], &c->digests[i]))
            return sw_fail(e, SW_ERR_PLAN,
                "the plan is wrong (a defect, please report it): parts of %s that differ are "
                "compared",
                c->names->items[p->a]->name);
    return 0;
}

static int sort_checks(struct check *c, struct sw_error *e)
{
    c->checks = calloc((size_t)c->n_ranks + 1, sizeof(*c->checks));
    c->digests = calloc(2 * (size_t)c->n_ranks + 1, sizeof(*c->digests));
    if (!c->checks || !c->digests)
        return no_memory(e);
    for (uint32_t r = 0; r < c->n_ranks; r++) {
        const struct sw_load_plan *plan = &c->loads[r];

        c->checks[r] = calloc((size_t)plan->n_checks + 1, sizeof(*c->checks[r]));
        if (!c->checks[r])
            return no_memory(e);
        for (uint32_t i = 0; i < plan->n_checks; i++) {
            if (plan->checks[i].source >= c->ranks[r].list->n)
                return sw_fail(e, SW_ERR_PLAN,
                    "the plan is wrong (a defect, please report it): an alias check names a source "
                    "that there is not, rank %u",
                    plan->rank);
            c->checks[r][i] = plan->checks[i];
        }
        qsort(c->checks[r], plan->n_checks, sizeof(*c->checks[r]), source_compare);
    }
    return 0;
}

int sw_proof_pairs_check(struct sw_proof_pairs *p, const struct sw_proof_names *names,
    const struct sw_plan_rank *ranks, uint32_t n_ranks, const struct sw_load_plan *loads,
    struct sw_error *e)
{
    struct check c = {.names = names, .ranks = ranks, .n_ranks = n_ranks, .loads = loads};
    int err = sort_checks(&c, e);

    if (!err && p->n)
        qsort(p->items, p->n, sizeof(*p->items), pair_compare);
    for (size_t i = 0; !err && i < p->n; i++)
        if (i == 0 || pair_compare(&p->items[i - 1], &p->items[i]))
            err = check_pair(&c, &p->items[i], e);
    for (uint32_t r = 0; c.checks && r < n_ranks; r++)
        free(c.checks[r]);
    free(c.checks);
    free(c.digests);
    return err;
}
