"""Families from files to a loss: a server of the family, a loader and the adapter beside
the model's own processor, on the same conversations.

Ids and pixels must be equal, and so must be the losses of small random models. Positions
on several axes must be those of the models.
"""

import importlib.util
import json
import os
import unittest

import ballast
from tests.harness import tools

MISSING = [name for name in ("transformers", "torch", "torchvision", "PIL", "jinja2")
           if importlib.util.find_spec(name) is None]  # fmt: skip
#: One of each rule that has a chat template, and LLaVA-OneVision's, which pads several
#: images of a sample.
FAMILIES = ("gemma3", "gemma3_pan_and_scan", "idefics3", "internvl3", "kimi_k25", "llama4",
            "llava1_5", "llava1_5_pad", "llava_next", "llava_onevision", "minicpmv4_6", "pixtral",
            "smolvlm")  # fmt: skip
#: Families whose models take no row of several samples (families_adapters_test).
NOT_PACKED = ("gemma3", "gemma3_pan_and_scan", "minicpmv4_6")
CONVERSATIONS = [
    [("user", [(640, 480), "What is this?"]), ("assistant", ["A brown fox."])],
    [("user", ["Hello"]), ("assistant", ["Hello, world!"])],
    [("user", [(300, 500), (500, 300), "Which?"]), ("assistant", ["The second."])],
    [("user", [(337, 336), "And this?"]), ("assistant", ["A cat.\n"])],
]  # fmt: skip
CONFIG = """
sources: [{name: chat, format: jsonl, path: chat.jsonl, media_root: .}]
order: {shuffle: false}
model:
  profile: %s
  rules: transformers
  tokenizer: tokenizer.json
  resample: %s
  %s
  token_ids: {end_of_text: 0}  # of plain texts, which there are none of here
batch: {global: 4, micro: 4, max_tokens: 32768}
topology: {modules: {vision: {dp: 1}, language: {dp: 1}}}
balance: {equal_count: true}
packing: {mode: %s, align: 4}
serve: {listen: ["127.0.0.1:0"], threads: 1}
"""


