"""A server in a cgroup whose memory is limited: to less than it needs, so that the
kernel kills it, its ranks go on at another server, and no sample is lost or changed;
and to what docs/deployment.md says that it needs, which large images do not exceed.

    bazel test //tests/cluster:limits_test
"""

import os
import sys
import tempfile
import unittest

from tests.cluster import nodes
from tests.faults import large_images
from tests.harness import tools

CONFIG = """
sources: [{name: docs, format: webdataset, path: "docs-*.tar"}]
model: {profile: qwen2_5_vl, tokenizer: bytes, max_pixels: 50176}
batch: {global: 4, micro: 4, max_tokens: 8192}
topology: {modules: {vision: {dp: 1}, language: {dp: 1}}}
balance: {delivery: direct}
serve: {threads: 2, memory: 64MiB, prefetch_steps: 1}
"""
# docs/deployment.md: serve.memory, serve.decode_memory, and the rest.
LARGE_CONFIG = large_images.job_config(
    8, "threads: 8, memory: 64MiB, decode_memory: 1GiB, prefetch_steps: 1"
)
REST = (512 << 20) + 8 * (32 << 20)
STEPS = 60
# One block at a time, so that the rank needs its server at every batch.
FLAGS = ["--module", "vision", "--dp-rank", 0, "--steps", STEPS, "--max-bytes", 1,
         "--hang-after", 10]  # fmt: skip
MARGIN = 1 << 18


class Cgroup:
    """A memory cgroup of this test, of either version. OSError where none can be made."""

    def __init__(self):
        one = "/sys/fs/cgroup/memory"
        self._first = os.path.isdir(one)
        parent = one if self._first else "/sys/fs/cgroup"
        self.path = tempfile.mkdtemp(prefix="ballast-test-", dir=parent)
        try:
            self._read("memory.usage_in_bytes" if self._first else "memory.current")
        except OSError:
            self.remove()
            raise

    def _read(self, name):
        with open(f"{self.path}/{name}", encoding="ascii") as file:
            return file.read()

    def _write(self, name, value):
        with open(f"{self.path}/{name}", "w", encoding="ascii") as file:
            file.write(str(value))

    def enter(self):
        """Puts the calling process into the cgroup."""
        self._write("cgroup.procs", os.getpid())

    def limit_to_what_is_used(self):
        """Leaves MARGIN bytes, and none of swap."""
        if self._first:
            used = int(self._read("memory.usage_in_bytes"))
        else:
            used = int(self._read("memory.current"))
        self.limit(used + MARGIN)

    def limit(self, size):
        if self._first:
            self._write("memory.limit_in_bytes", size)
            if os.path.exists(f"{self.path}/memory.memsw.limit_in_bytes"):
                self._write("memory.memsw.limit_in_bytes", size)
        else:
            self._write("memory.swap.max", 0)
            self._write("memory.max", size)

    def kills(self):
        name = "memory.oom_control" if self._first else "memory.events"
        for line in self._read(name).splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
        return 0

    def remove(self):
        os.rmdir(self.path)


class LimitsTest(tools.JobTest):
    def setUp(self):
        super().setUp()
        self.cgroup = Cgroup()
        self.addCleanup(self.cgroup.remove)

    def confined_server(self):
        """A server in the cgroup."""
        return self.start_server("a", preexec_fn=self.cgroup.enter)

    def test_large_images_stay_within_what_is_stated(self):
        # 432 MB of coefficients each; eight threads want 3.4 GB.
        image = large_images.progressive_jpeg(12000, 12000)
        large_images.write_samples(self.folder, {f"{i}.jpg": image for i in range(8)})
        self.set_up_job(LARGE_CONFIG)
        self.cgroup.limit((64 << 20) + (1 << 30) + REST)
        server = self.confined_server()
        self.ok("ballast-rank", "--server", server.address, "--steps", 2, "--world", "all",
                "--hang-after", 200)  # fmt: skip
        self.assertEqual(self.cgroup.kills(), 0)
        self.assertIsNone(server.process.poll())

    def test_a_server_without_memory_is_killed_and_its_ranks_go_on(self):
        self.set_up_job(CONFIG, samples=32)
        other = self.start_server("b")
        undisturbed = self.start_rank([other], *FLAGS)
        undisturbed.advance(STEPS + 1)
        server = self.confined_server()
        rank = self.start_rank([server, other], *FLAGS)
        rank.advance(3)
        self.cgroup.limit_to_what_is_used()
        rank.advance(STEPS)
        self.assertTrue(rank.ended)
        self.assertEqual(rank.batches, undisturbed.batches)
        self.assertEqual(self.cgroup.kills(), 1, "the limit does not bite")
        self.assertEqual(server.process.wait(tools.TIMEOUT_S), -9)


if __name__ == "__main__":
    try:
        Cgroup().remove()
    except OSError as error:
        nodes.skip_or_fail(f"no memory cgroup can be made here (as root?): {error}")
    sys.argv[1:1] = ["-v"]
    unittest.main()
