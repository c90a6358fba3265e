/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/coordinator/models.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

struct sw_model_entry {
    struct sw_model_entry *next;
    struct sw_models *owner;
    unsigned refs;
    enum sw_engine_kind kind;
    char *layout, *config;
    struct sw_model *model;
    uint32_t block[2];
};

struct sw_models {
    const struct sw_layouts *layouts;
    struct sw_model_entry *first;
};

struct sw_models *sw_models_new(const struct sw_layouts *layouts)
{
    struct sw_models *m = calloc(1, sizeof(*m));

    if (m)
        m->layouts = layouts;
    return m;
}

void sw_models_free(struct sw_models *m)
{
    assert(!m || !m->first);
    free(m);
}

static void entry_free(struct sw_model_entry *entry)
{
    sw_model_free(entry->model);
    free(entry->layout);
    free(entry->config);
    free(entry);
}

struct sw_model_entry *sw_model_entry_hold(struct sw_model_entry *entry)
{
    entry->refs++;
    return entry;
}

void sw_model_entry_release(struct sw_model_entry *entry)
{
    struct sw_model_entry **at;

    if (!entry || --entry->refs > 0)
        return;
    at = &entry->owner->first;
    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    entry_free(entry);
}

const struct sw_model *sw_model_entry_model(const struct sw_model_entry *entry)
{
    return entry->model;
}

const uint32_t *sw_model_entry_block(const struct sw_model_entry *entry)
{
    return entry->block;
}

/* ---- making ---- */

static int make_model(const struct sw_models *m, const struct sw_engine_rank *rank,
    const struct sw_config *config, struct sw_model **model, struct sw_error *e)
{
    const struct sw_rules *rules = NULL;
    int rc;

    if (!m->layouts || sw_layouts_count(m->layouts) == 0)
        return sw_fail(e, SW_ERR_UNSUPPORTED,
            "layout %s is asked for, but the coordinator has no layout files: see trainerd's "
            "option layouts",
            rank->layout);
    rc = sw_layouts_find(m->layouts, rank->layout, config, &rules, e);
    return rc ? rc : sw_model_make(rules, config, rank->kind, model, e);
}

static int entry_new(struct sw_models *m, const struct sw_engine_rank *rank,
    struct sw_model_entry **out, struct sw_error *e)
{
    struct sw_model_entry *entry = calloc(1, sizeof(*entry));
    struct sw_config *config = NULL;
    int rc;

    if (!entry)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a model");
    entry->refs = 1;
    entry->owner = m;
    entry->kind = rank->kind;
    entry->layout = strdup(rank->layout);
    entry->config = strdup(rank->config);
    rc = entry->layout && entry->config ? 0 : sw_fail(e, SW_ERR_NOMEM, "no memory for a model");
    if (!rc)
        rc = sw_config_parse(rank->config, strlen(rank->config), &config, e);
    if (!rc)
        rc = make_model(m, rank, config, &entry->model, e);
    if (!rc && !sw_config_fp8(config, entry->block))
        entry->block[0] = entry->block[1] = 0;
    sw_config_free(config);
    if (rc) {
        entry_free(entry);
        return rc;
    }
    *out = entry;
    return 0;
}

int sw_models_get(struct sw_models *m, const struct sw_engine_rank *rank,
    struct sw_model_entry **entry, struct sw_error *e)
{
    struct sw_model_entry *made = NULL;
    int rc;

    for (struct sw_model_entry *at = m->first; at; at = at->next)
        if (at->kind == rank->kind && !strcmp(at->layout, rank->layout) &&
            !strcmp(at->config, rank->config)) {
            *entry = sw_model_entry_hold(at);
            return 0;
        }
    rc = entry_new(m, rank, &made, e);
    if (rc)
        return rc;
    made->next = m->first;
    m->first = made;
    *entry = made;
    return 0;
}
