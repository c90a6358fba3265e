/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One source list for each pipeline stage (and, with shards, each expert-parallel rank of it), in
 * which tensors of equal shape that are split alike form a group; each rank has a box for each
 * group.
 */
#include "trainerd/plan/scene_trainers.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/limits.h"

#define PER_HOST 8u
#define GROUPS_MAX 4096u

struct group { /* what decides which box a rank has */
    enum sw_dtype dtype;
    uint32_t ndim;
    uint64_t shape[SW_MAX_DIMS];
    enum sw_axis axis;
    uint32_t axis_dim; /* the dimension that the axis is */
    bool packed;       /* dimension 0 counts experts */
};

struct list {
    struct sw_source_list list;
    struct sw_plan_tensor *tensors;
    uint32_t *group;
    struct group *groups;
};

struct maker {
    const struct sw_model *m;
    const struct sw_trainer_spec *spec;
    struct sw_scene *scene;
    struct sw_error *e;
    uint32_t tp, pp, ep, stage_ranks, n_eps; /* n_eps: lists of a stage */
    int64_t first_layer, n_layers;
    uint32_t first_role; /* the first role that has layers */
    const char **names;  /* by stored tensor, once it is used */
    uint32_t *seen;      /* by stored tensor: 1 + the list that has it */
};

static int no_memory(struct maker *k)
{
    return sw_fail(k->e, SW_ERR_NOMEM, "no memory for a plan's scene");
}

/* ---- stages ---- */

static bool has_layers(const struct sw_tensor_role *r)
{
    return r->n_variables > (r->expert ? 1u : 0u);
}

static void find_layers(struct maker *k)
{
    int64_t end = 0;
    bool any = false;

    k->first_role = sw_model_roles(k->m);
    for (uint32_t i = 0; i < sw_model_roles(k->m); i++) {
        const struct sw_tensor_role *r = sw_model_role(k->m, i);

        if (!has_layers(r))
            continue;
        if (k->first_role > i)
            k->first_role = i;
        if (r->draft || !r->count[0])
            continue;
        k->first_layer = any && k->first_layer < r->from[0] ? k->first_layer : r->from[0];
        end = any && end > r->from[0] + r->count[0] ? end : r->from[0] + r->count[0];
        any = true;
    }
    k->n_layers = end - k->first_layer;
}

static uint32_t stage_of(const struct maker *k, uint32_t role, uint32_t index)
{
    const struct sw_tensor_role *r = sw_model_role(k->m, role);
    const int64_t each = k->n_layers / k->pp, more = k->n_layers % k->pp;
    int64_t layer;

    if (r->draft)
        return k->pp - 1;
    if (!has_layers(r))
        return role < k->first_role ? 0 : k->pp - 1;
    layer = r->from[0] + (r->expert ? index / r->count[1] : index) - k->first_layer;
    if (layer < more * (each + 1) || !each)
        return (uint32_t)(layer / (each + 1));
    return (uint32_t)(more + (layer - more * (each + 1)) / each);
}

/* ---- lists ---- */

/* The way to store a tensor that the spec asks for. */
static bool stored_of(const struct maker *k, uint32_t tensor, uint32_t ndim, uint32_t *stored)
{
    uint64_t origin[SW_MAX_DIMS];
    struct sw_stored s;
    uint32_t other;

    if (!sw_model_locate(k->m, tensor, 0, stored, origin))
        return false;
    for (uint32_t i = 1; k->spec->packed && sw_model_locate(k->m, tensor, i, &other, origin); i++) {
        sw_model_stored_get(k->m, other, &s);
        if (s.ndim > ndim) {
            *stored = other;
            break;
        }
    }
    return true;
}

static bool same_group(const struct group *a, const struct group *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim && a->axis == b->axis &&
           a->axis_dim == b->axis_dim && a->packed == b->packed &&
           !memcmp(a->shape, b->shape, sizeof(a->shape));
}

static int find_group(struct maker *k, struct list *l, const struct group *g, uint32_t *out)
{
    uint32_t i = 0;

    while (i < l->list.n_groups && !same_group(&l->groups[i], g))
        i++;
    if (i == GROUPS_MAX)
        return sw_fail(k->e, SW_ERR_LIMIT, "tensors of more than %u shapes", GROUPS_MAX);
    if (i == l->list.n_groups)
        l->groups[l->list.n_groups++] = *g;
    *out = i;
    return 0;
}

static int add_tensor(
    struct maker *k, struct list *l, const struct sw_tensor_role *r, uint32_t stored)
{
    struct sw_plan_tensor *t = &l->tensors[l->list.n];
    char name[SW_NAME_MAX + 1];
    struct sw_stored s;
    struct group g;

