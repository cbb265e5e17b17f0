"""The comparisons of formats, of the cache with files, and of packs still run."""

import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.dirname(os.path.dirname(HERE)))

from tests.integration.storage import s3_server  # noqa: E402


class CompareTest(unittest.TestCase):
    def lines(self, script, *arguments):
        """What a run prints, by default on one step's samples."""
        arguments = arguments or ("--samples", "32", "--rounds", "1")
        done = subprocess.run(
            [sys.executable, os.path.join(HERE, script), *arguments,
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

    def test_shared_packs(self):
        found = self.lines(
            "shared_packs_report.py", "--ranks", "8", "--most-ranks", "4", "--steps", "1",
            "--longest", "32768",
        )  # fmt: skip
        rows = [line.strip("| ").split(" | ") for line in found]
        self.assertEqual([row[0] for row in rows], ["dynamic", "static"])
        (_, _, patches, _, keys, rows_held, _), (_, _, of_static, _, keys_of_static, held, _) = rows
        # Of four static ranks each encodes all images of the pack.
        self.assertGreaterEqual(float(of_static), 4)
        self.assertLess(float(patches), 2)
        self.assertEqual((keys_of_static, held), ("3.0", "4.0"))
        self.assertLess(float(keys), 3)
        self.assertLess(float(rows_held), 4)


if __name__ == "__main__":
    unittest.main()
