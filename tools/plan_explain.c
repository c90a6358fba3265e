/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `shardctl plan --explain NAME`: for a tensor, who holds which box, into which final pieces it
 * goes, by which rule, and to which engine ranks; for a parameter, of what it is made.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "common/error.h"
#include "common/limits.h"
#include "tools/plan_run.h"
#include "trainerd/plan/boxes.h"
#include "trainerd/plan/compact.h"
#include "trainerd/plan/layout.h"

#define LINES_MAX 24u  /* of one list; the rest is counted */
#define TARGETS_MAX 8u /* engine ranks of one line, likewise */

struct view {
    const struct sw_plan_run *run;
    const struct sw_compact *c;
    FILE *out;
    uint32_t *kind; /* by target position */
    bool *marked;   /* by kind: spoken of now */
};

static void print_box(const struct sw_box *b, FILE *out)
{
    char text[256];

    fputs(sw_box_text(b, text, sizeof(text)), out);
}

static void print_shape(enum sw_dtype dtype, uint32_t ndim, const uint64_t *shape, FILE *out)
{
    char text[256];

    fputs(sw_tensor_text(dtype, ndim, shape, text, sizeof(text)), out);
}

static void print_more(uint32_t n, FILE *out)
{
    if (n > LINES_MAX)
        fprintf(out, "    ... and %u more\n", n - LINES_MAX);
}

static const char *transform_name(const struct sw_format *f)
{
    switch (f->transform) {
    case SW_TRANSFORM_COPY:
        return "copied";
    case SW_TRANSFORM_CAST:
        return "cast";
    case SW_TRANSFORM_FP8_VALUES:
        return "quantised to FP8";
    case SW_TRANSFORM_FP8_SCALES:
        return "scales of its FP8 blocks";
    case SW_TRANSFORM_ZERO:
        return "zeros";
    default:
        return "?";
    }
}

/* ---- who holds it ---- */

/* Ranks that follow each other with the same box are one line. */
static void print_holders(const struct view *v, const struct sw_catalogue_entry *entry)
{
    const struct sw_holders *h = &v->c->holders[entry->holders];
    uint32_t lines = 0;

    fprintf(v->out, "  held by\n");
    for (uint32_t i = 0, k; i < h->n; i += k) {
        const struct sw_holder *first = &v->c->holder_items[h->first + i];

        for (k = 1; i + k < h->n; k++) {
            const struct sw_holder *next = first + k;

            if (next->rank != first->rank + k || !sw_box_equal(&next->box, &first->box))
                break;
        }
        if (lines++ >= LINES_MAX)
            continue;
        if (k > 1)
            fprintf(v->out, "    trainer ranks %u to %u: ", v->run->scene.ranks[first->rank].rank,
                v->run->scene.ranks[first->rank + k - 1].rank);
        else
            fprintf(v->out, "    trainer rank %u: ", v->run->scene.ranks[first->rank].rank);
        print_box(&first->box, v->out);
        fputc('\n', v->out);
    }
    print_more(lines, v->out);
}

/* ---- where it goes ---- */

static void print_cells(const struct view *v, const struct sw_split *split)
{
    for (uint32_t i = 0; i < split->n && i < LINES_MAX; i++) {
        const struct sw_cell *cell = &v->c->cells[split->first + i];

        fprintf(v->out, "    from trainer rank %u", v->run->scene.ranks[cell->rank].rank);
        if (split->n > 1) {
            fprintf(v->out, ": ");
            print_box(&cell->box, v->out);
            fprintf(v->out, " of it");
        }
        fprintf(v->out, ", %" PRIu64 " bytes\n", cell->bytes);
    }
    print_more(split->n, v->out);
}

/* The engine ranks of the kinds that are marked, up to a few. */
static void print_targets(const struct view *v)
{
    const struct sw_scene *s = &v->run->scene;
    uint32_t n = 0;

    for (uint32_t t = 0; t < s->n_targets; t++) {
        if (v->kind[t] == SW_NONE || !v->marked[v->kind[t]])
            continue;
        if (n++ < TARGETS_MAX)
            fprintf(v->out, "%s%s rank %u", n > 1 ? ", " : "", s->targets[t].engine,
                s->targets[t].engine_rank);
    }
    if (n > TARGETS_MAX)
        fprintf(v->out, " and %u more", n - TARGETS_MAX);
}

static void print_rule(
    const struct view *v, const struct sw_plan_target *t, const struct sw_parameter *p)
{
    struct sw_pieces pieces = {0};

    if (t->model && !sw_model_pieces(t->model, t->placement, p, &pieces, NULL))
        fprintf(v->out, " (rule %s)", pieces.rule);
    sw_pieces_free(&pieces);
}

/* The kind's want of a slab from a number on; NULL when there is no further one. */
static const struct sw_want *next_want(
    const struct view *v, const struct sw_kind *kind, uint32_t slab, uint64_t *at)
{
    for (; *at < kind->n; (*at)++)
        if (v->c->wants[kind->first + *at].slab == slab)
            return &v->c->wants[kind->first + (*at)++];
    return NULL;
}

