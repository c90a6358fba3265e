/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which block maxima the ranks of one host must reduce among each other. For each class of grids
 * the blocks that local ranks touch are cut where the set of ranks that share them changes; within
 * a part all blocks have equal members, and lie in runs in each member's maxima.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/limits.h"
#include "trainerd/plan/grids.h"
#include "trainerd/plan/layout.h"

#define PARTS_MAX (1ull << 32) /* parts of one class, times its cells */

struct local { /* a rank of the host */
    uint32_t position, number;
    uint64_t next;   /* its maxima that are given out */
    bool shared;     /* of the class at hand: it has a shared grid */
    uint64_t first;  /* where that class's grids begin in its maxima */
    uint64_t blocks; /* of each grid */
    struct sw_box span;
};

struct member { /* of a part */
    uint32_t local;
    uint64_t offset;            /* of the part's first block in the grid */
    uint64_t step[SW_MAX_DIMS]; /* blocks, by loop */
};

struct part { /* blocks that the same ranks share */
    uint32_t n_members, n;
    struct member *members;
    uint64_t run, count[SW_MAX_DIMS]; /* a run of maxima, and the loops around it */
};

struct cuts { /* where something changes along a dimension */
    uint32_t n;
    uint64_t *at;
};

struct writer {
    const struct sw_compact *c;
    const struct sw_grids *grids;
    struct sw_touches touches;
    uint32_t n_locals;
    struct local *locals;
    uint32_t *local_of; /* by position; SW_NONE: another host's */
    struct member *members;
    bool *seen; /* by local */
    struct sw_share_plan out;
    uint32_t items_size, members_size;
    uint64_t elsewhere;
};

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory to share block maxima");
}

/* ---- shares ---- */

static int make_room(struct writer *w, uint32_t members, struct sw_error *e)
{
    if (w->out.n == w->items_size) {
        const uint32_t size = w->items_size ? w->items_size * 2 : 64;
        struct sw_share *more = realloc(w->out.items, size * sizeof(*more));

        if (!more)
            return no_memory(e);
        w->out.items = more;
        w->items_size = size;
    }
    if (w->out.n_members + members > w->members_size) {
        const uint32_t size = (w->members_size + members) * 2;
        struct sw_share_member *more = realloc(w->out.members, size * sizeof(*more));

        if (!more)
            return no_memory(e);
        w->out.members = more;
        w->members_size = size;
    }
    if (w->out.n >= SW_EXTENTS_MAX || w->out.n_members >= SW_EXTENTS_MAX)
        return sw_fail(e, SW_ERR_LIMIT,
            "FP8 blocks are spread over trainer ranks in more than %u different ways; declare "
            "boxes that are whole blocks, or whole tensors",
            SW_EXTENTS_MAX);
    return 0;
}

/* Adds `count` maxima, of which the members' first ones lie at the end of out.members. Joins them
 * to the share before when they follow it in all members. */
static void add_share(struct writer *w, uint64_t count, uint32_t n)
{
    struct sw_share *last = w->out.n ? &w->out.items[w->out.n - 1] : NULL;
    const struct sw_share_member *m = &w->out.members[w->out.n_members];
    bool joins = last && last->n_members == n;

    assert(w->out.items);
    for (uint32_t i = 0; joins && i < n; i++) {
        const struct sw_share_member *before = &w->out.members[last->first_member + i];

        joins = before->rank == m[i].rank && before->first + last->count == m[i].first;
    }
    if (joins) {
        last->count += count;
        return;
    }
    w->out.items[w->out.n++] =
        (struct sw_share){.count = count, .first_member = w->out.n_members, .n_members = n};
    w->out.n_members += n;
}

/* One run of a part, in all tensors of the class. */
static int add_run(struct writer *w, const struct sw_grid_class *class, const struct part *part,
    const uint64_t *at, struct sw_error *e)
{
    for (uint32_t i = 0; i < class->n_items; i++) {
        const int err = make_room(w, part->n_members, e);

        if (err)
            return err;
        for (uint32_t m = 0; m < part->n_members; m++) {
            const struct member *member = &part->members[m];
            const struct local *local = &w->locals[member->local];
            uint64_t first = local->first + i * local->blocks + member->offset;

            for (uint32_t d = 0; d < part->n; d++)
                first += at[d] * member->step[d];
            w->out.members[w->out.n_members + m] = (struct sw_share_member){local->number, first};
        }
        add_share(w, part->run, part->n_members);
    }
    return 0;
}

