/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/limits.h"

struct ref { /* a source of one rank */
    const char *name;
    uint32_t rank, source; /* positions */
};

static int ref_compare(const void *a, const void *b)
{
    const struct ref *x = a, *y = b;
    const int order = strcmp(x->name, y->name);

    if (order)
        return order;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->source < y->source ? -1 : x->source > y->source;
}

/* "BF16 [2, 3]" */
static const char *describe(
    enum sw_dtype dtype, uint32_t ndim, const uint64_t *shape, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "%s [", sw_dtype_name(dtype));

    for (uint32_t d = 0; d < ndim && used < size; d++)
        used += (size_t)snprintf(
            out + used, size - used, "%s%llu", d ? ", " : "", (unsigned long long)shape[d]);
    if (used < size)
        snprintf(out + used, size - used, "]");
    return out;
}

static bool is_whole(const struct sw_source *s)
{
    if (s->box.ndim != s->ndim)
        return false;
    for (uint32_t d = 0; d < s->ndim; d++)
        if (s->box.lo[d] != 0 || s->box.len[d] != s->shape[d])
            return false;
    return true;
}

static bool same_shape(uint32_t ndim, const uint64_t *a, uint32_t ndim_b, const uint64_t *b)
{
    return ndim == ndim_b && (ndim == 0 || !memcmp(a, b, ndim * sizeof(*a)));
}

static int entry_start(struct sw_table *t, const struct sw_plan_rank *rank,
    const struct sw_source *s, struct sw_entry *entry, struct sw_error *e)
{
    uint64_t *shape = sw_arena_array(&t->arena, s->ndim, sizeof(*shape));
    char *name = sw_arena_strdup(&t->arena, s->name);

    *entry = (struct sw_entry){.name = name,
        .dtype = s->dtype,
        .ndim = s->ndim,
        .shape = shape,
        .rank = SW_NONE,
        .tile = SW_NONE,
        .set = SW_NONE};
    if (!shape || !name)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for the table of source tensors");
    if (s->ndim > SW_MAX_DIMS || sw_tensor_bytes(s->dtype, s->ndim, s->shape, &entry->bytes) ||
        entry->bytes > SW_BYTES_MAX)
        return sw_fail(e, SW_ERR_PLAN,
            "trainer rank %u: source %s has a dtype or shape that has no size in bytes, or one "
            "over %llu",
            rank->rank, s->name, (unsigned long long)SW_BYTES_MAX);
    if (s->ndim)
        memcpy(shape, s->shape, s->ndim * sizeof(*shape));
    return 0;
}

static int entry_differs(const struct sw_table *t, const struct sw_plan_rank *ranks,
    const struct sw_entry *entry, const struct ref *ref, struct sw_error *e)
{
    const struct sw_source *s = &ranks[ref->rank].sources[ref->source];
    char a[160], b[160];

    return sw_fail(e, SW_ERR_PLAN,
        "source %s is %s on trainer rank %u and %s on rank %u: all ranks must declare its global "
        "shape and dtype alike",
        s->name, describe(entry->dtype, entry->ndim, entry->shape, a, sizeof(a)),
        ranks[t->holder_rank[entry->first_holder]].rank,
        describe(s->dtype, s->ndim, s->shape, b, sizeof(b)), ranks[ref->rank].rank);
}

static int add_ref(struct sw_table *t, const struct sw_plan_rank *ranks, const struct ref *ref,
    uint32_t at, struct sw_error *e)
{
    const struct sw_source *s = &ranks[ref->rank].sources[ref->source];
    const bool is_new = t->n == 0 || strcmp(t->entries[t->n - 1].name, s->name) != 0;
    struct sw_entry *entry = &t->entries[is_new ? t->n : t->n - 1];

    if (is_new) {
        if (entry_start(t, &ranks[ref->rank], s, entry, e))
            return e ? e->code : SW_ERR_PLAN;
        entry->first_holder = at;
        t->n++;
    } else if (t->holder_rank[at - 1] == ref->rank) {
        return sw_fail(e, SW_ERR_PLAN, "trainer rank %u declares source %s twice",
            ranks[ref->rank].rank, s->name);
    } else if (entry->dtype != s->dtype ||
               !same_shape(entry->ndim, entry->shape, s->ndim, s->shape)) {
        return entry_differs(t, ranks, entry, ref, e);
    }
    if (!is_whole(s))
        entry->partial = true;
    t->holder_rank[at] = ref->rank;
    t->holder_source[at] = ref->source;
    t->sources[ref->rank][ref->source] = t->n - 1;
    entry->n_holders++;
    return 0;
}

static uint32_t count_names(const struct ref *refs, size_t n)
{
    uint32_t names = n > 0;

    for (size_t i = 1; i < n; i++)
        names += strcmp(refs[i].name, refs[i - 1].name) != 0;
    return names;
}

