/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which trainer rank moves how much to which target, and in what order. A target of a kind that
 * the layout hasn't (an engine that joined, a new expert map) is made of the same slabs: its wants
 * are looked up, and proved as a layout's are.
 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "trainerd/plan/extents.h"
#include "trainerd/plan/kinds.h"
#include "trainerd/plan/lookup.h"
#include "trainerd/plan/storage.h"

struct sw_writes {
    const struct sw_layout *l;
    struct sw_layout view; /* the layout, but with these targets' kinds and their wants */
    const struct sw_plan_target *targets;
    uint32_t n_targets;
    uint32_t *kind_of; /* by target: in the view */
    uint32_t n;
    struct sw_pair *pairs;
};

struct extra { /* wants of a kind that the layout hasn't */
    struct sw_want *wants;
    uint64_t n;
};

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory for write programs");
}

void sw_writes_free(struct sw_writes *w)
{
    if (!w)
        return;
    if (w->view.known != w->l->known) {
        for (uint32_t k = 0; k < w->view.c.n_kinds; k++)
            sw_kind_clear(&w->view.known[k]);
        free(w->view.known);
        free(w->view.c.kinds);
        free(w->view.c.wants);
    }
    free(w->kind_of);
    free(w->pairs);
    free(w);
}

/* ---- kinds that the layout hasn't ---- */

/* The kinds of these targets, found anew; extra wants for those that the layout hasn't. */
static int find_kinds(struct sw_writes *w, struct extra *extra, struct sw_error *e)
{
    struct sw_layout *v = &w->view;
    struct sw_lookup *lookup = NULL;
    int err = 0;

    for (uint32_t k = 0; !err && k < v->c.n_kinds; k++) {
        const struct sw_plan_target *t = &w->targets[v->c.kinds[k].target];
        const uint32_t known = sw_layout_kind_of(w->l, t);
        const struct sw_layout_kind *from = known == SW_NONE ? NULL : &w->l->known[known];

        if (!from) {
            err = sw_lookup_wants(
                w->l, &lookup, t, &extra[k].wants, &extra[k].n, &v->known[k].expert, e);
            continue;
        }
        v->c.kinds[k].first = w->l->c.kinds[known].first;
        v->c.kinds[k].n = w->l->c.kinds[known].n;
        if (from->expert) {
            v->known[k].expert = malloc((size_t)from->n + 1);
            if (!v->known[k].expert)
                err = no_memory(e);
            else
                memcpy(v->known[k].expert, from->expert, from->n);
        }
    }
    sw_lookup_free(lookup);
    return err;
}

/* One array of wants, kind after kind. */
static int join_wants(struct sw_writes *w, const struct extra *extra, struct sw_error *e)
{
    struct sw_compact *c = &w->view.c;
    const struct sw_want *old = w->l->c.wants;
    uint64_t n = 0;

    for (uint32_t k = 0; k < c->n_kinds; k++)
        n += extra[k].wants ? extra[k].n : c->kinds[k].n;
    c->wants = malloc((n + 1) * sizeof(*c->wants));
    if (!c->wants)
        return no_memory(e);
    c->n_wants = 0;
    for (uint32_t k = 0; k < c->n_kinds; k++) {
        struct sw_kind *kind = &c->kinds[k];
        const struct sw_want *from = extra[k].wants ? extra[k].wants : old + kind->first;

        kind->n = extra[k].wants ? extra[k].n : kind->n;
        kind->first = c->n_wants;
        if (kind->n)
            memcpy(c->wants + c->n_wants, from, kind->n * sizeof(*from));
        c->n_wants += kind->n;
    }
    return 0;
}

static int make_view(struct sw_writes *w, struct sw_error *e)
{
    struct sw_layout *v = &w->view;
    const bool single = w->l->c.n_kinds && w->l->known[0].single;
    struct extra *extra;
    int err;

    v->known = NULL;
    v->c.kinds = NULL;
    v->c.wants = NULL;
    v->c.n_kinds = 0;
    v->c.n_wants = 0;
    err = sw_kinds_make(v, w->targets, w->n_targets, single, w->kind_of, e);
    extra = calloc((size_t)v->c.n_kinds + 1, sizeof(*extra));
    if (!extra)
        return err ? err : no_memory(e);
    if (!err)
        err = find_kinds(w, extra, e);
    if (!err)
        err = join_wants(w, extra, e);
    for (uint32_t k = 0; k < v->c.n_kinds; k++)
        free(extra[k].wants);
    free(extra);
    if (!err)
        err = sw_compact_prove(&v->c, w->l->ranks, w->l->n_ranks, w->targets, w->n_targets, e);
    return err;
}

