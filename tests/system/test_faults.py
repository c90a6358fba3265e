# SPDX-License-Identifier: Apache-2.0
"""Processes are killed or stopped at every moment of a push: nothing hangs, nothing torn is live.

Every case ends the same way: the ranks come to rest by themselves (serving or torn); each that
serves holds, by the oracle, exactly the checkpoint of the version it names; one that is torn has
not resumed; the next push works and its digests are right. Deadlines are short by option, and each
wait of the harness has an end, so that a hang is a failure.
"""
import json
import os
import random
import signal
import time
import unittest

from harness import CONFIGS, TIMEOUT, ClusterTest, free_port
from proxy import Proxy

KILL, STOP = signal.SIGKILL, signal.SIGSTOP
SHORT = {"begin": "10s", "stage": "10s", "drain": "300ms", "connect": "3s", "pause": "3s",
         "window": "3s", "write": "3s", "post": "3s", "activate": "3s"}
LEASE = "4s"
EMBED = "model.embed_tokens.weight"
AT_REST = ("serving", "torn")


class Faults(ClusterTest):
    transport = "auto"
    world = 2
    config = "tiny-qwen3.json"

    def setUp(self):
        super().setUp()
        c = self.cluster
        self.proxy = None
        self.version = 0
        self.content = {} # version -> checkpoint
        self.checkpoints = [c.make_checkpoint("one", 1, self.config),
                            c.make_checkpoint("two", 2, self.config)]
        self.trainerd_options = {**SHORT, "transport": self.transport}
        self.inferd_options = {"lease": LEASE}

    def start(self):
        c = self.cluster
        c.start_trainerd(**self.trainerd_options)
        c.start_inferd(**self.inferd_options)
        self.engines = c.start_world(self.checkpoints[0], self.world)

    def start_held_link(self):
        """tcp over a link that can be held."""
        port = free_port()
        self.proxy = Proxy(port)
        self.addCleanup(self.proxy.close)
        self.trainerd_options.update(transport="tcp", tcp_connections=1)
        self.inferd_options.update(data_port=port, advertise=Proxy.ADDRESS)
        self.start()

    # ---- pushes ----

    def next(self):
        """A version number of its own, and what it is to hold."""
        self.version += 1
        checkpoint = self.checkpoints[self.version % 2]
        self.content[self.version] = checkpoint
        return self.version, checkpoint

    def start_push(self, **options):
        version, checkpoint = self.next()
        return self.cluster.start_shardctl("push", checkpoint, version=version, **options)

    def good_push(self, **options):
        version, checkpoint = self.next()
        self.cluster.push(checkpoint, version=version, **options)
        for engine in self.engines:
            engine.wait_live(version)
            self.cluster.check_engine(engine, checkpoint, version)

    # ---- faults ----

    def victim(self, name, push):
        c = self.cluster
        return {"push": push, "trainerd": c.trainerd, "inferd": c.inferd,
                "engine 0": self.engines[0], "engine 1": self.engines[-1]}[name]

    def strike(self, process, how):
        process.signal(how)
        if how == KILL:
            process.wait()

    def replace(self, name):
        """Another process in the place of a killed one."""
        c = self.cluster
        if name == "trainerd":
            c.start_trainerd(**self.trainerd_options)
        elif name == "inferd":
            c.start_inferd(**self.inferd_options)
        elif name.startswith("engine"):
            rank = 0 if name == "engine 0" else self.world - 1
            self.engines[rank] = c.start_engine(
                self.checkpoints[0], rank=rank, world=self.world)

    def wait_updates_over(self):
        """inferd has ended what it had under way, by itself."""
        self.cluster.wait_status(
            lambda s: all(r["update"] is None and r["state"] in AT_REST for r in s["ranks"]),
            "end of the update in inferd", self.cluster.inferd_socket)

    def recover(self, name, how, push):
        """What the world does after a fault; ends when the push has."""
        process = self.victim(name, push)
        if how == KILL:
            self.replace(name)
        elif name == "trainerd":
            self.wait_updates_over() # the lease, without any coordinator
            process.signal(signal.SIGCONT)
        elif name == "push":
            process.signal(signal.SIGCONT)
        else:
            push.wait() # by deadline: nobody answers
            process.signal(signal.SIGCONT)
        push.wait()

    # ---- judging ----

    def at_rest(self):
        """Waits until all ranks are registered and nothing is under way; pid -> rank's state."""
        pids = {engine.pid for engine in self.engines}

        def inferd(s):
            ranks = {r["pid"] for r in s["ranks"]}
            return ranks == pids and s["coordinator"]["connected"] and all(
                r["update"] is None and r["state"] in AT_REST for r in s["ranks"])

        def trainerd(s):
            group = s["group_state"]
            ranks = [r for e in group["engines"] for r in e["ranks"]]
            return (group["publishing"] is None and {r["pid"] for r in ranks} == pids
                    and all(e["complete"] for e in group["engines"])
                    and all(r["state"] in AT_REST for r in ranks))

        status = self.cluster.wait_status(inferd, "rest in inferd", self.cluster.inferd_socket)
        self.cluster.wait_status(trainerd, "rest in trainerd")
        return {r["pid"]: r for r in status["ranks"]}

    def judge(self, push=None):
        c = self.cluster
        ranks = self.at_rest()
        for engine in self.engines:
            rank = ranks[engine.pid]
            self.assertTrue(engine.running(), c.logs())
            if rank["state"] == "torn":
                steps = [line.split()[0] for line in engine.lines if line.split()[0] in
                         ("paused", "live")]
                self.assertEqual(steps[-1:], ["paused"], "a torn engine resumed\n" + c.logs())
            elif rank["version"]:
                c.check_engine(engine, self.content[rank["version"]], rank["version"])
        states = {(r["state"], r["version"]) for r in ranks.values()}
        for group in c.status()["group_state"]["engines"]:
            if group["live"]:
                self.assertEqual(len(states), 1, c.logs())
                self.assertEqual({r["state"] for r in ranks.values()}, {"serving"}, c.logs())
        if push is not None and push.wait() == 0:
            self.assertRegex(push.output(), rf"(?m)^engine +yes +{self.version} ")
        return states

    def finish(self, push=None):
        states = self.judge(push)
        self.good_push()
        return states


