/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "trainerd/plan/plan.h"

/* ---- making input ---- */

static struct sw_source source(
    const char *name, enum sw_dtype dtype, uint32_t ndim, uint64_t a, uint64_t b)
{
    struct sw_source s = {.name = name, .dtype = dtype, .ndim = ndim, .shape = {a, b}};

    s.box.ndim = ndim;
    memcpy(s.box.len, s.shape, sizeof(s.shape));
    return s;
}

static struct sw_parameter parameter(const struct sw_source *s, uint32_t region, uint64_t offset)
{
    struct sw_parameter p = {
        .name = s->name, .dtype = s->dtype, .ndim = s->ndim, .region = region, .offset = offset};

    memcpy(p.shape, s->shape, sizeof(p.shape));
    return p;
}

static int make(const struct sw_plan_rank *ranks, uint32_t n_ranks,
    const struct sw_plan_target *targets, uint32_t n_targets, struct sw_layout **l,
    struct sw_writes **w, struct sw_error *e)
{
    uint32_t unused;
    char names[128];
    int err =
        sw_layout_make(ranks, n_ranks, targets, n_targets, l, &unused, names, sizeof(names), e);

    if (!err) {
        err = sw_writes_make(*l, targets, n_targets, w, e);
        if (err)
            sw_layout_free(*l);
    }
    return err;
}

static const uint64_t region_1k[] = {1024, 1024};

static struct sw_plan_target target(
    uint32_t number, const struct sw_parameter *parameters, uint32_t n)
{
    return (struct sw_plan_target){.target = number,
        .engine = "A",
        .engine_rank = number,
        .n_regions = 2,
        .region_bytes = region_1k,
        .n_parameters = n,
        .parameters = parameters};
}

static void expect_extent(const struct sw_write_plan *p, uint64_t i, uint64_t src, uint64_t dst,
    uint64_t length, uint32_t region)
{
    ck_assert_uint_lt(i, p->n);
    ck_assert_uint_eq(p->extents[i].src, src);
    ck_assert_uint_eq(p->extents[i].dst, dst);
    ck_assert_uint_eq(p->extents[i].length, length);
    ck_assert_uint_eq(p->extents[i].region, region);
}

/* ---- by hand ---- */

START_TEST(neighbours_become_one_extent_and_gaps_are_never_crossed)
{
    /* declared in another order than they lie */
    const struct sw_source s[] = {source("c", SW_BF16, 2, 4, 8), source("a", SW_BF16, 1, 16, 0),
        source("b", SW_F32, 1, 8, 0), source("d", SW_U8, 1, 10, 0)};
    const struct sw_parameter p[] = {parameter(&s[0], 0, 64), parameter(&s[3], 1, 7),
        parameter(&s[1], 0, 0), parameter(&s[2], 0, 32)};
    const struct sw_parameter q[] = {parameter(&s[2], 0, 0), parameter(&s[0], 0, 512)};
    const struct sw_plan_rank rank = {0, 4, s};
    const struct sw_plan_target t[] = {target(0, p, 4), target(1, q, 2)};
    struct sw_layout *l;
    struct sw_writes *w;
    struct sw_error e;
    const struct sw_load_plan *load;

    ck_assert_int_eq(make(&rank, 1, t, 2, &l, &w, &e), 0);
    load = sw_layout_load(l, 0);
    ck_assert_uint_eq(load->n_tiles, 4);
    ck_assert_uint_eq(load->replica_bytes, SW_REPLICA_ALIGN);
    ck_assert_uint_eq(load->n_templates, 4);
    ck_assert_uint_eq(load->n_checks, 0);
    ck_assert_uint_eq(load->loads[0].source, 1); /* a is the first in region 0 */
    ck_assert_uint_eq(load->tiles[0].offset, 0);
    ck_assert_uint_eq(load->tiles[1].offset, 32);
    ck_assert_uint_eq(load->tiles[2].offset, 64);
    ck_assert_uint_eq(load->tiles[2].bytes, 64);
    ck_assert_uint_eq(load->tiles[3].offset, 256); /* another region */
    ck_assert_uint_eq(load->tiles[3].bytes, 10);
    ck_assert_uint_eq(sw_writes_count(w), 2);
    ck_assert_uint_eq(sw_writes_get(w, 0)->n, 2);
    ck_assert_uint_eq(sw_writes_get(w, 0)->bytes, 138);
    expect_extent(sw_writes_get(w, 0), 0, 0, 0, 128, 0);
    expect_extent(sw_writes_get(w, 0), 1, 256, 7, 10, 1);
    ck_assert_uint_eq(sw_writes_get(w, 1)->target, 1);
    ck_assert_uint_eq(sw_writes_get(w, 1)->n, 2);
    expect_extent(sw_writes_get(w, 1), 0, 32, 0, 32, 0);
    expect_extent(sw_writes_get(w, 1), 1, 64, 512, 64, 0);
    ck_assert_ptr_null(sw_writes_get(w, 2));
    sw_writes_free(w);
    sw_layout_free(l);
}
END_TEST

