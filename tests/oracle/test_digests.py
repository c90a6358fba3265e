# SPDX-License-Identifier: Apache-2.0
"""The oracle itself: it must notice what it is there for."""
import hashlib
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "system"))

import forge


class Oracle(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="sw-oracle-")
        self.addCleanup(self.folder.cleanup)
        self.data = {"a": b"123456", "b": b"", "long name": bytes(3 << 20)}
        forge.write_file(os.path.join(self.folder.name, "model.safetensors"), {
            name: ["U8", [len(data)], data] for name, data in self.data.items()})
        self.digests = {name: hashlib.sha256(data).hexdigest() for name, data in self.data.items()}

    def run_with(self, text, *options):
        path = os.path.join(self.folder.name, "engine")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return subprocess.run(
            [sys.executable, os.path.join(HERE, "digests.py"), *options, self.folder.name, path],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

    def lines(self, digests, end="end 7\n"):
        return "".join(f"{value} {name}\n" for name, value in digests.items()) + end

    def refused(self, text, word, *options):
        result = self.run_with(text, *options)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(word, result.stdout)

    def test_equal(self):
        result = self.run_with(self.lines(self.digests), "--version=7")
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_differs(self):
        self.digests["a"] = self.digests["b"]
        self.refused(self.lines(self.digests), "differs: a:")

    def test_missing(self):
        del self.digests["long name"]
        self.refused(self.lines(self.digests), "missing: long name")

    def test_surplus(self):
        self.digests["c"] = self.digests["b"]
        self.refused(self.lines(self.digests), "surplus: c")

    def test_other_version(self):
        self.refused(self.lines(self.digests), "version: must be 8, is 7", "--version=8")

    def test_not_whole(self):
        self.refused(self.lines(self.digests, end=""), "no `end` line")

    def test_nonsense(self):
        self.refused("nonsense\nend 7\n", "no digest line")


if __name__ == "__main__":
    unittest.main()
