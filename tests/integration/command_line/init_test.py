"""`ballast-server init` on folders as people have them: what it writes runs as it is."""

import glob
import gzip
import importlib.util
import io
import json
import os
import pickle
import shutil
import struct
import subprocess
import tarfile
import unittest

from tests.harness import tools

# The forms of docs/data.md: for each the files of a folder, and what `init` says it found.
# A text is written as it is, a list as lines of JSON, bytes as they are; the Parquet files
# are written by Hugging Face's `datasets`. Each set has as many samples.
SAMPLES = 9
ASK = {"role": "user", "content": "Rain?"}
SAY = {"role": "assistant", "content": "Yes."}
PARTS = [{"type": "image", "image": "media/a.png"}, {"type": "text", "text": "Rain?"}]
SEE = {"role": "user", "content": PARTS}
TOOLS = [{"type": "function", "function": {"name": "sky", "parameters": {"type": "object"}}}]
CALL = {"id": "1", "type": "function", "function": {"name": "sky", "arguments": "{}"}}
AGENT = [
    ASK,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": "blue"},
    dict(SAY, weight=0),
]
SHARE = [
    {"from": "human", "value": "Rain?"},
    {"from": "function_call", "value": '{"name": "sky", "arguments": {}}'},
    {"from": "observation", "value": "blue"},
    {"from": "gpt", "value": "No."},
]
MATCHED = {
    "text_list": ["One.", "Two."],
    "image_info": [
        {
            "image_name": "a.png",
            "raw_url": "https://x/a.png",
            "matched_text_index": 1,
            "matched_sim": 0.3,
        }
    ],
    "similarity_matrix": [[0.1, 0.3]],
    "url": "https://x",
}
FORMS = {
    "openai": ({"train.jsonl": [{"messages": [ASK, SAY]}]}, "train: jsonl train.jsonl"),
    "openai_parts": ({"train.jsonl": [{"messages": [SEE, SAY]}]}, "train: jsonl train.jsonl"),
    "openai_tools": ({"agents.jsonl": [{"messages": AGENT, "tools": TOOLS}]}, "agents: jsonl"),
    "openai_parquet": ({"openai.parquet": None}, "openai: parquet openai.parquet"),
    "sharegpt": (
        {"data.json": json.dumps([{"conversations": SHARE[::3], "id": "1"}] * SAMPLES, indent=2)},
        "data: jsonl data.json",
    ),
    "sharegpt_tools": (
        {"data.jsonl": [{"conversations": SHARE, "system": "Calls.", "tools": json.dumps(TOOLS)}]},
        "data: jsonl data.jsonl",
    ),
    "text": ({"pages.jsonl": [{"text": "page"}]}, "pages: jsonl pages.jsonl"),
    "text_parquet": ({"text.parquet": None}, "text: parquet text.parquet"),
    "obelics": (
        {"docs.jsonl": [{"texts": ["See ", None], "images": [None, "a.png"], "metadata": "[]"}]},
        "docs: jsonl docs.jsonl",
    ),
    "obelics_parquet": ({"obelics.parquet": None}, "obelics: parquet obelics.parquet"),
    "mmc4": ({"docs.jsonl": [MATCHED]}, "docs: jsonl docs.jsonl"),
    "omnicorpus": (
        {
            "docs.jsonl": [
                {"images": ["a.png", None], "texts": [None, "words"], "metadata": [{}, None]}
            ]
        },
        "docs: jsonl docs.jsonl",
    ),
}
# What a form of forms/ reads: the files, what is found, and the form's keys.
VQA = {"image": "a.png", "question": "Rain?", "answers": ["Yes.", "No."]}
ALPACA = {"instruction": "<image>Rain?", "input": "", "output": "Yes.", "images": ["a.png"]}
TURNS = [{"who": "U", "says": "<image>Rain?"}, {"who": "A", "says": "Yes."}]
DESCRIBED = {
    "mine": {
        "file_name": "mine.json",
        "formatting": "sharegpt",
        "columns": {"messages": "dialog", "images": "pics"},
        "tags": {
            "role_tag": "who",
            "content_tag": "says",
            "user_tag": "U",
            "assistant_tag": "A",
        },
    }
}
BY_FORM = {
    "vqa": (
        {"train.jsonl": [VQA]},
        "train: jsonl train.jsonl",
        ['images: "image"', 'user: "question"', 'assistant: "answers[0]"'],
    ),
    "wrapped": (
        {"train.json": json.dumps({"data": [VQA] * SAMPLES}, indent=2)},
        "train: jsonl train.json",
        ['name: "question_answer"'],
    ),
    "alpaca": (
        {"train.json": json.dumps([ALPACA] * SAMPLES)},
        "train: jsonl train.json",
        ['name: "alpaca"'],
    ),
    "minicpm": (
        {
            "train.jsonl": [
                {
                    "image": {"<image_00>": "a.png"},
                    "conversations": [{"role": "user", "content": "<image_00>Rain?"}, SAY],
                }
            ]
        },
        "train: jsonl train.jsonl",
        ['name: "chat"', 'messages: "conversations"'],
    ),
    "image_folder": (
        {"media/metadata.jsonl": [{"file_name": "a.png", "text": "Rain."}]},
        "metadata: jsonl media/metadata.jsonl",
        ['images: "file_name"', 'text: "text"'],
    ),
    "csv": (
        {"train.csv": "image,caption\r\n" + 'a.png,"Rain, ""I say"""\r\n' * SAMPLES},
        "train: csv train.csv",
        ['name: "caption"', 'text: "caption"'],
    ),
    "dataset_info": (
        {
            "dataset_info.json": json.dumps(DESCRIBED),
            "mine.json": json.dumps([{"dialog": TURNS, "pics": ["a.png"]}] * SAMPLES),
        },
        "mine: jsonl mine.json",
        ['messages: "dialog"', 'role_key: "who"'],
    ),
}
# Preference pairs: the files, what is found, and the form as it is named.
NO = {"role": "assistant", "content": "No."}
PAIRS = {
    "pairs": (
        {"pairs.jsonl": [{"prompt": [ASK], "chosen": [SAY], "rejected": [NO]}]},
        "pairs: jsonl pairs.jsonl",
        "`chosen` and `rejected` with `prompt`",
    ),
    "pairs_of_texts": (
        {"pairs.jsonl": [{"prompt": "Rain?", "chosen": "Yes.", "rejected": "No."}]},
        "pairs: jsonl pairs.jsonl",
        "`chosen` and `rejected` with `prompt`",
    ),
    "pairs_without_prompt": (
        {"pairs.json": json.dumps([{"chosen": [ASK, SAY], "rejected": [ASK, NO]}] * SAMPLES)},
        "pairs: jsonl pairs.json",
        "`chosen` and `rejected`, with the prompt in both",
    ),
    "pairs_swift": (
        {"pairs.jsonl": [{"messages": [ASK, SAY], "rejected_response": "No."}]},
        "pairs: jsonl pairs.jsonl",
        "`messages` and `rejected_response`",
    ),
    "pairs_messages": (
        {"pairs.jsonl": [{"messages": [ASK, SAY], "rejected_messages": [ASK, NO]}]},
        "pairs: jsonl pairs.jsonl",
        "`messages` and `rejected_messages`",
    ),
    "pairs_parquet": (
        {"pairs.parquet": None},
        "pairs: parquet pairs.parquet",
        "`chosen` and `rejected` with `prompt`",
    ),
}
AGENTS = ("openai_tools", "sharegpt_tools")
IMAGES = ("openai_parts", "obelics", "obelics_parquet", "mmc4", "omnicorpus")


