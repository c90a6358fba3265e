#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What must an engine rank hold after it has loaded a checkpoint?

    expected(config, tensors, kind, placement)          -> {name: (dtype, shape, bytes)}
    expected_digests(config, tensors, kind, placement)  -> {name: hexadecimal SHA-256}
    aliases(config, tensors, kind, placement)           -> {name: the parameter whose storage it is}

    config     config.json as a dictionary
    tensors    name -> (dtype, shape, bytes), e.g. checkpoint(FOLDER)
    kind       "sglang" or "vllm"
    placement  a dictionary: class Place in loading.py says what it may hold

dtype is safetensors' name, shape a tuple. Refused is raised for what an engine refuses. Names of
draft models begin with "draft/". Written from the engine's side, one function for each model family, as
its engineers would tell it; it shares nothing with Shardwire.

    engine_weights.py CHECKPOINT KIND [PLACEMENT as JSON]    prints "sha256 name" lines
"""
import json
import os
import sys

import numpy as np

from formats import Refused
from loading import Checkpoint, Place, Rank, Tensor, digest_of

checkpoint = Checkpoint


# ---- parts that families share ----

def grouped_attention(r, to, source, *, bias=False, output_bias=False, head_norms=False):
    """q, k and v in one matrix; fewer key and value heads than query heads."""
    c = r.config
    heads, kv_heads = c["num_attention_heads"], c.get("num_key_value_heads") or \
        c["num_attention_heads"]
    head_dim = c.get("head_dim") or c["hidden_size"] // heads

    def qkv(kind):
        q, k, v = (f"{source}.{x}_proj.{kind}" for x in "qkv")
        load = r.stored if kind == "bias" else lambda name: r.as_held(name, r.stored(name))
        return r.stacked(f"{to}.qkv_proj.{kind}", [
            r.shard(q, load(q), 0, r.place.attn_tp, head_dim),
            r.kv_shard(k, load(k), kv_heads, head_dim),
            r.kv_shard(v, load(v), kv_heads, head_dim)])

    r.put(f"{to}.qkv_proj.weight", qkv("weight"))
    if bias:
        r.put(f"{to}.qkv_proj.bias", r.plain(qkv("bias")))
    r.row_parallel(f"{to}.o_proj.weight", f"{source}.o_proj.weight", r.place.attn_tp, head_dim)
    if output_bias:  # added once, after the sum over ranks: every rank has all of it
        r.copy(f"{to}.o_proj.bias", f"{source}.o_proj.bias")
    if head_norms:
        r.copy(f"{to}.q_norm.weight", f"{source}.q_norm.weight")
        r.copy(f"{to}.k_norm.weight", f"{source}.k_norm.weight")


def latent_attention(r, to, source, *, indexer=False):
    """MLA: low-rank projections whole on every rank, then heads split over ranks."""
    c = r.config
    group, heads = r.place.attn_tp, c["num_attention_heads"]
    Place.divide(f"{source}: heads", heads, group[1])
    q_head = c["qk_nope_head_dim"] + c["qk_rope_head_dim"]
    kv_head = c["qk_nope_head_dim"] + c["v_head_dim"]
    if c.get("q_lora_rank"):
        fused = "fused_qkv_a_proj_with_mqa" if r.kind == "sglang" else "fused_qkv_a_proj"
        r.replicated(f"{to}.{fused}.weight", [
            f"{source}.q_a_proj.weight", f"{source}.kv_a_proj_with_mqa.weight"])
        r.copy(f"{to}.q_a_layernorm.weight", f"{source}.q_a_layernorm.weight")
        r.column_parallel(f"{to}.q_b_proj.weight", [f"{source}.q_b_proj.weight"], group, q_head)
    else:
        r.column_parallel(f"{to}.q_proj.weight", [f"{source}.q_proj.weight"], group, q_head)
        r.replicated(f"{to}.kv_a_proj_with_mqa.weight", [f"{source}.kv_a_proj_with_mqa.weight"])
    r.copy(f"{to}.kv_a_layernorm.weight", f"{source}.kv_a_layernorm.weight")
    r.column_parallel(f"{to}.kv_b_proj.weight", [f"{source}.kv_b_proj.weight"], group, kv_head)
    r.row_parallel(f"{to}.o_proj.weight", f"{source}.o_proj.weight", group, c["v_head_dim"])
    if indexer:
        to, source = f"{to}.indexer", f"{source}.indexer"
        r.replicated(f"{to}.wq_b.weight", [f"{source}.wq_b.weight"])
        # One product for both, in bf16 always: a quantised wk is brought back to bf16 first.
        r.put(f"{to}.wk_weights_proj.weight", r.stacked(to, [
            r.plain(r.stored(f"{source}.wk.weight"), "BF16"),
            r.plain(r.stored(f"{source}.weights_proj.weight"), "BF16")]))
        r.copy(f"{to}.k_norm.weight", f"{source}.k_norm.weight", "F32")
        r.copy(f"{to}.k_norm.bias", f"{source}.k_norm.bias", "F32")


def mlp(r, to, source, group):
    r.column_parallel(f"{to}.gate_up_proj.weight",
                      [f"{source}.gate_proj.weight", f"{source}.up_proj.weight"], group)
    r.row_parallel(f"{to}.down_proj.weight", f"{source}.down_proj.weight", group)


def experts(r, to, source, layer, number, shared):
    """This rank's routed experts, one above the other; of each its part of the inner dimension."""
    group = r.place.moe_tp
    gate_up, down = [], []

    def add(matrix):
        parts = {}
        for which, axis in (("gate", 0), ("up", 0), ("down", 1)):
            name, tensor = matrix(which)
            parts[which] = r.shard(name, r.as_held(name, tensor), axis, group)
        gate_up.append(r.stacked(to, [parts["gate"], parts["up"]]))
        down.append(parts["down"])

    for expert in r.local_experts(layer, number):
        add(lambda which, expert=expert: r.expert(source, expert, which))
    if r.place.fused_shared_experts and shared:
        if shared != 1 or r.place.fused_shared_experts != 1:
            raise Refused(f"{source}: {shared} shared experts cannot be fused as one")
        name = f"{source}.shared_experts.%s_proj.weight"
        add(lambda which: (name % which, r.stored(name % which)))
    module = f"{to}.{r.place.experts_module}"
    for parameter, parts in (("w13_weight", gate_up), ("w2_weight", down)):
        scale = None
        if parts[0].scale:
            scale = Tensor("F32", np.stack([part.scale.data for part in parts]))
        r.put(f"{module}.{parameter}",
              Tensor(parts[0].dtype, np.stack([part.data for part in parts]), scale))


