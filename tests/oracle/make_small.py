#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small models of true structure, and the tensors of any model's checkpoint.

    make_small.py write FOLDER               the config.json of each small model, FOLDER/NAME.json
    make_small.py list CONFIG.json [packed]  the tensors of a checkpoint: "dtype shape name" lines
    make_small.py make CONFIG.json FOLDER [SEED] [packed]
                                             a checkpoint with random values, config.json with it

checkpoint_tensors(config, style) -> {name: (dtype, shape)}: style "split" is Transformers 4's, with one
tensor for each matrix of an expert; "packed" is Transformers 5's, with all experts of a layer in one.
Keys of config.json that begin with "_" tell what a model's published checkpoint does besides.
"""
import json
import os
import struct
import sys

# Ratios of the real models, in the smallest size where 128 x 128 blocks still divide over some
# ranks and not over others. Vocabularies are odd, so that they need padding.
GLM_HEAD = {"rms_norm_eps": 1e-5, "partial_rotary_factor": 0.5, "head_dim": 128}
ROUTED = {"norm_topk_prob": True, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.5,
          "first_k_dense_replace": 1, "num_experts_per_tok": 2, "n_shared_experts": 1}
DEEPSEEK = {
    **ROUTED, "hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 256,
    "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 8,
    "kv_lora_rank": 128, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "moe_layer_freq": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
    "rms_norm_eps": 1e-6, "vocab_size": 1001, "n_routed_experts": 8}

def fp8(config):
    """quantization_config of an FP8 checkpoint; like published ones it lists what is not quantised."""
    layers = config["num_hidden_layers"] + (config.get("num_nextn_predict_layers") or 0)
    return {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
            "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"] + [
                f"model.layers.{layer}.{module}" for layer in range(layers)
                for module in ("input_layernorm", "mlp.gate", "post_attention_layernorm")]}



SMALL = {
    "llama": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
        "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 1000, "rms_norm_eps": 1e-5},
    "llama-bias": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
        "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 4, "vocab_size": 130, "rms_norm_eps": 1e-5, "attention_bias": True},
    "llama-tied": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
        "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 257, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True},
    "qwen2": {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 256,
        "intermediate_size": 768, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 1000, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True},
    "qwen3": {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 256,
        "intermediate_size": 768, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 999, "rms_norm_eps": 1e-6,
        "attention_bias": False, "tie_word_embeddings": True, "_lm_head_saved_though_tied": True},
    "qwen3-moe": {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 256,
        "intermediate_size": 768, "moe_intermediate_size": 256, "num_hidden_layers": 3,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128, "num_experts": 8,
        "num_experts_per_tok": 2, "norm_topk_prob": True, "decoder_sparse_step": 1,
        "mlp_only_layers": [], "attention_bias": False, "vocab_size": 1000, "rms_norm_eps": 1e-6},
    "qwen3-moe-mixed": {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 256,
        "intermediate_size": 512, "moe_intermediate_size": 128, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 4,
        "num_experts_per_tok": 2, "norm_topk_prob": True, "decoder_sparse_step": 1,
        "mlp_only_layers": [1], "attention_bias": False, "vocab_size": 300, "rms_norm_eps": 1e-6},
    "glm4": {
        **GLM_HEAD, "architectures": ["Glm4ForCausalLM"], "model_type": "glm4", "hidden_size": 256,
        "intermediate_size": 768, "num_hidden_layers": 3, "num_attention_heads": 8,
        "num_key_value_heads": 2, "attention_bias": True, "vocab_size": 1000},
    "glm4-moe": {
        **GLM_HEAD, **ROUTED, "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe",
        "hidden_size": 256, "intermediate_size": 768, "moe_intermediate_size": 256,
        "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 2,
        "attention_bias": True, "use_qk_norm": False, "n_routed_experts": 8,
        "num_nextn_predict_layers": 1, "vocab_size": 1000,
        "_mtp_has_embed_and_head_copies": True},
    "glm4-moe-norms": {
        **GLM_HEAD, **ROUTED, "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe",
        "hidden_size": 256, "intermediate_size": 768, "moe_intermediate_size": 128,
        "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4,
        "attention_bias": True, "use_qk_norm": True, "n_routed_experts": 4,
        "num_nextn_predict_layers": 0, "vocab_size": 200},
    "glm4-moe-lite": {
        **DEEPSEEK, "architectures": ["Glm4MoeLiteForCausalLM"], "model_type": "glm4_moe_lite",
        "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 128,
        "qk_nope_head_dim": 192, "v_head_dim": 256, "head_dim": 64, "attention_bias": False,
        "num_nextn_predict_layers": 1, "_mtp_has_embed_and_head_copies": True},
    "deepseek-v2": {
        **DEEPSEEK, "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2",
        "q_lora_rank": None, "n_shared_experts": 2, "scoring_func": "softmax",
        "topk_method": "greedy", "norm_topk_prob": False, "routed_scaling_factor": 1.0},
    "deepseek-v3": {
        **DEEPSEEK, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
        "q_lora_rank": 256, "n_group": 4, "topk_group": 2, "num_nextn_predict_layers": 1,
        "_mtp_has_embed_and_head_copies": True},
    "deepseek-v3-fp8": {
        **DEEPSEEK, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
        "q_lora_rank": 256, "num_nextn_predict_layers": 1, "num_hidden_layers": 2,
        "_mtp_has_embed_and_head_copies": True},
    "moonlight": {
        **DEEPSEEK, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
        "q_lora_rank": None, "n_shared_experts": 2, "num_nextn_predict_layers": 0,
        "_rotary_inv_freq_elements": 32},
    "kimi-k2": {
        **DEEPSEEK, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2",
        "q_lora_rank": 256, "n_routed_experts": 12, "num_nextn_predict_layers": 0,
        "_rotary_inv_freq_elements": 28},
    "glm5": {
        **DEEPSEEK, "architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa",
        "q_lora_rank": 256, "qk_nope_head_dim": 192, "v_head_dim": 256, "qk_head_dim": 256,
        "head_dim": 64, "index_head_dim": 128, "index_n_heads": 4, "index_topk": 64,
        "indexer_rope_interleave": True, "attention_bias": False, "num_nextn_predict_layers": 1},
}
COMMON = {"hidden_act": "silu", "max_position_embeddings": 4096, "rope_theta": 10000.0,
          "tie_word_embeddings": False, "torch_dtype": "bfloat16", "attention_dropout": 0.0}


def small_config(name):
    config = {**COMMON, **SMALL[name]}
    return {**config, "quantization_config": fp8(config)} if name.endswith("-fp8") else config


# ---- what a checkpoint has ----

class List:
    """name -> (dtype, shape) while a checkpoint is listed."""

    def __init__(self, config, style):
        self.tensors, self.packed, self.block = {}, style == "packed", None
        quantisation = config.get("quantization_config") or {}
        self.block = quantisation.get("weight_block_size")
        self.unconverted = set(quantisation.get("modules_to_not_convert") or ())
        self.dtype = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}[
            config.get("torch_dtype") or config.get("dtype") or "bfloat16"]

    def one(self, name, *shape, dtype=None):
        self.tensors[name] = (dtype or self.dtype, shape)

    def linear(self, module, rows, columns, bias=False):
        name = f"{module}.weight"
        if self.block and module not in self.unconverted:
            self.one(name, rows, columns, dtype="F8_E4M3")
            self.one(f"{name}_scale_inv", -(-rows // self.block[0]), -(-columns // self.block[1]),
                     dtype="F32")
        else:
            self.one(name, rows, columns)
        if bias:
            self.one(f"{module}.bias", rows)

    def mlp(self, name, hidden, inner):
        self.linear(f"{name}.gate_proj", inner, hidden)
        self.linear(f"{name}.up_proj", inner, hidden)
        self.linear(f"{name}.down_proj", hidden, inner)

    def experts(self, name, number, hidden, inner):
        if self.packed and not self.block:
            self.one(f"{name}.gate_up_proj", number, 2 * inner, hidden)
            self.one(f"{name}.down_proj", number, hidden, inner)
            return
        for i in range(number):
            self.mlp(f"{name}.{i}", hidden, inner)


def grouped_attention(out, c, name):
    kind, hidden, heads = c["model_type"], c["hidden_size"], c["num_attention_heads"]
    head_dim = c.get("head_dim") or hidden // heads
    kv = c.get("num_key_value_heads", heads) * head_dim
    bias = kind == "qwen2" or c.get("attention_bias", False)
    out.linear(f"{name}.q_proj", heads * head_dim, hidden, bias)
    out.linear(f"{name}.k_proj", kv, hidden, bias)
    out.linear(f"{name}.v_proj", kv, hidden, bias)
    out.linear(f"{name}.o_proj", hidden, heads * head_dim, bias and kind == "llama")
    if kind in ("qwen3", "qwen3_moe") or (kind == "glm4_moe" and c.get("use_qk_norm")):
        out.one(f"{name}.q_norm.weight", head_dim)
        out.one(f"{name}.k_norm.weight", head_dim)


def latent_attention(out, c, name):
    hidden, heads, q_rank, kv_rank = (
        c["hidden_size"], c["num_attention_heads"], c.get("q_lora_rank"), c["kv_lora_rank"])
    nope, rope, v = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    if q_rank:
        out.linear(f"{name}.q_a_proj", q_rank, hidden)
        out.one(f"{name}.q_a_layernorm.weight", q_rank)
        out.linear(f"{name}.q_b_proj", heads * (nope + rope), q_rank)
    else:
        out.linear(f"{name}.q_proj", heads * (nope + rope), hidden)
    out.linear(f"{name}.kv_a_proj_with_mqa", kv_rank + rope, hidden)
    out.one(f"{name}.kv_a_layernorm.weight", kv_rank)
    out.linear(f"{name}.kv_b_proj", heads * (nope + v), kv_rank)
    out.linear(f"{name}.o_proj", hidden, heads * v)
    if "index_head_dim" in c:
        width, number = c["index_head_dim"], c["index_n_heads"]
        out.linear(f"{name}.indexer.wq_b", number * width, q_rank)
        out.linear(f"{name}.indexer.wk", width, hidden)
        out.one(f"{name}.indexer.k_norm.weight", width)
        out.one(f"{name}.indexer.k_norm.bias", width)
        out.one(f"{name}.indexer.weights_proj.weight", number, hidden)


def layer_of(out, c, layer):
    name, kind, hidden = f"model.layers.{layer}", c["model_type"], c["hidden_size"]
    out.one(f"{name}.input_layernorm.weight", hidden)
    out.one(f"{name}.post_attention_layernorm.weight", hidden)
    if kind == "glm4":
        out.one(f"{name}.post_self_attn_layernorm.weight", hidden)
        out.one(f"{name}.post_mlp_layernorm.weight", hidden)
    if "kv_lora_rank" in c:
        latent_attention(out, c, f"{name}.self_attn")
    else:
        grouped_attention(out, c, f"{name}.self_attn")
    number = c.get("n_routed_experts") or c.get("num_experts") or 0
    if kind == "qwen3_moe":
        dense = layer in c["mlp_only_layers"] or (layer + 1) % c["decoder_sparse_step"]
    else:
        dense = not number or layer < c["first_k_dense_replace"]
    if kind == "glm4":
        out.linear(f"{name}.mlp.gate_up_proj", 2 * c["intermediate_size"], hidden)
        out.linear(f"{name}.mlp.down_proj", hidden, c["intermediate_size"])
    elif dense:
        out.mlp(f"{name}.mlp", hidden, c["intermediate_size"])
    else:
        inner = c["moe_intermediate_size"]
        out.one(f"{name}.mlp.gate.weight", number, hidden)
        if kind not in ("qwen3_moe", "deepseek_v2"):
            out.one(f"{name}.mlp.gate.e_score_correction_bias", number, dtype="F32")
        out.experts(f"{name}.mlp.experts", number, hidden, inner)
        if c.get("n_shared_experts"):
            out.mlp(f"{name}.mlp.shared_experts", hidden, inner * c["n_shared_experts"])
    if c.get("_rotary_inv_freq_elements") and layer < c["num_hidden_layers"]:
        out.one(f"{name}.self_attn.rotary_emb.inv_freq", c["_rotary_inv_freq_elements"])


def checkpoint_tensors(config, style="split"):
    c, out = config, List(config, style)
    vocabulary, hidden, number = c["vocab_size"], c["hidden_size"], c["num_hidden_layers"]
    out.one("model.embed_tokens.weight", vocabulary, hidden)
    draft = c.get("num_nextn_predict_layers") or 0
    for layer in range(number + draft):
        layer_of(out, c, layer)
    for layer in range(number, number + draft):
        name = f"model.layers.{layer}"
        out.one(f"{name}.enorm.weight", hidden)
        out.one(f"{name}.hnorm.weight", hidden)
        out.one(f"{name}.eh_proj.weight", hidden, 2 * hidden)
        out.one(f"{name}.shared_head.norm.weight", hidden)
        if c.get("_mtp_has_embed_and_head_copies"):
            out.one(f"{name}.embed_tokens.weight", vocabulary, hidden)
            out.one(f"{name}.shared_head.head.weight", vocabulary, hidden)
    out.one("model.norm.weight", hidden)
    if not c.get("tie_word_embeddings") or c.get("_lm_head_saved_though_tied"):
        out.one("lm_head.weight", vocabulary, hidden)
    return out.tensors


# ---- random values ----

def random_tensors(config, style="split", seed=0):
    """name -> (dtype, shape, bytes); with rows of very different size, zeros, and nothing that is not
    finite. A head that is tied to the embedding has its values, MTP layers' copies those of theirs."""
    import numpy as np

    from formats import quantise, to_f32
    generator, found = np.random.default_rng(seed), {}
    block = (config.get("quantization_config") or {}).get("weight_block_size")
    for name, (dtype, shape) in checkpoint_tensors(config, style).items():
        if name in found:
            continue
        # Random bits, but for the exponent: sign, 2^-4 to 2^3 by the row and up to 2^-7 less, fraction.
        exponent = generator.integers(123, 131, (*shape[:-1], 1), np.uint16) - \
            generator.integers(0, 8, shape, np.uint16)
        bits = generator.integers(0, 65536, shape, np.uint16) & 0x807F | exponent << 7
        bits[generator.random(shape, np.float32) < 0.01] = 0
        if dtype == "F8_E4M3":
            bits, scales = quantise(to_f32(bits, "BF16"), block, "fp32", name)
            found[name + "_scale_inv"] = ("F32", scales.shape, scales.tobytes())
        elif dtype == "F32":
            bits = to_f32(bits, "BF16")
        elif dtype == "F16":
            bits = (bits & 0xBFFF | 0x2000).astype(np.uint16)  # no infinity, no NaN
        found[name] = (dtype, tuple(shape), bits.tobytes())
    if config.get("tie_word_embeddings") and "lm_head.weight" in found:
        found["lm_head.weight"] = found["model.embed_tokens.weight"]
    for name in found:
        if name.endswith("shared_head.head.weight"):
            found[name] = found["lm_head.weight"]
        elif name.endswith(".embed_tokens.weight"):
            found[name] = found["model.embed_tokens.weight"]
    return found


def write_checkpoint(folder, config, tensors):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1)
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            f.write(data)


def main():
    words = sys.argv[1:]
    style = "packed" if words and words[-1] == "packed" else "split"
    if style == "packed":
        words.pop()
    if len(words) == 2 and words[0] == "write":
        os.makedirs(words[1], exist_ok=True)
        for name in SMALL:
            with open(os.path.join(words[1], f"{name}.json"), "w", encoding="utf-8") as f:
                json.dump(small_config(name), f, indent=1, sort_keys=True)
                f.write("\n")
        return 0
    if len(words) < 2 or words[0] not in ("list", "make"):
        print(__doc__, file=sys.stderr)
        return 2
    with open(words[1], encoding="utf-8") as f:
        config = json.load(f)
    if words[0] == "list":
        for name, (dtype, shape) in checkpoint_tensors(config, style).items():
            print(dtype, "x".join(map(str, shape)), name)
    else:
        seed = int(words[3]) if len(words) > 3 else 0
        write_checkpoint(words[2], config, random_tensors(config, style, seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
