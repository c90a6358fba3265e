/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/live_engines.h"

#include <stdlib.h>
#include <string.h>

#include "common/engine_rank.h"
#include "common/error.h"
#include "common/limits.h"

#define PARAMETERS_LIMIT 4000000u /* of all ranks together */

struct rank {
    struct sw_msg *declared; /* ENGINE_RANK; owned */
    struct sw_arena strings; /* of the parameters */
    uint32_t n, room;
    struct sw_parameter *parameters;
};

struct collection { /* what sw_live_engines_free gets: the public part first */
    struct sw_live_engines public;
    uint32_t n, room;
    struct rank *ranks;
    uint64_t parameters; /* announced by all ranks */
};

void sw_live_engines_free(struct sw_live_engines *engines)
{
    struct collection *k = (struct collection *)engines;

    if (!k)
        return;
    for (uint32_t i = 0; i < k->n; i++) {
        sw_msg_free(k->ranks[i].declared);
        sw_arena_clear(&k->ranks[i].strings);
        free(k->ranks[i].parameters);
    }
    free(k->ranks);
    free(k->public.items);
    free(k);
}

/* ---- collecting ---- */

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory for inferd's engines");
}

/* Room grows with what came, never with what was announced. */
static int grow(void *array, uint32_t *room, uint32_t n, uint32_t more, size_t size)
{
    void **p = array;
    uint64_t want = (uint64_t)n + more;
    void *bigger;

    if (want <= *room)
        return 0;
    want += *room / 2;
    bigger = realloc(*p, want * size);
    if (!bigger)
        return -1;
    *p = bigger;
    *room = (uint32_t)want;
    return 0;
}

static bool is_whole(const struct rank *r)
{
    return r->n == r->declared->u.engine_rank.n_parameters;
}

static int check_rank(
    const struct collection *k, const struct sw_engine_rank *in, struct sw_error *e)
{
    int rc = sw_engine_rank_check(in, e);

    if (rc)
        return sw_error_context(e, SW_ERR_PROTOCOL, "inferd told of an engine that can't be");
    if (k->n && !is_whole(&k->ranks[k->n - 1]))
        return sw_fail(e, SW_ERR_PROTOCOL,
            "inferd told of engine %s rank %u before all parameters of the rank before", in->engine,
            in->rank);
    if (k->n == SW_WORLD_MAX || in->n_parameters > SW_PARAMETERS_MAX ||
        k->parameters + in->n_parameters > PARAMETERS_LIMIT)
        return sw_fail(e, SW_ERR_LIMIT,
            "inferd told of engines with more than %u ranks or %u parameters", SW_WORLD_MAX,
            PARAMETERS_LIMIT);
    for (uint32_t i = 0; i < in->n_regions; i++)
        if (in->region_bytes[i] > SW_BYTES_MAX)
            return sw_fail(e, SW_ERR_PROTOCOL, "engine %s rank %u: region %u is too large",
                in->engine, in->rank, i);
    return 0;
}

static int take_rank(struct collection *k, const struct sw_msg *msg, struct sw_error *e)
{
    const struct sw_engine_rank *in = &msg->u.engine_rank;
    struct rank *r;
    int rc = check_rank(k, in, e);

    if (rc)
        return rc;
    if (grow(&k->ranks, &k->room, k->n, 1, sizeof(*k->ranks)))
        return no_memory(e);
    r = &k->ranks[k->n];
    *r = (struct rank){.declared = sw_msg_copy(msg)};
    if (!r->declared)
        return no_memory(e);
    k->n++;
    k->parameters += in->n_parameters;
    return 0;
}

static int check_parameter(
    const struct sw_engine_rank *rank, const struct sw_parameter *p, struct sw_error *e)
{
    uint64_t bytes;

    if (sw_tensor_bytes(p->dtype, p->ndim, p->shape, &bytes) || p->region >= rank->n_regions ||
        sw_range_exceeds(p->offset, bytes, rank->region_bytes[p->region]))
        return sw_fail(e, SW_ERR_PROTOCOL,
            "inferd told of parameter %s of engine %s rank %u, which is in none of its %u regions",
            p->name, rank->engine, rank->rank, rank->n_regions);
    return 0;
}