/* Most often the layout has all kinds, and its proof holds. */
static int find_targets(struct sw_writes *w, struct sw_error *e)
{
    bool all = true;

    for (uint32_t i = 0; all && i < w->n_targets; i++) {
        w->kind_of[i] = sw_layout_kind_of(w->l, &w->targets[i]);
        all = w->kind_of[i] != SW_NONE;
    }
    if (!all)
        return make_view(w, e);
    for (uint32_t i = 0; i < w->n_targets; i++) {
        const int err = sw_storages_check(i ? &w->targets[i - 1] : NULL, &w->targets[i], e);

        if (err)
            return err;
    }
    return 0;
}

/* ---- pairs ---- */

/* What each rank sends to one target of a kind; `slabs` (by split) is zero before and after. */
static void add_up(
    const struct sw_compact *c, const struct sw_kind *kind, uint32_t *slabs, uint64_t *bytes)
{
    for (uint64_t i = 0; i < kind->n; i++)
        slabs[c->slabs[c->wants[kind->first + i].slab].split]++;
    for (uint32_t s = 0; s < c->n_splits; s++) {
        for (uint32_t k = 0; slabs[s] && k < c->splits[s].n; k++) {
            const struct sw_cell *cell = &c->cells[c->splits[s].first + k];

            bytes[cell->rank] += cell->bytes * slabs[s];
        }
        slabs[s] = 0;
    }
}

struct traffic { /* bytes by kind and rank */
    uint32_t *slabs;
    uint64_t *bytes; /* kind * n_ranks + rank */
};

static int add_up_all(const struct sw_writes *w, struct traffic *t, struct sw_error *e)
{
    const struct sw_compact *c = &w->view.c;
    const size_t ranks = w->l->n_ranks;

    t->slabs = calloc((size_t)c->n_splits + 1, sizeof(*t->slabs));
    t->bytes = calloc(ranks * c->n_kinds + 1, sizeof(*t->bytes));
    if (!t->slabs || !t->bytes)
        return no_memory(e);
    for (uint32_t k = 0; k < c->n_kinds; k++)
        add_up(c, &c->kinds[k], t->slabs, t->bytes + k * ranks);
    return 0;
}

struct nic { /* of a host; and what goes through it */
    uint32_t host, nic;
    uint64_t bytes;
};

static int nic_compare(const void *a, const void *b)
{
    const struct nic *x = a, *y = b;

    if (x->host != y->host)
        return x->host < y->host ? -1 : 1;
    return x->nic < y->nic ? -1 : x->nic > y->nic;
}

static uint64_t busiest(struct nic *nics, uint32_t n)
{
    uint64_t most = 0, sum = 0;

    qsort(nics, n, sizeof(*nics), nic_compare);
    for (uint32_t i = 0; i < n; i++) {
        sum = i && !nic_compare(&nics[i - 1], &nics[i]) ? sum + nics[i].bytes : nics[i].bytes;
        most = sum > most ? sum : most;
    }
    return most;
}

/* Whether the busiest NIC of the trainers has more to move than that of the engines. */
static int sources_limit(
    const struct sw_writes *w, const struct traffic *t, bool *limit, struct sw_error *e)
{
    const uint32_t ranks = w->l->n_ranks;
    struct nic *out = calloc((size_t)ranks + 1, sizeof(*out));
    struct nic *in = calloc((size_t)w->n_targets + 1, sizeof(*in));
    int err = out && in ? 0 : no_memory(e);

    for (uint32_t r = 0; !err && r < ranks; r++)
        out[r] = (struct nic){w->l->ranks[r].host, w->l->ranks[r].nic, 0};
    for (uint32_t i = 0; !err && i < w->n_targets; i++) {
        in[i] = (struct nic){w->targets[i].host, w->targets[i].nic, 0};
        for (uint32_t r = 0; r < ranks; r++) {
            const uint64_t bytes = t->bytes[(size_t)w->kind_of[i] * ranks + r];

            out[r].bytes += bytes;
            in[i].bytes += bytes;
        }
    }
    if (!err)
        *limit = busiest(out, ranks) > busiest(in, w->n_targets);
    free(out);
    free(in);
    return err;
}

