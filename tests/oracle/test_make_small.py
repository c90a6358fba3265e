# SPDX-License-Identifier: Apache-2.0
"""The list of a checkpoint's tensors: against published totals, and against
shardwire-make-checkpoint, which makes its own from layouts/. Needs no NumPy."""
import json
import math
import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIGS = os.path.join(os.path.dirname(HERE), "data", "configs")
sys.path.insert(0, HERE)

import make_small

BYTES = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "F16": 2}

# Parameters without and with MTP layers.
PARAMETERS = {
    "Qwen3-0.6B": (596049920, 596049920),
    "GLM-Z1-9B-0414": (9400279040, 9400279040),
    "Moonlight-16B-A3B": (15960110208, 15960110208),
    "GLM-4.7-Flash": (29943393920, 31221488576),
    "Qwen3-30B-A3B": (30532122624, 30532122624),
    "GLM-4.5-Air": (106852251264, 110468824832),
    "Qwen3-235B-A22B": (235093634560, 235093634560),
    "GLM-5": (743911218432, 753864139008),
    "Kimi-K2": (1026408232448, 1026408232448),
    "DeepSeek-V3": (671026419200, 684489845504),
}
# Tensors and bytes of checkpoints, where published.
SIZES = {
    "Qwen3-0.6B": (311, 1503264768),
    "Qwen3-30B-A3B": (None, 61064245248),
    "GLM-5-FP8": (None, 756162687872),
    "Kimi-K2": (139644, 1029173256720),
}


def load(*path):
    with open(os.path.join(CONFIGS, *path) + ".json", encoding="utf-8") as f:
        return json.load(f)


class Lists(unittest.TestCase):
    def test_parameters(self):
        for name, (without, whole) in PARAMETERS.items():
            config = load(name)
            config.pop("quantization_config", None)
            config.pop("_lm_head_saved_though_tied", None)
            total = drafts = 0
            for tensor, (_, shape) in make_small.checkpoint_tensors(config).items():
                if tensor.endswith(".inv_freq"):
                    continue
                total += math.prod(shape)
                if tensor.startswith(f"model.layers.{config['num_hidden_layers']}."):
                    drafts += math.prod(shape)
            self.assertEqual((total - drafts, total), (without, whole), name)

    def test_sizes(self):
        for name, (tensors, size) in SIZES.items():
            made = make_small.checkpoint_tensors(
                {**load(name), "_lm_head_saved_though_tied": name == "Qwen3-0.6B"})
            self.assertEqual(sum(BYTES[dtype] * math.prod(shape)
                                 for dtype, shape in made.values()), size, name)
            if tensors:
                self.assertEqual(len(made), tensors, name)

    def test_packed(self):
        for name in make_small.SMALL:
            config = make_small.small_config(name)
            split, packed = (make_small.checkpoint_tensors(config, style)
                             for style in ("split", "packed"))
            self.assertEqual(*(sum(math.prod(shape) for _, shape in made.values())
                               for made in (split, packed)))
            if "moe_intermediate_size" in config and "quantization_config" not in config:
                self.assertFalse([key for key in packed if ".experts.0." in key])

    def test_config_files(self):
        """tests/data/configs/small is what `make_small.py write` gives."""
        names = {name.removesuffix(".json") for name in os.listdir(os.path.join(CONFIGS, "small"))}
        self.assertEqual(names, set(make_small.SMALL))
        for name in names:
            self.assertEqual(load("small", name), make_small.small_config(name))

    def test_as_make_checkpoint(self):
        """It makes no tensors that no engine wants, and none in FP8."""
        tool = os.path.join(os.environ.get("SHARDWIRE_BUILD", ""), "tools", "shardwire-make-checkpoint")
        if not os.path.exists(tool):
            self.skipTest("no SHARDWIRE_BUILD")
        layouts = os.path.join(HERE, "..", "..", "layouts")
        for path in [os.path.join("small", name) for name in make_small.SMALL] + [*PARAMETERS]:
            config = load(path)
            plain = {key: value for key, value in config.items()
                     if key[0] != "_" and key != "quantization_config"}
            for style in ("split", "packed"):
                if style == "packed" and "moe_intermediate_size" not in config:
                    continue
                options = ["--packed"] if style == "packed" else []
                said = subprocess.run(
                    [tool, "--dry-run", "--list", "--draft", "--no-tied-head", *options,
                     f"--layouts={layouts}", os.path.join(CONFIGS, path) + ".json"],
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True)
                listed = {}
                for line in said.stdout.splitlines()[:-1]:
                    name, dtype, shape = line.split(" ", 2)
                    listed[name] = (dtype, tuple(json.loads(shape.partition("]")[0] + "]")))
                self.assertEqual(listed, make_small.checkpoint_tensors(plain, style), path)


if __name__ == "__main__":
    unittest.main()
