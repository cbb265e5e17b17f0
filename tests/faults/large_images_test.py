"""Images that need more memory than an image may take: a data fault everywhere, which
ends no job.

    bazel test //tests/faults:large_images_test
"""

import re
import sys
import unittest

from tests.faults import large_images
from tests.harness import tools

CONFIG = large_images.job_config(4, "threads: 2, memory: 64MiB, prefetch_steps: 1")
LIMIT = 1 << 30
SIDE = 16384


class LargeImagesTest(tools.JobTest):
    def index(self, images):
        large_images.write_samples(self.folder, images)
        self.config = self.write("job.yaml", CONFIG)
        return self.ok("ballast-server", "index", "--config", self.config)

    def train(self, server, steps):
        self.ok("ballast-rank", "--server", server.address, "--steps", steps, "--world", "all",
                "--give-up-after", 60)  # fmt: skip

    def good(self, count):
        return {f"good{i}.png": large_images.png(64 + i, 48, False) for i in range(count)}

    def test_index_marks_what_a_header_tells(self):
        bad = {
            "lossless.webp": large_images.lossless_webp(16383, 16383),
            "progressive.jpg": large_images.progressive_jpeg(SIDE, SIDE, (0x11,) * 3),
        }
        large = {"interlaced.png": large_images.png(SIDE, 8192, True)}
        listed = self.index({**bad, **large, **self.good(3)})
        for name in bad:
            self.assertRegex(listed, rf"{re.escape(name)}.*needs \d+ bytes of memory")
        self.assertIn(f"{len(bad)} bad\n", listed)
        self.train(self.start_server("a"), 4)

    def test_what_only_resizing_exceeds_becomes_a_placeholder(self):
        # Coefficients that leave less of the limit than resizing takes: a strip of 16
        # rows, and the same in another order.
        height = 8 * ((LIMIT - (6 << 20)) // large_images.progressive_jpeg_bytes(SIDE, 8))
        most = large_images.progressive_jpeg(SIDE, height, (0x11,) * 3)
        listed = self.index({"most.jpg": most, **self.good(3)})
        self.assertNotIn("bad: ", listed)
        server = self.start_server("a")
        self.train(server, 4)
        status = self.ok("ballastctl", "--server", server.address, "status")
        text = " ".join(status.split())  # lines are wrapped
        self.assertRegex(text, r"chat:0 .*needs \d+ bytes of memory")


if __name__ == "__main__":
    sys.argv[1:1] = ["-v"]
    unittest.main()
