/* SPDX-License-Identifier: Apache-2.0 */
/* Part of the proof: targets are of the kinds there are, and their parameters lie apart. See
 * compact_proof.h. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"
#include "trainerd/plan/compact_proof.h"

static bool has_alias(const struct sw_parameter *p)
{
    return p->alias_of && p->alias_of[0];
}

/* ---- storages ---- */

struct named {
    const char *name;
    uint32_t i;
};

static int named_compare(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

/* One step of each alias into root; names are sorted. */
static int resolve(
    const struct sw_plan_target *t, const struct named *names, uint32_t *root, struct sw_error *e)
{
    for (uint32_t i = 0; i < t->n_parameters; i++) {
        const struct named key = {.name = t->parameters[i].alias_of}, *found;

        root[i] = i;
        if (!has_alias(&t->parameters[i]))
            continue;
        found = bsearch(&key, names, t->n_parameters, sizeof(key), named_compare);
        if (!found)
            return sw_fail(e, SW_ERR_PLAN,
                "engine %s rank %u: parameter %s is declared an alias of %s, which is none of its "
                "parameters",
                t->engine, t->engine_rank, t->parameters[i].name, key.name);
        root[i] = found->i;
    }
    return 0;
}

/* Chains of aliases, shortened to their ends. */
static int shorten(const struct sw_plan_target *t, uint32_t *root, struct sw_error *e)
{
    for (uint32_t i = 0; i < t->n_parameters; i++) {
        uint32_t end = i;

        for (uint32_t step = 0; root[end] != end; step++) {
            if (step >= t->n_parameters)
                return sw_fail(e, SW_ERR_PLAN,
                    "engine %s rank %u: parameter %s is an alias of itself in the end", t->engine,
                    t->engine_rank, t->parameters[i].name);
            end = root[end];
        }
        root[i] = end;
    }
    return 0;
}

int sw_proof_roots(const struct sw_plan_target *t, uint32_t *root, struct sw_error *e)
{
    struct named *names;
    bool any = false;
    int err;

    for (uint32_t i = 0; i < t->n_parameters; i++) {
        root[i] = i;
        any = any || has_alias(&t->parameters[i]);
    }
    if (!any)
        return 0;
    names = calloc(t->n_parameters, sizeof(*names));
    if (!names)
        return sw_proof_no_memory(e);
    for (uint32_t i = 0; i < t->n_parameters; i++)
        names[i] = (struct named){t->parameters[i].name, i};
    qsort(names, t->n_parameters, sizeof(*names), named_compare);
    err = resolve(t, names, root, e);
    if (!err)
        err = shorten(t, root, e);
    free(names);
    return err;
}

/* ---- where parameters lie ---- */

struct lies {
    uint64_t start, end;
    uint32_t region, root, index;
};

static int lies_compare(const void *a, const void *b)
{
    const struct lies *x = a, *y = b;

    if (x->region != y->region)
        return x->region < y->region ? -1 : 1;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return x->root < y->root ? -1 : x->root > y->root;
}

/* Those with bytes, sorted; in their regions. */
static int list_places(const struct sw_plan_target *t, const uint32_t *root, struct lies *items,
    uint32_t *n, struct sw_error *e)
{
    bool sorted = true;

    *n = 0;
    for (uint32_t i = 0; i < t->n_parameters; i++) {
        const struct sw_parameter *p = &t->parameters[i];
        uint64_t bytes;

        if (sw_tensor_bytes(p->dtype, p->ndim, p->shape, &bytes) || p->region >= t->n_regions ||
            sw_range_exceeds(p->offset, bytes, t->region_bytes[p->region]))
            return sw_fail(e, SW_ERR_PLAN,
                "engine %s rank %u: parameter %s does not lie in its region", t->engine,
                t->engine_rank, p->name);
        if (bytes == 0)
            continue;
        items[*n] = (struct lies){p->offset, p->offset + bytes, p->region, root[i], i};
        sorted = sorted && (*n == 0 || lies_compare(&items[*n - 1], &items[*n]) <= 0);
        ++*n;
    }
    if (!sorted)
        qsort(items, *n, sizeof(*items), lies_compare);
    return 0;
}

/* Aliases lie exactly where what they are an alias of lies; others nowhere near. */
static int check_apart(
    const struct sw_plan_target *t, const struct lies *items, uint32_t n, struct sw_error *e)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct lies *x = &items[i], *before = i ? &items[i - 1] : NULL;
        const struct sw_parameter *p = &t->parameters[x->index], *root = &t->parameters[x->root];
        uint64_t bytes = 0;

        sw_tensor_bytes(root->dtype, root->ndim, root->shape, &bytes);
        if (root->region != x->region || root->offset != x->start || bytes != x->end - x->start)
            return sw_fail(e, SW_ERR_PLAN,
                "engine %s rank %u: parameter %s is declared an alias of %s, which does not lie at "
                "the same place with the same size",
                t->engine, t->engine_rank, p->name, root->name);
        if (before && before->region == x->region && before->end > x->start &&
            before->root != x->root)
            return sw_fail(e, SW_ERR_PLAN,
                "engine %s rank %u: parameters %s and %s overlap and are no aliases of each other",
                t->engine, t->engine_rank, t->parameters[before->index].name, p->name);
    }
    return 0;
}

