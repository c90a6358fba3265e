/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proof of a plan. It shares nothing with the planner: it takes what was declared and what the
 * programs say, and walks both in address order.
 *
 *   loads      each rank's loads fill each of its tiles exactly once; tiles are disjoint
 *   extents    each target's extents, sorted, cover its declared bytes exactly, and nothing else
 *   names      each byte comes from the same position of a source named like the parameter
 *   aliases    sources that share a storage are in one alias set
 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/limits.h"
#include "trainerd/plan/plan.h"

struct fill { /* replica bytes that one load writes */
    uint64_t start, end;
    uint32_t source, tile;
};

struct filled { /* by rank position */
    uint32_t n;
    struct fill *fills;
};

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
    const struct sw_load_plan *const *loads;
    const struct sw_plan_target *targets;
    const struct sw_write_plan *const *writes;
    uint32_t n_ranks, n_targets, n_writes;
    struct filled *filled;
};

#define ULL(x) ((unsigned long long)(x))

static int wrong(struct sw_error *e, const char *what, uint32_t rank)
{
    return sw_fail(
        e, SW_ERR_PLAN, "the plan is wrong (a defect, please report it): %s, rank %u", what, rank);
}

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory to prove the plan");
}

/* ---- loads fill tiles ---- */

/* Whether a template copies the whole of a source densely; with one rule there is no other. */
static bool copies_whole(const struct sw_load_template *t, const struct sw_source *s)
{
    const unsigned bits = sw_dtype_bits(s->dtype);
    uint64_t row = 1;

    if (t->transform != SW_TRANSFORM_COPY || t->src_dtype != s->dtype || t->dst_dtype != s->dtype ||
        t->ndim != s->ndim || s->box.ndim != s->ndim)
        return false;
    for (uint32_t d = s->ndim; d-- > 0;) {
        const bool whole_bytes = row * bits % 8 == 0;

        if (s->box.lo[d] || s->box.len[d] != s->shape[d] || t->lo[d] || t->len[d] != s->shape[d])
            return false;
        if (t->dst_stride[d] != (whole_bytes ? row * bits / 8 : 0))
            return false;
        row *= s->shape[d];
    }
    return true;
}

static int fill_compare(const void *a, const void *b)
{
    const struct fill *x = a, *y = b;

    return x->start < y->start ? -1 : x->start > y->start;
}

static int load_fill(const struct sw_plan_rank *rank, const struct sw_load_plan *plan,
    const struct sw_load *load, struct fill *fill, struct sw_error *e)
{
    const struct sw_source *s;
    const struct sw_tile *tile;
    uint64_t bytes;

    if (load->source >= rank->n_sources || load->tmpl >= plan->n_templates ||
        load->tile >= plan->n_tiles)
        return wrong(e, "a load names a source, template or tile that there is not", rank->rank);
    s = &rank->sources[load->source];
    tile = &plan->tiles[load->tile];
    if (!copies_whole(&plan->templates[load->tmpl], s) ||
        sw_tensor_bytes(s->dtype, s->ndim, s->shape, &bytes))
        return wrong(e, "a load does not copy its whole source", rank->rank);
    if (sw_range_exceeds(load->offset, bytes, tile->bytes) ||
        sw_range_exceeds(tile->offset, tile->bytes, plan->replica_bytes))
        return wrong(e, "a load goes past its tile, or a tile past the replica", rank->rank);
    *fill = (struct fill){
        tile->offset + load->offset, tile->offset + load->offset + bytes, load->source, load->tile};
    return 0;
}

/* Fills (sorted) must join to tiles without a hole and without touching a byte twice. */
static int check_tiles(const struct sw_plan_rank *rank, const struct sw_load_plan *plan,
    const struct fill *fills, uint32_t n, struct sw_error *e)
{
    uint64_t *left = calloc((size_t)plan->n_tiles + 1, sizeof(*left));
    int err = left ? 0 : no_memory(e);

    for (uint32_t i = 0; !err && i < plan->n_tiles; i++)
        left[i] = plan->tiles[i].bytes;
    for (uint32_t i = 0; !err && i < n; i++) {
        if (i && fills[i].start < fills[i - 1].end)
            err = wrong(e, "two loads fill the same bytes", rank->rank);
        else
            left[fills[i].tile] -= fills[i].end - fills[i].start;
    }
    for (uint32_t i = 0; !err && i < plan->n_tiles; i++)
        if (left[i])
            err = wrong(e, "a tile has bytes that no load fills", rank->rank);
    free(left);
    return err;
}

