/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/handmade.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COPIED, CAST, VALUES, SCALES };

static const uint32_t blocks[2] = {4, 3};

uint64_t hand_random(struct hand *h, uint64_t below)
{
    h->random = h->random * 6364136223846793005u + 1442695040888963407u;
    return below ? (h->random >> 33) % below : 0;
}

static uint64_t block_length(uint32_t ndim, uint32_t d)
{
    return d + 1 == ndim ? blocks[1] : d + 2 == ndim ? blocks[0] : 1;
}

/* ---- ranks and tensors ---- */

static void make_entries(struct hand *h)
{
    const uint32_t n_groups = 1 + (uint32_t)hand_random(h, HAND_GROUPS);
    struct sw_compact *c = &h->l.c;

    for (uint32_t g = 0; g < n_groups; g++) {
        const uint32_t n = 1 + (uint32_t)hand_random(h, HAND_ENTRIES / HAND_GROUPS);
        struct sw_catalogue_entry entry = {.dtype = SW_BF16, .holders = g};

        entry.ndim = 1 + (uint32_t)hand_random(h, 3);
        for (uint32_t d = 0; d < entry.ndim; d++)
            entry.shape[d] = 1 + hand_random(h, entry.ndim == 3 ? 8 : 24);
        for (uint32_t i = 0; i < n; i++) {
            snprintf(h->names[c->n_entries], sizeof(h->names[0]), "t%02u", c->n_entries);
            entry.name = h->names[c->n_entries];
            h->group_of[c->n_entries] = g;
            h->entries[c->n_entries++] = entry;
        }
    }
    c->n_holders = n_groups;
}

/* What the ranks hold of a group: all of it, or rows of some dimension, or a mixture. */
static void hold(struct hand *h, uint32_t g, const struct sw_catalogue_entry *entry)
{
    const uint32_t mode = (uint32_t)hand_random(h, 4), n = h->l.n_ranks;
    const uint32_t d = (uint32_t)hand_random(h, entry->ndim);
    const uint32_t parts = mode == 2 ? (n + 1) / 2 : n; /* 2: pairs hold the same */
    struct sw_box whole = {.ndim = entry->ndim};
    struct sw_compact *c = &h->l.c;

    memcpy(whole.len, entry->shape, sizeof(whole.len));
    h->holders[g].first = c->n_holder_items;
    for (uint32_t r = 0; r < n; r++) {
        const uint32_t part = mode == 2 ? r / 2 : r;
        struct sw_box box = whole;

        if (mode != 0 && !(mode == 3 && r == 0)) { /* 3: the first holds all */
            const uint64_t end = entry->shape[d] * (part + 1) / parts;

            box.lo[d] = entry->shape[d] * part / parts;
            box.len[d] = end - box.lo[d];
        }
        h->boxes[r][g] = box;
        if (box.len[d] == 0)
            continue;
        h->holder_items[c->n_holder_items++] = (struct sw_holder){r, box};
        h->holders[g].n++;
    }
}

static void make_ranks(struct hand *h)
{
    struct sw_layout *l = &h->l;
    const uint32_t a_host = 1 + (uint32_t)hand_random(h, 4);

    l->n_ranks = 1 + (uint32_t)hand_random(h, HAND_RANKS);
    l->n_lists = 2;
    for (uint32_t i = 0; i < 2; i++) {
        h->list[i] = (struct sw_source_list){.n = l->c.n_entries,
            .n_groups = l->c.n_holders,
            .tensors = h->tensors[i],
            .group = h->group[i]};
        h->lists[i] = (struct sw_layout_list){.list = &h->list[i], .entry = h->entry[i]};
        for (uint32_t k = 0; k < l->c.n_entries; k++) { /* the second list is the other way round */
            const uint32_t entry = i ? l->c.n_entries - 1 - k : k;
            struct sw_plan_tensor *t = &h->tensors[i][k];

            *t = (struct sw_plan_tensor){h->names[entry], SW_BF16, h->entries[entry].ndim, {0}};
            memcpy(t->shape, h->entries[entry].shape, sizeof(t->shape));
            h->group[i][k] = h->group_of[entry];
            h->entry[i][k] = entry;
        }
    }
    for (uint32_t r = 0; r < l->n_ranks; r++) {
        h->rank_list[r] = (uint32_t)hand_random(h, 2);
        h->ranks[r] = (struct sw_plan_rank){.rank = 10 + r,
            .host = r / a_host,
            .list = &h->list[h->rank_list[r]],
            .boxes = h->boxes[r]};
    }
    for (uint32_t i = 0; i < l->c.n_entries; i++)
        if (i == 0 || h->group_of[i] != h->group_of[i - 1])
            hold(h, h->group_of[i], &h->entries[i]);
}

