/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that come one by one -> lists that ranks share, with groups of tensors that are alike in
 * every rank. A group is split when a rank comes that holds some of its tensors otherwise; ranks
 * that came before hold the new group as they held the one it came from.
 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"
#include "trainerd/plan/boxes.h"

struct list {
    struct sw_source_list list;
    uint64_t digest;
    struct sw_plan_tensor *tensors;
    uint32_t *group;
    uint32_t groups_size;
    uint32_t *origin; /* by group: the group that it was split from; itself at first */
};

struct rank {
    struct list *list;
    uint32_t n_boxes; /* groups that there were when it came */
    struct sw_box *boxes;
};

struct named { /* where a name was seen first */
    const struct sw_plan_tensor *tensor;
    uint32_t rank;
    uint32_t list; /* the one that had it last */
};

struct sw_fold {
    uint32_t n, size, ranks_size;
    struct sw_plan_rank *plan; /* n of them */
    struct rank *ranks;
    uint32_t n_lists, lists_size;
    struct list **lists;
    struct sw_index names; /* dropped when the fold is done */
    uint32_t n_named, named_size;
    struct named *named;
    bool done;
};

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory for the source tensors of trainer ranks");
}

struct sw_fold *sw_fold_new(void)
{
    return calloc(1, sizeof(struct sw_fold));
}

static void list_free(struct list *list)
{
    if (!list)
        return;
    free(list->tensors);
    free(list->group);
    free(list->origin);
    free(list);
}

void sw_fold_free(struct sw_fold *f)
{
    if (!f)
        return;
    for (uint32_t i = 0; i < f->n_lists; i++)
        list_free(f->lists[i]);
    for (uint32_t i = 0; i < f->n; i++)
        free(f->ranks[i].boxes);
    free(f->lists);
    free(f->ranks);
    free(f->plan);
    sw_index_free(&f->names);
    free(f->named);
    free(f);
}

/* ---- lists ---- */

static uint64_t digest(uint32_t n, const struct sw_source *sources)
{
    uint64_t hash = n;

    for (uint32_t i = 0; i < n; i++)
        hash = XXH3_64bits_withSeed(sources[i].name, strlen(sources[i].name), hash);
    return hash;
}

static bool same_tensor(const struct sw_plan_tensor *t, const struct sw_source *s)
{
    return t->dtype == s->dtype && t->ndim == s->ndim &&
           (!t->ndim || !memcmp(t->shape, s->shape, t->ndim * sizeof(*t->shape)));
}

static struct list *find_list(
    const struct sw_fold *f, uint32_t n, const struct sw_source *sources, uint64_t hash)
{
    for (uint32_t k = f->n_lists; k-- > 0;) {
        struct list *list = f->lists[k];
        uint32_t i = 0;

        if (list->list.n != n || list->digest != hash)
            continue;
        while (i < n && same_tensor(&list->tensors[i], &sources[i]) &&
               !strcmp(list->tensors[i].name, sources[i].name))
            i++;
        if (i == n)
            return list;
    }
    return NULL;
}

static bool same_name(const void *arg, uint32_t item, const void *key)
{
    return !strcmp(((const struct sw_fold *)arg)->named[item].tensor->name, key);
}

static int differs(const struct sw_plan_tensor *a, uint32_t rank_a, const struct sw_source *b,
    uint32_t rank_b, struct sw_error *e)
{
    char x[160], y[160];

    return sw_fail(e, SW_ERR_PLAN,
        "source %s is %s on trainer rank %u and %s on rank %u: all ranks must declare its global "
        "shape and dtype alike",
        a->name, sw_tensor_text(a->dtype, a->ndim, a->shape, x, sizeof(x)), rank_a,
        sw_tensor_text(b->dtype, b->ndim, b->shape, y, sizeof(y)), rank_b);
}

/* Compares the last list's tensor with the one of its name that came first, in whatever list. */
static int check_name(struct sw_fold *f, uint32_t i, uint32_t rank, const struct sw_source *source,
    struct sw_error *e)
{
    const uint32_t list = f->n_lists - 1;
    const struct sw_plan_tensor *t = &f->lists[list]->tensors[i];
    const uint64_t hash = XXH3_64bits(t->name, strlen(t->name));
    const uint32_t at = sw_index_find(&f->names, hash, same_name, f, t->name);

    if (at == SW_NONE) {
        if (sw_array_room(&f->named, &f->named_size, f->n_named, sizeof(*f->named)) ||
            sw_index_add(&f->names, hash, f->n_named))
            return no_memory(e);
        f->named[f->n_named++] = (struct named){t, rank, list};
        return 0;
    }
    if (f->named[at].list == list)
        return sw_fail(e, SW_ERR_PLAN, "trainer rank %u declares source %s twice", rank, t->name);
    f->named[at].list = list;
    return same_tensor(f->named[at].tensor, source)
               ? 0
               : differs(f->named[at].tensor, f->named[at].rank, source, rank, e);
}

