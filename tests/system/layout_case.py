# SPDX-License-Identifier: Apache-2.0
"""What tests of layouts share: small models with random values, trainer ranks that do what they are
told, engines that say what a test wants, and the NumPy oracle's judgement."""
import json
import os

from harness import CONFIGS, TIMEOUT, ClusterTest, Process, binary
from test_layouts import LAYOUTS, Engine # and it finds NumPy and the oracle

import digests
import engine_weights
import formats
import make_small
import numpy as np

ERROR = " error: "


class ScriptedEngine(Process):
    """scripted_engine.c: it declares whatever a test says."""

    def __init__(self, cluster, name):
        command = [binary("scripted-engine"), cluster.inferd_socket, cluster.group, name]
        super().__init__(name, command, cluster.folder)
        self.engine = name

    def register(self):
        """What came of it: "registered" or "refused: TEXT"."""
        self.say("register")
        return self.wait_line("^(registered|refused: .*)$").group(1)


class LayoutCase(ClusterTest):
    """A group with layouts; self.content is what each version holds: (config, tensors)."""

    options = {}

    def setUp(self):
        super().setUp()
        self.version = 0
        self.content = {}
        self.engines = [] # (Engine, its rank processes) that are to hold every live version

    def start(self, **options):
        c = self.cluster
        c.start_trainerd(**{"layouts": LAYOUTS, **self.options, **options})
        c.start_inferd()

    # ---- models ----

    @staticmethod
    def config(family, **changes):
        with open(os.path.join(CONFIGS, "small", family + ".json"), encoding="utf-8") as f:
            return {**json.load(f), **changes}

    def checkpoint(self, config, tensors, name=None):
        folder = os.path.join(self.cluster.folder, name or f"checkpoint-{self.version}")
        make_small.write_checkpoint(folder, config, tensors)
        return folder

    def next(self, family="qwen3", style="split", tensors=None, **changes):
        """The next version: its number and folder."""
        config = self.config(family, **changes)
        self.version += 1
        if tensors is None:
            tensors = make_small.random_tensors(config, style, seed=self.version)
        self.content[self.version] = config, tensors
        return self.version, self.checkpoint(config, tensors)

    # ---- trainers ----

    def ranks(self, folder, world, how=("rows",), paths=(None,)):
        """Trainer ranks that have said what they hold; none has declared it. `paths`: sockets of the
        trainerds that they go to by turns."""
        trainers = [self.cluster.start_slow_trainer(folder, r, world, paths[r % len(paths)])
                    for r in range(world)]
        for t in trainers:
            self.ask(t, "open", *how)
        return trainers

    @staticmethod
    def answer(t, command, mark, kind="ok"):
        """What it said to a command, after `ok` or `error`."""
        word = command.split()[0]
        match = t.wait_line(rf"^(ok|error) {word}(.*)$", since=mark, timeout=2 * TIMEOUT)
        if kind and match.group(1) != kind:
            raise AssertionError(f"{t.name}: {command}: {match.group(0)}")
        return match.group(0)

    def ask(self, t, *commands, kind="ok"):
        for command in commands:
            mark = t.mark()
            t.say(command)
            said = self.answer(t, command, mark, kind)
        return said

    def all(self, trainers, *commands, kind="ok"):
        """Every rank at once, command after command; what they said to the last."""
        for command in commands:
            marks = [t.mark() for t in trainers]
            for t in trainers:
                t.say(command)
            said = [self.answer(t, command, m, kind) for t, m in zip(trainers, marks)]
        return said

    def close(self, trainers):
        self.all(trainers, "close")
        for t in trainers:
            t.end()

    def train(self, world=3, how=("rows",), **model):
        """A good version, from ranks that hold a part of each tensor, checked in every engine."""
        version, folder = self.next(**model)
        trainers = self.ranks(folder, world, how)
        self.all(trainers, "declare", f"begin {version}", "put-rest", "end 0")
        self.ask(trainers[0], f"publish {version}", f"wait {version} 0")
        self.close(trainers)
        self.check(version)

    # ---- engines ----

    def start_engine(self, family, engine, name="engine", **changes):
        config = self.config(family, **changes)
        folder = self.checkpoint(config, {}, f"model-{name}")
        own = os.path.join(self.cluster.folder, f"map-{name}")
        os.makedirs(own, exist_ok=True)
        ranks = self.cluster.start_world(folder, engine.world, name, **engine.options(own))
        self.engines.append((engine, ranks))
        self.wait_known(name)
        return ranks

    def wait_known(self, name):
        """inferd has registered it: until the coordinator knows it, too."""
        self.cluster.wait_status(
            lambda s: any(e["name"] == name and e["complete"] for e in s["group_state"]["engines"]),
            f"engine {name}")

    def scripted(self, name, family="qwen3", wanted=None, kind="sglang", placement=None, layout="auto",
                 text=None, lines=(), **changes):
        """An engine of one rank, which has said what it is but not registered. wanted(parameters):
        changes {name: (dtype, shape)}, which are the right ones, in place."""
        config = self.config(family, **changes)
        engine = ScriptedEngine(self.cluster, name)
        self.cluster.processes.append(engine)
        self.cluster.may_fail.add(engine)
        path = os.path.join(self.cluster.folder, f"config-{name}.json")
        with open(path, "w", encoding="utf-8") as f:
            f.write(json.dumps(config) if text is None else text)
        tensors = make_small.random_tensors(self.config(family), seed=1)
        parameters = {
            n: (dtype, shape) for n, (dtype, shape, _) in engine_weights.expected(
                self.config(family), tensors, kind, placement or {}).items()}
        if wanted:
            wanted(parameters)
        for line in (f"layout {layout}", f"kind {kind}", f"config {path}", *lines):
            engine.say(line)
        for n, (dtype, shape) in parameters.items():
            engine.say(f"parameter {n} {dtype} " + " ".join(map(str, shape)))
        return engine

    # ---- judging ----

    def check(self, version, wait=True):
        """Every engine holds exactly this version."""
        config, tensors = self.content[version]
        for engine, ranks in self.engines:
            for rank, process in enumerate(ranks):
                if wait:
                    process.wait_live(version)
                self.compare(config, tensors, engine, rank, process)

    def compare(self, config, tensors, engine, rank, process):
        expected = engine_weights.expected_digests(config, tensors, engine.kind, engine.place(rank))
        held, _ = digests.read_engine_file(process.digests())
        self.assertEqual(sorted(held), sorted(expected), f"{process.name}: other parameters")
        wrong = [name for name in expected if held[name] != expected[name]]
        self.assertEqual(wrong, [], f"{process.name}: other bytes than the oracle says\n"
                         + self.cluster.logs())

    def one_error(self, daemon, mark, pattern):
        """One failure is one line of its log."""
        daemon.wait_line(ERROR + ".*" + pattern, since=mark)
        errors = [line for line in daemon.lines[mark:] if ERROR in line]
        self.assertEqual(len(errors), 1, "\n".join(errors))

    def no_error(self, daemon, mark):
        errors = [line for line in daemon.lines[mark:] if ERROR in line]
        self.assertEqual(errors, [])


__all__ = ["ERROR", "LAYOUTS", "Engine", "LayoutCase", "ScriptedEngine", "engine_weights",
           "formats", "make_small", "np"]
