/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors, stored names and lists of a small model that has one of everything. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "common/test_suite.h"
#include "trainerd/plan/model.h"
#include "trainerd/plan/test_small_model.h"

static struct sw_model *m;

static void teardown(void)
{
    sw_model_free(m);
    m = NULL;
}

static void make(const char *rules, const char *config, enum sw_engine_kind kind)
{
    struct sw_error e = {0};

    ck_assert_msg(!test_make_model(rules, config, kind, &m, &e), "%s", e.text);
}

static void make_small(const char *config)
{
    make(test_small_rules, config, SW_ENGINE_SGLANG);
}

static uint32_t role(const char *name)
{
    for (uint32_t i = 0; i < sw_model_roles(m); i++)
        if (strcmp(sw_model_role(m, i)->name, name) == 0)
            return i;
    ck_abort_msg("no role %s", name);
}

/* ---- tensors ---- */

START_TEST(roles_have_tensors_one_after_another)
{
    const struct sw_tensor_role *r;
    uint32_t next = 0;

    make_small(test_small_config);
    for (uint32_t i = 0; i < sw_model_roles(m); i++) {
        r = sw_model_role(m, i);
        ck_assert_uint_eq(r->first_tensor, next);
        next += r->n_tensors;
        for (uint32_t t = r->first_tensor; t < next; t++)
            ck_assert_uint_eq(sw_model_role_of(m, t), i);
    }
    ck_assert_uint_eq(sw_model_tensors(m), next);
    r = sw_model_role(m, role("expert_gate"));
    ck_assert(r->expert);
    ck_assert_uint_eq(r->n_tensors, 3 * 8);
    ck_assert_uint_eq(r->n_variables, 2);
    ck_assert_int_eq(r->count[1], 8);
    ck_assert_uint_eq(r->ndim, 2);
    ck_assert_uint_eq(r->shape[0], 32);
    ck_assert_uint_eq(r->shape[1], 64);
    ck_assert_int_eq(r->trainer, SW_AXIS_ROWS);
    ck_assert_int_eq(r->dtype, SW_BF16);
    ck_assert_int_eq(sw_model_role(m, role("bias"))->dtype, SW_F32);
    ck_assert(sw_model_role(m, role("draft_norm"))->draft);
    ck_assert(!sw_model_role(m, role("norm"))->expert);
}
END_TEST

START_TEST(when_says_which_exist)
{
    const struct sw_tensor_role *r;

    make_small(test_small_config); /* layer 0 is dense */
    r = sw_model_role(m, role("expert_gate"));
    for (uint32_t i = 0; i < r->n_tensors; i++)
        ck_assert_int_eq(sw_model_exists(m, r->first_tensor + i), i >= 8);
    r = sw_model_role(m, role("gate"));
    ck_assert(sw_model_exists(m, r->first_tensor));
    ck_assert(!sw_model_exists(m, r->first_tensor + 1));
}
END_TEST

START_TEST(what_does_not_exist_needs_no_shape)
{
    make("[tensor a]\nwhen = get(n, 0)\nshape = absent\nstored = a\n"
         "[tensor b]\nfor = layer from 0 to get(n, 0) - 1\nshape = absent\nstored = b.{layer}\n"
         "[tensor c]\nfor = layer from 0 to 3\nwhen = layer > 5\nshape = 0\nstored = c.{layer}\n"
         "[parameter a]\nwhen = get(n, 0)\npart = a, rows over tp in units of absent\n",
        "{}", SW_ENGINE_ANY);
    ck_assert_uint_eq(sw_model_tensors(m), 0);
    ck_assert_uint_eq(sw_model_stored(m), 0);
}
END_TEST