static int prove_loads(struct proof *p, struct sw_error *e)
{
    for (uint32_t r = 0; r < p->n_ranks; r++) {
        const struct sw_load_plan *plan = p->loads[r];
        struct fill *fills = calloc((size_t)plan->n_loads + 1, sizeof(*fills));
        int err = 0;

        p->filled[r].fills = fills;
        if (!fills)
            return no_memory(e);
        if (plan->rank != p->ranks[r].rank)
            return wrong(e, "a load program is another rank's", p->ranks[r].rank);
        for (uint32_t i = 0; !err && i < plan->n_loads; i++) {
            err = load_fill(&p->ranks[r], plan, &plan->loads[i], &fills[p->filled[r].n], e);
            p->filled[r].n += !err && fills[p->filled[r].n].start < fills[p->filled[r].n].end;
        }
        if (err)
            return err;
        qsort(fills, p->filled[r].n, sizeof(*fills), fill_compare);
        err = check_tiles(&p->ranks[r], plan, fills, p->filled[r].n, e);
        if (err)
            return err;
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

static int bad_byte(const struct sw_plan_target *t, const struct declared *d, uint64_t at,
    const char *what, struct sw_error *e)
{
    return sw_fail(e, SW_ERR_PLAN,
        "the plan is wrong (a defect, please report it): engine %s rank %u, parameter %s, byte "
        "%llu: %s",
        t->engine, t->engine_rank, d->parameter->name, ULL(at - d->start), what);
}

/* Whether one of n parameters of one storage has the name, type and shape of the source. */
static bool is_source_of(const struct sw_source *s, const struct declared *d, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct sw_parameter *p = d[i].parameter;

        if (p->dtype == s->dtype && p->ndim == s->ndim && !strcmp(p->name, s->name) &&
            (p->ndim == 0 || !memcmp(p->shape, s->shape, p->ndim * sizeof(*p->shape))))
            return true;
    }
    return false;
}

static const struct fill *find_fill(const struct filled *f, uint64_t at)
{
    uint32_t low = 0, high = f->n;

    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;

        if (f->fills[mid].end <= at)
            low = mid + 1;
        else
            high = mid;
    }
    return low < f->n && f->fills[low].start <= at ? &f->fills[low] : NULL;
}

/* Bytes [from, to) of a storage come out of the replica at src: from where they should? */
static int check_origin(const struct proof *p, const struct sw_plan_target *t,
    const struct declared *d, uint32_t n, uint64_t from, uint64_t to, uint64_t src, uint32_t rank,
    struct sw_error *e)
{
    while (from < to) {
        const struct fill *fill = find_fill(&p->filled[rank], src);
        uint64_t step;

        if (!fill)
            return bad_byte(t, d, from, "is read from replica bytes that no load fills", e);
        if (src - fill->start != from - d->start)
            return bad_byte(t, d, from, "is read from another position of the source", e);
        if (!is_source_of(&p->ranks[rank].sources[fill->source], d, n))
            return bad_byte(t, d, from, "is read from another tensor", e);
        step = fill->end - src < to - from ? fill->end - src : to - from;
        from += step;
        src += step;
    }
    return 0;
}

struct cursor { /* where in the sorted extents the walk is */
    const struct copied *items;
    uint32_t n, i;
    uint64_t at; /* next byte of items[i], as a region offset */
};

