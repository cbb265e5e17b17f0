"""From `pip install` to the first packed batch on images of one's own, timed.

BALLAST_WHEEL names a wheel that deploy/wheel.sh made; without it the test installs the
one of //trainer_shim/python:wheel, which uses this machine's libraries.
"""

import glob
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

from tests.harness import tools

MOST_SECONDS = 120

TRAINER = """
import ballast

with ballast.serve("ballast.yaml", listen="127.0.0.1:0") as address:
    with ballast.Loader(address, device="cpu", array="dlpack") as loader:
        batch = next(loader)
print(batch["input_ids"].shape[1], batch["pixel_values"].shape[0], len(batch.samples))
"""


class FirstHourTest(unittest.TestCase):
    def setUp(self):
        if importlib.util.find_spec("pip") is None:
            self.skipTest("there is no pip (package python3-pip)")
        temporary = tempfile.TemporaryDirectory(prefix="ballast", dir="/tmp")
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name

    def draw(self, samples):
        """Photographs of receipts and a file of questions about them, as a person has
        them."""
        drawn = self.folder + "/drawn"
        done = tools.run(
            "ballast-server", "make-corpus", "--out", drawn, "--samples", samples,
            "--preset", "receipts",
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        rows = tools.unpack(drawn, self.folder + "/receipts/photos")
        with open(self.folder + "/receipts/questions.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)

    def run_timed(self, *command):
        begin = time.monotonic()
        done = subprocess.run(
            command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            # Nothing of the build's: the wheel is all there is.
            env={"PATH": os.environ["PATH"], "HOME": self.folder},
            timeout=tools.TIMEOUT_S, check=False,
        )  # fmt: skip
        said = done.stdout.decode()
        self.assertEqual(done.returncode, 0, "%s: %s" % (command, said))
        seconds = time.monotonic() - begin
        self.seconds += seconds
        print("%6.1f s  %s" % (seconds, " ".join(command[:4]).replace(self.folder, ".")))
        return said

    def test_from_pip_install_to_the_first_batch(self):
        wheel = (
            os.environ.get("BALLAST_WHEEL")
            or glob.glob("trainer_shim/python/ballast_loader-*.whl")[0]
        )
        self.draw(32)
        self.seconds = 0.0
        python = self.folder + "/venv/bin/python3"
        # pip of the outer Python: Debian has ensurepip in a package of its own.
        self.run_timed(sys.executable, "-m", "venv", "--without-pip", self.folder + "/venv")
        self.run_timed(
            sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index",
            "--disable-pip-version-check", os.path.abspath(wheel),
        )  # fmt: skip
        said = self.run_timed(self.folder + "/venv/bin/ballast-server", "init", "receipts")
        self.assertIn("questions: jsonl receipts/questions.jsonl, 32 samples", said)
        said = self.run_timed(python, "-c", TRAINER)
        tokens, patches, samples = map(int, said.split()[-3:])
        self.assertEqual(samples, 4)
        self.assertGreater(tokens, 100)
        self.assertGreater(patches, 100)
        print("%6.1f s  together" % self.seconds)
        self.assertLess(self.seconds, MOST_SECONDS)


if __name__ == "__main__":
    unittest.main()
