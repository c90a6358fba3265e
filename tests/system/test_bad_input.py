# SPDX-License-Identifier: Apache-2.0
"""Bad input gets a clear error, and nothing is lost: the daemons serve on, the next push works.

What may be bad                                        where it is tested
missing, truncated, overlapping, lying headers         test_push.BadCheckpoint
an index that names a missing file                     test_push.BadCheckpoint.test_missing_file
a tensor that the checkpoint lacks, other shape/dtype  test_push.BadCheckpoint
a tensor that no engine wants, --strict                test_push.Push.test_tensor_that_no_engine_wants
a version not larger                                   test_push.Push.test_versions_only_grow,
                                                       test_faults.Restarts.test_versions_only_grow
put of an undeclared tensor                            test_undeclared_tensor
two engines with one name                              test_two_engines_with_one_name
region smaller than its parameters, overlap            test_parameters_that_do_not_fit (and over a raw
                                                       socket, past the library: inferd's unit tests)
frame too long, unknown kind, truncated, other group   test_frames, test_other_group
wrong secret                                           Secrets
port in use, socket path too long, no permission       Starting, test_no_permission
no memory                                              NoMemory
a daemon not running                                   test_push.Push.test_daemons_not_running,
                                                       test_engine_without_inferd
"""
import json
import os
import resource
import shutil
import socket
import stat
import struct
import subprocess
import unittest

import forge
from harness import CONFIGS, TIMEOUT, ClusterTest, Process, binary

NOBODY = 65534


def frame(payload, length=None, magic=b"SW\x01\x00"):
    return magic + struct.pack(">I", len(payload) if length is None else length) + payload


class Served(ClusterTest):
    """A group with a live version; each test ends with a good push."""

    trainerd = {}
    inferd = {}

    def setUp(self):
        super().setUp()
        c = self.cluster
        self.one, self.two = c.make_checkpoint("one", 1), c.make_checkpoint("two", 2)
        c.start_trainerd(**self.trainerd)
        c.start_inferd(**self.inferd)
        self.engine = c.start_engine(self.one)
        c.push(self.one, version=1)
        self.engine.wait_live(1)

    def fine(self):
        """The old version is whole, and the next push works."""
        c = self.cluster
        self.assertTrue(c.trainerd.running() and c.inferd.running())
        c.check_engine(self.engine, self.one, 1)
        c.push(self.two, version=100)
        self.engine.wait_live(100)
        c.check_engine(self.engine, self.two, 100)


