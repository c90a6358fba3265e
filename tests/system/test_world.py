#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several trainer processes on one host: each stages its part, all begin and end together."""
import unittest

from harness import ClusterTest


class World(ClusterTest):
    def start(self, **options):
        c = self.cluster
        self.one = c.make_checkpoint("one", 1)
        self.two = c.make_checkpoint("two", 2)
        c.start_trainerd(**options)
        c.start_inferd()
        self.engines = c.start_world(self.one, 2)

    def trainers(self, checkpoint):
        trainers = [self.cluster.start_slow_trainer(checkpoint, rank, 2) for rank in range(2)]
        for command in ("open", "declare"):
            self.all_do(trainers, command)
        return trainers

    def all_do(self, trainers, command):
        """All at once: begin and end wait for the others."""
        marks = [trainer.mark() for trainer in trainers]
        for trainer in trainers:
            trainer.say(command)
        for trainer, mark in zip(trainers, marks):
            trainer.wait_line("^ok " + command.split()[0] + "$", since=mark)

    def stage(self, trainers):
        self.all_do(trainers, "begin 0")
        self.all_do(trainers, "put-rest")
        self.all_do(trainers, "end 20000")

    def push_twice(self, transport):
        self.start(transport=transport)
        for version, checkpoint in enumerate((self.one, self.two, self.one), 1):
            trainers = self.trainers(checkpoint)
            self.stage(trainers)
            trainers[1].say("publish 0")
            trainers[1].wait_line("^ok publish$")
            self.all_do(trainers, "wait 0 20000")
            for engine in self.engines:
                engine.wait_live(version)
                self.cluster.check_engine(engine, checkpoint, version)
            for trainer in trainers:
                trainer.kill()
        status = self.cluster.status()
        parts = [r["replica_bytes"] for r in status["host_ranks"]["trainer_ranks"]]
        self.assertEqual(len(parts), 2)
        self.assertGreater(min(parts), max(parts) / 3) # each holds about half
        self.assertEqual({p["transport"] for p in status["writer"]["paths"]}, {transport})

    def test_local(self):
        self.push_twice("local")

    def test_tcp(self):
        self.push_twice("tcp")

    def test_one_rank_alone_hears_who_is_missing(self):
        self.start(begin="500ms")
        trainers = self.trainers(self.one)
        trainers[0].say("begin 0")
        trainers[0].wait_line("^error begin: .*trainer rank 1 .*has not begun")
        self.stage(trainers) # and both together can

    def test_a_rank_that_dies_ends_the_version_for_the_other(self):
        self.start()
        trainers = self.trainers(self.one)
        self.all_do(trainers, "begin 0")
        trainers[1].kill()
        trainers[0].say("put-rest")
        trainers[0].wait_line("(ok|error) put-rest")
        trainers[0].say("end 20000")
        trainers[0].wait_line("^error end: .*trainer rank 1")
        trainers[0].kill()
        self.cluster.push(self.one)


if __name__ == "__main__":
    unittest.main()