/* ---- groups ---- */

struct grouper { /* tensors by group and box, or by shape */
    const struct list *list;
    const struct sw_box *boxes; /* by group; NULL: by shape, `first` being a group's tensor */
    const uint32_t *first;
    uint32_t group;
    const struct sw_box *box;
    const struct sw_plan_tensor *tensor;
};

static bool same_group(const void *arg, uint32_t item, const void *key)
{
    const struct grouper *g = arg;
    const struct sw_plan_tensor *t = key, *u;

    if (g->boxes)
        return g->list->origin[item] == g->group && sw_box_equal(&g->boxes[item], g->box);
    u = &g->list->tensors[g->first[item]];
    return t->ndim == u->ndim && !memcmp(t->shape, u->shape, t->ndim * sizeof(*t->shape));
}

/* A new group, split from `origin` (SW_NONE: a first one). */
static int add_group(struct list *list, uint32_t origin)
{
    const uint32_t n = list->list.n_groups;

    if (sw_array_room(&list->origin, &list->groups_size, n, sizeof(*list->origin)))
        return -1;
    list->origin[n] = origin == SW_NONE ? n : origin;
    list->list.n_groups++;
    return 0;
}

/* The first groups: by shape. */
static int group_by_shape(struct list *list, struct sw_error *e)
{
    struct sw_index index = {0};
    uint32_t *first = NULL, size = 0;
    int err = 0;

    for (uint32_t i = 0; !err && i < list->list.n; i++) {
        const struct sw_plan_tensor *t = &list->tensors[i];
        const struct grouper g = {.list = list, .first = first};
        const uint64_t hash = XXH3_64bits(t->shape, t->ndim * sizeof(*t->shape)) + t->ndim;

        list->group[i] = sw_index_find(&index, hash, same_group, &g, t);
        if (list->group[i] != SW_NONE)
            continue;
        list->group[i] = list->list.n_groups;
        if (sw_array_room(&first, &size, list->list.n_groups, sizeof(*first)) ||
            sw_index_add(&index, hash, list->list.n_groups) || add_group(list, SW_NONE))
            err = no_memory(e);
        else
            first[list->group[i]] = i;
    }
    sw_index_free(&index);
    free(first);
    return err;
}

static void normalise(const struct sw_box *from, struct sw_box *to)
{
    memset(to, 0, sizeof(*to));
    to->ndim = from->ndim;
    memcpy(to->lo, from->lo, from->ndim * sizeof(*from->lo));
    memcpy(to->len, from->len, from->ndim * sizeof(*from->len));
}

/* Takes a tensor out of its group: into one split from it whose box in this rank it has. */
static int split_group(struct list *list, struct rank *rank, uint32_t *size, struct sw_index *index,
    uint32_t i, const struct sw_box *box)
{
    const struct grouper g = {
        .list = list, .boxes = rank->boxes, .group = list->group[i], .box = box};
    const uint64_t hash = XXH3_64bits_withSeed(box, sizeof(*box), list->group[i]);
    uint32_t to = sw_index_find(index, hash, same_group, &g, &list->tensors[i]);

    if (to == SW_NONE) {
        to = list->list.n_groups;
        if (sw_array_room(&rank->boxes, size, to, sizeof(*rank->boxes)) ||
            sw_index_add(index, hash, to) || add_group(list, list->group[i]))
            return -1;
        rank->boxes[to] = *box;
    }
    list->group[i] = to;
    return 0;
}

static int take_boxes(
    struct list *list, struct rank *rank, const struct sw_source *sources, struct sw_error *e)
{
    uint32_t size = list->list.n_groups;
    uint8_t *has = calloc((size_t)size + 1, 1);
    struct sw_index index = {0};
    int err = 0;

    rank->boxes = malloc(((size_t)size + 1) * sizeof(*rank->boxes));
    if (!has || !rank->boxes)
        err = no_memory(e);
    for (uint32_t i = 0; !err && i < list->list.n; i++) {
        const uint32_t g = list->group[i];
        struct sw_box box;

        normalise(&sources[i].box, &box);
        if (!has[g]) {
            has[g] = 1;
            memcpy(&rank->boxes[g], &box, sizeof(box));
        } else if (!sw_box_equal(&rank->boxes[g], &box) &&
                   split_group(list, rank, &size, &index, i, &box)) {
            err = no_memory(e);
        }
    }
    rank->n_boxes = list->list.n_groups;
    sw_index_free(&index);
    free(has);
    return err;
}

