"""Sets that their own tools have written: `datasets`, Megatron-Core's builder of token ids, and
`energon prepare`. Each test is skipped where the Python (BALLAST_PYTHON) lacks its tool.
"""

import importlib.util
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import tarfile
import unittest

from tests.harness import tools

CONFIG = """
sources: [{name: set, %s}]
order: {shuffle: false}
model: {profile: qwen2_5_vl, chat_template: chatml}
batch: {global: 3, micro: 3}
topology: {modules: {vision: {dp: 1}, language: {dp: 1}}}
serve: {memory: 64MiB}
"""
ROWS = 3
# Of the trial tokenizer, whose other ids are bytes.
SPECIAL = {151643: "<end>", 151644: "<start>", 151645: "<stop>", 151652: "<see>", 151653: "</see>"}


def has(*modules):
    for name in modules:
        try:
            if importlib.util.find_spec(name) is None:
                return False
        except ModuleNotFoundError:
            return False
    return True


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


# Of each form a row by its number, and what is learnt of it, by sequences.
FORMS = {
    "openai": (
        lambda i: {"messages": [user("Q%d" % i), assistant("A%d" % i)]},
        lambda i: ["A%d<stop>" % i],
    ),
    "openai_weight": (
        lambda i: {
            "messages": [
                dict(user("Q"), weight=None), dict(assistant("no"), weight=0.0),
                dict(user("R"), weight=None), dict(assistant("A%d" % i), weight=1.0),
            ]
        },
        lambda i: ["A%d<stop>" % i],
    ),
    "sharegpt": (
        lambda i: {
            "conversations": [
                {"from": "human", "value": "Q"}, {"from": "gpt", "value": "A%d" % i},
            ]
        },
        lambda i: ["A%d<stop>" % i],
    ),
    "text": (lambda i: {"text": "page %d" % i}, lambda i: ["age %d<end>" % i]),
    "pairs": (
        lambda i: {
            "prompt": [user("Q")], "chosen": [assistant("Y%d" % i)], "rejected": [assistant("N")],
        },
        lambda i: ["Y%d<stop>" % i, "N<stop>"],
    ),
    "pairs_of_texts": (
        lambda i: {"prompt": "Q", "chosen": "Y%d" % i, "rejected": "N"},
        lambda i: ["Y%d<stop>" % i, "N<stop>"],
    ),
    "pairs_without_prompt": (
        lambda i: {
            "chosen": [user("Q"), assistant("Y%d" % i)],
            "rejected": [user("Q"), assistant("N")],
            "score_chosen": 2.0, "score_rejected": 1.0,
        },
        lambda i: ["Y%d<stop>" % i, "N<stop>"],
    ),
}  # fmt: skip


def text_of(ids):
    """The text of learnt ids."""
    return "".join(SPECIAL.get(i) or chr(i) for i in ids)