class BadInput(Served):
    def test_undeclared_tensor(self):
        trainer = self.cluster.start_slow_trainer(self.two)
        for command in ("open", "declare", "begin 2"):
            trainer.say(command)
            trainer.wait_line("^ok " + command.split()[0])
        trainer.say("ghost")
        trainer.wait_line("^error ghost: .*ghost.weight")
        for command in ("put-rest", "end 0", "publish 2", "wait 2 0", "close"): # the version goes on
            trainer.say(command)
            trainer.wait_line("^ok " + command.split()[0])
        self.engine.wait_live(2)
        self.cluster.check_engine(self.engine, self.two, 2)
        self.cluster.push(self.one, version=3)
        self.engine.wait_live(3)
        self.cluster.check_engine(self.engine, self.one, 3)

    def test_two_engines_with_one_name(self):
        c = self.cluster
        other = c.start_engine(self.one, registered=False)
        c.may_fail.add(other)
        self.assertEqual(other.wait(), 1)
        self.assertRegex(other.output(), rf"engine.*{self.engine.pid}")
        third = c.start_engine(self.one, rank=1, world=2, registered=False) # of another world
        c.may_fail.add(third)
        self.assertEqual(third.wait(), 1)
        self.assertRegex(third.output(), r"world")
        self.fine()

    def test_parameters_that_do_not_fit(self):
        c = self.cluster
        for what, text in (("small", r"512.*1024|region"), ("overlap", r"overlap")):
            out = subprocess.run(
                [binary("odd-engine"), c.inferd_socket, c.group, what], stdout=subprocess.PIPE,
                text=True, timeout=TIMEOUT, check=True).stdout
            self.assertRegex(out, r"^-\d+ ")
            self.assertRegex(out, text)
            self.assertRegex(out, r'\bb\b')
        self.fine()

    def test_other_group(self):
        c = self.cluster
        for path in (c.trainerd_socket, c.inferd_socket):
            out = c.shardctl("status", socket=path, group="strangers", expect=1).output()
            self.assertRegex(out, r"group.*strangers|strangers.*group")
            self.assertIn(c.group, out)
        out = c.push(self.two, group="strangers", expect=1).output()
        self.assertIn("strangers", out)
        engine = c.start_engine(self.one, name="b", group="strangers", registered=False)
        c.may_fail.add(engine)
        self.assertEqual(engine.wait(), 1)
        self.assertIn("strangers", engine.output())
        self.fine()

    def test_frames(self):
        """On each socket and port; every connection is ended, with a line that says why."""
        c = self.cluster
        bad = {
            "too long": (frame(b"", (1 << 20) + 1), r"1048577"),
            "unknown kind": (frame(b"\xfa\x3f\x00"), r"unknown|kind|decode"),
            "no protobuf": (frame(b"\xff" * 64), r"decod|malformed|protobuf|valid"),
            "truncated": (frame(b"abc", 100), r"middle|truncated|ended"),
            "HTTP": (b"GET / HTTP/1.1\r\n\r\n", r"HTTP"),
            "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", r"TLS"),
            "too many descriptors": (frame(b"", 0, b"SW\x01\xff"), r"descriptors"),
        }
        status = c.status(c.inferd_socket)
        places = [(c.trainerd, c.trainerd_socket), (c.trainerd, ("127.0.0.1", c.port)),
                  (c.inferd, c.inferd_socket), (c.inferd, ("127.0.0.1", status["port"])),
                  (c.inferd, ("127.0.0.1", status["data_port"]))]
        for daemon, address in places:
            for name, (data, text) in bad.items():
                with self.subTest(what=name, to=daemon.name, at=address):
                    mark = daemon.mark()
                    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
                    with socket.socket(family) as s:
                        s.settimeout(TIMEOUT)
                        s.connect(address)
                        s.sendall(data)
                        s.shutdown(socket.SHUT_WR)
                        try:
                            while s.recv(4096):
                                pass
                        except ConnectionResetError:
                            pass
                    daemon.wait_line(text, since=mark)
        self.fine()

    def test_no_permission(self):
        c = self.cluster
        if os.getuid() != 0:
            self.skipTest("becoming another user needs root")
        os.chmod(c.folder, 0o755)
        program = os.path.join(c.folder, "shardctl")
        for path, name in ((c.trainerd_socket, "trainerd"), (c.inferd_socket, "inferd")):
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode) & 0o007, 0)
            # The library and the program may lie where nobody can't read: open them as root.
            command = (f"exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups "
                       f"{program} --socket={path} --group={c.group} status")
            shutil.copy(binary("shardctl"), program)
            shutil.copy(os.path.join(os.path.dirname(binary("shardctl")), "..", "client",
                                     "libshardwire.so.0"), c.folder)
            os.chmod(program, 0o755)
            out = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, text=True,
                                 stderr=subprocess.STDOUT, timeout=TIMEOUT, check=False,
                                 env={**os.environ, "LD_LIBRARY_PATH": c.folder})
            self.assertEqual(out.returncode, 1, out.stdout)
            self.assertRegex(out.stdout, r"[Pp]ermission")
            self.assertIn(path, out.stdout)
        self.fine()

    def test_engine_without_inferd(self):
        c = self.cluster
        path = os.path.join(c.folder, "nobody.sock")
        engine = c.start_engine(self.one, name="b", socket=path, registered=False)
        c.may_fail.add(engine)
        self.assertEqual(engine.wait(), 1)
        self.assertIn("is inferd running? tried " + path, engine.output())
        self.fine()


