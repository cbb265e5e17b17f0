"""Real servers agree on changes while one of them is killed at each write of the agreement:
each change holds at all servers or at none, and all serve the same steps.

    bazel test //tests/faults:agreement_test
"""

import json
import os
import signal
import time
import unittest

from tests.harness import tools

SERVERS = ("a", "b", "c")
CONFIG = """
sources:
  - {name: docs, format: webdataset, path: "docs-*.tar", weight: 3}
  - {name: more, format: webdataset, path: "docs-*.tar", weight: 1}
model: {profile: qwen2_5_vl, tokenizer: bytes, max_pixels: 12544}
batch: {global: 6, micro: 6, max_tokens: 8192}
topology:
  modules: {vision: {dp: 3}, language: {dp: 3}}
  servers:
    - {address: "unix:FOLDER/a.sock", ranks: {vision: "0", language: "0"}}
    - {address: "unix:FOLDER/b.sock", ranks: {vision: "1", language: "1"}}
    - {address: "unix:FOLDER/c.sock", ranks: {vision: "2", language: "2"}}
serve: {threads: 1, memory: 64MiB, prefetch_steps: 1}
"""
# The server that is killed, the write of its file from the offer on, and when; whether the
# change holds then. a decides, and writes the attempt, its own yes, and the decision; the
# others write their yes, and the decision.
POINTS = [
    ("a", 1, "before", False),
    ("a", 1, "after", False),
    ("a", 2, "before", False),
    ("a", 2, "after", False),
    ("a", 3, "before", False),
    ("a", 3, "after", True),
    ("b", 1, "before", False),
    ("b", 1, "after", False),
    ("b", 2, "before", True),
    ("b", 2, "after", True),
]
LIBRARY = os.path.join(
    os.environ["TEST_SRCDIR"],
    os.environ["TEST_WORKSPACE"],
    "tests/faults/libdie_at_rename.so",
)


class AgreementTest(tools.JobTest):
    def setUp(self):
        super().setUp()
        self.text = CONFIG.replace("FOLDER", self.folder)
        self.set_up_job(self.text, samples=24)

    def start(self, name):
        env = dict(os.environ, LD_PRELOAD=LIBRARY, BALLAST_DIE_AT=self.path(f"{name}.dies"))
        return self.start_changeable(name, env=env)

    def schedule(self, server, step):
        """The fingerprint of a step; None: it is not served."""
        done = tools.run(
            "ballastctl", "--server", server.address, "schedule", "--step", step, "--json"
        )
        if done.returncode != 0:
            return None
        return json.loads(done.stdout)["fingerprint"]

    def await_step(self, server, step):
        end = time.monotonic() + tools.TIMEOUT_S
        while (found := self.schedule(server, step)) is None:
            self.assertLess(time.monotonic(), end, f"{server.address} does not serve {step}")
        return found

    def changes(self, server):
        status = tools.json_lines("ballastctl", "--server", server.address, "status", "--json")
        return [change["first_step"] for change in status[0].get("changes", [])]

    def test_a_change_holds_at_all_servers_or_at_none(self):
        servers = {name: self.start(name) for name in SERVERS}
        holding = []
        for number, (victim, write, when, holds) in enumerate(POINTS):
            with self.subTest(victim=victim, write=write, when=when):
                first = 100 + 10 * number
                for server in servers.values():
                    before = self.await_step(server, first + 1)
                order = self.write(
                    f"{victim}.dies", f"{self.path(victim)}.revisions {write} {when}"
                )
                offered = self.write(
                    "new.yaml", self.text.replace("weight: 3", f"weight: {4 + number}")
                )
                done = tools.run(
                    "ballastctl",
                    "--server",
                    servers["a"].address,
                    "change",
                    "--config",
                    offered,
                    "--from-step",
                    first,
                )
                died = servers[victim].process.wait(tools.TIMEOUT_S)
                self.assertEqual(died, -signal.SIGKILL)
                # The server that decides has answered, unless it is the one.
                self.assertEqual(done.returncode == 0, holds and victim != "a", done.stderr)
                os.remove(order)
                # Until the victim is back, no other server serves another step than the
                # job ends with.
                given = {
                    self.schedule(servers[name], first) for name in SERVERS if name != victim
                } - {None}
                servers[victim] = self.start(victim)
                found = {self.await_step(server, first) for server in servers.values()}
                self.assertEqual(len(found), 1)
                self.assertEqual(found != {before}, holds)
                self.assertLessEqual(given, found)
                holding += [first] if holds else []
                for server in servers.values():
                    self.assertEqual(self.changes(server), holding)
                    self.assertEqual(self.await_step(server, first - 1), before)


if __name__ == "__main__":
    unittest.main()