START_TEST(optional_is_said_of_each)
{
    const struct sw_tensor_role *r;

    make(
        "[tensor a]\nfor = layer from 0 to 3\noptional = layer % 2\nshape = 1\nstored = a.{layer}\n"
        "[tensor b]\noptional = tied\nshape = 1\nstored = b\n",
        "{\"tied\": false}", SW_ENGINE_ANY);
    r = sw_model_role(m, 0);
    ck_assert(r->optional);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_int_eq(sw_model_optional(m, r->first_tensor + i), i % 2);
    ck_assert(!sw_model_role(m, 1)->optional);
    teardown();
    make_small(test_small_config);
    ck_assert(sw_model_role(m, role("head"))->optional);
    ck_assert(!sw_model_role(m, role("norm"))->optional);
}
END_TEST

/* ---- stored names ---- */

START_TEST(names_are_found_and_printed_back)
{
    uint32_t n = 0, found;
    char name[SW_NAME_MAX + 1];

    make_small(test_small_config);
    for (uint32_t i = 0; i < sw_model_stored(m); i++) {
        sw_model_stored_name(m, i, name);
        if (sw_model_find(m, name, &found) != SW_KNOWN)
            continue;
        ck_assert_uint_eq(found, i);
        n++;
    }
    /* embed, head, norm; q, k, v, input norm of 3 layers; gate, up, down of 1; router and bias of
     * 2; 3 matrices of 8 experts of 2, and 2 packed ones; 3 shared ones of 2; 1 draft norm */
    ck_assert_uint_eq(n, 3 + 4 * 3 + 3 + 2 * 2 + 2 * (3 * 8 + 2) + 3 * 2 + 1);
}
END_TEST

START_TEST(what_is_not_there_is_not_found)
{
    static const char *const unknown[] = {"model.layers.0.mlp.experts.0.gate_proj.weight",
        "model.layers.1.mlp.gate_proj.weight", "model.layers.3.self_attn.q_proj.weight",
        "model.layers.1.mlp.experts.8.gate_proj.weight", "model.norm.weight_scale_inv",
        "model.layers.01.self_attn.q_proj.weight", "", "x"};
    char text[2 * SW_NAME_MAX];
    uint32_t stored = 77;

    make_small(test_small_config);
    for (size_t i = 0; i < sizeof(unknown) / sizeof(*unknown); i++)
        ck_assert_msg(sw_model_find(m, unknown[i], &stored) == SW_UNKNOWN, "%s", unknown[i]);
    ck_assert_int_eq(
        sw_model_find(m, "model.layers.999.self_attn.rotary_emb.inv_freq", &stored), SW_SKIPPED);
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    ck_assert_int_eq(sw_model_find(m, text, &stored), SW_UNKNOWN);
    ck_assert_uint_eq(stored, 77);
}
END_TEST

static void check_located(uint32_t tensor, uint32_t way, const char *name, const uint64_t *origin)
{
    uint64_t at[SW_MAX_DIMS] = {0};
    char found[SW_NAME_MAX + 1];
    struct sw_stored s = {0};
    uint32_t stored = 0;

    ck_assert(sw_model_locate(m, tensor, way, &stored, at));
    sw_model_stored_name(m, stored, found);
    ck_assert_str_eq(found, name);
    sw_model_stored_get(m, stored, &s);
    ck_assert(memcmp(at, origin, s.ndim * sizeof(*at)) == 0);
}

START_TEST(tensors_lie_alone_or_in_packed_ones)
{
    const uint64_t none[2] = {0, 0}, packed[3] = {5, 32, 0};
    const struct sw_tensor_role *r;
    struct sw_stored s;
    uint64_t at[SW_MAX_DIMS] = {0};
    uint32_t tensor, stored;

    make_small(test_small_config);
    r = sw_model_role(m, role("expert_up"));
    tensor = r->first_tensor + 2 * 8 + 5; /* layer 2, expert 5 */
    check_located(tensor, 0, "model.layers.2.mlp.experts.5.up_proj.weight", none);
    check_located(tensor, 1, "model.layers.2.mlp.experts.gate_up_proj", packed);
    ck_assert(!sw_model_locate(m, tensor, 2, &stored, at));
    ck_assert(sw_model_locate(m, tensor, 1, &stored, at));
    sw_model_stored_get(m, stored, &s);
    ck_assert_uint_eq(s.ndim, 3);
    ck_assert_uint_eq(s.shape[0], 8);
    ck_assert_uint_eq(s.shape[1], 64);
    ck_assert_uint_eq(s.shape[2], 64);
    ck_assert(!s.draft);
    tensor = sw_model_role(m, role("draft_norm"))->first_tensor;
    ck_assert(sw_model_locate(m, tensor, 0, &stored, at));
    sw_model_stored_get(m, stored, &s);
    ck_assert(s.draft);
}
END_TEST

