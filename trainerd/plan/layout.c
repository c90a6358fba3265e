/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources and parameters -> tiles and load programs. One rule for now, identity: a parameter's
 * bytes are those of the source of its own name, whole. Of an alias storage with several sources,
 * the one with the smallest name is staged, and the others are checked against it by digest.
 */
#include "trainerd/plan/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/limits.h"
#include "trainerd/plan/assign.h"

#define TILE_ALIGN 256u /* of a tile that does not follow its neighbour of the engine */

struct place { /* where the first target that wants a source has it */
    uint32_t target, region;
    uint64_t offset;
};

struct builder {
    struct sw_layout *l;
    uint32_t *parent; /* union-find over entries: alias sets */
    uint32_t *order;  /* wanted entries with bytes, in the order of their tiles */
    uint32_t n_order;
    struct place *places; /* by entry */
    uint32_t *owner;      /* by set: the rank that digests its members where it can */
};

static uint32_t set_root(uint32_t *parent, uint32_t i)
{
    while (parent[i] != i) {
        parent[i] = parent[parent[i]];
        i = parent[i];
    }
    return i;
}

/* ---- what is wanted ---- */

static int want_storage(struct builder *b, const struct sw_plan_target *t, uint32_t target,
    const struct sw_storages *s, const struct sw_storage *storage, struct sw_error *e)
{
    struct sw_entry *entries = b->l->table.entries, *best = NULL;

    for (uint32_t i = 0; i < storage->n; i++) {
        struct sw_entry *entry;
        const int err = sw_table_match(
            &b->l->table, t, &t->parameters[s->members[storage->first + i]], &entry, e);

        if (err)
            return err;
        if (!entry)
            continue;
        if (best && storage->bytes)
            b->parent[set_root(b->parent, (uint32_t)(entry - entries))] =
                set_root(b->parent, (uint32_t)(best - entries));
        if (!best || entry < best) /* entries are sorted by name */
            best = entry;
    }
    if (!best)
        return storage->bytes ? sw_table_no_source(t, s, storage, e) : 0;
    if (!best->wanted && best->bytes) {
        b->order[b->n_order++] = (uint32_t)(best - entries);
        b->places[best - entries] = (struct place){target, storage->region, storage->offset};
    }
    best->wanted = true;
    return 0;
}

static int want_target(
    struct builder *b, const struct sw_plan_target *t, uint32_t target, struct sw_error *e)
{
    struct sw_storages s;
    int err = sw_storages_make(t, &s, e);

    if (err)
        return err;
    for (uint32_t i = 0; !err && i < s.n; i++)
        err = want_storage(b, t, target, &s, &s.items[i], e);
    sw_storages_free(&s);
    return err;
}

/* ---- alias sets ---- */

static int name_set(struct builder *b, uint32_t set, const char *name, struct sw_error *e)
{
    char **text = &b->l->set_names[set];
    const size_t old = *text ? strlen(*text) : 0;
    char *longer;

    if (old > 2 * SW_NAME_MAX) /* two or three names are enough for a message */
        return 0;
    longer = realloc(*text, old + strlen(name) + sizeof(" and "));
    if (!longer)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for alias sets");
    sprintf(longer + old, "%s%s", old ? " and " : "", name);
    *text = longer;
    return 0;
}

/* Numbers the sets of more than one source, and finds each set's owner. */
static int number_sets(struct builder *b, struct sw_error *e)
{
    struct sw_table *t = &b->l->table;
    uint32_t n = 0;
    int err = 0;

    for (uint32_t i = 0; i < t->n; i++) { /* whoever isn't its root shows that there is a set */
        struct sw_entry *root = &t->entries[set_root(b->parent, i)];

        if (root != &t->entries[i] && root->set == SW_NONE)
            root->set = n++;
    }
    b->l->set_names = calloc((size_t)n + 1, sizeof(*b->l->set_names));
    b->owner = calloc((size_t)n + 1, sizeof(*b->owner));
    if (!b->l->set_names || !b->owner)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for %u alias sets", n);
    b->l->n_sets = n;
    for (uint32_t i = 0; i < n; i++)
        b->owner[i] = SW_NONE;
    for (uint32_t i = 0; !err && i < t->n; i++) {
        struct sw_entry *entry = &t->entries[i];

        entry->set = t->entries[set_root(b->parent, i)].set;
        if (entry->set == SW_NONE)
            continue;
        if (b->owner[entry->set] == SW_NONE)
            b->owner[entry->set] = entry->rank;
        err = name_set(b, entry->set, entry->name, e);
    }
    return err;
}

