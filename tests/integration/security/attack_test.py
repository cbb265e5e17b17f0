"""A rank at a Unix socket goes on, the server's memory stays, and its addresses answer, while
and after strangers at the same server's TCP address or socket do what attacks.py lists."""

import json
import statistics
import subprocess
import sys
import threading
import time
import unittest
import urllib.request

from tests.harness import tools
from tests.integration.security import attacks

# Of its rate in peace, what the rank keeps.
KEPT = 0.5
# What strangers' connections may take beside the arena: half of what docs/deployment.md
# states for the program and its connections.
MOST_MIB = 256
# Until an address answers after an attack.
ANSWERS_S = 5
BLOCKS = 20
WINDOW_S = 0.7
ROUNDS, MOST_ROUNDS = 1, 9
CONFIG = tools.CONFIG.replace(
    'listen: ["127.0.0.1:0"]', 'listen: ["127.0.0.1:0"], http: "127.0.0.1:0", memory: 64MiB'
)


class Puller:
    """Pulls blocks at an address and counts them."""

    def __init__(self, address, log):
        self.count = 0
        self.changed = threading.Condition()
        with open(log, "ab") as file:
            self.process = subprocess.Popen(
                [tools.program("ballastctl"), "--server", address, "pull", "--module",
                 "language", "--dp-rank", "0", "--step", "0", "--steps", "100000000", "--json"],
                stdout=subprocess.PIPE, stderr=file,
            )  # fmt: skip
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        for line in self.process.stdout:
            json.loads(line)
            with self.changed:
                self.count += 1
                self.changed.notify_all()
        with self.changed:
            self.count = -1
            self.changed.notify_all()

    def advance(self, blocks):
        """Waits for so many blocks more; returns the seconds that they took."""
        begin = time.monotonic()
        with self.changed:
            wanted = self.count + blocks
            came = self.changed.wait_for(
                lambda: self.count < 0 or self.count >= wanted, tools.TIMEOUT_S
            )
            if not came or self.count < 0:
                raise AssertionError(f"the rank has {self.count} blocks of {wanted}")
        return time.monotonic() - begin

    def end(self):
        self.process.kill()
        self.process.wait(tools.TIMEOUT_S)
        self.thread.join()
        self.process.stdout.close()


class AttackTest(tools.ToolTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        config = tools.set_up(cls.folder, CONFIG, 64)
        cls.log = cls.folder + "/log"
        cls.socket = f"unix:{cls.folder}/a.sock"
        cls.target = tools.Server(config, cls.socket, "127.0.0.1:0", log=cls.log).up()
        cls.addClassCleanup(cls.target.kill)
        cls.tcp = cls.target.addresses[1]
        with open(cls.log, encoding="utf-8") as log:
            cls.page = log.read().partition("page at ")[2].partition("/,")[0]
        cls.puller = Puller(cls.socket, cls.log)
        cls.addClassCleanup(cls.puller.end)
        cls.puller.advance(BLOCKS)
        cls.peace_mib = tools.resources(cls.target.process)["mib"]

    def rate(self):
        """Blocks a second that the rank gets, over at least WINDOW_S."""
        blocks = seconds = 0
        while seconds < WINDOW_S:
            seconds += self.puller.advance(BLOCKS)
            blocks += BLOCKS
        return blocks / seconds

    def attacked(self, kind, address):
        """Its rate during an attack; afterwards, seconds until the address answers."""
        # Strangers have processors of their own.
        attacker = subprocess.Popen(
            ["nice", "-n", "19", sys.executable, attacks.__file__, kind, address,
             str(tools.TIMEOUT_S)],
            stdout=subprocess.PIPE,
        )  # fmt: skip
        try:
            self.assertEqual(attacker.stdout.readline(), b"begun\n")
            during = self.rate()
            memory = tools.resources(self.target.process)["mib"]
        finally:
            attacker.kill()
            attacker.wait(tools.TIMEOUT_S)
            attacker.stdout.close()
        ended = time.monotonic()
        self.ok("ballastctl", "--server", address, "status", "--interval", 0)
        return during, memory, time.monotonic() - ended

    def attack(self, kind, address):
        """Alternates peace and attack, until most rounds agree or enough were tried: this
        machine may do other things."""
        shares = []
        before = self.rate()
        while len(shares) < MOST_ROUNDS:
            during, memory, seconds = self.attacked(kind, address)
            after = self.rate()
            shares.append(2 * during / (before + after))
            print(f"{kind:20} {address[:9]:9} {before:7.1f} {during:7.1f} {after:7.1f} blocks/s, "
                  f"{shares[-1]:5.2f}, {memory:5.0f} MiB, answers after {seconds:4.1f} s", flush=True)  # fmt: skip
            self.assertIsNone(self.target.process.poll(), "the server ended")
            self.assertLess(memory, self.peace_mib + MOST_MIB)
            self.assertLess(seconds, ANSWERS_S)
            if len(shares) >= ROUNDS and statistics.median(shares) >= KEPT:
                break
            before = after
        self.assertGreaterEqual(statistics.median(shares), KEPT)

    def test_a_rank_goes_on(self):
        for kind in attacks.KINDS:
            for address in (self.tcp, self.socket):
                with self.subTest(kind=kind, address=address):
                    self.attack(kind, address)
        with urllib.request.urlopen(self.page + "/metrics", timeout=tools.TIMEOUT_S) as metrics:
            self.assertIn(b"ballast_", metrics.read())


if __name__ == "__main__":
    unittest.main()
