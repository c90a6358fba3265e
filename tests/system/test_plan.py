#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""shardctl plan, offline: what it tells, and what it refuses, by name."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

from harness import CONFIGS, ROOT, TIMEOUT, ClusterTest, binary, free_port

LAYOUTS = os.path.join(ROOT, "layouts")
QWEN = os.path.join(CONFIGS, "Qwen3-30B-A3B.json")
KIMI = os.path.join(CONFIGS, "Kimi-K2.json")
TWO_HOSTS = ("--trainers=16", "--engines=2", "--tp=8", "--ep=8")
GATHERED = ("--trainers=256", "--trainer-pp=8", "--engines=4", "--tp=32", "--ep=32", "--fp8=64x64")


def plan(*options, model=QWEN, layouts=LAYOUTS, expect=0):
    command = [binary("shardctl"), "plan", f"--model={model}", f"--layouts={layouts}", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * TIMEOUT, check=False)
    if done.returncode != expect:
        raise AssertionError(f"{command}: status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout if expect == 0 else done.stderr


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="sw-plan-")
        self.addCleanup(shutil.rmtree, self.folder)

    def config(self, drop=(), **changes):
        """Qwen3-30B-A3B's, changed."""
        with open(QWEN, encoding="utf-8") as f:
            config = json.load(f)
        config.update(changes)
        for key in drop:
            del config[key]
        path = os.path.join(self.folder, "config.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(config, f)
        return path

    def text(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def layouts(self):
        path = os.path.join(self.folder, "layouts")
        shutil.copytree(LAYOUTS, path)
        return path


class Told(Folder):
    def test_numbers_add_up(self):
        document = json.loads(plan("--json", *TWO_HOSTS))
        totals = document["totals"]
        self.assertEqual(totals["tensors"], 18867)
        self.assertEqual(totals["moved_bytes"], sum(e["received_bytes"] for e in document["engines"]))
        self.assertEqual(totals["moved_bytes"], sum(t["sent_bytes"] for t in document["trainers"]))
        self.assertEqual(totals["moved_bytes"],
                         sum(p[2] for p in document["pairs_of_rank_target_bytes"]))
        self.assertEqual(totals["pairs"], len(document["pairs_of_rank_target_bytes"]))
        self.assertEqual(totals["staged_bytes"], 61064245248) # equal bytes once: the public total
        self.assertEqual(len(document["source_nics"]), 16)
        self.assertEqual(len(document["training_hosts"]), 2)
        self.assertLessEqual(totals["lower_bound_bytes"], totals["busiest_source_nic_bytes"])
        self.assertLessEqual(totals["busiest_source_nic_bytes"], 1.02 * totals["lower_bound_bytes"])
        self.assertAlmostEqual(document["predicted"]["pause_s"],
                               totals["busiest_source_nic_bytes"] / document["assumed"]["nic"])

    def test_a_further_engine_changes_destinations_only(self):
        one, three = (json.loads(plan("--json", "--trainers=16", f"--engines={n}", "--tp=8", "--ep=8"))
                      for n in (1, 3))
        self.assertEqual(one["totals"]["staged_bytes"], three["totals"]["staged_bytes"])
        self.assertEqual(3 * one["totals"]["moved_bytes"], three["totals"]["moved_bytes"])

    def test_replicated_bytes_are_staged_once(self):
        sharded, replicated = (json.loads(plan("--json", "--tp=8", "--ep=8", f"--dp={dp}"))["totals"]
                               for dp in (1, 8))
        self.assertGreater(replicated["moved_bytes"], 1.1 * sharded["moved_bytes"])
        self.assertEqual(replicated["staged_bytes"], sharded["staged_bytes"])

    def test_lmsys_mapping(self):
        document = json.loads(plan("--json", "--assign=lmsys", *TWO_HOSTS))
        pairs = {(p[0], p[1]) for p in document["pairs_of_rank_target_bytes"]}
        self.assertEqual(pairs, {(i, i) for i in range(16)}) # one to one

    def test_waves(self):
        document = json.loads(plan("--json", "--replica-limit=500M"))
        self.assertGreater(document["totals"]["waves"], 14)
        self.assertLessEqual(max(t["replica_bytes"] for t in document["trainers"]), 500 << 20)
        self.assertIn("waves", " ".join(document["warnings"]))

    def test_no_gather_is_needed(self):
        gathered = json.loads(plan("--json", *GATHERED, model=KIMI))["totals"]
        fsdp = json.loads(plan("--json", "--holds=fsdp", "--trainers=256", "--engines=4", "--tp=32",
                               "--ep=32", "--fp8=64x64", model=KIMI))["totals"]
        self.assertEqual(gathered["staged_bytes"], fsdp["staged_bytes"])
        self.assertEqual(gathered["block_maxima"], 0)
        self.assertGreater(fsdp["block_maxima"], 0) # at 256 ranks every block spans ranks

    def test_explains_a_tensor(self):
        text = plan("--explain=model.layers.3.mlp.experts.17.gate_proj.weight", *TWO_HOSTS)
        self.assertIn("BF16 [768, 2048]", text)
        self.assertIn("trainer ranks 0 to 15: [0:768, 0:2048]", text)
        self.assertRegex(text, r"to model\.layers\.3\.mlp\.experts\.w13_weight, at byte 6291456 "
                               r"\(rule moe\.inc:\d+\): engine 0 rank 1, engine 1 rank 1")

    def test_explains_a_parameter(self):
        text = plan("--explain=model.layers.0.self_attn.qkv_proj.weight", "--trainers=4",
                    "--holds=fsdp", "--tp=8")
        self.assertRegex(text, r"parameter model\.layers\.0\.self_attn\.qkv_proj\.weight: BF16 "
                               r"\[768, 2048\] \(rule gqa\.inc:\d+\)")
        self.assertIn("model.layers.0.self_attn.k_proj.weight [0:128, 0:2048]", text)

    def test_picture(self):
        path = os.path.join(self.folder, "plan.svg")
        plan(f"--svg={path}", *GATHERED, model=KIMI)
        text = "".join(ElementTree.parse(path).getroot().itertext())
        self.assertIn("training host 31", text)
        self.assertIn("inference host 15", text)

    def test_report(self):
        text = plan(*TWO_HOSTS, "--host-memory=100G")
        self.assertRegex(text, r"predicted +stage [0-9.]+ s \(bound by .*\), pause 0\.15\d s")
        self.assertNotIn("warning", text)
        self.assertIn("warning: the replica of the fullest training host takes 2 x",
                      plan(*TWO_HOSTS, "--host-memory=50G"))

    def test_options_from_a_file(self):
        path = self.text("plan.conf", "[plan]\ntrainers = 16\nengines = 2\ntp = 8\nep = 8\n")
        self.assertEqual(plan("--json", f"--config={path}"), plan("--json", *TWO_HOSTS))

    def test_warns_of_a_vocabulary_that_is_padded(self):
        self.assertRegex(plan("--tp=2", model=self.config(vocab_size=151937)),
                         r"warning: the vocabulary .* 258048 bytes of zero rows")


class Refused(Folder):
    def refused(self, pattern, *options, status=1, **files):
        text = plan(*options, expect=status, **files)
        self.assertRegex(text, pattern)
        self.assertEqual(text.count("\n"), 1, text) # one failure, one line

    def test_rule_files(self):
        folder = self.layouts()
        path = os.path.join(folder, "gqa.inc")
        with open(path, encoding="utf-8") as f:
            good = f.read()
        line = 1 + good[:good.index("shape ")].count("\n")
        for bad, pattern in ((good.replace("shape ", "shapes ", 1), rf"gqa\.inc:{line}: \[tensor q\]"),
                             (good.replace("shape   =", "shape   = (", 1),
                              rf"gqa\.inc:{line}: \[tensor q\] shape: expected"),
                             (good.replace("part  ", "part nonsense =", 1), r"gqa\.inc:\d+"),
                             (good + "\n[parameter x.{layer}.y]\npart = q\n", r"gqa\.inc:\d+: ")):
            self.assertNotEqual(bad, good)
            self.text("layouts/gqa.inc", bad)
            self.refused(pattern, layouts=folder)
        os.unlink(path)
        self.refused(r"include: layout file .*gqa\.inc", layouts=folder)

    def test_config(self):
        for changes, pattern in (
                ({"drop": ["vocab_size"]}, r"\.inc:\d+: .*'vocab_size'.* found none"),
                ({"vocab_size": -5}, r"expected a number from 1 .*'vocab_size' = -5"),
                ({"num_hidden_layers": 10 ** 9}, "'num_hidden_layers - 1'"),
                ({"num_hidden_layers": "x"}, "expected a whole number .*'num_hidden_layers'"),
                ({"architectures": ["NobodyForCausalLM"]},
                 "no layout file .* NobodyForCausalLM; there are: .*qwen3_moe"),
                ({"quantization_config": {"quant_method": "awq"}}, "quant_method is 'awq'"),
                ({"quantization_config": {"quant_method": "mxfp4"}}, "quant_method is 'mxfp4'"),
                ({"quantization_config": {"quant_method": "compressed-tensors"}},
                 "quant_method is 'compressed-tensors'"),
                ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}},
                 "quant_method is 'modelopt'")):
            self.refused(pattern, model=self.config(**changes))
        self.refused(r"config\.json:1:", model=self.text("config.json", "{"))
        self.refused("No such file", model=os.path.join(self.folder, "none.json"))

    def test_sizes(self):
        for options, pattern in (
                (["--tp=3"], "'q' has 32 units, which attn_tp 3 does not divide"),
                (["--tp=4", "--ep=3"], "ep does not divide tp 4: 3"),
                (["--tp=16", "--fp8=128x128"], "'expert_gate'.*48 rows into blocks of 128x128"),
                (["--trainers=6", "--trainer-tp=4"], "tp 4 does not divide the 6 ranks"),
                (["--trainers=10", "--trainer-pp=3"], "pp 3 does not divide 10"),
                (["--holds=shards", "--trainers=6", "--trainer-ep=6"], "ep 6 does not divide 128 exp"),
                (["--kind=vllm", "--tp=2", "--dp=2", "--ep=2"], "vLLM has 1, or dp x tp = 4"),
                (["--replica-limit=1M"], "embed_tokens.weight must be in its replica at once"),
                (["--fp8=12"], '--fp8: "12"'),
                (["--explain=nobody"], "no tensor .* is named nobody")):
            self.refused(pattern, *options)
        self.refused("576 rows into blocks of 128x128.*64x64 would divide", "--tp=32", "--ep=32",
                     model=KIMI)

    def test_usage(self):
        for options in (["--tp=0"], ["--holds=nothing"], ["--no-such-option"], ["operand"]):
            self.refused(".", *options, status=2)


