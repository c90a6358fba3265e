# SPDX-License-Identifier: Apache-2.0
"""How an engine rank loads: its place among the ranks, its layers, and what each takes from the
checkpoint. engine_weights.py says which layers a model family has."""
import hashlib

import numpy as np

import digests
from formats import KEPT_AS, Refused, cast, dequantise, quantise, to_f32

GROUPS = ("pp", "tp", "ep", "dp", "attn_tp", "moe_tp", "mlp_tp", "shared_tp", "embed_tp", "head_tp")


class Tensor:
    """Bits with a format; `scale` (a Tensor) has a factor for each block of an FP8 matrix."""

    def __init__(self, dtype, data, scale=None):
        self.dtype, self.data, self.scale = dtype, data, scale


def from_bytes(dtype, shape, data):
    if dtype not in KEPT_AS:
        raise Refused(f"no tensors of {dtype} here")
    return Tensor(dtype, np.frombuffer(data, KEPT_AS[dtype]).reshape(shape))


class Checkpoint(dict):
    """name -> (dtype, shape, bytes) of a checkpoint folder; bytes are read when asked for."""

    def __init__(self, folder):
        super().__init__(digests.read_checkpoint(folder))

    def __getitem__(self, name):
        path, dtype, shape, offset, size = super().__getitem__(name)
        with open(path, "rb") as f:
            f.seek(offset)
            data = f.read(size)
        if len(data) != size:
            raise Refused(f"{path}: ends too early")
        return dtype, tuple(shape), data


class Place:
    """Where the rank stands, from a dictionary with any of

    pp, tp, ep, dp, attn_tp, ...  (rank, size) in that parallel group (docs/layouts.md, "GROUP")
    layers                        (first, end) of its pipeline stage, if not the engine's own split
    dtype                         of weights that are not quantised, if not config.json's
    fp8, scale_format             (rows, columns) of a block; "fp32" or "ue8m0"
    fused_shared_experts          1: the shared expert is one more routed one
    expert_map                    logical expert in each slot of this rank: one list for all layers,
                                  or a dictionary layer -> list
    draft                         True: it holds the model's MTP layers as well
    experts_module                the module with w13 and w2 below `mlp` ("experts")
    """

    OTHERS = {"layers": None, "dtype": None, "fp8": None, "scale_format": "fp32",
              "fused_shared_experts": 0, "expert_map": None, "draft": False,
              "experts_module": "experts"}

    def __init__(self, kind, wanted):
        unknown = wanted.keys() - {*GROUPS, *self.OTHERS}
        if unknown:
            raise Refused(f"placement: unknown {sorted(unknown)}")
        for key, default in self.OTHERS.items():
            setattr(self, key, wanted.get(key, default))
        group = {name: tuple(value) for name, value in wanted.items() if name in GROUPS}
        for name in ("pp", "tp", "ep", "dp"):
            group.setdefault(name, (0, 1))
        tp, ep, dp = group["tp"], group["ep"], group["dp"]
        attention, moe = tp, None
        if kind == "sglang" and dp[1] > 1:  # DP attention is within the tensor-parallel group
            size = self.divide("tp", tp[1], dp[1])
            attention = (tp[0] % size, size)
        if "moe_tp" not in group:
            size = self.divide("tp", tp[1], ep[1])
            moe = (tp[0] % size, size)
        for name, value in (("attn_tp", attention), ("moe_tp", moe), ("mlp_tp", tp),
                            ("shared_tp", tp), ("head_tp", tp)):
            group.setdefault(name, value)
        group.setdefault("embed_tp", group["attn_tp"])
        for name, (rank, size) in group.items():
            if not 0 <= rank < size:
                raise Refused(f"{name}: rank {rank} of {size}")
            setattr(self, name, (rank, size))

    @staticmethod
    def divide(name, a, b):
        if a % b:
            raise Refused(f"{name}: {a} does not divide by {b}")
        return a // b


def stage(kind, layers, rank, size):
    """(first, end) of the layers of a pipeline stage, as the engines split them."""
    least, rest = divmod(layers, size)
    counts = [least] * size
    for i in range(rest):
        counts[-1 - i if kind == "sglang" else -2 - i] += 1  # the last ones; all but the last
    return sum(counts[:rank]), sum(counts[:rank + 1])