static int take_parameter(struct rank *r, struct sw_parameter p, struct sw_error *e)
{
    const int rc = check_parameter(&r->declared->u.engine_rank, &p, e);

    if (rc)
        return rc;
    p.name = sw_arena_strdup(&r->strings, p.name);
    if (p.name && p.alias_of) {
        p.alias_of = sw_arena_strdup(&r->strings, p.alias_of);
        if (!p.alias_of)
            return no_memory(e);
    }
    if (!p.name)
        return no_memory(e);
    r->parameters[r->n++] = p;
    return 0;
}

static int take_parameters(struct collection *k, const struct sw_parameters *in, struct sw_error *e)
{
    struct rank *r = k->n ? &k->ranks[k->n - 1] : NULL;
    const struct sw_engine_rank *rank = r ? &r->declared->u.engine_rank : NULL;
    int rc = 0;

    if (!r || strcmp(in->engine, rank->engine) != 0 || in->rank != rank->rank ||
        in->first != r->n || in->total != rank->n_parameters || in->n > rank->n_parameters - r->n)
        return sw_fail(e, SW_ERR_PROTOCOL,
            "inferd sent %u parameters of engine %s rank %u from %u on, which do not join", in->n,
            in->engine, in->rank, in->first);
    if (grow(&r->parameters, &r->room, r->n, in->n, sizeof(*r->parameters)))
        return no_memory(e);
    for (uint32_t i = 0; i < in->n && !rc; i++)
        rc = take_parameter(r, in->items[i], e);
    return rc;
}

static int take(void *arg, const struct sw_msg *msg, struct sw_error *e)
{
    return msg->kind == SW_MSG_ENGINE_RANK ? take_rank(arg, msg, e)
                                           : take_parameters(arg, &msg->u.parameters, e);
}

/* ---- what comes out ---- */

static int by_place(const void *a, const void *b)
{
    const struct sw_engine_rank *x = ((const struct sw_live_rank *)a)->rank;
    const struct sw_engine_rank *y = ((const struct sw_live_rank *)b)->rank;
    const int c = strcmp(x->engine, y->engine);

    if (c)
        return c;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static int finish(struct collection *k, uint32_t told, struct sw_error *e)
{
    if (k->n != told || (k->n && !is_whole(&k->ranks[k->n - 1])))
        return sw_fail(e, SW_ERR_PROTOCOL,
            "inferd says that it told of %u engine ranks; %u came, or not all of the last one",
            told, k->n);
    k->public.items = calloc((size_t)k->n + 1, sizeof(*k->public.items));
    if (!k->public.items)
        return no_memory(e);
    for (uint32_t i = 0; i < k->n; i++)
        k->public.items[i] = (struct sw_live_rank){.rank = &k->ranks[i].declared->u.engine_rank,
            .n_parameters = k->ranks[i].n,
            .parameters = k->ranks[i].parameters};
    k->public.n = k->n;
    qsort(k->public.items, k->n, sizeof(*k->public.items), by_place);
    return 0;
}

int sw_live_engines_ask(
    const struct sw_control_where *where, struct sw_live_engines **engines, struct sw_error *e)
{
    struct collection *k = calloc(1, sizeof(*k));
    struct sw_control *control = NULL;
    uint32_t told = 0;
    int rc = k ? sw_control_open(where, &control, e) : no_memory(e);

    if (!rc)
        rc = sw_control_engines(control, take, k, &told, e);
    sw_control_close(control);
    if (!rc)
        rc = finish(k, told, e);
    if (rc) {
        sw_live_engines_free(k ? &k->public : NULL);
        return rc;
    }
    *engines = &k->public;
    return 0;
}