    sw_model_stored_get(k->m, stored, &s);
    if (!k->names[stored]) {
        sw_model_stored_name(k->m, stored, name);
        k->names[stored] = sw_arena_strdup(&k->scene->arena, name);
        if (!k->names[stored])
            return no_memory(k);
    }
    if (k->spec->fp8 && s.fp8)
        s.dtype = SW_F8_E4M3;
    *t = (struct sw_plan_tensor){.name = k->names[stored], .dtype = s.dtype, .ndim = s.ndim};
    memcpy(t->shape, s.shape, sizeof(t->shape));
    g = (struct group){.dtype = s.dtype,
        .ndim = s.ndim,
        .axis = r->expert ? SW_AXIS_NONE : r->trainer,
        .packed = r->expert && s.ndim > r->ndim};
    g.axis_dim = g.axis == SW_AXIS_COLUMNS ? s.ndim - 1 : 0;
    memcpy(g.shape, s.shape, s.ndim * sizeof(g.shape[0]));
    return find_group(k, l, &g, &l->group[l->list.n++]);
}

/* Whether the list of this stage and expert-parallel rank has a tensor. */
static bool in_list(
    const struct maker *k, const struct sw_tensor_role *r, uint32_t index, uint32_t ep)
{
    uint32_t experts, expert;

    if (k->n_eps == 1 || !r->expert)
        return true;
    experts = (uint32_t)r->count[r->n_variables - 1];
    expert = index % experts;
    return (uint64_t)expert * k->ep / experts == ep;
}

/* Adds a stored tensor, and with FP8 its scales, once; only counts them at first. */
static int add_stored(struct maker *k, struct list *l, const struct sw_tensor_role *r,
    uint32_t stored, uint32_t pass, bool count_only)
{
    uint32_t scale;
    int err = 0;

    if (k->seen[stored] == pass)
        return 0;
    k->seen[stored] = pass;
    if (count_only)
        l->list.n++;
    else
        err = add_tensor(k, l, r, stored);
    if (!err && k->spec->fp8 && sw_model_scale_of(k->m, stored, &scale)) {
        if (count_only)
            l->list.n++;
        else
            err = add_tensor(k, l, r, scale);
    }
    return err;
}

static int fill_list(struct maker *k, struct list *l, uint32_t number, bool count_only)
{
    const uint32_t stage = number / k->n_eps, ep = number % k->n_eps;

    l->list.n = 0;
    for (uint32_t i = 0; i < sw_model_roles(k->m); i++) {
        const struct sw_tensor_role *r = sw_model_role(k->m, i);

        if (r->draft && !k->spec->draft)
            continue;
        for (uint32_t j = 0; j < r->n_tensors; j++) {
            const uint32_t tensor = r->first_tensor + j;
            uint32_t stored;
            int err;

            if (!sw_model_exists(k->m, tensor) || sw_model_optional(k->m, tensor) ||
                stage_of(k, i, j) != stage || !in_list(k, r, j, ep) ||
                !stored_of(k, tensor, r->ndim, &stored))
                continue;
            err = add_stored(k, l, r, stored, 2 * number + 1 + !count_only, count_only);
            if (err)
                return err;
        }
    }
    return 0;
}

static int make_list(struct maker *k, struct list *l, uint32_t number)
{
    struct sw_arena *a = &k->scene->arena;
    int err = fill_list(k, l, number, true);

    if (err)
        return err;
    l->tensors = sw_arena_array(a, l->list.n, sizeof(*l->tensors));
    l->group = sw_arena_array(a, l->list.n, sizeof(*l->group));
    l->groups = calloc(GROUPS_MAX, sizeof(*l->groups));
    if (!l->tensors || !l->group || !l->groups)
        return no_memory(k);
    l->list.tensors = l->tensors;
    l->list.group = l->group;
    return fill_list(k, l, number, false);
}

/* ---- boxes ---- */

static void even(uint64_t n, uint32_t parts, uint32_t part, uint64_t *lo, uint64_t *len)
{
    const uint64_t each = (n + parts - 1) / parts; /* as torch.chunk: the last ones get less */
    const uint64_t start = each * part < n ? each * part : n;

    *lo = start;
    *len = n - start < each ? n - start : each;
}

static void rank_box(const struct maker *k, const struct group *g, uint32_t rank, struct sw_box *b)
{
    const uint32_t q = rank % k->stage_ranks;

    *b = (struct sw_box){.ndim = g->ndim};
    memcpy(b->len, g->shape, sizeof(b->len));
    if (k->spec->holds == SW_HOLDS_FSDP && g->ndim)
        even(g->shape[0], k->stage_ranks, q, &b->lo[0], &b->len[0]);
    if (k->spec->holds != SW_HOLDS_SHARDS)
        return;
    if (g->packed)
        even(g->shape[0], k->ep, q % k->ep, &b->lo[0], &b->len[0]);
    if (g->axis != SW_AXIS_NONE && g->ndim)
        even(g->shape[g->axis_dim], k->tp, q % k->tp, &b->lo[g->axis_dim], &b->len[g->axis_dim]);
}