static bool same_place(const struct sw_plan_target *a, const struct sw_want *x,
    const struct sw_plan_target *b, const struct sw_want *y)
{
    return x->offset == y->offset &&
           !strcmp(a->parameters[x->parameter].name, b->parameters[y->parameter].name);
}

/* Marks the kinds, from k on, that want the slab at the same place; false: an earlier one did. */
static bool mark_same(const struct view *v, uint32_t k, const struct sw_want *want, uint32_t slab)
{
    const struct sw_plan_target *t = &v->run->scene.targets[v->c->kinds[k].target];

    memset(v->marked, 0, v->c->n_kinds * sizeof(*v->marked));
    for (uint32_t i = 0; i < v->c->n_kinds; i++) {
        const struct sw_kind *kind = &v->c->kinds[i];
        const struct sw_want *other;
        uint64_t at = 0;

        while ((other = next_want(v, kind, slab, &at)))
            if (same_place(t, want, &v->run->scene.targets[kind->target], other)) {
                if (i < k)
                    return false;
                v->marked[i] = true;
            }
    }
    return true;
}

/* Ranks that want it at the same place of the same parameter are one line. */
static void print_wants(const struct view *v, uint32_t slab)
{
    uint32_t lines = 0;

    for (uint32_t k = 0; k < v->c->n_kinds; k++) {
        const struct sw_plan_target *t = &v->run->scene.targets[v->c->kinds[k].target];
        const struct sw_want *want;
        uint64_t at = 0;

        while ((want = next_want(v, &v->c->kinds[k], slab, &at))) {
            if (!mark_same(v, k, want, slab) || lines++ >= LINES_MAX)
                continue;
            fprintf(v->out, "    to %s, at byte %" PRIu64, t->parameters[want->parameter].name,
                want->offset);
            print_rule(v, t, &t->parameters[want->parameter]);
            fprintf(v->out, ": ");
            print_targets(v);
            fputc('\n', v->out);
        }
    }
    print_more(lines, v->out);
}

static void print_slab(const struct view *v, uint32_t number)
{
    const struct sw_slab *slab = &v->c->slabs[number];
    const struct sw_format *f = &v->c->formats[slab->format];

    fprintf(v->out, "  ");
    print_box(&v->c->boxes[slab->box], v->out);
    fprintf(v->out, "%s %s", f->transform == SW_TRANSFORM_FP8_SCALES ? " blocks:" : ":",
        transform_name(f));
    if (f->transform == SW_TRANSFORM_FP8_VALUES || f->transform == SW_TRANSFORM_FP8_SCALES)
        fprintf(v->out, " (%ux%u, %s)", f->block[0], f->block[1],
            f->scale == SW_SCALE_UE8M0 ? "UE8M0" : "FP32");
    else if (f->transform == SW_TRANSFORM_CAST)
        fprintf(v->out, " from %s to %s", sw_dtype_name(f->src_dtype), sw_dtype_name(f->dst_dtype));
    fputc('\n', v->out);
    print_cells(v, &v->c->splits[slab->split]);
    print_wants(v, number);
}

static void explain_tensor(const struct view *v, uint32_t entry)
{
    const struct sw_catalogue_entry *t = &v->c->entries[entry];
    uint32_t n = 0;

    fprintf(v->out, "tensor %s: ", t->name);
    print_shape(t->dtype, t->ndim, t->shape, v->out);
    fputc('\n', v->out);
    print_holders(v, t);
    for (uint32_t s = 0; s < v->c->n_slabs; s++)
        if (v->c->slabs[s].source == entry && n++ < LINES_MAX)
            print_slab(v, s);
    print_more(n, v->out);
    if (!n)
        fprintf(v->out, "  wanted by no engine\n");
}

/* ---- a parameter ---- */

static void explain_want(const struct view *v, const struct sw_want *want)
{
    const struct sw_slab *slab = &v->c->slabs[want->slab];
    const struct sw_format *f = &v->c->formats[slab->format];
    const struct sw_split *split = &v->c->splits[slab->split];

    fprintf(v->out, "    at byte %" PRIu64 ": ", want->offset);
    if (slab->source == SW_NONE) {
        fprintf(v->out, "zeros");
    } else {
        fprintf(v->out, "%s ", v->c->entries[slab->source].name);
        print_box(&v->c->boxes[slab->box], v->out);
        fprintf(v->out, ", %s", transform_name(f));
    }
    fprintf(
        v->out, ", from trainer rank %u", v->run->scene.ranks[v->c->cells[split->first].rank].rank);
    if (split->n > 1)
        fprintf(v->out, " and %u others", split->n - 1);
    fputc('\n', v->out);
}

