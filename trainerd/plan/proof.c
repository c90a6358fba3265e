/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proof of programs. It shares nothing with the planner: it takes what was declared and what
 * the programs say, and walks both in address order.
 *
 *   proof_fills.c    each rank's loads fill each of its tiles exactly once; tiles are disjoint
 *   here             each target's extents, sorted, cover its declared bytes exactly, and nothing
 *                    else; and each byte is what it should be
 *   proof_origin.c   what that is: by the model's rules, or by name
 *   proof_aliases.c  sources that share a storage are compared
 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/limits.h"
#include "trainerd/plan/proof_aliases.h"
#include "trainerd/plan/proof_fills.h"
#include "trainerd/plan/proof_origin.h"

struct declared { /* a parameter's bytes */
    uint32_t region;
    uint64_t start, end;
    const struct sw_parameter *parameter;
};

struct copied { /* an extent, with the rank that writes it */
    const struct sw_extent *extent;
    uint32_t rank; /* position */
};

struct proof {
    const struct sw_plan_rank *ranks;
    const struct sw_load_plan *loads;
    const struct sw_plan_target *targets;
    const struct sw_write_plan *writes;
    uint32_t n_ranks, n_targets, n_writes;
    struct sw_proof_names names;
    struct sw_proof_fills *fills; /* by rank position */
    uint32_t *by_number;          /* rank positions, by rank number */
    struct sw_proof_origins origins;
    struct sw_proof_origin *members; /* of the storage at hand */
    uint32_t n_members;
    struct sw_proof_pairs pairs;
};

struct storage { /* parameters at the same bytes */
    const struct sw_plan_target *t;
    const struct declared *d;
    uint32_t n;
};

#define ULL(x) ((unsigned long long)(x))

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory to prove the plan");
}

static int wrong(struct sw_error *e, const char *what, uint32_t rank)
{
    return sw_fail(
        e, SW_ERR_PLAN, "the plan is wrong (a defect, please report it): %s, rank %u", what, rank);
}

static int bad_byte(const struct sw_plan_target *t, const struct declared *d, uint64_t at,
    const char *what, struct sw_error *e)
{
    return sw_fail(e, SW_ERR_PLAN,
        "the plan is wrong (a defect, please report it): engine %s rank %u, parameter %s, byte "
        "%llu: %s",
        t->engine, t->engine_rank, d->parameter->name, ULL(at - d->start), what);
}

/* ---- loads ---- */

static int number_compare(const void *a, const void *b, void *arg)
{
    const struct sw_plan_rank *ranks = arg;
    const uint32_t x = ranks[*(const uint32_t *)a].rank, y = ranks[*(const uint32_t *)b].rank;

    return x < y ? -1 : x > y;
}

static int prove_loads(struct proof *p, struct sw_error *e)
{
    int err = sw_proof_names_make(p->ranks, p->n_ranks, &p->names, e);

    p->origins.names = &p->names;
    p->fills = calloc((size_t)p->n_ranks + 1, sizeof(*p->fills));
    p->by_number = calloc((size_t)p->n_ranks + 1, sizeof(*p->by_number));
    if (!err && (!p->fills || !p->by_number))
        err = no_memory(e);
    for (uint32_t r = 0; !err && r < p->n_ranks; r++) {
        p->by_number[r] = r;
        err = sw_proof_fills_make(&p->names, &p->ranks[r], r, &p->loads[r], &p->fills[r], e);
    }
    if (!err)
        qsort_r(p->by_number, p->n_ranks, sizeof(*p->by_number), number_compare, (void *)p->ranks);
    return err;
}

/* The position of a rank number; UINT32_MAX = there is none. */
static uint32_t rank_position(const struct proof *p, uint32_t rank)
{
    uint32_t low = 0, high = p->n_ranks;

    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;

        if (p->ranks[p->by_number[mid]].rank < rank)
            low = mid + 1;
        else
            high = mid;
    }
    return low < p->n_ranks && p->ranks[p->by_number[low]].rank == rank ? p->by_number[low]
                                                                        : UINT32_MAX;
}

