/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/test_layout_files.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

/* The text of a file; the caller frees it. */
static char *read_text(const char *folder, const char *name, const char *suffix, size_t *length)
{
    char path[1024];
    char *text = malloc(SW_RULE_FILE_MAX + 1);
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s%s", folder, name, suffix);
    f = fopen(path, "rb");
    ck_assert_msg(f && text, "%s: can't be read", path);
    *length = fread(text, 1, SW_RULE_FILE_MAX, f);
    text[*length] = '\0';
    ck_assert(feof(f));
    fclose(f);
    return text;
}

static int read_included(void *arg, const char *name, char **text, struct sw_error *e)
{
    size_t length;

    (void)arg, (void)e;
    *text = read_text(LAYOUTS, name, "", &length);
    return 0;
}

struct sw_model *make_model(const char *layout, const char *json, enum sw_engine_kind kind)
{
    struct sw_rules *rules = NULL;
    struct sw_config *config = NULL;
    struct sw_model *m = NULL;
    struct sw_error e = {0};
    size_t length;
    char *text = read_text(LAYOUTS, layout, ".layout", &length);

    ck_assert_msg(
        sw_rules_parse(layout, text, length, read_included, NULL, &rules, &e) == 0, "%s", e.text);
    ck_assert_msg(sw_config_parse(json, strlen(json), &config, &e) == 0, "%s", e.text);
    ck_assert_msg(sw_model_make(rules, config, kind, &m, &e) == 0, "%s", e.text);
    sw_rules_free(rules);
    sw_config_free(config);
    free(text);
    return m;
}

struct sw_model *open_model(const char *layout, const char *config, enum sw_engine_kind kind)
{
    size_t length;
    char *json = read_text(CONFIGS, config, ".json", &length);
    struct sw_model *m = make_model(layout, json, kind);

    free(json);
    return m;
}

struct sw_placement place(const struct engine_case *c, uint32_t tp, uint32_t pp)
{
    struct sw_placement at = {.kind = c->kind,
        .scale = c->block ? SW_SCALE_FP32 : SW_SCALE_NONE,
        .block = {c->block, c->block},
        .fused_shared_experts = c->fused};
    struct sw_group *of = at.at.of;
    struct sw_error e = {0};

    of[SW_GROUP_PP] = (struct sw_group){pp, c->pp};
    of[SW_GROUP_TP] = (struct sw_group){tp, c->tp};
    of[SW_GROUP_EP] = (struct sw_group){tp / (c->tp / c->ep), c->ep};
    of[SW_GROUP_DP] = (struct sw_group){tp / (c->tp / c->dp), c->dp};
    for (uint32_t g = 0; g < SW_GROUP_COUNT; g++)
        if (c->alone & (1u << g))
            of[g] = (struct sw_group){0, 1};
    if (c->head_dp)
        of[SW_GROUP_HEAD_TP] = (struct sw_group){tp % (c->tp / c->dp), c->tp / c->dp};
    ck_assert_msg(sw_coordinates_complete(&at.at, c->kind, &e) == 0, "%s", e.text);
    return at;
}

uint64_t volume(uint32_t ndim, const uint64_t *shape)
{
    uint64_t n = 1;

    for (uint32_t i = 0; i < ndim; i++)
        n *= shape[i];
    return n;
}
