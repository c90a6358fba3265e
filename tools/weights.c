/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/weights.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "common/error.h"
#include "common/limits.h"
#include "tools/checkpoint.h"

#define EMBED "model.embed_tokens.weight"
#define HEAD "lm_head.weight"
#define LL(x) ((unsigned long long)(x))

static uint64_t align(uint64_t n)
{
    return (n + SW_PARAMETER_ALIGN - 1) / SW_PARAMETER_ALIGN * SW_PARAMETER_ALIGN;
}

struct place {
    uint32_t region;
    uint64_t offset;
};

static bool is_alias(const struct sw_checkpoint *c, const char *name)
{
    return sw_checkpoint_tied(c) && strcmp(name, HEAD) == 0 && sw_checkpoint_find(c, EMBED);
}

/* A tied head must look like the embedding whose storage it takes. */
static int check_alias(const struct sw_checkpoint *c, struct sw_error *e)
{
    const struct sw_checkpoint_tensor *head = sw_checkpoint_find(c, HEAD);
    const struct sw_checkpoint_tensor *embed = sw_checkpoint_find(c, EMBED);

    if (!head || !is_alias(c, HEAD))
        return 0;
    if (head->dtype != embed->dtype || head->ndim != embed->ndim ||
        memcmp(head->shape, embed->shape, sizeof(head->shape)) != 0)
        return sw_fail(e, SW_ERR_INVALID,
            "config.json ties " HEAD " to " EMBED ", but their shapes or dtypes differ");
    return 0;
}

/* Fills regions one after another; region sizes into w->regions, places of tensors into `places`.
 */
static int lay_out(const struct sw_checkpoint *c, uint64_t region_bytes, struct place *places,
    struct sw_weights *w, struct sw_error *e)
{
    size_t n;
    const struct sw_checkpoint_tensor *t = sw_checkpoint_tensors(c, &n);
    uint64_t used = 0;

    for (size_t i = 0; i < n; i++) {
        const uint64_t bytes = align(t[i].bytes);
        if (is_alias(c, t[i].name))
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
        w->bytes += t[i].bytes;
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

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct sw_weight *)a)->name, ((const struct sw_weight *)b)->name);
}

static int compare_to_key(const void *key, const void *item)
{
    return strcmp(key, ((const struct sw_weight *)item)->name);
}

/* Copies names, so that the checkpoint may be closed. */
static int add_items(const struct sw_checkpoint *c, const struct place *places,
    struct sw_weights *w, struct sw_error *e)
{
    size_t n, length = 0;
    const struct sw_checkpoint_tensor *t = sw_checkpoint_tensors(c, &n);
    struct sw_weight *embed;
    char *at;

    for (size_t i = 0; i < n; i++)
        length += strlen(t[i].name) + 1;
    w->items = calloc(n + 1, sizeof(*w->items));
    w->names = at = malloc(length + 1);
    if (!w->items || !w->names)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for %zu weights", n);
    for (size_t i = 0; i < n; i++, at += strlen(at) + 1) {
        struct sw_weight *item = &w->items[i];

        memcpy(at, t[i].name, strlen(t[i].name) + 1);
        item->name = at;
        item->bytes = t[i].bytes;
        if (!is_alias(c, at))
            item->data = w->regions[places[i].region].base + places[i].offset;
    }
    w->n = n;
    qsort(w->items, n, sizeof(*w->items), compare_names);
    embed = bsearch(EMBED, w->items, n, sizeof(*w->items), compare_to_key);
    for (size_t i = 0; i < n; i++) {
        w->items[i].same_as = i;
        if (is_alias(c, w->items[i].name)) {
            w->items[i].same_as = (size_t)(embed - w->items);
            w->items[i].data = embed->data;
        }
    }
    return 0;
}

static int declare_all(
    sw_engine *en, const struct sw_checkpoint *c, const struct place *places, struct sw_error *e)
{
    size_t n;
    const struct sw_checkpoint_tensor *t = sw_checkpoint_tensors(c, &n);
    int code = 0;

    for (size_t i = 0; !code && i < n; i++)
        if (!is_alias(c, t[i].name))
            code = sw_engine_parameter(en, t[i].name, t[i].dtype, t[i].ndim, t[i].shape,
                places[i].region, places[i].offset, e);
    if (!code && sw_checkpoint_find(c, HEAD) && is_alias(c, HEAD))
        code = sw_engine_alias(en, HEAD, EMBED, e);
    return code;
}

int sw_weights_declare(sw_engine *en, const char *folder, uint64_t region_bytes,
    struct sw_weights *out, struct sw_error *e)
{
    struct sw_weights w = {0};
    struct sw_checkpoint *c;
    struct place *places;
    size_t n;
    int code = sw_checkpoint_open(folder, SW_CHECKPOINT_HEADERS, &c, e);

    if (code)
        return code;
    sw_checkpoint_tensors(c, &n);
    places = calloc(n + 1, sizeof(*places));
    w.regions = calloc((n < SW_REGIONS_MAX ? n : SW_REGIONS_MAX) + 1, sizeof(*w.regions));
    if (!places || !w.regions)
        code = sw_fail(e, SW_ERR_NOMEM, "no memory for %zu weights", n);
    if (!code)
        code = check_alias(c, e);
    if (!code)
        code = lay_out(c, region_bytes, places, &w, e);
    if (!code)
        code = allocate(en, &w, e);
    if (!code)
        code = add_items(c, places, &w, e);
    if (!code)
        code = declare_all(en, c, places, e);
    free(places);
    sw_checkpoint_close(c);
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
