/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/small_plan.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* ---- a small model ---- */

static const char rules_text[] = "[layout]\n"
                                 "architectures = Small\n"
                                 "[tensor embed]\n"
                                 "stored = embed.weight\n"
                                 "shape = vocab, hidden\n"
                                 "trainer = rows\n"
                                 "[tensor norm]\n"
                                 "for = layer from 0 to layers - 1\n"
                                 "stored = l.{layer}.norm.weight\n"
                                 "shape = hidden\n"
                                 "[tensor up]\n"
                                 "for = layer from 0 to layers - 1\n"
                                 "stored = l.{layer}.up.weight\n"
                                 "shape = inner, hidden\n"
                                 "trainer = rows\n"
                                 "[tensor down]\n"
                                 "for = layer from 0 to layers - 1\n"
                                 "stored = l.{layer}.down.weight\n"
                                 "shape = hidden, inner\n"
                                 "trainer = columns\n"
                                 "[tensor expert]\n"
                                 "for = layer from 0 to layers - 1\n"
                                 "    expert from 0 to experts - 1\n"
                                 "shape = inner, hidden\n"
                                 "stored = l.{layer}.e.{expert}.weight\n"
                                 "    l.{layer}.e.weight [experts, inner, hidden] at expert, 0, 0\n"
                                 "[parameter embed.weight]\n"
                                 "part = embed, rows over embed_tp padded to 8 * embed_tp\n"
                                 "[parameter l.{layer}.norm.weight]\n"
                                 "for = layer from 0 to layers - 1\n"
                                 "part = norm\n"
                                 "[parameter l.{layer}.up.weight]\n"
                                 "for = layer from 0 to layers - 1\n"
                                 "part = up, rows over mlp_tp\n"
                                 "quantise = yes\n"
                                 "[parameter l.{layer}.down.weight]\n"
                                 "for = layer from 0 to layers - 1\n"
                                 "part = down, columns over mlp_tp\n"
                                 "quantise = yes\n"
                                 "[parameter l.{layer}.experts.weight]\n"
                                 "for = layer from 0 to layers - 1\n"
                                 "stack = expert from 0 to experts - 1 over ep\n"
                                 "part = expert\n"
                                 "quantise = yes\n"
                                 "[derived]\n"
                                 "parameter = l.{layer}.absorbed\n"
                                 "[skip]\n"
                                 "tensor = l.{layer}.inv_freq\n";

struct sw_model *make_model(const char *json)
{
    struct sw_rules *rules;
    struct sw_config *config;
    struct sw_model *m;
    struct sw_error e;

    ck_assert_msg(!sw_rules_parse("small", rules_text, strlen(rules_text), NULL, NULL, &rules, &e),
        "%s", e.text);
    ck_assert_msg(!sw_config_parse(json, strlen(json), &config, &e), "%s", e.text);
    ck_assert_msg(!sw_model_make(rules, config, SW_ENGINE_SGLANG, &m, &e), "%s", e.text);
    sw_rules_free(rules);
    sw_config_free(config);
    return m;
}

struct sw_model *model;

void set_up(void)
{
    model = make_model(SMALL "}");
}

void tear_down(void)
{
    sw_model_free(model);
}

/* ---- plans ---- */

struct made scene(
    const struct sw_trainer_spec *t, const struct sw_engine_spec *a, const struct sw_engine_spec *b)
{
    const struct sw_engine_spec *specs[] = {a, b};
    struct made m = {0};
    struct sw_error e;

    ck_assert_msg(!sw_scene_make(model, t, NULL, &m.trainers, &e), "%s", e.text);
    m.ranks = m.trainers.ranks;
    m.n_ranks = m.trainers.n_ranks;
    for (int i = 0; i < 2 && specs[i]; i++) {
        struct sw_scene *s = &m.engines[i];

        ck_assert_msg(!sw_scene_make(model, t, specs[i], s, &e), "%s", e.text);
        m.targets = realloc(m.targets, (m.n_targets + s->n_targets) * sizeof(*m.targets));
        ck_assert_ptr_nonnull(m.targets);
        for (uint32_t k = 0; k < s->n_targets; k++) {
            m.targets[m.n_targets] = s->targets[k];
            m.targets[m.n_targets].target = m.n_targets;
            m.n_targets++;
        }
    }
    return m;
}

int try_plan(struct made *m, const struct sw_plan_options *options, struct sw_error *e)
{
    int err = sw_layout_make(
        m->ranks, m->n_ranks, m->targets, m->n_targets, options, &m->layout, &m->notes, e);

    if (!err) {
        m->c = sw_layout_compact(m->layout);
        err = sw_writes_make(m->layout, m->targets, m->n_targets, &m->writes, e);
    }
    return err;
}

void plan(struct made *m, const struct sw_plan_options *options)
{
    struct sw_error e;

    ck_assert_msg(try_plan(m, options, &e) == 0, "%s", e.text);
}

void clear(struct made *m)
{
    sw_writes_free(m->writes);
    sw_layout_free(m->layout);
    sw_scene_clear(&m->trainers);
    sw_scene_clear(&m->engines[0]);
    sw_scene_clear(&m->engines[1]);
    free(m->targets);
    *m = (struct made){0};
}

uint64_t staged(const struct sw_compact *c, uint32_t slab)
{
    const struct sw_split *s = &c->splits[c->slabs[slab].split];
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < s->n; i++)
        bytes += c->cells[s->first + i].bytes;
    return bytes;
}

uint64_t tile_at(const struct sw_compact *c, uint32_t slab, uint32_t cell)
{
    const struct sw_slab *s = &c->slabs[slab];

    return c->bases[c->runs[s->run].first + cell] +
           s->at * c->cells[c->splits[s->split].first + cell].bytes;
}

static uint32_t find_entry(const struct sw_compact *c, const char *name)
{
    for (uint32_t i = 0; i < c->n_entries; i++)
        if (!strcmp(c->entries[i].name, name))
            return i;
    ck_abort_msg("no source %s", name);
    return 0;
}

uint32_t slabs_of(const struct sw_compact *c, const char *name, enum sw_transform transform,
    uint32_t *out, uint32_t most)
{
    const uint32_t entry = find_entry(c, name);
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->n_slabs; i++) {
        uint32_t k;

        if (c->slabs[i].source != entry || c->formats[c->slabs[i].format].transform != transform)
            continue;
        ck_assert_uint_lt(n, most);
        for (k = n++;
             k > 0 && c->boxes[c->slabs[out[k - 1]].box].lo[0] > c->boxes[c->slabs[i].box].lo[0];
             k--)
            out[k] = out[k - 1];
        out[k] = i;
    }
    return n;
}