def mixture(r, to, source, layer, *, number, gate_dtype=None, shared=0, correction=False):
    """A router, routed experts and, in some models, shared ones that see every token."""
    r.copy(f"{to}.gate.weight", f"{source}.gate.weight", gate_dtype)
    if correction:
        r.copy(f"{to}.gate.e_score_correction_bias",
               f"{source}.gate.e_score_correction_bias", "F32")
    experts(r, to, source, layer, number, shared)
    if shared and not r.place.fused_shared_experts:
        mlp(r, f"{to}.shared_experts", f"{source}.shared_experts", r.place.shared_tp)


def norms(r, to, source, names=("input_layernorm", "post_attention_layernorm")):
    for name in names:
        r.copy(f"{to}.{name}.weight", f"{source}.{name}.weight")


def around(r, **everywhere):
    """What comes before the layers and after them: the embedding on the first pipeline stage, norm
    and head on the last. `everywhere` tells what an engine makes on every stage for this family,
    and loads there."""
    tied = r.config.get("tie_word_embeddings", False)
    embed, head = "model.embed_tokens.weight", "lm_head.weight"
    everywhere = everywhere.get(r.kind, "")
    if r.is_first or "embed" in everywhere or (r.kind == "vllm" and tied and r.is_last):
        r.vocabulary(embed, embed, r.place.embed_tp)
    if r.is_last or "norm" in everywhere:
        r.copy("model.norm.weight", "model.norm.weight")
    if tied and embed in r.parameters:
        if r.is_last or "head" in everywhere:
            r.aliases[head] = embed
    elif tied and r.is_last and "head" not in everywhere:
        r.vocabulary(head, embed, r.place.head_tp)  # the embedding is on another rank: a copy of it
    elif not tied and (r.is_last or "head" in everywhere):
        r.vocabulary(head, head, r.place.head_tp)


