"""What a newcomer must not have to know: README's configuration, mistakes in the first
configuration, and servers that are not one's own."""

import glob
import json
import os
import re
import shutil
import unittest

from tests.harness import tools


def readme_config():
    """The configuration in README, as written."""
    root = os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"])
    with open(os.path.join(root, "README.md"), encoding="utf-8") as file:
        text = file.read()
    (block,) = re.findall(r"^```yaml\n(sources:.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return block


class BalanceTest(tools.ToolTest):
    """README's configuration, over receipts and chats."""

    def corpus(self):
        os.makedirs(self.path("data"))
        for i in range(8):
            made = self.path("receipts-%d" % i)
            self.ok("ballast-server", "make-corpus", "--out", made, "--samples", 24,
                    "--preset", "receipts", "--seed", i)  # fmt: skip
            (tar,) = glob.glob(os.path.join(made, "*.tar"))
            shutil.move(tar, self.path("data/docs-%03d.tar" % i))
        made = self.path("texts")
        self.ok("ballast-server", "make-corpus", "--out", made, "--samples", 192,
                "--preset", "text", "--format", "jsonl", "--seed", 9)  # fmt: skip
        (lines,) = glob.glob(os.path.join(made, "*.jsonl"))
        shutil.move(lines, self.path("data/chat.jsonl"))

    def heaviest_over_mean(self, config, steps):
        """The heaviest rank over the mean, of the sum of its modules, over all
        micro-batches."""
        lines = self.ok("ballast-server", "plan", "--config", config, "--step", 0,
                        "--steps", steps, "--json").splitlines()  # fmt: skip
        heaviest = mean = 0
        for line in lines:
            for micro_batch in json.loads(line)["micro_batches"]:
                loads = [load["after"] for load in micro_batch["load"].values()]
                of_ranks = [sum(of_rank) for of_rank in zip(*loads)]
                heaviest += max(of_ranks)
                mean += sum(of_ranks) / len(of_ranks)
        return heaviest / mean

    def test_readmes_configuration_balances_language_too(self):
        self.corpus()
        text = readme_config()
        for name, weights in (
            ("own.yaml", text),
            ("half.yaml", text.replace("weight: 3", "weight: 1")),
        ):
            config = self.write(name, weights)
            self.ok("ballast-server", "index", "--config", config)
            self.assertLessEqual(self.heaviest_over_mean(config, 3), 1.01, name)
        done = tools.run("ballast-server", "plan", "--config", config, "--step", 0)
        self.assertIn(b"costs: as of Qwen2.5-VL-7B", done.stderr)
        # By hand, language may cost nothing.
        alone = self.write(
            "alone.yaml",
            weights + "balance: {cost: {vision: {linear: 1}, language: {linear: 0}}}\n",
        )
        done = tools.run("ballast-server", "plan", "--config", alone, "--step", 0)
        self.assertIn(b"costs: as the configuration says", done.stderr)


class LeftOutTest(tools.ToolTest):
    """Records that the index leaves out."""

    CONFIG = """
sources: [{name: chat, format: jsonl, path: chat.jsonl, media_root: %s}]
batch: {global: 4, micro: 4}
topology: {modules: {vision: {dp: 1}, language: {dp: 1}}}
serve: {listen: ["127.0.0.1:0"]}
"""

    def records(self, images, texts=20):
        lines = []
        for i in range(images):
            lines.append({"image": "%d.png" % i, "conversations": [
                {"from": "human", "value": "<image>\nWhat?"},
                {"from": "gpt", "value": "It is %d." % i}]})  # fmt: skip
        for i in range(texts):
            lines.append({"conversations": [
                {"from": "human", "value": "What?"}, {"from": "gpt", "value": "It %d." % i}]})  # fmt: skip
        self.write("chat.jsonl", "".join(json.dumps(line) + "\n" for line in lines))

    def test_a_wrong_media_root_fails(self):
        self.records(images=120)
        config = self.write("own.yaml", self.CONFIG % "nowhere")
        os.makedirs(self.path("nowhere"))
        for _ in range(2):  # the second time the index is up to date
            done = tools.run("ballast-server", "index", "--config", config)
            self.assertEqual(done.returncode, 1)
            error = done.stderr.decode()
            self.assertIn("source chat: 120 of 140 records are bad", error)
            self.assertIn("120 image missing, as chat.jsonl at byte 0, sample 1", error)
            self.assertIn("media_root", error)
            # Ten are printed, all are listed.
            printed = done.stdout.decode()
            self.assertIn("  bad: 120 image missing\n", printed)
            self.assertIn("    and 110 more\n", printed)
            self.assertLess(len(printed.splitlines()), 20, printed)
            (path,) = re.findall(r"all bad records: (.+)", printed)
            with open(path, encoding="utf-8") as file:
                listed = [json.loads(line) for line in file][1:]
            self.assertEqual(len(listed), 120)
            self.assertEqual([line["sample"] for line in listed], [str(1 + i) for i in range(120)])
            self.assertIn("119.png", listed[-1]["reason"])
        # Servers and plans refuse the index, too.
        for command in ("serve", "plan"):
            done = tools.run("ballast-server", command, "--config", config)
            self.assertEqual(done.returncode, 1)
            self.assertIn(b"120 of 140 records are bad", done.stderr)

    def test_what_is_left_out_is_said_everywhere(self):
        self.records(images=1)
        config = self.write("own.yaml", (self.CONFIG % ".") + "balance: {delivery: direct}\n")
        # One of 21 records: one may be bad in any source.
        printed = self.ok("ballast-server", "index", "--config", config)
        self.assertIn("20 samples, 0 images, 0 skipped, 1 bad", printed)
        done = tools.run("ballast-server", "plan", "--config", config, "--step", 0)
        self.assertIn(
            b"left out: source chat: 1 of 21 records left out as bad: 1 image missing",
            done.stderr,
        )
        with self.server(config) as addresses:
            status = json.loads(self.ok("ballastctl", "--server", addresses[0], "status", "--json"))
            self.assertEqual(status["left_out"][0]["source"], "chat")
            self.assertEqual(status["left_out"][0]["bad"], 1)
            self.assertEqual(status["left_out"][0]["causes"][0]["cause"], "image missing")
            shown = self.ok("ballastctl", "--server", addresses[0], "status")
            self.assertIn("chat: 1 of 21 records, as bad", shown)
            self.assertIn("as of Qwen2.5-VL-7B", shown)
            done = tools.run("ballast-rank", "--server", addresses[0], "--steps", 1)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(b"leaves out 1 of 21 records as bad", done.stderr)

    def test_a_file_that_may_not_be_read_is_no_bad_record(self):
        if os.geteuid() == 0:
            self.skipTest("root reads every file")
        self.records(images=1)
        path = self.write("0.png", "x")
        os.chmod(path, 0)
        config = self.write("own.yaml", self.CONFIG % ".")
        message = self.error("ballast-server", "index", "--config", config)
        self.assertIn("0.png", message)
        self.assertIn("let the user who runs ballast-server read it", message)


class StrangerTest(tools.ToolTest):
    """A server of another job at one's own address."""

    def test_health_names_a_stranger(self):
        mine = self.corpus_config("mine", 3)
        other = self.corpus_config("other", 4)
        folder = os.path.dirname(tools.program("ballast-server"))
        path = {"PATH": folder + ":" + os.environ["PATH"]}
        with self.server(other, "127.0.0.1:0") as addresses:
            line = ("ballastctl", "--server", addresses[0], "health", "--config")
            done = tools.run(*line, other, env=path)
            self.assertEqual((done.returncode, done.stdout), (0, b"serving\n"), done.stderr)
            done = tools.run(*line, mine, env=path)
            self.assertEqual((done.returncode, done.stdout), (1, b""))
            self.assertIn("serves another job than " + mine, done.stderr.decode())
            self.assertIn(b"index.docs", done.stderr)

    def corpus_config(self, name, seed):
        folder = self.path(name)
        self.ok("ballast-server", "make-corpus", "--out", folder, "--samples", 8,
                "--seed", seed)  # fmt: skip
        config = os.path.join(folder, "ballast.yaml")
        self.ok("ballast-server", "index", "--config", config)
        return config


if __name__ == "__main__":
    unittest.main()
