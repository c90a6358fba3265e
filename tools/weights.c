/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/weights.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "common/error.h"
#include "common/limits.h"

#define LL(x) ((unsigned long long)(x))

static uint64_t align(uint64_t n)
{
    return (n + SW_PARAMETER_ALIGN - 1) / SW_PARAMETER_ALIGN * SW_PARAMETER_ALIGN;
}

struct place {
    uint32_t region;
    uint64_t offset;
};

/* Fills regions one after another; region sizes into w->regions, places into `places`. */
static int lay_out(const struct sw_rank_parameters *p, uint64_t region_bytes, struct place *places,
    struct sw_weights *w, struct sw_error *e)
{
    uint64_t used = 0;

    for (size_t i = 0; i < p->n; i++) {
        const uint64_t bytes = align(p->items[i].bytes);

        if (p->items[i].same_as != i)
            continue;
        if (!w->n_regions || (used && bytes > region_bytes - used)) {
            if (w->n_regions == SW_REGIONS_MAX)
                return sw_fail(e, SW_ERR_LIMIT, "more than %u regions of %llu bytes are needed",
                    SW_REGIONS_MAX, LL(region_bytes));
            w->n_regions++;
            used = 0;
        }
        places[i] = (struct place){(uint32_t)w->n_regions - 1, used};
        used += bytes;
        w->regions[w->n_regions - 1].bytes = used;
        if (used > region_bytes)
            used = region_bytes;
        w->bytes += p->items[i].bytes;
    }
    return 0;
}

static int allocate(sw_engine *en, struct sw_weights *w, struct sw_error *e)
{
    for (size_t i = 0; i < w->n_regions; i++) {
        uint32_t number;
        void *memory;
        int code;
        if (!w->regions[i].bytes) /* nothing but empty tensors; a region has at least a byte */
            w->regions[i].bytes = SW_PARAMETER_ALIGN;
        code = sw_engine_alloc(en, w->regions[i].bytes, &memory, &number, e);
        if (code)
            return sw_error_context(
                e, code, "region %zu of %llu bytes", i, LL(w->regions[i].bytes));
        w->regions[i].base = memory;
        if (number != i)
            return sw_fail(e, SW_ERR_STATE, "the engine has regions already");
    }
    return 0;
}

/* Sorted by name. */
static int compare_weights(const void *a, const void *b, void *arg)
{
    const struct sw_rank_parameters *p = arg;

    return strcmp(p->items[*(const size_t *)a].name, p->items[*(const size_t *)b].name);
}

/* Copies names, so that the parameters may be cleared. */
static int copy_names(const struct sw_rank_parameters *p, struct sw_weights *w)
{
    size_t length = 0;
    char *at;

    for (size_t i = 0; i < p->n; i++)
        length += strlen(p->items[i].name) + 1;
    w->items = calloc(p->n + 1, sizeof(*w->items));
    w->names = at = malloc(length + 1);
    if (!w->items || !w->names)
        return -1;
    for (size_t i = 0; i < p->n; i++, at += strlen(at) + 1) {
        memcpy(at, p->items[i].name, strlen(p->items[i].name) + 1);
        w->items[i].name = at;
    }
    return 0;
}

static int add_items(const struct sw_rank_parameters *p, const struct place *places,
    struct sw_weights *w, struct sw_error *e)
{
    size_t *order = calloc(p->n + 1, sizeof(*order)); /* by name: number in p */
    size_t *rank = calloc(p->n + 1, sizeof(*rank));   /* the other way round */
    struct sw_weight *named = NULL;
    int code = 0;

    if (!order || !rank || copy_names(p, w) < 0 || !(named = calloc(p->n + 1, sizeof(*named)))) {
        code = sw_fail(e, SW_ERR_NOMEM, "no memory for %zu weights", p->n);
    } else {
        for (size_t i = 0; i < p->n; i++)
            order[i] = i;
        qsort_r(order, p->n, sizeof(*order), compare_weights, (void *)(uintptr_t)p);
        for (size_t i = 0; i < p->n; i++)
            rank[order[i]] = i;
        for (size_t i = 0; i < p->n; i++) {
            const struct sw_rank_parameter *item = &p->items[order[i]];
            const struct place *place = &places[item->same_as];

            named[i] = (struct sw_weight){.name = w->items[order[i]].name,
                .bytes = item->bytes,
                .same_as = rank[item->same_as],
                .data = w->regions[place->region].base + place->offset};
        }
        free(w->items);
        w->items = named;
        w->n = p->n;
    }
    free(order);
    free(rank);
    return code;
}

static int declare_all(sw_engine *en, const struct sw_rank_parameters *p,
    const struct place *places, struct sw_error *e)
{
    int code = 0;

    for (size_t i = 0; !code && i < p->n; i++) {
        const struct sw_rank_parameter *item = &p->items[i];

        if (item->same_as == i)
            code = sw_engine_parameter(en, item->name, item->dtype, item->ndim, item->shape,
                places[i].region, places[i].offset, e);
    }
    for (size_t i = 0; !code && i < p->n; i++)
        if (p->items[i].same_as != i)
            code = sw_engine_alias(en, p->items[i].name, p->items[p->items[i].same_as].name, e);
    return code;
}

int sw_weights_declare(sw_engine *en, const struct sw_rank_parameters *p, uint64_t region_bytes,
    struct sw_weights *out, struct sw_error *e)
{
    struct sw_weights w = {0};
    struct place *places = calloc(p->n + 1, sizeof(*places));
    int code = 0;

    w.regions = calloc((p->n < SW_REGIONS_MAX ? p->n : SW_REGIONS_MAX) + 1, sizeof(*w.regions));
    if (!places || !w.regions)
        code = sw_fail(e, SW_ERR_NOMEM, "no memory for %zu weights", p->n);
    if (!code)
        code = lay_out(p, region_bytes, places, &w, e);
    if (!code)
        code = allocate(en, &w, e);
    if (!code)
        code = add_items(p, places, &w, e);
    if (!code)
        code = declare_all(en, p, places, e);
    free(places);
    if (code) {
        sw_weights_clear(&w);
        return code;
    }
    *out = w;
    return 0;
}

const struct sw_weight *sw_weights_at(const struct sw_weights *w, const uint8_t *place)
{
    for (size_t i = 0; i < w->n; i++)
        if (place >= w->items[i].data && place < w->items[i].data + w->items[i].bytes)
            return &w->items[i];
    return NULL;
}

void sw_weights_clear(struct sw_weights *w)
{
    free(w->items);
    free(w->regions);
    free(w->names);
    *w = (struct sw_weights){0};
}