/* ---- slabs ---- */

/* A box of elements whose edges are edges of blocks. */
static struct sw_box random_box(struct hand *h, const struct sw_catalogue_entry *entry)
{
    struct sw_box box = {.ndim = entry->ndim};

    for (uint32_t d = 0; d < entry->ndim; d++) {
        const uint64_t b = block_length(entry->ndim, d);
        const uint64_t n = (entry->shape[d] + b - 1) / b;
        const uint64_t lo = hand_random(h, 2) ? 0 : hand_random(h, n);
        const uint64_t len = hand_random(h, 2) ? n - lo : 1 + hand_random(h, n - lo);

        box.lo[d] = lo * b;
        box.len[d] = (lo + len) * b < entry->shape[d] ? len * b : entry->shape[d] - lo * b;
    }
    return box;
}

static struct sw_box in_blocks(const struct sw_box *box)
{
    struct sw_box out = {.ndim = box->ndim};

    for (uint32_t d = 0; d < box->ndim; d++) {
        const uint64_t b = block_length(box->ndim, d);

        out.lo[d] = box->lo[d] / b;
        out.len[d] = (box->lo[d] + box->len[d] + b - 1) / b - out.lo[d];
    }
    return out;
}

static bool holds(const struct hand *h, uint32_t group, uint32_t rank, const struct sw_box *box,
    bool all, struct sw_box *part)
{
    const struct sw_box *held = &h->boxes[rank][group];

    *part = *box;
    for (uint32_t d = 0; d < box->ndim; d++) {
        const uint64_t a = box->lo[d] + box->len[d], b = held->lo[d] + held->len[d];
        const uint64_t lo = box->lo[d] > held->lo[d] ? box->lo[d] : held->lo[d];
        const uint64_t end = a < b ? a : b;

        if (end <= lo || (all && (lo != box->lo[d] || end != a)))
            return false;
        part->lo[d] = lo;
        part->len[d] = end - lo;
    }
    return true;
}

static void add_cell(struct hand *h, uint32_t split, uint32_t rank, const struct sw_box *slab,
    const struct sw_box *box, uint32_t format)
{
    struct sw_cell *cell = &h->cells[h->l.c.n_cells++];

    *cell = (struct sw_cell){.rank = rank, .box = *box};
    cell->bytes = sw_dtype_bits(h->formats[format].dst_dtype) / 8;
    for (uint32_t d = 0; d < box->ndim; d++) {
        cell->box.lo[d] -= slab->lo[d];
        cell->bytes *= box->len[d];
    }
    h->splits[split].n++;
}

/* Scales, block by block along a dimension: each from any rank that has some of every block. */
static bool split_scales(
    struct hand *h, uint32_t split, uint32_t group, const struct sw_box *elements)
{
    const struct sw_box slab = in_blocks(elements);
    const uint32_t d = (uint32_t)hand_random(h, slab.ndim);