class Phases(Faults):
    """Rank 0 of the engine is held at a step; then something happens to somebody."""

    def case(self, phase, name, how):
        rank0 = self.engines[0]
        mark = rank0.mark()
        rank0.say("hold " + phase)
        push = self.start_push()
        rank0.wait_line(f"^holding phase={phase}", since=mark)
        self.strike(self.victim(name, push), how)
        if not (how == KILL and name == "engine 0"):
            rank0.say("go")
        self.recover(name, how, push)
        return self.finish(push)

    def phase(self, phase, expect):
        self.start()
        self.good_push()
        for name in ("push", "trainerd", "inferd", "engine 0", "engine 1"):
            for how in (KILL, STOP):
                with self.subTest(phase=phase, victim=name, how=how.name):
                    states = {state for state, _ in self.case(phase, name, how)}
                    self.assertLessEqual(states, expect)

    def test_pause(self):
        self.phase("pause", {"serving"}) # no window was open: nothing is torn

    def test_prepare(self):
        self.phase("prepare", {"serving", "torn"})

    def test_post(self):
        self.phase("post", {"serving", "torn"})

    def test_activate(self):
        self.phase("activate", {"serving", "torn"})

    def test_resume(self):
        self.phase("resume", {"serving", "torn"})


class Window(Faults):
    """The link is held when half of the bytes are in engine memory."""

    def case(self, name, how):
        self.proxy.hold(100_000)
        push = self.start_push()
        self.proxy.wait_holding(TIMEOUT)
        self.strike(self.victim(name, push), how)
        if name in ("trainerd", "inferd") and how == STOP:
            if name == "trainerd":
                self.wait_updates_over()
            else:
                push.wait()
        self.proxy.release()
        self.recover(name, how, push)
        self.finish(push)

    def window(self, name, how):
        self.start_held_link()
        self.case(name, how)
        self.case_again(name, how)

    def case_again(self, name, how):
        """Once more, when there is an old version to lose."""
        self.case(name, how)


