"""Holds every include of the tree against the drawing of docs/architecture.md, "Layers"."""

import os
import subprocess
import sys
import unittest

# The checkout: Bazel's files are links into it.
ROOT = os.path.dirname(os.path.realpath("CONTRIBUTING.md"))


class Layers(unittest.TestCase):
    def test_an_include_goes_down_only(self):
        report = os.path.join(ROOT, "tests/docs/size_report.py")
        done = subprocess.run(
            [sys.executable, report, "--circles"], cwd=ROOT, capture_output=True, text=True
        )
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