class Live(ClusterTest):
    """Engines that an inferd has, instead of made up ones."""

    def start(self):
        self.port = free_port()
        self.cluster.start_trainerd()
        self.cluster.start_inferd(port=self.port)
        folder = os.path.join(self.cluster.folder, "model")
        os.makedirs(folder)
        self.config = os.path.join(folder, "config.json")
        shutil.copy(os.path.join(CONFIGS, "small", "qwen3-moe.json"), self.config)
        return folder

    def plan(self, *options, expect=0):
        command = [binary("shardctl"), "plan", f"--layouts={LAYOUTS}", f"--engine=127.0.0.1:{self.port}",
                   f"--group={self.cluster.group}", "--trainers=4", "--holds=fsdp", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        self.assertEqual(done.returncode, expect, done.stderr)
        return done.stdout if expect == 0 else done.stderr

    def test_as_made_up(self):
        folder = self.start()
        self.cluster.start_world(folder, 4, layout="auto", layouts=LAYOUTS, tp=4, ep=2)
        live = json.loads(self.plan("--json"))
        offline = json.loads(plan("--json", "--trainers=4", "--holds=fsdp", "--tp=4", "--ep=2",
                                  model=self.config))
        self.assertEqual(live["totals"], offline["totals"])
        self.assertEqual(live["pairs_of_rank_target_bytes"], offline["pairs_of_rank_target_bytes"])
        self.assertIn("as registered with the inferd", self.plan())
        self.assertIn("engine rank 3", self.plan("--explain=model.layers.1.mlp.experts.w13_weight"))

    def test_nobody_there(self):
        self.start()
        self.assertIn("no engine rank is registered", self.plan(expect=1))
        self.cluster.inferd.kill()
        self.assertIn("127.0.0.1", self.plan(expect=1))


if __name__ == "__main__":
    unittest.main()
