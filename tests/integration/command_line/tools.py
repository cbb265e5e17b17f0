"""Runs Ballast's programs as a user does. Python's standard library only."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest

# Long enough for a sanitizer's build on a busy machine.
TIMEOUT_S = 240

_PROGRAMS = {
    "ballast-server": "server/ballast-server",
    "ballastctl": "client/ballastctl/ballastctl",
    "ballast-rank": "trainer_shim/ballast_rank/ballast-rank",
}


def program(name):
    """Path of a program in the test's runfiles."""
    return os.path.join(
        os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"], _PROGRAMS[name]
    )


def run(name, *arguments, stdin="", env=None):
    """Runs a program to its end, whatever its exit status."""
    environment = {k: v for k, v in os.environ.items() if k != "BALLAST_SERVER"}
    environment.update(env or {})
    return subprocess.run(
        [program(name), *map(str, arguments)],
        input=stdin.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        timeout=TIMEOUT_S,
        check=False,
    )


def without_ms(value):
    """The JSON value without the keys that end in _ms."""
    if isinstance(value, dict):
        return {k: without_ms(v) for k, v in value.items() if k[-3:] != "_ms"}
    if isinstance(value, list):
        return [without_ms(v) for v in value]
    return value


class ToolTest(unittest.TestCase):
    """Assertions on whole runs. `self.folder` is an empty folder for the class."""

    @classmethod
    def setUpClass(cls):
        # Does not use TEST_TMPDIR: the path of a Unix socket has at most 107
        # bytes.
        cls.folder = tempfile.mkdtemp(prefix="ballast", dir="/tmp")
        cls.addClassCleanup(shutil.rmtree, cls.folder)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def ok(self, name, *arguments, stdin=""):
        """Standard output of a run that ends well."""
        done = run(name, *arguments, stdin=stdin)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stdout.decode()

    def json_lines(self, name, *arguments, stdin=""):
        text = self.ok(name, *arguments, stdin=stdin)
        return [json.loads(line) for line in text.splitlines()]

    def error(self, name, *arguments, stdin="", status=1):
        """Standard error of a run that fails."""
        done = run(name, *arguments, stdin=stdin)
        message = done.stderr.decode()
        self.assertEqual(done.returncode, status, message)
        self.assertRegex(message, "^" + name)
        return message

    def keys(self, value, *expected):
        """Asserts exactly these keys, in this order."""
        self.assertEqual(list(value), list(expected))

    @contextlib.contextmanager
    def server(self, config, *listen):
        """Runs a server until the block ends; yields its addresses."""
        with self.server_process(config, *listen) as (_, addresses):
            yield addresses

    @contextlib.contextmanager
    def server_process(self, config, *listen):
        """Like server(); also yields the process, whose log is its stderr."""
        arguments = ["serve", "--config", config, "--listen", *listen]
        with subprocess.Popen(
            [program("ballast-server"), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                line = process.stdout.readline().decode()
                if not line:
                    self.fail(process.stderr.read().decode())
                word, *addresses = line.split()
                self.assertEqual(word, "ready")
                yield process, addresses
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(TIMEOUT_S), 0)
                self.assertEqual(process.stdout.read(), b"")
            finally:
                process.kill()


# vision dp 2 and language dp 4 read groups of 2 of a micro-batch of 8. Costs
# are whole, so that sums of them are exact in any order. Small images keep
# unoptimised builds quick.
CONFIG = """
sources:
  - {name: docs, format: webdataset, path: "docs-*.tar"}
model: {profile: qwen2_5_vl, tokenizer: bytes, max_pixels: 50176}
batch: {global: 16, micro: 8, max_tokens: 8192}
topology:
  modules: {vision: {dp: 2}, language: {dp: 4}}
balance:
  cost:
    vision: {linear: 2.0, quadratic: 1.0}
    language: {linear: 3.0, quadratic: 1.0}
serve: {listen: ["127.0.0.1:0"]}
"""
SAMPLES = 64


class CorpusTest(ToolTest):
    """A test with a drawn dataset of SAMPLES samples, indexed under CONFIG."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.config = os.path.join(cls.folder, "job.yaml")
        with open(cls.config, "w", encoding="utf-8") as file:
            file.write(CONFIG)
        for arguments in (
            ["make-corpus", "--out", cls.folder, "--samples", SAMPLES],
            ["index", "--config", cls.config],
        ):
            done = run("ballast-server", *arguments)
            if done.returncode != 0:
                raise AssertionError(done.stderr.decode())