for _name in ("push", "trainerd", "inferd", "engine 0", "engine 1"):
    for _how in (KILL, STOP):
        def _test(self, name=_name, how=_how):
            self.window(name, how)
        setattr(Window, f"test_{_name.replace(' ', '_')}_{_how.name.lower()}", _test)


class AfterClose(Faults):
    """Nothing is placed after a window is closed."""

    def torn_by_held_link(self, push):
        """From the held link to torn engines; what their memory holds then."""
        self.proxy.wait_holding(TIMEOUT, self.world)
        self.wait_memory_changed()

    def wait_memory_changed(self):
        deadline = time.monotonic() + TIMEOUT
        while all(e.memory() == m for e, m in zip(self.engines, self.before)):
            self.assertLess(time.monotonic(), deadline, "nothing was placed before the link stopped")
            time.sleep(0.01) # memory has no event

    def memory(self):
        return [engine.memory() for engine in self.engines]

    def wait_torn(self, path):
        self.cluster.wait_status(
            lambda s: all(r["state"] == "torn" and r["window"] is None for r in s["ranks"]),
            "torn engine", path)

    def test_stopped_coordinator_that_writes(self):
        """A lone trainerd, stopped in the middle: the lease ends without it."""
        c = self.cluster
        self.start_held_link()
        self.before = self.memory()
        self.proxy.hold(100_000)
        push = self.start_push()
        self.torn_by_held_link(push)
        c.trainerd.signal(STOP)
        self.wait_torn(c.inferd_socket)
        torn = self.memory()
        self.proxy.release() # what was queued comes now
        self.proxy.wait_gone(TIMEOUT)
        self.assertEqual(self.memory(), torn)
        c.trainerd.signal(signal.SIGCONT) # and what it sends when it wakes
        self.assertNotEqual(push.wait(), 0)
        self.assertEqual(self.memory(), torn)
        self.assertEqual({s for s, _ in self.judge(push)}, {"torn"})
        self.good_push()

    def test_stopped_writer(self):
        """A trainerd that only writes is stopped: the coordinator's write deadline ends it."""
        c = self.cluster
        self.start_held_link()
        second = os.path.join(c.folder, "second.sock")
        state = os.path.join(c.folder, "second")
        os.mkdir(state)
        writer = c.start_second_trainerd(
            second, **{**self.trainerd_options, "state_dir": state, "port": 0,
                       "coordinator": f"127.0.0.1:{c.port}"})
        self.before = self.memory()
        self.proxy.hold(100_000)
        push = self.start_push(socket=second)
        self.torn_by_held_link(push)
        writer.signal(STOP)
        self.wait_torn(c.inferd_socket)
        torn = self.memory()
        self.proxy.release()
        self.proxy.wait_gone(TIMEOUT)
        self.assertEqual(self.memory(), torn)
        writer.signal(signal.SIGCONT)
        self.assertNotEqual(push.wait(), 0)
        self.assertEqual(self.memory(), torn)
        self.assertEqual({s for s, _ in self.judge()}, {"torn"})
        self.good_push(socket=second)