/* The targets' order for a rank. Its first target is another than that of its neighbours; with
 * engines one after another, that holds within each. */
static void order_pairs(
    struct sw_pair *pairs, uint32_t n, const struct sw_writes *w, uint32_t rank, bool by_engine)
{
    uint32_t position = 0;

    for (uint32_t i = 0, k; i < n; i += k) {
        const char *engine = w->targets[pairs[i].target].engine;
        uint64_t from;

        for (k = 1;
             i + k < n && (!by_engine || !strcmp(w->targets[pairs[i + k].target].engine, engine));)
            k++;
        from = (uint64_t)rank * k / (w->l->n_ranks ? w->l->n_ranks : 1);
        for (uint32_t j = 0; j < k; j++)
            pairs[i + (from + j) % k].order = position++;
    }
}

static int make_pairs(struct sw_writes *w, struct sw_error *e)
{
    const uint32_t ranks = w->l->n_ranks;
    struct traffic t = {0};
    bool by_engine = false;
    uint64_t n = 0;
    int err = add_up_all(w, &t, e);

    if (!err)
        err = sources_limit(w, &t, &by_engine, e);
    for (uint32_t i = 0; !err && i < w->n_targets; i++)
        for (uint32_t r = 0; r < ranks; r++)
            n += t.bytes[(size_t)w->kind_of[i] * ranks + r] > 0;
    if (!err && n > SW_NONE - 1)
        err = sw_fail(e, SW_ERR_LIMIT, "%llu pairs of trainer rank and target are too many",
            (unsigned long long)n);
    if (!err) {
        w->pairs = malloc((n + 1) * sizeof(*w->pairs));
        err = w->pairs ? 0 : no_memory(e);
    }
    for (uint32_t r = 0; !err && r < ranks; r++) {
        const uint32_t first = w->n;

        for (uint32_t i = 0; i < w->n_targets; i++) {
            const uint64_t bytes = t.bytes[(size_t)w->kind_of[i] * ranks + r];

            if (bytes)
                w->pairs[w->n++] = (struct sw_pair){.rank = r, .target = i, .bytes = bytes};
        }
        order_pairs(w->pairs + first, w->n - first, w, r, by_engine);
    }
    free(t.slabs);
    free(t.bytes);
    return err;
}

/* ---- all of it ---- */

int sw_writes_make(const struct sw_layout *l, const struct sw_plan_target *targets,
    uint32_t n_targets, struct sw_writes **writes, struct sw_error *e)
{
    struct sw_writes *w = calloc(1, sizeof(*w));
    int err;

    if (!w)
        return no_memory(e);
    w->l = l;
    w->view = *l;
    w->targets = targets;
    w->n_targets = n_targets;
    w->kind_of = malloc(((size_t)n_targets + 1) * sizeof(*w->kind_of));
    err = w->kind_of ? find_targets(w, e) : no_memory(e);
    if (!err)
        err = make_pairs(w, e);
    if (err) {
        sw_writes_free(w);
        return err;
    }
    *writes = w;
    return 0;
}

uint32_t sw_writes_count(const struct sw_writes *w)
{
    return w->n;
}

const struct sw_pair *sw_writes_pair(const struct sw_writes *w, uint32_t i)
{
    return i < w->n ? &w->pairs[i] : NULL;
}

int sw_writes_get(
    const struct sw_writes *w, uint32_t i, struct sw_write_plan *out, struct sw_error *e)
{
    const struct sw_pair *p = sw_writes_pair(w, i);

    if (!p)
        return sw_fail(e, SW_ERR_INVALID, "there is no pair %u among %u", i, w->n);
    return sw_extents_make(
        &w->view, w->kind_of[p->target], p->rank, &w->targets[p->target], out, e);
}