class OwnToolsTest(tools.ToolTest):
    def need(self, *modules):
        if not has(*modules):
            self.skipTest("SKIPPED: Python lacks %s (BALLAST_PYTHON)" % " or ".join(modules))

    def config(self, name, source):
        path = self.write(name + ".yaml", CONFIG % source)
        self.assertIn(" 0 bad", self.ok("ballast-server", "index", "--config", path))
        return path

    def sample(self, config, position):
        return json.loads(
            self.ok(
                "ballast-server", "inspect", "sample", "--config", config, "--position", position
            )  # fmt: skip
        )

    def learnt(self, sample):
        """What each sequence of a sample learns."""
        sequences = [sample["chosen"], sample["rejected"]] if "chosen" in sample else [sample]
        return [text_of(i for i in each["labels"] if i != -100) for each in sequences]

    def test_rows_of_datasets(self):
        self.need("datasets")
        from datasets import Dataset

        for form, (row, learnt) in FORMS.items():
            rows = Dataset.from_list([row(i) for i in range(ROWS)])
            rows.to_parquet(self.path(form + ".parquet"))
            rows.to_json(self.path(form + ".jsonl"))
            more = ", pairs: true" if form.startswith("pairs") else ""
            for kind in ("parquet", "jsonl"):
                with self.subTest(form, kind=kind):
                    config = self.config(
                        form + "_" + kind, "format: %s, path: %s.%s%s" % (kind, form, kind, more)
                    )
                    for i in range(ROWS):
                        self.assertEqual(self.learnt(self.sample(config, i)), learnt(i))

    def test_lines_of_compressors(self):
        lines = "".join(json.dumps(FORMS["openai"][0](i)) + "\n" for i in range(20_000))
        self.write("plain.jsonl", lines)
        cut = lines.index("\n", len(lines) // 2) + 1
        for part, text in (("a", lines[:cut]), ("b", lines[cut:])):
            self.write(part, text)
        packed = {
            "zstd": "zstd -q -c plain.jsonl > zstd.jsonl.zst",
            "pzstd": "pzstd -q -p 2 -c plain.jsonl > pzstd.jsonl.zst",
            "frames": "(zstd -q -c a; zstd -q --long=27 -c < b) > frames.jsonl.zst",
            "gzip": "gzip -c plain.jsonl > gzip.jsonl.gz",
            "members": "(gzip -c a; gzip -c b) > members.jsonl.gz",
        }
        plain = self.config("plain", "format: jsonl, path: plain.jsonl")
        wanted = [self.sample(plain, i) for i in (0, 9_999, 19_999)]
        for name, command in packed.items():
            with self.subTest(name):
                if not shutil.which(command.strip("(").split()[0]):
                    self.skipTest("SKIPPED: no program for " + name)
                subprocess.run(["sh", "-ec", command], cwd=self.path(""), check=True)
                file = command.split()[-1]
                source = "format: jsonl, path: %s, index: %s.index" % (file, name)
                config = self.write(name + ".yaml", CONFIG % source)
                size = os.path.getsize(self.path(file))
                self.assertIn(
                    "set: unpacked 1 files, %d -> %d bytes, into " % (size, len(lines)),
                    self.ok("ballast-server", "index", "--config", config),
                )
                for i, position in enumerate((0, 9_999, 19_999)):
                    self.assertEqual(self.sample(config, position), wanted[i])

    def test_a_window_that_is_too_large(self):
        if not shutil.which("zstd"):
            self.skipTest("SKIPPED: no program zstd")
        self.write("long.jsonl", json.dumps(FORMS["openai"][0](0)) + "\n")
        command = "zstd -q --long=31 < long.jsonl > long.jsonl.zst"
        subprocess.run(["sh", "-ec", command], cwd=self.path(""), check=True)
        config = self.write("long.yaml", CONFIG % "format: jsonl, path: long.jsonl.zst")
        done = tools.run("ballast-server", "index", "--config", config)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("a window of more than 128 MiB", done.stderr.decode())

    def test_images_of_datasets(self):
        self.need("datasets", "PIL")
        from datasets import Dataset, Features, Image, List, Value

        image = {"bytes": tools.picture(), "path": None}
        turns = List({"role": Value("string"), "content": List(
            {"type": Value("string"), "text": Value("string")})})  # fmt: skip
        ask = [{"role": "user", "content": [{"type": "image", "text": None},
                                            {"type": "text", "text": "Q"}]}]  # fmt: skip
        say = [{"role": "assistant", "content": [{"type": "text", "text": "A"}]}]
        no = [{"role": "assistant", "content": [{"type": "text", "text": "N"}]}]
        for name, row, features, more, learnt in (
            ("chats", {"messages": ask + say}, {"messages": turns}, "", ["A<stop>"]),
            ("preferences", {"prompt": ask, "chosen": say, "rejected": no},
             dict.fromkeys(("prompt", "chosen", "rejected"), turns), ", pairs: true",
             ["A<stop>", "N<stop>"]),
        ):  # fmt: skip
            with self.subTest(name):
                Dataset.from_list(
                    [dict(row, images=[image])] * ROWS,
                    features=Features(dict(features, images=List(Image()))),
                ).to_parquet(self.path(name + ".parquet"))
                config = self.config(name, "format: parquet, path: %s.parquet%s" % (name, more))
                sample = self.sample(config, 0)
                self.assertEqual(self.learnt(sample), learnt)
                # 28 x 28 pixels are one token of the model's at least.
                self.assertEqual(len(sample["images"]), 1)

    def test_interleaved_documents_of_datasets(self):
        self.need("datasets", "PIL")
        from datasets import Dataset, Features, Image, List, Value

        rows = [{"images": [{"bytes": tools.picture(), "path": None}, None],
                 "texts": [None, "words %d" % i]} for i in range(ROWS)]  # fmt: skip
        Dataset.from_list(
            rows, features=Features({"images": List(Image()), "texts": List(Value("string"))})
        ).to_parquet(self.path("obelics.parquet"))
        config = self.config("obelics", "format: parquet, path: obelics.parquet")
        for i in range(ROWS):
            self.assertEqual(self.learnt(self.sample(config, i)), ["words %d<end>" % i])

    def test_token_ids_of_megatrons_builder(self):
        self.need("megatron.core", "torch")
        import numpy
        import torch
        from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder

        for kind in (numpy.uint16, numpy.int32):
            prefix = self.path("web_%s_text_document" % numpy.dtype(kind).name)
            builder = IndexedDatasetBuilder(prefix + ".bin", dtype=kind)
            for i in range(ROWS):
                document = torch.arange(10 * i, 10 * i + 5 + i)
                builder.add_document(document, [len(document)])
            builder.finalize(prefix + ".idx")
            config = self.config(
                numpy.dtype(kind).name, "format: megatron, path: %s" % os.path.basename(prefix)
            )
            written = IndexedDataset(prefix)
            for i in range(ROWS):
                found = self.sample(config, i)
                self.assertEqual(found["input_ids"], written[i].tolist())
                self.assertEqual(found["labels"], found["input_ids"][1:] + [-100])

    def test_bridges_chats_that_energon_has_prepared(self):
        self.need("megatron.energon")
        folder = self.path("chatml")
        os.mkdir(folder)
        with tarfile.open(folder + "/shard-0.tar", "w") as tar:
            for i in range(ROWS):
                turns = json.dumps([user("<image>Q"), assistant("A%d" % i)]).encode()
                for kind, data in (("json", turns), ("jpgs", pickle.dumps([tools.picture()], 4))):
                    member = tarfile.TarInfo("%d.%s" % (i, kind))
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
        done = subprocess.run(
            [sys.executable, "-c", "from megatron.energon.cli.main import main; main()",
             "prepare", folder, "--non-interactive", "--split-ratio", "1,0,0", "--num-workers",
             "1", "--no-progress", "--sample-type", "CrudeWebdataset"],
            capture_output=True, text=True, timeout=tools.TIMEOUT_S, check=False,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        # As Bridge's users write it: its class is none of Energon's.
        self.write(
            "chatml/.nv-meta/dataset.yaml",
            "__module__: megatron.bridge.data.energon.task_encoder_utils\n"
            "__class__: ChatMLWebdataset\nfield_map: {imgs: jpgs, conversation: json}\n",
        )
        config = self.config("chatml", "format: energon, path: chatml")
        for i in range(ROWS):
            sample = self.sample(config, i)
            self.assertEqual(self.learnt(sample), ["A%d<stop>" % i])
            self.assertEqual(len(sample["images"]), 1)


if __name__ == "__main__":
    unittest.main()
