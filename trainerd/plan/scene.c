/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that fit each other, and the engines of a scene. Its trainers: scene_trainers.c. */
#include "trainerd/plan/scene.h"

#include <assert.h>
#include <string.h>

#include "common/error.h"
#include "common/limits.h"
#include "trainerd/plan/scene_trainers.h"

#define PER_HOST 8u

struct lists { /* parameter lists that the ranks of an engine have; ranks share equal ones */
    struct sw_arena *arena;
    uint32_t n, size;
    struct list {
        uint32_t n;
        struct sw_parameter *items;
        uint64_t *region_bytes;
    } * items;
};

struct listing { /* a list being made */
    uint32_t n, size;
    struct sw_parameter *items;
    struct sw_arena names; /* names of this list only */
    uint64_t end;          /* of the last parameter */
    struct sw_error *e;
};

static uint32_t or_one(uint32_t n)
{
    return n ? n : 1;
}

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory for a plan's scene");
}

/* ---- one rank's parameters ---- */

static int grow(struct listing *l)
{
    const uint32_t size = l->size ? l->size * 2 : 1024;
    struct sw_parameter *more = sw_arena_array(&l->names, size, sizeof(*more));

    if (!more)
        return no_memory(l->e);
    if (l->n)
        memcpy(more, l->items, l->n * sizeof(*more));
    l->items = more;
    l->size = size;
    return 0;
}

static const char *name_in_list(const struct listing *l, const char *name)
{
    for (uint32_t i = l->n; i-- > 0;)
        if (!strcmp(l->items[i].name, name))
            return l->items[i].name;
    return NULL;
}

