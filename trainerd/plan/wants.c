/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/wants.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "trainerd/plan/catalogue.h"

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory for what engine ranks want");
}

int sw_wanting_init(struct sw_wanting *w, const struct sw_layout *l, bool join, struct sw_error *e)
{
    const size_t n = (size_t)l->c.n_entries + 1;

    *w = (struct sw_wanting){.l = l, .used = calloc(n, 1)};
    if (join)
        w->parent = malloc(n * sizeof(*w->parent));
    if (!w->used || (join && !w->parent))
        return no_memory(e);
    for (uint32_t i = 0; join && i < n; i++)
        w->parent[i] = i;
    return sw_catalogue_index(l, &w->names, e);
}

void sw_wanting_free(struct sw_wanting *w)
{
    for (uint32_t i = 0; i < w->n_tables; i++) {
        free(w->tables[i].entry);
        free(w->tables[i].checked);
    }
    free(w->tables);
    free(w->raw);
    free(w->used);
    free(w->parent);
    sw_index_free(&w->names);
    sw_boxes_free(&w->boxes);
    sw_pieces_free(&w->pieces);
    *w = (struct sw_wanting){0};
}

uint32_t sw_set_root(uint32_t *parent, uint32_t i)
{
    while (parent[i] != i) {
        parent[i] = parent[parent[i]];
        i = parent[i];
    }
    return i;
}

uint32_t sw_wanting_format(struct sw_wanting *w, const struct sw_format *f)
{
    for (uint32_t i = 0; i < w->n_formats; i++) {
        const struct sw_format *g = &w->formats[i];

        if (f->transform == g->transform && f->src_dtype == g->src_dtype &&
            f->dst_dtype == g->dst_dtype && f->block[0] == g->block[0] &&
            f->block[1] == g->block[1] && f->scale == g->scale)
            return i;
    }
    if (w->n_formats == SW_FORMATS_MAX)
        return SW_NONE;
    w->formats[w->n_formats] = *f;
    return w->n_formats++;
}

int sw_wanting_push(struct sw_wanting *w, uint32_t entry, const struct sw_format *format,
    const struct sw_box *box, uint32_t parameter, uint64_t offset, struct sw_error *e)
{
    const uint32_t f = sw_wanting_format(w, format), b = sw_boxes_add(&w->boxes, box);

    if (f == SW_NONE)
        return sw_fail(
            e, SW_ERR_LIMIT, "more than %u pairs of element types in one plan", SW_FORMATS_MAX);
    if (b == SW_NONE || sw_array_room(&w->raw, &w->size, w->n, sizeof(*w->raw)))
        return no_memory(e);
    w->raw[w->n++] = (struct sw_raw){entry, f, b, parameter, offset};
    return 0;
}

/* ---- aliases ---- */

/* Two entries of one storage must hold equal bytes. */
static int join(struct sw_wanting *w, const struct sw_plan_target *t,
    const struct sw_parameter *root, uint32_t a, uint32_t b, struct sw_error *e)
{
    if (a == b)
        return 0;
    if (w->parent) {
        w->parent[sw_set_root(w->parent, a)] = sw_set_root(w->parent, b);
        return 0;
    }
    if (w->l->set && w->l->set[a] != SW_NONE && w->l->set[a] == w->l->set[b])
        return 0;
    return sw_fail(e, SW_ERR_PLAN,
        "engine %s rank %u: parameter %s is in no tile of the current plan (its aliases are not "
        "checked against each other yet); the next version plans for it",
        t->engine, t->engine_rank, root->name);
}

/* ---- identity ---- */

/* The entry of the parameter's own name; SW_NONE without error when there is none. */
static int match(const struct sw_wanting *w, const struct sw_plan_target *t,
    const struct sw_parameter *p, uint32_t *entry, struct sw_error *e)
{
    const struct sw_catalogue_entry *found;
    char a[160], b[160];

    *entry = sw_catalogue_find(w->l, &w->names, p->name);
    if (*entry == SW_NONE)
        return 0;
    found = &w->l->c.entries[*entry];
    if (found->dtype == p->dtype && found->ndim == p->ndim &&
        !memcmp(found->shape, p->shape, p->ndim * sizeof(*p->shape)))
        return 0;
    return sw_fail(e, SW_ERR_PLAN,
        "engine %s rank %u: parameter %s is %s, but the source of that name is %s", t->engine,
        t->engine_rank, p->name, sw_tensor_text(p->dtype, p->ndim, p->shape, a, sizeof(a)),
        sw_tensor_text(found->dtype, found->ndim, found->shape, b, sizeof(b)));
}