START_TEST(scales_are_known_with_an_fp8_config)
{
    struct sw_stored s;
    uint32_t stored, scale, found;
    char name[SW_NAME_MAX + 1];

    make_small(test_small_fp8_config);
    ck_assert_int_eq(sw_model_find(m, "model.layers.1.mlp.experts.3.up_proj.weight", &stored), 1);
    ck_assert(sw_model_scale_of(m, stored, &scale));
    sw_model_stored_name(m, scale, name);
    ck_assert_str_eq(name, "model.layers.1.mlp.experts.3.up_proj.weight_scale_inv");
    ck_assert_int_eq(sw_model_find(m, name, &found), SW_KNOWN);
    ck_assert_uint_eq(found, scale);
    sw_model_stored_get(m, stored, &s);
    ck_assert(s.fp8 && !s.scale);
    sw_model_stored_get(m, scale, &s);
    ck_assert(!s.fp8 && s.scale);
    ck_assert_int_eq(s.dtype, SW_F32);
    ck_assert_uint_eq(s.shape[0], 2); /* 32 rows in blocks of 16 */
    ck_assert_uint_eq(s.shape[1], 4);
    ck_assert(!sw_model_scale_of(m, scale, &found));
    ck_assert_int_eq(
        sw_model_find(m, "model.layers.1.mlp.experts.gate_up_proj_scale_inv", &found), SW_KNOWN);
    sw_model_stored_get(m, found, &s);
    ck_assert_uint_eq(s.shape[0], 8);
    ck_assert_uint_eq(s.shape[1], 4);
    /* no `quantise`; and in modules_to_not_convert */
    ck_assert_int_eq(sw_model_find(m, "lm_head.weight_scale_inv", &found), SW_UNKNOWN);
    ck_assert_int_eq(
        sw_model_find(m, "model.layers.2.self_attn.q_proj.weight_scale_inv", &found), SW_UNKNOWN);
    ck_assert_int_eq(sw_model_find(m, "model.layers.2.self_attn.q_proj.weight", &found), SW_KNOWN);
    ck_assert(!sw_model_scale_of(m, found, &scale));
    teardown();
    make_small(test_small_config);
    ck_assert_int_eq(sw_model_find(m, name, &found), SW_UNKNOWN);
}
END_TEST

/* The same name for different shapes, in layers of their own. */
START_TEST(a_name_may_be_shared_by_layers)
{
    struct sw_stored s = {0};
    uint32_t stored = 0;

    make("[tensor a]\nfor = layer from 0 to 3\nwhen = layer < 2\nshape = 4\nstored = l.{layer}\n"
         "[tensor b]\nfor = n from 0 to 3\nwhen = n >= 2\nshape = 5\nstored = l.{n}\n",
        "{}", SW_ENGINE_ANY);
    ck_assert_int_eq(sw_model_find(m, "l.1", &stored), SW_KNOWN);
    sw_model_stored_get(m, stored, &s);
    ck_assert_uint_eq(s.shape[0], 4);
    ck_assert_int_eq(sw_model_find(m, "l.2", &stored), SW_KNOWN);
    sw_model_stored_get(m, stored, &s);
    ck_assert_uint_eq(s.shape[0], 5);
}
END_TEST

/* ---- errors ---- */