/* ---- is it what it should be? ---- */

/* A position in a dense box of bits -> where that is, and how far it is to the end of each row. */
static void find_place(const uint64_t *len, uint32_t ndim, uint64_t position, uint64_t *at)
{
    for (uint32_t d = ndim; d-- > 0;) {
        at[d] = position % len[d];
        position /= len[d];
    }
}

/*
 * How many bits from place `at` of `piece` on are next to each other both in the parameter and in a
 * fill of the box (fill_lo, fill_len) of the tensor, where it is at `in`. A row's end is no end
 * when both go on with the next row at the same place: they have the same width, which is the
 * parameter's.
 */
static uint64_t run_length(const struct sw_proof_origin *origin, const struct sw_proof_piece *piece,
    const struct sw_proof_value *fill, const uint64_t *in)
{
    const struct sw_proof_value *want = &piece->value;
    uint64_t unit = 1, behind = 0, run = 0;

    for (uint32_t d = want->ndim; d-- > 0;) {
        const uint32_t back = want->ndim - d;
        const uint64_t shape = back <= origin->ndim ? origin->shape[origin->ndim - back] : 1;
        const uint64_t a = fill->lo[d] + fill->len[d] - in[d];
        const uint64_t b = want->lo[d] + want->len[d] - in[d];

        run = (a < b ? a : b) * unit - behind;
        if (fill->lo[d] != want->lo[d] || fill->len[d] != want->len[d] || want->len[d] != shape)
            break;
        behind += (in[d] - want->lo[d]) * unit;
        unit *= want->len[d];
    }
    return run;
}

/* The same within a constant zero, which looks the same everywhere. */
static uint64_t zero_run(
    const struct sw_proof_origin *origin, const struct sw_proof_piece *piece, const uint64_t *at)
{
    const uint32_t last = origin->ndim - 1;

    return piece->to[last] + piece->len[last] - at[last];
}

/*
 * Whether a parameter's bits from `bit` on are what lies in a fill from its `position` on: the
 * number of bits for which that holds, or 0 with *why.
 */
static uint64_t compare(struct sw_proof_origin *origin, uint64_t bit,
    const struct sw_proof_value *fill, uint64_t position, const char **why)
{
    const struct sw_proof_piece *piece;
    uint64_t at[SW_MAX_DIMS] = {0}, in[SW_MAX_DIMS] = {0};

    if (origin->unknown) {
        *why = "is read from another tensor";
        return 0;
    }
    find_place(origin->shape, origin->ndim, bit, at);
    piece = sw_proof_piece_at(origin, at);
    if (!piece) {
        *why = "is made of nothing by the rules";
        return 0;
    }
    *why = sw_proof_value_differs(&piece->value, fill);
    if (*why)
        return 0;
    if (piece->value.name == SW_PROOF_NONE)
        return zero_run(origin, piece, at);
    find_place(fill->len, fill->ndim, position, in);
    *why = "is read from another position of the source";
    if (fill->ndim != piece->value.ndim)
        return 0;
    for (uint32_t d = 0; d < fill->ndim; d++) {
        const uint32_t back = fill->ndim - d;
        const uint64_t moved =
            back <= origin->ndim ? at[origin->ndim - back] - piece->to[origin->ndim - back] : 0;

        in[d] += fill->lo[d];
        if (in[d] != piece->value.lo[d] + moved)
            return 0;
    }
    return run_length(origin, piece, fill, in);
}

