/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where tiles lie. Slabs of one split that follow each other are a run. What touches in the engine
 * touches in the replica, so that writes merge; what doesn't begins at a multiple of 256. With a
 * limit a rank begins a further wave, at 0, when its replica is full.
 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/limits.h"
#include "trainerd/plan/build.h"

#define TILE_ALIGN 256u

struct filling { /* how far a rank's replica is filled */
    uint64_t used;
    uint32_t wave, last; /* the slab laid last in this wave, or SW_NONE */
    uint64_t cell_bytes; /* of one split at a time: this rank's cells */
    uint32_t cells;
};

struct layer {
    struct sw_build *b;
    const struct sw_order *order;
    struct filling *ranks;
    uint64_t limit;
    uint32_t runs_size;
    uint64_t bases_size;
};

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory to lay out replicas");
}

static uint64_t align(uint64_t at)
{
    return (at + TILE_ALIGN - 1) / TILE_ALIGN * TILE_ALIGN;
}

/* ---- what follows in the engine ---- */

/* Whether a box's elements are one piece of a parameter, whose last dimensions it has. */
static bool is_one_piece(const struct sw_parameter *p, const struct sw_box *box)
{
    bool longer = false; /* some dimension before is longer than 1 */

    for (uint32_t d = 0; d < box->ndim; d++) {
        if (longer && (d + p->ndim < box->ndim || box->len[d] != p->shape[d + p->ndim - box->ndim]))
            return false;
        longer |= box->len[d] > 1;
    }
    return true;
}

/* Whether slab `next` follows slab `slab` in the engine that gave the order. */
static bool follows(const struct layer *y, uint32_t slab, uint32_t next)
{
    const struct sw_build *b = y->b;
    const struct sw_compact *c = &b->l->c;
    const struct sw_want *v = &c->wants[b->first_want[slab]], *w = &c->wants[b->first_want[next]];
    const uint32_t kind = sw_build_kind_of(c, b->first_want[slab]);
    const struct sw_plan_target *t = &b->targets[c->kinds[kind].target];
    const struct sw_parameter *p = &t->parameters[v->parameter], *q;

    if (b->first_want[next] < c->kinds[kind].first ||
        b->first_want[next] >= c->kinds[kind].first + c->kinds[kind].n)
        return false;
    q = &t->parameters[w->parameter];
    return p->region == q->region &&
           p->offset + v->offset + sw_build_bytes(b, &b->slabs.items[slab]) ==
               q->offset + w->offset &&
           is_one_piece(p, &b->w.boxes.items[b->slabs.items[slab].box]);
}

/* ---- runs ---- */

static int add_base(struct layer *y, uint64_t base)
{
    struct sw_compact *c = &y->b->l->c;

    if (c->n_bases == y->bases_size) {
        const uint64_t size = y->bases_size + y->bases_size / 2 + 16;
        uint64_t *more = realloc(c->bases, size * sizeof(*more));

        if (!more)
            return -1;
        c->bases = more;
        y->bases_size = size;
    }
    c->bases[c->n_bases++] = base;
    return 0;
}

static int add_run(struct layer *y, uint32_t split, uint32_t wave, uint32_t n)
{
    struct sw_compact *c = &y->b->l->c;

    if (sw_array_room(&c->runs, &y->runs_size, c->n_runs, sizeof(*c->runs)))
        return -1;
    c->runs[c->n_runs++] = (struct sw_slab_run){split, wave, n, c->n_bases};
    return 0;
}

static void put_slab(struct layer *y, uint32_t i, uint32_t run, uint32_t at)
{
    const uint32_t slab = y->order[i].slab;
    const struct sw_slab_key *key = &y->b->slabs.items[slab];
    struct sw_compact *c = &y->b->l->c;

    c->slabs[i] = (struct sw_slab){.source = key->entry,
        .format = key->format,
        .box = key->box,
        .split = y->b->variant[slab],
        .run = run,
        .at = at,
        .wave = c->runs[run].wave};
}

static void fill(struct layer *y, uint32_t rank, uint64_t used)
{
    uint64_t *most = &y->b->l->c.replica_bytes[rank];

    y->ranks[rank].used = used;
    *most = used > *most ? used : *most;
}

static void next_wave(struct layer *y, uint32_t rank, uint32_t wave)
{
    struct filling *f = &y->ranks[rank];

    if (f->wave < wave)
        *f = (struct filling){.wave = wave, .last = SW_NONE};
}

static const char *slab_name(const struct layer *y, uint32_t slab)
{
    const uint32_t entry = y->b->slabs.items[slab].entry;

    return entry == SW_NONE ? "a parameter's padding" : y->b->l->c.entries[entry].name;
}