class Starting(ClusterTest):
    """Daemons that can't start say why, and end."""

    def refused(self, program, text, **options):
        c = self.cluster
        path = os.path.join(c.folder, program + "-x.sock")
        defaults = {"group": c.group, "socket": path, "port": 0}
        if program == "trainerd":
            defaults["state_dir"] = c.folder
        else:
            defaults.update(data_port=0, coordinator=f"127.0.0.1:{c.port}")
        command = [binary(program)] + [
            f"--{k.replace('_', '-')}={v}" for k, v in {**defaults, **options}.items()]
        process = Process(c._name(program), command, c.folder)
        c.processes.append(process)
        c.may_fail.add(process)
        self.assertNotEqual(process.wait(), 0)
        self.assertRegex(process.output(), text)
        errors = [line for line in process.lines if " error: " in line or line.startswith(program)]
        self.assertEqual(len(errors), 1, process.output()) # one failure, one line

    def test_port_in_use(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen(1)
            port = s.getsockname()[1]
            self.refused("trainerd", rf"{port}.*in use", port=port)
            self.refused("inferd", rf"{port}.*in use", port=port)
            self.refused("inferd", rf"{port}.*in use", data_port=port)

    def test_socket_path(self):
        path = os.path.join(self.cluster.folder, "x" * 120)
        for program in ("trainerd", "inferd"):
            self.refused(program, r"socket.*10[78]|10[78].*socket|too long|longer", socket=path)
            self.refused(program, r"/not/there", socket="/not/there/x.sock")

    def test_socket_of_a_living_daemon(self):
        c = self.cluster
        c.start_trainerd()
        c.start_inferd()
        self.refused("trainerd", c.trainerd_socket, socket=c.trainerd_socket)
        self.refused("inferd", c.inferd_socket, socket=c.inferd_socket)
        c.status()
        c.status(c.inferd_socket)

    def test_state_dir(self):
        self.refused("trainerd", r"/proc/nothing", state_dir="/proc/nothing")

    def test_not_only_loopback_without_a_secret(self):
        self.refused("trainerd", r"secret", listen="0.0.0.0")
        self.refused("inferd", r"secret", listen="0.0.0.0")

    def test_secret_that_others_can_read(self):
        path = os.path.join(self.cluster.folder, "secret")
        with open(path, "w", encoding="ascii") as f:
            f.write("0123456789abcdef")
        os.chmod(path, 0o644)
        for program in ("trainerd", "inferd"):
            self.refused(program, path, secret_file=path)


class Secrets(ClusterTest):
    def secret(self, name, text):
        path = os.path.join(self.cluster.folder, name)
        with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as f:
            f.write(text)
        return path

    def test_wrong_and_missing(self):
        c = self.cluster
        right, wrong = self.secret("right", "right" * 8), self.secret("wrong", "wrong" * 8)
        one = c.make_checkpoint("one", 1)
        c.start_trainerd(secret_file=right, transport="tcp")
        for options in ({"secret_file": wrong}, {}):
            inferd = c.start_inferd(**options)
            inferd.wait_line(r"no connection to the coordinator.*secret")
            inferd.end()
        c.start_inferd(secret_file=right)
        host = f"127.0.0.1:{c.port}"
        for options in ({"secret_file": wrong}, {}):
            out = c.shardctl("status", host=host, socket=None, expect=1, **options).output()
            self.assertIn("secret", out)
        c.shardctl("status", host=host, socket=None, secret_file=right)
        engine = c.start_engine(one)
        c.push(one, version=1)
        engine.wait_live(1)
        c.check_engine(engine, one, 1)


class NoMemory(ClusterTest):
    """Too little address space for a replica: an error of that push, and of nothing else."""

    def limit(self, process, room):
        """None = no limit. False: not possible (a sanitizer takes terabytes)."""
        infinite = resource.RLIM_INFINITY
        if room is not None:
            with open(f"/proc/{process.pid}/statm", encoding="ascii") as f:
                room += int(f.read().split()[0]) * resource.getpagesize()
            if room > 1 << 40:
                return False
        resource.prlimit(process.pid, resource.RLIMIT_AS,
                         (infinite if room is None else room, infinite))
        return True

    def test_engine_that_does_not_fit(self):
        """Parameters of 4 TiB, in a sparse file."""
        c = self.cluster
        c.start_trainerd()
        c.start_inferd()
        folder = os.path.join(c.folder, "huge")
        os.mkdir(folder)
        path = os.path.join(folder, "model.safetensors")
        forge.write_raw(path, {"a": {"dtype": "U8", "shape": [1 << 42],
                                     "data_offsets": [0, 1 << 42]}}, b"")
        os.truncate(path, os.path.getsize(path) + (1 << 42))
        engine = c.start_engine(folder, registered=False)
        c.may_fail.add(engine)
        self.assertEqual(engine.wait(), 1)
        self.assertRegex(engine.output(), r"4398046511104 bytes of memory asked for")

    def test_replica_that_does_not_fit(self):
        c = self.cluster
        small = c.make_checkpoint("small", 1)
        large = self.large(c)
        c.start_trainerd()
        c.start_inferd()
        engine = c.start_engine(small)
        c.push(small, version=1)
        engine.wait_live(1)
        big = c.start_engine(large, name="big")
        if not self.limit(c.trainerd, 48 << 20):
            self.skipTest("a sanitizer needs more address space than there can be a limit for")
        out = c.push(large, version=2, expect=1).output()
        self.assertRegex(out, r"memory")
        self.assertTrue(c.trainerd.running())
        c.check_engine(engine, small, 1)
        self.limit(c.trainerd, None)
        big.end()
        c.wait_status(lambda s: sum(e["complete"] for e in s["group_state"]["engines"]) == 1,
                      "one engine")
        c.push(small, version=3)
        engine.wait_live(3)
        c.check_engine(engine, small, 3)

    @staticmethod
    def large(c):
        with open(os.path.join(CONFIGS, "tiny-qwen3.json"), encoding="utf-8") as f:
            config = json.load(f)
        config["vocab_size"] = 1 << 19
        path = os.path.join(c.folder, "config.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(config, f)
        return c.make_checkpoint("large", 1, path, shard_bytes="1G")


if __name__ == "__main__":
    unittest.main(verbosity=2)
