# SPDX-License-Identifier: Apache-2.0
"""Daemons and engines in a temporary folder, for tests of the whole.

A Cluster starts processes and ends them; a Process collects what is printed and waits for lines. What
is waited for is an event (a line, a readiness datagram, an exit, a status), always with a deadline
that is long enough for a loaded machine and a sanitizer; nothing sleeps for a time and hopes.

Environment: SHARDWIRE_BUILD = the build folder; SHARDWIRE_NOTIFY = 0 when the daemons were built
without readiness notification.
"""
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("SHARDWIRE_BUILD", os.path.join(ROOT, "build"))
ORACLE = os.path.join(ROOT, "tests", "oracle", "digests.py")
CONFIGS = os.path.join(ROOT, "tests", "data", "configs")
TIMEOUT = float(os.environ.get("SHARDWIRE_TEST_TIMEOUT", "60"))
SANITIZER = re.compile(
    r"ERROR: \w+Sanitizer|\w+Sanitizer has encountered|WARNING: ThreadSanitizer|runtime error:")


def binary(name):
    folder = "tools" if name.startswith("shard") else name
    if name in ("slow-trainer", "odd-engine", "scripted-engine"):
        folder = os.path.join("tests", "system")
    return os.path.join(BUILD, folder, name)


def free_port():
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def arguments_of(options):
    """name_with_parts=value -> --name-with-parts=value; True -> a flag; lists repeat."""
    result = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if item is True:
                result.append(option)
            elif item is not None and item is not False:
                result.append(f"{option}={item}")
    return result


class Process:
    """A child with its output: lines[i] of both streams, in the order in which they came."""

    def __init__(self, name, command, folder, environment=None):
        self.name = name
        self.command = command
        self.lines = []
        self._news = threading.Condition()
        self._open = 2
        self._log = open(os.path.join(folder, name + ".log"), "w", encoding="utf-8")
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, **(environment or {})}, start_new_session=True, text=True,
            encoding="utf-8", errors="backslashreplace")
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (self.child.stdout, self.child.stderr)]
        for reader in self._readers:
            reader.start()

    def _read(self, stream):
        for line in stream:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._log.write(line)
                self._log.flush()
                self._news.notify_all()
        with self._news:
            self._open -= 1
            self._news.notify_all()

    @property
    def pid(self):
        return self.child.pid

    def output(self):
        with self._news:
            return "\n".join(self.lines)

    def mark(self):
        """Lines so far: wait_line(..., since=mark) looks at later ones."""
        with self._news:
            return len(self.lines)

    def wait_line(self, pattern, since=0, timeout=TIMEOUT):
        """The match of the first line with `pattern`."""
        deadline = time.monotonic() + timeout
        with self._news:
            at = since
            while True:
                for at in range(at, len(self.lines)):
                    match = re.search(pattern, self.lines[at])
                    if match:
                        return match
                at = len(self.lines)
                left = deadline - time.monotonic()
                if self._open == 0 or left <= 0:
                    why = "ended" if self._open == 0 else f"{timeout:g} s are over"
                    raise AssertionError(
                        f"{self.name}: no line like {pattern!r} ({why}); it printed:\n"
                        + "\n".join(self.lines[since:]))
                self._news.wait(left)

    def say(self, line):
        """A line for its standard input."""
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()

    def count(self, pattern):
        return len(re.findall(pattern, self.output()))

    def running(self):
        return self.child.poll() is None

    def signal(self, number):
        self.child.send_signal(number)

    def kill(self):
        """SIGKILL, and waits for the end."""
        self.child.kill()
        self.wait()

    def wait(self, timeout=TIMEOUT):
        """The exit status, when all output is there."""
        try:
            status = self.child.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} (pid {self.pid}) still runs after {timeout:g} s; "
                                 f"it printed:\n{self.output()}") from None
        for reader in self._readers:
            reader.join(timeout)
        return status

    def end(self):
        """Asks it to end (also when it is stopped); None when it had to be killed."""
        if self.running():
            # In this order: a SIGCONT takes a pending SIGSTOP away, so that one that came when the process
            # ends already would have LeakSanitizer wait forever for the threads that it stops.
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
        try:
            return self.wait()
        except AssertionError:
            self.kill()
            return None

    def close(self):
        for stream in (self.child.stdin, self.child.stdout, self.child.stderr):
            try:
                stream.close()
            except OSError: # input that nobody took
                pass
        self._log.close()

    def session_alive(self):
        """Does any process that it started still live?"""
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        return True


