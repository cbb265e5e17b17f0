"""The ranks of a job at one server that is started with fewer descriptors than they take.
RANKS=512 makes it as many; they take 18 descriptors of the hard limit each, and are one
process, which gets half of the places."""

import json
import os
import resource
import unittest

from tests.harness import tools

RANKS = int(os.environ.get("RANKS", "24"))
SOFT, HARD = 2 * RANKS, 36 * RANKS
CONFIG = f"""
sources:
  - {{name: docs, format: webdataset, path: "docs-*.tar"}}
model: {{profile: qwen2_5_vl, tokenizer: bytes, max_pixels: 50176}}
batch: {{global: {RANKS}, micro: {RANKS}, max_tokens: 8192}}
topology: {{modules: {{language: {{dp: {RANKS}}}, vision: {{dp: 1}}}}}}
balance: {{delivery: "off"}}
serve: {{memory: 256MiB}}
"""


class DescriptorsTest(tools.ToolTest):
    def test_the_limit_is_raised(self):
        config = tools.set_up(self.folder, CONFIG, RANKS)
        server = tools.Server(
            config, f"unix:{self.folder}/a.sock", log=self.folder + "/log",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, HARD)),
        )  # fmt: skip
        self.addCleanup(server.kill)
        batches = tools.json_lines(
            "ballast-rank", "--server", server.up().address, "--steps", 1, "--world", "all",
            "--json",
        )  # fmt: skip
        self.assertEqual(len(batches), RANKS + 1)
        status = json.loads(self.ok("ballastctl", "--server", server.address, "status", "--json"))
        self.assertNotIn("connections", [problem["kind"] for problem in status["problems"]])


if __name__ == "__main__":
    unittest.main()
