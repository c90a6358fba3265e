/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes out the load program of one trainer rank: a tile and a load for each of its cells, in the
 * order of the replica; what equal loads do is said once, as a template.
 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"
#include "common/limits.h"
#include "trainerd/plan/checks.h"
#include "trainerd/plan/grids.h"
#include "trainerd/plan/layout.h"
#include "trainerd/plan/own.h"

#define CACHE_SIZE 4096u /* a power of two */

struct cached { /* the template of loads of one format, box, cell and group */
    uint32_t format, box, cell, group, tmpl;
};

struct writer {
    const struct sw_layout *l;
    const struct sw_compact *c;
    const struct sw_plan_rank *rank;
    const struct sw_source_list *list;
    uint32_t position;
    uint32_t *tensor; /* by catalogue entry: number in the rank's list; SW_NONE */
    struct sw_own own;
    const struct sw_grids *grids;
    uint32_t *grid;   /* by item of grids: number in the program */
    uint32_t *place;  /* by run: index into starts */
    uint32_t *starts; /* the first tile of each of the rank's cells in each run */
    uint32_t n_starts;
    struct cached *cache;
    uint32_t *table, mask; /* templates + 1, by hash of what they say */
    uint32_t templates_size;
    struct sw_load_plan *out;
};

static int no_memory(const struct writer *w, struct sw_error *e)
{
    return sw_fail(
        e, SW_ERR_NOMEM, "no memory for the load program of trainer rank %u", w->rank->rank);
}

/* ---- where tiles lie ---- */

struct start { /* a cell of the rank in one run */
    uint64_t base;
    uint32_t wave, run, cell, place;
};

