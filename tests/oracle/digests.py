#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What must an engine rank hold? Computed from the checkpoint alone.

    digests.py CHECKPOINT                 print "sha256 name" for each parameter
    digests.py CHECKPOINT ENGINE_FILE...  compare with what engine ranks wrote ("sha256 name" lines,
                                          then "end VERSION"); exit 0 when equal, 1 when not

Python's standard library only, and nothing of Shardwire: its own reader of safetensors, its own
hashing. Layout: identity (every tensor whole, in every rank).
"""
import argparse
import glob
import hashlib
import json
import os
import struct
import sys

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}
STEP = 1 << 20


class Bad(Exception):
    pass


def unique(pairs):
    result = dict(pairs)
    if len(result) != len(pairs):
        raise Bad("duplicate keys in JSON")
    return result


def read_header(path):
    """name -> (dtype, shape, offset in the file, bytes)"""
    size = os.path.getsize(path)
    with open(path, "rb") as f:
        first = f.read(8)
        if len(first) != 8:
            raise Bad(f"{path}: too short")
        (length,) = struct.unpack("<Q", first)
        if length > size - 8:
            raise Bad(f"{path}: header of {length} bytes in a file of {size}")
        header = json.loads(f.read(length), object_pairs_hook=unique)
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        bits = BITS[entry["dtype"]]
        for dimension in entry["shape"]:
            bits *= dimension
        if bits % 8 or bits // 8 != end - begin or end > size - 8 - length:
            raise Bad(f"{path}: {name}: offsets {begin}, {end} do not fit")
        tensors[name] = (entry["dtype"], entry["shape"], 8 + length + begin, end - begin)
    return tensors


def read_checkpoint(folder):
    """name -> (path, dtype, shape, offset, bytes)"""
    single = os.path.join(folder, "model.safetensors")
    indexes = glob.glob(os.path.join(glob.escape(folder), "*.safetensors.index.json"))
    files = glob.glob(os.path.join(glob.escape(folder), "*.safetensors"))
    if os.path.exists(single) or (not indexes and len(files) == 1):
        path = single if os.path.exists(single) else files[0]
        return {name: (path, *rest) for name, rest in read_header(path).items()}
    preferred = os.path.join(folder, "model.safetensors.index.json")
    if preferred not in indexes and len(indexes) != 1:
        raise Bad(f"{folder}: no checkpoint")
    with open(preferred if preferred in indexes else indexes[0], encoding="utf-8") as f:
        weight_map = json.load(f, object_pairs_hook=unique)["weight_map"]
    headers = {name: read_header(os.path.join(folder, name)) for name in set(weight_map.values())}
    return {name: (os.path.join(folder, file), *headers[file][name])
            for name, file in weight_map.items()}


def digest(path, offset, size):
    total = hashlib.sha256()
    with open(path, "rb") as f:
        f.seek(offset)
        while size:
            block = f.read(min(size, STEP))
            if not block:
                raise Bad(f"{path}: ends too early")
            total.update(block)
            size -= len(block)
    return total.hexdigest()


def expected_digests(folder):
    """name -> hexadecimal SHA-256"""
    return {name: digest(path, offset, size)
            for name, (path, _, _, offset, size) in read_checkpoint(folder).items()}


def read_engine_file(path):
    """(name -> digest, version)"""
    digests, version = {}, None
    with open(path, encoding="utf-8") as f:
        for line in f:
            if version is not None:
                raise Bad(f"{path}: lines after `end`")
            word, _, rest = line.rstrip("\n").partition(" ")
            if word == "end":
                version = int(rest)
            elif len(word) != 64 or not rest:
                raise Bad(f"{path}: no digest line: {line!r}")
            elif rest in digests:
                raise Bad(f"{path}: {rest} twice")
            else:
                digests[rest] = word
    if version is None:
        raise Bad(f"{path}: no `end` line: not whole")
    return digests, version


def compare(expected, held):
    """The differences, as lines."""
    lines = [f"missing: {name}" for name in sorted(expected.keys() - held.keys())]
    lines += [f"surplus: {name}" for name in sorted(held.keys() - expected.keys())]
    lines += [f"differs: {name}: must be {expected[name]}, is {held[name]}"
              for name in sorted(expected.keys() & held.keys()) if expected[name] != held[name]]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("checkpoint")
    parser.add_argument("engine_file", nargs="*", help="digests that engine ranks wrote")
    parser.add_argument("--version", type=int, help="the version that the files must be of")
    arguments = parser.parse_args()
    expected = expected_digests(arguments.checkpoint)
    if not arguments.engine_file:
        for name in sorted(expected):
            print(expected[name], name)
        return 0
    failed = False
    for path in arguments.engine_file:
        held, version = read_engine_file(path)
        lines = compare(expected, held)
        if arguments.version is not None and version != arguments.version:
            lines.append(f"version: must be {arguments.version}, is {version}")
        for line in lines:
            print(f"{path}: {line}")
        failed = failed or bool(lines)
        if not lines:
            print(f"{path}: {len(expected)} parameters equal, version {version}")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Bad, OSError, ValueError, KeyError, TypeError) as why:
        print(f"digests.py: {type(why).__name__}: {why}", file=sys.stderr)
        sys.exit(1)