/* The rank that digests a source: the one that stages it, the one that stages its set, or any. */
static uint32_t check_rank(const struct builder *b, const struct sw_entry *entry, uint32_t *source)
{
    const struct sw_table *t = &b->l->table;
    const uint32_t wish = entry->rank != SW_NONE ? entry->rank : b->owner[entry->set];
    uint32_t h = entry->first_holder;

    for (uint32_t i = 0; i < entry->n_holders; i++)
        if (t->holder_rank[entry->first_holder + i] == wish)
            h = entry->first_holder + i;
    *source = t->holder_source[h];
    return t->holder_rank[h];
}

static int add_checks(struct builder *b, struct sw_error *e)
{
    const struct sw_table *t = &b->l->table;
    uint32_t source;

    for (uint32_t i = 0; i < t->n; i++)
        if (t->entries[i].set != SW_NONE)
            b->l->loads[check_rank(b, &t->entries[i], &source)].n_checks++;
    for (uint32_t r = 0; r < t->n_ranks; r++) {
        struct sw_load_plan *plan = &b->l->loads[r];

        plan->checks = calloc((size_t)plan->n_checks + 1, sizeof(*plan->checks));
        if (!plan->checks)
            return sw_fail(e, SW_ERR_NOMEM, "no memory for alias checks");
        plan->n_checks = 0;
    }
    for (uint32_t i = 0; i < t->n; i++) {
        struct sw_load_plan *plan;

        if (t->entries[i].set == SW_NONE)
            continue;
        plan = &b->l->loads[check_rank(b, &t->entries[i], &source)];
        plan->checks[plan->n_checks++] = (struct sw_alias_check){source, t->entries[i].set};
    }
    return 0;
}

/* ---- tiles, loads, templates ---- */

static uint32_t holder_source(const struct sw_table *t, const struct sw_entry *entry, uint32_t rank)
{
    uint32_t low = entry->first_holder, high = low + entry->n_holders;

    while (high - low > 1) {
        const uint32_t mid = low + (high - low) / 2;

        if (t->holder_rank[mid] <= rank)
            low = mid;
        else
            high = mid;
    }
    return t->holder_source[low];
}

static int allocate_loads(struct builder *b, struct sw_error *e)
{
    const struct sw_table *t = &b->l->table;

    for (uint32_t i = 0; i < b->n_order; i++)
        b->l->loads[t->entries[b->order[i]].rank].n_tiles++;
    for (uint32_t r = 0; r < t->n_ranks; r++) {
        struct sw_load_plan *plan = &b->l->loads[r];
        const size_t n = plan->n_tiles;

        plan->rank = t->rank_numbers[r];
        plan->tiles = calloc(n + 1, sizeof(*plan->tiles));
        plan->loads = calloc(n + 1, sizeof(*plan->loads));
        plan->templates = calloc(n + 1, sizeof(*plan->templates));
        if (!plan->tiles || !plan->loads || !plan->templates)
            return sw_fail(
                e, SW_ERR_NOMEM, "no memory for the %zu tiles of trainer rank %u", n, plan->rank);
        plan->n_tiles = 0;
    }
    return 0;
}

/* Whether b's bytes follow a's in the engine that gave the order: then they do so in the replica.
 */
static bool follows(
    const struct builder *b, const struct sw_entry *before, const struct sw_entry *entry)
{
    const struct place *p = &b->places[before - b->l->table.entries];
    const struct place *q = &b->places[entry - b->l->table.entries];

    return p->target == q->target && p->region == q->region &&
           p->offset + before->bytes == q->offset;
}

static int lay_tiles(struct builder *b, struct sw_error *e)
{
    struct sw_table *t = &b->l->table;
    const struct sw_entry **last = calloc((size_t)t->n_ranks + 1, sizeof(*last));
    int err = last ? 0 : sw_fail(e, SW_ERR_NOMEM, "no memory to lay out tiles");

    for (uint32_t i = 0; !err && i < b->n_order; i++) {
        struct sw_entry *entry = &t->entries[b->order[i]];
        struct sw_load_plan *plan = &b->l->loads[entry->rank];
        uint64_t at = plan->replica_bytes;

        if (last[entry->rank] && !follows(b, last[entry->rank], entry))
            at = (at + TILE_ALIGN - 1) / TILE_ALIGN * TILE_ALIGN;
        if (sw_range_exceeds(at, entry->bytes, SW_BYTES_MAX - SW_REPLICA_ALIGN))
            err = sw_fail(e, SW_ERR_LIMIT,
                "trainer rank %u would stage more than %llu bytes; spread the tensors over more "
                "ranks",
                plan->rank, (unsigned long long)SW_BYTES_MAX);
        entry->tile = plan->n_tiles;
        plan->tiles[plan->n_tiles++] = (struct sw_tile){at, entry->bytes};
        plan->loads[plan->n_loads++] =
            (struct sw_load){.source = holder_source(t, entry, entry->rank), .tile = entry->tile};
        plan->replica_bytes = at + entry->bytes;
        last[entry->rank] = entry;
    }
    for (uint32_t r = 0; r < t->n_ranks; r++)
        b->l->loads[r].replica_bytes = (b->l->loads[r].replica_bytes + SW_REPLICA_ALIGN - 1) /
                                       SW_REPLICA_ALIGN * SW_REPLICA_ALIGN;
    free(last);
    return err;
}