START_TEST(templates_describe_dense_copies)
{
    const struct sw_source s[] = {source("a", SW_BF16, 2, 3, 5), source("b", SW_BF16, 2, 3, 5),
        source("c", SW_F4, 2, 3, 6), source("d", SW_F32, 0, 0, 0)};
    const struct sw_parameter p[] = {parameter(&s[0], 0, 0), parameter(&s[1], 0, 30),
        parameter(&s[2], 0, 60), parameter(&s[3], 0, 69)};
    const struct sw_plan_rank rank = {0, 4, s};
    const struct sw_plan_target t = target(0, p, 4);
    struct sw_layout *l;
    struct sw_writes *w;
    struct sw_error e;
    const struct sw_load_plan *load;
    const struct sw_load_template *tmpl;

    ck_assert_int_eq(make(&rank, 1, &t, 1, &l, &w, &e), 0);
    load = sw_layout_load(l, 0);
    ck_assert_uint_eq(load->n_templates, 3);
    ck_assert_uint_eq(load->loads[0].tmpl, load->loads[1].tmpl);
    tmpl = &load->templates[load->loads[0].tmpl];
    ck_assert_uint_eq(tmpl->ndim, 2);
    ck_assert_uint_eq(tmpl->len[0], 3);
    ck_assert_uint_eq(tmpl->len[1], 5);
    ck_assert_uint_eq(tmpl->dst_stride[0], 10);
    ck_assert_uint_eq(tmpl->dst_stride[1], 2);
    tmpl = &load->templates[load->loads[2].tmpl];
    ck_assert_uint_eq(tmpl->dst_stride[0], 3);
    ck_assert_uint_eq(tmpl->dst_stride[1], 0); /* half bytes: the row is dense */
    ck_assert_uint_eq(load->templates[load->loads[3].tmpl].ndim, 0);
    ck_assert_uint_eq(sw_writes_get(w, 0)->n, 1);
    expect_extent(sw_writes_get(w, 0), 0, 0, 0, 73, 0);
    sw_writes_free(w);
    sw_layout_free(l);
}
END_TEST

