/* SPDX-License-Identifier: Apache-2.0 */
/* Making a layout: the order of the steps, and what a layout knows. */
#include "trainerd/plan/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "trainerd/plan/build.h"
#include "trainerd/plan/catalogue.h"
#include "trainerd/plan/expert_maps.h"
#include "trainerd/plan/kinds.h"
#include "trainerd/plan/lookup.h"

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory for a plan");
}

/* ---- what is wanted ---- */

static int find_kinds(struct sw_build *b, struct sw_error *e)
{
    struct sw_layout *l = b->l;
    const bool single = b->options.assignment == SW_ASSIGN_LMSYS;
    int err;

    b->kind_of = malloc(((size_t)b->n_targets + 1) * sizeof(*b->kind_of));
    if (!b->kind_of)
        return no_memory(e);
    err = sw_kinds_make(l, b->targets, b->n_targets, single, b->kind_of, e);
    if (err)
        return err;
    b->kind_targets = calloc((size_t)l->c.n_kinds + 1, sizeof(*b->kind_targets));
    b->kind_raw = calloc((size_t)l->c.n_kinds + 2, sizeof(*b->kind_raw));
    if (!b->kind_targets || !b->kind_raw)
        return no_memory(e);
    for (uint32_t i = 0; i < b->n_targets; i++)
        b->kind_targets[b->kind_of[i]]++;
    return 0;
}

static int find_wants(struct sw_build *b, struct sw_error *e)
{
    struct sw_layout *l = b->l;
    int err = sw_wanting_init(&b->w, l, true, e);

    for (uint32_t k = 0; !err && k < l->c.n_kinds; k++) {
        b->kind_raw[k] = b->w.n;
        err = sw_wanting_target(&b->w, &b->targets[l->c.kinds[k].target], &l->known[k].expert, e);
        b->kind_raw[k + 1] = b->w.n;
    }
    return err;
}

/* The parameter that wants a slab of a tensor, for messages. */
static int name_parameter(
    const struct sw_build *b, const struct sw_slab_key *slab, int code, struct sw_error *e)
{
    const struct sw_layout *l = b->l;

    for (uint32_t k = 0; k < l->c.n_kinds; k++)
        for (uint64_t i = 0; i < l->c.kinds[k].n; i++) {
            const struct sw_want *want = &l->c.wants[l->c.kinds[k].first + i];
            const struct sw_plan_target *t = &b->targets[l->c.kinds[k].target];

            if (&b->slabs.items[want->slab] == slab)
                return sw_error_context(e, code, "engine %s rank %u: parameter %s", t->engine,
                    t->engine_rank, t->parameters[want->parameter].name);
        }
    return code;
}

int sw_build_choice(
    struct sw_build *b, const struct sw_slab_key *slab, uint32_t *choice, struct sw_error *e)
{
    const struct sw_format *f = &b->w.formats[slab->format];
    uint32_t at = slab->box;
    int err;

    if (f->transform == SW_TRANSFORM_FP8_SCALES) {
        struct sw_box box;

        sw_box_of_blocks(
            &b->w.boxes.items[slab->box], f->block, b->l->c.entries[slab->entry].shape, &box);
        at = sw_boxes_add(&b->w.boxes, &box);
        if (at == SW_NONE)
            return no_memory(e);
    }
    err = sw_choices_get(
        &b->choices, b->l, &b->w.boxes, slab->entry, at, b->w.formats, slab->format, choice, e);
    return err ? name_parameter(b, slab, err, e) : 0;
}

/* ---- notes ---- */

/* Keeps the three smallest of the names seen so far. */
static void keep_smallest(const char *first[3], const char *name)
{
    for (int i = 0; i < 3; i++)
        if (!first[i] || strcmp(name, first[i]) < 0) {
            const char *larger = first[i];

            first[i] = name;
            if (!larger)
                return;
            name = larger;
        }
}

static void take_notes(const struct sw_build *b, struct sw_plan_notes *notes)
{
    const struct sw_layout *l = b->l;
    const char *first[3] = {NULL, NULL, NULL};
    size_t used = 0;

    *notes = (struct sw_plan_notes){.derived = b->w.derived};
    for (uint32_t i = 0; i < l->c.n_entries; i++)
        if (!b->w.used[i] && (!l->set || l->set[i] == SW_NONE)) {
            notes->unused++;
            keep_smallest(first, l->c.entries[i].name);
        }
    for (int i = 0; i < 3 && first[i] && used < sizeof(notes->unused_names); i++)
        used += (size_t)snprintf(notes->unused_names + used, sizeof(notes->unused_names) - used,
            "%s%s", i ? ", " : "", first[i]);
}

