"""`ballast-server init` on folders as people have them: what it writes runs as it is."""

import glob
import json
import os
import struct
import tarfile
import unittest

from tests.harness import tools


class InitTest(tools.ToolTest):
    def draw(self, name, *options, samples=12):
        folder = self.path(name)
        self.ok("ballast-server", "make-corpus", "--out", folder, "--samples", samples, *options)
        os.remove(folder + "/ballast.yaml")
        return folder

    def unpacked(self, name, images="media"):
        """A drawn dataset as JSON lines and a folder of images."""
        folder = self.draw(name, "--preset", "receipts")
        os.mkdir(folder + "/" + images)
        rows = {}
        for path in glob.glob(folder + "/*.tar"):
            with tarfile.open(path) as tar:
                for member in tar:
                    key, _, extension = member.name.partition(".")
                    data = tar.extractfile(member).read()
                    row = rows.setdefault(key, {"image": []})
                    if extension == "json":
                        row.update(json.loads(data))
                    else:
                        row["image"].append(member.name)
                        with open("%s/%s/%s" % (folder, images, member.name), "wb") as file:
                            file.write(data)
            os.remove(path)
        return folder, list(rows.values())

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
        self.lines(folder + "/prompts.jsonl", [{"prompt": "a", "response": "b"}])
        missing = [dict(row, image=["no/such.jpg"]) for row in rows]
        self.lines(folder + "/missing.jsonl", missing)
        said = self.ok("ballast-server", "init", folder, "--out", folder + "/ballast.yaml")
        self.assertNotIn("info.json", said)
        self.assertRegex(said, r"prompts.jsonl: line 1: .*write `cook` in prompts_recipe.py")
        self.assertRegex(said, r"left out missing.jsonl: .* line 1: there is no no/such.jpg")
        self.assertRegex(said, r"the model: .*--model-dir")

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
        self.assertIn("nowhere", self.error("ballast-server", "init", "/nowhere", "--out", out))
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