START_TEST(aliases_are_one_tile_and_are_compared)
{
    const struct sw_source s[] = {source("lm_head", SW_BF16, 2, 8, 4),
        source("embed", SW_BF16, 2, 8, 4), source("norm", SW_BF16, 1, 4, 0)};
    struct sw_parameter tied[] = {
        parameter(&s[1], 0, 0), parameter(&s[0], 0, 0), parameter(&s[2], 0, 64)};
    struct sw_parameter again[] = {parameter(&s[0], 1, 0), parameter(&s[1], 1, 0)};
    const struct sw_parameter only[] = {parameter(&s[0], 0, 0)};
    const struct sw_plan_rank rank = {0, 3, s}, without = {0, 2, s + 1};
    struct sw_plan_target t = target(0, tied, 3), u = target(1, again, 2), v = target(2, only, 1);
    const struct sw_plan_target both[] = {t, u};
    struct sw_layout *l;
    struct sw_writes *w;
    struct sw_error e;
    const struct sw_load_plan *load;

    tied[1].alias_of = "embed";
    again[1].alias_of = "lm_head"; /* the other is the root there */
    ck_assert_int_eq(make(&rank, 1, both, 2, &l, &w, &e), 0);
    load = sw_layout_load(l, 0);
    ck_assert_uint_eq(load->n_tiles, 2);
    ck_assert_uint_eq(load->n_checks, 2);
    ck_assert_uint_eq(load->checks[0].source, 1);
    ck_assert_uint_eq(load->checks[1].source, 0);
    ck_assert_uint_eq(load->checks[0].set, load->checks[1].set);
    ck_assert_str_eq(sw_layout_alias_names(l, load->checks[0].set), "embed and lm_head");
    ck_assert_uint_eq(sw_writes_get(w, 0)->bytes, 72);
    ck_assert_uint_eq(sw_writes_get(w, 1)->bytes, 64);
    ck_assert_int_eq(sw_layout_knows(l, &u, &e), 0);
    ck_assert_int_eq(sw_layout_knows(l, &v, &e), SW_ERR_PLAN); /* untied lm_head has no tile */
    ck_assert_ptr_nonnull(strstr(e.text, "lm_head"));
    sw_writes_free(w);
    sw_layout_free(l);

    /* a checkpoint that does not save the alias needs no check */
    ck_assert_int_eq(make(&without, 1, &t, 1, &l, &w, &e), 0);
    ck_assert_uint_eq(sw_layout_load(l, 0)->n_checks, 0);
    sw_writes_free(w);
    sw_layout_free(l);

    /* an untied engine's layout cannot serve a tied one: the names were not compared */
    t = target(0, only, 1);
    ck_assert_int_eq(make(&rank, 1, &t, 1, &l, &w, &e), 0);
    ck_assert_int_eq(sw_layout_knows(l, &u, &e), SW_ERR_PLAN);
    ck_assert_ptr_nonnull(strstr(e.text, "aliases"));
    ck_assert_int_eq(sw_layout_knows(l, &v, &e), 0);
    sw_writes_free(w);
    sw_layout_free(l);
}
END_TEST

START_TEST(parameters_without_elements_have_no_tile)
{
    const struct sw_source s[] = {source("empty", SW_BF16, 2, 0, 4), source("a", SW_U8, 1, 4, 0)};
    const struct sw_parameter p[] = {
        parameter(&s[0], 0, 4), parameter(&s[1], 0, 4), parameter(&s[0], 0, 2)};
    struct sw_parameter other = parameter(&s[0], 0, 0);
    const struct sw_plan_rank rank = {0, 2, s};
    struct sw_plan_target t = target(0, p, 3);
    struct sw_layout *l;
    struct sw_writes *w;
    struct sw_error e;

    ck_assert_int_eq(make(&rank, 1, &t, 1, &l, &w, &e), 0);
    ck_assert_uint_eq(sw_layout_load(l, 0)->n_tiles, 1);
    ck_assert_uint_eq(sw_writes_get(w, 0)->bytes, 4);
    ck_assert_int_eq(sw_layout_knows(l, &t, &e), 0);
    sw_writes_free(w);
    sw_layout_free(l);
    t = target(0, p, 1); /* nothing at all to write */
    ck_assert_int_eq(make(&rank, 1, &t, 1, &l, &w, &e), 0);
    ck_assert_uint_eq(sw_writes_count(w), 0);
    ck_assert_uint_eq(sw_layout_load(l, 0)->replica_bytes, 0);
    sw_writes_free(w);
    sw_layout_free(l);
    other.shape[1] = 5; /* a wrong shape is wrong without bytes too */
    t = target(0, &other, 1);
    ck_assert_int_eq(make(&rank, 1, &t, 1, &l, &w, &e), SW_ERR_PLAN);
}
END_TEST

