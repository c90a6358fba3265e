#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults while a version is made of what several trainer ranks hold, FP8 blocks in common above all:
whoever is killed, stopped or gives up at whatever moment, the others are told by name, engines keep
the old version, and the next version goes through, right to the last byte by the NumPy oracle.

    test_layout_faults.py [CLASS]

Needs NumPy, like test_layouts.py.
"""
import os
import signal
import unittest

from layout_case import LAYOUTS, Engine, LayoutCase, formats, make_small, np

KILL, STOP = signal.SIGKILL, signal.SIGSTOP
FP8 = Engine(tp=2, fp8=(64, 64))
GUARDED = "model.layers.1.mlp.down_proj.weight"
Q = "model.layers.0.self_attn.q_proj.weight"
NORM = "model.norm.weight"


class Exchange(LayoutCase):
    """FP8 blocks whose rows lie in three trainer ranks."""

    options = {"stage": "6s"}

    def setUp(self):
        super().setUp()
        self.start()
        self.start_engine("qwen3", FP8)
        self.train()

    def staging(self):
        version, folder = self.next()
        trainers = self.ranks(folder, 3)
        self.all(trainers, "declare", f"begin {version}")
        return version, trainers

    def to_puts(self, trainers):
        """Rank 1 has put everything; the others wait for its maxima."""
        self.all(trainers, "put-rest")

    def to_maxima(self, trainers):
        """Rank 1 has sent its maxima, and nobody else has."""
        self.all(trainers, "put-rest")
        self.assertIn("maxima", self.ask(trainers[1], "end 300", kind="error"))

    def to_reduced(self, trainers):
        """Rank 1 has the maxima of all, and is about to quantise."""
        mark = trainers[1].mark()
        self.ask(trainers[1], "guard " + GUARDED)
        self.all(trainers, "put-rest")
        for t in trainers:
            t.say("end 0")
        trainers[1].wait_line("^holding$", since=mark)

    def strike(self, to, how):
        """What the others are told; the old version lives on."""
        version, trainers = self.staging()
        others = trainers[0], trainers[2]
        marks = [t.mark() for t in others]
        daemon, host = self.cluster.trainerd.mark(), self.cluster.inferd.mark()
        to(trainers)
        trainers[1].signal(how)
        if to != self.to_reduced:
            for t in others:
                t.say("end 0")
        for t, m in zip(others, marks):
            self.assertRegex(self.answer(t, "end", m, "error"), r"rank 1\b")
        self.one_error(self.cluster.trainerd, daemon, r"rank 1\b")
        self.no_error(self.cluster.inferd, host)
        self.check(version - 1, wait=False)
        return trainers

    def case(self, to, how):
        trainers = self.strike(to, how)
        if how == KILL:
            trainers[1].kill()
        self.close([trainers[0], trainers[2]])
        self.train()
        return trainers[1]

    def test_killed(self):
        for to in (self.to_puts, self.to_maxima, self.to_reduced):
            with self.subTest(at=to.__name__):
                self.case(to, KILL)

    def test_stopped(self):
        """It wakes when the buffer that it writes into has been replaced."""
        late = []
        for to in (self.to_puts, self.to_maxima, self.to_reduced):
            with self.subTest(at=to.__name__):
                late.append(self.case(to, STOP))
        for i, t in enumerate(late):
            mark = t.mark()
            t.signal(signal.SIGCONT)
            t.say("go" if i == 2 else "end 1000")
            t.wait_line("^error end", since=mark)
            t.end()
        self.check(self.version, wait=False)
        self.train()

    def test_never_ends(self):
        """The stage deadline names who has not ended; puts were right."""
        version, trainers = self.staging()
        mark = self.cluster.trainerd.mark()
        self.all(trainers, "put-rest")
        for said in self.all([trainers[0], trainers[2]], "end 0", kind="error"):
            self.assertRegex(said, r"rank 1\b")
        self.one_error(self.cluster.trainerd, mark, r"rank 1\b")
        self.assertRegex(self.ask(trainers[1], "end 0", kind="error"), "version")
        self.close([trainers[0], trainers[2]])
        self.check(version - 1, wait=False)
        self.train()

    def test_abort_in_between(self):
        for who in (0, 1): # the one that waits, the one that is waited for
            with self.subTest(who=who):
                version, trainers = self.staging()
                mark = self.cluster.trainerd.mark()
                self.to_maxima(trainers)
                others = [t for i, t in enumerate(trainers) if i != who]
                marks = [t.mark() for t in others]
                self.ask(trainers[who], "abort")
                for t, m in zip(others, marks):
                    t.say("end 0")
                    self.assertIn("the test says so", self.answer(t, "end", m, "error"))
                self.one_error(self.cluster.trainerd, mark, "the test says so")
                self.close(trainers)
                self.check(version - 1, wait=False)
                self.train()

    def test_end_again_after_a_timeout(self):
        version, trainers = self.staging()
        self.to_maxima(trainers)
        for t in trainers:
            self.assertRegex(self.ask(t, "end 1", kind=None), "maxima|end|ok")
        self.all(trainers, "end 0")
        self.ask(trainers[2], f"publish {version}", f"wait {version} 0")
        self.close(trainers)
        self.check(version)

    def test_daemon_killed(self):
        for to in (self.to_puts, self.to_maxima, self.to_reduced):
            with self.subTest(at=to.__name__):
                _, trainers = self.staging()
                to(trainers)
                self.cluster.trainerd.kill()
                self.cluster.start_trainerd(layouts=LAYOUTS, **self.options)
                if to == self.to_reduced:
                    trainers[1].say("go")
                    self.answer(trainers[1], "end", 0, "error")
                for t in trainers:
                    self.ask(t, "end 100", kind="error")
                self.close(trainers)
                self.train()

    def test_other_world(self):
        """Another number of ranks, other rows, and back: every block is shared anew."""
        for world in (2, 5, 1, 3):
            self.train(world)

    def test_two_hosts(self):
        """Blocks that hosts share are not done yet, and said so; whole blocks go."""
        c = self.cluster
        second, state = os.path.join(c.folder, "second.sock"), os.path.join(c.folder, "second")
        os.mkdir(state)
        c.start_second_trainerd(second, state_dir=state, port=0, layouts=LAYOUTS,
                                coordinator=f"127.0.0.1:{c.port}")
        version, folder = self.next()
        trainers = self.ranks(folder, 3, paths=(None, second))
        self.all(trainers, "declare")
        for said in self.all(trainers, f"begin {version}", kind="error"):
            self.assertRegex(said, r"\d+ FP8 blocks lie in trainer ranks of several hosts")
            self.assertIn("rows in multiples of the block size", said)
        self.close(trainers)
        trainers = self.ranks(folder, 2, paths=(None, second)) # halves: multiples of 64 rows
        self.all(trainers, "declare", f"begin {version}", "put-rest", "end 0")
        self.ask(trainers[1], f"publish {version}", f"wait {version} 0")
        self.close(trainers)
        self.check(version)

    def test_missing_tensor(self):
        """end names what is missing, in the rank and in who waits for it; then it goes on."""
        version, trainers = self.staging()
        self.all([trainers[0], trainers[2]], "put-rest")
        self.ask(trainers[1], "put " + Q)
        self.assertRegex(self.ask(trainers[1], "end 0", kind="error"), "missing: model")
        self.ask(trainers[1], "put-rest")
        self.all(trainers, "end 0")
        self.ask(trainers[1], f"publish {version}", f"wait {version} 0")
        self.close(trainers)
        self.check(version)


class Values(LayoutCase):
    """Numbers that must not become weights."""

    def spoiled(self, t, name, index, bits, where):
        said = self.ask(t, f"spoil {name} {index} {bits}", kind="error")
        self.assertIn(name, said)
        self.assertIn(where, said)
        self.assertRegex(said, "NaN|inf")
        return said

    def test_fp8(self):
        """Whole blocks, and blocks in common: refused by name and place; the right value goes."""
        self.start()
        self.start_engine("qwen3", FP8)
        for world in (1, 3):
            with self.subTest(world=world):
                self.train(world)
                version, folder = self.next()
                trainers = self.ranks(folder, world)
                self.all(trainers, "declare", f"begin {version}")
                marks = self.cluster.trainerd.mark(), self.cluster.inferd.mark()
                for bits in ("7fc0", "7f80", "ff80"):
                    self.spoiled(trainers[-1], Q, 256 * 3 + 5, bits, "[3, 5]")
                self.no_error(self.cluster.trainerd, marks[0])
                self.no_error(self.cluster.inferd, marks[1])
                self.all(trainers, "put-rest", "end 0")
                self.ask(trainers[0], f"publish {version}", f"wait {version} 0")
                self.close(trainers)
                self.check(version)

    def test_fp8_given_up(self):
        self.start()
        self.start_engine("qwen3", FP8)
        self.train()
        version, folder = self.next()
        trainers = self.ranks(folder, 3)
        self.all(trainers, "declare", f"begin {version}", "put " + NORM)
        self.spoiled(trainers[1], Q, 0, "7fc0", "[0, 0]")
        self.assertRegex(self.ask(trainers[1], "end 0", kind="error"), "missing")
        self.ask(trainers[1], "abort")
        for t in (trainers[0], trainers[2]):
            self.ask(t, "put-rest", kind=None) # hears of it, or not yet
            self.assertIn("the test says so", self.ask(t, "end 0", kind="error"))
        self.close(trainers)
        self.check(version - 1, wait=False)
        self.train()

    def test_cast_down(self):
        """F32 sources and BF16 engines."""
        self.start()
        self.start_engine("qwen3", Engine(tp=2))

        def next_version():
            self.version += 1
            config = self.config("qwen3", torch_dtype="float32")
            tensors = make_small.random_tensors(config, seed=self.version)
            held = {name: ("BF16", shape, formats.f32_to_bf16(
                np.frombuffer(data, np.float32)).tobytes())
                for name, (_, shape, data) in tensors.items()}
            self.content[self.version] = self.config("qwen3"), held
            return self.version, self.checkpoint(config, tensors)

        for bits in ("7fc00000", "7f800000", "ff800000"):
            with self.subTest(bits=bits):
                version, folder = next_version()
                trainers = self.ranks(folder, 2)
                self.all(trainers, "declare", f"begin {version}")
                self.spoiled(trainers[1], NORM, 7, bits, "[7]")
                self.all(trainers, "put-rest", "end 0")
                self.ask(trainers[0], f"publish {version}", f"wait {version} 0")
                self.close(trainers)
                self.check(version)

    def test_copied(self):
        """What is copied is the trainer's business: no number is looked at."""
        self.start()
        self.start_engine("qwen3", FP8)
        config = self.config("qwen3")
        tensors = make_small.random_tensors(config, seed=9)
        dtype, shape, data = tensors[NORM]
        tensors[NORM] = dtype, shape, b"\xc0\x7f" + data[2:]
        self.train(tensors=tensors)


if __name__ == "__main__":
    unittest.main(verbosity=2)