class Engine(Process):
    """A rank of the reference engine."""

    def __init__(self, name, command, folder, digest_file):
        super().__init__(name, command, folder)
        self.digest_file = digest_file

    def digests(self):
        """Has it write its digests, and waits for them; the file's path."""
        mark = self.mark()
        self.signal(signal.SIGUSR1)
        self.wait_line(r"^digests version=", since=mark)
        return self.digest_file

    def memory(self):
        """A digest of its regions as they are now, whatever state it is in."""
        result = hashlib.sha256()
        folder = f"/proc/{self.pid}/fd"
        for fd in sorted(os.listdir(folder), key=int):
            if "memfd:shardwire-engine" in os.readlink(os.path.join(folder, fd)):
                with open(os.path.join(folder, fd), "rb") as f:
                    while block := f.read(1 << 20):
                        result.update(block)
        return result.hexdigest()

    def wait_live(self, version, since=0):
        return self.wait_line(rf"^live version={version} ", since=since)


class Cluster:
    """One group on this host."""

    def __init__(self, test, **options):
        self.test = test
        self.folder = tempfile.mkdtemp(prefix="sw-", dir="/tmp") # short: socket paths are
        self.group = options.get("group", "test")
        self.port = free_port()
        self.trainerd_socket = os.path.join(self.folder, "t.sock")
        self.inferd_socket = os.path.join(self.folder, "i.sock")
        self.processes = []
        self.trainerd = None
        self.inferd = None
        self.may_fail = set() # processes whose exit status does not matter
        self._numbers = {}

    # ---- starting ----

    def _name(self, base):
        self._numbers[base] = self._numbers.get(base, 0) + 1
        return base if self._numbers[base] == 1 else f"{base}.{self._numbers[base]}"

    def _keep(self, process):
        self.processes.append(process)
        return process

    def _start_daemon(self, program, socket_path, options):
        name = self._name(program)
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        path = os.path.join(self.folder, name + ".n")
        notify.bind(path)
        command = [binary(program), *arguments_of(options)]
        process = self._keep(Process(name, command, self.folder, {"NOTIFY_SOCKET": path}))
        try:
            self._wait_ready(process, notify, socket_path)
        finally:
            notify.close()
        return process

    def _wait_ready(self, process, notify, socket_path):
        deadline = time.monotonic() + TIMEOUT
        notifies = os.environ.get("SHARDWIRE_NOTIFY", "1") != "0"
        notify.settimeout(0.1)
        while time.monotonic() < deadline:
            try:
                if b"READY=1" in notify.recv(4096):
                    return
            except TimeoutError:
                pass
            if not process.running():
                break
            if not notifies and os.path.exists(socket_path):
                return
        process.wait(1) if not process.running() else process.kill()
        raise AssertionError(f"{process.name} did not become ready:\n{process.output()}")

    def start_trainerd(self, **options):
        defaults = {
            "group": self.group, "socket": self.trainerd_socket, "listen": "127.0.0.1",
            "port": self.port, "state_dir": self.folder, "log_level": "debug",
        }
        self.trainerd = self._start_daemon(
            "trainerd", self.trainerd_socket, {**defaults, **options})
        return self.trainerd

    def start_second_trainerd(self, path, **options):
        """One that does not coordinate."""
        return self._start_daemon("trainerd", path, {"group": self.group, "socket": path,
                                                     "log_level": "debug", **options})

    def start_inferd(self, **options):
        defaults = {
            "group": self.group, "socket": self.inferd_socket, "listen": "127.0.0.1", "port": 0,
            "data_port": 0, "coordinator": f"127.0.0.1:{self.port}", "log_level": "debug",
        }
        self.inferd = self._start_daemon("inferd", self.inferd_socket, {**defaults, **options})
        return self.inferd

    def start_engine(self, checkpoint, name="engine", rank=0, world=1, registered=True, **options):
        label = self._name(f"{name}-{rank}")
        digest_file = os.path.join(self.folder, label + ".digests")
        defaults = {
            "name": name, "rank": rank, "world": world, "socket": self.inferd_socket,
            "group": self.group, "digests": digest_file, "check_interval": 100,
        }
        command = [binary("shardwire-engine"), *arguments_of({**defaults, **options}), checkpoint]
        engine = self._keep(Engine(label, command, self.folder, digest_file))
        if registered:
            engine.wait_line(r"^registered ")
        return engine

    def start_world(self, checkpoint, world, name="engine", **options):
        """All ranks of an engine."""
        ranks = [self.start_engine(checkpoint, name, rank, world, registered=False, **options)
                 for rank in range(world)]
        for rank in ranks:
            rank.wait_line(r"^registered ")
        return ranks

    def start_slow_trainer(self, checkpoint, rank=0, world=1, path=None):
        """A trainer that does what it is told (slow_trainer.c)."""
        command = [binary("slow-trainer"), path or self.trainerd_socket, self.group, str(rank),
                   str(world), checkpoint]
        process = self._keep(Process(self._name("slow-trainer"), command, self.folder))
        self.may_fail.add(process)
        return process

    # ---- acting ----

    def start_shardctl(self, *arguments, **options):
        """Running on, e.g. to be killed."""
        defaults = {"socket": self.trainerd_socket, "group": self.group}
        command = [binary("shardctl"), *arguments_of({**defaults, **options}), *arguments]
        process = self._keep(Process(self._name("shardctl"), command, self.folder))
        self.may_fail.add(process)
        return process

    def shardctl(self, *arguments, expect=0, **options):
        """Runs it to its end; the finished Process. `expect` None = any exit status."""
        process = self.start_shardctl(*arguments, **options)
        status = process.wait(4 * TIMEOUT)
        if expect is not None and status != expect:
            raise AssertionError(f"{' '.join(process.command)}: exit status {status}, not {expect}:"
                                 f"\n{process.output()}\n{self.logs()}")
        return process

    def push(self, checkpoint, expect=0, **options):
        return self.shardctl("push", checkpoint, expect=expect, **options)

    def status(self, path=None):
        """A daemon's status document (trainerd's)."""
        process = self.shardctl("status", json=True, socket=path or self.trainerd_socket)
        return json.loads(process.output())

    def wait_status(self, condition, what, path=None):
        """Asks again and again until condition(document) is true."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            document = self.status(path)
            if condition(document):
                return document
            if time.monotonic() > deadline:
                raise AssertionError(f"no {what} in {TIMEOUT:g} s:\n{json.dumps(document, indent=1)}")
            time.sleep(0.05) # between two looks at a state that has no event

    def make_checkpoint(self, name, seed, config="tiny-qwen3.json", **options):
        folder = os.path.join(self.folder, name)
        defaults = {"seed": seed, "shard_bytes": "100k", "layouts": os.path.join(ROOT, "layouts")}
        subprocess.run(
            [binary("shardwire-make-checkpoint"), *arguments_of({**defaults, **options}),
             os.path.join(CONFIGS, config), folder],
            check=True, stdout=subprocess.DEVNULL, timeout=TIMEOUT)
        return folder

    # ---- judging ----

    def check_engine(self, engine, checkpoint, version):
        """The oracle: the engine holds exactly this checkpoint, as this version."""
        result = subprocess.run(
            [sys.executable, ORACLE, f"--version={version}", checkpoint, engine.digests()],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=4 * TIMEOUT,
            check=False)
        if result.returncode:
            raise AssertionError(f"{engine.name} does not hold {checkpoint} as version {version}:\n"
                                 f"{result.stdout[:4000]}\n{self.logs()}")

    def logs(self):
        """The last lines of everything that runs or ran, and what a sanitizer said, for a failure's
        message."""
        texts = []
        for p in self.processes:
            said = [i for i, line in enumerate(p.lines) if SANITIZER.search(line)]
            if p.name != "shardctl" or said:
                start = max(0, min(len(p.lines) - 30, *said) if said else len(p.lines) - 30)
                texts.append(f"--- {p.name} (pid {p.pid})\n" + "\n".join(p.lines[start:][:150]))
        return "\n".join(texts)

    # ---- ending ----

    def close(self):
        """Ends everything, and says what did not end well: a list of texts."""
        wrong = []
        order = [p for p in self.processes if p not in (self.trainerd, self.inferd)]
        for process in [*order, self.inferd, self.trainerd]:
            if process is None:
                continue
            status = process.end()
            if status is None:
                wrong.append(f"{process.name} did not end after SIGTERM")
            elif status != 0 and process not in self.may_fail and status != -signal.SIGKILL:
                wrong.append(f"{process.name} ended with status {status}")
            complaint = SANITIZER.search(process.output())
            if complaint:
                text = process.output()[complaint.start():]
                wrong.append(f"{process.name}: a sanitizer complained:\n{text[:8000]}")
            if process.session_alive():
                wrong.append(f"{process.name} left processes behind")
                os.killpg(process.pid, signal.SIGKILL)
        if wrong:
            wrong.append(self.logs())
        for process in self.processes:
            process.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        return wrong


class ClusterTest(unittest.TestCase):
    """A test with a cluster of its own, which must end in order."""

    maxDiff = None

    def setUp(self):
        self.cluster = Cluster(self)

    def tearDown(self):
        wrong = self.cluster.close()
        if wrong:
            self.fail("\n".join(wrong))