static int no_source(const struct sw_plan_target *t, const struct sw_parameter *p, uint32_t aliases,
    struct sw_error *e)
{
    char text[160];

    sw_tensor_text(p->dtype, p->ndim, p->shape, text, sizeof(text));
    if (!aliases)
        return sw_fail(e, SW_ERR_PLAN,
            "engine %s rank %u: parameter %s (%s) has no source tensor of that name in any trainer "
            "rank's manifest",
            t->engine, t->engine_rank, p->name, text);
    return sw_fail(e, SW_ERR_PLAN,
        "engine %s rank %u: parameter %s (%s) has no source tensor of that name, nor of the names "
        "of its %u aliases, in any trainer rank's manifest",
        t->engine, t->engine_rank, p->name, text, aliases);
}

/* Of several names' sources the one with the smallest name is staged. */
static int want_identity(struct sw_wanting *w, const struct sw_plan_target *t,
    const struct sw_storages *s, const struct sw_storage *storage, struct sw_error *e)
{
    const struct sw_parameter *root = &t->parameters[s->members[storage->first]];
    const struct sw_catalogue_entry *entries = w->l->c.entries;
    struct sw_box box = {.ndim = root->ndim};
    uint32_t best = SW_NONE;

    for (uint32_t i = 0; i < storage->n; i++) {
        uint32_t entry;
        int err = match(w, t, &t->parameters[s->members[storage->first + i]], &entry, e);

        if (!err && entry != SW_NONE && best != SW_NONE && storage->bytes)
            err = join(w, t, root, entry, best, e);
        if (err)
            return err;
        if (entry != SW_NONE &&
            (best == SW_NONE || strcmp(entries[entry].name, entries[best].name) < 0))
            best = entry;
    }
    if (best == SW_NONE)
        return storage->bytes ? no_source(t, root, storage->n - 1, e) : 0;
    w->used[best] |= SW_USED_WANTED;
    if (!storage->bytes)
        return 0;
    memcpy(box.len, entries[best].shape, sizeof(box.len));
    return sw_wanting_push(w, best,
        &(struct sw_format){.transform = SW_TRANSFORM_COPY,
            .src_dtype = entries[best].dtype,
            .dst_dtype = entries[best].dtype},
        &box, s->members[storage->first], 0, e);
}

/* ---- by rules ---- */

/* Of two ways to make one storage, keeps the one whose source has the smaller name. Both are at
 * the end of the raw wants: a from `a` on, b from `b` on. */
static int keep_one(struct sw_wanting *w, const struct sw_plan_target *t,
    const struct sw_parameter *root, uint32_t a, uint32_t b, struct sw_error *e)
{
    const uint32_t n = b - a;
    const struct sw_catalogue_entry *entries = w->l->c.entries;
    struct sw_raw *x = w->raw + a, *y = w->raw + b;
    bool same = w->n - b == n, second = false;

    for (uint32_t i = 0; same && i < n; i++)
        same = x[i].format == y[i].format && x[i].offset == y[i].offset && x[i].box == y[i].box &&
               (x[i].entry == SW_NONE) == (y[i].entry == SW_NONE);
    if (!same)
        return sw_fail(e, SW_ERR_PLAN,
            "engine %s rank %u: parameter %s and an alias of it are made of different boxes by the "
            "layout rules",
            t->engine, t->engine_rank, root->name);
    for (uint32_t i = 0; i < n; i++) {
        int err = 0;

        if (x[i].entry != SW_NONE)
            err = join(w, t, root, x[i].entry, y[i].entry, e);
        if (err)
            return err;
    }
    for (uint32_t i = 0; i < n && !second; i++)
        if (x[i].entry != y[i].entry) {
            second = strcmp(entries[y[i].entry].name, entries[x[i].entry].name) < 0;
            break;
        }
    if (second && n)
        memmove(x, y, n * sizeof(*x));
    w->n = b;
    return 0;
}