START_TEST(errors_of_a_model_name_the_rule)
{
    static const struct {
        const char *rules, *message;
    } cases[] = {
        {"[tensor a]\nshape = absent\nstored = a\n",
            "rules:2: [tensor a] shape: expected 'absent' to be a definition"},
        {"[tensor a]\nshape = 0\nstored = a\n",
            "rules:2: [tensor a] shape: expected a number from 1"},
        {"[tensor a]\nfor = x from 0 to 2\nshape = x\nstored = a.{x}\n",
            "[tensor a] shape: expected a number without variables"},
        {"[tensor a]\nfor = x from -1 to 2\nshape = 1\nstored = a.{x}\n",
            "[tensor a] for: expected"},
        {"[tensor a]\nfor = x from 0 to 2\nwhen = 1 / x\nshape = 1\nstored = a.{x}\n",
            "rules:3: [tensor a] when: expected a number, found a division by zero"},
        {"[tensor a]\nfor = x from 0 to 9000000\nshape = 1\nstored = a.{x}\n", "at most 4000000"},
        {"[tensor a]\nshape = 4\nstored = p [6] at 3\n",
            "[tensor a] stored: expected '3' to be a place"},
        {"[tensor a]\nshape = 4\nstored = p [6] at -1\n", "expected '-1' to be a place"},
        {"[tensor a]\nshape = 4\nstored = x\n[tensor b]\nshape = 5\nstored = x\n",
            "rules:4: expected 'x' to have one shape and type, found another in rules:1"},
        {"[tensor a]\nfor = x from 0 to 2\nshape = 4\nstored = l.{x}\n"
         "[tensor b]\nshape = 5\nstored = l.2\n",
            "expected 'l.2' to have one shape"},
        {"[tensor a]\nshape = 4\nstored = a\n[tensor b]\nshape = 5\nstored = b\n"
         "[parameter p]\npart = a or b\n",
            "rules:8: [parameter p] part: expected 'a' and 'b' to have equal shapes"},
        {"[tensor a]\nshape = 4\nstored = a\n[parameter p]\nfor = x from 0 to 1\npart = a\n",
            "rules:4: [parameter p]: expected 'x' in the name 'p', as it has 2 values"},
        {"[tensor a]\nshape = 4\nstored = a\n[parameter p.{layer}]\nfor = layer from 0 to 70000\n"
         "part = a\n",
            "expected layers below 65535"},
        {"[define]\na = b\nb = a\n[tensor t]\nshape = a\nstored = a\n", "a circle"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct sw_error e = {0};

        ck_assert_msg(
            test_make_model(cases[i].rules, "{}", SW_ENGINE_ANY, &m, &e) < 0, "%s", cases[i].rules);
        ck_assert_msg(strstr(e.text, cases[i].message), "%s\nnot: %s", e.text, cases[i].message);
        ck_assert_ptr_null(m);
    }
}
END_TEST

START_TEST(work_is_bounded)
{
    struct test_text rules = {0};
    struct sw_error e = {0};

    test_append(
        &rules, "[tensor a]\nfor = x from 0 to 3999999\nshape = 1\nstored = a.{x}\nwhen = 1");
    for (int i = 0; i < 100; i++)
        test_append(&rules, "\n  + x * x");
    ck_assert_int_eq(test_make_model(rules.text, "{}", SW_ENGINE_ANY, &m, &e), SW_ERR_LIMIT);
    ck_assert_msg(strstr(e.text, "too much work"), "%s", e.text);
    rules.n = 0;
    for (int i = 0; i < 70; i++)
        test_append(&rules, "[tensor a%d]\nfor = x from %d to %d\nshape = %d\nstored = a.{x}\n", i,
            i, i, i + 1);
    ck_assert_int_eq(test_make_model(rules.text, "{}", SW_ENGINE_ANY, &m, &e), SW_ERR_LIMIT);
    ck_assert_msg(strstr(e.text, "at most 64 stored names"), "%s", e.text);
}
END_TEST

/* ---- lists ---- */

struct list {
    struct test_text out;
    unsigned stop_after;
};

/* "NAME DTYPE [shape]", with what is special about it. */
static int add(void *arg, const struct sw_model_parameter *p)
{
    struct list *l = arg;

    test_append(&l->out, "%s %s", p->name, sw_dtype_name(p->dtype));
    for (uint32_t d = 0; d < p->ndim; d++)
        test_append(&l->out, "%c%llu", d ? ',' : ' ', (unsigned long long)p->shape[d]);
    test_append(&l->out, "%s%s%s%s%s\n", p->alias_of ? " = " : "", p->alias_of ? p->alias_of : "",
        p->expert ? " expert" : "", p->draft ? " draft" : "", p->scale ? " scale" : "");
    return l->stop_after && --l->stop_after == 0 ? 42 : 0;
}

static void check_list(const struct sw_placement *at, bool draft, const char *expected)
{
    struct list l = {0};
    struct sw_error e = {0};

    ck_assert_msg(!sw_model_list(m, at, draft, add, &l, &e), "%s", e.text);
    ck_assert_str_eq(l.out.text, expected);
}

START_TEST(a_rank_has_its_parameters_layer_by_layer)
{
    struct sw_placement at = test_place(SW_ENGINE_SGLANG, 2, 1, 2, 0, 1);

    make_small(test_small_config);
    check_list(&at, true,
        "model.embed_tokens.weight BF16 64,64\n"
        "model.layers.0.input_layernorm.weight BF16 64\n"
        "model.layers.0.self_attn.qkv_proj.weight BF16 64,64\n"
        "model.layers.0.mlp.gate_up_proj.weight BF16 96,64\n"
        "model.layers.0.mlp.down_proj.weight BF16 64,48\n"
        "model.layers.1.input_layernorm.weight BF16 64\n"
        "model.layers.1.self_attn.qkv_proj.weight BF16 64,64\n"
        "model.layers.1.mlp.gate.weight F32 8,64\n"
        "model.layers.1.mlp.gate.e_score_correction_bias F32 8\n"
        "model.layers.1.mlp.experts.w13_weight BF16 4,64,64 expert\n"
        "model.layers.1.mlp.experts.w2_weight BF16 4,64,32 expert\n"
        "model.layers.1.mlp.shared_experts.gate_up_proj.weight BF16 32,64\n"
        "model.layers.2.input_layernorm.weight BF16 64\n"
        "model.layers.2.self_attn.qkv_proj.weight BF16 64,64\n"
        "model.layers.2.mlp.gate.weight F32 8,64\n"
        "model.layers.2.mlp.gate.e_score_correction_bias F32 8\n"
        "model.layers.2.mlp.experts.w13_weight BF16 4,64,64 expert\n"
        "model.layers.2.mlp.experts.w2_weight BF16 4,64,32 expert\n"
        "model.layers.2.mlp.shared_experts.gate_up_proj.weight BF16 32,64\n"
        "model.norm.weight BF16 64\n"
        "lm_head.weight BF16 64,64 = model.embed_tokens.weight\n"
        "draft/model.norm.weight BF16 64 draft\n");
}
END_TEST

START_TEST(stages_share_layers_as_the_engine_does)
{
    struct sw_placement at = test_place(SW_ENGINE_SGLANG, 1, 0, 1, 0, 2);

    make_small(test_small_config);
    check_list(&at, true,
        "model.embed_tokens.weight BF16 128,64\n"
        "model.layers.0.input_layernorm.weight BF16 64\n"
        "model.layers.0.self_attn.qkv_proj.weight BF16 128,64\n"
        "model.layers.0.mlp.gate_up_proj.weight BF16 192,64\n"
        "model.layers.0.mlp.down_proj.weight BF16 64,96\n");
}
END_TEST

/* Which layers each stage has: "0 1|2 3|". */
static int add_layer(void *arg, const struct sw_model_parameter *p)
{
    test_append(arg, "%s ", p->name + 2);
    return 0;
}

START_TEST(stages_of_each_kind)
{
    static const struct {
        enum sw_engine_kind kind;
        const char *stages;
    } cases[] = {
        {SW_ENGINE_SGLANG, "0 |1 |2 3 |4 5 |"}, /* the last ones have more */
        {SW_ENGINE_VLLM, "0 |1 2 |3 4 |5 |"},   /* but not the very last */
        {SW_ENGINE_ANY, "0 1 |2 3 |4 |5 |"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct test_text text = {0};

        make("[tensor a]\nfor = layer from 0 to 5\nshape = 1\nstored = a.{layer}\n"
             "[parameter l.{layer}]\nfor = layer from 0 to 5\npart = a\n",
            "{}", cases[i].kind);
        for (uint32_t s = 0; s < 4; s++) {
            struct sw_placement at = test_place(cases[i].kind, 1, 0, 1, s, 4);

            ck_assert_int_eq(sw_model_list(m, &at, false, add_layer, &text, NULL), 0);
            test_append(&text, "|");
        }
        ck_assert_str_eq(text.text, cases[i].stages);
        teardown();
    }
}
END_TEST

static int add_name(void *arg, const struct sw_model_parameter *p)
{
    test_append(arg, "%s%s%s ", p->name, p->alias_of ? "=" : "", p->alias_of ? p->alias_of : "");
    return 0;
}

/* Of several sections with one name the first that holds counts; one that speaks of stages is there
 * where it says; an alias only where the other one is. */
START_TEST(sections_of_one_name)
{
    static const char rules[] =
        "[tensor a]\nshape = 4\nstored = a\n"
        "[tensor l]\nfor = layer from 0 to 1\nshape = 1\nstored = l.{layer}\n"
        "[parameter embed]\nengine = vllm\nwhen = pp_first or pp_last\npart = a\n"
        "[parameter embed]\npart = a\n"
        "[parameter l.{layer}]\nfor = layer from 0 to 1\npart = l\n"
        "[parameter old.{layer}]\nfor = layer from 0 to 1\nlisted = no\npart = l\n"
        "[parameter n.{layer}]\nsglang = s.{layer}\nfor = layer from 0 to 1\npart = l\n"
        "[parameter only]\nvllm = other\nfor = layer from 1 to 1\npart = l\n"
        "[parameter head]\nwhen = pp == 1\npart = a\nalias = embed\n"
        "[parameter head]\npart = a\nalias = embed\n"
        "[parameter every]\nwhen = pp > 0\npart = a\n";
    static const struct {
        enum sw_engine_kind kind;
        const char *stages;
        uint32_t pp;
    } cases[] = {
        {SW_ENGINE_SGLANG, "embed l.0 s.0 l.1 s.1 only head=embed every |", 1},
        {SW_ENGINE_SGLANG, "embed l.0 s.0 every |l.1 s.1 only head every |", 2},
        {SW_ENGINE_VLLM, "embed l.0 n.0 every |embed l.1 n.1 other head=embed every |", 2},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct test_text text = {0};

        make(rules, "{}", cases[i].kind);
        for (uint32_t s = 0; s < cases[i].pp; s++) {
            struct sw_placement at = test_place(cases[i].kind, 1, 0, 1, s, cases[i].pp);

            ck_assert_int_eq(sw_model_list(m, &at, false, add_name, &text, NULL), 0);
            test_append(&text, "|");
        }
        ck_assert_str_eq(text.text, cases[i].stages);
        teardown();
    }
}
END_TEST

START_TEST(fp8_ranks_have_scales)
{
    struct sw_placement at = test_place(SW_ENGINE_SGLANG, 1, 0, 1, 0, 2);

    make_small(test_small_fp8_config);
    at.block[0] = at.block[1] = 16;
    at.scale = SW_SCALE_FP32;
    check_list(&at, false,
        "model.embed_tokens.weight BF16 128,64\n"
        "model.layers.0.input_layernorm.weight BF16 64\n"
        "model.layers.0.self_attn.qkv_proj.weight F8_E4M3 128,64\n"
        "model.layers.0.self_attn.qkv_proj.weight_scale_inv F32 8,4 scale\n"
        "model.layers.0.mlp.gate_up_proj.weight F8_E4M3 192,64\n"
        "model.layers.0.mlp.gate_up_proj.weight_scale_inv F32 12,4 scale\n"
        "model.layers.0.mlp.down_proj.weight F8_E4M3 64,96\n"
        "model.layers.0.mlp.down_proj.weight_scale_inv F32 4,6 scale\n");
    at.block[0] = at.block[1] = 128;
    {
        struct list l = {0};
        struct sw_error e = {0};

        ck_assert_int_eq(sw_model_list(m, &at, false, add, &l, &e), SW_ERR_PLAN);
        ck_assert_msg(strstr(e.text, "tensor 'q'"), "%s", e.text);
    }
}
END_TEST

START_TEST(modules_that_are_not_converted_stay_as_they_are)
{
    struct sw_placement at = test_place(SW_ENGINE_SGLANG, 1, 0, 1, 0, 1);
    struct list l = {0};

    make_small(test_small_fp8_config); /* layer 2's q_proj, of which qkv_proj is made */
    at.block[0] = at.block[1] = 16;
    at.scale = SW_SCALE_UE8M0;
    ck_assert_int_eq(sw_model_list(m, &at, false, add, &l, NULL), 0);
    ck_assert_ptr_nonnull(strstr(l.out.text, "model.layers.1.self_attn.qkv_proj.weight F8_E4M3"));
    ck_assert_ptr_nonnull(
        strstr(l.out.text, "model.layers.1.self_attn.qkv_proj.weight_scale_inv F32"));
    ck_assert_ptr_nonnull(strstr(l.out.text, "model.layers.2.self_attn.qkv_proj.weight BF16"));
    ck_assert_ptr_null(strstr(l.out.text, "model.layers.2.self_attn.qkv_proj.weight_scale_inv"));
}
END_TEST

START_TEST(a_callback_can_stop)
{
    struct sw_placement at = test_place(SW_ENGINE_SGLANG, 1, 0, 1, 0, 1);
    struct list l = {.stop_after = 3};

    make_small(test_small_config);
    ck_assert_int_eq(sw_model_list(m, &at, true, add, &l, NULL), 42);
    ck_assert_uint_eq(l.stop_after, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model");
    TCase *tc = tcase_create("model");

    tcase_add_checked_fixture(tc, NULL, teardown);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, roles_have_tensors_one_after_another);
    tcase_add_test(tc, when_says_which_exist);
    tcase_add_test(tc, what_does_not_exist_needs_no_shape);
    tcase_add_test(tc, optional_is_said_of_each);
    tcase_add_test(tc, names_are_found_and_printed_back);
    tcase_add_test(tc, what_is_not_there_is_not_found);
    tcase_add_test(tc, tensors_lie_alone_or_in_packed_ones);
    tcase_add_test(tc, scales_are_known_with_an_fp8_config);
    tcase_add_test(tc, a_name_may_be_shared_by_layers);
    tcase_add_test(tc, errors_of_a_model_name_the_rule);
    tcase_add_test(tc, work_is_bounded);
    tcase_add_test(tc, a_rank_has_its_parameters_layer_by_layer);
    tcase_add_test(tc, stages_share_layers_as_the_engine_does);
    tcase_add_test(tc, stages_of_each_kind);
    tcase_add_test(tc, sections_of_one_name);
    tcase_add_test(tc, fp8_ranks_have_scales);
    tcase_add_test(tc, modules_that_are_not_converted_stay_as_they_are);
    tcase_add_test(tc, a_callback_can_stop);
    suite_add_tcase(suite, tc);
    return test_suite_run(suite);
}