static int too_large(
    const struct layer *y, uint32_t slab, uint32_t rank, uint64_t bytes, struct sw_error *e)
{
    const uint32_t number = y->b->l->ranks[rank].rank;

    if (y->b->options.replica_limit && y->limit == y->b->options.replica_limit)
        return sw_fail(e, SW_ERR_LIMIT,
            "trainer rank %u: %llu bytes of %s must be in its replica at once, whose limit is %llu "
            "bytes; raise the limit or hold the tensor on more ranks",
            number, (unsigned long long)bytes, slab_name(y, slab), (unsigned long long)y->limit);
    return sw_fail(e, SW_ERR_LIMIT,
        "trainer rank %u would stage more than %llu bytes; spread the tensors over more ranks",
        number, (unsigned long long)SW_BYTES_MAX);
}

/* A slab that one rank has whole. */
static int lay_whole(struct layer *y, uint32_t i, struct sw_error *e)
{
    struct sw_compact *c = &y->b->l->c;
    const uint32_t slab = y->order[i].slab, split = y->b->variant[slab];
    const struct sw_cell *cell = &c->cells[c->splits[split].first];
    struct filling *f = &y->ranks[cell->rank];
    struct sw_slab_run *run = c->n_runs ? &c->runs[c->n_runs - 1] : NULL;
    uint64_t at = f->used;

    if (f->last == SW_NONE || !follows(y, f->last, slab))
        at = align(at);
    if (sw_range_exceeds(at, cell->bytes, y->limit)) {
        if (cell->bytes > y->limit || !y->b->options.replica_limit)
            return too_large(y, slab, cell->rank, cell->bytes, e);
        next_wave(y, cell->rank, f->wave + 1);
        at = 0;
    }
    if (run && run->split == split && run->wave == f->wave && run->n &&
        c->bases[run->first] + run->n * cell->bytes == at) {
        run->n++;
    } else {
        if (add_run(y, split, f->wave, 1) || add_base(y, at))
            return no_memory(e);
        run = &c->runs[c->n_runs - 1];
    }
    put_slab(y, i, c->n_runs - 1, run->n - 1);
    fill(y, cell->rank, at + cell->bytes);
    f->last = slab;
    return 0;
}

/* How many slabs of a split fit in the replicas of all its ranks. */
static uint32_t how_many_fit(struct layer *y, const struct sw_split *s, uint32_t n)
{
    const struct sw_cell *cells = y->b->l->c.cells + s->first;

    for (uint32_t k = 0; k < s->n; k++) {
        struct filling *f = &y->ranks[cells[k].rank];

        f->cell_bytes += cells[k].bytes;
        f->cells++;
    }
    for (uint32_t k = 0; k < s->n; k++) {
        struct filling *f = &y->ranks[cells[k].rank];
        const uint64_t used = align(f->used) + (uint64_t)(f->cells - 1) * (TILE_ALIGN - 1);
        const uint64_t room = used < y->limit ? y->limit - used : 0;

        if (room / f->cell_bytes < n)
            n = (uint32_t)(room / f->cell_bytes);
    }
    return n;
}

static void forget_cells(struct layer *y, const struct sw_split *s)
{
    for (uint32_t k = 0; k < s->n; k++) {
        struct filling *f = &y->ranks[y->b->l->c.cells[s->first + k].rank];

        f->cell_bytes = f->cells = 0;
    }
}

static int nothing_fits(
    const struct layer *y, uint32_t slab, const struct sw_split *s, struct sw_error *e)
{
    const struct sw_cell *worst = &y->b->l->c.cells[s->first];

    for (uint32_t k = 1; k < s->n; k++)
        if (y->b->l->c.cells[s->first + k].bytes > worst->bytes)
            worst = &y->b->l->c.cells[s->first + k];
    return too_large(y, slab, worst->rank, worst->bytes, e);
}

/* Slabs i .. i + n - 1, all of one split: as many as fit; *done of them. */
static int lay_cut(struct layer *y, uint32_t i, uint32_t n, uint32_t *done, struct sw_error *e)
{
    struct sw_compact *c = &y->b->l->c;
    const uint32_t slab = y->order[i].slab, split = y->b->variant[slab];
    const struct sw_split *s = &c->splits[split];
    const struct sw_cell *cells = c->cells + s->first;
    uint32_t wave = 0, fit;

    for (uint32_t k = 0; k < s->n; k++)
        wave = y->ranks[cells[k].rank].wave > wave ? y->ranks[cells[k].rank].wave : wave;
    for (;; wave++) {
        for (uint32_t k = 0; k < s->n; k++)
            next_wave(y, cells[k].rank, wave);
        fit = how_many_fit(y, s, n);
        forget_cells(y, s);
        if (fit)
            break;
        bool empty = true;
        for (uint32_t k = 0; k < s->n; k++)
            empty &= y->ranks[cells[k].rank].used == 0;
        if (empty || !y->b->options.replica_limit)
            return nothing_fits(y, slab, s, e);
    }
    if (add_run(y, split, wave, fit))
        return no_memory(e);
    for (uint32_t k = 0; k < s->n; k++) {
        const uint64_t at = align(y->ranks[cells[k].rank].used);

        if (add_base(y, at))
            return no_memory(e);
        fill(y, cells[k].rank, at + fit * cells[k].bytes);
        y->ranks[cells[k].rank].last = SW_NONE;
    }
    for (uint32_t k = 0; k < fit; k++)
        put_slab(y, i + k, c->n_runs - 1, k);
    *done = fit;
    return 0;
}