START_TEST(ranks_that_hold_the_same_share_the_work)
{
    struct sw_source s[64];
    struct sw_parameter p[64];
    char names[64][8];
    struct sw_plan_rank ranks[4];
    const uint64_t bytes = 64 * 4;
    const struct sw_plan_target t = {
        .engine = "A", .n_regions = 1, .region_bytes = &bytes, .n_parameters = 64, .parameters = p};
    struct sw_layout *l;
    struct sw_writes *w;
    struct sw_error e;

    for (uint32_t i = 0; i < 64; i++) {
        snprintf(names[i], sizeof(names[i]), "t%02u", i);
        s[i] = source(names[i], SW_F32, 1, 1, 0);
        p[i] = parameter(&s[i], 0, 4 * i);
    }
    /* rank 3 is alone with the first 16; the others share 48 */
    for (uint32_t r = 0; r < 4; r++)
        ranks[r] = (struct sw_plan_rank){10 + r, r == 3 ? 16 : 48, r == 3 ? s : s + 16};
    ck_assert_int_eq(make(ranks, 4, &t, 1, &l, &w, &e), 0);
    ck_assert_uint_eq(sw_writes_count(w), 4);
    for (uint32_t r = 0; r < 4; r++) {
        ck_assert_uint_eq(sw_layout_load(l, r)->n_tiles, 16);
        ck_assert_uint_eq(sw_writes_get(w, r)->rank, 10 + r);
        ck_assert_uint_eq(sw_writes_get(w, r)->n, 1); /* neighbours went to one rank */
        ck_assert_uint_eq(sw_writes_get(w, r)->bytes, 64);
    }
    sw_writes_free(w);
    sw_layout_free(l);
}
END_TEST

START_TEST(unused_sources_are_counted_and_named)
{
    const struct sw_source s[] = {
        source("x", SW_U8, 1, 1, 0), source("a", SW_U8, 1, 1, 0), source("w", SW_U8, 1, 1, 0)};
    const struct sw_parameter p[] = {parameter(&s[1], 0, 0)};
    const struct sw_plan_rank ranks[] = {{0, 3, s}, {1, 3, s}};
    const struct sw_plan_target t = target(0, p, 1);
    struct sw_layout *l;
    struct sw_error e;
    uint32_t unused = 9;
    char names[6];

    ck_assert_int_eq(sw_layout_make(ranks, 2, &t, 1, &l, &unused, names, sizeof(names), &e), 0);
    ck_assert_uint_eq(unused, 2);
    ck_assert_str_eq(names, "w, x");
    sw_layout_free(l);
    ck_assert_int_eq(sw_layout_make(ranks, 2, &t, 1, &l, &unused, names, 3, &e), 0);
    ck_assert_str_eq(names, "w,");
    sw_layout_free(l);
}
END_TEST

/* ---- refusals ---- */

struct refusal {
    const char *what;
    struct sw_source sources[2];
    struct sw_parameter parameters[2];
    const char *alias_of; /* of the second parameter */
    int code;
    const char *names[3]; /* in the text */
};

static void refuse(const struct refusal *c)
{
    struct sw_parameter p[2] = {c->parameters[0], c->parameters[1]};
    const struct sw_plan_rank ranks[] = {{3, 1, c->sources}, {4, 1, c->sources + 1}};
    const struct sw_plan_target t = target(0, p, p[1].name ? 2 : 1);
    struct sw_layout *l;
    struct sw_writes *w;
    struct sw_error e = {0};

    p[1].alias_of = c->alias_of;
    ck_assert_msg(
        make(ranks, 2, &t, 1, &l, &w, &e) == c->code, "%s: %d %s", c->what, e.code, e.text);
    ck_assert_int_eq(e.code, c->code);
    for (int i = 0; i < 3 && c->names[i]; i++)
        ck_assert_msg(strstr(e.text, c->names[i]), "%s: %s", c->what, e.text);
}

