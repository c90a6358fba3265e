#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real runs of every model family: small checkpoints with true names and structure, pushed by one or
several trainer processes through the daemons into engines of several parallel sizes, and compared,
name by name and byte by byte (SHA-256), with what the NumPy oracle says that such an engine rank
holds after loading the checkpoint.

    test_layouts.py [FAMILY]     only the cases of that family

Needs NumPy: SHARDWIRE_ORACLE_PYTHON names an interpreter that has it (`scripts/deps --oracle`); without
one the exit status is 77.
"""
import json
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ORACLE = os.path.join(os.path.dirname(HERE), "oracle")

sys.path.insert(0, ORACLE)

import with_numpy # noqa: F401, E402

import digests # noqa: E402
import engine_weights # noqa: E402
import make_small # noqa: E402
from harness import CONFIGS, ROOT, ClusterTest # noqa: E402

LAYOUTS = os.path.join(ROOT, "layouts")


class Engine:
    """Parallel sizes of one engine, and where each of its ranks stands."""

    def __init__(self, kind="sglang", tp=1, ep=1, pp=1, dp=1, fp8=None, scale="fp32", draft=False,
                 fused=False, experts=None):
        self.kind, self.tp, self.ep, self.pp, self.dp = kind, tp, ep, pp, dp
        self.fp8, self.scale, self.draft, self.fused = fp8, scale, draft, fused
        self.experts = experts # logical expert of each physical slot, all ranks together
        self.world = tp * pp * (dp if kind == "vllm" else 1)

    def place(self, rank):
        r = rank % self.tp
        if self.kind == "vllm":
            d = rank // self.tp // self.pp
            many = self.dp * self.tp
            at = {"pp": (rank // self.tp % self.pp, self.pp), "tp": (r, self.tp),
                  "dp": (d, self.dp)}
            at["ep"] = (d * self.tp + r, many) if self.ep > 1 else (0, 1)
            at["moe_tp"] = (0, 1) if self.ep > 1 else (d * self.tp + r, many)
            at["experts_module"] = "experts.routed_experts"
        else:
            at = {"pp": (rank // self.tp, self.pp), "tp": (r, self.tp),
                  "ep": (r // (self.tp // self.ep), self.ep),
                  "dp": (r // (self.tp // self.dp), self.dp)}
        if self.fp8:
            at.update(fp8=self.fp8, scale_format=self.scale)
        if self.draft:
            at["draft"] = True
        if self.fused:
            at["fused_shared_experts"] = 1
        if self.experts:
            mine = len(self.experts) // at["ep"][1]
            at["expert_map"] = self.experts[at["ep"][0] * mine:(at["ep"][0] + 1) * mine]
        return at

    def options(self, folder):
        options = {"layout": "auto", "layouts": LAYOUTS, "kind": self.kind, "tp": self.tp,
                   "ep": self.ep, "pp": self.pp, "dp": self.dp, "draft": self.draft,
                   "fused_shared": self.fused,
                   "fp8": f"{self.fp8[0]}x{self.fp8[1]}" if self.fp8 else "no"}
        if self.fp8:
            options["scale"] = self.scale
        if self.experts:
            path = os.path.join(folder, "experts.json")
            with open(path, "w", encoding="utf-8") as f:
                json.dump({"version": 7, "map": [self.experts]}, f)
            options["expert_map"] = path
        return options


class Trainers:
    """How many trainer processes, and what each holds."""

    def __init__(self, world=1, holds="gathered", tp=1, pp=1, ep=1):
        self.world = world
        self.options = {} if world == 1 else {
            "world": world, "holds": holds, "trainer_tp": tp, "trainer_pp": pp, "trainer_ep": ep,
            "layouts": LAYOUTS}


ONE = Trainers()
FSDP = Trainers(3, "fsdp") # thin and uneven rows: FP8 blocks span ranks
FSDP2 = Trainers(2, "fsdp", pp=2)
SHARDS = Trainers(4, "shards", tp=2, pp=1, ep=4)
STAGES = Trainers(4, "gathered", tp=2, pp=2, ep=2)
FP8 = (128, 128)
SMALL_FP8 = (64, 64)


class Families(ClusterTest):
    """One method for each family; what is passed: (engine, trainers, style)."""

    def run_case(self, family, engine, trainers=ONE, style="split", versions=1, transport="local"):
        with self.subTest(family=family, engine=vars(engine), trainers=trainers.options,
                          style=style):
            self.tearDown()
            self.setUp()
            self.push(family, engine, trainers, style, versions, transport)

    def push(self, family, engine, trainers, style, versions, transport):
        c = self.cluster
        with open(os.path.join(CONFIGS, "small", family + ".json"), encoding="utf-8") as f:
            config = json.load(f)
        folder = os.path.join(c.folder, "checkpoint")
        c.start_trainerd(layouts=LAYOUTS, transport=transport)
        c.start_inferd()
        ranks = []
        for version in range(1, versions + 1):
            tensors = make_small.random_tensors(config, style, seed=version)
            make_small.write_checkpoint(folder, config, tensors)
            if not ranks:
                ranks = c.start_world(folder, engine.world, **engine.options(c.folder))
            self.train(folder, trainers)
            for rank, process in enumerate(ranks):
                process.wait_live(version)
                self.compare(config, tensors, engine, rank, process)

    def train(self, folder, trainers):
        pushes = [self.cluster.start_shardctl("push", folder, rank=rank, **trainers.options)
                  if trainers.world > 1 else self.cluster.start_shardctl("push", folder)
                  for rank in range(trainers.world)]
        for push in pushes:
            self.assertEqual(push.wait(), 0, push.output() + self.cluster.logs())

    def compare(self, config, tensors, engine, rank, process):
        expected = engine_weights.expected_digests(config, tensors, engine.kind, engine.place(rank))
        if engine.draft and engine.kind == "vllm": # some versions name the shared head so as well
            expected["draft/lm_head.weight"] = expected["lm_head.weight"]
        held, _ = digests.read_engine_file(process.digests())
        self.assertEqual(sorted(held), sorted(expected), f"{process.name}: other parameters")
        wrong = [name for name in expected if held[name] != expected[name]]
        self.assertEqual(wrong, [], f"{process.name}: other bytes than the oracle says")

    def test_llama(self):
        self.run_case("llama", Engine(tp=2), versions=2)
        self.run_case("llama", Engine(tp=2, pp=2), FSDP)
        self.run_case("llama-bias", Engine(kind="vllm", tp=2), STAGES)
        self.run_case("llama-tied", Engine(tp=4), SHARDS)

    def test_qwen2(self):
        self.run_case("qwen2", Engine(tp=2), FSDP)
        self.run_case("qwen2", Engine(kind="vllm", tp=4))

    def test_qwen3(self):
        self.run_case("qwen3", Engine(tp=4, fp8=SMALL_FP8), FSDP)
        self.run_case("qwen3", Engine(kind="vllm", tp=2, pp=2), SHARDS)

    def test_qwen3_moe(self):
        self.run_case("qwen3-moe", Engine(tp=4, ep=4), FSDP, versions=2)
        self.run_case("qwen3-moe", Engine(tp=4, ep=2, dp=2), SHARDS, transport="tcp")
        self.run_case("qwen3-moe", Engine(kind="vllm", tp=2, dp=2, ep=4), style="packed")
        self.run_case("qwen3-moe", Engine(tp=2, ep=2, fp8=SMALL_FP8), FSDP, style="packed")
        self.run_case("qwen3-moe-mixed", Engine(tp=2, pp=2), STAGES)

    def test_expert_map(self):
        experts = [3, 0, 1, 2, 7, 4, 5, 6, 0, 7, 3, 1] # redundant copies of four of them
        self.run_case("qwen3-moe", Engine(tp=2, ep=2, experts=experts), FSDP)

    def test_glm4(self):
        self.run_case("glm4", Engine(tp=2), FSDP)
        self.run_case("glm4", Engine(kind="vllm", tp=4), SHARDS)

    def test_glm4_moe(self):
        self.run_case("glm4-moe", Engine(tp=2, ep=2, draft=True), FSDP)
        self.run_case("glm4-moe", Engine(kind="vllm", tp=2, ep=2), STAGES)
        self.run_case("glm4-moe-norms", Engine(tp=2), style="packed")

    def test_glm4_moe_lite(self):
        self.run_case("glm4-moe-lite", Engine(tp=2, ep=2), FSDP)
        self.run_case("glm4-moe-lite", Engine(kind="vllm", tp=2, ep=2, draft=True), SHARDS)

    def test_deepseek(self):
        self.run_case("deepseek-v2", Engine(tp=2, ep=2), STAGES)
        self.run_case("deepseek-v3", Engine(tp=2, ep=2, fp8=FP8), FSDP, versions=2)
        self.run_case("deepseek-v3", Engine(kind="vllm", tp=2, ep=2, fp8=FP8, draft=True), SHARDS)
        self.run_case("deepseek-v3", Engine(tp=2, fp8=FP8, scale="ue8m0"), FSDP2)
        self.run_case("deepseek-v3", Engine(tp=2, fused=True))
        self.run_case("deepseek-v3-fp8", Engine(tp=2, ep=2, fp8=FP8), FSDP)

    def test_moonlight(self):
        self.run_case("moonlight", Engine(tp=4, ep=4), FSDP)
        self.run_case("moonlight", Engine(kind="vllm", tp=2, ep=2), SHARDS)

    def test_kimi_k2(self):
        self.run_case("kimi-k2", Engine(tp=4, ep=4, dp=2, fp8=SMALL_FP8), FSDP)

    def test_glm5(self):
        self.run_case("glm5", Engine(tp=2, ep=2), FSDP)
        self.run_case("glm5", Engine(kind="vllm", tp=2, ep=2, fp8=FP8), STAGES)


if __name__ == "__main__":
    unittest.main()
