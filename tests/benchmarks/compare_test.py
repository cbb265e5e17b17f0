"""The comparisons of formats, and of the cache with files, still run."""

import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.dirname(os.path.dirname(HERE)))

from tests.integration.storage import s3_server  # noqa: E402


class CompareTest(unittest.TestCase):
    def lines(self, script):
        """What a run on one step's samples prints."""
        done = subprocess.run(
            [sys.executable, os.path.join(HERE, script), "--samples", "32", "--rounds", "1",
             "--bin", os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"])],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=240, check=False,
        )  # fmt: skip
        if "does not know Parquet" in done.stderr:
            print("SKIPPED: this build has no Arrow")
            sys.exit(0)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def test_formats(self):
        found = self.lines("compare_formats.py")
        self.assertEqual(len([line for line in found if "parquet over tar" in line]), 2)

    def test_cache(self):
        if s3_server.rclone() is None:
            print("SKIPPED: no rclone; deploy/setup.sh --tests unpacks it")
            self.skipTest("no rclone")
        found = self.lines("compare_cache.py")
        self.assertEqual(len([line for line in found if "cache over files" in line]), 8)


if __name__ == "__main__":
    unittest.main()