static int allocate(struct sw_table *t, const struct sw_plan_rank *ranks, size_t total,
    uint32_t names, struct sw_error *e)
{
    t->entries = calloc((size_t)names + 1, sizeof(*t->entries));
    t->rank_numbers = calloc((size_t)t->n_ranks + 1, sizeof(*t->rank_numbers));
    t->n_sources = calloc((size_t)t->n_ranks + 1, sizeof(*t->n_sources));
    t->sources = calloc((size_t)t->n_ranks + 1, sizeof(*t->sources));
    t->holder_rank = calloc(total + 1, sizeof(*t->holder_rank));
    t->holder_source = calloc(total + 1, sizeof(*t->holder_source));
    if (!t->entries || !t->rank_numbers || !t->n_sources || !t->sources || !t->holder_rank ||
        !t->holder_source)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for the table of %zu source tensors", total);
    for (uint32_t r = 0; r < t->n_ranks; r++) {
        t->rank_numbers[r] = ranks[r].rank;
        t->n_sources[r] = ranks[r].n_sources;
        t->sources[r] = calloc((size_t)ranks[r].n_sources + 1, sizeof(uint32_t));
        if (!t->sources[r])
            return sw_fail(e, SW_ERR_NOMEM, "no memory for the table of %zu source tensors", total);
    }
    return 0;
}

int sw_table_make(
    const struct sw_plan_rank *ranks, uint32_t n_ranks, struct sw_table *out, struct sw_error *e)
{
    struct sw_table t = {.n_ranks = n_ranks};
    struct ref *refs;
    size_t total = 0, n = 0;
    int err = 0;

    for (uint32_t r = 0; r < n_ranks; r++)
        total += ranks[r].n_sources;
    if (total >= SW_NONE)
        return sw_fail(
            e, SW_ERR_LIMIT, "%zu declared sources; at most %u can be planned", total, SW_NONE - 1);
    refs = calloc(total + 1, sizeof(*refs));
    if (!refs)
        return sw_fail(e, SW_ERR_NOMEM, "no memory to sort %zu source tensors", total);
    for (uint32_t r = 0; r < n_ranks; r++)
        for (uint32_t s = 0; s < ranks[r].n_sources; s++)
            refs[n++] = (struct ref){ranks[r].sources[s].name, r, s};
    qsort(refs, n, sizeof(*refs), ref_compare);
    err = allocate(&t, ranks, total, count_names(refs, n), e);
    for (size_t i = 0; !err && i < n; i++)
        err = add_ref(&t, ranks, &refs[i], (uint32_t)i, e);
    free(refs);
    if (err) {
        sw_table_free(&t);
        return err;
    }
    *out = t;
    return 0;
}

void sw_table_free(struct sw_table *t)
{
    for (uint32_t r = 0; t->sources && r < t->n_ranks; r++)
        free(t->sources[r]);
    free(t->sources);
    free(t->entries);
    free(t->rank_numbers);
    free(t->n_sources);
    free(t->holder_rank);
    free(t->holder_source);
    sw_arena_clear(&t->arena);
    *t = (struct sw_table){0};
}

static int entry_compare(const void *key, const void *entry)
{
    return strcmp(key, ((const struct sw_entry *)entry)->name);
}

struct sw_entry *sw_table_find(const struct sw_table *t, const char *name)
{
    return t->n ? bsearch(name, t->entries, t->n, sizeof(*t->entries), entry_compare) : NULL;
}

int sw_table_match(const struct sw_table *t, const struct sw_plan_target *target,
    const struct sw_parameter *p, struct sw_entry **out, struct sw_error *e)
{
    struct sw_entry *entry = sw_table_find(t, p->name);
    char a[160], b[160];

    *out = NULL;
    if (!entry)
        return 0;
    if (entry->dtype != p->dtype || !same_shape(entry->ndim, entry->shape, p->ndim, p->shape))
        return sw_fail(e, SW_ERR_PLAN,
            "engine %s rank %u: parameter %s is %s, but the source of that name is %s",
            target->engine, target->engine_rank, p->name,
            describe(p->dtype, p->ndim, p->shape, a, sizeof(a)),
            describe(entry->dtype, entry->ndim, entry->shape, b, sizeof(b)));
    if (entry->partial)
        return sw_fail(e, SW_ERR_UNSUPPORTED,
            "source %s is declared with a box that is not the whole tensor: sharded sources are "
            "not done by this version; gather it and declare it whole",
            entry->name);
    *out = entry;
    return 0;
}

int sw_table_no_source(const struct sw_plan_target *target, const struct sw_storages *s,
    const struct sw_storage *storage, struct sw_error *e)
{
    const struct sw_parameter *p = &target->parameters[s->members[storage->first]];
    char text[160];

    describe(p->dtype, p->ndim, p->shape, text, sizeof(text));
    if (storage->n == 1)
        return sw_fail(e, SW_ERR_PLAN,
            "engine %s rank %u: parameter %s (%s) has no source tensor of that name in any trainer "
            "rank's manifest",
            target->engine, target->engine_rank, p->name, text);
    return sw_fail(e, SW_ERR_PLAN,
        "engine %s rank %u: parameter %s (%s) has no source tensor of that name, nor of the names "
        "of its %u aliases, in any trainer rank's manifest",
        target->engine, target->engine_rank, p->name, text, storage->n - 1);
}