/* The template that copies a whole tensor densely. */
static void whole_copy(const struct sw_entry *entry, struct sw_load_template *out)
{
    const uint64_t bits = sw_dtype_bits(entry->dtype);
    uint64_t elements = 1;

    *out = (struct sw_load_template){.transform = SW_TRANSFORM_COPY,
        .src_dtype = entry->dtype,
        .dst_dtype = entry->dtype,
        .ndim = entry->ndim};
    for (uint32_t d = entry->ndim; d-- > 0;) {
        out->len[d] = entry->shape[d];
        out->dst_stride[d] = elements * bits % 8 ? 0 : elements * bits / 8;
        elements *= entry->shape[d];
    }
}

struct shaped { /* a load, to be grouped with those of the same shape */
    const struct sw_entry *entry;
    uint32_t load;
};

static int shape_compare(const void *a, const void *b)
{
    const struct sw_entry *x = ((const struct shaped *)a)->entry;
    const struct sw_entry *y = ((const struct shaped *)b)->entry;

    if (x->dtype != y->dtype)
        return x->dtype < y->dtype ? -1 : 1;
    if (x->ndim != y->ndim)
        return x->ndim < y->ndim ? -1 : 1;
    for (uint32_t d = 0; d < x->ndim; d++)
        if (x->shape[d] != y->shape[d])
            return x->shape[d] < y->shape[d] ? -1 : 1;
    return 0;
}

static int add_templates(struct builder *b, uint32_t rank, struct sw_error *e)
{
    struct sw_load_plan *plan = &b->l->loads[rank];
    const struct sw_table *t = &b->l->table;
    struct shaped *shaped = calloc((size_t)plan->n_loads + 1, sizeof(*shaped));
    struct sw_load_template *fewer;

    if (!shaped)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for load templates");
    for (uint32_t i = 0; i < plan->n_loads; i++)
        shaped[i] = (struct shaped){&t->entries[t->sources[rank][plan->loads[i].source]], i};
    qsort(shaped, plan->n_loads, sizeof(*shaped), shape_compare);
    for (uint32_t i = 0; i < plan->n_loads; i++) {
        if (i == 0 || shape_compare(&shaped[i - 1], &shaped[i]))
            whole_copy(shaped[i].entry, &plan->templates[plan->n_templates++]);
        plan->loads[shaped[i].load].tmpl = plan->n_templates - 1;
    }
    free(shaped);
    fewer = realloc(plan->templates, ((size_t)plan->n_templates + 1) * sizeof(*fewer));
    if (fewer)
        plan->templates = fewer;
    return 0;
}

/* ---- all of it ---- */

static int builder_init(struct builder *b, struct sw_error *e)
{
    const size_t n = (size_t)b->l->table.n + 1;

    b->parent = calloc(n, sizeof(*b->parent));
    b->order = calloc(n, sizeof(*b->order));
    b->places = calloc(n, sizeof(*b->places));
    b->l->loads = calloc((size_t)b->l->table.n_ranks + 1, sizeof(*b->l->loads));
    if (!b->parent || !b->order || !b->places || !b->l->loads)
        return sw_fail(e, SW_ERR_NOMEM, "no memory to plan %zu source tensors", n - 1);
    for (uint32_t i = 0; i < n; i++)
        b->parent[i] = i;
    return 0;
}

static int build(
    struct builder *b, const struct sw_plan_target *targets, uint32_t n_targets, struct sw_error *e)
{
    int err = builder_init(b, e);