static int check_places(const struct sw_plan_target *t, struct sw_error *e)
{
    struct lies *items = calloc(t->n_parameters + 1ull, sizeof(*items));
    uint32_t *root = calloc(t->n_parameters + 1ull, sizeof(*root));
    uint32_t n = 0;
    int err = items && root ? sw_proof_roots(t, root, e) : sw_proof_no_memory(e);

    if (!err)
        err = list_places(t, root, items, &n, e);
    if (!err)
        err = check_apart(t, items, n, e);
    free(items);
    free(root);
    return err;
}

/* Targets are often given the same arrays: what was found of one holds for the other. */
static bool same_places(const struct sw_plan_target *a, const struct sw_plan_target *b)
{
    return a->parameters == b->parameters && a->n_parameters == b->n_parameters &&
           a->n_regions == b->n_regions &&
           (a->n_regions == 0 ||
               !memcmp(a->region_bytes, b->region_bytes, a->n_regions * sizeof(*a->region_bytes)));
}

/* ---- kinds ---- */

struct digested { /* an array of parameters: what they are, not where they lie */
    const struct sw_parameter *parameters;
    uint32_t n;
    const struct sw_plan_target *proven; /* the last one whose places were proven */
    XXH128_hash_t digest;
};

static int digested_compare(const void *a, const void *b)
{
    const struct digested *x = a, *y = b;

    if (x->parameters != y->parameters)
        return (uintptr_t)x->parameters < (uintptr_t)y->parameters ? -1 : 1;
    return x->n < y->n ? -1 : x->n > y->n;
}

static void digest(XXH3_state_t *state, struct digested *d)
{
    XXH3_128bits_reset(state);
    for (uint32_t i = 0; i < d->n; i++) {
        const struct sw_parameter *p = &d->parameters[i];
        const uint64_t numbers[] = {p->dtype, p->ndim, has_alias(p)};

        XXH3_128bits_update(state, p->name, strlen(p->name) + 1);
        XXH3_128bits_update(state, numbers, sizeof(numbers));
        XXH3_128bits_update(state, p->shape, p->ndim * sizeof(*p->shape));
        if (has_alias(p))
            XXH3_128bits_update(state, p->alias_of, strlen(p->alias_of) + 1);
    }
    d->digest = XXH3_128bits_digest(state);
}

struct arrays {
    struct digested *items;
    uint32_t n;
};

static struct digested *find_array(const struct arrays *a, const struct sw_plan_target *t)
{
    const struct digested key = {.parameters = t->parameters, .n = t->n_parameters};

    return bsearch(&key, a->items, a->n, sizeof(key), digested_compare);
}

static int list_arrays(const struct sw_proof *p, struct arrays *a, struct sw_error *e)
{
    XXH3_state_t *state = XXH3_createState();

    a->items = calloc(p->n_targets + 1ull, sizeof(*a->items));
    if (!state || !a->items) {
        XXH3_freeState(state);
        return sw_proof_no_memory(e);
    }
    for (uint32_t i = 0; i < p->n_targets; i++)
        a->items[i] = (struct digested){
            .parameters = p->targets[i].parameters, .n = p->targets[i].n_parameters};
    qsort(a->items, p->n_targets, sizeof(*a->items), digested_compare);
    for (uint32_t i = 0; i < p->n_targets; i++)
        if (i == 0 || digested_compare(&a->items[a->n - 1], &a->items[i]) != 0)
            a->items[a->n++] = a->items[i];
    for (uint32_t i = 0; i < a->n; i++)
        digest(state, &a->items[i]);
    XXH3_freeState(state);
    return 0;
}

static bool of_kind(
    const struct arrays *a, const struct sw_plan_target *t, const struct sw_plan_target *kind)
{
    if (t->model != kind->model || t->n_parameters != kind->n_parameters ||
        (t->model && !(t->placement && sw_placement_equal(t->placement, kind->placement))))
        return false;
    return XXH128_isEqual(find_array(a, t)->digest, find_array(a, kind)->digest);
}

/* Engines come one after another, each with the same kinds in the same order: the next kind is
 * tried first. */
static bool find_kind(const struct sw_proof *p, const struct arrays *a,
    const struct sw_plan_target *t, uint32_t *next)
{
    const struct sw_compact *c = p->c;

    for (uint32_t i = 0; i < c->n_kinds; i++) {
        const uint32_t k = (*next + i) % c->n_kinds;

        if (of_kind(a, t, &p->targets[c->kinds[k].target])) {
            *next = k + 1;
            return true;
        }
    }
    return false;
}

int sw_proof_targets(struct sw_proof *p, struct sw_error *e)
{
    struct arrays a = {0};
    uint32_t next = 0;
    int err = list_arrays(p, &a, e);

    for (uint32_t i = 0; !err && i < p->n_targets; i++) {
        const struct sw_plan_target *t = &p->targets[i];
        struct digested *array = find_array(&a, t);

        if (!find_kind(p, &a, t, &next))
            err = sw_proof_wrong(e, "engine %s rank %u is of no kind", t->engine, t->engine_rank);
        else if (!array->proven || !same_places(array->proven, t))
            err = check_places(t, e);
        array->proven = t;
    }
    free(a.items);
    return err;
}