static int add_part(struct writer *w, const struct sw_grid_class *class, const struct part *part,
    struct sw_error *e)
{
    uint64_t at[SW_MAX_DIMS] = {0};
    uint32_t d;

    do {
        const int err = add_run(w, class, part, at, e);

        if (err)
            return err;
        for (d = 0; d < part->n; d++) {
            if (++at[d] < part->count[d])
                break;
            at[d] = 0;
        }
    } while (d < part->n);
    return 0;
}

/* ---- one part ---- */

/* Who touches a part; false when nobody needs another's maxima. */
static bool find_members(struct writer *w, const struct sw_box *box, uint32_t *n, bool *elsewhere)
{
    bool shared = false;

    *n = 0;
    *elsewhere = false;
    memset(w->seen, 0, w->n_locals * sizeof(*w->seen));
    for (uint32_t i = 0; i < w->touches.n; i++) {
        const struct sw_touch *t = &w->touches.items[i];
        const uint32_t local = w->local_of[t->rank];

        if (!sw_grid_contains(&t->blocks, box))
            continue;
        shared = shared || !sw_grid_contains(&t->whole, box);
        if (local == SW_NONE)
            *elsewhere = true;
        else if (!w->seen[local])
            w->members[(*n)++] = (struct member){.local = local};
        if (local != SW_NONE)
            w->seen[local] = true;
    }
    return shared;
}

/* How a part lies in its members' maxima: last dimensions that span all their grids are one run. */
static void lay_part(const struct writer *w, const struct sw_box *box, struct part *part)
{
    bool full = true;

    part->run = 1;
    part->n = 0;
    for (uint32_t d = box->ndim; d-- > 0;) {
        bool spans = true;

        if (full)
            part->run *= box->len[d];
        else if (box->len[d] > 1)
            part->count[part->n] = box->len[d];
        for (uint32_t i = 0; i < part->n_members; i++) {
            struct member *m = &part->members[i];
            const struct sw_box *span = &w->locals[m->local].span;
            uint64_t stride = 1;

            for (uint32_t k = d + 1; k < box->ndim; k++)
                stride *= span->len[k];
            m->offset += (box->lo[d] - span->lo[d]) * stride;
            if (!full && box->len[d] > 1)
                m->step[part->n] = stride;
            spans = spans && span->len[d] == box->len[d];
        }
        part->n += !full && box->len[d] > 1;
        full = full && spans;
    }
}

static int do_part(struct writer *w, const struct sw_grid_class *class, const struct sw_box *box,
    struct sw_error *e)
{
    struct part part = {.members = w->members};
    bool elsewhere;

    if (!find_members(w, box, &part.n_members, &elsewhere) || part.n_members == 0)
        return 0;
    if (elsewhere)
        w->elsewhere += sw_grid_count(box) * class->n_items;
    if (part.n_members == 1)
        return 0;
    lay_part(w, box, &part);
    return add_part(w, class, &part, e);
}

/* ---- one class ---- */

static int u64_compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* The edges of all touches along dimension d, between lo and end. */
static int find_cuts(const struct sw_touches *t, uint32_t d, uint64_t lo, uint64_t end,
    struct cuts *out, struct sw_error *e)
{
    uint64_t *at = calloc(4 * (size_t)t->n + 2, sizeof(*at));
    size_t n = 0, kept = 1;

    if (!at)
        return no_memory(e);
    at[n++] = lo;
    at[n++] = end;
    for (uint32_t i = 0; i < t->n; i++) {
        const struct sw_touch *x = &t->items[i];
        const uint64_t edges[] = {x->blocks.lo[d], x->blocks.lo[d] + x->blocks.len[d],
            x->whole.lo[d], x->whole.lo[d] + x->whole.len[d]};

        for (uint32_t k = 0; k < 4; k++)
            if (edges[k] > lo && edges[k] < end)
                at[n++] = edges[k];
    }
    qsort(at, n, sizeof(*at), u64_compare);
    for (size_t i = 1; i < n; i++)
        if (at[i] != at[kept - 1])
            at[kept++] = at[i];
    *out = (struct cuts){.n = (uint32_t)kept - 1, .at = at};
    return 0;
}