/* Bytes [from, to) of a storage come out of the replica at src: are they what they should be? */
static int check_bytes(const struct proof *p, const struct storage *s, uint64_t from, uint64_t to,
    uint64_t src, uint32_t rank, struct sw_error *e)
{
    const struct sw_proof_fill *fill = NULL;
    struct sw_proof_value value;

    while (from < to) {
        const char *why = NULL, *first = NULL;
        uint64_t run = 0, step;

        if (!fill || src >= fill->end) {
            fill = sw_proof_fill_at(&p->fills[rank], src);
            if (!fill)
                return bad_byte(
                    s->t, s->d, from, "is read from replica bytes that no load fills", e);
            sw_proof_fill_value(&p->fills[rank], fill, &value);
        }
        for (uint32_t i = 0; run == 0 && i < s->n; i++) {
            if (!p->members[i].derived)
                run = compare(&p->members[i], (from - s->d->start) * 8, &value,
                    (src - fill->start) * 8, &why);
            first = first ? first : why;
        }
        if (run == 0)
            return bad_byte(s->t, s->d, from, first ? first : "is made of nothing", e);
        if (run % 8)
            return bad_byte(s->t, s->d, from, "is cut inside a byte", e);
        step = fill->end - src < to - from ? fill->end - src : to - from;
        step = run / 8 < step ? run / 8 : step;
        from += step;
        src += step;
    }
    return 0;
}

/* ---- extents cover parameters ---- */

static int declared_compare(const void *a, const void *b)
{
    const struct declared *x = a, *y = b;

    if (x->region != y->region)
        return x->region < y->region ? -1 : 1;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static int copied_compare(const void *a, const void *b)
{
    const struct sw_extent *x = ((const struct copied *)a)->extent;
    const struct sw_extent *y = ((const struct copied *)b)->extent;

    if (x->region != y->region)
        return x->region < y->region ? -1 : 1;
    return x->dst < y->dst ? -1 : x->dst > y->dst;
}

struct cursor { /* where in the sorted extents the walk is */
    const struct copied *items;
    uint32_t n, i;
    uint64_t at; /* next byte of items[i], as a region offset */
};

/* One storage: the extents from the cursor on must give it. */
static int walk_storage(
    const struct proof *p, const struct storage *s, struct cursor *c, struct sw_error *e)
{
    const struct declared *d = s->d;
    uint64_t at = d->start;

    while (at < d->end) {
        const struct sw_extent *x = c->i < c->n ? c->items[c->i].extent : NULL;
        uint64_t end;
        int err;

        if (!x || x->region > d->region || (x->region == d->region && c->at > at))
            return bad_byte(s->t, d, at, "is written by no extent", e);
        if (x->region < d->region || c->at < at)
            return bad_byte(
                s->t, d, at, "an extent before it writes bytes that nobody declared", e);
        end = x->dst + x->length < d->end ? x->dst + x->length : d->end;
        err = check_bytes(p, s, at, end, x->src + (at - x->dst), c->items[c->i].rank, e);
        if (err)
            return err;
        at = c->at = end;
        if (end == x->dst + x->length) {
            c->i++;
            c->at = c->i < c->n ? c->items[c->i].extent->dst : 0;
        }
    }
    return 0;
}

/* Extents must be in bounds and must not touch each other (sorted). */
static int check_extents(const struct proof *p, const struct sw_plan_target *t,
    const struct copied *items, uint32_t n, struct sw_error *e)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct sw_extent *x = items[i].extent;
        const struct sw_extent *before = i ? items[i - 1].extent : NULL;
        const char *what = NULL;

        if (x->length == 0 || x->zero != 0)
            what = "an extent is empty";
        else if (x->region >= t->n_regions ||
                 sw_range_exceeds(x->dst, x->length, t->region_bytes[x->region]))
            what = "an extent goes past its region";
        else if (sw_range_exceeds(x->src, x->length, p->loads[items[i].rank].replica_bytes))
            what = "an extent reads past the replica";
        else if (before && before->region == x->region && before->dst + before->length > x->dst)
            what = "two extents write the same bytes";
        if (what)
            return sw_fail(e, SW_ERR_PLAN,
                "the plan is wrong (a defect, please report it): engine %s rank %u, region %u, "
                "%llu bytes at %llu: %s",
                t->engine, t->engine_rank, x->region, ULL(x->length), ULL(x->dst), what);
    }
    return 0;
}

