"""make-corpus and index, from the user's side."""

import glob
import json
import os
import re
import tarfile
import unittest

from tests.harness import tools


def files_in(folder):
    """Bytes of every file, by name."""
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "*"))):
        with open(path, "rb") as file:
            found[os.path.basename(path)] = file.read()
    return found


class CorpusCommandsTest(tools.ToolTest):
    def make(self, name, *arguments):
        folder = self.path(name)
        self.ok("ballast-server", "make-corpus", "--out", folder, *arguments)
        return folder

    def test_same_seed_same_bytes(self):
        line = ("--samples", 6, "--preset")
        one = files_in(self.make("one", *line, "mixed", "--seed", 3))
        self.assertIn("ballast.yaml", one)
        self.assertEqual(one, files_in(self.make("two", *line, "mixed", "--seed", 3)))
        other = files_in(self.make("other", *line, "mixed", "--seed", 4))
        self.assertNotEqual(one, other)
        for preset in ("receipts", "text"):
            drawn = files_in(self.make(preset, *line, preset, "--seed", 3))
            self.assertNotEqual(one, drawn)

    def test_index_counts_what_the_tars_hold(self):
        folder = self.make("counted", "--samples", 12)
        keys, images = set(), 0
        for path in glob.glob(os.path.join(folder, "*.tar")):
            with tarfile.open(path) as tar:
                for name in tar.getnames():
                    keys.add(name.split(".")[0])
                    images += name.rsplit(".", 1)[1] in ("jpg", "png", "webp")
        config = os.path.join(folder, "ballast.yaml")
        first = self.ok("ballast-server", "index", "--config", config)
        self.assertEqual(len(keys), 12)
        self.assertEqual(
            first, f"docs: 12 samples, {images} images, 0 skipped, 0 bad\n"
        )
        again = self.ok("ballast-server", "index", "--config", config)
        self.assertEqual(again, "docs: 12 samples, index is up to date\n")
        rebuilt = self.ok("ballast-server", "index", "--config", config, "--rebuild")
        self.assertEqual(rebuilt, first)

    def test_parquet_gives_the_samples_of_tars(self):
        line = ("--samples", 36, "--preset", "mixed", "--seed", 5)
        made = tools.run(
            "ballast-server", "make-corpus", "--out", self.path("rows"), *line,
            "--format", "parquet",
        )  # fmt: skip
        if b"does not know Parquet" in made.stderr:
            self.skipTest("this build has no Arrow")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.make("tars", *line)
        found = {}
        for name in ("rows", "tars"):
            config = os.path.join(self.path(name), "ballast.yaml")
            with open(config, encoding="utf-8") as file:
                text = file.read()
            with open(config, "w", encoding="utf-8") as file:
                file.write(text.replace("shuffle: true", "shuffle: false"))
            counts = self.ok("ballast-server", "index", "--config", config)
            plan = json.loads(self.ok(
                "ballast-server", "plan", "--config", config, "--step", 0, "--json"))
            del plan["fingerprint"]
            found[name] = counts, plan
        self.assertEqual(found["rows"], found["tars"])

    def test_a_damaged_member_is_listed(self):
        folder = self.make("damaged", "--samples", 8, "--preset", "receipts")
        (path,) = glob.glob(os.path.join(folder, "*.tar"))
        with tarfile.open(path) as tar:
            member = [m for m in tar.getmembers() if m.name.endswith(".jpg")][3]
        with open(path, "r+b") as file:
            file.seek(member.offset_data)
            file.write(b"\0" * member.size)
        config = os.path.join(folder, "ballast.yaml")
        lines = self.ok("ballast-server", "index", "--config", config).splitlines()
        self.assertRegex(lines[0], r"^docs: 7 samples, \d+ images, 0 skipped, 1 bad$")
        listed = re.match(
            r"^  bad: (?P<file>.+) at byte (?P<offset>\d+), sample (?P<key>\S+): "
            r"(?P<reason>.+)$",
            lines[1],
        )
        self.assertIsNotNone(listed, lines[1])
        self.assertTrue(listed["file"].endswith(os.path.basename(path)))
        self.assertEqual(int(listed["offset"]), member.offset)
        self.assertEqual(listed["key"], member.name.split(".")[0])
        self.assertIn(member.name.split(".", 1)[1], listed["reason"])

    def test_samples_that_are_too_long_fail_every_time(self):
        folder = self.make("long", "--samples", 8)
        config = os.path.join(folder, "ballast.yaml")
        with open(config, encoding="utf-8") as file:
            text = file.read()
        self.assertIn("max_tokens: 8192", text)
        # Too few bytes for any document.
        short = self.write(
            "long/short.yaml", text.replace("max_tokens: 8192", "max_tokens: 64")
        )
        for _ in range(2):
            done = tools.run("ballast-server", "index", "--config", short)
            self.assertEqual(done.returncode, 1)
            self.assertIn("8 samples have more than", done.stderr.decode())
            reasons = re.findall(
                r"^  bad: .+, sample \S+: \d+ tokens; batch.max_tokens is 64 ",
                done.stdout.decode(),
                re.MULTILINE,
            )
            self.assertEqual(len(reasons), 8, done.stdout.decode())
        message = self.error("ballast-server", "plan", "--config", short, "--step", 0)
        self.assertIn("ballast-server index", message)
        self.ok("ballast-server", "index", "--config", config)

    def test_a_source_that_is_not_there(self):
        config = self.write(
            "gone.yaml", tools.CONFIG.replace("docs-*.tar", "nowhere-*.tar")
        )
        message = self.error("ballast-server", "index", "--config", config)
        self.assertIn("source docs", message)
        self.assertIn("nowhere-*.tar", message)

    def test_a_source_that_is_not_indexed(self):
        folder = self.make("fresh", "--samples", 2)
        config = os.path.join(folder, "ballast.yaml")
        message = self.error("ballast-server", "plan", "--config", config, "--step", 0)
        self.assertIn("source docs", message)
        self.assertIn(f"ballast-server index --config", message)


if __name__ == "__main__":
    unittest.main()