/* ---- ranks ---- */

static int check_sources(
    uint32_t rank, uint32_t n, const struct sw_source *sources, struct sw_error *e)
{
    for (uint32_t i = 0; i < n; i++) {
        if (sources[i].ndim > SW_MAX_DIMS)
            return sw_fail(e, SW_ERR_PLAN,
                "trainer rank %u: source %s has %u dimensions; at most %d are possible", rank,
                sources[i].name, sources[i].ndim, SW_MAX_DIMS);
        if (sources[i].box.ndim != sources[i].ndim)
            return sw_fail(e, SW_ERR_PLAN,
                "trainer rank %u: source %s has %u dimensions, and its box has %u", rank,
                sources[i].name, sources[i].ndim, sources[i].box.ndim);
    }
    return 0;
}

/* The list is the fold's as soon as it is there: names may refer to it. */
static int new_list(struct sw_fold *f, uint32_t rank, uint32_t n, const struct sw_source *sources,
    uint64_t hash, struct list **out, struct sw_error *e)
{
    struct list *list = calloc(1, sizeof(*list));
    int err = 0;

    if (!list || sw_array_room(&f->lists, &f->lists_size, f->n_lists, sizeof(*f->lists))) {
        free(list);
        return no_memory(e);
    }
    f->lists[f->n_lists++] = list;
    list->digest = hash;
    list->tensors = calloc((size_t)n + 1, sizeof(*list->tensors));
    list->group = calloc((size_t)n + 1, sizeof(*list->group));
    if (!list->tensors || !list->group)
        return no_memory(e);
    list->list = (struct sw_source_list){.n = n, .tensors = list->tensors, .group = list->group};
    for (uint32_t i = 0; !err && i < n; i++) {
        struct sw_plan_tensor *t = &list->tensors[i];

        *t = (struct sw_plan_tensor){sources[i].name, sources[i].dtype, sources[i].ndim, {0}};
        memcpy(t->shape, sources[i].shape, t->ndim * sizeof(*t->shape));
        err = check_name(f, i, rank, &sources[i], e);
    }
    if (!err)
        err = group_by_shape(list, e);
    *out = list;
    return err;
}

int sw_fold_add(struct sw_fold *f, uint32_t rank, uint32_t host, uint32_t n,
    const struct sw_source *sources, struct sw_error *e)
{
    const uint64_t hash = digest(n, sources);
    uint32_t plan_size = f->size;
    struct rank *to;
    struct list *list;
    int err;

    if (f->done)
        return sw_fail(e, SW_ERR_STATE, "trainer rank %u comes after the ranks were taken", rank);
    err = check_sources(rank, n, sources, e);
    if (err)
        return err;
    if (sw_array_room(&f->plan, &plan_size, f->n, sizeof(*f->plan)) ||
        sw_array_room(&f->ranks, &f->ranks_size, f->n, sizeof(*f->ranks)))
        return no_memory(e);
    f->size = plan_size;
    list = find_list(f, n, sources, hash);
    if (!list)
        err = new_list(f, rank, n, sources, hash, &list, e);
    if (err)
        return err;
    to = &f->ranks[f->n];
    *to = (struct rank){.list = list};
    err = take_boxes(list, to, sources, e);
    if (err) {
        free(to->boxes);
        return err;
    }
    f->plan[f->n++] = (struct sw_plan_rank){.rank = rank, .host = host, .list = &list->list};
    return 0;
}

/* Gives a rank the boxes of groups that were split after it came. */
static int finish_boxes(struct rank *rank, struct sw_error *e)
{
    const struct list *list = rank->list;
    struct sw_box *more =
        realloc(rank->boxes, ((size_t)list->list.n_groups + 1) * sizeof(*rank->boxes));

    if (!more)
        return no_memory(e);
    rank->boxes = more;
    for (; rank->n_boxes < list->list.n_groups; rank->n_boxes++)
        more[rank->n_boxes] = more[list->origin[rank->n_boxes]];
    return 0;
}

int sw_fold_ranks(
    struct sw_fold *f, const struct sw_plan_rank **ranks, uint32_t *n, struct sw_error *e)
{
    for (uint32_t r = 0; r < f->n; r++) {
        const int err = finish_boxes(&f->ranks[r], e);

        if (err)
            return err;
        f->plan[r].boxes = f->ranks[r].boxes;
    }
    f->done = true;
    sw_index_free(&f->names);
    free(f->named);
    f->named = NULL;
    f->n_named = f->named_size = 0;
    *ranks = f->plan;
    *n = f->n;
    return 0;
}
