"""Every script that a person starts says with --help what it does, from any folder, and the
pictures of docs/ show the pages as they are."""

import os
import re
import subprocess
import sys
import unittest

# The checkout: Bazel's files are links into it.
ROOT = os.path.dirname(os.path.realpath("CONTRIBUTING.md"))
# Bazel's and unittest's own, which no person starts.
OTHERS = re.compile(r"_test\.sh$|^bazel/|^third_party/")


class ScriptsTest(unittest.TestCase):
    def scripts(self):
        listed = subprocess.run(
            ["git", "ls-files", "*.py", "*.sh", "dev"], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        if listed.returncode != 0:
            self.skipTest("there is no checkout of git")
        paths = listed.stdout.split()
        return [
            p for p in paths if os.access(os.path.join(ROOT, p), os.X_OK) and not OTHERS.search(p)
        ]

    def test_every_help_from_the_root_folder(self):
        found = self.scripts()
        self.assertGreater(len(found), 40)
        for path in found:
            whole = os.path.join(ROOT, path)
            with open(whole, encoding="utf-8") as file:
                text = file.read()
            with self.subTest(path):
                # A script that does not know --help would begin its work.
                self.assertRegex(text, r"--help|argparse|help \|", path)
                interpreter = [sys.executable] if path.endswith(".py") else []
                done = subprocess.run(
                    [*interpreter, whole, "--help"], cwd="/", stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60,
                    env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "trainer_shim/python")},
                )  # fmt: skip
                if (
                    done.stderr.rpartition("\n")[0]
                    .rpartition("\n")[2]
                    .startswith("ModuleNotFoundError: No module")
                ):
                    missing = re.search(r"No module named '(\w+)", done.stderr)[1]
                    self.assertNotIn(missing, ("ballast", "tests"), path)
                    continue  # a library that the script's first lines name
                self.assertEqual((done.returncode, done.stderr), (0, ""), path)
                self.assertGreater(len(done.stdout.splitlines()), 1, path)

    def test_the_pictures_show_the_pages_as_they_are(self):
        done = subprocess.run(
            [sys.executable, os.path.join(ROOT, "tests/docs/pictures.py"), "--check"],
            stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
