"""make-corpus and index, from the user's side; every command on mock sources alone."""

import glob
import io
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
        self.assertEqual(first, f"docs: 12 samples, {images} images, 0 skipped, 0 bad\n")
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
            plan = json.loads(
                self.ok("ballast-server", "plan", "--config", config, "--step", 0, "--json")
            )
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
        self.assertRegex(lines[1], r"^  bad: 1 ")
        listed = re.match(
            r"^    (?P<file>.+) at byte (?P<offset>\d+), sample (?P<key>\S+): "
            r"(?P<reason>.+)$",
            lines[2],
        )
        self.assertIsNotNone(listed, lines[2])
        self.assertTrue(listed["file"].endswith(os.path.basename(path)))
        self.assertEqual(int(listed["offset"]), member.offset)
        self.assertEqual(listed["key"], member.name.split(".")[0])
        self.assertIn(member.name.split(".", 1)[1], listed["reason"])

    def test_names_and_texts_of_data_control_no_terminal(self):
        folder = self.make("hostile", "--samples", 8, "--preset", "receipts")
        forged = "docs: 8 samples, 8 images, 0 skipped, 0 bad"
        with tarfile.open(os.path.join(folder, "docs-9.tar"), "w") as tar:
            for name, text in {
                "a\x1b[2J\n%s.jpg" % forged: "no JPEG",
                "a\x1b[2J\n%s.json" % forged: "{}",
                "b.json": '[{"role": "\x1b]0;owned\x07\n\u009b2J\u202e", "content": "c"}]',
                "c.json": '{"turns": "\\u001b[2J\\n\\u009b2J"}',
            }.items():
                member = tarfile.TarInfo(name)
                member.size = len(text.encode())
                tar.addfile(member, io.BytesIO(text.encode()))
        config = os.path.join(folder, "ballast.yaml")
        for format in ("text", "json"):
            done = tools.run("ballast-server", "index", "--config", config, "--rebuild",
                             "--log-format", format)  # fmt: skip
            shown = (done.stdout + done.stderr).decode()
            self.assertRegex(shown, r"0 skipped, 3 bad")
            for control in "\x1b\x07\x9b\u202e":
                self.assertNotIn(control, shown)
            self.assertNotIn(forged, shown.splitlines())

    def test_samples_that_are_too_long_fail_every_time(self):
        folder = self.make("long", "--samples", 8)
        config = os.path.join(folder, "ballast.yaml")
        with open(config, encoding="utf-8") as file:
            text = file.read()
        self.assertIn("max_tokens: 8192", text)
        # Too few bytes for any document.
        short = self.write("long/short.yaml", text.replace("max_tokens: 8192", "max_tokens: 64"))
        for _ in range(2):
            done = tools.run("ballast-server", "index", "--config", short)
            self.assertEqual(done.returncode, 1)
            self.assertIn("8 samples have more than", done.stderr.decode())
            reasons = re.findall(
                r"^    .+, sample \S+: \d+ tokens; batch.max_tokens is 64 ",
                done.stdout.decode(),
                re.MULTILINE,
            )
            self.assertEqual(len(reasons), 8, done.stdout.decode())
        message = self.error("ballast-server", "plan", "--config", short, "--step", 0)
        self.assertIn("ballast-server index", message)
        self.ok("ballast-server", "index", "--config", config)

    def test_a_source_that_is_not_there(self):
        config = self.write("gone.yaml", tools.CONFIG.replace("docs-*.tar", "nowhere-*.tar"))
        message = self.error("ballast-server", "index", "--config", config)
        self.assertIn("source docs", message)
        self.assertIn("nowhere-*.tar", message)

    def test_a_source_that_is_not_indexed(self):
        folder = self.make("fresh", "--samples", 2)
        config = os.path.join(folder, "ballast.yaml")
        message = self.error("ballast-server", "plan", "--config", config, "--step", 0)
        self.assertIn("source docs", message)
        self.assertIn("ballast-server index --config", message)