def layers(r):
    return [(layer, f"model.layers.{layer}") for layer in range(r.first, r.end)]


# ---- families ----

def llama(r):
    around(r, sglang="head")
    bias = r.config.get("attention_bias", False)
    for _, name in layers(r):
        norms(r, name, name)
        grouped_attention(r, f"{name}.self_attn", f"{name}.self_attn", bias=bias, output_bias=bias)
        mlp(r, f"{name}.mlp", f"{name}.mlp", r.place.mlp_tp)


def qwen2(r):
    around(r)
    for _, name in layers(r):
        norms(r, name, name)
        grouped_attention(r, f"{name}.self_attn", f"{name}.self_attn", bias=True)
        mlp(r, f"{name}.mlp", f"{name}.mlp", r.place.mlp_tp)


def qwen3(r):
    around(r)
    bias = r.config.get("attention_bias", False)
    for _, name in layers(r):
        norms(r, name, name)
        grouped_attention(r, f"{name}.self_attn", f"{name}.self_attn", bias=bias, head_norms=True)
        mlp(r, f"{name}.mlp", f"{name}.mlp", r.place.mlp_tp)


def qwen3_moe(r):
    c = r.config
    around(r, sglang="head", vllm="embed norm head")
    for layer, name in layers(r):
        norms(r, name, name)
        grouped_attention(r, f"{name}.self_attn", f"{name}.self_attn",
                          bias=c.get("attention_bias", False), head_norms=True)
        dense = layer in c.get("mlp_only_layers", []) or \
            (layer + 1) % c.get("decoder_sparse_step", 1) != 0
        if dense:
            mlp(r, f"{name}.mlp", f"{name}.mlp", r.place.mlp_tp)
        else:
            mixture(r, f"{name}.mlp", f"{name}.mlp", layer, number=c["num_experts"])


def glm4(r):
    around(r)
    bias = r.config.get("attention_bias", False)
    inner = r.config["intermediate_size"]
    for _, name in layers(r):
        norms(r, name, name, ("input_layernorm", "post_self_attn_layernorm",
                              "post_attention_layernorm", "post_mlp_layernorm"))
        grouped_attention(r, f"{name}.self_attn", f"{name}.self_attn", bias=bias)
        # The checkpoint has both halves in one matrix already; each is split over ranks.
        fused = f"{name}.mlp.gate_up_proj.weight"
        whole = r.as_held(fused, r.stored(fused))
        halves = []
        for first in (0, inner):
            half = r.cut(fused, whole, 0, first, inner)
            halves.append(r.shard(fused, half, 0, r.place.mlp_tp))
        r.put(fused, r.stacked(fused, halves))
        r.row_parallel(f"{name}.mlp.down_proj.weight", f"{name}.mlp.down_proj.weight",
                       r.place.mlp_tp)


def glm4_moe_layer(r, layer, to, source):
    c = r.config
    norms(r, to, source)
    grouped_attention(r, f"{to}.self_attn", f"{source}.self_attn",
                      bias=c.get("attention_bias", False), head_norms=c.get("use_qk_norm", False))
    if layer < c["first_k_dense_replace"]:
        mlp(r, f"{to}.mlp", f"{source}.mlp", r.place.mlp_tp)
    else:
        mixture(r, f"{to}.mlp", f"{source}.mlp", layer, number=c["n_routed_experts"],
                gate_dtype="F32", shared=c.get("n_shared_experts") or 0, correction=True)


def glm4_moe(r):
    around(r, sglang="head")
    for layer, name in layers(r):
        glm4_moe_layer(r, layer, name, name)
    draft(r, glm4_moe_layer)


def glm4_moe_lite_layer(r, layer, to, source):
    c = r.config
    norms(r, to, source)
    latent_attention(r, f"{to}.self_attn", f"{source}.self_attn")
    if layer < c["first_k_dense_replace"]:
        mlp(r, f"{to}.mlp", f"{source}.mlp", r.place.mlp_tp)
    else:
        mixture(r, f"{to}.mlp", f"{source}.mlp", layer, number=c["n_routed_experts"],
                gate_dtype="F32", shared=c.get("n_shared_experts") or 0, correction=True)


def glm4_moe_lite(r):
    around(r, sglang="head")
    for layer, name in layers(r):
        glm4_moe_lite_layer(r, layer, name, name)
    draft(r, glm4_moe_lite_layer)