    for (uint64_t i = 0; i < slab.len[d]; i++) {
        const uint32_t start = (uint32_t)hand_random(h, h->l.n_ranks);
        bool found = false;

        for (uint32_t k = 0; !found && k < h->l.n_ranks; k++) {
            const uint32_t r = (start + k) % h->l.n_ranks;
            struct sw_box part, cell = slab, span = in_blocks(&h->boxes[r][group]);

            cell.lo[d] += i;
            cell.len[d] = 1;
            found = holds(h, group, r, elements, false, &part);
            for (uint32_t x = 0; x < slab.ndim; x++)
                found = found && span.lo[x] <= cell.lo[x] &&
                        span.lo[x] + span.len[x] >= cell.lo[x] + cell.len[x];
            if (found)
                add_cell(h, split, r, &slab, &cell, SCALES);
        }
        if (!found)
            return false;
    }
    return true;
}

/* One dimension's steps, each from any rank that holds it whole; steps of one rank are joined. */
static void split_elements(struct hand *h, uint32_t split, uint32_t group,
    const struct sw_box *slab, uint32_t d, uint32_t format)
{
    struct sw_box cell = *slab;
    uint32_t rank = SW_NONE;

    cell.len[d] = 0;
    for (uint64_t i = 0; i < slab->len[d]; i++) {
        struct sw_box step = *slab, part;
        const uint32_t start = (uint32_t)hand_random(h, h->l.n_ranks);

        step.lo[d] += i;
        step.len[d] = 1;
        if (rank != SW_NONE && hand_random(h, 8) && holds(h, group, rank, &step, true, &part)) {
            cell.len[d]++;
            continue;
        }
        if (rank != SW_NONE)
            add_cell(h, split, rank, slab, &cell, format);
        for (uint32_t k = 0; k < h->l.n_ranks; k++) {
            rank = (start + k) % h->l.n_ranks;
            if (holds(h, group, rank, &step, true, &part))
                break;
        }
        cell.lo[d] = step.lo[d];
        cell.len[d] = 1;
    }
    add_cell(h, split, rank, slab, &cell, format);
}

/* Along which dimension every step lies whole in some rank. */
static uint32_t cut_dimension(const struct hand *h, uint32_t group, uint32_t ndim)
{
    for (uint32_t r = 1; r < h->l.n_ranks; r++)
        for (uint32_t d = 0; d < ndim; d++)
            if (h->boxes[r][group].len[d] != h->boxes[0][group].len[d] ||
                h->boxes[r][group].lo[d] != h->boxes[0][group].lo[d])
                return d;
    return 0;
}

/* The slabs of one format and box of all tensors of a group, in one or two runs. */
static void add_slabs(struct hand *h, uint32_t group, uint32_t box, uint32_t format, uint32_t split)
{
    struct sw_compact *c = &h->l.c;
    uint32_t first = c->n_slabs, n = 0;

    for (uint32_t i = 0; i < c->n_entries; i++) {
        if (h->group_of[i] != group)
            continue;
        h->slabs[c->n_slabs++] =
            (struct sw_slab){.source = i, .format = format, .box = box, .split = split};
        n++;
    }
    while (n > 0) {
        const uint32_t some = 1 + (uint32_t)hand_random(h, n);
        const struct sw_split *s = &h->splits[split];
        struct sw_slab_run *run = &h->runs[c->n_runs];

        *run = (struct sw_slab_run){.split = split, .n = some, .first = c->n_bases};
        for (uint32_t i = 0; i < some; i++) {
            h->slabs[first + i].run = c->n_runs;
            h->slabs[first + i].at = i;
        }
        for (uint32_t i = 0; i < s->n; i++) {
            const struct sw_cell *cell = &h->cells[s->first + i];
            uint64_t *end = &h->replica_bytes[cell->rank];

            *end += hand_random(h, 2) ? 0 : hand_random(h, 40);
            h->bases[c->n_bases++] = *end;
            *end += some * cell->bytes;
        }
        c->n_runs++;
        first += some;
        n -= some;
    }
}