static int add_parameter(void *arg, const struct sw_model_parameter *p)
{
    struct listing *l = arg;
    struct sw_parameter *out;
    uint64_t bytes;

    if (l->n == SW_PARAMETERS_MAX)
        return sw_fail(l->e, SW_ERR_LIMIT, "an engine rank would have more than %u parameters",
            SW_PARAMETERS_MAX);
    if (l->n == l->size && grow(l))
        return SW_ERR_NOMEM;
    if (sw_tensor_bytes(p->dtype, p->ndim, p->shape, &bytes) ||
        sw_range_exceeds(l->end, bytes, SW_BYTES_MAX - SW_PARAMETER_ALIGN))
        return sw_fail(l->e, SW_ERR_LIMIT, "parameter %s has too many bytes", p->name);
    out = &l->items[l->n];
    *out = (struct sw_parameter){.dtype = p->dtype, .ndim = p->ndim, .offset = l->end};
    memcpy(out->shape, p->shape, sizeof(out->shape));
    out->name = sw_arena_strdup(&l->names, p->name);
    if (!out->name)
        return no_memory(l->e);
    if (p->alias_of)
        out->alias_of = name_in_list(l, p->alias_of);
    if (out->alias_of) {
        for (uint32_t i = 0; i < l->n; i++)
            if (l->items[i].name == out->alias_of)
                out->offset = l->items[i].offset;
    } else {
        l->end =
            (l->end + bytes + SW_PARAMETER_ALIGN - 1) / SW_PARAMETER_ALIGN * SW_PARAMETER_ALIGN;
    }
    l->n++;
    return 0;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

static bool same_list(const struct list *a, const struct listing *b)
{
    if (a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++) {
        const struct sw_parameter *p = &a->items[i], *q = &b->items[i];

        if (p->dtype != q->dtype || p->ndim != q->ndim || p->offset != q->offset ||
            memcmp(p->shape, q->shape, sizeof(p->shape)) != 0 || strcmp(p->name, q->name) != 0 ||
            !same_text(p->alias_of, q->alias_of))
            return false;
    }
    return true;
}

/* Copies a list into the scene's arena. */
static int keep(struct lists *lists, const struct listing *l, struct list *out, struct sw_error *e)
{
    out->n = l->n;
    out->items = sw_arena_array(lists->arena, l->n, sizeof(*out->items));
    out->region_bytes = sw_arena_alloc(lists->arena, sizeof(*out->region_bytes));
    if (!out->items || !out->region_bytes)
        return no_memory(e);
    for (uint32_t i = 0; i < l->n; i++) {
        out->items[i] = l->items[i];
        out->items[i].name = sw_arena_strdup(lists->arena, l->items[i].name);
        if (!out->items[i].name)
            return no_memory(e);
        for (uint32_t j = i; l->items[i].alias_of && j-- > 0;)
            if (l->items[j].name == l->items[i].alias_of)
                out->items[i].alias_of = out->items[j].name;
    }
    *out->region_bytes = l->end ? l->end : 1;
    return 0;
}

/* The list of a rank: an earlier rank's, if equal. */
static int find_list(struct lists *lists, const struct sw_model *m, const struct sw_placement *at,
    bool draft, const struct list **found, struct sw_error *e)
{
    struct listing l = {.e = e};
    int err = sw_model_list(m, at, draft, add_parameter, &l, e);
    uint32_t i = 0;

    while (!err && i < lists->n && !same_list(&lists->items[i], &l))
        i++;
    if (!err && i == lists->n) {
        if (lists->n == lists->size)
            err = sw_fail(e, SW_ERR_LIMIT, "more kinds of engine ranks than ranks");
        else
            err = keep(lists, &l, &lists->items[lists->n], e);
        lists->n += !err;
    }
    sw_arena_clear(&l.names);
    if (!err)
        *found = &lists->items[i];
    return err;
}

/* ---- coordinates ---- */

static void place_sglang(const struct sw_engine_spec *s, uint32_t rank, struct sw_coordinates *at)
{
    const uint32_t tp = or_one(s->tp), ep = or_one(s->ep), dp = or_one(s->dp);
    const uint32_t r = rank % tp;

    at->of[SW_GROUP_PP] = (struct sw_group){rank / tp, or_one(s->pp)};
    at->of[SW_GROUP_TP] = (struct sw_group){r, tp};
    at->of[SW_GROUP_EP] = (struct sw_group){r / (tp / ep), ep};
    at->of[SW_GROUP_DP] = (struct sw_group){r / (tp / dp), dp};
}

static void place_vllm(const struct sw_engine_spec *s, uint32_t rank, struct sw_coordinates *at)
{
    const uint32_t tp = or_one(s->tp), pp = or_one(s->pp), dp = or_one(s->dp);
    const uint32_t r = rank % tp, d = rank / tp / pp;
    const bool experts = s->ep > 1;

    at->of[SW_GROUP_PP] = (struct sw_group){rank / tp % pp, pp};
    at->of[SW_GROUP_TP] = (struct sw_group){r, tp};
    at->of[SW_GROUP_DP] = (struct sw_group){d, dp};
    at->of[SW_GROUP_EP] =
        experts ? (struct sw_group){d * tp + r, dp * tp} : (struct sw_group){0, 1};
    at->of[SW_GROUP_MOE_TP] =
        experts ? (struct sw_group){0, 1} : (struct sw_group){d * tp + r, dp * tp};
}

int sw_scene_place(
    const struct sw_engine_spec *s, uint32_t rank, struct sw_placement *out, struct sw_error *e)
{
    *out = (struct sw_placement){.kind = s->kind,
        .scale = s->scale,
        .block = {s->scale ? s->block[0] : 0, s->scale ? s->block[1] : 0},
        .fused_shared_experts = s->fused_shared_experts};
    if (s->kind == SW_ENGINE_VLLM)
        place_vllm(s, rank, &out->at);
    else
        place_sglang(s, rank, &out->at);
    if (s->mlp_tp)
        out->at.of[SW_GROUP_MLP_TP] =
            (struct sw_group){rank % or_one(s->tp) % s->mlp_tp, s->mlp_tp};
    if (s->head_tp)
        out->at.of[SW_GROUP_HEAD_TP] =
            (struct sw_group){rank % or_one(s->tp) % s->head_tp, s->head_tp};
    return sw_coordinates_complete(&out->at, s->kind, e);
}

static int check_engine(const struct sw_engine_spec *s, uint64_t *world, struct sw_error *e)
{
    const uint64_t tp = or_one(s->tp), ep = or_one(s->ep), pp = or_one(s->pp), dp = or_one(s->dp);
    const bool vllm = s->kind == SW_ENGINE_VLLM;

    *world = tp * pp * (vllm ? dp : 1);
    if (tp > SW_WORLD_MAX || pp > SW_WORLD_MAX || dp > SW_WORLD_MAX || *world > SW_WORLD_MAX ||
        *world * or_one(s->engines) > (1u << 20))
        return sw_fail(e, SW_ERR_LIMIT,
            "engine: tp %u, pp %u, dp %u and %u engines are too many "
            "ranks; an engine has at most %u",
            s->tp, s->pp, s->dp, s->engines, SW_WORLD_MAX);
    if (vllm && ep != 1 && ep != dp * tp)
        return sw_fail(e, SW_ERR_INVALID, "engine: ep %u; vLLM has 1, or dp x tp = %u", s->ep,
            (uint32_t)(dp * tp));
    if (!vllm && (tp % ep || tp % dp))
        return sw_fail(e, SW_ERR_INVALID, "engine: %s does not divide tp %u: %u",
            tp % ep ? "ep" : "dp", s->tp, tp % ep ? s->ep : s->dp);
    if (s->scale && (!s->block[0] || !s->block[1]))
        return sw_fail(e, SW_ERR_INVALID, "engine: FP8 needs the size of a block, as in 128x128");
    return 0;
}

int sw_scene_engine_world(const struct sw_engine_spec *s, uint32_t *world, struct sw_error *e)
{
    uint64_t n;
    const int err = check_engine(s, &n, e);

    if (!err)
        *world = (uint32_t)n;
    return err;
}

/* ---- all engines ---- */

static int name_engine(struct sw_arena *a, uint32_t i, const char **name)
{
    char text[] = "engine 4294967295";
    uint32_t at = sizeof(text) - 1, left = i;

    do {
        text[--at] = (char)('0' + left % 10);
        left /= 10;
    } while (left);
    memmove(text + 7, text + at, sizeof(text) - at);
    *name = sw_arena_strdup(a, text);
    return *name ? 0 : -1;
}

/* The first engine's targets; the others repeat them. */
static int make_engine(struct sw_scene *s, const struct sw_model *m, const struct sw_engine_spec *x,
    uint32_t world, struct sw_error *e)
{
    struct lists lists = {.arena = &s->arena, .size = world};
    struct sw_placement *places = sw_arena_array(&s->arena, world, sizeof(*places));
    int err = 0;

    lists.items = sw_arena_array(&s->arena, world, sizeof(*lists.items));
    if (!places || !lists.items)
        return no_memory(e);
    for (uint32_t r = 0; !err && r < world; r++) {
        const struct list *list = NULL;

        err = sw_scene_place(x, r, &places[r], e);
        if (!err)
            err = find_list(&lists, m, &places[r], x->draft, &list, e);
        if (!err)
            s->targets[r] = (struct sw_plan_target){.engine_rank = r,
                .model = m,
                .placement = &places[r],
                .n_regions = 1,
                .region_bytes = list->region_bytes,
                .n_parameters = list->n,
                .parameters = list->items};
    }
    return err;
}

static int add_engines(struct sw_scene *s, const struct sw_model *m, const struct sw_engine_spec *x,
    struct sw_error *e)
{
    const uint32_t per_host = x->per_host ? x->per_host : PER_HOST;
    uint64_t world;
    int err = check_engine(x, &world, e);

    if (err)
        return err;
    assert(world > 0 && per_host > 0);
    s->n_targets = (uint32_t)world * or_one(x->engines);
    s->targets = sw_arena_array(&s->arena, s->n_targets, sizeof(*s->targets));
    if (!s->targets)
        return no_memory(e);
    err = make_engine(s, m, x, (uint32_t)world, e);
    for (uint32_t t = 0; !err && t < s->n_targets; t++) {
        struct sw_plan_target *target = &s->targets[t];

        if (t >= world)
            *target = s->targets[t % world];
        target->target = t;
        target->host = t / per_host;
        target->nic = t % per_host;
        if (t % world)
            target->engine = s->targets[t - 1].engine;
        else if (name_engine(&s->arena, t / (uint32_t)world, &target->engine))
            err = no_memory(e);
    }
    return err;
}

int sw_scene_make(const struct sw_model *model, const struct sw_trainer_spec *trainer,
    const struct sw_engine_spec *engine, struct sw_scene *scene, struct sw_error *e)
{
    struct sw_scene s = {0};
    int err = sw_scene_trainers(model, trainer, &s, e);

    if (!err && engine)
        err = add_engines(&s, model, engine, e);
    if (err) {
        sw_scene_clear(&s);
        return err;
    }
    *scene = s;
    return 0;
}

void sw_scene_clear(struct sw_scene *s)
{
    sw_arena_clear(&s->arena);
    *s = (struct sw_scene){0};
}
