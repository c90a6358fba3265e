/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/test_small_model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char test_small_rules[] =
    "[define]\n"
    "sparse = layer >= dense_layers\n"
    "[tensor embed]\nshape = vocab_size, hidden_size\nstored = model.embed_tokens.weight\n"
    "[tensor head]\nshape = vocab_size, hidden_size\nstored = lm_head.weight\noptional = tied\n"
    "[tensor norm]\nshape = hidden_size\nstored = model.norm.weight\n"
    "[tensor input_norm]\nfor = layer from 0 to layers - 1\nshape = hidden_size\n"
    "stored = model.layers.{layer}.input_layernorm.weight\n"
    "[tensor q]\nfor = layer from 0 to layers - 1\nshape = heads * head_dim, hidden_size\n"
    "stored = model.layers.{layer}.self_attn.q_proj.weight\ntrainer = rows\n"
    "[tensor k]\nfor = layer from 0 to layers - 1\nshape = kv_heads * head_dim, hidden_size\n"
    "stored = model.layers.{layer}.self_attn.k_proj.weight\n"
    "[tensor v]\nfor = layer from 0 to layers - 1\nshape = kv_heads * head_dim, hidden_size\n"
    "stored = model.layers.{layer}.self_attn.v_proj.weight\n"
    "[tensor gate]\nfor = layer from 0 to layers - 1\nwhen = not sparse\n"
    "shape = inner, hidden_size\nstored = model.layers.{layer}.mlp.gate_proj.weight\n"
    "[tensor up]\nfor = layer from 0 to layers - 1\nwhen = not sparse\n"
    "shape = inner, hidden_size\nstored = model.layers.{layer}.mlp.up_proj.weight\n"
    "[tensor down]\nfor = layer from 0 to layers - 1\nwhen = not sparse\n"
    "shape = hidden_size, inner\nstored = model.layers.{layer}.mlp.down_proj.weight\n"
    "[tensor router]\nfor = layer from 0 to layers - 1\nwhen = sparse\n"
    "shape = experts, hidden_size\nstored = model.layers.{layer}.mlp.gate.weight\n"
    "[tensor bias]\nfor = layer from 0 to layers - 1\nwhen = sparse\nshape = experts\ndtype = F32\n"
    "stored = model.layers.{layer}.mlp.gate.e_score_correction_bias\n"
    "[tensor expert_gate]\nfor = layer from 0 to layers - 1\n  expert from 0 to experts - 1\n"
    "when = sparse\nshape = expert_inner, hidden_size\ntrainer = rows\n"
    "stored = model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight\n"
    "  model.layers.{layer}.mlp.experts.gate_up_proj [experts, 2 * expert_inner, hidden_size] at "
    "expert, 0, 0\n"
    "[tensor expert_up]\nfor = layer from 0 to layers - 1\n  expert from 0 to experts - 1\n"
    "when = sparse\nshape = expert_inner, hidden_size\ntrainer = rows\n"
    "stored = model.layers.{layer}.mlp.experts.{expert}.up_proj.weight\n"
    "  model.layers.{layer}.mlp.experts.gate_up_proj [experts, 2 * expert_inner, hidden_size] at "
    "expert, expert_inner, 0\n"
    "[tensor expert_down]\nfor = layer from 0 to layers - 1\n  expert from 0 to experts - 1\n"
    "when = sparse\nshape = hidden_size, expert_inner\ntrainer = columns\n"
    "stored = model.layers.{layer}.mlp.experts.{expert}.down_proj.weight\n"
    "  model.layers.{layer}.mlp.experts.down_proj [experts, hidden_size, expert_inner] at "
    "expert, 0, 0\n"
    "[tensor shared_gate]\nfor = layer from 0 to layers - 1\nwhen = sparse\n"
    "shape = expert_inner, hidden_size\n"
    "stored = model.layers.{layer}.mlp.shared_experts.gate_proj.weight\n"
    "[tensor shared_up]\nfor = layer from 0 to layers - 1\nwhen = sparse\n"
    "shape = expert_inner, hidden_size\n"
    "stored = model.layers.{layer}.mlp.shared_experts.up_proj.weight\n"
    "[tensor shared_down]\nfor = layer from 0 to layers - 1\nwhen = sparse\n"
    "shape = hidden_size, expert_inner\n"
    "stored = model.layers.{layer}.mlp.shared_experts.down_proj.weight\n"
    "[tensor draft_norm]\nfor = layer from layers to layers + draft_layers - 1\n"
    "shape = hidden_size\nstored = model.layers.{layer}.shared_head.norm.weight\ndraft = yes\n"

    "[parameter model.embed_tokens.weight]\npart = embed, rows over embed_tp padded to 64\n"
    "[parameter model.layers.{layer}.input_layernorm.weight]\nfor = layer from 0 to layers - 1\n"
    "part = input_norm\n"
    "[parameter model.layers.{layer}.self_attn.qkv_proj.weight]\nfor = layer from 0 to layers - 1\n"
    "quantise = yes\npart = q, rows over attn_tp in units of head_dim\n"
    "  k, rows over attn_tp in units of head_dim shared\n"
    "  v, rows over attn_tp in units of head_dim shared\n"
    "[parameter model.layers.{layer}.mlp.gate_up_proj.weight]\nfor = layer from 0 to layers - 1\n"
    "when = not sparse\nquantise = yes\npart = gate, rows over mlp_tp\n  up, rows over mlp_tp\n"
    "[parameter model.layers.{layer}.mlp.down_proj.weight]\nfor = layer from 0 to layers - 1\n"
    "when = not sparse\nquantise = yes\npart = down, columns over mlp_tp\n"
    "[parameter model.layers.{layer}.mlp.gate.weight]\nfor = layer from 0 to layers - 1\n"
    "when = sparse\npart = router\ndtype = F32\n"
    "[parameter model.layers.{layer}.mlp.gate.e_score_correction_bias]\n"
    "for = layer from 0 to layers - 1\nwhen = sparse\npart = bias\n"
    "[parameter model.layers.{layer}.mlp.experts.w13_weight]\nfor = layer from 0 to layers - 1\n"
    "when = sparse\nquantise = yes\nstack = expert from 0 to experts - 1 over ep\n"
    "part = expert_gate, rows over moe_tp\n  expert_up, rows over moe_tp\n"
    "extra = shared_gate, rows over moe_tp\n  shared_up, rows over moe_tp\n"
    "[parameter model.layers.{layer}.mlp.experts.w2_weight]\nfor = layer from 0 to layers - 1\n"
    "when = sparse\nquantise = yes\nstack = expert from 0 to experts - 1 over ep\n"
    "part = expert_down, columns over moe_tp\nextra = shared_down, columns over moe_tp\n"
    "[parameter model.layers.{layer}.mlp.shared_experts.gate_up_proj.weight]\n"
    "for = layer from 0 to layers - 1\nwhen = sparse and not fused_shared_experts\nquantise = yes\n"
    "part = shared_gate, rows over shared_tp\n  shared_up, rows over shared_tp\n"
    "[parameter model.norm.weight]\npart = norm\n"
    "[parameter lm_head.weight]\npart = head or embed, rows over head_tp padded to 64\n"
    "alias = model.embed_tokens.weight, tied\n"
    "[parameter draft/model.norm.weight]\nfor = layer from layers to layers + draft_layers - 1\n"
    "part = draft_norm\ndraft = yes\n"
    "[skip]\ntensor = model.layers.{layer}.self_attn.rotary_emb.inv_freq\n"
    "[derived]\nparameter = model.layers.{layer}.self_attn.w_kc\n";

