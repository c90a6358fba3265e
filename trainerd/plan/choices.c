/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/choices.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"
#include "trainerd/plan/grid.h"

struct maker {
    struct sw_choices *c;
    struct sw_layout *l;
    const struct sw_boxes *boxes;
    const struct sw_format *formats;
};

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory for the choices of who sends what");
}

void sw_choices_free(struct sw_choices *c)
{
    free(c->items);
    free(c->variants);
    free(c->sets);
    free(c->ranks);
    sw_index_free(&c->index);
    sw_index_free(&c->set_index);
    sw_index_free(&c->split_index);
    *c = (struct sw_choices){0};
}

/* ---- sets of ranks ---- */

static bool same_set(const void *arg, uint32_t item, const void *key)
{
    const struct sw_choices *c = arg;
    const struct sw_rank_set *a = &c->sets[item], *b = key;

    return a->n == b->n &&
           !memcmp(c->ranks + a->first, c->ranks + b->first, a->n * sizeof(uint32_t));
}

static int push_rank(struct sw_choices *c, uint32_t rank)
{
    if (sw_array_room(&c->ranks, &c->ranks_size, c->n_ranks, sizeof(*c->ranks)))
        return -1;
    c->ranks[c->n_ranks++] = rank;
    return 0;
}

/* Keeps the ranks pushed from `first` on as a set, unless there is an equal one. */
static int keep_set(struct sw_choices *c, uint32_t first, uint32_t *set)
{
    const struct sw_rank_set key = {first, c->n_ranks - first};
    const uint64_t hash = XXH3_64bits(c->ranks + first, key.n * sizeof(*c->ranks));

    *set = sw_index_find(&c->set_index, hash, same_set, c, &key);
    if (*set != SW_NONE) {
        c->n_ranks = first;
        return 0;
    }
    if (sw_array_room(&c->sets, &c->sets_size, c->n_sets, sizeof(*c->sets)) ||
        sw_index_add(&c->set_index, hash, c->n_sets))
        return -1;
    c->sets[c->n_sets] = key;
    *set = c->n_sets++;
    return 0;
}

/* ---- splits ---- */

struct split_key { /* cells at the end of the layout's, perhaps equal to a split's */
    uint32_t first, n;
};

static bool same_split(const void *arg, uint32_t item, const void *key)
{
    const struct sw_compact *c = arg;
    const struct sw_split *a = &c->splits[item];
    const struct split_key *b = key;

    /* The last cell is the slab's box and format in disguise (close_split). */
    return a->n == b->n &&
           !memcmp(c->cells + a->first, c->cells + b->first, (a->n + 1) * sizeof(*c->cells));
}

static struct sw_cell *push_cell(struct maker *m)
{
    struct sw_compact *plan = &m->l->c;

    if (sw_array_room(&plan->cells, &m->c->cells_size, plan->n_cells, sizeof(*plan->cells)))
        return NULL;
    return memset(&plan->cells[plan->n_cells++], 0, sizeof(*plan->cells));
}

/* Keeps the cells from `first` on as a split, unless there is an equal one. A further cell, which
 * is of no split, says the slab's lengths and format: equal cells of another format differ. */
static uint32_t close_split(
    struct maker *m, uint32_t first, const struct sw_box *box, uint32_t format)
{
    struct sw_compact *plan = &m->l->c;
    const struct split_key key = {first, plan->n_cells - first};
    struct sw_cell *end = push_cell(m);
    uint64_t hash;
    uint32_t split;

    if (!end)
        return SW_NONE;
    end->rank = SW_NONE;
    end->bytes = format;
    end->box.ndim = box->ndim;
    memcpy(end->box.len, box->len, box->ndim * sizeof(*box->len));
    hash = XXH3_64bits(plan->cells + first, ((size_t)key.n + 1) * sizeof(*plan->cells));
    split = sw_index_find(&m->c->split_index, hash, same_split, plan, &key);
    if (split != SW_NONE) {
        plan->n_cells = first;
        return split;
    }
    if (sw_array_room(&plan->splits, &m->c->splits_size, plan->n_splits, sizeof(*plan->splits)) ||
        sw_index_add(&m->c->split_index, hash, plan->n_splits))
        return SW_NONE;
    plan->splits[plan->n_splits] = (struct sw_split){first, key.n};
    return plan->n_splits++;
}

/* A box in elements, relative to the slab, as the format counts: scales in blocks, each with the
 * rank that has the block's first element. */
static bool count_in(const struct sw_format *f, const struct sw_box *elements, struct sw_box *out)
{
    memset(out, 0, sizeof(*out));
    out->ndim = elements->ndim;
    for (uint32_t d = 0; d < elements->ndim; d++) {
        const uint64_t side = f->transform == SW_TRANSFORM_FP8_SCALES
                                  ? sw_block_side(f->block, elements->ndim, d)
                                  : 1;
        const uint64_t lo = (elements->lo[d] + side - 1) / side;
        const uint64_t hi = (elements->lo[d] + elements->len[d] + side - 1) / side;

        out->lo[d] = lo;
        out->len[d] = hi - lo;
        if (lo == hi)
            return false;
    }
    return true;
}

