"""The wheel is complete and installable, and needs nothing else."""

import base64
import email
import glob
import hashlib
import importlib.util
import os
import re
import stat
import subprocess
import sys
import tempfile
import unittest
import zipfile

PROGRAM = """
import os
def mapped():
    with open("/proc/self/maps") as maps:
        return {line.split()[-1] for line in maps if ".so" in line}
import bz2, ctypes, lzma, ssl  # what Python itself loads
before = mapped()
import ballast
from ballast.adapters._profiles import model_types
assert "llava" in model_types()
assert ballast.__file__.startswith(os.environ["PLACE"]), ballast.__file__
ballast.Loader("unix:/nowhere", device="cpu", array="dlpack")
print(ballast.library_version())
assert "numpy" not in __import__("sys").modules
print(*mapped() - before, sep="\\n")
"""
# What the package brings into a trainer's process; docs/security.md has the same list.
# No decoder but libjpeg, for model.decode: device, and nothing of the helpers.
TRAINER_LIBRARIES = {
    "absl", "ballast_ibverbs", "ballast_shim", "gcc_s", "gloo", "hiredis", "ibverbs", "jpeg",
    "nl-3", "nl-route-3", "protobuf", "re2", "stdc++", "z",
}  # fmt: skip
PROGRAMS = ("ballast-server", "ballastctl", "ballast-rank")


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # BALLAST_WHEEL: one that deploy/wheel.sh made.
        named = os.environ.get("BALLAST_WHEEL")
        cls.path = named or glob.glob("trainer_shim/python/ballast_loader-*.whl")[0]
        cls.wheel = zipfile.ZipFile(cls.path)
        cls.addClassCleanup(cls.wheel.close)
        cls.name, cls.version, *cls.tag = os.path.basename(cls.path)[: -len(".whl")].split("-")
        cls.info = "%s-%s.dist-info/" % (cls.name, cls.version)

    def test_record_matches_the_files(self):
        lines = self.wheel.read(self.info + "RECORD").decode().splitlines()
        rows = dict(line.split(",", 1) for line in lines)
        self.assertEqual(set(rows), {n for n in self.wheel.namelist() if not n.endswith("/")})
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
                       "ballast/adapters/huggingface.py", "ballast/examples/finetune_qwen.py",
                       "ballast/examples/frameworks/small_qwen.py", self.info + "METADATA"):  # fmt: skip
            self.assertIn(wanted, names)
        tags = self.wheel.read(self.info + "WHEEL").decode()
        python, abi, platforms = self.tag
        for platform in platforms.split("."):
            self.assertIn("Tag: %s-%s-%s\n" % (python, abi, platform), tags)
        metadata = self.wheel.read(self.info + "METADATA").decode()
        self.assertIn("\nName: ballast-loader\nVersion: %s\n" % self.version, metadata)
        fields = email.message_from_string(metadata)
        for wanted in ("Summary", "Author", "License-Expression", "Classifier", "Requires-Python"):
            self.assertIn(wanted, fields)
        self.assertEqual(fields["Description-Content-Type"], "text/markdown")
        # The README, without links and pictures that a wheel lacks.
        self.assertTrue(fields.get_payload().startswith("# Ballast\n"), fields.get_payload()[:99])
        self.assertEqual(re.findall(r"\]\((?!https:)|<!--", fields.get_payload()), [])
        scripts = self.wheel.read(self.info + "entry_points.txt").decode()
        for program in PROGRAMS:
            self.assertIn("\n%s = ballast._programs:" % program, scripts)
            mode = self.wheel.getinfo("ballast/bin/" + program).external_attr >> 16
            self.assertTrue(mode & stat.S_IXOTH, program)
        self.assertIn("\nballast = ballast.__main__:main\n", scripts)

    def environment(self, place):
        return {"PATH": os.environ["PATH"], "PYTHONPATH": place, "PLACE": place}

    def check(self, place):
        """Checks that library and programs run if the package at `place` is all there
        is."""
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=self.environment(place),
            stdout=subprocess.PIPE, check=True,
        )  # fmt: skip
        version, *mapped = done.stdout.decode().split("\n")
        self.assertEqual(version, self.version)
        # What the wheel brings is used, and the process's own libraries of these names
        # stay the process's own.
        library = os.path.join(place, "ballast/lib/libballast_shim.so")
        self.assertIn(library, mapped)
        brought = {
            re.match("lib(absl(?=_)|.+?(?=(-[0-9a-f]{8})?[.]so))", os.path.basename(name))
            for name in mapped
            if os.path.basename(name).startswith("lib")
        }
        self.assertLessEqual({found[1] for found in brought}, TRAINER_LIBRARIES)
        self.assertFalse([name for name in mapped if "grpc" in name and place not in name])
        if any(name.startswith("ballast.libs/") for name in self.wheel.namelist()):
            for name in mapped:
                for stem in ("absl", "protobuf", "gloo", "re2", "ibverbs"):
                    if "lib" + stem in os.path.basename(name):
                        self.assertIn(place + "/ballast.libs/", name)
        for program in PROGRAMS:
            done = subprocess.run(
                [os.path.join(place, "ballast/bin", program), "--version"],
                env=self.environment(place), stdout=subprocess.PIPE, check=True,
            )  # fmt: skip
            self.assertIn(self.version, done.stdout.decode())

    def test_unpacked(self):
        with tempfile.TemporaryDirectory() as place:
            for entry in self.wheel.infolist():
                path = self.wheel.extract(entry, place)
                if not entry.is_dir():  # zipfile forgets the modes, installers do not
                    os.chmod(path, entry.external_attr >> 16)
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
            # The console scripts find the programs.
            for program in PROGRAMS:
                done = subprocess.run(
                    [os.path.join(place, "bin", program), "--version"],
                    env=self.environment(place), stdout=subprocess.PIPE, check=True,
                )  # fmt: skip
                self.assertIn(self.version, done.stdout.decode())
            self.check_the_one_command(place)

    def check_the_one_command(self, place):
        """`ballast` and `python -m ballast` have the commands of all programs."""

        def run(*command):
            done = subprocess.run(
                command, cwd="/", env={**self.environment(place), "COLUMNS": "100"},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            return done.returncode, done.stdout.decode()

        one = os.path.join(place, "bin/ballast")
        status, text = run(one, "--help")
        self.assertEqual((status, text), run(sys.executable, "-m", "ballast"))
        self.assertEqual(status, 0, text)
        for name in ("init", "index", "serve", "preview", "status", "top"):
            self.assertIn("  ballast %s " % name, text)
            for command in ((one,), (sys.executable, "-m", "ballast")):
                status, own = run(*command, name, "--help")
                self.assertEqual(status, 0, own)
                self.assertRegex(own, r"Usage: ballast\S+ %s|Usage: ballastctl .*%s" % (name, name))
        self.assertIn("ballast-rank", run(one, "rank", "--version")[1])
        self.assertEqual(run(one, "--version"), (0, "ballast %s\n" % self.version))
        status, text = run(one, "severe")
        self.assertEqual(status, 2)
        self.assertIn("found no command 'severe'; wanted one of: init, ", text)

    def test_says_that_another_project_is_in_the_same_folder(self):
        with tempfile.TemporaryDirectory() as place:
            self.wheel.extractall(place)
            for name in ("rule.py", "ping.py", "service.py"):
                with open(os.path.join(place, "ballast", name), "w"):
                    pass
            done = subprocess.run(
                [sys.executable, "-c", "import ballast"], env=self.environment(place), cwd="/",
                stderr=subprocess.PIPE, check=True,
            )  # fmt: skip
            self.assertIn(b"pip uninstall ballast ballast-loader", done.stderr)
            # Installed after ours, it has replaced the package's first file.
            with open(os.path.join(place, "ballast/__init__.py"), "w"):
                pass
            done = subprocess.run(
                [sys.executable, "-c", "from ballast._programs import ballastctl; ballastctl()"],
                env=self.environment(place), cwd="/", stderr=subprocess.PIPE,
            )  # fmt: skip
            self.assertEqual(done.returncode, 1)
            self.assertIn(b"pip uninstall ballast ballast-loader", done.stderr)

    def test_the_golden_path_of_the_readme(self):
        if importlib.util.find_spec("pip") is None:
            self.skipTest("there is no pip (package python3-pip)")
        if not any(map(importlib.util.find_spec, ("numpy", "torch"))):
            self.skipTest("there is neither numpy nor torch")
        with open("README.md", encoding="utf-8") as page:
            path = re.search(r"<!-- golden path.*?\n```bash\n(.*?)```", page.read(), re.S)[1]
        self.assertLessEqual(len(path.splitlines()), 10)
        with tempfile.TemporaryDirectory() as place:
            os.mkdir(place + "/dist")
            os.symlink(os.path.abspath(self.path),
                       os.path.join(place, "dist", os.path.basename(self.path)))  # fmt: skip
            packages = place + "/packages"
            environment = {
                "PATH": ":".join([packages + "/bin", os.path.dirname(sys.executable),
                                  os.environ["PATH"]]),
                "PYTHONPATH": packages, "PIP_TARGET": packages,
                "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1",
                "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            }  # fmt: skip
            install, rest = path.split("\n", 1)
            # Between the two the user's data come into being.
            data = "ballast-server make-corpus --out data --samples 16 --seed 1\nrm data/*.yaml"
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", "\n".join([install, data, rest])],
                cwd=place, env=environment, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, timeout=300,
            )  # fmt: skip
            said = done.stdout.decode()
            self.assertEqual(done.returncode, 0, said)
            self.assertRegex(said, r"\ninput_ids \(1, [1-9][0-9]+\)\n")
            self.assertRegex(said, r"\npixel_values \([1-9][0-9]*, 1176\)\n")


if __name__ == "__main__":
    unittest.main()
