"""Ranks at a Unix socket go on, and the server's memory stays, while strangers at the same
server's TCP address or socket do what attacks.py lists. It measures rates, so other work of
the machine counts, too: each attack has three tries.

    attack_test.py [--table] [KIND ...]
"""

import collections
import json
import os
import subprocess
import sys
import threading
import time
import unittest
import urllib.request

from tests.harness import tools
from tests.integration.security import attacks

# Of its rate in peace, what a rank keeps.
KEPT = 0.5
# Of memory beside the arena's, what the strangers' connections may take: docs/deployment.md.
MOST_MIB = 160
WINDOW_S = 1.5
CONFIG = tools.CONFIG.replace(
    'listen: ["127.0.0.1:0"]', 'listen: ["127.0.0.1:0"], http: "127.0.0.1:0", memory: 64MiB'
)


class Puller:
    """Pulls blocks at an address and counts them."""

    def __init__(self, address, log):
        self.count = 0
        with open(log, "ab") as file:
            self.process = subprocess.Popen(
                [tools.program("ballastctl"), "--server", address, "pull", "--module",
                 "language", "--dp-rank", "0", "--step", "0", "--steps", "100000000", "--json"],
                stdout=subprocess.PIPE, stderr=file,
            )  # fmt: skip
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        for _ in self.process.stdout:
            self.count += 1

    def rate(self, seconds=WINDOW_S):
        before, start = self.count, time.monotonic()
        time.sleep(seconds)
        return (self.count - before) / (time.monotonic() - start)

    def end(self):
        self.process.kill()
        self.process.wait(tools.TIMEOUT_S)
        self.thread.join()
        self.process.stdout.close()


class AttackTest(tools.ToolTest):
    results = collections.OrderedDict()

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.config = tools.set_up(cls.folder, CONFIG, 64)
        cls.log = cls.folder + "/log"
        cls.socket = f"unix:{cls.folder}/a.sock"
        cls.server_ = tools.Server(cls.config, cls.socket, "127.0.0.1:0", log=cls.log).up()
        cls.addClassCleanup(cls.server_.end, 9)
        cls.tcp = cls.server_.addresses[1]
        with open(cls.log, encoding="utf-8") as log:
            cls.page = log.read().partition("page at ")[2].partition("/,")[0]
        cls.puller = Puller(cls.socket, cls.log)
        cls.addClassCleanup(cls.puller.end)
        while cls.puller.count < 50:
            if cls.puller.process.poll() is not None:
                with open(cls.log, encoding="utf-8") as log:
                    raise AssertionError("the rank ended: " + log.read()[-2000:])
            time.sleep(0.05)

    def attack(self, kind, address):
        """The share of its rate that the rank keeps, and the memory at the end in MiB."""
        before = self.puller.rate()
        attacker = subprocess.Popen(
            [sys.executable, attacks.__file__, kind, address, str(2 * WINDOW_S)],
            stdout=subprocess.PIPE,
        )
        time.sleep(WINDOW_S / 2)
        during = self.puller.rate()
        memory = tools.resources(self.server_.process)["mib"]
        said = attacker.communicate(timeout=tools.TIMEOUT_S)[0].decode().strip()
        after = self.puller.rate()
        self.assertIsNone(self.server_.process.poll(), "the server ended")
        self.assertIsNone(self.puller.process.poll(), "the rank ended")
        share = during / max(min(before, after), 1e-9)
        print(f"{kind:20} {address[:9]:9} {before:6.0f} {during:6.0f} {after:6.0f} blocks/s, "
              f"{share:4.2f}, {memory:5.0f} MiB; {said}", flush=True)  # fmt: skip
        return share, memory

    def check(self, kind, address):
        for left in (2, 1, 0):
            share, memory = self.attack(kind, address)
            self.assertLess(memory, self.peace_mib + MOST_MIB)
            if share >= KEPT:
                return
        self.fail(f"{kind}: the rank keeps {share:.2f} of its rate")

    def test_ranks_go_on(self):
        self.__class__.peace_mib = tools.resources(self.server_.process)["mib"]
        for kind in KINDS:
            for address in (self.tcp, self.socket):
                with self.subTest(kind=kind, address=address):
                    self.check(kind, address)
        # The address still takes connections, and the page answers.
        self.ok("ballastctl", "--server", self.tcp, "health")
        with urllib.request.urlopen(self.page + "/metrics", timeout=5) as metrics:
            self.assertIn(b"ballast_", metrics.read())


KINDS = list(attacks.KINDS)

if __name__ == "__main__":
    unittest.main()