def deepseek_layer(r, layer, to, source):
    """DeepSeek V2 and V3, Moonlight, Kimi K2; GLM-5 with an indexer as well."""
    c = r.config
    norms(r, to, source)
    latent_attention(r, f"{to}.self_attn", f"{source}.self_attn", indexer="index_head_dim" in c)
    dense = layer < c["first_k_dense_replace"] or layer % c.get("moe_layer_freq", 1) != 0
    if dense or not c.get("n_routed_experts"):
        mlp(r, f"{to}.mlp", f"{source}.mlp", r.place.mlp_tp)
    else:
        mixture(r, f"{to}.mlp", f"{source}.mlp", layer, number=c["n_routed_experts"],
                shared=c.get("n_shared_experts") or 0,
                correction=c.get("topk_method") == "noaux_tc")


def deepseek(r):
    around(r)
    for layer, name in layers(r):
        deepseek_layer(r, layer, name, name)
    draft(r, deepseek_layer)


def draft(r, load_layer):
    """The model's own draft (MTP) layers, on the last pipeline stage. They follow the others in the
    checkpoint."""
    c = r.config
    number = c.get("num_nextn_predict_layers") or 0
    if not (r.place.draft and number and r.is_last):
        return
    if r.kind == "sglang" and number != 1:
        raise Refused(f"{number} MTP layers: SGLang loads one")
    for layer in range(c["num_hidden_layers"], c["num_hidden_layers"] + number):
        source = f"model.layers.{layer}"
        to = "draft/model" if r.kind == "sglang" else f"draft/{source}"
        for name in ("enorm", "hnorm", "eh_proj", "shared_head.norm"):
            r.copy(f"{to}.{name}.weight", f"{source}.{name}.weight")
        load_layer(r, layer, f"{to}.decoder" if r.kind == "sglang" else f"{to}.mtp_block", source)
        if r.kind == "vllm":
            r.aliases[f"{to}.shared_head.head.weight"] = r.aliases.get("lm_head.weight",
                                                                       "lm_head.weight")
    # The draft's embedding and head become the target model's after loading, whatever copies the
    # checkpoint has of them.
    if r.kind == "sglang":
        r.aliases["draft/lm_head.weight"] = r.aliases.get("lm_head.weight", "lm_head.weight")
    embed = "model.embed_tokens.weight"
    if embed in r.parameters and (r.kind == "sglang" or r.place.pp[1] == 1):
        r.aliases[f"draft/{embed}"] = embed
    else:
        r.vocabulary(f"draft/{embed}", embed, r.place.embed_tp)


FAMILIES = {
    "LlamaForCausalLM": llama,
    "Qwen2ForCausalLM": qwen2,
    "Qwen3ForCausalLM": qwen3,
    "Qwen3MoeForCausalLM": qwen3_moe,
    "Glm4ForCausalLM": glm4,
    "Glm4MoeForCausalLM": glm4_moe,
    "Glm4MoeLiteForCausalLM": glm4_moe_lite,
    "DeepseekV2ForCausalLM": deepseek,
    "DeepseekV3ForCausalLM": deepseek,
    "GlmMoeDsaForCausalLM": deepseek,
}


# ---- interface ----

def load(config, tensors, kind, placement):
    (architecture,) = config["architectures"]
    if kind not in ("sglang", "vllm"):
        raise Refused(f"engine {kind}?")
    if architecture not in FAMILIES:
        raise Refused(f"{architecture}: no such family here")
    rank = Rank(config, tensors, kind, placement)
    FAMILIES[architecture](rank)
    return rank


def expected(config, tensors, kind, placement):
    return load(config, tensors, kind, placement).result()


def expected_digests(config, tensors, kind, placement):
    return {name: digest_of(data)
            for name, (_, _, data) in expected(config, tensors, kind, placement).items()}


def aliases(config, tensors, kind, placement):
    return dict(load(config, tensors, kind, placement).aliases)


def main():
    if len(sys.argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    with open(os.path.join(sys.argv[1], "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    placement = json.loads(sys.argv[3]) if len(sys.argv) == 4 else {}
    found = expected_digests(config, Checkpoint(sys.argv[1]), sys.argv[2], placement)
    for name, digest in sorted(found.items()):
        print(digest, name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
