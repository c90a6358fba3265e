/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/parameters.h"

#include <string.h>
#include "common/error.h"
#include "common/limits.h"
#include "tools/checkpoint.h"

#define EMBED "model.embed_tokens.weight"
#define HEAD "lm_head.weight"

struct adder {
    struct sw_rank_parameters *to;
    size_t size; /* items there is room for */
    struct sw_error *e;
};

static int add(
    struct adder *a, const char *name, enum sw_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    struct sw_rank_parameters *to = a->to;
    struct sw_rank_parameter *item;

    if (to->n == a->size) {
        const size_t size = a->size ? a->size * 2 : 256;
        struct sw_rank_parameter *more = sw_arena_array(&to->arena, size, sizeof(*more));

        if (!more)
            return sw_fail(a->e, SW_ERR_NOMEM, "no memory for %zu parameters", size);
        if (to->n)
            memcpy(more, to->items, to->n * sizeof(*more));
        to->items = more;
        a->size = size;
    }
    item = &to->items[to->n];
    *item = (struct sw_rank_parameter){
        .name = sw_arena_strdup(&to->arena, name), .dtype = dtype, .ndim = ndim, .same_as = to->n};
    if (!item->name)
        return sw_fail(a->e, SW_ERR_NOMEM, "no memory for parameter %s", name);
    memcpy(item->shape, shape, ndim * sizeof(*shape));
    if (sw_tensor_bytes(dtype, ndim, shape, &item->bytes))
        return sw_fail(a->e, SW_ERR_LIMIT, "parameter %s has too many bytes", name);
    to->n++;
    return 0;
}

static struct sw_rank_parameter *find(const struct sw_rank_parameters *p, const char *name)
{
    for (size_t i = 0; i < p->n; i++)
        if (!strcmp(p->items[i].name, name))
            return &p->items[i];
    return NULL;
}

/* A tied head must look like the embedding whose storage it takes. */
static int tie(struct sw_rank_parameters *p, struct sw_error *e)
{
    struct sw_rank_parameter *head = find(p, HEAD), *embed = find(p, EMBED);

    if (!head || !embed)
        return 0;
    if (head->dtype != embed->dtype || head->ndim != embed->ndim ||
        memcmp(head->shape, embed->shape, sizeof(head->shape)) != 0)
        return sw_fail(e, SW_ERR_INVALID,
            "config.json ties " HEAD " to " EMBED ", but their shapes or dtypes differ");
    head->same_as = (size_t)(embed - p->items);
    return 0;
}

int sw_rank_parameters_checkpoint(
    const char *folder, struct sw_rank_parameters *out, struct sw_error *e)
{
    struct sw_rank_parameters p = {0};
    struct adder a = {.to = &p, .e = e};
    const struct sw_checkpoint_tensor *t;
    struct sw_checkpoint *c;
    size_t n;
    int code = sw_checkpoint_open(folder, SW_CHECKPOINT_HEADERS, &c, e);

    if (code)
        return code;
    t = sw_checkpoint_tensors(c, &n);
    for (size_t i = 0; !code && i < n; i++)
        code = add(&a, t[i].name, t[i].dtype, t[i].ndim, t[i].shape);
    if (!code && sw_checkpoint_tied(c))
        code = tie(&p, e);
    sw_checkpoint_close(c);
    if (code) {
        sw_rank_parameters_clear(&p);
        return code;
    }
    *out = p;
    return 0;
}

static int add_listed(void *arg, const struct sw_model_parameter *m)
{
    struct adder *a = arg;
    const struct sw_rank_parameter *of = m->alias_of ? find(a->to, m->alias_of) : NULL;
    const size_t number = of ? (size_t)(of - a->to->items) : 0;
    const int code = add(a, m->name, m->dtype, m->ndim, m->shape);

    if (!code && of)
        a->to->items[a->to->n - 1].same_as = number;
    return code;
}

int sw_rank_parameters_model(const struct sw_model *model, const struct sw_placement *at,
    bool draft, struct sw_rank_parameters *out, struct sw_error *e)
{
    struct sw_rank_parameters p = {0};
    struct adder a = {.to = &p, .e = e};
    const int code = sw_model_list(model, at, draft, add_listed, &a, e);

    if (code) {
        sw_rank_parameters_clear(&p);
        return code;
    }
    *out = p;
    return 0;
}

void sw_rank_parameters_clear(struct sw_rank_parameters *p)
{
    sw_arena_clear(&p->arena);
    *p = (struct sw_rank_parameters){0};
}
