# SPDX-License-Identifier: Apache-2.0
"""The oracle for engine weights itself: against NumPy slices written out for single parameters, by
putting ranks together again, and by errors planted in what an engine holds."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import with_numpy  # noqa: F401

import numpy as np

import digests
import engine_weights
import make_small
from formats import KEPT_AS, Refused, cast, quantise, to_f32
from loading import stage

BLOCK = (128, 128)


def array(tensor):
    dtype, shape, data = tensor
    return np.frombuffer(data, KEPT_AS[dtype]).reshape(shape)


class Model:
    """A small model with its random checkpoint."""

    made = {}

    def __init__(self, name, style="split", **changes):
        self.config = {**make_small.small_config(name), **changes}
        key = (name, style, *changes.items())
        if key not in self.made:
            self.made[key] = make_small.random_tensors(self.config, style, 5)
        self.tensors = dict(self.made[key])

    def __getitem__(self, name):
        return array(self.tensors[name])

    def held(self, kind="sglang", **placement):
        return engine_weights.expected(self.config, self.tensors, kind, placement)

    def arrays(self, kind="sglang", **placement):
        return {name: array(value) for name, value in self.held(kind, **placement).items()}

    def digests(self, kind="sglang", **placement):
        return engine_weights.expected_digests(self.config, self.tensors, kind, placement)


def ranks(size):
    return [(rank, size) for rank in range(size)]


class Single(unittest.TestCase):
    """One parameter each, written out."""

    def same(self, ours, wanted):
        self.assertEqual(ours.shape, wanted.shape)
        self.assertEqual(ours.dtype, wanted.dtype)
        self.assertTrue((ours.view(np.uint8) == np.ascontiguousarray(wanted).view(np.uint8)).all())

    def test_heads(self):
        m, name = Model("llama"), "model.layers.1.self_attn."  # 8 query heads of 128, 2 of k and v
        q, k, v = (m[f"{name}{x}_proj.weight"] for x in "qkv")
        for rank, kv in ((0, 0), (1, 0), (2, 1), (3, 1)):  # with 4 ranks two share a head
            held = m.arrays(tp=(rank, 4))
            self.same(held[name + "qkv_proj.weight"], np.concatenate([
                q[256 * rank:256 * (rank + 1)], k[128 * kv:128 * (kv + 1)],
                v[128 * kv:128 * (kv + 1)]]))
            self.same(held[name + "o_proj.weight"],
                      m[name + "o_proj.weight"][:, 256 * rank:256 * (rank + 1)])

    def test_biases(self):
        m, name = Model("llama-bias"), "model.layers.0.self_attn."
        held = m.arrays(tp=(1, 2))
        self.same(held[name + "qkv_proj.bias"], np.concatenate(
            [m[f"{name}{x}_proj.bias"][128:256] for x in "qkv"]))
        self.same(held[name + "o_proj.bias"], m[name + "o_proj.bias"])

    def test_gate_up(self):
        for family, parts in (("qwen3", True), ("glm4", False)):
            m, name = Model(family), "model.layers.2.mlp."
            if parts:
                gate, up = m[name + "gate_proj.weight"], m[name + "up_proj.weight"]
            else:
                gate, up = np.split(m[name + "gate_up_proj.weight"], 2)
            held = m.arrays("vllm", tp=(2, 4))
            self.same(held[name + "gate_up_proj.weight"],
                      np.concatenate([gate[384:576], up[384:576]]))

    def test_vocabulary(self):
        m = Model("llama")  # 1000 words, padded to 1024
        held = m.arrays(tp=(3, 4))["lm_head.weight"]
        self.same(held[:232], m["lm_head.weight"][768:])
        self.assertEqual(held.shape, (256, 256))
        self.assertFalse(held[232:].any())

    def test_vocabulary_of_odd_ranks(self):
        m = Model("llama-bias", vocab_size=130, num_attention_heads=3, num_key_value_heads=3,
                  hidden_size=192)
        self.assertEqual(m.arrays(tp=(0, 3))["lm_head.weight"].shape, (64, 192))
        m = Model("llama-bias", num_attention_heads=5, num_key_value_heads=5, hidden_size=320,
                  intermediate_size=320)  # 192 rows do not divide by 5
        self.assertEqual(m.arrays(tp=(0, 5))["lm_head.weight"].shape, (64, 320))
        with self.assertRaisesRegex(Refused, "embed_tokens"):
            m.held("vllm", tp=(0, 5))

    def test_tied(self):
        m = Model("qwen3")  # whose checkpoint has a head all the same
        held = m.held(tp=(1, 2))
        self.assertEqual(held["lm_head.weight"], held["model.embed_tokens.weight"])
        self.assertEqual(engine_weights.aliases(m.config, m.tensors, "vllm", {}),
                         {"lm_head.weight": "model.embed_tokens.weight"})
        last = m.held("sglang", pp=(1, 2))
        self.assertNotIn("model.embed_tokens.weight", last)
        self.assertEqual(last["lm_head.weight"], m.held()["model.embed_tokens.weight"])
        self.assertIn("model.embed_tokens.weight", m.held("vllm", pp=(1, 2)))

    def test_experts(self):
        m, name = Model("deepseek-v3"), "model.layers.2.mlp.experts."
        held = m.arrays(tp=(3, 4), ep=(1, 2))  # experts 4 to 7, the second half of each
        self.assertEqual(held[name + "w13_weight"].shape, (4, 256, 256))
        for slot, expert in enumerate(range(4, 8)):
            self.same(held[name + "w13_weight"][slot], np.concatenate([
                m[f"{name}{expert}.gate_proj.weight"][128:], m[f"{name}{expert}.up_proj.weight"][128:]]))
            self.same(held[name + "w2_weight"][slot], m[f"{name}{expert}.down_proj.weight"][:, 128:])

    def test_expert_map(self):
        m, name = Model("qwen3-moe"), "model.layers.%d.mlp.experts.w2_weight"
        held = m.arrays(ep=(0, 1), expert_map={0: [1, 1, 7], 1: [0, 2, 1], 2: [3, 4, 5]})
        whole = m.arrays()
        self.same(held[name % 0], whole[name % 0][[1, 1, 7]])
        self.same(held[name % 2], whole[name % 2][3:6])
        self.same(m.arrays(expert_map=[5, 5])[name % 1], whole[name % 1][[5, 5]])
        with self.assertRaisesRegex(Refused, "layer 0"):
            m.held(expert_map=[8])

    def test_fused_shared_expert(self):
        m, name = Model("deepseek-v3"), "model.layers.1.mlp."
        held = m.arrays(fused_shared_experts=1, tp=(1, 2))
        self.assertEqual(held[name + "experts.w2_weight"].shape, (9, 256, 128))
        self.same(held[name + "experts.w2_weight"][8],
                  m[name + "shared_experts.down_proj.weight"][:, 128:])
        self.assertFalse([key for key in held if "shared_experts" in key])
        with self.assertRaises(Refused):
            Model("moonlight").held(fused_shared_experts=1)

    def test_latent_attention(self):
        m, name = Model("glm5"), "model.layers.1.self_attn."
        held = m.arrays(tp=(1, 2))
        self.same(held[name + "fused_qkv_a_proj_with_mqa.weight"], np.concatenate([
            m[name + "q_a_proj.weight"], m[name + "kv_a_proj_with_mqa.weight"]]))
        self.same(held[name + "kv_b_proj.weight"], m[name + "kv_b_proj.weight"][1792:])
        self.same(held[name + "indexer.wk_weights_proj.weight"], np.concatenate([
            m[name + "indexer.wk.weight"], m[name + "indexer.weights_proj.weight"]]))
        self.same(held[name + "indexer.k_norm.bias"],
                  to_f32(m[name + "indexer.k_norm.bias"], "BF16"))
        self.assertIn(name + "fused_qkv_a_proj.weight", m.held("vllm"))
        self.assertIn(name + "kv_a_proj_with_mqa.weight", Model("moonlight").held())

    def test_router(self):
        name = "model.layers.1.mlp.gate.weight"
        self.assertEqual(Model("glm4-moe").held()[name][0], "F32")
        self.assertEqual(Model("deepseek-v3").held()[name][0], "BF16")
        self.assertEqual(Model("deepseek-v3").held()[
            "model.layers.1.mlp.gate.e_score_correction_bias"][0], "F32")
        self.assertNotIn("model.layers.1.mlp.gate.e_score_correction_bias",
                         Model("deepseek-v2").held())

    def test_attention_dp(self):
        m = Model("deepseek-v3")
        name = "model.layers.0.self_attn.q_b_proj.weight"
        for rank in range(4):  # two times two attention ranks
            held = m.arrays(tp=(rank, 4), dp=(rank // 2, 2), ep=(rank, 4))
            self.same(held[name], m[name][768 * (rank % 2):768 * (rank % 2 + 1)])
        self.same(held["model.layers.0.mlp.down_proj.weight"],
                  m["model.layers.0.mlp.down_proj.weight"][:, 384:])
        self.assertEqual(held["model.embed_tokens.weight"].shape, (512, 256))
        self.assertEqual(held["lm_head.weight"].shape, (256, 256))

    def test_stages(self):
        self.assertEqual([stage("sglang", 7, i, 3) for i in range(3)], [(0, 2), (2, 4), (4, 7)])
        self.assertEqual([stage("vllm", 7, i, 3) for i in range(3)], [(0, 2), (2, 5), (5, 7)])
        for kind in ("sglang", "vllm"):
            for number in range(1, 30):
                for size in range(1, number + 1):
                    ends = [stage(kind, number, i, size) for i in range(size)]
                    self.assertEqual([0] + [end for _, end in ends], [a for a, _ in ends] + [number])

    def test_other_engine_format(self):
        m = Model("llama")
        name = "model.norm.weight"
        for dtype in ("F16", "F32"):
            self.same(m.arrays(dtype=dtype)[name], cast(m[name], "BF16", dtype))

    def test_draft(self):
        m = Model("deepseek-v3")
        self.assertFalse([name for name in m.held() if "layers.3" in name or "draft" in name])
        held = m.held(draft=True)
        self.assertEqual(held["draft/model.eh_proj.weight"], m.tensors["model.layers.3.eh_proj.weight"])
        self.assertEqual(held["draft/lm_head.weight"], held["lm_head.weight"])
        self.assertIn("draft/model.decoder.mlp.experts.w13_weight", held)
        held = m.held("vllm", draft=True, pp=(1, 2))
        self.assertIn("draft/model.layers.3.mtp_block.mlp.experts.w13_weight", held)
        self.assertIn("draft/model.layers.3.shared_head.head.weight", held)
        self.assertFalse([name for name in m.held(draft=True, pp=(0, 2)) if "draft" in name])


class Fp8(unittest.TestCase):
    def test_is_quantised_then_sliced(self):
        m, name = Model("llama"), "model.layers.0.mlp.down_proj.weight"
        for scale_format in ("fp32", "ue8m0"):
            held = m.held(tp=(2, 4), fp8=BLOCK, scale_format=scale_format)
            values, scales = quantise(to_f32(m[name], "BF16"), BLOCK, scale_format, name)
            self.assertEqual(held[name],
                             ("F8_E4M3", (256, 128), values[:, 256:384].tobytes()))
            self.assertEqual(held[name + "_scale_inv"],
                             ("F32", (2, 1), scales[:, 2:3].tobytes()))

    def test_what_is_quantised(self):
        held = Model("glm5").held(fp8=BLOCK, draft=True)
        scaled = {name.removesuffix("_scale_inv") for name in held if name.endswith("_scale_inv")}
        self.assertEqual(scaled, {name for name, value in held.items() if value[0] == "F8_E4M3"})
        words = {name.split(".")[-2] + "." + name.split(".")[-1] for name in scaled}
        self.assertEqual(words, {
            "fused_qkv_a_proj_with_mqa.weight", "q_b_proj.weight", "kv_b_proj.weight",
            "o_proj.weight", "gate_up_proj.weight", "down_proj.weight", "experts.w13_weight",
            "experts.w2_weight", "wq_b.weight"})

    def test_partial_block_of_a_fused_matrix(self):
        m, name = Model("deepseek-v3"), "model.layers.0.self_attn.fused_qkv_a_proj_with_mqa.weight"
        held = m.held(fp8=BLOCK)  # 256 + 192 rows: 2 + 1.5 blocks
        self.assertEqual(held[name + "_scale_inv"][1], (4, 2))
        with self.assertRaisesRegex(Refused, "ends in a block"):
            m.held(fp8=(96, 128))

    def test_same_as_from_an_fp8_checkpoint(self):
        m = Model("deepseek-v3")
        there = {**m.config, "quantization_config": make_small.fp8(m.config)}
        tensors = dict(m.tensors)
        for name, (dtype, _) in make_small.checkpoint_tensors(there).items():
            if dtype == "F8_E4M3":
                values, scales = quantise(to_f32(m[name], "BF16"), BLOCK, "fp32", name)
                tensors[name] = (dtype, values.shape, values.tobytes())
                tensors[name + "_scale_inv"] = ("F32", scales.shape, scales.tobytes())
        placement = {"tp": (1, 2), "ep": (1, 2), "fp8": BLOCK}
        self.assertEqual(engine_weights.expected(there, tensors, "vllm", placement),
                         m.held("vllm", **placement))
        with self.assertRaises(Refused):
            engine_weights.expected(there, tensors, "vllm", {})
        with self.assertRaises(Refused):
            engine_weights.expected(there, tensors, "vllm", {"fp8": (64, 64)})

    def test_refused(self):
        m = Model("llama")
        with self.assertRaisesRegex(Refused, "k_proj.*cuts a block"):
            Model("qwen2").held(tp=(0, 2), fp8=BLOCK)
        with self.assertRaisesRegex(Refused, "down_proj.*cuts a block|gate_proj.*cuts a block"):
            m.held(tp=(1, 8), fp8=BLOCK)
        name = "model.layers.2.mlp.up_proj.weight"
        bad = bytearray(m.tensors[name][2])
        bad[1000:1002] = b"\x80\x7f"  # infinity
        m.tensors[name] = (*m.tensors[name][:2], bytes(bad))
        with self.assertRaisesRegex(Refused, name):
            m.held(fp8=BLOCK)
        m.held()  # plain copies take it


class All(unittest.TestCase):
    """Every family."""

    def test_packed_experts_are_the_same(self):
        for name in make_small.SMALL:
            m = Model(name)
            if "moe_intermediate_size" not in m.config or "quantization_config" in m.config:
                continue
            packed = {}
            for key, value in m.tensors.items():
                head, found, tail = key.partition(".experts.")
                if not found:
                    packed[key] = value
                elif tail == "0.gate_proj.weight":
                    number = m.config.get("n_routed_experts") or m.config["num_experts"]
                    gate, up, down = (np.stack([
                        m[f"{head}.experts.{i}.{x}_proj.weight"] for i in range(number)])
                        for x in ("gate", "up", "down"))
                    both = np.concatenate([gate, up], axis=1)
                    for word, stack in (("gate_up_proj", both), ("down_proj", down)):
                        packed[f"{head}.experts.{word}"] = ("BF16", stack.shape, stack.tobytes())
            self.assertEqual({key: value[:2] for key, value in packed.items()},
                             make_small.checkpoint_tensors(m.config, "packed"))
            for placement in ({"tp": (1, 2)}, {"tp": (1, 2), "ep": (1, 2), "draft": True}):
                self.assertEqual(engine_weights.expected(m.config, packed, "sglang", placement),
                                 m.held(**placement), name)

    def test_every_tensor_is_used(self):
        """All ranks together read all of the checkpoint, but for what no engine wants."""
        for name in make_small.SMALL:
            for kind in ("sglang", "vllm"):
                m, read = Model(name), set()
                m.tensors = Watched(m.tensors, read)
                layers = m.config["num_hidden_layers"]
                for pp in ranks(2):
                    for tp in ranks(2):
                        placement = {"pp": pp, "tp": tp, "ep": tp, "draft": True}
                        if "quantization_config" in m.config:
                            placement["fp8"] = BLOCK
                        m.held(kind, **placement)
                unused = {key for key in m.tensors.keys() - read if not key.endswith(".inv_freq")}
                wanted = set()
                if m.config["tie_word_embeddings"]:
                    wanted |= {"lm_head.weight"} & m.tensors.keys()
                if m.config.get("_mtp_has_embed_and_head_copies"):
                    wanted |= {f"model.layers.{layers}.embed_tokens.weight",
                               f"model.layers.{layers}.shared_head.head.weight"}
                self.assertEqual(unused, wanted, (name, kind))

    def test_planted_errors(self):
        """A byte changed anywhere in the checkpoint changes some parameter of some rank; two swapped
        tensors too."""
        generator = np.random.default_rng(3)
        for name in make_small.SMALL:
            m = Model(name)
            fp8 = {"fp8": BLOCK} if "quantization_config" in m.config else {}
            before = m.digests("vllm", **fp8)
            names = [key for key in m.tensors if not key.endswith(".inv_freq")
                     and f"layers.{m.config['num_hidden_layers']}." not in key
                     and not (m.config["tie_word_embeddings"] and key == "lm_head.weight")]
            for key in generator.choice(names, 4, replace=False):
                kept = m.tensors[key]
                data = bytearray(kept[2])
                data[int(generator.integers(len(data)))] ^= 0x10
                m.tensors[key] = (*kept[:2], bytes(data))
                lines = digests.compare(before, m.digests("vllm", **fp8))
                self.assertTrue(lines and all(line.startswith("differs") for line in lines), key)
                m.tensors[key] = kept
            self.assertEqual(before, m.digests("vllm", **fp8))

    def test_planted_in_the_engine(self):
        m = Model("glm4-moe")
        wanted = m.digests(tp=(0, 2))
        self.assertTrue(digests.compare(wanted, m.digests(tp=(1, 2))))
        self.assertTrue(digests.compare(wanted, m.digests(tp=(0, 2), ep=(0, 2))))
        name = "model.layers.1.mlp.experts.w13_weight"
        held = m.arrays(tp=(0, 2))[name]
        swapped = np.concatenate(np.split(held, 2, axis=1)[::-1], axis=1)  # up before gate
        self.assertNotEqual(engine_weights.digest_of(swapped.tobytes()), wanted[name])
        self.assertNotEqual(engine_weights.digest_of(held[::-1].tobytes()), wanted[name])

    def test_ranks_together(self):
        """Concatenated over tensor-parallel ranks, column- and row-parallel weights are whole."""
        m = Model("kimi-k2")
        held = [m.arrays(tp=tp) for tp in ranks(4)]
        for name, axis in (("self_attn.q_b_proj", 0), ("self_attn.o_proj", 1), ("mlp.down_proj", 1)):
            key = f"model.layers.0.{name}.weight"
            whole = np.concatenate([one[key] for one in held], axis)
            self.assertTrue((whole == m[key]).all(), key)
        embed = np.concatenate([one["model.embed_tokens.weight"] for one in held])
        self.assertTrue((embed[:1001] == m["model.embed_tokens.weight"]).all())

    def test_refused(self):
        m = Model("llama")
        for placement, word in (({"tp": (0, 3)}, "embed_tokens|heads|units"), ({"tp": (2, 2)}, "rank 2"),
                                ({"tensor": 1}, "unknown"), ({"tp": (0, 16)}, "units")):
            with self.assertRaisesRegex(Refused, word):
                m.held("vllm", **placement)
        with self.assertRaisesRegex(Refused, "Bert"):
            engine_weights.expected({"architectures": ["Bert"]}, {}, "vllm", {})
        with self.assertRaisesRegex(Refused, "engine"):
            m.held("other")
        del m.tensors["model.layers.1.mlp.up_proj.weight"]
        with self.assertRaisesRegex(Refused, "layers.1.mlp.up_proj.*not in the checkpoint"):
            m.held()


class Watched(dict):
    """Tells which tensors were read."""

    def __init__(self, tensors, read):
        super().__init__(tensors)
        self.read = read

    def __getitem__(self, name):
        self.read.add(name)
        return super().__getitem__(name)


if __name__ == "__main__":
    unittest.main()