START_TEST(what_does_not_fit_is_refused_by_name)
{
    const struct sw_source a = source("a", SW_BF16, 2, 2, 4), b = source("b", SW_BF16, 2, 2, 4);
    struct sw_source shard = a, other = a;
    struct sw_parameter wide = parameter(&a, 0, 0), typed = wide, alias = parameter(&b, 0, 0),
                        far = parameter(&a, 0, 1020), nowhere = parameter(&a, 7, 0);

    shard.box.lo[0] = 1;
    shard.box.len[0] = 1;
    other.shape[0] = other.box.len[0] = 3;
    wide.shape[1] = 5;
    typed.dtype = SW_F16;
    {
        const struct refusal cases[] = {
            {"no source", {a, a}, {alias}, NULL, SW_ERR_PLAN, {"engine A rank 0", "parameter b"}},
            {"shape", {a, b}, {wide}, NULL, SW_ERR_PLAN, {"[2, 5]", "[2, 4]", "parameter a"}},
            {"dtype", {a, b}, {typed}, NULL, SW_ERR_PLAN, {"F16", "BF16", "parameter a"}},
            {"box", {a, shard}, {parameter(&a, 0, 0)}, NULL, SW_ERR_UNSUPPORTED, {"source a"}},
            {"ranks differ", {a, other}, {parameter(&a, 0, 0)}, NULL, SW_ERR_PLAN,
                {"source a", "rank 3", "rank 4"}},
            {"undeclared overlap", {a, b}, {parameter(&a, 0, 0), alias}, NULL, SW_ERR_PLAN,
                {"overlap", "parameters a"}},
            {"partial overlap", {a, b}, {parameter(&a, 0, 0), parameter(&b, 0, 8)}, "a",
                SW_ERR_PLAN, {"overlap"}},
            {"alias of nothing", {a, b}, {parameter(&a, 0, 0), alias}, "zz", SW_ERR_PLAN,
                {"zz", "parameter b"}},
            {"alias elsewhere", {a, b}, {parameter(&a, 0, 0), parameter(&b, 0, 64)}, "a",
                SW_ERR_PLAN, {"alias of a"}},
            {"past the region", {a, b}, {far}, NULL, SW_ERR_PLAN, {"parameter a", "1024"}},
            {"no such region", {a, b}, {nowhere}, NULL, SW_ERR_PLAN, {"region 7"}},
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
            refuse(&cases[i]);
    }
}
END_TEST

START_TEST(a_source_twice_in_one_rank_is_refused)
{
    const struct sw_source s[] = {source("a", SW_U8, 1, 1, 0), source("a", SW_U8, 1, 1, 0)};
    const struct sw_parameter p[] = {parameter(&s[0], 0, 0)};
    const struct sw_plan_rank rank = {7, 2, s};
    const struct sw_plan_target t = target(0, p, 1);
    struct sw_layout *l;
    struct sw_writes *w;
    struct sw_error e;

    ck_assert_int_eq(make(&rank, 1, &t, 1, &l, &w, &e), SW_ERR_PLAN);
    ck_assert_ptr_nonnull(strstr(e.text, "rank 7 declares source a twice"));
}
END_TEST

/* ---- at random, against a byte-for-byte oracle ---- */

#define MAX_SOURCES 14
#define MAX_RANKS 4
#define MAX_TARGETS 4
#define REGION_BYTES 1200

static uint64_t seed;

static uint32_t pick(uint32_t n)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return n ? (uint32_t)(seed >> 33) % n : 0;
}

struct world {
    uint32_t n_sources, n_ranks, n_targets;
    char names[MAX_SOURCES][16];
    struct sw_source sources[MAX_SOURCES];
    uint32_t content[MAX_SOURCES]; /* equal numbers = equal bytes */
    struct sw_source held[MAX_RANKS][MAX_SOURCES];
    struct sw_plan_rank ranks[MAX_RANKS];
    struct sw_parameter parameters[MAX_TARGETS][MAX_SOURCES];
    struct sw_plan_target targets[MAX_TARGETS];
    uint64_t region_bytes[MAX_TARGETS][3];
};

static uint64_t bytes_of(const struct sw_source *s)
{
    uint64_t bytes = 0;

    ck_assert_int_eq(sw_tensor_bytes(s->dtype, s->ndim, s->shape, &bytes), 0);
    return bytes;
}