static uint32_t find_parameter(const struct sw_plan_target *t, const char *name)
{
    uint32_t p = 0;

    while (p < t->n_parameters && strcmp(t->parameters[p].name, name) != 0)
        p++;
    return p < t->n_parameters ? p : SW_NONE;
}

/* The wants of a parameter; they come one after another. */
static uint64_t wants_of(
    const struct view *v, const struct sw_kind *kind, uint32_t p, const struct sw_want **first)
{
    uint64_t n = 0;

    for (uint64_t i = 0; i < kind->n; i++)
        if (v->c->wants[kind->first + i].parameter == p) {
            *first = n ? *first : &v->c->wants[kind->first + i];
            n++;
        }
    return n;
}

/* Whether two kinds have the parameter from the same slabs. */
static bool same_parts(const struct view *v, uint32_t a, uint32_t b, const char *name)
{
    const struct sw_kind *x = &v->c->kinds[a], *y = &v->c->kinds[b];
    const uint32_t p = find_parameter(&v->run->scene.targets[x->target], name);
    const uint32_t q = find_parameter(&v->run->scene.targets[y->target], name);
    const struct sw_want *u = NULL, *w = NULL;
    uint64_t n;

    if (p == SW_NONE || q == SW_NONE)
        return false;
    n = wants_of(v, x, p, &u);
    if (wants_of(v, y, q, &w) != n)
        return false;
    for (uint64_t i = 0; i < n; i++)
        if (u[i].slab != w[i].slab || u[i].offset != w[i].offset)
            return false;
    return true;
}

static void explain_kind(const struct view *v, uint32_t k, uint32_t p)
{
    const struct sw_kind *kind = &v->c->kinds[k];
    const struct sw_plan_target *t = &v->run->scene.targets[kind->target];
    const struct sw_parameter *parameter = &t->parameters[p];
    const struct sw_want *wants = NULL;
    const uint64_t n = wants_of(v, kind, p, &wants);

    fprintf(v->out, "parameter %s: ", parameter->name);
    print_shape(parameter->dtype, parameter->ndim, parameter->shape, v->out);
    print_rule(v, t, parameter);
    fprintf(v->out, "\n  in ");
    print_targets(v);
    fputc('\n', v->out);
    for (uint64_t i = 0; i < n && i < LINES_MAX; i++)
        explain_want(v, &wants[i]);
    print_more((uint32_t)n, v->out);
    if (!n)
        fprintf(v->out, "    made by the engine itself, never written\n");
}

static bool explain_parameter(const struct view *v, const char *name)
{
    bool *done = calloc((size_t)v->c->n_kinds + 1, sizeof(*done));
    uint32_t shown = 0;

    for (uint32_t k = 0; done && k < v->c->n_kinds; k++) {
        const uint32_t p = find_parameter(&v->run->scene.targets[v->c->kinds[k].target], name);

        if (done[k] || p == SW_NONE)
            continue;
        for (uint32_t i = 0; i < v->c->n_kinds; i++) {
            v->marked[i] = i >= k && !done[i] && same_parts(v, k, i, name);
            done[i] = done[i] || v->marked[i];
        }
        if (shown++ < LINES_MAX)
            explain_kind(v, k, p);
    }
    print_more(shown, v->out);
    free(done);
    return shown > 0;
}

/* ---- either ---- */

static int find_kinds(struct view *v, struct sw_error *e)
{
    const struct sw_scene *s = &v->run->scene;

    v->kind = calloc((size_t)s->n_targets + 1, sizeof(*v->kind));
    v->marked = calloc((size_t)v->c->n_kinds + 1, sizeof(*v->marked));
    if (!v->kind || !v->marked)
        return sw_fail(e, SW_ERR_NOMEM, "no memory to explain a plan");
    for (uint32_t t = 0; t < s->n_targets; t++)
        v->kind[t] = sw_layout_kind_of(v->run->layout, &s->targets[t]);
    return 0;
}

int sw_plan_run_explain(
    const struct sw_plan_run *run, const char *name, FILE *out, struct sw_error *e)
{
    struct view v = {.run = run, .c = sw_layout_compact(run->layout), .out = out};
    uint32_t entry = 0, stored;
    bool found;
    const int code = find_kinds(&v, e);

    if (code) {
        free(v.kind);
        free(v.marked);
        return code;
    }
    while (entry < v.c->n_entries && strcmp(v.c->entries[entry].name, name) != 0)
        entry++;
    found = entry < v.c->n_entries;
    if (found)
        explain_tensor(&v, entry);
    found = explain_parameter(&v, name) || found;
    free(v.kind);
    free(v.marked);
    if (found)
        return 0;
    if (sw_model_find(run->model, name, &stored) != SW_UNKNOWN) {
        fprintf(
            out, "tensor %s: known to the layout; no trainer holds it, or it is skipped\n", name);
        return 0;
    }
    return sw_fail(e, SW_ERR_NOT_FOUND,
        "no tensor of a trainer and no parameter of an engine is named %.*s", SW_NAME_MAX, name);
}
