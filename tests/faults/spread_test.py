"""Ranks whose blocks several servers make at once: servers die, come back, and belong to
another job, and every batch is the one of a single server.

    bazel test //tests/faults:spread_test
"""

import os
import statistics
import unittest

from tests.harness import tools

CONFIG = """
sources: [{name: docs, format: webdataset, path: "docs-*.tar"}]
model: {profile: qwen2_5_vl, tokenizer: bytes, max_pixels: 200704}
batch: {global: 8, micro: 4, max_tokens: 8192}
topology: {modules: {vision: {dp: 1}, language: {dp: 1}}}
balance: {delivery: direct}
serve: {threads: 1, memory: 64MiB, prefetch_steps: 2}
"""
VISION = ["--module", "vision", "--dp-rank", 0]
# Times the images a second of one server.
FAIR_SHARE = 1.9


def processor_seconds(server):
    """Time that the process has used of processors, its threads included."""
    with open(f"/proc/{server.process.pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class SpreadTest(tools.JobTest):
    def setUp(self):
        super().setUp()
        self.set_up_job(CONFIG, samples=64)

    def run_rank(self, servers, steps, *flags):
        rank = self.start_rank(servers, *VISION, "--steps", steps, *flags)
        rank.advance(2 * steps + 1)
        self.assertTrue(rank.ended)
        return rank

    def test_servers_die_and_come_back_and_no_batch_differs(self):
        steps = 60
        servers = [self.start_server(name) for name in "abc"]
        undisturbed = self.run_rank(servers[:1], steps)
        rank = self.start_rank(servers, *VISION, "--steps", steps, "--spread", 3)
        for turn in range(6):
            server = servers[turn % 3]
            rank.advance(8)
            server.kill()
            rank.advance(8)
            server.up()
        rank.advance(2 * steps)
        self.assertTrue(rank.ended)
        self.assertEqual(rank.batches, undisturbed.batches)
        said = rank.said()
        self.assertIn("failed at step", said)
        self.assertIn("takes a share", said)

    def test_a_server_of_another_configuration_is_refused_and_named(self):
        steps = 10
        servers = [self.start_server(name) for name in "ab"]
        right = self.config
        self.config = self.write("other.yaml", CONFIG + "order: {seed: 99}\n")
        other = self.start_server("other")
        self.config = right
        rank = self.run_rank([*servers, other], steps, "--spread", 4)
        self.assertEqual(rank.batches, self.run_rank(servers[:1], steps).batches)
        said = rank.said()
        self.assertIn("going on without", said)
        self.assertIn(other.address, said)
        self.assertIn("order.seed", said)

    def test_two_servers_share_the_work(self):
        # Samples of equal and real cost: what is measured is the share of blocks, not what
        # a step costs every server.
        text = CONFIG.replace("global: 8, micro: 4", "global: 16, micro: 8")
        text = text.replace("max_pixels: 200704", "max_pixels: 1003520")
        os.makedirs(self.path("even"))
        self.config = tools.set_up(self.path("even"), text, 64, "--preset", "receipts")
        steps = 60

        def used(*names):
            servers = [self.start_server(name) for name in names]
            before = [processor_seconds(server) for server in servers]
            self.run_rank(servers, steps, "--spread", len(servers))
            seconds = [processor_seconds(server) - start for server, start in zip(servers, before)]
            for server in servers:
                server.kill()
            return seconds

        # Images a second of one rank, where the busiest server is the bound. A server's place
        # on the circle follows from its port, so pairs differ.
        ratios = []
        for turn in "abc":
            alone, pair = used(turn), used(turn + "1", turn + "2")
            ratios.append(max(alone) / max(pair))
            print(
                f"processor seconds of one server {alone}, of two {pair}: "
                f"{ratios[-1]:.2f} times as fast"
            )
        self.assertGreaterEqual(statistics.median(ratios), FAIR_SHARE)


if __name__ == "__main__":
    unittest.main()