static void mark_wanted(struct sw_wanting *w, uint32_t first)
{
    for (uint32_t i = first; i < w->n; i++)
        if (w->raw[i].entry != SW_NONE)
            w->used[w->raw[i].entry] |= SW_USED_WANTED;
}

static int want_by_rules(struct sw_wanting *w, const struct sw_plan_target *t,
    const struct sw_storages *s, const struct sw_storage *storage, uint8_t *expert,
    struct sw_error *e)
{
    const uint32_t root = s->members[storage->first], first = w->n;
    bool have = false, any_derived = false;
    struct sw_error why = {0};

    for (uint32_t i = 0; i < storage->n; i++) {
        const uint32_t before = w->n;
        bool missing = false, derived = false;
        struct sw_error own = {0};
        int err = sw_wanting_recipe(w, t, s->members[storage->first + i], &missing, &derived, &own);

        if (err && !(missing && storage->n > 1)) {
            if (e)
                *e = own;
            return err;
        }
        expert[s->members[storage->first + i]] = w->pieces.expert;
        any_derived |= derived;
        if (err) { /* another name may have it */
            w->n = before;
            if (!why.code)
                why = own;
        } else if (!derived) {
            err = have ? keep_one(w, t, &t->parameters[root], first, before, e) : 0;
            if (err)
                return err;
            have = true;
        }
    }
    if (!have && why.code) {
        if (e)
            *e = why;
        return why.code;
    }
    w->derived += !have && any_derived;
    mark_wanted(w, first);
    return 0;
}

/* ---- a target ---- */

static int raw_compare(const void *a, const void *b)
{
    const struct sw_raw *x = a, *y = b;

    if (x->parameter != y->parameter)
        return x->parameter < y->parameter ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static void sort(struct sw_wanting *w, uint32_t first)
{
    for (uint32_t i = first + 1; i < w->n; i++)
        if (raw_compare(&w->raw[i - 1], &w->raw[i]) > 0) {
            qsort(w->raw + first, w->n - first, sizeof(*w->raw), raw_compare);
            return;
        }
}

static int want_all(struct sw_wanting *w, const struct sw_plan_target *t,
    const struct sw_storages *s, uint8_t *expert, struct sw_error *e)
{
    uint32_t *of = malloc(((size_t)t->n_parameters + 1) * sizeof(*of)); /* storage, by its root */
    int err = of ? 0 : no_memory(e);

    if (!err)
        memset(of, 0xff, ((size_t)t->n_parameters + 1) * sizeof(*of));
    for (uint32_t i = 0; !err && i < s->n; i++)
        of[s->members[s->items[i].first]] = i;
    for (uint32_t p = 0; !err && p < t->n_parameters; p++)
        if (of[p] != SW_NONE)
            err = t->model ? want_by_rules(w, t, s, &s->items[of[p]], expert, e)
                           : want_identity(w, t, s, &s->items[of[p]], e);
    free(of);
    return err;
}

int sw_wanting_target(
    struct sw_wanting *w, const struct sw_plan_target *t, uint8_t **expert, struct sw_error *e)
{
    const uint32_t first = w->n;
    struct sw_storages s;
    uint8_t *stacked = NULL;
    int err = sw_storages_make(t, &s, e);

    if (err)
        return err;
    if (t->model && !t->placement)
        err = sw_fail(e, SW_ERR_INVALID, "engine %s rank %u has layout rules but no placement",
            t->engine, t->engine_rank);
    if (!err && t->model) {
        stacked = calloc((size_t)t->n_parameters + 1, 1);
        err = stacked ? 0 : no_memory(e);
    }
    if (!err)
        err = want_all(w, t, &s, stacked, e);
    sw_storages_free(&s);
    if (err) {
        free(stacked);
        return err;
    }
    sort(w, first);
    *expert = stacked;
    return 0;
}
