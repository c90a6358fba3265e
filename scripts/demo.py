#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two updates of an engine on this host.

Starts trainerd and inferd on loopback with their defaults (in a folder of its own, on free ports, where
those are taken or not permitted), writes two checkpoints with the names and shapes of Qwen3-0.6B, starts an engine of
two ranks, pushes both, checks the engine's digests against the checkpoints by code that shares nothing
with the product's data path (tests/oracle), and prints what took how long. Exit status 0 only if all was
right.
"""
import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CONFIG = os.path.join(ROOT, "tests", "data", "configs", "Qwen3-0.6B.json")
ORACLE = os.path.join(ROOT, "tests", "oracle", "digests.py")
CACHE = os.path.join(ROOT, ".cache", "demo")
DEFAULT_PORTS = (7470, 7471, 7472)
DEFAULT_FOLDER = "/run/shardwire"
RANKS = 2
DEADLINE = 60 # seconds, of each thing that is waited for


class Failed(Exception):
    pass


class Child:
    """A process whose lines are kept; standard error goes where ours goes when `quiet` is not set."""

    def __init__(self, command, folder, name):
        self.name = name
        self.log = os.path.join(folder, name + ".log")
        self.news = threading.Condition()
        self.lines = []
        with open(self.log, "w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors,
                                            stdin=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            with self.news:
                self.lines.append(line.rstrip("\n"))
                self.news.notify_all()
        with self.news:
            self.lines.append(None) # the end
            self.news.notify_all()

    def wait_for(self, prefix, since=0):
        deadline = time.monotonic() + DEADLINE
        with self.news:
            while True:
                for line in self.lines[since:]:
                    if line is None:
                        raise Failed(f"{self.name} ended; see {self.log}")
                    if line.startswith(prefix):
                        return
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Failed(f"{self.name} did not say '{prefix}' in {DEADLINE} s; see {self.log}")
                self.news.wait(left)

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def port_is_free(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Demo:
    def __init__(self, build, folder, seeds):
        self.build = os.path.abspath(build)
        self.folder = folder
        self.seeds = seeds
        self.children = []
        self.trainerd_options = ["--state-dir", folder]
        self.inferd_options = []
        self.trainerd_socket = DEFAULT_FOLDER + "/trainerd.sock"
        self.inferd_socket = DEFAULT_FOLDER + "/inferd.sock"

    def program(self, name):
        return os.path.join(self.build, name)

    def start(self, name, *command):
        child = Child(command, self.folder, name)
        self.children.append(child)
        return child

    # ---- daemons ----

    def choose_places(self):
        """The defaults; places of our own where they can't be had."""
        try:
            os.makedirs(DEFAULT_FOLDER, exist_ok=True)
            usable = os.access(DEFAULT_FOLDER, os.W_OK)
        except OSError:
            usable = False
        if usable and all(port_is_free(p) for p in DEFAULT_PORTS):
            print("daemons: default ports and sockets")
            return
        port = free_port()
        print(f"daemons: the default ports or {DEFAULT_FOLDER} can't be had; sockets in {self.folder}")
        self.trainerd_socket = self.folder + "/trainerd.sock"
        self.inferd_socket = self.folder + "/inferd.sock"
        self.trainerd_options += ["--socket", self.trainerd_socket, "--port", str(port)]
        self.inferd_options += ["--socket", self.inferd_socket, "--port", "0", "--data-port", "0",
                                "--coordinator", f"127.0.0.1:{port}"]

    def shardctl(self, *arguments, capture=False):
        return subprocess.run(
            [self.program("tools/shardctl"), "--socket", self.trainerd_socket, *arguments],
            stdout=subprocess.PIPE if capture else None, text=True, timeout=10 * DEADLINE)

    def status(self):
        answer = self.shardctl("status", "--json", capture=True)
        if answer.returncode:
            raise Failed("trainerd gives no status")
        return json.loads(answer.stdout)

    def start_daemons(self):
        self.choose_places()
        for name, options, path in (
                ("trainerd", self.trainerd_options, self.trainerd_socket),
                ("inferd", self.inferd_options, self.inferd_socket)):
            child = self.start(name, self.program(f"{name}/{name}"), *options)
            deadline = time.monotonic() + DEADLINE
            while not self.answers(path):
                if child.process.poll() is not None or time.monotonic() > deadline:
                    raise Failed(f"{name} does not serve {path}; see {child.log}")
                time.sleep(0.02)

    @staticmethod
    def answers(path):
        with socket.socket(socket.AF_UNIX) as s:
            return s.connect_ex(path) == 0

    # ---- work ----

    def checkpoint(self, seed):
        path = os.path.join(CACHE, f"qwen3-0.6b-{seed}")
        os.makedirs(CACHE, exist_ok=True)
        subprocess.run([self.program("tools/shardwire-make-checkpoint"), CONFIG, path,
                        "--layouts", os.path.join(ROOT, "layouts"),
                        "--seed", str(seed)], check=True)
        return path

    def start_engine(self, checkpoint):
        ranks = []
        for rank in range(RANKS):
            digests = os.path.join(self.folder, f"rank{rank}.digests")
            child = self.start(
                f"engine-{rank}", self.program("tools/shardwire-engine"), checkpoint, "--name", "demo",
                "--rank", str(rank), "--world", str(RANKS), "--socket", self.inferd_socket,
                "--digests", digests)
            child.digests = digests
            ranks.append(child)
        for child in ranks:
            child.wait_for("registered ")
        return ranks

    def check(self, ranks, checkpoint, version):
        marks = [len(child.lines) for child in ranks]
        for child in ranks:
            child.process.send_signal(signal.SIGUSR1)
        for child, mark in zip(ranks, marks):
            child.wait_for(f"digests version={version}", mark)
        checks = [subprocess.Popen([sys.executable, ORACLE, checkpoint, child.digests])
                  for child in ranks]
        if any([check.wait() for check in checks]):
            raise Failed(f"version {version}: an engine rank does not hold the checkpoint's bytes")

    def memcpy_seconds(self, size, threads):
        out = subprocess.run([self.program("bench/bench-memcpy"), str(size), str(threads)],
                             stdout=subprocess.PIPE, text=True, check=True).stdout
        return float(out) / 1e9

    def run(self):
        checkpoints = [self.checkpoint(seed) for seed in self.seeds]
        self.start_daemons()
        ranks = self.start_engine(checkpoints[0])
        whole = []
        for number, checkpoint in enumerate(checkpoints, 1):
            print(f"push {number} of {len(checkpoints)}: {os.path.relpath(checkpoint, ROOT)}", flush=True)
            start = time.monotonic()
            if self.shardctl("push", checkpoint).returncode:
                raise Failed(f"push {number} failed")
            whole.append(time.monotonic() - start)
            self.check(ranks, checkpoint, number)
        history = sorted(self.status()["group_state"]["history"], key=lambda u: u["version"])
        self.table(history, whole)

    def table(self, history, whole):
        threads = os.cpu_count() or 1
        rows = [("", "bytes", "stage", "GB/s", "drain", "pause", "written", "GB/s", "transport",
                 "whole push")]
        for number, update in enumerate(history, 1):
            engine = update["engines"][0]
            rows.append((
                "first push (populates memory)" if number == 1 else f"push {number}",
                f"{update['stage_bytes'] / 1e9:.3f} GB", f"{update['stage_s']:.3f} s",
                f"{update['stage_bytes'] / update['stage_s'] / 1e9:.2f}",
                f"{engine['drain_s'] * 1e3:.1f} ms", f"{engine['pause_s'] * 1e3:.1f} ms",
                f"{engine['bytes'] / 1e9:.3f} GB",
                f"{engine['bytes'] / engine['write_s'] / 1e9:.2f}", engine["transport"],
                f"{whole[number - 1]:.2f} s"))
        size = history[-1]["stage_bytes"]
        seconds = self.memcpy_seconds(size, threads)
        rate = size / seconds / 1e9
        rows.append((f"memcpy, {threads} threads", f"{size / 1e9:.3f} GB", f"{seconds:.3f} s",
                     f"{rate:.2f}", "", "", "", f"{rate:.2f}", "", ""))
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        print()
        for row in rows:
            print("  ".join([row[0].ljust(widths[0])]
                            + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]))
        print(f"\n{RANKS} engine ranks hold every byte of both versions: checked.")

    def end(self):
        codes = [child.end() for child in reversed(self.children)]
        return all(code == 0 for code in codes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shardwire-demo-", dir="/tmp") as folder:
        demo = Demo(arguments.build, folder, seeds=(1, 2))
        try:
            demo.run()
            good = True
        except (Failed, subprocess.SubprocessError, OSError, KeyError) as error:
            print(f"demo: {error}", file=sys.stderr)
            for child in demo.children:
                with open(child.log, encoding="utf-8", errors="replace") as log:
                    sys.stderr.writelines(f"{child.name}: {line}" for line in log.readlines()[-5:])
            good = False
        ended = demo.end()
        if not ended:
            print("demo: a process did not end well", file=sys.stderr)
    return 0 if good and ended else 1


if __name__ == "__main__":
    sys.exit(main())