static uint8_t content_byte(uint32_t content, uint64_t position)
{
    return (uint8_t)((content * 131 + position) * 2654435761u >> 13);
}

static void random_sources(struct world *w)
{
    static const enum sw_dtype dtypes[] = {SW_BF16, SW_U8, SW_F32, SW_F4, SW_F6_E2M3};

    w->n_sources = 1 + pick(MAX_SOURCES);
    for (uint32_t i = 0; i < w->n_sources; i++) {
        const enum sw_dtype dtype = dtypes[pick(5)];
        const bool packed = sw_dtype_bits(dtype) < 8;
        struct sw_source *s = &w->sources[i];

        snprintf(w->names[i], sizeof(w->names[i]), "n%u", pick(1000) * 16 + i);
        w->content[i] = i;
        if (i && pick(4) == 0) { /* an equal of an earlier one */
            const uint32_t twin = pick(i);

            *s = w->sources[twin];
            s->name = w->names[i];
            w->content[i] = w->content[twin];
            continue;
        }
        *s = source(w->names[i], dtype, packed ? 1 + pick(2) : pick(3), pick(6), pick(6));
        if (packed)
            s->shape[s->ndim - 1] = s->box.len[s->ndim - 1] = 4 * pick(4);
    }
}

static void random_ranks(struct world *w)
{
    w->n_ranks = 1 + pick(MAX_RANKS);
    for (uint32_t r = 0; r < w->n_ranks; r++)
        w->ranks[r] = (struct sw_plan_rank){.rank = r, .sources = w->held[r]};
    for (uint32_t i = 0; i < w->n_sources; i++) {
        const uint32_t must = pick(w->n_ranks);

        for (uint32_t r = 0; r < w->n_ranks; r++)
            if (r == must || pick(3) == 0)
                w->held[r][w->ranks[r].n_sources++] = w->sources[i];
    }
}

static void random_target(struct world *w, uint32_t t)
{
    uint64_t at[3] = {0};
    uint32_t n = 0, place[MAX_SOURCES];
    struct sw_parameter *p = w->parameters[t];

    for (uint32_t i = 0; i < w->n_sources; i++)
        w->region_bytes[t][i % 3] = REGION_BYTES;
    for (uint32_t k = 0; k < w->n_sources; k++) {
        const uint32_t i = t % 2 ? w->n_sources - 1 - k : k, region = pick(3);
        bool aliased = false;

        if (pick(6) == 0)
            continue;
        for (uint32_t j = 0; j < n && !aliased; j++) /* tied to an equal one, perhaps */
            if (w->content[place[j]] == w->content[i] && !p[j].alias_of && pick(2)) {
                p[n] = parameter(&w->sources[i], p[j].region, p[j].offset);
                p[n].alias_of = p[j].name;
                aliased = true;
            }
        if (!aliased) {
            at[region] += pick(3) == 0 ? pick(9) : 0; /* bytes that nobody declares */
            p[n] = parameter(&w->sources[i], region, at[region]);
            at[region] += bytes_of(&w->sources[i]);
        }
        place[n++] = i;
    }
    w->targets[t] = (struct sw_plan_target){.target = t,
        .engine = "E",
        .engine_rank = t,
        .n_regions = 3,
        .region_bytes = w->region_bytes[t],
        .n_parameters = n,
        .parameters = p};
    for (uint32_t r = 0; r < 3; r++)
        w->region_bytes[t][r] = at[r] + pick(5);
}

static uint32_t find_content(const struct world *w, const char *name)
{
    for (uint32_t i = 0; i < w->n_sources; i++)
        if (!strcmp(w->names[i], name))
            return w->content[i];
    ck_abort_msg("no source %s", name);
    return 0;
}

