"""A server's memory over Parquet does not grow with the number of row groups."""

import os
import re
import subprocess
import sys
import unittest

from tests.harness import tools

MIB = 1 << 20
ROWS = 16  # of a row group
GROUP = 4 * MIB
MEMORY = 32 * MIB
KEPT = 16 * MIB  # row groups that the server keeps
THREADS = 2
MANY = 80
CONFIG = """
sources: [{{name: rows, format: parquet, path: "rows-*.parquet", shuffle_groups: 4}}]
model: {{profile: qwen2_5_vl, tokenizer: bytes, max_pixels: 50176}}
batch: {{global: 64, micro: 64, max_tokens: 1024}}
topology: {{modules: {{vision: {{dp: 1}}, language: {{dp: 1}}}}}}
serve:
  {{listen: ["127.0.0.1:0"], threads: {threads}, memory: {memory}, row_group_memory: {kept}}}
"""


def peak(pid):
    with open("/proc/%d/status" % pid, encoding="ascii") as file:
        return int(re.search(r"VmHWM:\s+(\d+) kB", file.read())[1]) * 1024


class RowGroupMemoryTest(tools.ToolTest):
    def peak_of_steps(self, groups):
        """The peak of a server's resident memory over `groups` row groups."""
        folder = self.path(str(groups))
        os.mkdir(folder)
        done = subprocess.run(
            ["tests/integration/parquet/write_rows", folder + "/rows", "4", str(groups // 4),
             str(ROWS), str(GROUP // ROWS)],
            stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        if "does not know Parquet" in done.stderr:
            print("SKIPPED: this build has no Arrow")
            sys.exit(0)
        self.assertEqual(done.returncode, 0, done.stderr)
        config = self.write(
            "%d/job.yaml" % groups,
            CONFIG.format(threads=THREADS, memory=MEMORY, kept=KEPT),
        )
        self.assertIn(" 0 bad", self.ok("ballast-server", "index", "--config", config))
        # As long over few row groups as over many.
        steps = MANY * ROWS // 64
        with self.server_process(config, "127.0.0.1:0") as (process, (address,)):
            for module in ("vision", "language"):
                pulled = self.json_lines(
                    "ballastctl", "--server", address, "pull", "--module", module,
                    "--dp-rank", 0, "--step", 0, "--steps", steps, "--json",
                )  # fmt: skip
                self.assertEqual(len(pulled), steps)
            return peak(process.pid)

    def test_the_peak_has_a_bound(self):
        few = self.peak_of_steps(16)
        many = self.peak_of_steps(MANY)
        print("peak: %.1f MiB over 16 row groups, %.1f MiB over %d" % (few / MIB, many / MIB, MANY))
        # docs/parquet.md, "The memory of a server".
        program = 96 * MIB
        of_a_thread = 7 * GROUP
        self.assertLess(many, program + MEMORY + KEPT + THREADS * of_a_thread)
        # Of 256 MiB more of data no quarter stays; peaks differ from run to run by 30 MiB.
        self.assertLess(many - few, 64 * MIB)


if __name__ == "__main__":
    unittest.main()
