#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README.md's section "Two hosts", as written there, on two hosts made of namespaces.

Each host has a network of its own (a veth pair, 10.0.0.1 and 10.0.0.2) and its own /etc/shardwire and
/run/shardwire, so that nothing but TCP connects them. Configuration comes from README.md's own blocks.
Needs root; without it the test is skipped (CI runs as root).
"""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from harness import BUILD, CONFIGS, ORACLE, ROOT, Engine, Process, binary

HOSTS = {"training": "10.0.0.1", "inference": "10.0.0.2"}
OWN_FOLDERS = ("/etc/shardwire", "/run/shardwire", "/var/lib/shardwire")


def run(*command, check=True):
    return subprocess.run(command, check=check, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=60)


def readme_blocks(language):
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        section = file.read().split("## Two hosts", 1)[1].split("\n## ", 1)[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.S)


class Host:
    """A network and mount namespace, held by a sleeping process."""

    def __init__(self, folder, name):
        self.name = name
        self.folder = folder
        self.processes = []
        self.holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c",
             "ip link set lo up; "
             + "".join(f"mount -t tmpfs tmpfs {path}; " for path in OWN_FOLDERS)
             + "echo ready; exec sleep 600"], stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout.readline() == "ready\n"

    def command(self, *command):
        return ["nsenter", "-t", str(self.holder.pid), "--net", "--mount", *command]

    def run(self, *command, check=True):
        return run(*self.command(*command), check=check)

    def write(self, path, text, mode):
        self.run("sh", "-c", 'umask 077; printf %s "$1" > "$2"; chmod "$3" "$2"', "sh", text, path,
                 mode)

    def start(self, name, *command, kind=Process, more=()):
        process = kind(f"{self.name}-{name}", self.command(*command), self.folder, *more)
        self.processes.append(process)
        return process

    def end(self):
        codes = [process.end() for process in reversed(self.processes)]
        for process in self.processes:
            process.close()
        self.holder.kill()
        self.holder.wait()
        self.holder.stdout.close()
        return codes


@unittest.skipUnless(os.geteuid() == 0 and shutil.which("ip") and shutil.which("nsenter"),
                     "needs root, ip and nsenter")
class TwoHosts(unittest.TestCase):
    def setUp(self):
        self.made = [path for path in OWN_FOLDERS if not os.path.isdir(path)]
        for path in self.made:
            os.makedirs(path)
        self.folder = tempfile.mkdtemp(prefix="sw-", dir="/tmp")
        self.hosts = {name: Host(self.folder, name) for name in HOSTS}
        self.connect()
        self.ended = False

    def tearDown(self):
        self.end()
        shutil.rmtree(self.folder)
        for path in self.made:
            os.rmdir(path)

    def end(self):
        if self.ended:
            return []
        self.ended = True
        return [code for host in self.hosts.values() for code in host.end()]

    def connect(self):
        """A veth pair whose ends lie in the two hosts."""
        a, b = self.hosts.values()
        a.run("ip", "link", "add", "sw0", "type", "veth", "peer", "name", "sw0", "netns",
              str(b.holder.pid))
        for host in (a, b):
            host.run("ip", "address", "add", HOSTS[host.name] + "/24", "dev", "sw0")
            host.run("ip", "link", "set", "sw0", "up")

    def configure(self):
        """The secret and the files of README.md; the training host's is copied to the other."""
        training, inference = self.hosts["training"], self.hosts["inference"]
        trainerd, inferd = readme_blocks("ini")
        training.run("sh", "-ec", readme_blocks("sh")[0])
        secret = training.run("cat", "/etc/shardwire/secret").stdout
        self.assertGreater(len(secret), 40)
        inference.write("/etc/shardwire/secret", secret, "600")
        training.write("/etc/shardwire/trainerd.conf", trainerd, "644")
        inference.write("/etc/shardwire/inferd.conf", inferd, "644")

    def test_as_the_readme_says(self):
        training, inference = self.hosts["training"], self.hosts["inference"]
        self.configure()
        checkpoint = os.path.join(self.folder, "checkpoint")
        run(binary("shardwire-make-checkpoint"), "--layouts", os.path.join(ROOT, "layouts"),
            os.path.join(CONFIGS, "tiny-qwen3.json"), checkpoint)
        training.start("trainerd", binary("trainerd")).wait_line(r"info: ready")
        inference.start("inferd", binary("inferd")).wait_line(r"connected to the coordinator")
        digests = os.path.join(self.folder, "digests")
        engine = inference.start(
            "engine", binary("shardwire-engine"), checkpoint, "--name", "demo", "--digests", digests,
            kind=Engine, more=(digests,))
        engine.wait_line(r"^registered ")
        push = training.run(binary("shardctl"), "push", checkpoint, check=False)
        self.assertEqual(push.returncode, 0, push.stdout)
        self.assertRegex(push.stdout, r"demo +yes +1 +tcp")
        engine.wait_live(1)
        engine.digests()
        self.assertEqual(run("python3", ORACLE, checkpoint, digests, check=False).returncode, 0)
        with_secret = ["--host", HOSTS["inference"] + ":7471", "--secret-file",
                       "/etc/shardwire/secret", "status"]
        status = training.run(binary("shardctl"), *with_secret, check=False)
        self.assertEqual(status.returncode, 0, status.stdout)
        self.assertIn("demo", status.stdout)
        without = training.run(binary("shardctl"), "--host", HOSTS["inference"] + ":7471", "status",
                               check=False)
        self.assertNotEqual(without.returncode, 0)
        self.assertIn("secret", without.stdout)
        self.assertEqual(set(self.end()), {0})


if __name__ == "__main__":
    assert BUILD
    unittest.main()
