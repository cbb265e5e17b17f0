"""A server whose process is stopped (SIGSTOP): its sockets accept connections and
answer nothing. Probes notice it, and ranks go on elsewhere or end in bounded time.

    bazel test //tests/faults:stopped_server_test
"""

import time
import unittest

from tests.harness import tools

CONFIG = """
sources: [{name: docs, format: webdataset, path: "docs-*.tar"}]
model: {profile: qwen2_5_vl, tokenizer: bytes, max_pixels: 12544}
batch: {global: 4, micro: 4, max_tokens: 8192}
topology: {modules: {vision: {dp: 1}, language: {dp: 1}}}
balance: {delivery: direct}
serve: {threads: 2, memory: 64MiB, prefetch_steps: 1}
"""
# One block at a time, so that a rank needs its server at every batch.
FLAGS = ["--module", "vision", "--dp-rank", 0, "--max-bytes", 1, "--hang-after", 2]
STEPS = 12
# A health check waits for 10 s, and Kubernetes' probe for 15 s.
PROBE_S = 15


class StoppedServerTest(tools.JobTest):
    def setUp(self):
        super().setUp()
        self.set_up_job(CONFIG, samples=32)

    def health(self, server, *flags):
        """Exit status and duration of a probe."""
        start = time.monotonic()
        done = tools.run("ballastctl", "--server", server.address, "health", *flags)
        return done.returncode, time.monotonic() - start

    def test_probes_notice_it(self):
        server = self.start_server("a")
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
        first, second = self.start_server("a"), self.start_server("b")
        undisturbed = self.start_rank([second], *FLAGS, "--steps", STEPS)
        undisturbed.advance(STEPS + 1)
        rank = self.start_rank([first, second], *FLAGS, "--steps", STEPS)
        rank.advance(3)
        first.hang()
        rank.advance(STEPS)
        first.wake()
        self.assertTrue(rank.ended)
        self.assertEqual(rank.batches, undisturbed.batches)

    def test_a_rank_without_another_ends_in_bounded_time(self):
        server = self.start_server("a")
        rank = self.start_rank([server], *FLAGS, "--steps", 1000, "--give-up-after", 4)
        rank.advance(1)
        server.hang()
        start = time.monotonic()
        self.assertTrue(tools.advance([rank]))
        took = time.monotonic() - start
        server.wake()
        self.assertNotEqual(rank.status, 0)
        self.assertIn("the only server cannot go on", rank.said())
        # The limit for a silent server, the time to give up, and calls that time
        # out after 10 s each.
        self.assertLess(took, 60)


if __name__ == "__main__":
    unittest.main()