/* ---- parameters ---- */

/* A parameter of the slabs of a run of one format: side by side along a dimension, or stacked. */
static void add_parameter(struct hand *h, uint32_t kind, uint32_t number, uint32_t first,
    uint32_t n, struct sw_parameter *p)
{
    const struct sw_slab *slab = &h->slabs[first];
    const struct sw_box *box = &h->slab_boxes[slab->box];
    const uint32_t along = (uint32_t)hand_random(h, box->ndim + 1);
    struct hand_parameter *made = &h->made[h->n_parameters++];
    const bool stacked = along == box->ndim;

    *p = (struct sw_parameter){
        .name = "p", .dtype = h->formats[slab->format].dst_dtype, .ndim = box->ndim + stacked};
    for (uint32_t d = 0; d < box->ndim; d++)
        p->shape[d + stacked] = box->len[d];
    p->shape[stacked ? 0 : along] = stacked ? n : n * box->len[along];
    *made = (struct hand_parameter){.kind = kind, .number = number, .n = n};
    for (uint32_t i = 0; i < n; i++) {
        struct sw_want *want = &h->wants[h->l.c.n_wants++];
        uint64_t stride = sw_dtype_bits(p->dtype) / 8;

        made->pieces[i] = (struct hand_piece){
            .entry = h->slabs[first + i].source, .format = slab->format, .box = *box};
        made->pieces[i].to[stacked ? 0 : along] = stacked ? i : i * box->len[along];
        *want = (struct sw_want){.slab = first + i, .parameter = number};
        for (uint32_t d = p->ndim; d-- > 0;) {
            want->offset += made->pieces[i].to[d] * stride;
            stride *= p->shape[d];
        }
    }
}

static void make_kinds(struct hand *h)
{
    struct sw_compact *c = &h->l.c;

    c->n_kinds = 1 + (uint32_t)hand_random(h, HAND_KINDS);
    for (uint32_t k = 0; k < c->n_kinds; k++) {
        uint32_t n = 0;

        h->kinds[k].first = c->n_wants;
        for (uint32_t s = 0, some; s < c->n_slabs && n < HAND_PARAMETERS; s += some) {
            const uint32_t split = h->slabs[s].split;

            for (some = 1; s + some < c->n_slabs && h->slabs[s + some].split == split;)
                some++;
            if (hand_random(h, 4) == 0)
                continue;
            h->expert[k][n] = hand_random(h, 3) == 0;
            add_parameter(h, k, n, s, some, &h->parameters[k][n]);
            n++;
        }
        h->kinds[k].n = c->n_wants - h->kinds[k].first;
        h->kinds[k].target = k;
        h->known[k] = (struct sw_layout_kind){.n = n, .expert = h->expert[k]};
    }
}

/* Parameters in any order, some with gaps between them. */
static void place_parameters(struct hand *h, uint32_t t, uint32_t kind)
{
    const uint32_t n = h->known[kind].n;
    uint32_t turn = n ? (uint32_t)hand_random(h, n) : 0;

    if (t != kind)
        memcpy(h->parameters[t], h->parameters[kind], sizeof(h->parameters[t]));
    for (uint32_t i = 0; i < n; i++, turn++) {
        struct sw_parameter *p = &h->parameters[t][turn % n];
        uint64_t *end, bytes;

        p->region = (uint32_t)hand_random(h, 2);
        end = &h->region_bytes[t][p->region];
        *end += hand_random(h, 3) ? 0 : 1 + hand_random(h, 50);
        p->offset = *end;
        sw_tensor_bytes(p->dtype, p->ndim, p->shape, &bytes);
        *end += bytes;
    }
    h->kind_of[t] = kind;
    h->targets[t] = (struct sw_plan_target){.target = 20 + t,
        .engine = "A",
        .engine_rank = t,
        .n_regions = 2,
        .region_bytes = h->region_bytes[t],
        .n_parameters = n,
        .parameters = h->parameters[t]};
}

