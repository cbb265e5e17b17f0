"""The wheel is complete and installable, and needs nothing else."""

import base64
import glob
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile

PROGRAM = """
import ballast, os
assert ballast.__file__.startswith(os.environ["PLACE"]), ballast.__file__
ballast.Loader("unix:/nowhere", device="cpu", array="dlpack")
print(ballast.library_version())
assert "numpy" not in __import__("sys").modules
with open("/proc/self/maps") as maps:
    names = {line.split()[-1] for line in maps if ".so" in line}
print(*names, sep="\\n")
"""


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        (cls.path,) = glob.glob("trainer_shim/python/ballast-*.whl")
        cls.wheel = zipfile.ZipFile(cls.path)
        cls.addClassCleanup(cls.wheel.close)
        cls.name, cls.version, *cls.tag = os.path.basename(cls.path)[: -len(".whl")].split("-")
        cls.info = "%s-%s.dist-info/" % (cls.name, cls.version)

    def test_record_matches_the_files(self):
        lines = self.wheel.read(self.info + "RECORD").decode().splitlines()
        rows = dict(line.split(",", 1) for line in lines)
        self.assertEqual(set(rows), set(self.wheel.namelist()))
        for name, row in rows.items():
            if name == self.info + "RECORD":
                self.assertEqual(row, ",")
                continue
            data = self.wheel.read(name)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
            self.assertEqual(row, "sha256=%s,%d" % (digest.decode(), len(data)))

    def test_contents(self):
        names = self.wheel.namelist()
        for wanted in ("ballast/__init__.py", "ballast/py.typed", "ballast/lib/libballast_shim.so",
                       "ballast/adapters/huggingface.py", self.info + "METADATA"):  # fmt: skip
            self.assertIn(wanted, names)
        tag = self.wheel.read(self.info + "WHEEL").decode()
        self.assertIn("Tag: " + "-".join(self.tag) + "\n", tag)
        metadata = self.wheel.read(self.info + "METADATA").decode()
        self.assertIn("\nVersion: %s\n" % self.version, metadata)

    def check(self, place):
        """Checks that Python loads the library if the package at `place` is all it has."""
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": place, "PLACE": place}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, check=True
        )
        version, *mapped = done.stdout.decode().split("\n")
        self.assertEqual(version, self.version)
        # The process uses the wheel's libraries, under their own names.
        brought = [name for name in self.wheel.namelist() if name.startswith("ballast/lib/")]
        for name in brought:
            base = os.path.basename(name)
            self.assertTrue(base.startswith("bal") or base == "libballast_shim.so", base)
            self.assertIn(os.path.join(place, name), mapped)
        self.assertFalse([name for name in mapped if "grpc" in name and place not in name])

    def test_unpacked(self):
        with tempfile.TemporaryDirectory() as place:
            self.wheel.extractall(place)
            self.check(place)

    def test_installed_by_pip(self):
        if importlib.util.find_spec("pip") is None:
            self.skipTest("there is no pip (package python3-pip)")
        with tempfile.TemporaryDirectory() as place:
            subprocess.run(
                [sys.executable, "-m", "pip", "install", "--quiet", "--no-index",
                 "--no-deps", "--disable-pip-version-check", "--target", place, self.path],
                check=True, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            self.check(place)


if __name__ == "__main__":
    unittest.main()
