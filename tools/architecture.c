/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Roles without layers come where the layout file has them, before or after the layers; a layer's
 * tensors come together, each role's experts in order.
 */
#include "tools/architecture.h"

#include <stdlib.h>
#include <string.h>
#include "common/error.h"
#include "common/limits.h"

struct lister {
    const struct sw_model *model;
    const struct sw_architecture_options *o;
    struct sw_architecture a;
    size_t size;
    bool *listed; /* by stored tensor: packed ones are met once for each expert */
    struct sw_error *e;
};

static bool has_layers(const struct sw_tensor_role *r)
{
    return r->n_variables > (r->expert ? 1u : 0u);
}

/* The way of storing that was asked for: the first, or the one with packed experts. */
static bool stored_of(
    const struct lister *l, const struct sw_tensor_role *r, uint32_t tensor, uint32_t *s)
{
    uint64_t origin[SW_MAX_DIMS];
    struct sw_stored stored;
    uint32_t other;

    if (!sw_model_locate(l->model, tensor, 0, s, origin))
        return false;
    for (uint32_t i = 1; l->o->packed && sw_model_locate(l->model, tensor, i, &other, origin);
         i++) {
        sw_model_stored_get(l->model, other, &stored);
        if (r->expert && stored.ndim > r->ndim) {
            *s = other;
            break;
        }
    }
    return true;
}

/* What an optional tensor is a copy of: the first of equal shape and dtype. */
static const char *original(const struct lister *l, const struct sw_architecture_tensor *t)
{
    for (size_t i = 0; i < l->a.n; i++) {
        const struct sw_architecture_tensor *o = &l->a.tensors[i];

        if (o->dtype == t->dtype && o->ndim == t->ndim &&
            !memcmp(o->shape, t->shape, sizeof(o->shape)))
            return o->name;
    }
    return NULL;
}

static int reserve(struct lister *l)
{
    const size_t size = l->size ? l->size * 2 : 1024;
    struct sw_architecture_tensor *more;

    if (l->a.n < l->size)
        return 0;
    more = sw_arena_array(&l->a.arena, size, sizeof(*more));
    if (!more)
        return sw_fail(l->e, SW_ERR_NOMEM, "no memory for %zu tensors", size);
    if (l->a.n)
        memcpy(more, l->a.tensors, l->a.n * sizeof(*more));
    l->a.tensors = more;
    l->size = size;
    return 0;
}

static int add(struct lister *l, const struct sw_tensor_role *r, uint32_t tensor)
{
    struct sw_architecture_tensor *t;
    char name[SW_NAME_MAX + 1];
    struct sw_stored s;
    uint32_t stored;

    if (!sw_model_exists(l->model, tensor) || !stored_of(l, r, tensor, &stored) ||
        l->listed[stored])
        return 0;
    if (reserve(l))
        return SW_ERR_NOMEM;
    l->listed[stored] = true;
    sw_model_stored_get(l->model, stored, &s);
    sw_model_stored_name(l->model, stored, name);
    t = &l->a.tensors[l->a.n];
    *t = (struct sw_architecture_tensor){.dtype = s.dtype, .ndim = s.ndim};
    memcpy(t->shape, s.shape, sizeof(t->shape));
    t->name = sw_arena_strdup(&l->a.arena, name);
    if (!t->name)
        return sw_fail(l->e, SW_ERR_NOMEM, "no memory for tensor names");
    if (sw_tensor_bytes(t->dtype, t->ndim, t->shape, &t->bytes) < 0 ||
        t->bytes > SW_BYTES_MAX - l->a.bytes)
        return sw_fail(l->e, SW_ERR_LIMIT, "tensor %s makes the model larger than %llu bytes", name,
            SW_BYTES_MAX);
    if (r->optional)
        t->tied_to = original(l, t);
    l->a.bytes += t->bytes;
    l->a.n++;
    return 0;
}

static bool skipped(const struct lister *l, const struct sw_tensor_role *r)
{
    return (r->draft && !l->o->draft) || (r->optional && l->o->no_tied_head);
}

/* One role's tensors of one layer. */
static int add_layer_role(struct lister *l, const struct sw_tensor_role *r, int64_t layer)
{
    const uint32_t each = r->expert ? (uint32_t)r->count[1] : 1;
    int code = 0;

    if (skipped(l, r) || !has_layers(r) || layer < r->from[0] || layer >= r->from[0] + r->count[0])
        return 0;
    for (uint32_t i = 0; !code && i < each; i++)
        code = add(l, r, r->first_tensor + (uint32_t)(layer - r->from[0]) * each + i);
    return code;
}

static int add_layers(struct lister *l)
{
    int64_t first = INT64_MAX, end = INT64_MIN;
    int code = 0;

    for (uint32_t i = 0; i < sw_model_roles(l->model); i++) {
        const struct sw_tensor_role *r = sw_model_role(l->model, i);

        if (skipped(l, r) || !has_layers(r) || !r->count[0])
            continue;
        first = r->from[0] < first ? r->from[0] : first;
        end = r->from[0] + r->count[0] > end ? r->from[0] + r->count[0] : end;
    }
    for (int64_t layer = first; !code && layer < end; layer++)
        for (uint32_t i = 0; !code && i < sw_model_roles(l->model); i++)
            code = add_layer_role(l, sw_model_role(l->model, i), layer);
    return code;
}

static int add_all(struct lister *l)
{
    const uint32_t n = sw_model_roles(l->model);
    uint32_t i = 0;
    int code = 0;

    for (; !code && i < n && !has_layers(sw_model_role(l->model, i)); i++) {
        const struct sw_tensor_role *r = sw_model_role(l->model, i);

        for (uint32_t k = 0; !code && k < r->n_tensors && !skipped(l, r); k++)
            code = add(l, r, r->first_tensor + k);
    }
    if (!code)
        code = add_layers(l);
    for (; !code && i < n; i++) {
        const struct sw_tensor_role *r = sw_model_role(l->model, i);

        for (uint32_t k = 0; !code && k < r->n_tensors && !has_layers(r) && !skipped(l, r); k++)
            code = add(l, r, r->first_tensor + k);
    }
    return code;
}

int sw_architecture_list(const struct sw_model *model, const struct sw_architecture_options *o,
    struct sw_architecture *out, struct sw_error *e)
{
    struct lister l = {.model = model, .o = o, .e = e};
    int code;

    l.listed = calloc((size_t)sw_model_stored(model) + 1, sizeof(*l.listed));
    code = l.listed ? add_all(&l) : sw_fail(e, SW_ERR_NOMEM, "no memory for a list of tensors");
    free(l.listed);
    if (code) {
        sw_architecture_clear(&l.a);
        return code;
    }
    *out = l.a;
    return 0;
}

void sw_architecture_clear(struct sw_architecture *a)
{
    sw_arena_clear(&a->arena);
    *a = (struct sw_architecture){0};
}