class Rank:
    """An engine rank while it loads. `parameters`: name -> Tensor; `aliases`: name -> name of the
    parameter whose storage it is."""

    def __init__(self, config, tensors, kind, placement):
        self.config, self.tensors, self.kind = config, tensors, kind
        self.place = Place(kind, placement)
        self.parameters, self.aliases = {}, {}
        dtype = config.get("torch_dtype") or config.get("dtype") or "bfloat16"
        self.dtype = self.place.dtype or {
            "bfloat16": "BF16", "float16": "F16", "float32": "F32"}[dtype]
        quantisation = config.get("quantization_config") or {}
        self.stored_block = quantisation.get("weight_block_size")
        self.unconverted = set(quantisation.get("modules_to_not_convert") or ())
        self.first, self.end = self.place.layers or stage(
            kind, config["num_hidden_layers"], *self.place.pp)
        self.is_first = self.place.pp[0] == 0
        self.is_last = self.place.pp[0] == self.place.pp[1] - 1

    # ---- the checkpoint ----

    def has(self, name):
        return name in self.tensors

    def stored(self, name):
        if name not in self.tensors:
            raise Refused(f"{name}: not in the checkpoint")
        found = from_bytes(*self.tensors[name])
        if found.dtype == "F8_E4M3":
            found.scale = from_bytes(*self.tensors[name + "_scale_inv"])
        return found

    def expert(self, layer, expert, which):
        """A matrix of one expert. Transformers 5 packs those of all experts into one tensor."""
        one = f"{layer}.experts.{expert}.{which}_proj.weight"
        if self.has(one):
            return one, self.stored(one)
        packed = f"{layer}.experts." + ("down_proj" if which == "down" else "gate_up_proj")
        all_of_them = self.stored(packed)
        if all_of_them.scale:
            raise Refused(f"{packed}: packed FP8 experts")
        matrix = all_of_them.data[expert]
        half = matrix.shape[0] // 2
        part = {"gate": np.s_[:half], "up": np.s_[half:], "down": np.s_[:]}[which]
        return one, Tensor(all_of_them.dtype, matrix[part])

    def plain(self, tensor, dtype=None):
        """In the engine's ordinary format (or another, for what it always keeps in that one)."""
        dtype = dtype or self.dtype
        if tensor.scale:
            x = dequantise(tensor.data, tensor.scale.data, self.stored_block)
            return Tensor(dtype, cast(x, "F32", dtype))
        return Tensor(dtype, cast(tensor.data, tensor.dtype, dtype))

    def as_held(self, name, tensor):
        """A linear layer's matrix, quantised where this engine does that."""
        block = self.place.fp8
        if not block or name.removesuffix(".weight") in self.unconverted:
            if tensor.scale:
                raise Refused(f"{name}: FP8 in the checkpoint, {self.dtype} in the engine")
            return self.plain(tensor)
        if tensor.scale:
            if tuple(block) != tuple(self.stored_block):
                raise Refused(f"{name}: blocks {self.stored_block} there, {block} in the engine")
            return tensor
        values, scales = quantise(
            to_f32(tensor.data, tensor.dtype), block, self.place.scale_format, name)
        return Tensor("F8_E4M3", values, Tensor("F32", scales))

    # ---- parts of a tensor ----

    def cut(self, name, tensor, axis, first, count):
        """`count` rows (axis 0) or columns (axis 1); of the scales those of the same blocks."""
        if first + count > tensor.data.shape[axis]:
            raise Refused(f"{name}: {first} + {count} is past its end, {tensor.data.shape[axis]}")
        part = Tensor(tensor.dtype, self.slice(tensor.data, axis, first, count))
        if tensor.scale:
            block = self.place.fp8[axis]
            if count != tensor.data.shape[axis] and (first % block or count % block):
                raise Refused(f"{name}: {count} from {first} on cuts a block of {block}")
            part.scale = Tensor("F32", self.slice(
                tensor.scale.data, axis, first // block, -(-count // block)))
        return part

    @staticmethod
    def slice(data, axis, first, count):
        return data[(np.s_[:],) * axis + (np.s_[first:first + count],)]

    def shard(self, name, tensor, axis, group, unit=1):
        """This rank's equal part, in whole units (heads)."""
        rank, size = group
        length = tensor.data.shape[axis]
        if length % (size * unit):
            raise Refused(f"{name}: {length // unit} units of {unit} do not divide by {size}")
        return self.cut(name, tensor, axis, rank * (length // size), length // size)

    def kv_shard(self, name, tensor, heads, head_dim):
        """Key or value heads. With more ranks than heads, size / heads ranks in a row share one."""
        rank, size = self.place.attn_tp
        if size <= heads:
            return self.shard(name, tensor, 0, (rank, size), head_dim)
        if size % heads:
            raise Refused(f"{name}: {heads} heads for {size} ranks")
        return self.cut(name, tensor, 0, rank // (size // heads) * head_dim, head_dim)

    def stacked(self, name, parts):
        """Parts of a fused parameter, one below the other."""
        if len({part.dtype for part in parts}) != 1:
            raise Refused(f"{name}: parts of different formats")
        whole = Tensor(parts[0].dtype, np.concatenate([part.data for part in parts]))
        if parts[0].scale:
            for part in parts[:-1]:
                if part.data.shape[0] % self.place.fp8[0]:
                    raise Refused(f"{name}: a part of {part.data.shape[0]} rows ends in a block")
            whole.scale = Tensor("F32", np.concatenate([part.scale.data for part in parts]))
        return whole

    # ---- layers ----

    def put(self, name, tensor):
        if name in self.parameters:
            raise Refused(f"{name}: loaded twice")
        self.parameters[name] = Tensor(tensor.dtype, tensor.data)
        if tensor.scale:
            self.parameters[name + "_scale_inv"] = tensor.scale

    def copy(self, name, source, dtype=None):
        """Every rank has all of it, never quantised: norms, routers, some biases."""
        self.put(name, self.plain(self.stored(source), dtype))

    def column_parallel(self, name, sources, group, unit=1):
        """Output features split over ranks, those of each source on its own."""
        parts = []
        for source in sources:
            tensor = self.as_held(source, self.stored(source))
            parts.append(self.shard(source, tensor, 0, group, unit))
        self.put(name, self.stacked(name, parts))

    def row_parallel(self, name, source, group, unit=1):
        """Input features split over ranks."""
        tensor = self.as_held(source, self.stored(source))
        self.put(name, self.shard(source, tensor, 1, group, unit))

    def replicated(self, name, sources):
        parts = [self.as_held(source, self.stored(source)) for source in sources]
        self.put(name, self.stacked(name, parts))

    def vocabulary(self, name, source, group):
        """Rows of an embedding or head; the vocabulary is padded, with zeros."""
        rank, size = group
        whole = self.plain(self.stored(source))
        unit = 64
        if -(-whole.data.shape[0] // unit) * unit % size:
            if self.kind != "sglang":
                raise Refused(f"{source}: the padded vocabulary does not divide by {size}")
            unit *= size
        padded = np.zeros((-(-whole.data.shape[0] // unit) * unit, whole.data.shape[1]),
                          whole.data.dtype)
        padded[:whole.data.shape[0]] = whole.data
        count = padded.shape[0] // size
        self.put(name, Tensor(whole.dtype, padded[rank * count:(rank + 1) * count]))

    def local_experts(self, layer, experts):
        """The logical expert in each of this rank's slots."""
        rank, size = self.place.ep
        chosen = self.place.expert_map
        if chosen is None:
            count = Place.divide("experts", experts, size)
            return list(range(rank * count, (rank + 1) * count))
        slots = chosen.get(layer, ()) if isinstance(chosen, dict) else chosen
        if not slots:
            raise Refused(f"expert map: nothing for layer {layer}")
        if not all(0 <= expert < experts for expert in slots):
            raise Refused(f"expert map of layer {layer}: not below {experts}: {slots}")
        return list(slots)

    # ---- results ----

    def result(self):
        """name -> (dtype, shape, bytes), aliases too"""
        held = {name: (tensor.dtype, tuple(int(n) for n in tensor.data.shape),
                       np.ascontiguousarray(tensor.data).tobytes())
                for name, tensor in self.parameters.items()}
        held.update({name: held[other] for name, other in self.aliases.items()})
        return held


def digest_of(data):
    return hashlib.sha256(data).hexdigest()