/* The pieces of a storage's parameters; *derived: the engine makes all of them. */
static int find_origins(struct proof *p, const struct storage *s, bool *derived, struct sw_error *e)
{
    uint32_t lacking = 0;
    int err = 0;

    if (s->n > p->n_members) {
        struct sw_proof_origin *more = realloc(p->members, s->n * sizeof(*more));

        if (!more)
            return no_memory(e);
        memset(more + p->n_members, 0, (s->n - p->n_members) * sizeof(*more));
        p->members = more;
        p->n_members = s->n;
    }
    *derived = true;
    for (uint32_t i = 0; !err && i < s->n; i++) {
        err = sw_proof_origin(&p->origins, s->t, s->d[i].parameter, &p->members[i], e);
        if (err == SW_ERR_PLAN && p->members[i].unknown && ++lacking < s->n)
            err = 0; /* one name of the storage is enough */
        *derived = *derived && p->members[i].derived;
    }
    return err;
}

/* Whatever lies at the same place of a storage's parameters must be equal. */
static int pair_members(struct proof *p, const struct storage *s, struct sw_error *e)
{
    const struct sw_proof_origin *first = NULL;
    int err = 0;

    for (uint32_t i = 0; !err && i < s->n; i++) {
        struct sw_proof_origin *other = &p->members[i];

        if (other->derived || other->unknown)
            continue;
        if (!first) {
            first = other;
            continue;
        }
        for (uint32_t k = 0; !err && k < first->n && first->ndim == other->ndim; k++) {
            const struct sw_proof_piece *a = &first->pieces[k];
            const struct sw_proof_piece *b = sw_proof_piece_at(other, a->to);

            if (b)
                err = sw_proof_pairs_add(
                    &p->pairs, a->value.name, b->value.name, s->t, s->d->parameter, e);
        }
    }
    return err;
}

static int walk_target(struct proof *p, const struct sw_plan_target *t, const struct declared *d,
    uint32_t n, struct cursor *c, struct sw_error *e)
{
    for (uint32_t i = 0, k; i < n; i += k) {
        struct storage s = {.t = t, .d = &d[i]};
        bool derived = false;
        int err;

        for (k = 1; i + k < n && !declared_compare(&d[i], &d[i + k]);)
            k++;
        s.n = k;
        if (i && d[i - 1].region == d[i].region && d[i - 1].end > d[i].start)
            return bad_byte(t, &d[i], d[i].start, "is declared twice", e);
        err = find_origins(p, &s, &derived, e);
        if (!err && !derived)
            err = walk_storage(p, &s, c, e);
        if (!err && s.n > 1)
            err = pair_members(p, &s, e);
        if (err)
            return err;
    }
    if (c->i < c->n)
        return sw_fail(e, SW_ERR_PLAN,
            "the plan is wrong (a defect, please report it): engine %s rank %u, region %u: bytes "
            "at %llu are written that nobody declared",
            t->engine, t->engine_rank, c->items[c->i].extent->region, ULL(c->at));
    return 0;
}

/* All extents for a target, sorted. NULL with *err set when there is a fault. */
static struct copied *collect(const struct proof *p, const struct sw_plan_target *t, uint32_t *n,
    int *err, struct sw_error *e)
{
    struct copied *items;
    uint64_t total = 0;
    uint32_t used = 0;

    for (uint32_t w = 0; w < p->n_writes; w++)
        if (p->writes[w].target == t->target)
            total += p->writes[w].n;
    items = total < UINT32_MAX ? calloc(total + 1, sizeof(*items)) : NULL;
    *err = items ? 0 : no_memory(e);
    for (uint32_t w = 0; !*err && w < p->n_writes; w++) {
        const struct sw_write_plan *plan = &p->writes[w];
        uint32_t rank;

        if (plan->target != t->target)
            continue;
        rank = rank_position(p, plan->rank);
        if (rank == UINT32_MAX)
            *err = wrong(e, "a write program is of a rank that there is not", plan->rank);
        for (uint64_t i = 0; !*err && i < plan->n; i++)
            items[used++] = (struct copied){&plan->extents[i], rank};
    }
    if (*err) {
        free(items);
        return NULL;
    }
    qsort(items, used, sizeof(*items), copied_compare);
    *n = used;
    return items;
}