/* All parts, the last dimension first. */
static int do_parts(struct writer *w, const struct sw_grid_class *class, const struct cuts *cuts,
    uint32_t ndim, struct sw_error *e)
{
    uint32_t at[SW_MAX_DIMS] = {0}, d;
    uint64_t parts = w->touches.n;

    for (d = 0; d < ndim; d++) {
        if (cuts[d].n && parts > PARTS_MAX / cuts[d].n)
            return sw_fail(e, SW_ERR_LIMIT,
                "tensors like %s are cut into too many different boxes for FP8 blocks",
                w->c->entries[class->entry].name);
        parts *= cuts[d].n;
    }
    if (parts == 0)
        return 0;
    do {
        struct sw_box box = {.ndim = ndim};
        int err;

        for (d = 0; d < ndim; d++) {
            box.lo[d] = cuts[d].at[at[d]];
            box.len[d] = cuts[d].at[at[d] + 1] - box.lo[d];
        }
        err = do_part(w, class, &box, e);
        if (err)
            return err;
        for (d = ndim; d-- > 0;) {
            if (++at[d] < cuts[d].n)
                break;
            at[d] = 0;
        }
    } while (d < ndim); /* d wraps when all came round */
    return 0;
}

/* Gives each local rank its place for the class; false when none has a shared grid. */
static bool place_class(struct writer *w, const struct sw_grid_class *class)
{
    bool any = false;

    for (uint32_t i = 0; i < w->n_locals; i++) {
        struct local *l = &w->locals[i];
        const struct sw_box *held = sw_grid_held(w->c, class->entry, l->position);
        bool needs;

        sw_touches_need(&w->touches, l->position, &needs, &l->shared);
        l->shared = l->shared && held;
        if (!l->shared)
            continue;
        sw_grid_span(held, class->block, &l->span);
        l->blocks = sw_grid_count(&l->span);
        l->first = l->next;
        l->next += class->n_items * l->blocks;
        any = true;
    }
    return any;
}

static int do_class(struct writer *w, const struct sw_grid_class *class, struct sw_error *e)
{
    const uint32_t ndim = w->c->entries[class->entry].ndim;
    struct cuts cuts[SW_MAX_DIMS] = {0};
    int err = sw_grids_touches(w->c, w->grids, class, &w->touches, e);

    if (err || !place_class(w, class))
        return err;
    for (uint32_t d = 0; !err && d < ndim; d++) {
        uint64_t lo = UINT64_MAX, end = 0;

        for (uint32_t i = 0; i < w->n_locals; i++) {
            const struct sw_box *span = &w->locals[i].span;

            if (!w->locals[i].shared)
                continue;
            lo = span->lo[d] < lo ? span->lo[d] : lo;
            end = span->lo[d] + span->len[d] > end ? span->lo[d] + span->len[d] : end;
        }
        err = find_cuts(&w->touches, d, lo, end, &cuts[d], e);
    }
    if (!err)
        err = do_parts(w, class, cuts, ndim, e);
    for (uint32_t d = 0; d < ndim; d++)
        free(cuts[d].at);
    return err;
}

/* ---- all of it ---- */

static int init(struct writer *w, const struct sw_layout *l, uint32_t host, struct sw_error *e)
{
    w->local_of = malloc(((size_t)l->n_ranks + 1) * sizeof(*w->local_of));
    w->locals = calloc((size_t)l->n_ranks + 1, sizeof(*w->locals));
    w->members = calloc((size_t)l->n_ranks + 1, sizeof(*w->members));
    w->seen = calloc((size_t)l->n_ranks + 1, sizeof(*w->seen));
    if (!w->local_of || !w->locals || !w->members || !w->seen)
        return no_memory(e);
    for (uint32_t r = 0; r < l->n_ranks; r++) {
        w->local_of[r] = SW_NONE;
        if (l->ranks[r].host != host)
            continue;
        w->local_of[r] = w->n_locals;
        w->locals[w->n_locals++] = (struct local){.position = r, .number = l->ranks[r].rank};
    }
    return 0;
}

int sw_layout_shares(const struct sw_layout *l, uint32_t host, struct sw_share_plan *out,
    uint64_t *elsewhere, struct sw_error *e)
{
    struct writer w = {.c = &l->c, .grids = &l->grids};
    int err = init(&w, l, host, e);

    for (uint32_t i = 0; !err && w.n_locals && i < l->grids.n_classes; i++)
        err = do_class(&w, &l->grids.classes[i], e);
    free(w.local_of);
    free(w.locals);
    free(w.members);
    free(w.seen);
    sw_touches_free(&w.touches);
    if (err) {
        sw_share_plan_clear(&w.out);
        return err;
    }
    *out = w.out;
    *elsewhere = w.elsewhere;
    return 0;
}

void sw_share_plan_clear(struct sw_share_plan *p)
{
    free(p->items);
    free(p->members);
    *p = (struct sw_share_plan){0};
}