/* Runs a load by its strides, element row by element row, as an executor would. */
static uint64_t run_load(const struct world *w, const struct sw_plan_rank *rank,
    const struct sw_load_plan *plan, const struct sw_load *load, uint8_t *replica, uint8_t *count)
{
    const struct sw_load_template *t = &plan->templates[load->tmpl];
    const uint32_t content = find_content(w, rank->sources[load->source].name);
    const unsigned bits = sw_dtype_bits(t->src_dtype);
    const uint64_t row = t->ndim ? t->len[t->ndim - 1] * bits / 8 : bits / 8;
    uint64_t rows = 1, done = 0;

    if (t->ndim && t->dst_stride[t->ndim - 1])
        ck_assert_uint_eq(t->dst_stride[t->ndim - 1] * 8, bits);
    for (uint32_t d = 0; d + 1 < t->ndim; d++)
        rows *= t->len[d];
    for (uint64_t i = 0; i < rows; i++) {
        uint64_t at = plan->tiles[load->tile].offset + load->offset, rest = i;

        for (uint32_t d = t->ndim > 1 ? t->ndim - 1 : 0; d-- > 0;) {
            at += rest % t->len[d] * t->dst_stride[d];
            rest /= t->len[d];
        }
        for (uint64_t b = 0; b < row; b++, done++) {
            ck_assert_uint_lt(at + b, plan->replica_bytes);
            replica[at + b] = content_byte(content, done);
            count[at + b]++;
        }
    }
    return done;
}

static uint8_t *fill_replica(
    const struct world *w, const struct sw_plan_rank *rank, const struct sw_load_plan *plan)
{
    uint8_t *replica = calloc(1, plan->replica_bytes + 1);
    uint8_t *count = calloc(1, plan->replica_bytes + 1);
    uint64_t *counters = calloc(plan->n_tiles + 1, sizeof(*counters));

    for (uint32_t i = 0; i < plan->n_loads; i++)
        counters[plan->loads[i].tile] += run_load(w, rank, plan, &plan->loads[i], replica, count);
    for (uint32_t i = 0; i < plan->n_tiles; i++) {
        ck_assert_uint_eq(counters[i], plan->tiles[i].bytes);
        for (uint64_t b = 0; b < plan->tiles[i].bytes; b++)
            ck_assert_uint_eq(count[plan->tiles[i].offset + b], 1);
    }
    free(count);
    free(counters);
    return replica;
}

static void check_target(const struct world *w, const struct sw_layout *l,
    const struct sw_writes *writes, const struct sw_plan_target *t, uint8_t *const *replicas)
{
    uint8_t memory[3][REGION_BYTES] = {{0}}, count[3][REGION_BYTES] = {{0}};
    uint8_t declared[3][REGION_BYTES] = {{0}};

    for (uint32_t i = 0; i < sw_writes_count(writes); i++) {
        const struct sw_write_plan *p = sw_writes_get(writes, i);
        uint64_t bytes = 0;

        if (p->target != t->target)
            continue;
        ck_assert_uint_gt(p->n, 0);
        for (uint64_t x = 0; x < p->n; x++) {
            const struct sw_extent *e = &p->extents[x];

            for (uint64_t b = 0; b < e->length; b++) {
                ck_assert_uint_lt(e->dst + b, t->region_bytes[e->region]);
                memory[e->region][e->dst + b] = replicas[p->rank][e->src + b];
                count[e->region][e->dst + b]++;
            }
            if (x) /* what could be one extent is one */
                ck_assert(e[-1].region != e->region || e[-1].dst + e[-1].length != e->dst ||
                          e[-1].src + e[-1].length != e->src);
            bytes += e->length;
        }
        ck_assert_uint_eq(bytes, p->bytes);
    }
    for (uint32_t i = 0; i < t->n_parameters; i++) {
        const struct sw_parameter *p = &t->parameters[i];
        const uint32_t content = find_content(w, p->name);
        uint64_t bytes;

        ck_assert_int_eq(sw_tensor_bytes(p->dtype, p->ndim, p->shape, &bytes), 0);
        for (uint64_t b = 0; b < bytes; b++) {
            ck_assert_uint_eq(count[p->region][p->offset + b], 1);
            ck_assert_uint_eq(memory[p->region][p->offset + b], content_byte(content, b));
            declared[p->region][p->offset + b] = 1;
        }
    }
    for (uint32_t r = 0; r < 3; r++)
        ck_assert_int_eq(memcmp(count[r], declared[r], REGION_BYTES), 0);
}