/* ---- all of it ---- */

static void point(struct hand *h)
{
    struct sw_layout *l = &h->l;
    struct sw_compact *c = &l->c;

    l->ranks = h->ranks;
    l->rank_list = h->rank_list;
    l->lists = h->lists;
    l->known = h->known;
    l->set = h->set;
    c->entries = h->entries;
    c->holders = h->holders;
    c->holder_items = h->holder_items;
    c->formats = h->formats;
    c->n_formats = 4;
    c->boxes = h->slab_boxes;
    c->slabs = h->slabs;
    c->splits = h->splits;
    c->cells = h->cells;
    c->runs = h->runs;
    c->bases = h->bases;
    c->wants = h->wants;
    c->kinds = h->kinds;
    c->replica_bytes = h->replica_bytes;
    for (uint32_t i = 0; i < HAND_ENTRIES; i++)
        h->set[i] = SW_NONE;
}

static void add_group_slabs(struct hand *h, uint32_t group, const struct sw_catalogue_entry *entry)
{
    struct sw_compact *c = &h->l.c;
    const struct sw_box box = random_box(h, entry);
    const uint32_t d = cut_dimension(h, group, box.ndim);
    const uint32_t format = (uint32_t)hand_random(h, 3);

    h->slab_boxes[c->n_boxes++] = box;
    h->splits[c->n_splits].first = c->n_cells;
    split_elements(h, c->n_splits++, group, &box, d, format);
    add_slabs(h, group, c->n_boxes - 1, format, c->n_splits - 1);
    if (format != VALUES)
        return;
    h->slab_boxes[c->n_boxes++] = in_blocks(&box);
    h->splits[c->n_splits].first = c->n_cells;
    h->splits[c->n_splits].n = 0;
    if (split_scales(h, c->n_splits, group, &box)) {
        c->n_splits++;
        add_slabs(h, group, c->n_boxes - 1, SCALES, c->n_splits - 1);
    } else { /* no rank has some of every block: go without */
        c->n_cells = h->splits[c->n_splits].first;
        c->n_boxes--;
    }
}

struct hand *hand_make(uint64_t seed)
{
    struct hand *h = calloc(1, sizeof(*h));

    if (!h)
        abort();
    h->random = seed * 7919 + 1;
    point(h);
    h->formats[COPIED] = (struct sw_format){SW_TRANSFORM_COPY, SW_BF16, SW_BF16, {0}, 0};
    h->formats[CAST] = (struct sw_format){SW_TRANSFORM_CAST, SW_BF16, SW_F32, {0}, 0};
    h->formats[VALUES] = (struct sw_format){
        SW_TRANSFORM_FP8_VALUES, SW_BF16, SW_F8_E4M3, {blocks[0], blocks[1]}, SW_SCALE_FP32};
    h->formats[SCALES] = (struct sw_format){
        SW_TRANSFORM_FP8_SCALES, SW_BF16, SW_F32, {blocks[0], blocks[1]}, SW_SCALE_FP32};
    make_entries(h);
    make_ranks(h);
    for (uint32_t i = 0; i < h->l.c.n_entries; i++)
        if (i == 0 || h->group_of[i] != h->group_of[i - 1])
            for (uint64_t k = 1 + hand_random(h, 2); k > 0; k--)
                add_group_slabs(h, h->group_of[i], &h->entries[i]);
    make_kinds(h);
    h->n_targets = HAND_TARGETS;
    for (uint32_t t = 0; t < HAND_TARGETS; t++)
        place_parameters(h, t, t % h->l.c.n_kinds);
    if (sw_grids_make(&h->l.c, &h->l.grids, NULL))
        abort();
    return h;
}

void hand_free(struct hand *h)
{
    sw_grids_free(&h->l.grids);
    free(h);
}
