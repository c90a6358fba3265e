# SPDX-License-Identifier: Apache-2.0
"""A checkpoint reaches the engine, byte for byte; a bad one leaves the old version whole."""
import json
import os
import struct
import unittest

import forge
from harness import ClusterTest

EMBED = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
NORM = "model.norm.weight"
QUERY = "model.layers.0.self_attn.q_proj.weight"


class Push(ClusterTest):
    def start(self, world=2, engine_options=None, **options):
        c = self.cluster
        self.one = c.make_checkpoint("one", 1)
        self.two = c.make_checkpoint("two", 2)
        c.start_trainerd(**options)
        c.start_inferd()
        self.engines = c.start_world(self.one, world, **(engine_options or {}))

    def check(self, checkpoint, version):
        for engine in self.engines:
            engine.wait_live(version)
            self.cluster.check_engine(engine, checkpoint, version)

    def two_versions(self, transport):
        self.start(transport=transport, engine_options={"region_bytes": "64k"})
        self.cluster.push(self.one)
        self.check(self.one, 1)
        out = self.cluster.push(self.two).output()
        self.check(self.two, 2)
        self.assertRegex(out, rf"(?m)^engine +yes +2 +{transport} ")
        for engine in self.engines: # pause, prepare, write, post, activate, resume: in this order
            steps = [line.split()[0] for line in engine.lines
                     if line.split()[0] in ("paused", "prepared", "post", "activated", "live")]
            self.assertEqual(steps, 2 * ["paused", "prepared", "post", "activated", "live"])

    def test_tcp(self):
        self.two_versions("tcp")

    def test_local(self):
        self.two_versions("local")

    def test_auto_is_local_on_one_host(self):
        self.start()
        self.assertRegex(self.cluster.push(self.one).output(), r"(?m)^engine +yes +1 +local ")
        self.check(self.one, 1)

    def test_stage_then_publish(self):
        c = self.cluster
        self.start()
        c.push(self.one)
        self.check(self.one, 1)
        c.shardctl("stage", self.two, version=7)
        self.check(self.one, 1) # engines generate on
        c.shardctl("publish")
        self.check(self.two, 7)
        c.shardctl("publish", version=7) # the same publish again
        c.shardctl("publish", version=99, expect=1)
        self.assertIn("live version 7", c.shardctl("live").output())
        self.assertRegex(c.shardctl("engines").output(), r"(?m)^engine +1 +serving +7 ")

    def test_versions_only_grow(self):
        c = self.cluster
        self.start()
        c.push(self.one, version=5)
        out = c.push(self.two, version=5, expect=1).output()
        self.assertRegex(out, r"\b5\b")
        out = c.push(self.two, version=4, expect=1).output()
        self.assertRegex(out, r"\b4\b.*\b5\b|\b5\b.*\b4\b")
        self.check(self.one, 5)
        c.push(self.two)
        self.check(self.two, 6)

    def test_tensor_that_no_engine_wants(self):
        c = self.cluster
        self.start()
        more = forge.Checkpoint(self.two, os.path.join(c.folder, "more"))
        more.add("extra.weight", ["F32", [2, 2], struct.pack("<4f", 1, 2, 3, 4)])
        out = c.push(more.folder, strict=True, expect=1).output()
        self.assertIn("extra.weight", out)
        out = c.push(more.folder).output()
        self.assertIn("1 of 26 tensors are wanted by no engine: extra.weight", out)
        version = max(int(line.split()[1].split("=")[1]) for line in self.engines[0].lines
                      if line.startswith("live "))
        self.check(self.two, version)

    def test_daemons_not_running(self):
        c = self.cluster
        one = c.make_checkpoint("one", 1)
        out = c.push(one, expect=1).output()
        self.assertIn("is trainerd running? tried " + c.trainerd_socket, out)
        out = c.shardctl("status", socket=c.inferd_socket, expect=1).output()
        self.assertIn(c.inferd_socket, out)