static int start_compare(const void *a, const void *b)
{
    const struct start *x = a, *y = b;

    if (x->wave != y->wave)
        return x->wave < y->wave ? -1 : 1;
    if (x->base != y->base)
        return x->base < y->base ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

static uint32_t own_cells(const struct writer *w, uint32_t split)
{
    return w->own.first[split + 1] - w->own.first[split];
}

/* Numbers tiles by their place in the replica: each run's tiles are neighbours. */
static int order_runs(struct writer *w, struct sw_error *e)
{
    const struct sw_compact *c = w->c;
    struct start *starts;
    uint64_t tiles = 0;
    uint32_t n = 0;

    w->place = calloc((size_t)c->n_runs + 1, sizeof(*w->place));
    for (uint32_t r = 0; w->place && r < c->n_runs; r++) {
        w->place[r] = w->n_starts;
        w->n_starts += own_cells(w, c->runs[r].split);
    }
    w->starts = calloc((size_t)w->n_starts + 1, sizeof(*w->starts));
    starts = calloc((size_t)w->n_starts + 1, sizeof(*starts));
    if (!w->place || !w->starts || !starts) {
        free(starts);
        return no_memory(w, e);
    }
    for (uint32_t r = 0; r < c->n_runs; r++) {
        const struct sw_slab_run *run = &c->runs[r];

        for (uint32_t i = 0; i < own_cells(w, run->split); i++, n++) {
            const uint32_t cell = w->own.cells[w->own.first[run->split] + i];

            starts[n] = (struct start){
                c->bases[run->first + (cell - c->splits[run->split].first)], run->wave, r, cell, n};
        }
    }
    qsort(starts, n, sizeof(*starts), start_compare);
    for (uint32_t i = 0; i < n; i++) {
        w->starts[starts[i].place] = (uint32_t)tiles;
        tiles += c->runs[starts[i].run].n;
        if (tiles > SW_EXTENTS_MAX)
            break;
    }
    free(starts);
    if (tiles > SW_EXTENTS_MAX)
        return sw_fail(e, SW_ERR_LIMIT,
            "trainer rank %u would have more than %u tiles; spread the tensors over more ranks",
            w->rank->rank, SW_EXTENTS_MAX);
    w->out->n_tiles = w->out->n_loads = (uint32_t)tiles;
    return 0;
}

/* ---- templates ---- */

/* Dense in C order; bytes between neighbours, 0 where these are no whole bytes. */
static void dense_strides(struct sw_load_template *t)
{
    const uint64_t bits = sw_dtype_bits(t->dst_dtype);
    uint64_t elements = 1;

    for (uint32_t d = t->ndim; d-- > 0;) {
        t->dst_stride[d] = elements * bits % 8 ? 0 : elements * bits / 8;
        elements *= t->len[d];
    }
}

static void make_template(const struct writer *w, const struct sw_slab *slab,
    const struct sw_cell *cell, uint32_t group, struct sw_load_template *out)
{
    const struct sw_format *f = &w->c->formats[slab->format];
    const struct sw_box *box = &w->c->boxes[slab->box];
    struct sw_box origin = {0}; /* of what `lo` counts from */

    memset(out, 0, sizeof(*out));
    out->transform = f->transform;
    out->src_dtype = f->src_dtype;
    out->dst_dtype = f->dst_dtype;
    out->ndim = box->ndim;
    if (f->transform == SW_TRANSFORM_FP8_SCALES)
        sw_grid_span(&w->rank->boxes[group], f->block, &origin);
    else if (f->transform != SW_TRANSFORM_ZERO)
        origin = w->rank->boxes[group];
    for (uint32_t d = 0; d < box->ndim; d++) {
        out->lo[d] =
            f->transform == SW_TRANSFORM_ZERO ? 0 : box->lo[d] + cell->box.lo[d] - origin.lo[d];
        out->len[d] = cell->box.len[d];
    }
    dense_strides(out);
}

static int grow_templates(struct writer *w, struct sw_error *e)
{
    const uint32_t size = w->templates_size ? w->templates_size * 2 : 64;
    struct sw_load_template *more = realloc(w->out->templates, size * sizeof(*more));
    uint32_t *table = calloc((size_t)size * 4, sizeof(*table));

    if (more)
        w->out->templates = more;
    if (!more || !table) {
        free(table);
        return no_memory(w, e);
    }
    free(w->table);
    w->table = table;
    w->mask = size * 4 - 1;
    w->templates_size = size;
    for (uint32_t i = 0; i < w->out->n_templates; i++) {
        uint32_t at = (uint32_t)XXH3_64bits(&more[i], sizeof(*more)) & w->mask;

        while (table[at])
            at = (at + 1) & w->mask;
        table[at] = i + 1;
    }
    return 0;
}

static int find_template(
    struct writer *w, const struct sw_load_template *t, uint32_t *number, struct sw_error *e)
{
    uint32_t at;

    if (w->out->n_templates == w->templates_size && grow_templates(w, e))
        return SW_ERR_NOMEM;
    for (at = (uint32_t)XXH3_64bits(t, sizeof(*t)) & w->mask; w->table[at]; at = (at + 1) & w->mask)
        if (!memcmp(&w->out->templates[w->table[at] - 1], t, sizeof(*t))) {
            *number = w->table[at] - 1;
            return 0;
        }
    w->out->templates[w->out->n_templates] = *t;
    w->table[at] = ++w->out->n_templates;
    *number = w->out->n_templates - 1;
    return 0;
}

/* The template of a load. Most are like one that was just looked up. */
static int load_template(struct writer *w, const struct sw_slab *slab, uint32_t cell,
    uint32_t group, uint32_t *number, struct sw_error *e)
{
    const uint32_t key[] = {slab->format, slab->box, cell, group};
    struct cached *hit = &w->cache[XXH3_64bits(key, sizeof(key)) & (CACHE_SIZE - 1)];
    struct sw_load_template t;

    if (hit->tmpl && hit->format == slab->format && hit->box == slab->box && hit->cell == cell &&
        hit->group == group) {
        *number = hit->tmpl - 1;
        return 0;
    }
    make_template(w, slab, &w->c->cells[cell], group, &t);
    if (find_template(w, &t, number, e))
        return SW_ERR_NOMEM;
    *hit = (struct cached){slab->format, slab->box, cell, group, *number + 1};
    return 0;
}

/* ---- grids ---- */

static int not_held(const struct writer *w, uint32_t entry, struct sw_error *e)
{
    return sw_fail(e, SW_ERR_PLAN,
        "the plan is wrong (a defect, please report it): trainer rank %u loads %s, which it does "
        "not hold",
        w->rank->rank, w->c->entries[entry].name);
}

static int add_class(
    struct writer *w, const struct sw_grid_class *class, bool shared, struct sw_error *e)
{
    const struct sw_box *held = sw_grid_held(w->c, class->entry, w->position);
    struct sw_box span;

    if (!held)
        return not_held(w, class->entry, e);
    sw_grid_span(held, class->block, &span);
    for (uint32_t i = 0; i < class->n_items; i++) {
        const uint32_t item = class->first_item + i;

        w->grid[item] = w->out->n_grids;
        w->out->grids[w->out->n_grids++] =
            (struct sw_grid){.source = w->tensor[w->grids->items[item]],
                .block = {class->block[0], class->block[1]},
                .scale = class->scale,
                .shared = shared,
                .first = shared ? w->out->n_maxima : 0};
        w->out->n_maxima += shared ? sw_grid_count(&span) : 0;
    }
    return 0;
}

static int make_grids(struct writer *w, struct sw_error *e)
{
    struct sw_touches touches = {0};
    int err = 0;

    w->grid = calloc((size_t)w->grids->n_items + 1, sizeof(*w->grid));
    w->out->grids = calloc((size_t)w->grids->n_items + 1, sizeof(*w->out->grids));
    if (!w->grid || !w->out->grids)
        return no_memory(w, e);
    for (uint32_t i = 0; !err && i < w->grids->n_classes; i++) {
        const struct sw_grid_class *class = &w->grids->classes[i];
        bool needs, shared;

        err = sw_grids_touches(w->c, w->grids, class, &touches, e);
        if (err)
            break;
        sw_touches_need(&touches, w->position, &needs, &shared);
        if (needs)
            err = add_class(w, class, shared, e);
    }
    sw_touches_free(&touches);
    return err;
}

/* ---- loads ---- */

static int add_load(
    struct writer *w, uint32_t number, uint32_t i, uint32_t cell, struct sw_error *e)
{
    const struct sw_slab *slab = &w->c->slabs[number];
    const struct sw_slab_run *run = &w->c->runs[slab->run];
    const uint32_t tile = w->starts[w->place[slab->run] + i] + slab->at;
    const uint32_t item = w->grids->item_of[number];
    const uint64_t bytes = w->c->cells[cell].bytes;
    uint32_t source = UINT32_MAX, tmpl;

    if (slab->source != SW_NONE) {
        source = w->tensor[slab->source];
        if (source == SW_NONE)
            return not_held(w, slab->source, e);
    }
    if (load_template(
            w, slab, cell, source == UINT32_MAX ? SW_NONE : w->list->group[source], &tmpl, e))
        return SW_ERR_NOMEM;
    w->out->tiles[tile] = (struct sw_tile){
        w->c->bases[run->first + (cell - w->c->splits[run->split].first)] + slab->at * bytes,
        bytes};
    w->out->loads[tile] = (struct sw_load){.source = source,
        .tmpl = tmpl,
        .tile = tile,
        .grid = item == SW_NONE ? UINT32_MAX : w->grid[item]};
    return 0;
}

static int add_loads(struct writer *w, struct sw_error *e)
{
    const struct sw_compact *c = w->c;
    int err = 0;

    w->out->tiles = calloc((size_t)w->out->n_tiles + 1, sizeof(*w->out->tiles));
    w->out->loads = calloc((size_t)w->out->n_loads + 1, sizeof(*w->out->loads));
    w->cache = calloc(CACHE_SIZE, sizeof(*w->cache));
    if (!w->out->tiles || !w->out->loads || !w->cache)
        return no_memory(w, e);
    for (uint32_t s = 0; !err && s < c->n_slabs; s++) {
        const uint32_t first = w->own.first[c->slabs[s].split];
        const uint32_t n = own_cells(w, c->slabs[s].split);

        for (uint32_t i = 0; !err && i < n; i++)
            err = add_load(w, s, i, w->own.cells[first + i], e);
    }
    return err;
}

/* ---- all of it ---- */

static int find_tensors(struct writer *w, struct sw_error *e)
{
    const struct sw_layout_list *list = &w->l->lists[w->l->rank_list[w->position]];

    w->tensor = malloc(((size_t)w->c->n_entries + 1) * sizeof(*w->tensor));
    if (!w->tensor)
        return no_memory(w, e);
    for (uint32_t i = 0; i < w->c->n_entries; i++)
        w->tensor[i] = SW_NONE;
    for (uint32_t i = 0; i < list->list->n; i++)
        if (list->entry[i] != SW_NONE)
            w->tensor[list->entry[i]] = i;
    w->list = list->list;
    return 0;
}

static int write_out(struct writer *w, struct sw_error *e)
{
    int err = find_tensors(w, e);

    w->out->rank = w->rank->rank;
    w->out->replica_bytes = w->c->replica_bytes[w->position];
    if (!err)
        err = sw_own_make(w->c, w->position, &w->own, e);
    if (!err)
        err = order_runs(w, e);
    if (!err)
        err = make_grids(w, e);
    if (!err)
        err = add_loads(w, e);
    if (!err)
        err = sw_checks_make(w->l, w->position, &w->out->checks, &w->out->n_checks, e);
    return err;
}

int sw_layout_load(
    const struct sw_layout *l, uint32_t i, struct sw_load_plan *out, struct sw_error *e)
{
    struct sw_load_plan plan = {0};
    struct writer w = {.l = l, .c = &l->c, .grids = &l->grids, .position = i, .out = &plan};
    int err;

    if (i >= l->n_ranks)
        return sw_fail(
            e, SW_ERR_NOT_FOUND, "there is no %u-th trainer rank; there are %u", i, l->n_ranks);
    w.rank = &l->ranks[i];
    err = write_out(&w, e);
    free(w.tensor);
    free(w.grid);
    free(w.place);
    free(w.starts);
    free(w.cache);
    free(w.table);
    sw_own_free(&w.own);
    if (err) {
        sw_load_plan_clear(&plan);
        return err;
    }
    *out = plan;
    return 0;
}

void sw_load_plan_clear(struct sw_load_plan *p)
{
    free(p->templates);
    free(p->loads);
    free(p->grids);
    free(p->checks);
    free(p->tiles);
    *p = (struct sw_load_plan){0};
}