/* ---- all of it ---- */

/* What is no longer needed once slabs and wants are there. */
static void drop_raw(struct sw_build *b)
{
    free(b->w.raw);
    b->w.raw = NULL;
    b->w.n = b->w.size = 0;
    sw_index_free(&b->w.names);
}

/* Boxes and formats become the layout's. */
static int hand_over(struct sw_build *b, struct sw_error *e)
{
    struct sw_compact *c = &b->l->c;

    c->formats = malloc((size_t)(b->w.n_formats + 1) * sizeof(*c->formats));
    if (!c->formats)
        return no_memory(e);
    memcpy(c->formats, b->w.formats, b->w.n_formats * sizeof(*c->formats));
    c->n_formats = b->w.n_formats;
    c->boxes = b->w.boxes.items;
    c->n_boxes = b->w.boxes.n;
    b->w.boxes.items = NULL;
    sw_array_trim(&c->boxes, &b->w.boxes.size, c->n_boxes, sizeof(*c->boxes));
    return 0;
}

static int lay_out(struct sw_build *b, struct sw_error *e)
{
    struct sw_order *order = NULL;
    int err = sw_build_order(b, &order, e);

    if (!err)
        err = sw_build_runs(b, order, e);
    free(order);
    return err;
}

static int build(struct sw_build *b, const struct sw_plan_rank *ranks, uint32_t n_ranks,
    struct sw_plan_notes *notes, struct sw_error *e)
{
    int err = sw_catalogue_make(b->l, ranks, n_ranks, e);

    if (!err)
        err = find_kinds(b, e);
    if (!err)
        err = find_wants(b, e);
    if (!err)
        err = sw_build_aliases(b, e);
    if (err)
        return err;
    take_notes(b, notes);
    err = sw_build_slabs(b, e);
    drop_raw(b);
    if (!err)
        err = sw_build_places(b, e);
    if (!err)
        err = sw_build_assign(b, e);
    if (!err)
        err = lay_out(b, e);
    return err ? err : hand_over(b, e);
}

static void build_free(struct sw_build *b)
{
    sw_wanting_free(&b->w);
    sw_slab_set_free(&b->slabs);
    sw_choices_free(&b->choices);
    free(b->kind_of);
    free(b->kind_targets);
    free(b->kind_raw);
    free(b->dests);
    free(b->first_want);
    free(b->audience);
    free(b->place);
    free(b->choice);
    free(b->variant);
}

int sw_layout_make(const struct sw_plan_rank *ranks, uint32_t n_ranks,
    const struct sw_plan_target *targets, uint32_t n_targets, const struct sw_plan_options *options,
    struct sw_layout **layout, struct sw_plan_notes *notes, struct sw_error *e)
{
    struct sw_build b = {.l = calloc(1, sizeof(*b.l)), .targets = targets, .n_targets = n_targets};
    struct sw_plan_notes found = {0};
    int err;

    if (!b.l)
        return no_memory(e);
    if (options)
        b.options = *options;
    err = build(&b, ranks, n_ranks, &found, e);
    build_free(&b);
    if (!err)
        err = sw_expert_maps_check(targets, n_targets, e);
    if (!err)
        err = sw_compact_prove(&b.l->c, ranks, n_ranks, targets, n_targets, e);
    if (!err)
        err = sw_grids_make(&b.l->c, &b.l->grids, e);
    if (err) {
        sw_layout_free(b.l);
        return err;
    }
    if (notes)
        *notes = found;
    *layout = b.l;
    return 0;
}

void sw_layout_free(struct sw_layout *l)
{
    if (!l)
        return;
    for (uint32_t i = 0; i < l->n_lists; i++)
        free(l->lists[i].entry);
    for (uint32_t k = 0; k < l->c.n_kinds; k++)
        sw_kind_clear(&l->known[k]);
    for (uint32_t s = 0; l->set_names && s < l->n_sets; s++)
        free(l->set_names[s]);
    free(l->set_names);
    sw_grids_free(&l->grids);
    free(l->set);
    free(l->known);
    free(l->lists);
    free(l->rank_list);
    free(l->ranks);
    free(l->c.entries);
    free(l->c.holders);
    free(l->c.holder_items);
    free(l->c.formats);
    free(l->c.boxes);
    free(l->c.slabs);
    free(l->c.splits);
    free(l->c.cells);
    free(l->c.runs);
    free(l->c.bases);
    free(l->c.wants);
    free(l->c.kinds);
    free(l->c.replica_bytes);
    free(l);
}

const struct sw_compact *sw_layout_compact(const struct sw_layout *l)
{
    return &l->c;
}
