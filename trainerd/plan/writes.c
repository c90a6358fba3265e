/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles and targets -> the extents of each (trainer rank, target), merged and proved. */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/limits.h"
#include "trainerd/plan/layout.h"

struct sw_writes {
    uint32_t n, size;
    struct sw_write_plan *plans;
};

struct piece {     /* one storage's bytes on their way */
    uint32_t rank; /* position */
    struct sw_extent extent;
};

static int piece_compare(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->extent.region != y->extent.region)
        return x->extent.region < y->extent.region ? -1 : 1;
    return x->extent.dst < y->extent.dst ? -1 : x->extent.dst > y->extent.dst;
}

static bool joins(const struct sw_extent *a, const struct sw_extent *b)
{
    return a->region == b->region && a->dst + a->length == b->dst && a->src + a->length == b->src;
}

static int add_plan(struct sw_writes *w, const struct sw_layout *l, const struct sw_plan_target *t,
    const struct piece *pieces, uint32_t n, struct sw_error *e)
{
    struct sw_write_plan plan = {
        .rank = l->table.rank_numbers[pieces[0].rank], .target = t->target};
    uint64_t merged = 1;

    for (uint32_t i = 1; i < n; i++)
        merged += !joins(&pieces[i - 1].extent, &pieces[i].extent);
    if (merged > SW_EXTENTS_MAX)
        return sw_fail(e, SW_ERR_LIMIT,
            "engine %s rank %u would need %llu extents; at most %u are allowed", t->engine,
            t->engine_rank, (unsigned long long)merged, SW_EXTENTS_MAX);
    if (w->n == w->size) {
        const uint32_t size = w->size ? w->size * 2 : 8;
        struct sw_write_plan *more = realloc(w->plans, size * sizeof(*more));

        if (!more)
            return sw_fail(e, SW_ERR_NOMEM, "no memory for write programs");
        w->plans = more;
        w->size = size;
    }
    plan.extents = calloc(merged, sizeof(*plan.extents));
    if (!plan.extents)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for write programs");
    for (uint32_t i = 0; i < n; i++) {
        if (i && joins(&pieces[i - 1].extent, &pieces[i].extent))
            plan.extents[plan.n - 1].length += pieces[i].extent.length;
        else
            plan.extents[plan.n++] = pieces[i].extent;
        plan.bytes += pieces[i].extent.length;
    }
    w->plans[w->n++] = plan;
    return 0;
}

/* The pieces of a target; *n of them. */
static int collect(const struct sw_layout *l, const struct sw_plan_target *t,
    const struct sw_storages *s, struct piece *pieces, uint32_t *n, struct sw_error *e)
{
    *n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct sw_storage *storage = &s->items[i];
        const struct sw_entry *source;
        const int err = sw_layout_source(l, t, s, storage, &source, e);

        if (err)
            return err;
        if (!storage->bytes)
            continue;
        pieces[(*n)++] =
            (struct piece){source->rank, {.src = l->loads[source->rank].tiles[source->tile].offset,
                                             .dst = storage->offset,
                                             .length = storage->bytes,
                                             .region = storage->region}};
    }
    return 0;
}

static int add_target(struct sw_writes *w, const struct sw_layout *l,
    const struct sw_plan_target *t, struct sw_error *e)
{
    struct sw_storages s;
    struct piece *pieces;
    uint32_t n = 0;
    int err = sw_storages_make(t, &s, e);

    if (err)
        return err;
    pieces = calloc((size_t)s.n + 1, sizeof(*pieces));
    if (pieces)
        err = collect(l, t, &s, pieces, &n, e);
    else
        err = sw_fail(e, SW_ERR_NOMEM, "no memory for write programs");
    sw_storages_free(&s);
    if (!err)
        qsort(pieces, n, sizeof(*pieces), piece_compare);
    for (uint32_t i = 0, k; !err && i < n; i += k) {
        for (k = 1; i + k < n && pieces[i + k].rank == pieces[i].rank;)
            k++;
        err = add_plan(w, l, t, pieces + i, k, e);
    }
    free(pieces);
    return err;
}

/* ---- the proof wants what the planner was given ---- */