/* Adds a cell, or lengthens the one before it in the last dimension that is cut. */
static int add_cell(struct maker *m, uint32_t first, uint32_t rank, const struct sw_box *box,
    const struct sw_format *f)
{
    struct sw_compact *plan = &m->l->c;
    struct sw_cell *cell = plan->n_cells > first ? &plan->cells[plan->n_cells - 1] : NULL;
    uint32_t differs = SW_NONE, n = 0;

    for (uint32_t d = 0; cell && d < box->ndim; d++)
        if (cell->box.lo[d] != box->lo[d] || cell->box.len[d] != box->len[d]) {
            differs = d;
            n++;
        }
    if (cell && cell->rank == rank && n == 1 &&
        cell->box.lo[differs] + cell->box.len[differs] == box->lo[differs]) {
        cell->box.len[differs] += box->len[differs];
    } else {
        cell = push_cell(m);
        if (!cell)
            return -1;
        cell->rank = rank;
        cell->box.ndim = box->ndim;
        memcpy(cell->box.lo, box->lo, box->ndim * sizeof(*box->lo));
        memcpy(cell->box.len, box->len, box->ndim * sizeof(*box->len));
    }
    cell->bytes = sw_box_bytes(&cell->box, f->dst_dtype);
    return 0;
}

/* The slab's box (its lengths, at 0) in a format, from that in elements. */
static void slab_box(const struct sw_format *f, const struct sw_box *elements, struct sw_box *out)
{
    struct sw_box at = *elements;

    memset(at.lo, 0, sizeof(at.lo));
    count_in(f, &at, out);
}

static uint32_t whole_split(
    struct maker *m, const struct sw_box *elements, uint32_t format, uint32_t rank)
{
    const uint32_t first = m->l->c.n_cells;
    struct sw_box box;

    slab_box(&m->formats[format], elements, &box);
    if (add_cell(m, first, rank, &box, &m->formats[format]))
        return SW_NONE;
    return close_split(m, first, &box, format);
}

/* One variant of a cut: of each cell's ranks the v-th, counted round and round. */
static uint32_t cut_split(struct maker *m, const struct sw_grid_cut *grid, uint32_t v,
    const struct sw_box *elements, uint32_t format)
{
    const struct sw_format *f = &m->formats[format];
    const uint32_t first = m->l->c.n_cells;
    struct sw_box cell, box;

    for (uint32_t i = 0; i < grid->n_cells; i++) {
        const uint32_t n = grid->first[i + 1] - grid->first[i];

        assert(n > 0); /* check_cells */
        sw_grid_cell(grid, i, &cell);
        if (count_in(f, &cell, &box) &&
            add_cell(m, first, grid->ranks[grid->first[i] + v % n], &box, f))
            return SW_NONE;
    }
    slab_box(f, elements, &box);
    return close_split(m, first, &box, format);
}

uint32_t sw_choices_split(struct sw_choices *c, struct sw_layout *l, const struct sw_boxes *boxes,
    const struct sw_format *formats, uint32_t choice, uint32_t variant)
{
    struct maker m = {c, l, boxes, formats};
    const struct sw_choice *item = &c->items[choice];
    struct sw_variant *v = &c->variants[item->first + variant];

    if (v->split == SW_NONE)
        v->split = whole_split(&m, &boxes->items[item->box], item->format, v->rank);
    return v->split;
}

/* ---- choices ---- */

static int push_variant(struct sw_choices *c, uint32_t rank, uint32_t split)
{
    if (sw_array_room(&c->variants, &c->variants_size, c->n_variants, sizeof(*c->variants)))
        return -1;
    c->variants[c->n_variants++] = (struct sw_variant){rank, split};
    return 0;
}

/* Ranks that hold the whole box. */
static int find_wholes(struct maker *m, struct sw_choice *choice, uint32_t entry)
{
    const struct sw_compact *plan = &m->l->c;
    const struct sw_box *box = &m->boxes->items[choice->box];
    const struct sw_holders *h = entry == SW_NONE ? NULL : &plan->holders[choice->pattern];
    const uint32_t first = m->c->n_ranks, n = h ? h->n : m->l->n_ranks;

    for (uint32_t i = 0; i < n; i++) {
        const struct sw_holder *holder = h ? &plan->holder_items[h->first + i] : NULL;

        if (holder && !sw_box_contains(&holder->box, box))
            continue;
        if (push_rank(m->c, holder ? holder->rank : i) ||
            push_variant(m->c, holder ? holder->rank : i, SW_NONE))
            return -1;
    }
    choice->n = m->c->n_variants - choice->first;
    choice->whole = choice->n > 0;
    return choice->whole ? keep_set(m->c, first, &choice->set) : 0;
}