#define SIZES                                                                                      \
    "\"hidden_size\": 64, \"vocab_size\": 100, \"layers\": 3, \"dense_layers\": 1, \"heads\": 4,"  \
    "\"kv_heads\": 2, \"head_dim\": 16, \"inner\": 96, \"experts\": 8, \"expert_inner\": 32,"      \
    "\"draft_layers\": 1, \"tied\": true"

const char test_small_config[] = "{" SIZES "}";
const char test_small_fp8_config[] =
    "{" SIZES ", \"quantization_config\": {\"quant_method\": \"fp8\","
    "\"weight_block_size\": [16, 16],"
    "\"modules_to_not_convert\": [\"lm_head\", \"model.layers.2.self_attn.q_proj\"]}}";

int test_make_model(const char *rules, const char *config, enum sw_engine_kind kind,
    struct sw_model **m, struct sw_error *e)
{
    struct sw_rules *r = NULL;
    struct sw_config *c = NULL;
    int err = sw_rules_parse("rules", rules, strlen(rules), NULL, NULL, &r, e);

    if (!err)
        err = sw_config_parse(config, strlen(config), &c, e);
    if (!err)
        err = sw_model_make(r, c, kind, m, e);
    sw_rules_free(r);
    sw_config_free(c);
    return err;
}

struct sw_placement test_place(
    enum sw_engine_kind kind, uint32_t tp, uint32_t rank, uint32_t ep, uint32_t stage, uint32_t pp)
{
    struct sw_placement at = {.kind = kind};

    at.at.of[SW_GROUP_TP] = (struct sw_group){rank, tp};
    at.at.of[SW_GROUP_EP] = (struct sw_group){rank / (tp / ep), ep};
    at.at.of[SW_GROUP_PP] = (struct sw_group){stage, pp};
    (void)sw_coordinates_complete(&at.at, kind, NULL);
    return at;
}

void test_append(struct test_text *t, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it is, one line above */
    n = vsnprintf(t->text + t->n, sizeof(t->text) - t->n, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof(t->text) - t->n)
        abort();
    t->n += (size_t)n;
}
