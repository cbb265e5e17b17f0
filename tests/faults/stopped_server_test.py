"""A server whose process is stopped (SIGSTOP): its sockets accept connections and
answer nothing. Probes notice it, and ranks go on elsewhere or end in bounded time.

    bazel test //tests/faults:stopped_server_test
"""

import subprocess
import time
import unittest

from tests.faults import cluster, small_job
from tests.integration.command_line import tools

CONFIG = """
sources: [{name: docs, format: webdataset, path: "docs-*.tar"}]
model: {profile: qwen2_5_vl, tokenizer: bytes, max_pixels: 12544}
batch: {global: 4, micro: 4, max_tokens: 8192}
topology: {modules: {vision: {dp: 1}, language: {dp: 1}}}
balance: {delivery: direct}
serve: {threads: 2, memory: 64MiB, prefetch_steps: 1}
"""
STEPS = 12
# One block at a time, so that a rank needs its server at every batch.
FLAGS = ["--max-bytes", "1", "--hang-after", "2"]
ROLE = ("vision", 0)
# A health check waits for 10 s, and Kubernetes' probe for 15 s.
PROBE_S = 15


class StoppedServerTest(small_job.SmallJob):
    def setUp(self):
        super().setUp()
        self.set_up_job(CONFIG, samples=32)

    def health(self, server, *flags):
        """Exit status and duration of a probe."""
        start = time.monotonic()
        done = tools.run("ballastctl", "--server", server.address, "health", *flags)
        return done.returncode, time.monotonic() - start

    def test_probes_notice_it(self):
        server = self.server("a")
        for flags in ([], ["--alive"]):
            self.assertEqual(self.health(server, *flags)[0], 0)
        server.hang()
        for flags in ([], ["--alive"]):
            status, took = self.health(server, *flags)
            self.assertEqual(status, 1)
            self.assertLess(took, PROBE_S)
        server.wake()
        self.assertEqual(self.health(server, "--alive", "--wait", "10")[0], 0)

    def test_a_rank_goes_on_at_another_server(self):
        first, second = self.server("a"), self.server("b")
        undisturbed = cluster.Rank(ROLE, [second.address], STEPS, self.log, FLAGS)
        undisturbed.advance(STEPS + 1)
        rank = cluster.Rank(ROLE, [first.address, second.address], STEPS, self.log, FLAGS)
        self.addCleanup(rank.kill)
        rank.advance(3)
        first.hang()
        rank.advance(STEPS)
        first.wake()
        self.assertTrue(rank.ended)
        self.assertEqual(rank.batches, undisturbed.batches)

    def test_a_rank_without_another_ends_in_bounded_time(self):
        server = self.server("a")
        rank = subprocess.Popen(
            [tools.program("ballast-rank"), "--server", server.address, "--json",
             "--module", "vision", "--dp-rank", "0", "--steps", "1000", *FLAGS,
             "--give-up-after", "4"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.addCleanup(rank.kill)
        rank.stdout.readline()
        server.hang()
        start = time.monotonic()
        _, error = rank.communicate(timeout=tools.TIMEOUT_S)
        took = time.monotonic() - start
        server.wake()
        self.assertNotEqual(rank.returncode, 0)
        self.assertIn(b"the only server cannot go on", error)
        # The limit for a silent server, the time to give up, and calls that time
        # out after 10 s each.
        self.assertLess(took, 60)


if __name__ == "__main__":
    unittest.main()