static int lay_all(struct layer *y, struct sw_error *e)
{
    const struct sw_build *b = y->b;

    for (uint32_t i = 0, n; i < b->slabs.n; i += n) {
        const struct sw_order *o = &y->order[i];
        int err;

        if (b->l->c.splits[b->variant[o->slab]].n == 1) {
            n = 1;
            err = lay_whole(y, i, e);
        } else {
            for (n = 1; i + n < b->slabs.n && o[n].mesh == o->mesh && o[n].class == o->class &&
                        o[n].owner == o->owner;)
                n++;
            err = lay_cut(y, i, n, &n, e);
        }
        if (err)
            return err;
    }
    return 0;
}

/* ---- what isn't used goes ---- */

/* Wants get the slabs' new numbers. */
static int renumber_wants(struct layer *y, struct sw_error *e)
{
    const uint32_t n = y->b->slabs.n;
    struct sw_compact *c = &y->b->l->c;
    uint32_t *now = malloc(((size_t)n + 1) * sizeof(*now));

    if (!now)
        return no_memory(e);
    for (uint32_t i = 0; i < n; i++)
        now[y->order[i].slab] = i;
    for (uint64_t i = 0; i < c->n_wants; i++)
        c->wants[i].slab = now[c->wants[i].slab];
    free(now);
    return 0;
}

/* Keeps the splits that some slab has, and their cells. */
static int keep_used_splits(struct layer *y, struct sw_error *e)
{
    struct sw_compact *c = &y->b->l->c;
    uint32_t *now = calloc((size_t)c->n_splits + 1, sizeof(*now)), n = 0, cells = 0;

    if (!now)
        return no_memory(e);
    for (uint32_t i = 0; i < c->n_slabs; i++)
        now[c->slabs[i].split] = 1;
    for (uint32_t i = 0; i < c->n_splits; i++) {
        const struct sw_split s = c->splits[i];

        if (!now[i])
            continue;
        memmove(c->cells + cells, c->cells + s.first, s.n * sizeof(*c->cells));
        c->splits[n] = (struct sw_split){cells, s.n};
        cells += s.n;
        now[i] = n++;
    }
    c->n_splits = n;
    c->n_cells = cells;
    for (uint32_t i = 0; i < c->n_slabs; i++)
        c->slabs[i].split = now[c->slabs[i].split];
    for (uint32_t i = 0; i < c->n_runs; i++)
        c->runs[i].split = now[c->runs[i].split];
    free(now);
    sw_array_trim(&c->splits, &y->b->choices.splits_size, n, sizeof(*c->splits));
    sw_array_trim(&c->cells, &y->b->choices.cells_size, cells, sizeof(*c->cells));
    return 0;
}

int sw_build_runs(struct sw_build *b, const struct sw_order *order, struct sw_error *e)
{
    struct sw_layout *l = b->l;
    struct layer y = {.b = b, .order = order, .limit = SW_BYTES_MAX - SW_REPLICA_ALIGN};
    int err;

    if (b->options.replica_limit && b->options.replica_limit < y.limit)
        y.limit = b->options.replica_limit;
    y.ranks = calloc((size_t)l->n_ranks + 1, sizeof(*y.ranks));
    l->c.replica_bytes = calloc((size_t)l->n_ranks + 1, sizeof(*l->c.replica_bytes));
    l->c.slabs = malloc(((size_t)b->slabs.n + 1) * sizeof(*l->c.slabs));
    l->c.n_slabs = b->slabs.n;
    if (!y.ranks || !l->c.replica_bytes || !l->c.slabs) {
        free(y.ranks);
        return no_memory(e);
    }
    for (uint32_t r = 0; r < l->n_ranks; r++)
        y.ranks[r].last = SW_NONE;
    err = lay_all(&y, e);
    if (!err)
        err = renumber_wants(&y, e);
    if (!err)
        err = keep_used_splits(&y, e);
    for (uint32_t r = 0; r < l->n_ranks; r++)
        l->c.replica_bytes[r] =
            (l->c.replica_bytes[r] + SW_REPLICA_ALIGN - 1) / SW_REPLICA_ALIGN * SW_REPLICA_ALIGN;
    sw_array_trim(&l->c.runs, &y.runs_size, l->c.n_runs, sizeof(*l->c.runs));
    free(y.ranks);
    return err;
}