struct given {
    struct sw_plan_rank *ranks;
    const struct sw_load_plan **loads;
    const struct sw_write_plan **writes;
};

static struct sw_source *expand(const struct sw_table *t, uint32_t rank)
{
    struct sw_source *sources = calloc((size_t)t->n_sources[rank] + 1, sizeof(*sources));

    for (uint32_t i = 0; sources && i < t->n_sources[rank]; i++) {
        const struct sw_entry *entry = &t->entries[t->sources[rank][i]];
        struct sw_source *s = &sources[i];

        s->name = entry->name;
        s->dtype = entry->dtype;
        s->ndim = s->box.ndim = entry->ndim;
        for (uint32_t d = 0; d < entry->ndim; d++)
            s->shape[d] = s->box.len[d] = entry->shape[d];
    }
    return sources;
}

static bool same_sources(const struct sw_table *t, uint32_t a, uint32_t b)
{
    return t->n_sources[a] == t->n_sources[b] &&
           !memcmp(t->sources[a], t->sources[b], t->n_sources[a] * sizeof(uint32_t));
}

/* Ranks that declared the same list (after an all-gather they all do) share one expansion. */
static int give_ranks(struct given *g, const struct sw_layout *l)
{
    const struct sw_table *t = &l->table;

    for (uint32_t r = 0; r < t->n_ranks; r++) {
        g->loads[r] = &l->loads[r];
        g->ranks[r].rank = t->rank_numbers[r];
        g->ranks[r].n_sources = t->n_sources[r];
        if (r && same_sources(t, r, r - 1))
            g->ranks[r].sources = g->ranks[r - 1].sources;
        else
            g->ranks[r].sources = expand(t, r);
        if (!g->ranks[r].sources)
            return SW_ERR_NOMEM;
    }
    return 0;
}

static void given_free(struct given *g, uint32_t n_ranks)
{
    for (uint32_t r = 0; g->ranks && r < n_ranks; r++)
        if (r == 0 || g->ranks[r].sources != g->ranks[r - 1].sources)
            free((void *)g->ranks[r].sources);
    free(g->ranks);
    free(g->loads);
    free(g->writes);
}

static int prove(const struct sw_layout *l, const struct sw_writes *w,
    const struct sw_plan_target *targets, uint32_t n_targets, struct sw_error *e)
{
    const uint32_t n = l->table.n_ranks;
    struct given g = {.ranks = calloc((size_t)n + 1, sizeof(*g.ranks)),
        .loads = calloc((size_t)n + 1, sizeof(*g.loads)),
        .writes = calloc((size_t)w->n + 1, sizeof(*g.writes))};
    int err;

    if (g.ranks && g.loads && g.writes && !give_ranks(&g, l)) {
        for (uint32_t i = 0; i < w->n; i++)
            g.writes[i] = &w->plans[i];
        err = sw_plan_prove(g.ranks, n, g.loads, targets, n_targets, g.writes, w->n, e);
    } else {
        err = sw_fail(e, SW_ERR_NOMEM, "no memory to prove the plan");
    }
    given_free(&g, n);
    return err;
}

int sw_writes_make(const struct sw_layout *l, const struct sw_plan_target *targets,
    uint32_t n_targets, struct sw_writes **writes, struct sw_error *e)
{
    struct sw_writes *w = calloc(1, sizeof(*w));
    int err = w ? 0 : sw_fail(e, SW_ERR_NOMEM, "no memory for write programs");

    for (uint32_t i = 0; !err && i < n_targets; i++)
        err = add_target(w, l, &targets[i], e);
    if (!err)
        err = prove(l, w, targets, n_targets, e);
    if (err) {
        sw_writes_free(w);
        return err;
    }
    *writes = w;
    return 0;
}

void sw_writes_free(struct sw_writes *w)
{
    if (!w)
        return;
    for (uint32_t i = 0; i < w->n; i++)
        free(w->plans[i].extents);
    free(w->plans);
    free(w);
}

uint32_t sw_writes_count(const struct sw_writes *w)
{
    return w->n;
}

const struct sw_write_plan *sw_writes_get(const struct sw_writes *w, uint32_t i)
{
    return i < w->n ? &w->plans[i] : NULL;
}