/* The parameters with bytes, sorted. NULL with *err set when there is a fault. */
static struct declared *list_declared(
    const struct sw_plan_target *t, uint32_t *n, int *err, struct sw_error *e)
{
    struct declared *d = calloc((size_t)t->n_parameters + 1, sizeof(*d));

    *n = 0;
    *err = d ? 0 : no_memory(e);
    for (uint32_t i = 0; !*err && i < t->n_parameters; i++) {
        const struct sw_parameter *p = &t->parameters[i];
        uint64_t bytes;

        if (sw_tensor_bytes(p->dtype, p->ndim, p->shape, &bytes) || p->region >= t->n_regions ||
            sw_range_exceeds(p->offset, bytes, t->region_bytes[p->region]))
            *err = sw_fail(e, SW_ERR_PLAN, "engine %s rank %u: parameter %s is not in its region",
                t->engine, t->engine_rank, p->name);
        else if (bytes)
            d[(*n)++] = (struct declared){p->region, p->offset, p->offset + bytes, p};
    }
    if (*err) {
        free(d);
        return NULL;
    }
    qsort(d, *n, sizeof(*d), declared_compare);
    return d;
}

/* ---- all of it ---- */

static int prove_target(struct proof *p, const struct sw_plan_target *t, struct sw_error *e)
{
    struct cursor c = {0};
    uint32_t n_declared = 0;
    int err;
    struct copied *items = collect(p, t, &c.n, &err, e);
    struct declared *d = err ? NULL : list_declared(t, &n_declared, &err, e);

    if (!err)
        err = check_extents(p, t, items, c.n, e);
    c.items = items;
    c.at = c.n ? items[0].extent->dst : 0;
    if (!err)
        err = walk_target(p, t, d, n_declared, &c, e);
    free(items);
    free(d);
    return err;
}

static int prove(struct proof *p, struct sw_error *e)
{
    int err = prove_loads(p, e);

    for (uint32_t i = 0; !err && i < p->n_targets; i++)
        err = prove_target(p, &p->targets[i], e);
    for (uint32_t w = 0; !err && w < p->n_writes; w++) {
        bool found = false;

        for (uint32_t i = 0; i < p->n_targets && !found; i++)
            found = p->targets[i].target == p->writes[w].target;
        if (!found)
            err = wrong(e, "a write program is for a target that there is not", p->writes[w].rank);
    }
    if (!err && p->pairs.n)
        err = sw_proof_pairs_check(&p->pairs, &p->names, p->ranks, p->n_ranks, p->loads, e);
    return err;
}

int sw_plan_prove(const struct sw_plan_rank *ranks, uint32_t n_ranks,
    const struct sw_load_plan *loads, const struct sw_plan_target *targets, uint32_t n_targets,
    const struct sw_write_plan *writes, uint32_t n_writes, struct sw_error *e)
{
    struct proof p = {.ranks = ranks,
        .loads = loads,
        .targets = targets,
        .writes = writes,
        .n_ranks = n_ranks,
        .n_targets = n_targets,
        .n_writes = n_writes};
    const int err = prove(&p, e);

    for (uint32_t r = 0; p.fills && r < n_ranks; r++)
        sw_proof_fills_free(&p.fills[r]);
    for (uint32_t i = 0; i < p.n_members; i++)
        sw_proof_origin_free(&p.members[i]);
    free(p.fills);
    free(p.by_number);
    free(p.members);
    sw_proof_origins_free(&p.origins);
    sw_proof_pairs_free(&p.pairs);
    sw_proof_names_free(&p.names);
    return err;
}