@unittest.skipIf(MISSING, "SKIPPED: Python lacks %s (BALLAST_PYTHON)" % ", ".join(MISSING))
class FamiliesTest(tools.ToolTest):
    def batches(self, family, mode, is_pil, more=""):
        """The batch of the only step, read by a loader of a server of `mode`. `more` is a
        line of the model's section."""
        import PIL

        pillow = "pillow13" if int(PIL.__version__.split(".")[0]) > 12 else "pillow12"
        config = os.path.join(family, mode + ".yaml")
        config = self.write(
            config, CONFIG % (family, pillow if is_pil else "torchvision", more, mode)
        )
        self.ok("ballast-server", "index", "--config", config)
        with self.server(config, f"unix:{self.folder}/{family[:20]}.sock") as (address,):
            with ballast.Loader(address, dp_rank=0, device="cpu", steps=1,
                                pixel_type="float32", normalisation=(
                                    "pil" if is_pil else "bfloat16" if family == "llama4" else "torchvision"
                                )) as loader:  # fmt: skip
                batch = next(loader)
                batch.images_per_sample  # known while the loader is open
                return batch.clone(), loader.job

    def prepare(self, family):
        """The family's processor, its tokenizer's and the conversations' files written;
        the placeholder; and whether the processor resizes with Pillow."""
        import torch

        from tests.trainer_shim.python import family_models  # first: it finds the others
        from check_family_chats import line_of, save_tokenizer
        from image_processors import drawn

        torch.set_num_threads(1)
        os.makedirs(self.path(family), exist_ok=True)
        processor = family_models.processor_of(family)
        placeholder = family_models.placeholder_of(family, processor)
        is_pil = type(processor.image_processor).__name__.endswith("Pil")
        save_tokenizer(processor, self.path(family, "tokenizer.json"))
        lines = []
        for number, turns in enumerate(CONVERSATIONS):
            line = json.loads(line_of(turns))
            names = []
            for k, (height, width) in enumerate(line["images"]):
                names.append("%d_%d.png" % (number, k))
                drawn(width, height).save(self.path(family, names[-1]))
            lines.append(json.dumps({"messages": line["messages"], "images": names}))
        self.write(os.path.join(family, "chat.jsonl"), "\n".join(lines) + "\n")
        return processor, placeholder, is_pil

    def check(self, family):
        import torch

        from ballast.adapters.huggingface_families import Family
        from tests.trainer_shim.python import family_models

        processor, placeholder, is_pil = self.prepare(family)
        batch, job = self.batches(family, "shard", is_pil)
        self.assertEqual(job["model"]["token_ids"]["image"], placeholder)
        rows, _ = self.batches(family, "padded", is_pil)
        model = family_models.model_of(family, processor)
        adapter = Family(model.config)
        wanted, counts = [], []
        with torch.no_grad():
            for sample, own in zip(batch.samples, adapter.unpacked(batch)):
                inputs = family_models.inputs_of(processor, CONVERSATIONS[sample.ordinal])
                self.assertEqual(own["input_ids"].tolist(), inputs["input_ids"].tolist())
                labels = own["labels"]
                extra = {}
                if family == "llava_onevision" and "pixel_values" in inputs:
                    inputs.pop("batch_num_images", None)
                    extra["batch_num_images"] = torch.tensor([len(inputs["image_sizes"])])
                if "pixel_values" in own:
                    self.same_pixels(family, own, inputs)
                theirs = float(model(**inputs, **extra, labels=labels).loss)
                ours = float(model(**own).loss)
                self.assertAlmostEqual(ours, theirs, delta=abs(theirs) * 1e-6)
                wanted.append(theirs)
                counts.append(int((labels != -100).sum()))
            mean = sum(loss * n for loss, n in zip(wanted, counts)) / sum(counts)
            calls = [adapter.padded(rows)]
            if family not in NOT_PACKED:
                calls.append(adapter.packed(batch))
            for arguments in calls:
                loss = float(model(**arguments).loss)
                self.assertAlmostEqual(loss, mean, delta=abs(mean) * 2e-6)

    def check_positions(self, family):
        """Positions on several axes, of families whose own chat template is refused. Their
        images have their marks all the same."""
        import torch

        from ballast.adapters.huggingface_families import Family
        from tests.trainer_shim.python import family_models
        from image_processors import drawn
        from text_processors import TEMPLATE_MARKS

        processor, placeholder, is_pil = self.prepare(family)
        batch, job = self.batches(family, "shard", is_pil, "chat_template: chatml")
        self.assertEqual(job["model"]["token_ids"]["image"], placeholder)
        model = family_models.model_of(family, processor)
        axes = set()
        with torch.no_grad():
            for sample, own in zip(batch.samples, Family(model.config).unpacked(batch)):
                ids, grids = own["input_ids"], own.get("image_grid_thw")
                ends = [processor.tokenizer.convert_tokens_to_ids(mark)
                        for mark in TEMPLATE_MARKS[family]]  # fmt: skip
                sizes = [p for _, parts in CONVERSATIONS[sample.ordinal]
                         for p in parts if not isinstance(p, str)]  # fmt: skip
                for end in ends:
                    self.assertEqual(int((ids == end).sum()), len(sizes))
                types = (ids == placeholder).int()
                theirs = model.model.get_rope_index(ids, types, grids)[0]
                self.assertEqual(own["position_ids"].tolist(), theirs.tolist())
                axes.add(tuple((theirs != theirs[:1]).flatten(1).any(1).tolist()))
                if "pixel_values" not in own:
                    continue
                made = processor.image_processor([drawn(*s) for s in sizes], return_tensors="pt")
                self.assertTrue((own["pixel_values"] == made["pixel_values"]).all())
                loss = float(model(**own).loss)
                del own["position_ids"]
                alone = float(model(**own, mm_token_type_ids=types).loss)
                self.assertAlmostEqual(loss, alone, delta=abs(alone) * 1e-6)
        self.assertGreater(len(axes), 1)  # text alone, and images, whose axes differ

    def same_pixels(self, family, own, inputs):
        """Every crop is the processor's, to the bit."""
        ours, theirs = own["pixel_values"], inputs["pixel_values"]
        if theirs.dim() == 5 and ours.dim() == 4:
            theirs = theirs.flatten(0, 1)
            theirs = theirs[theirs.flatten(1).any(1)]  # without padding up to most tiles
        if family == "pixtral":
            for one, other, (height, width) in zip(ours, theirs, own["image_sizes"].tolist()):
                self.assertTrue((one[:, :height, :width] == other[:, :height, :width]).all())
            return
        self.assertEqual(ours.shape, theirs.shape)
        self.assertTrue((ours == theirs).all())


def _add(family):
    setattr(FamiliesTest, "test_" + family, lambda self: self.check(family))


for _family in FAMILIES:
    _add(_family)
for _family in ("ernie4_5_vl", "glm4v", "hunyuan_vl"):
    setattr(FamiliesTest, "test_positions_" + _family,
            lambda self, family=_family: self.check_positions(family))  # fmt: skip


if __name__ == "__main__":
    unittest.main()