CONFIG = """
sources:
  - name: mock
    format: mock
    lengths: {mode: lognormal, min: 100, max: 2000, mean: 600, sigma: 1.1, count: 500}
    images: {min: 0, max: 2, pixels: {min: 3000, max: 60000, mean: 30000, sigma: 0.5}}
  - {name: listed, format: mock, lengths: {mode: file, path: lengths.csv}}
model: {profile: qwen2_5_vl}
order: {shuffle: false}
batch: {global: 16, micro: 8, max_tokens: 2000}
topology:
  modules:
    vision: {dp: 2, pp: 2}
    language: {dp: 4, tp: 2, pp: 2, cp: 2}
serve: {listen: ["127.0.0.1:0"]}
"""


class MockTest(tools.ToolTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.config = os.path.join(cls.folder, "mock.yaml")
        for name, text in (
            ("mock.yaml", CONFIG),
            ("lengths.csv", "length\n" + "300\n400\n" * 50),
        ):
            with open(os.path.join(cls.folder, name), "w", encoding="utf-8") as file:
                file.write(text)

    def test_index_says_that_there_is_none(self):
        text = self.ok("ballast-server", "index", "--config", self.config)
        self.assertIn("mock: 500 samples, drawn: there is no index to build", text)
        self.assertIn("listed: 100 samples, drawn", text)
        self.assertEqual(sorted(os.listdir(self.folder))[:1], ["lengths.csv"])

    def test_lengths_are_those_that_inspect_lengths_prints(self):
        [drawn] = self.json_lines(
            "ballast-server", "inspect", "lengths", "--mode", "lognormal",
            "--min", 100, "--max", 2000, "--mean", 600, "--sigma", 1.1,
            "--count", 500,
        )  # fmt: skip
        steps = self.json_lines(
            "ballast-server", "plan", "--config", self.config,
            "--step", 0, "--steps", 10, "--json",
        )  # fmt: skip
        seen = 0
        for step in steps:
            for micro_batch in step["micro_batches"]:
                for sample in micro_batch["samples"]:
                    source, number = sample["sample"].split(":")
                    number = int(number)
                    if source == "listed":
                        self.assertEqual(sample["tokens"], (300, 400)[number % 2])
                        continue
                    self.assertEqual(sample["tokens"], max(drawn[number], self.least(sample)))
                    seen += 1
        self.assertGreater(seen, 60)

    @staticmethod
    def least(sample):
        """Tokens of the sample's images, and one token of text."""
        return sample["patches"] // 4 + 2 * sample["images"] + 1

    def test_ranks_at_all_places_go_through_the_same_steps(self):
        def lines(address, *place):
            found = self.json_lines(
                "ballast-rank", "--server", address, "--steps", 2, "--world",
                "all", "--json", *place,
            )  # fmt: skip
            return {(x["step"], x["micro_batch"], x["module"], x["dp_rank"]): x for x in found}

        with self.server(self.config, "127.0.0.1:0") as [address]:
            first = lines(address)
            self.assertEqual(len(first), 2 * 2 * (2 + 4))
            for place in (
                ("--tp-rank", 1),
                ("--cp-rank", 1),
                ("--pp-rank", 1),
                ("--tp-rank", 1, "--pp-rank", 1, "--cp-rank", 1),
            ):
                there = lines(address, *place)
                self.assertLessEqual(set(there), set(first))
                for key, line in there.items():
                    whole = first[key]
                    for name in ("samples", "tokens", "padded_tokens", "images"):
                        self.assertEqual(line[name], whole[name])
                    # Only tensor-parallel peers have the same tensors.
                    self.assertEqual(line["digest"] == whole["digest"], place == ("--tp-rank", 1))
                    if key[2] == "vision":  # its tp and cp are 1
                        self.assertEqual(place, ("--pp-rank", 1))
                        self.assertEqual(line["bytes_read"], 0)
            message = self.error(
                "ballast-rank", "--server", address, "--steps", 1, "--module",
                "language", "--dp-rank", 0, "--cp-rank", 2,
            )  # fmt: skip
            self.assertIn("2 context-parallel ranks; rank 2", message)


if __name__ == "__main__":
    unittest.main()
