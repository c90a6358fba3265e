# SPDX-License-Identifier: Apache-2.0
"""Checkpoints for tests: read, changed and written at will, right or wrong."""
import json
import os
import shutil
import struct


def read_file(path):
    """(metadata, name -> [dtype, shape, bytes]) of a small safetensors file."""
    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(length))
        data = f.read()
    metadata = header.pop("__metadata__", None)
    return metadata, {
        name: [entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])]]
        for name, entry in header.items()
    }


def header_of(tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    return header


def write_raw(path, header, data, length=None):
    """`header` is an object or bytes; `length` is what the file says, if it is to lie."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text) if length is None else length) + text + data)


def write_file(path, tensors):
    write_raw(path, header_of(tensors), b"".join(data for _, _, data in tensors.values()))


class Checkpoint:
    """A copy of a checkpoint folder, to be damaged."""

    def __init__(self, source, folder):
        shutil.copytree(source, folder)
        self.folder = folder

    def path(self, name):
        return os.path.join(self.folder, name)

    @property
    def index(self):
        with open(self.path("model.safetensors.index.json"), encoding="utf-8") as f:
            return json.load(f)

    @index.setter
    def index(self, value):
        with open(self.path("model.safetensors.index.json"), "w", encoding="utf-8") as f:
            json.dump(value, f)

    def file_of(self, tensor):
        return self.path(self.index["weight_map"][tensor])

    def change(self, tensor, how):
        """how(entry): changes [dtype, shape, bytes] in place."""
        path = self.file_of(tensor)
        _, tensors = read_file(path)
        how(tensors[tensor])
        write_file(path, tensors)

    def remove(self, tensor):
        path = self.file_of(tensor)
        _, tensors = read_file(path)
        del tensors[tensor]
        write_file(path, tensors)
        index = self.index
        del index["weight_map"][tensor]
        self.index = index

    def add(self, tensor, entry):
        index = self.index
        file = sorted(index["weight_map"].values())[0]
        _, tensors = read_file(self.path(file))
        tensors[tensor] = entry
        write_file(self.path(file), tensors)
        index["weight_map"][tensor] = file
        self.index = index