static int make_rank(struct maker *k, struct list *lists, uint32_t rank)
{
    const uint32_t per_host = k->spec->per_host ? k->spec->per_host : PER_HOST;
    const uint32_t stage = rank / k->stage_ranks, q = rank % k->stage_ranks;
    const struct list *l = &lists[stage * k->n_eps + q % k->n_eps];
    struct sw_box *boxes = sw_arena_array(&k->scene->arena, l->list.n_groups, sizeof(*boxes));

    if (!boxes)
        return no_memory(k);
    for (uint32_t g = 0; g < l->list.n_groups; g++)
        rank_box(k, &l->groups[g], rank, &boxes[g]);
    k->scene->ranks[rank] = (struct sw_plan_rank){.rank = rank,
        .host = rank / per_host,
        .nic = rank % per_host,
        .list = &l->list,
        .boxes = boxes};
    return 0;
}

/* ---- all of it ---- */

static int check(struct maker *k)
{
    const struct sw_trainer_spec *s = k->spec;
    const bool shards = s->holds == SW_HOLDS_SHARDS;

    if (!s->world || s->world > SW_WORLD_MAX)
        return sw_fail(k->e, SW_ERR_INVALID, "trainer: a world of %u ranks; from 1 to %u", s->world,
            SW_WORLD_MAX);
    if (s->world % k->pp || k->pp > (k->n_layers > 1 ? k->n_layers : 1))
        return sw_fail(k->e, SW_ERR_INVALID,
            "trainer: pp %u does not divide %u ranks, or there are fewer layers (%lld) than stages",
            k->pp, s->world, (long long)k->n_layers);
    k->stage_ranks = s->world / k->pp;
    if (k->stage_ranks % k->tp || k->stage_ranks % k->ep)
        return sw_fail(k->e, SW_ERR_INVALID,
            "trainer: %s %u does not divide the %u ranks of a pipeline stage",
            k->stage_ranks % k->tp ? "tp" : "ep", k->stage_ranks % k->tp ? k->tp : k->ep,
            k->stage_ranks);
    for (uint32_t i = 0; shards && i < sw_model_roles(k->m); i++) {
        const struct sw_tensor_role *r = sw_model_role(k->m, i);

        if (r->expert && r->count[r->n_variables - 1] % k->ep)
            return sw_fail(k->e, SW_ERR_INVALID, "trainer: ep %u does not divide %lld experts",
                k->ep, (long long)r->count[r->n_variables - 1]);
    }
    k->n_eps = shards && !s->packed ? k->ep : 1;
    return 0;
}

static int make(struct maker *k, struct list *lists, uint32_t n_lists)
{
    const uint32_t n = k->spec->world;
    int err = 0;

    k->scene->n_ranks = n;
    k->scene->ranks = sw_arena_array(&k->scene->arena, n, sizeof(*k->scene->ranks));
    if (!k->scene->ranks)
        return no_memory(k);
    for (uint32_t i = 0; !err && i < n_lists; i++)
        err = make_list(k, &lists[i], i);
    for (uint32_t r = 0; !err && r < n; r++)
        err = make_rank(k, lists, r);
    return err;
}

int sw_scene_trainers(const struct sw_model *m, const struct sw_trainer_spec *spec,
    struct sw_scene *s, struct sw_error *e)
{
    struct maker k = {.m = m,
        .spec = spec,
        .scene = s,
        .e = e,
        .tp = spec->tp ? spec->tp : 1,
        .pp = spec->pp ? spec->pp : 1,
        .ep = spec->ep ? spec->ep : 1};
    const size_t n_stored = sw_model_stored(m);
    struct list *lists = NULL;
    uint32_t n_lists;
    int err;

    find_layers(&k);
    err = check(&k);
    if (err)
        return err;
    n_lists = k.pp * k.n_eps;
    k.names = calloc(n_stored + 1, sizeof(*k.names));
    k.seen = calloc(n_stored + 1, sizeof(*k.seen));
    lists = sw_arena_array(&s->arena, n_lists, sizeof(*lists)); /* ranks point into it */
    if (!k.names || !k.seen || !lists)
        err = no_memory(&k);
    else
        err = make(&k, lists, n_lists);
    for (uint32_t i = 0; lists && i < n_lists; i++) {
        free(lists[i].groups);
        lists[i].groups = NULL;
    }
    free(k.names);
    free(k.seen);
    return err;
}