START_TEST(random_worlds_are_covered_byte_for_byte)
{
    static struct world w;
    struct sw_layout *l;
    struct sw_writes *writes;
    struct sw_error e;
    uint8_t *replicas[MAX_RANKS];

    seed = (uint64_t)_i * 7919 + 1;
    for (uint32_t round = 0; round < 40; round++) {
        memset(&w, 0, sizeof(w));
        random_sources(&w);
        random_ranks(&w);
        w.n_targets = 1 + pick(MAX_TARGETS);
        for (uint32_t t = 0; t < w.n_targets; t++)
            random_target(&w, t);
        ck_assert_msg(make(w.ranks, w.n_ranks, w.targets, w.n_targets, &l, &writes, &e) == 0,
            "seed %d round %u: %s", _i, round, e.text);
        for (uint32_t r = 0; r < w.n_ranks; r++)
            replicas[r] = fill_replica(&w, &w.ranks[r], sw_layout_load(l, r));
        for (uint32_t t = 0; t < w.n_targets; t++) {
            ck_assert_int_eq(sw_layout_knows(l, &w.targets[t], &e), 0);
            check_target(&w, l, writes, &w.targets[t], replicas);
        }
        for (uint32_t r = 0; r < w.n_ranks; r++)
            free(replicas[r]);
        sw_writes_free(writes);
        sw_layout_free(l);
    }
}
END_TEST

START_TEST(many_small_parameters_become_one_extent)
{
    const uint32_t n = 100000;
    struct sw_source *s = calloc(n, sizeof(*s));
    struct sw_parameter *p = calloc(n, sizeof(*p));
    char(*names)[48] = calloc(n, sizeof(*names));
    const uint64_t region = (uint64_t)n * 1024;
    const struct sw_plan_rank rank = {0, n, s};
    struct sw_plan_target t = {
        .engine = "A", .n_regions = 1, .region_bytes = &region, .n_parameters = n, .parameters = p};
    struct sw_layout *l;
    struct sw_writes *w;
    struct sw_error e;

    for (uint32_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof(names[i]), "model.layers.%u.weight", i * 7919 % n);
        s[i] = source(names[i], SW_BF16, 2, 16, 32);
        p[i] = parameter(&s[i], 0, (uint64_t)i * 1024);
    }
    ck_assert_int_eq(make(&rank, 1, &t, 1, &l, &w, &e), 0);
    ck_assert_uint_eq(sw_writes_count(w), 1);
    ck_assert_uint_eq(sw_writes_get(w, 0)->n, 1);
    ck_assert_uint_eq(sw_layout_load(l, 0)->n_templates, 1);
    sw_writes_free(w);
    sw_layout_free(l);
    free(s);
    free(p);
    free(names);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan");
    TCase *by_hand = tcase_create("by hand"), *random = tcase_create("random");
    SRunner *runner;
    int failed;

    tcase_add_test(by_hand, neighbours_become_one_extent_and_gaps_are_never_crossed);
    tcase_add_test(by_hand, templates_describe_dense_copies);
    tcase_add_test(by_hand, aliases_are_one_tile_and_are_compared);
    tcase_add_test(by_hand, parameters_without_elements_have_no_tile);
    tcase_add_test(by_hand, ranks_that_hold_the_same_share_the_work);
    tcase_add_test(by_hand, unused_sources_are_counted_and_named);
    tcase_add_test(by_hand, what_does_not_fit_is_refused_by_name);
    tcase_add_test(by_hand, a_source_twice_in_one_rank_is_refused);
    suite_add_tcase(suite, by_hand);
    tcase_add_loop_test(random, random_worlds_are_covered_byte_for_byte, 0, 10);
    tcase_add_test(random, many_small_parameters_become_one_extent);
    tcase_set_timeout(random, 60);
    suite_add_tcase(suite, random);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