class LateTrainer(Faults):
    """A trainer that stops in the middle of a put."""

    def start_staging(self):
        version, checkpoint = self.next()
        trainer = self.cluster.start_slow_trainer(checkpoint)
        for command in ("open", "declare", f"begin {version}"):
            trainer.say(command)
            trainer.wait_line("^ok " + command.split()[0] + "$")
        trainer.say("hold " + EMBED)
        trainer.wait_line("^holding$")
        return trainer

    def test_writes_into_memory_that_nobody_uses(self):
        self.trainerd_options["stage"] = "1s"
        self.start()
        self.good_push()
        self.good_push()
        late = []
        for _ in range(2): # one for each buffer
            trainer = self.start_staging()
            trainer.signal(STOP)
            self.cluster.wait_status( # the stage deadline
                lambda s, p=trainer.pid: all(not r["connected"] for r in
                                             s["host_ranks"]["trainer_ranks"]), "dropped trainer")
            self.good_push()
            late.append(trainer)
        version, checkpoint = self.next()
        self.cluster.shardctl("stage", checkpoint, version=version) # not published yet
        for trainer in late:
            trainer.signal(signal.SIGCONT)
            trainer.say("go")
            trainer.wait_line("(ok|error) hold")
            trainer.say("put-rest")
            trainer.wait_line("(ok|error) put-rest")
            trainer.say("end 5000")
            trainer.wait_line("error end")
        for engine in self.engines: # the live version
            self.cluster.check_engine(engine, self.content[self.live()], self.live())
        self.cluster.shardctl("publish", version=version)
        for engine in self.engines:
            engine.wait_live(version)
            self.cluster.check_engine(engine, checkpoint, version)
        self.finish()

    def live(self):
        return self.cluster.status()["group_state"]["live_version"]

    def test_killed(self):
        self.start()
        self.good_push()
        trainer = self.start_staging()
        trainer.kill()
        self.finish()

    def test_stopped_and_continued_in_time(self):
        self.start()
        self.good_push()
        trainer = self.start_staging()
        version = self.version
        trainer.signal(STOP)
        trainer.signal(signal.SIGCONT)
        for command in ("go", "put-rest", "end 0", f"publish {version}", f"wait {version} 0"):
            trainer.say(command)
            trainer.wait_line("^ok " + {"go": "hold"}.get(command, command.split()[0]) + "$")
        for engine in self.engines:
            engine.wait_live(version)
            self.cluster.check_engine(engine, self.content[version], version)
        trainer.say("close")
        trainer.wait_line("^ok close$")
        self.finish()

    def test_daemons_killed_while_staging(self):
        self.start()
        self.good_push()
        for name in ("trainerd", "inferd", "engine 0"):
            with self.subTest(victim=name):
                trainer = self.start_staging()
                self.strike(self.victim(name, None), KILL)
                self.replace(name)
                trainer.kill()
                self.finish()

    def test_daemons_stopped_while_staging(self):
        self.start()
        self.good_push()
        for name in ("trainerd", "inferd", "engine 0"):
            with self.subTest(victim=name):
                trainer = self.start_staging()
                process = self.victim(name, None)
                process.signal(STOP)
                trainer.say("go")
                trainer.wait_line("^ok hold$")
                trainer.say("put-rest")
                trainer.wait_line("^ok put-rest$")
                process.signal(signal.SIGCONT)
                trainer.say("end 0")
                trainer.wait_line("^ok end$")
                trainer.say("close")
                trainer.wait_line("^ok close$")
                self.finish()