    for (uint32_t i = 0; !err && i < n_targets; i++)
        err = want_target(b, &targets[i], i, e);
    if (!err)
        err = sw_assign(&b->l->table, b->order, b->n_order, e);
    if (!err)
        err = allocate_loads(b, e);
    if (!err)
        err = lay_tiles(b, e);
    for (uint32_t r = 0; !err && r < b->l->table.n_ranks; r++)
        err = add_templates(b, r, e);
    if (!err)
        err = number_sets(b, e);
    if (!err)
        err = add_checks(b, e);
    return err;
}

static uint32_t list_unused(const struct sw_layout *l, char *names, size_t size)
{
    uint32_t unused = 0;
    size_t used = 0;

    if (size)
        names[0] = '\0';
    for (uint32_t i = 0; i < l->table.n; i++) {
        const struct sw_entry *entry = &l->table.entries[i];

        if (entry->wanted || entry->set != SW_NONE)
            continue;
        if (unused++ < 3 && used < size)
            used += (size_t)snprintf(
                names + used, size - used, "%s%s", unused > 1 ? ", " : "", entry->name);
    }
    return unused;
}

int sw_layout_make(const struct sw_plan_rank *ranks, uint32_t n_ranks,
    const struct sw_plan_target *targets, uint32_t n_targets, struct sw_layout **layout,
    uint32_t *unused, char *unused_names, size_t unused_size, struct sw_error *e)
{
    struct builder b = {.l = calloc(1, sizeof(*b.l))};
    int err;

    if (!b.l)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a plan");
    err = sw_table_make(ranks, n_ranks, &b.l->table, e);
    if (!err)
        err = build(&b, targets, n_targets, e);
    free(b.parent);
    free(b.order);
    free(b.places);
    free(b.owner);
    if (err) {
        sw_layout_free(b.l);
        return err;
    }
    *unused = list_unused(b.l, unused_names, unused_size);
    *layout = b.l;
    return 0;
}

void sw_layout_free(struct sw_layout *l)
{
    if (!l)
        return;
    for (uint32_t r = 0; l->loads && r < l->table.n_ranks; r++) {
        free(l->loads[r].templates);
        free(l->loads[r].loads);
        free(l->loads[r].checks);
        free(l->loads[r].tiles);
    }
    for (uint32_t s = 0; s < l->n_sets; s++)
        free(l->set_names[s]);
    free(l->set_names);
    free(l->loads);
    sw_table_free(&l->table);
    free(l);
}

const struct sw_load_plan *sw_layout_load(const struct sw_layout *l, uint32_t i)
{
    return i < l->table.n_ranks ? &l->loads[i] : NULL;
}

const char *sw_layout_alias_names(const struct sw_layout *l, uint32_t set)
{
    return set < l->n_sets && l->set_names[set] ? l->set_names[set] : "?";
}

/* ---- what a layout knows ---- */

static int not_in_layout(const struct sw_plan_target *t, const struct sw_parameter *p,
    const char *why, struct sw_error *e)
{
    return sw_fail(e, SW_ERR_PLAN,
        "engine %s rank %u: parameter %s is in no tile of the current plan (%s); the next version "
        "plans for it",
        t->engine, t->engine_rank, p->name, why);
}

int sw_layout_source(const struct sw_layout *l, const struct sw_plan_target *t,
    const struct sw_storages *s, const struct sw_storage *storage, const struct sw_entry **source,
    struct sw_error *e)
{
    const struct sw_entry *best = NULL, *first = NULL;
    const struct sw_parameter *root = &t->parameters[s->members[storage->first]];

    for (uint32_t i = 0; i < storage->n; i++) {
        struct sw_entry *entry;
        const int err =
            sw_table_match(&l->table, t, &t->parameters[s->members[storage->first + i]], &entry, e);

        if (err)
            return err;
        if (!entry)
            continue;
        if (first && storage->bytes && (first->set == SW_NONE || first->set != entry->set))
            return not_in_layout(t, root, "its aliases are not checked against each other yet", e);
        first = first ? first : entry;
        if (entry->tile != SW_NONE && (!best || entry < best))
            best = entry;
    }
    if (storage->bytes && !first)
        return sw_table_no_source(t, s, storage, e);
    if (storage->bytes && !best)
        return not_in_layout(t, root, "no engine wanted it when the plan was made", e);
    *source = best;
    return 0;
}

int sw_layout_knows(const struct sw_layout *l, const struct sw_plan_target *t, struct sw_error *e)
{
    struct sw_storages s;
    int err = sw_storages_make(t, &s, e);

    if (err)
        return err;
    for (uint32_t i = 0; !err && i < s.n; i++) {
        const struct sw_entry *source;

        err = sw_layout_source(l, t, &s, &s.items[i], &source, e);
    }
    sw_storages_free(&s);
    return err;
}