/* One storage (n parameters at the same bytes): the extents from the cursor on must give it. */
static int walk_storage(const struct proof *p, const struct sw_plan_target *t,
    const struct declared *d, uint32_t n, struct cursor *c, struct sw_error *e)
{
    uint64_t at = d->start;

    while (at < d->end) {
        const struct sw_extent *x = c->i < c->n ? c->items[c->i].extent : NULL;
        uint64_t end;
        int err;

        if (!x || x->region > d->region || (x->region == d->region && c->at > at))
            return bad_byte(t, d, at, "is written by no extent", e);
        if (x->region < d->region || c->at < at)
            return bad_byte(t, d, at, "an extent before it writes bytes that nobody declared", e);
        end = x->dst + x->length < d->end ? x->dst + x->length : d->end;
        err = check_origin(p, t, d, n, at, end, x->src + (at - x->dst), c->items[c->i].rank, e);
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
        else if (sw_range_exceeds(x->src, x->length, p->loads[items[i].rank]->replica_bytes))
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

static int walk_target(const struct proof *p, const struct sw_plan_target *t,
    const struct declared *d, uint32_t n, struct cursor *c, struct sw_error *e)
{
    for (uint32_t i = 0, k; i < n; i += k) {
        int err;

        for (k = 1; i + k < n && !declared_compare(&d[i], &d[i + k]);)
            k++;
        if (i && d[i - 1].region == d[i].region && d[i - 1].end > d[i].start)
            return bad_byte(t, &d[i], d[i].start, "is declared twice", e);
        err = walk_storage(p, t, &d[i], k, c, e);
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

static uint32_t rank_position(const struct proof *p, uint32_t rank)
{
    for (uint32_t r = 0; r < p->n_ranks; r++)
        if (p->ranks[r].rank == rank)
            return r;
    return UINT32_MAX;
}

/* All extents for a target, sorted. NULL with *err set when there is a fault. */
static struct copied *collect(const struct proof *p, const struct sw_plan_target *t, uint32_t *n,
    int *err, struct sw_error *e)
{
    struct copied *items;
    uint64_t total = 0;
    uint32_t used = 0;

    for (uint32_t w = 0; w < p->n_writes; w++)
        if (p->writes[w]->target == t->target)
            total += p->writes[w]->n;
    items = total < UINT32_MAX ? calloc(total + 1, sizeof(*items)) : NULL;
    *err = items ? 0 : no_memory(e);
    for (uint32_t w = 0; !*err && w < p->n_writes; w++) {
        const struct sw_write_plan *plan = p->writes[w];
        const uint32_t rank = rank_position(p, plan->rank);

        if (plan->target != t->target)
            continue;
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

/* ---- aliases ---- */

struct named { /* a source name, and the alias set that some rank checks it in */
    const char *name;
    uint32_t set; /* UINT32_MAX = none */
};

static int named_compare(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    const int order = strcmp(x->name, y->name);

    if (order)
        return order;
    return x->set < y->set ? -1 : x->set > y->set; /* a checked one comes first */
}

static const struct named *find_named(const struct named *names, size_t n, const char *name)
{
    size_t low = 0, high = n;

    while (low < high) {
        const size_t mid = low + (high - low) / 2;

        if (strcmp(names[mid].name, name) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n && !strcmp(names[low].name, name) ? &names[low] : NULL;
}

static struct named *list_names(const struct proof *p, size_t *n, int *err, struct sw_error *e)
{
    struct named *names;
    size_t total = 0;

    for (uint32_t r = 0; r < p->n_ranks; r++)
        total += p->ranks[r].n_sources;
    names = calloc(total + 1, sizeof(*names));
    *n = 0;
    *err = names ? 0 : no_memory(e);
    for (uint32_t r = 0; !*err && r < p->n_ranks; r++) {
        struct named *own = names + *n;
        const struct sw_load_plan *plan = p->loads[r];

        for (uint32_t s = 0; s < p->ranks[r].n_sources; s++)
            own[s] = (struct named){p->ranks[r].sources[s].name, UINT32_MAX};
        *n += p->ranks[r].n_sources;
        for (uint32_t i = 0; !*err && i < plan->n_checks; i++) {
            if (plan->checks[i].source >= p->ranks[r].n_sources)
                *err = wrong(e, "an alias check names a source that there is not", plan->rank);
            else
                own[plan->checks[i].source].set = plan->checks[i].set;
        }
    }
    if (*err) {
        free(names);
        return NULL;
    }
    qsort(names, *n, sizeof(*names), named_compare);
    return names;
}

/* Of n parameters of one storage, all that are sources must be in one alias set. */
static int check_set(const struct sw_plan_target *t, const struct declared *d, uint32_t n,
    const struct named *names, size_t n_names, struct sw_error *e)
{
    const struct named *first = NULL;

    for (uint32_t i = 0; i < n; i++) {
        const struct named *found = find_named(names, n_names, d[i].parameter->name);

        if (found && first && (found->set == UINT32_MAX || found->set != first->set))
            return bad_byte(t, &d[i], d[i].start, "its aliases' sources are not compared", e);
        first = found ? found : first;
    }
    return 0;
}

static bool has_aliases(const struct proof *p)
{
    for (uint32_t i = 0; i < p->n_targets; i++)
        for (uint32_t j = 0; j < p->targets[i].n_parameters; j++)
            if (p->targets[i].parameters[j].alias_of)
                return true;
    return false;
}

/* ---- all of it ---- */

static int prove_target(const struct proof *p, const struct sw_plan_target *t,
    const struct named *names, size_t n_names, struct sw_error *e)
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
    for (uint32_t i = 0, k; !err && names && i < n_declared; i += k) {
        for (k = 1; i + k < n_declared && !declared_compare(&d[i], &d[i + k]);)
            k++;
        err = check_set(t, &d[i], k, names, n_names, e);
    }
    free(items);
    free(d);
    return err;
}

static int prove(struct proof *p, struct sw_error *e)
{
    struct named *names = NULL;
    size_t n_names = 0;
    int err = prove_loads(p, e);

    if (!err && has_aliases(p))
        names = list_names(p, &n_names, &err, e);
    for (uint32_t i = 0; !err && i < p->n_targets; i++)
        err = prove_target(p, &p->targets[i], names, n_names, e);
    for (uint32_t w = 0; !err && w < p->n_writes; w++) {
        bool found = false;

        for (uint32_t i = 0; i < p->n_targets; i++)
            found = found || p->targets[i].target == p->writes[w]->target;
        if (!found)
            err = wrong(e, "a write program is for a target that there is not", p->writes[w]->rank);
    }
    free(names);
    return err;
}

int sw_plan_prove(const struct sw_plan_rank *ranks, uint32_t n_ranks,
    const struct sw_load_plan *const *loads, const struct sw_plan_target *targets,
    uint32_t n_targets, const struct sw_write_plan *const *writes, uint32_t n_writes,
    struct sw_error *e)
{
    struct proof p = {.ranks = ranks,
        .loads = loads,
        .targets = targets,
        .writes = writes,
        .n_ranks = n_ranks,
        .n_targets = n_targets,
        .n_writes = n_writes,
        .filled = calloc((size_t)n_ranks + 1, sizeof(*p.filled))};
    int err = p.filled ? prove(&p, e) : no_memory(e);

    for (uint32_t r = 0; p.filled && r < n_ranks; r++)
        free(p.filled[r].fills);
    free(p.filled);
    return err;
}