def tokenizer():
    """A tokenizer of bytes with Qwen's special tokens."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = [chr(byte) for byte in plain] + [chr(256 + i) for i in range(len(others))]
    names = (
        "endoftext",
        "im_start",
        "im_end",
        "vision_start",
        "vision_end",
        "image_pad",
        "video_pad",
    )
    added = [
        {"id": 256 + i, "content": f"<|{name}|>", "special": True, "normalized": False, "lstrip": False,
         "rstrip": False, "single_word": False}
        for i, name in enumerate(names)
    ]  # fmt: skip
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    return {
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(letters)}, "merges": []},
    }


# As Qwen's, without what the test does not look at.
TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}{{ c | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
)


class InitTest(tools.ToolTest):
    def draw(self, name, *options, samples=12):
        folder = self.path(name)
        self.ok("ballast-server", "make-corpus", "--out", folder, "--samples", samples, *options)
        os.remove(folder + "/ballast.yaml")
        return folder

    def unpacked(self, name, images="media"):
        """A drawn dataset as JSON lines and a folder of images."""
        folder = self.draw(name, "--preset", "receipts")
        rows = tools.unpack(folder, folder + "/" + images)
        for path in glob.glob(folder + "/*.tar"):
            os.remove(path)
        return folder, rows

    def lines(self, path, rows):
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)

    def runs(self, folder, *options):
        """Runs init on the folder; indexes, serves and pulls with what it wrote. Returns
        what init printed and the plan of step 0."""
        out = folder + "/ballast.yaml"
        said = self.ok("ballast-server", "init", folder, "--out", out, *options)
        self.assertIn("wrote " + out, said)
        indexed = self.ok("ballast-server", "index", "--config", out)
        self.assertIn(" 0 bad", indexed)
        with self.server(out, "127.0.0.1:0") as (address,):
            batches = self.json_lines(
                "ballastctl", "--server", address, "pull", "--module", "language",
                "--dp-rank", 0, "--step", 0, "--steps", 1, "--json",
            )  # fmt: skip
            self.assertEqual(len(batches), 2)
        return said, json.loads(
            self.ok("ballast-server", "plan", "--config", out, "--step", 0, "--json")
        )

    def text(self, folder):
        with open(folder + "/ballast.yaml", encoding="utf-8") as file:
            return file.read()

    def test_tars(self):
        folder = self.draw("tars")
        with open(folder + "/config.json", "w", encoding="utf-8") as file:
            file.write('{"of": "another program"}')
        said, plan = self.runs(folder)
        self.assertIn("docs: webdataset docs-000000.tar, 12 samples in 1 file", said)
        self.assertGreater(plan["totals"]["images"], 0)
        # Every line but those that only open a section says why.
        for line in self.text(folder).splitlines():
            if not line.endswith(":") and not line.startswith("#"):
                self.assertTrue("# " in line or "format:" in line or "path:" in line, line)

    def test_clips(self):
        for form in ("webdataset", "jsonl"):
            folder = self.draw("talk_" + form, "--preset", "speech", "--format", form)
            if form == "jsonl":
                os.mkdir(folder + "/media")
                os.rename(folder + "/audio", folder + "/media/audio")
            _, plan = self.runs(folder)
            self.assertIn("modules: {audio: {dp: 1}, language: {dp: 1}}", self.text(folder))
            self.assertEqual('media_root: "media"' in self.text(folder), form == "jsonl")
            self.assertGreater(plan["totals"]["clips"], 0)

    def test_json_lines_and_a_folder_of_images(self):
        folder, rows = self.unpacked("lines")
        self.lines(folder + "/train.jsonl", rows)
        _, plan = self.runs(folder)
        self.assertIn('media_root: "media"', self.text(folder))
        self.assertGreater(plan["totals"]["images"], 0)

    def test_documents(self):
        folder, rows = self.unpacked("documents")
        pictures = [name for row in rows for name in row["image"]]
        self.lines(folder + "/plain.jsonl", [{"text": "page %d" % i} for i in range(8)])
        self.lines(
            folder + "/obelics.jsonl",
            [{"texts": ["See ", None], "images": [None, name]} for name in pictures],
        )
        self.lines(
            folder + "/matched.jsonl",
            [
                {
                    "text_list": ["One.", "Two."],
                    "image_info": [{"image_name": name, "matched_text_index": 1}],
                }
                for name in pictures
            ],
        )
        said, _ = self.runs(folder)
        for name in ("plain", "obelics", "matched"):
            self.assertIn("%s: jsonl %s.jsonl" % (name, name), said)
        self.assertEqual(self.text(folder).count('media_root: "media"'), 2)

    def test_token_ids_of_megatron(self):
        folder = self.path("tokens")
        os.mkdir(folder)
        lengths = [5 + i for i in range(12)]
        with open(folder + "/web_text_document.bin", "wb") as file:
            for i, length in enumerate(lengths):
                file.write(struct.pack("<%dH" % length, *range(i, i + length)))
        starts = [2 * sum(lengths[:i]) for i in range(12)]
        with open(folder + "/web_text_document.idx", "wb") as file:
            file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 12, 13))
            file.write(struct.pack("<12i12q13q", *lengths, *starts, *range(13)))
        said, plan = self.runs(folder)
        self.assertIn("megatron web_text_document.idx, 12 samples in 1 file", said)
        # 8 samples, each drawn once.
        drawn = sorted(
            sample["tokens"] for micro in plan["micro_batches"] for sample in micro["samples"]
        )
        self.assertEqual(len(drawn), len(set(drawn)))
        self.assertLessEqual(set(drawn), set(lengths))

    def test_every_form_is_found(self):
        model = self.path("agents_model")
        os.mkdir(model)
        for name, text in {
            "config.json": json.dumps({"model_type": "qwen3_vl"}),
            "preprocessor_config.json": "{}",
            "tokenizer.json": json.dumps(tokenizer()),
            "chat_template.jinja": TEMPLATE,
        }.items():
            self.write("agents_model/" + name, text)
        for form, (files, found) in FORMS.items():
            with self.subTest(form):
                if form in AGENTS and importlib.util.find_spec("jinja2") is None:
                    continue
                folder = self.made(form, files)
                own = ["--model-dir", model] if form in AGENTS else []
                self.finds(folder, found, form in IMAGES, *own)
                if form in AGENTS:
                    self.assertIn("chat_template: checkpoint", self.text(folder))

    def test_forms_of_records_are_chosen_and_written(self):
        for form, (files, found, keys) in BY_FORM.items():
            with self.subTest(form):
                folder = self.made(form, files)
                self.finds(folder, found, True)
                for key in keys:
                    self.assertIn("      " + key, self.text(folder))

    def test_a_text_beside_each_image(self):
        folder = self.path("loose")
        os.makedirs(folder)
        for i in range(SAMPLES):
            with open(f"{folder}/{i}.png", "wb") as file:
                file.write(tools.picture())
            self.write(f"loose/{i}.txt", f"Rain {i}.\n")
        said, plan = self.runs(folder)
        self.assertIn(f"{SAMPLES} samples in 1 file", said)
        self.assertGreater(plan["totals"]["images"], 0)
        (lines,) = glob.glob(folder + "/*_pairs.jsonl")
        with open(lines, encoding="utf-8") as file:
            first = json.loads(file.readline())
        self.assertEqual(first, {"image": "0.png", "text": "Rain 0."})

    def test_every_form_of_pairs_is_found_and_named(self):
        for form, (files, found, named) in PAIRS.items():
            with self.subTest(form):
                folder = self.made(form, files)
                said = self.finds(folder, found, False)
                self.assertIn(f"whose records are preference pairs ({named})", said)
                self.assertIn("    pairs: true", self.text(folder))
                sample = json.loads(
                    self.ok(
                        "ballast-server",
                        "inspect",
                        "sample",
                        "--config",
                        folder + "/ballast.yaml",
                        "--position",
                        0,
                    )  # fmt: skip
                )
                both = [sample[key]["input_ids"] for key in ("chosen", "rejected")]
                self.assertEqual(sum(map(len, both)), sample["tokens"])
                # "Yes." and "No.", as the trial tokenizer has them: bytes.
                self.assertEqual(len(both[0]) - len(both[1]), 1)
                self.assertNotIn("input_ids", sample)

    def made(self, form, files):
        fixtures = os.path.join(os.path.dirname(os.path.abspath(__file__)), "forms")
        folder = self.path(form)
        os.makedirs(folder + "/media")
        with open(folder + "/media/a.png", "wb") as file:
            file.write(tools.picture())
        for name, content in files.items():
            if content is None:
                shutil.copy(os.path.join(fixtures, name), folder)
            elif isinstance(content, str):
                self.write(f"{form}/{name}", content)
            else:
                self.lines(f"{folder}/{name}", content * SAMPLES)
        return folder

    def finds(self, folder, found, images, *options):
        out = folder + "/ballast.yaml"
        said = self.ok("ballast-server", "init", folder, "--out", out, *options)
        self.assertIn(found, said)
        self.assertIn(f", {SAMPLES} samples", said)
        indexed = self.ok("ballast-server", "index", "--config", out)
        self.assertIn(
            f"{SAMPLES} samples, {SAMPLES if images else 0} images, 0 skipped, 0 bad", indexed
        )
        return said

    def test_bridges_chats_in_energons_folders(self):
        folder = self.path("chatml")
        os.makedirs(folder + "/.nv-meta")
        with tarfile.open(folder + "/shard-0.tar", "w") as tar:
            for i in range(SAMPLES):
                turns = json.dumps([dict(ASK, content="<image>Rain?"), SAY]).encode()
                for kind, data in (("json", turns), ("jpgs", pickle.dumps([tools.picture()], 4))):
                    member = tarfile.TarInfo(f"{i}.{kind}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
        self.write(
            "chatml/.nv-meta/.info.json", json.dumps({"shard_counts": {"shard-0.tar": SAMPLES}})
        )
        self.write(
            "chatml/.nv-meta/split.yaml", "split_parts: {train: [shard-0.tar]}\nexclude: []\n"
        )
        self.write(
            "chatml/.nv-meta/dataset.yaml",
            "__module__: megatron.bridge.data.energon.task_encoder_utils\n"
            "__class__: ChatMLWebdataset\nfield_map: {imgs: jpgs, conversation: json}\n",
        )
        self.finds(folder, "data: energon .", True)

    def test_forms_that_are_not_read_are_said(self):
        folder = self.path("refused_forms")
        os.mkdir(folder)
        self.lines(folder + "/pairs.jsonl", [{"prompt": [ASK], "chosen": [SAY]}] * SAMPLES)
        self.lines(folder + "/pages.jsonl", [{"text": "page"}] * SAMPLES)
        for name in ("c.tgz", "notes.txt.gz"):
            self.write("refused_forms/" + name, "")
        said = self.ok("ballast-server", "init", folder, "--out", folder + "/ballast.yaml")
        self.assertRegex(
            said, r"records of pairs.* half a preference pair.*write `cook` in pairs_recipe.py"
        )
        self.assertRegex(said, r"left out .*/c.tgz: compressed, as 1 file of its folder: ")

    def test_compressed_lines(self):
        folder = self.path("packed")
        os.mkdir(folder)
        rows = "".join(json.dumps({"messages": [ASK, SAY]}) + "\n" for _ in range(SAMPLES))
        for part in range(3):
            with gzip.open(f"{folder}/chat-{part}.jsonl.gz", "wt", encoding="utf-8") as file:
                file.write(rows)
        # Both forms of one file.
        self.write("packed/page.jsonl", '{"text": "page"}\n')
        with gzip.open(folder + "/page.jsonl.gz", "wt", encoding="utf-8") as file:
            file.write('{"text": "page"}\n')
        with gzip.open(folder + "/llava.json.gz", "wt", encoding="utf-8") as file:
            json.dump([{"conversations": SHARE[::3]}] * SAMPLES, file)
        out = folder + "/ballast.yaml"
        said = self.ok("ballast-server", "init", folder, "--out", out)
        if "samples are read at their offsets" in said:
            self.skipTest("SKIPPED: this build has no Arrow")
        self.assertIn(f"chat: jsonl chat-[0-9]*.jsonl.gz, {3 * SAMPLES} samples", said)
        self.assertIn(f"llava: jsonl llava.json.gz, {SAMPLES} samples", said)
        self.assertIn("page: jsonl page.jsonl, 1 sample ", said)
        self.assertRegex(said, "left out .*/page.jsonl.gz: compressed, as 1 file of its folder: "
                               "its lines are unpacked next to it")  # fmt: skip
        indexed = self.ok("ballast-server", "index", "--config", out)
        self.assertIn("chat: unpacked 3 files", indexed)
        self.assertIn(f"chat: {3 * SAMPLES} samples, 0 images, 0 skipped, 0 bad", indexed)
        # The unpacked lines are none of the data.
        again = self.ok("ballast-server", "init", folder, "--out", folder + "/again.yaml")
        self.assertNotIn(".lines", again)

    def test_agents_need_the_checkpoints_template(self):
        folder = self.path("agents")
        os.mkdir(folder)
        turns = [{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": "Yes."}]
        self.lines(folder + "/chat.jsonl", [{"messages": turns, "tools": [{"name": "sky"}]}] * 9)
        said = self.ok("ballast-server", "init", folder, "--out", folder + "/ballast.yaml")
        self.assertIn("chat: jsonl chat.jsonl, 9 samples", said)
        self.assertIn("set chat_template: checkpoint", said)

    def test_the_configuration_may_lie_elsewhere(self):
        folder, rows = self.unpacked("elsewhere")
        self.lines(folder + "/chat.jsonl", rows)
        os.mkdir(self.path("jobs"))
        out = self.path("jobs/job.yaml")
        self.ok("ballast-server", "init", folder, "--out", out)
        self.assertIn(" 0 bad", self.ok("ballast-server", "index", "--config", out))

    def test_an_address(self):
        """As a store: a mounted file system that is slow enough to be cached."""
        folder, rows = self.unpacked("addressed")
        self.lines(folder + "/chat.jsonl", rows)
        os.rename(self.draw("shards"), folder + "/shards")
        out = self.path("addressed.yaml")
        said = self.ok("ballast-server", "init", "file://" + folder + "/", "--out", out)
        self.assertIn("docs: webdataset file://%s/shards/docs-000000.tar, 12" % folder, said)
        self.assertIn("chat: jsonl file://%s/chat.jsonl, 12 samples" % folder, said)
        with open(out, encoding="utf-8") as file:
            self.assertIn('media_root: "file://%s/media"' % folder, file.read())
        self.assertIn(" 0 bad", self.ok("ballast-server", "index", "--config", out))

    def test_parquet(self):
        done = tools.run(
            "ballast-server", "make-corpus", "--out", self.path("parquet"), "--samples", 12,
            "--format", "parquet",
        )  # fmt: skip
        if b"--config=noarrow" in done.stderr or b"Arrow" in done.stderr:
            self.skipTest("this build has no Parquet")
        os.remove(self.path("parquet/ballast.yaml"))
        said, plan = self.runs(self.path("parquet"))
        self.assertIn("parquet docs-000000.parquet, 12 samples", said)
        self.assertGreater(plan["totals"]["images"], 0)

    def test_energon(self):
        folder = self.draw("energon", "--format", "energon")
        said, plan = self.runs(folder)
        self.assertIn("data: energon ., 12 samples", said)
        self.assertIn("its cooker is Python", said)
        self.assertIn("format: energon", self.text(folder))
        self.assertNotIn("webdataset\n", self.text(folder))
        self.assertGreater(plan["totals"]["images"], 0)

    def test_energon_beside_other_data(self):
        folder, rows = self.unpacked("beside")
        self.lines(folder + "/chat.jsonl", rows)
        os.rename(self.draw("nv", "--format", "energon"), folder + "/nv")
        said, _ = self.runs(folder)
        self.assertIn("nv: energon nv, 12 samples", said)
        self.assertIn("chat: jsonl chat.jsonl, 12 samples", said)
        # One part that cannot be read is no reason to train on the others alone.
        os.remove(folder + "/ballast.yaml")
        split = folder + "/nv/.nv-meta/split.yaml"
        with open(split, encoding="utf-8") as file:
            whole = file.read()
        with open(split, "w", encoding="utf-8") as file:
            file.write(whole.replace("val: []", "val:\n  - lost.tar"))
        said = self.ok("ballast-server", "init", folder, "--out", folder + "/lost.yaml")
        self.assertRegex(said, "left out .*/nv: .*lost.tar is not in shard_counts")
        self.assertNotIn("energon nv", said)
        os.remove(folder + "/lost.yaml")
        with open(split, "w", encoding="utf-8") as file:
            file.write(whole)
        # What Energon's description says cannot be read is left out with the reason.
        with open(folder + "/nv/.nv-meta/dataset.yaml", "w", encoding="utf-8") as file:
            file.write("sample_type: {__module__: megatron.energon, __class__: SimilarityX}\n")
        out = folder + "/again.yaml"
        said = self.ok("ballast-server", "init", folder, "--out", out)
        self.assertRegex(said, "left out .*/nv: ")
        self.assertNotIn("energon nv", said)

    def test_an_array_of_conversations(self):
        folder, rows = self.unpacked("array")
        with open(folder + "/llava.json", "w", encoding="utf-8") as file:
            json.dump(rows, file)
        _, plan = self.runs(folder)
        self.assertGreater(plan["totals"]["images"], 0)

    def test_json_lines_by_another_name(self):
        folder, rows = self.unpacked("renamed")
        self.lines(folder + "/train.json", rows)
        said, plan = self.runs(folder)
        self.assertIn("train: jsonl train.json, 12 samples", said)
        self.assertGreater(plan["totals"]["images"], 0)

    def test_splits_follow_from_names(self):
        folder, rows = self.unpacked("splits")
        self.lines(folder + "/train.jsonl", rows[:8])
        self.lines(folder + "/validation.jsonl", rows[8:])
        said, _ = self.runs(folder)
        self.assertIn("split of validation: valid", said)

    def test_what_cannot_be_used_is_said(self):
        folder, rows = self.unpacked("mixed")
        self.lines(folder + "/good.jsonl", rows)
        with open(folder + "/info.json", "w", encoding="utf-8") as file:
            json.dump([{"version": 1}], file)
        self.lines(folder + "/prompts.jsonl", [{"first": "a", "second": "b"}])
        missing = [dict(row, image=["no/such.jpg"] * len(row["image"])) for row in rows]
        self.lines(folder + "/missing.jsonl", missing)
        said = self.ok("ballast-server", "init", folder, "--out", folder + "/ballast.yaml")
        self.assertIn("left out info.json", said)
        self.assertRegex(said, r"prompts.jsonl: line 1: .*write `cook` in prompts_recipe.py")
        self.assertRegex(said, r"left out missing.jsonl: .* line 1: there is no no/such.jpg")
        self.assertRegex(said, r"the model: .*--model-dir")

    def test_paths_that_lead_elsewhere_name_their_roots(self):
        folder, rows = self.unpacked("led")
        elsewhere = self.path("elsewhere/images")
        os.makedirs(os.path.dirname(elsewhere))
        shutil.copytree(folder + "/media", elsewhere)
        os.mkdir(folder + "/notes")

        def named(form):
            return [dict(row, image=[form % name for name in row["image"]]) for row in rows]

        self.lines(folder + "/notes/up.jsonl", named("../media/%s"))
        self.lines(folder + "/whole.jsonl", named(folder + "/media/%s"))
        self.lines(folder + "/far.jsonl", named("file://" + elsewhere + "/%s"))
        os.symlink(elsewhere, folder + "/link")
        _, plan = self.runs(folder)
        self.assertGreater(plan["totals"]["images"], 0)
        text = self.text(folder)
        self.assertIn('media_root: ["notes", "."]', text)
        self.assertIn('media_root: "."', text)
        # What no root names stays refused, with the line.
        self.lines(folder + "/notes/up.jsonl", named("../link/%s"))
        self.write("led/ballast.yaml", text.replace(elsewhere, folder))
        said = tools.run(
            "ballast-server", "index", "--config", folder + "/ballast.yaml"
        ).stdout.decode()
        self.assertRegex(
            said, 'leads outside of media_root.* name it, too: media_root: .*"%s' % elsewhere
        )

    def test_what_is_not_whole_is_said(self):
        folder, rows = self.unpacked("shards")
        for name in ("0-of-3", "2-of-3"):
            self.lines(folder + "/train-0000%s.jsonl" % name, rows)
        out = folder + "/ballast.yaml"
        missing = "1 of 3 files are not there: train-00001-of-3.jsonl; download the rest"
        self.assertIn(missing, self.ok("ballast-server", "init", folder, "--out", out))
        self.assertIn(missing, self.ok("ballast-server", "index", "--config", out))
        with open(out, encoding="utf-8") as file:
            text = file.read()
        self.write(
            "shards/ballast.yaml", text.replace("train-[0-9]*-of-[0-9]*", "train-0000{0,2}-of-3")
        )
        self.assertNotIn("not there", self.ok("ballast-server", "index", "--config", out))

    def test_what_is_no_source_is_said_with_the_way_out(self):
        pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
        for name, files, words in (
            ("zips", ["a.zip", "b.zip"], r"a.zip \(as 1 more there\): a zip archive.*unzip -q"),
            (
                "mds",
                ["index.json", "shard.00000.mds"],
                r"\(MDS\), which is not read; write Parquet",
            ),
            ("lance", ["t.lance/data/x"], "t.lance: a table of Lance, .*lance.dataset"),
            (
                "classes",
                ["cat/1.jpg", "dog/1.jpg", "dog/2.jpg"],
                "3 images in 2 folders, without a text",
            ),
            (
                "pointer",
                ["a.parquet", "b.tar", "c.jsonl"],
                "a.parquet: found a pointer of git LFS .*git lfs pull",
            ),
        ):
            for file in files:
                os.makedirs(os.path.dirname(self.path(name + "/" + file)), exist_ok=True)
                self.write(name + "/" + file, pointer if name == "pointer" else "{}")
            message = self.error(
                "ballast-server", "init", self.path(name), "--out", self.path("no.yaml")
            )
            self.assertRegex(message, words)

    @unittest.skipIf(shutil.which("ffmpeg") is None, "SKIPPED: there is no program ffmpeg")
    def test_videos_and_audio_bring_both_modules(self):
        """A job without one of them would train on placeholders alone, and is refused."""
        os.mkdir(self.path("heard"))
        source = ("-f", "lavfi", "-i", "testsrc2=size=112x84:rate=30:duration=3")
        sound = ("-f", "lavfi", "-i", "sine=440:sample_rate=16000:duration=1")
        for name, given in (("film.mp4", source), ("a.wav", sound)):
            subprocess.run(["ffmpeg", "-nostdin", "-loglevel", "error", *given,
                            self.path("heard", name)], check=True)  # fmt: skip
        lines = []
        for kind, name in (("video", "film.mp4"), ("audio", "a.wav")):
            asked = [{"type": kind, kind: name}, {"type": "text", "text": "What?"}]
            lines.append(json.dumps({"messages": [{"role": "user", "content": asked}, SAY]}))
        self.write("heard/d.jsonl", "\n".join(lines) + "\n")
        config = self.path("heard.yaml")
        self.ok("ballast-server", "init", self.path("heard"), "--out", config)
        with open(config, encoding="utf-8") as file:
            text = file.read()
        self.assertIn("modules: {vision: {dp: 1}, audio: {dp: 1}, language: {dp: 1}}", text)
        found = self.ok("ballast-server", "index", "--config", config)
        self.assertIn("2 samples, 0 images, 1 videos, 1 clips of audio, 0 skipped, 0 bad", found)
        planned = self.ok("ballast-server", "plan", "--config", config, "--step", "0")
        self.assertRegex(planned, "4 videos, 4 clips of")
        for module, media in (("vision", "1 videos"), ("audio", "1 clips of audio")):
            less = self.write("less.yaml", text.replace(module + ": {dp: 1}, ", ""))
            for command in (["plan", "--step", "0"], ["serve"]):
                error = tools.run("ballast-server", command[0], "--config", less, *command[1:])
                self.assertEqual(error.returncode, 1)
                self.assertIn(
                    "the sources have %s, and topology.modules has no module %s" % (media, module),
                    error.stderr.decode(),
                )

    def test_the_models_files_decide(self):
        folder = self.draw("model")
        model = self.path("qwen")
        os.mkdir(model)
        with open(model + "/config.json", "w", encoding="utf-8") as file:
            json.dump({"model_type": "qwen3_vl"}, file)
        with open(model + "/preprocessor_config.json", "w", encoding="utf-8") as file:
            json.dump({"size": {"shortest_edge": 4096, "longest_edge": 65536}}, file)
        said, _ = self.runs(folder, "--model-dir", model)
        self.assertIn("profile qwen3_vl", said)
        self.assertIn("max_pixels: 65536", self.text(folder))
        # As transformers 5 saves and reads it.
        nested = {"image_processor": {"size": {"shortest_edge": 4096, "longest_edge": 32768}}}
        self.write("qwen/processor_config.json", json.dumps(nested))
        os.remove(folder + "/ballast.yaml")
        self.runs(folder, "--model-dir", model)
        self.assertRegex(self.text(folder), "max_pixels: 32768 +# processor_config.json")
        with open(model + "/config.json", "w", encoding="utf-8") as file:
            json.dump({"model_type": "gpt2"}, file)
        message = self.error(
            "ballast-server", "init", folder, "--out", self.path("x.yaml"), "--model-dir", model
        )
        self.assertIn('model_type: found "gpt2"; wanted one of aya_vision', message)
        self.assertFalse(os.path.exists(self.path("x.yaml")))

    def test_refusals(self):
        empty = self.path("empty")
        os.mkdir(empty)
        out = self.path("refused.yaml")
        self.assertIn(
            "found nothing that can be a source; wanted WebDataset tars",
            self.error("ballast-server", "init", empty, "--out", out),
        )
        self.assertIn(
            "/nowhere: found no such folder in ",
            self.error("ballast-server", "init", "/nowhere", "--out", out),
        )
        self.assertIn(
            "found neither config.json",
            self.error("ballast-server", "init", empty, "--out", out, "--model-dir", empty),
        )
        self.assertFalse(os.path.exists(out))
        kept = self.write("kept.yaml", "mine")
        self.assertIn(
            "exists and was kept", self.error("ballast-server", "init", empty, "--out", kept)
        )
        with open(kept, encoding="utf-8") as file:
            self.assertEqual(file.read(), "mine")


if __name__ == "__main__":
    unittest.main()