static int nobody_holds(const struct maker *m, uint32_t entry, const struct sw_choice *choice,
    const struct sw_grid_cut *grid, uint32_t cell, struct sw_error *e)
{
    const struct sw_catalogue_entry *source = &m->l->c.entries[entry];
    const struct sw_box *box = &m->boxes->items[choice->box];
    struct sw_box missing;
    char a[256], b[160];

    sw_grid_cell(grid, cell, &missing);
    for (uint32_t d = 0; d < missing.ndim; d++)
        missing.lo[d] += box->lo[d];
    return sw_fail(e, SW_ERR_PLAN,
        "no trainer rank holds %s of source %s, which is %s: the ranks' boxes leave it out",
        sw_box_text(&missing, a, sizeof(a)), source->name,
        sw_tensor_text(source->dtype, source->ndim, source->shape, b, sizeof(b)));
}

static int check_cells(const struct maker *m, uint32_t entry, const struct sw_choice *choice,
    const struct sw_grid_cut *grid, struct sw_error *e)
{
    const unsigned bits = sw_dtype_bits(m->formats[choice->format].dst_dtype);
    const uint32_t last = grid->ndim ? grid->ndim - 1 : 0;

    for (uint32_t i = 0; i < grid->n_cells; i++)
        if (grid->first[i] == grid->first[i + 1])
            return nobody_holds(m, entry, choice, grid, i, e);
    for (uint32_t i = 0; grid->ndim && i <= grid->n[last]; i++)
        if (grid->ends[last][i] % 8 * bits % 8)
            return sw_fail(e, SW_ERR_PLAN,
                "source %s: the ranks' boxes end inside a byte (column %llu of %u-bit elements)",
                m->l->c.entries[entry].name,
                (unsigned long long)(m->boxes->items[choice->box].lo[last] + grid->ends[last][i]),
                bits);
    return 0;
}

/* A set that says, variant by variant, which ranks it takes. */
static int cut_set(struct maker *m, struct sw_choice *choice)
{
    const struct sw_compact *plan = &m->l->c;
    const uint32_t first = m->c->n_ranks;

    for (uint32_t v = 0; v < choice->n; v++) {
        const struct sw_split *split = &plan->splits[m->c->variants[choice->first + v].split];

        if (push_rank(m->c, SW_NONE))
            return -1;
        for (uint32_t i = 0; i < split->n; i++)
            if (push_rank(m->c, plan->cells[split->first + i].rank))
                return -1;
    }
    return keep_set(m->c, first, &choice->set);
}

static int find_cut(struct maker *m, struct sw_choice *choice, uint32_t entry, struct sw_error *e)
{
    const struct sw_holders *h = &m->l->c.holders[choice->pattern];
    const struct sw_box *box = &m->boxes->items[choice->box];
    struct sw_grid_cut grid;
    int err = sw_grid_make(m->l->c.holder_items + h->first, h->n, box, &grid, e);

    if (err)
        return sw_error_context(e, err, "source %s", m->l->c.entries[entry].name);
    err = check_cells(m, entry, choice, &grid, e);
    for (uint32_t v = 0; !err && v < grid.most; v++) {
        const uint32_t split = cut_split(m, &grid, v, box, choice->format);

        if (split == SW_NONE || push_variant(m->c, SW_NONE, split))
            err = no_memory(e);
        choice->n++;
    }
    sw_grid_free(&grid);
    if (!err && cut_set(m, choice))
        err = no_memory(e);
    return err;
}

static bool same_choice(const void *arg, uint32_t item, const void *key)
{
    const struct sw_choice *a = &((const struct sw_choices *)arg)->items[item], *b = key;

    return a->pattern == b->pattern && a->box == b->box && a->format == b->format;
}

int sw_choices_get(struct sw_choices *c, struct sw_layout *l, const struct sw_boxes *boxes,
    uint32_t entry, uint32_t box, const struct sw_format *formats, uint32_t format,
    uint32_t *choice, struct sw_error *e)
{
    struct maker m = {c, l, boxes, formats};
    struct sw_choice item = {.pattern = entry == SW_NONE ? SW_NONE : l->c.entries[entry].holders,
        .box = box,
        .format = format,
        .first = c->n_variants,
        .set = SW_NONE};
    const uint32_t key[] = {item.pattern, box, format};
    const uint64_t hash = XXH3_64bits(key, sizeof(key));
    int err = 0;

    *choice = sw_index_find(&c->index, hash, same_choice, c, &item);
    if (*choice != SW_NONE)
        return 0;
    if (find_wholes(&m, &item, entry))
        return no_memory(e);
    if (!item.whole && entry == SW_NONE)
        return sw_fail(e, SW_ERR_PLAN, "there are no trainer ranks to hold zeros");
    if (!item.whole)
        err = find_cut(&m, &item, entry, e);
    if (err)
        return err;
    if (sw_array_room(&c->items, &c->size, c->n, sizeof(*c->items)) ||
        sw_index_add(&c->index, hash, c->n))
        return no_memory(e);
    c->items[c->n] = item;
    *choice = c->n++;
    return 0;
}