class BetweenStageAndPublish(Faults):
    def staged(self):
        version, checkpoint = self.next()
        self.cluster.shardctl("stage", checkpoint, version=version)
        return version, checkpoint

    def test_trainerd_killed(self):
        self.start()
        self.good_push()
        version, _ = self.staged()
        self.strike(self.cluster.trainerd, KILL)
        self.replace("trainerd")
        self.at_rest()
        out = self.cluster.shardctl("publish", version=version, expect=1).output()
        self.assertIn(str(version), out)
        self.finish()

    def test_others_killed(self):
        """Tiles outlive engines and inferd: the staged version is published all the same."""
        self.start()
        self.good_push()
        for name in ("inferd", "engine 0", "engine 1"):
            with self.subTest(victim=name):
                version, checkpoint = self.staged()
                self.strike(self.victim(name, None), KILL)
                self.replace(name)
                self.at_rest()
                self.cluster.shardctl("publish", version=version)
                for engine in self.engines:
                    engine.wait_live(version)
                    self.cluster.check_engine(engine, checkpoint, version)
                self.finish()

    def test_stopped(self):
        self.start()
        self.good_push()
        for name in ("trainerd", "inferd", "engine 0", "engine 1"):
            with self.subTest(victim=name):
                version, _ = self.staged()
                process = self.victim(name, None)
                process.signal(STOP)
                publish = self.cluster.start_shardctl("publish", version=version)
                if name != "trainerd":
                    self.assertNotEqual(publish.wait(), 0) # by deadline
                process.signal(signal.SIGCONT)
                publish.wait()
                self.finish()


class Restarts(Faults):
    def test_versions_only_grow(self):
        self.start()
        self.version = 40
        self.good_push() # 41
        self.version = 59
        version, checkpoint = self.next() # 60, begun and never published
        self.cluster.shardctl("stage", checkpoint, version=version)
        self.strike(self.cluster.trainerd, KILL)
        self.replace("trainerd")
        self.at_rest()
        for number in (41, 60):
            out = self.cluster.push(checkpoint, version=number, expect=1).output()
            self.assertRegex(out, rf"\b{number}\b.*\b60\b")
        out = self.cluster.push(self.checkpoints[0]).output()
        self.assertIn("version 61", out)
        for engine in self.engines:
            engine.wait_live(61)
            self.cluster.check_engine(engine, self.checkpoints[0], 61)

    def test_idle_daemons_killed(self):
        """Engines outlive inferd, register again by themselves and say what they hold."""
        self.start()
        self.good_push()
        for names in (["inferd"], ["trainerd"], ["inferd", "trainerd"]):
            with self.subTest(killed=names):
                for name in names:
                    self.strike(self.victim(name, None), KILL)
                for name in names:
                    self.replace(name)
                self.assertEqual(self.judge(), {("serving", self.version)})
                self.good_push()


class Sweep(Faults):
    """Random processes, random moments, continuous pushes."""

    rounds = int(os.environ.get("SHARDWIRE_SWEEP_ROUNDS", "15"))

    def larger_checkpoints(self):
        with open(os.path.join(CONFIGS, self.config), encoding="utf-8") as f:
            config = json.load(f)
        config["vocab_size"] = 1 << 16
        path = os.path.join(self.cluster.folder, "config.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(config, f)
        self.checkpoints = [
            self.cluster.make_checkpoint(f"large-{seed}", seed, path, shard_bytes="1G")
            for seed in (1, 2)]

    def sweep(self, transport):
        seed = int(os.environ.get("SHARDWIRE_SWEEP_SEED", random.SystemRandom().randrange(1 << 32)))
        print(f"SHARDWIRE_SWEEP_SEED={seed}", flush=True)
        chance = random.Random(seed)
        self.larger_checkpoints()
        self.trainerd_options["transport"] = transport
        self.start()
        begun = time.monotonic()
        self.good_push()
        span = time.monotonic() - begun
        for i in range(self.rounds):
            name = chance.choice(["push", "trainerd", "inferd", "engine 0", "engine 1"])
            how = chance.choice([KILL, STOP])
            with self.subTest(seed=seed, round=i, victim=name, how=how.name):
                push = self.start_push()
                time.sleep(chance.random() * span) # a random moment, no event
                process = self.victim(name, push)
                if process.running():
                    self.strike(process, how)
                    self.recover(name, how, push)
                self.finish(push)

    def test_local(self):
        self.sweep("local")

    def test_tcp(self):
        self.sweep("tcp")


if __name__ == "__main__":
    unittest.main(verbosity=2)