class BadCheckpoint(ClusterTest):
    """Each: the push fails and says why; the engine holds the old version; the next push works."""

    def setUp(self):
        super().setUp()
        c = self.cluster
        self.good = c.make_checkpoint("good", 1)
        self.next = c.make_checkpoint("next", 2)
        self.bad = forge.Checkpoint(self.next, os.path.join(c.folder, "bad"))
        c.start_trainerd()
        c.start_inferd()
        self.engine = c.start_engine(self.good)
        c.push(self.good, version=1)

    def refused(self, *texts):
        c = self.cluster
        out = c.push(self.bad.folder, expect=1).output()
        for text in texts:
            self.assertIn(text, out)
        c.check_engine(self.engine, self.good, 1)
        self.assertTrue(c.trainerd.running() and c.inferd.running())
        mark = self.engine.mark()
        c.push(self.next, version=50)
        self.engine.wait_live(50, since=mark)
        c.check_engine(self.engine, self.next, 50)

    def test_truncated(self):
        path = self.bad.file_of(NORM)
        os.truncate(path, os.path.getsize(path) - 1)
        self.refused(os.path.basename(path), "truncated")

    def test_empty_file(self):
        os.truncate(self.bad.file_of(NORM), 0)
        self.refused("truncated: 0 bytes")

    def test_header_longer_than_file(self):
        forge.write_raw(self.bad.file_of(NORM), {}, b"", length=1 << 20)
        self.refused("a header of 1048576 bytes in a file of 10 bytes")

    def test_no_json(self):
        forge.write_raw(self.bad.file_of(NORM), b"{nonsense", b"")
        self.refused("no valid JSON")

    def test_overlap(self):
        path = self.bad.file_of(NORM)
        _, tensors = forge.read_file(path)
        header = forge.header_of(tensors)
        data = b"".join(t[2] for t in tensors.values())
        size = len(tensors[NORM][2])
        header[NORM]["data_offsets"] = [0, size]
        forge.write_raw(path, header, data)
        self.refused(NORM)

    def test_hole(self):
        path = self.bad.file_of(NORM)
        _, tensors = forge.read_file(path)
        forge.write_raw(path, forge.header_of(tensors),
                        b"".join(t[2] for t in tensors.values()) + b"xyz")
        self.refused("3 bytes after the last tensor")

    def test_lying_shape(self):
        path = self.bad.file_of(NORM)
        _, tensors = forge.read_file(path)
        header = forge.header_of(tensors)
        header[NORM]["shape"] = [1000000]
        forge.write_raw(path, header, b"".join(t[2] for t in tensors.values()))
        self.refused(NORM, "need 2000000 bytes")

    def test_unknown_dtype(self):
        path = self.bad.file_of(NORM)
        _, tensors = forge.read_file(path)
        header = forge.header_of(tensors)
        header[NORM]["dtype"] = "BF17"
        forge.write_raw(path, header, b"".join(t[2] for t in tensors.values()))
        self.refused(NORM, "unknown dtype \"BF17\"")

    def test_duplicate_tensor(self):
        path = self.bad.file_of(NORM)
        _, tensors = forge.read_file(path)
        text = json.dumps(forge.header_of(tensors))
        entry = json.dumps({NORM: forge.header_of(tensors)[NORM]})[1:-1]
        forge.write_raw(path, (text[:-1] + ", " + entry + "}").encode(),
                        b"".join(t[2] for t in tensors.values()))
        self.refused("duplicate")

    def test_missing_file(self):
        path = self.bad.file_of(NORM)
        os.unlink(path)
        self.refused(os.path.basename(path), "missing")

    def test_index_lies(self):
        index = self.bad.index
        index["weight_map"]["ghost.weight"] = os.path.basename(self.bad.file_of(NORM))
        self.bad.index = index
        self.refused("ghost.weight")

    def test_no_folder(self):
        self.bad.folder += "-not-there"
        self.refused("-not-there")

    def test_tensor_that_the_engine_has(self):
        self.bad.remove(QUERY)
        self.refused(QUERY)

    def test_other_dtype(self):
        def change(entry):
            entry[0] = "F16"
        self.bad.change(QUERY, change)
        self.refused(QUERY)

    def test_other_shape(self):
        def change(entry):
            entry[1] = [entry[1][1] * 2, entry[1][0] // 2]
        self.bad.change(QUERY, change)
        self.refused(QUERY)

    def test_tied_tensors_that_differ(self):
        def change(entry):
            entry[2] = bytes([entry[2][0] ^ 1]) + entry[2][1:]
        self.bad.change(HEAD, change)
        self.refused(HEAD, EMBED)


if __name__ == "__main__":
    unittest.main(verbosity=2)
