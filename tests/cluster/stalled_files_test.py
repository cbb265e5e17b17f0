"""A file system that stops answering under a server: under its mapped index, or under
the data that it reads. The server says so, stops being healthy, and is well again once
the file system is.

    bazel test //tests/cluster:stalled_files_test
"""

import json
import os
import sys
import tempfile
import time
import unittest

from tests.cluster import corpora, mirror, nodes
from tests.harness import tools

CONFIG = """
sources:
  - {{name: docs, format: webdataset, path: "{data}/docs-*.tar", index: "{data}/docs.index"}}
model: {{profile: qwen2_5_vl, tokenizer: bytes}}
batch: {{global: 12, micro: 12, max_tokens: 8192}}
topology: {{modules: {{vision: {{dp: 1}}, language: {{dp: 1}}}}}}
balance: {{delivery: direct}}
serve: {{threads: 2, memory: 32MiB, prefetch_steps: 1, stall_after: 1, read_timeout: 4}}
"""
# 64 pages of the index, so that every step looks into pages that are new.
SAMPLES = 4096
STEPS = 12
# One block at a time, so that the rank needs its server at every batch.
FLAGS = ["--module", "language", "--dp-rank", 0, "--steps", STEPS, "--max-bytes", 1,
         "--hang-after", 60]  # fmt: skip
# For what takes a second or two.
PATIENCE_S = 60


class StalledFilesTest(tools.JobTest):
    def setUp(self):
        super().setUp()
        data = f"{self.folder}/data"
        os.mkdir(data)
        corpora.write_texts(f"{data}/docs-0.tar", SAMPLES)
        self.set_up_job(CONFIG.format(data=data))
        self.index = f"{data}/docs.index"
        self.undisturbed = self.undisturbed_batches()
        self.mirror = mirror.Mirror(data)
        self.addCleanup(self.mirror.close)

    def undisturbed_batches(self):
        server = self.start_server("a")
        rank = self.start_rank([server], *FLAGS)
        rank.advance(STEPS + 1)
        server.drain()
        self.assertTrue(rank.ended)
        return rank.batches

    def ctl(self, *arguments):
        return tools.run("ballastctl", "--server", f"unix:{self.folder}/a.sock", *arguments)

    def await_log(self, *parts):
        """The first line of the programs' log with all the parts."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            with open(self.log, encoding="utf-8") as log:
                for line in log:
                    if all(part in line for part in parts):
                        return line
            self.ctl("health", "--alive")  # what takes a moment
        raise AssertionError(f"no line of the log has {parts}")

    def await_unhealthy(self):
        end = time.monotonic() + PATIENCE_S
        while self.ctl("health").returncode == 0:
            self.assertLess(time.monotonic(), end, "health is SERVING")

    def test_under_the_index(self):
        server = self.start_server("a")
        rank = self.start_rank([server], *FLAGS)
        self.addCleanup(self.mirror.heal)  # before the processes are killed
        rank.advance(2)
        self.mirror.stall("docs.index")
        self.await_unhealthy()
        self.await_log("stall: looking samples up in the index", "schedule of step", self.index)
        self.await_log("nothing goes on")
        # A restart would stall in the same place.
        self.assertEqual(self.ctl("health", "--alive").returncode, 0)
        status = json.loads(self.ctl("status", "--json").stdout)
        self.assertTrue(status["stalls"], status)
        self.mirror.heal()
        self.ok("ballastctl", "--server", server.address, "health", "--wait", PATIENCE_S)
        self.await_log("work goes on")
        rank.advance(STEPS)
        self.assertTrue(rank.ended)
        self.assertEqual(rank.batches, self.undisturbed)

    def test_a_server_under_it_ends_in_time(self):
        server = self.start_server("a")
        rank = self.start_rank([server], *FLAGS)
        self.addCleanup(self.mirror.heal)
        rank.advance(2)
        self.mirror.stall("docs.index", only_reads=True)
        self.await_log("stall: looking samples up in the index")
        server.drain()  # with status 0
        self.await_log("closing: ends now, 10s after the signal", "still blocked")

    def test_under_the_data(self):
        server = self.start_server("a")
        rank = self.start_rank([server], *FLAGS)
        self.addCleanup(self.mirror.heal)
        rank.advance(2)
        self.mirror.stall("docs-0.tar")
        self.await_unhealthy()
        self.await_log("stall: reading text of docs:", "docs-0.tar at byte")
        self.mirror.heal()
        self.ok("ballastctl", "--server", server.address, "health", "--wait", PATIENCE_S)
        rank.advance(STEPS)
        self.assertTrue(rank.ended)
        self.assertEqual(rank.batches, self.undisturbed)


def mount_or_skip():
    try:
        mirror.own_mounts()
        with tempfile.TemporaryDirectory() as folder:
            mirror.Mirror(folder).close()
    except OSError as error:
        nodes.skip_or_fail(f"no FUSE file system can be mounted here (as root?): {error}")


if __name__ == "__main__":
    mount_or_skip()
    sys.argv[1:1] = ["-v"]
    unittest.main()
