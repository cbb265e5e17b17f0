"""The model's own forward takes the batches of each family: images of 300 sizes, alone and
several in a sample, under both rules. A model refuses a sample whose placeholders are not
as many as its features.

Towers and language models are narrow, and attention returns its values: only shapes matter
here.
"""

import importlib.util
import json
import math
import os
import random
import tempfile
import unittest

import ballast
from tests.harness import tools

MISSING = [name for name in ("transformers", "torch", "torchvision", "PIL", "jinja2")
           if importlib.util.find_spec(name) is None]  # fmt: skip
#: Families whose images differ under the rules of transformers. SmolVLM's numbers there are
#: Idefics 3's.
DIFFERENT = ("gemma3_pan_and_scan", "internvl3", "llava1_5", "llava_next", "pixtral", "vipllava")
FAMILIES = ("gemma3", "gemma3_pan_and_scan", "idefics3", "internvl3", "kimi_k25", "llama4", "llava1_5",
            "llava_next", "llava_onevision", "minicpmv4_6", "pixtral", "smolvlm", "smolvlm_500m",
            "vipllava")  # fmt: skip
SIZES = 300
#: Borders of rules: squares whose tokens a ratio bounds, one canvas or another, tiles.
BORDERS = [
    (1800, 1800), (1537, 1537), (1920, 1920), (308, 124), (124, 308), (336, 336), (337, 336),
    (1001, 2000), (448, 448), (449, 448), (235, 1128), (1024, 1024), (30, 900),
]  # fmt: skip
CONFIG = """
sources: [{name: chat, format: jsonl, path: chat.jsonl, media_root: "%s"}]
order: {shuffle: false}
model: {profile: %s, rules: %s, tokenizer: tokenizer.json, chat_template: chatml,
        token_ids: {end_of_text: 0, im_start: 1, im_end: 2}}
batch: {global: 4, micro: 4, max_tokens: 131072}
topology: {modules: {vision: {dp: 1}, language: {dp: 1}}}
balance: {equal_count: true}
packing: {mode: shard, align: 4}
serve: {listen: ["127.0.0.1:0"], threads: 2}
"""


def samples():
    """The sizes of the images of each sample, SIZES in all; the same in each run."""
    drawn = random.Random(61)

    def side():
        return int(math.exp(drawn.uniform(math.log(20), math.log(1600))))

    sizes = BORDERS + [(side(), side()) for _ in range(SIZES - len(BORDERS))]
    found, alone = [], 2 * SIZES // 3
    found += [[size] for size in sizes[:alone]]
    while alone < len(sizes):
        count = drawn.choice((2, 2, 3, 4))
        found.append(sizes[alone : alone + count])
        alone += count
    return found


@unittest.skipIf(MISSING, "SKIPPED: Python lacks %s (BALLAST_PYTHON)" % ", ".join(MISSING))
class AcceptedSizesTest(tools.ToolTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        import torch

        from tests.trainer_shim.python import family_models

        from PIL import Image
        from transformers import AttentionInterface, AttentionMaskInterface

        torch.set_num_threads(1)
        family_models.VISION["num_hidden_layers"] = 1
        AttentionInterface.register(
            "values", lambda module, query, key, value, *_, **__: (value.transpose(1, 2), None)
        )
        AttentionMaskInterface.register("values", lambda *_, **__: None)
        cls.pictures = cls.until_class_ends(tempfile.TemporaryDirectory())
        for width, height in {size for sizes in samples() for size in sizes}:
            picture = Image.new("RGB", (width, height), (9, 99, 199))
            picture.save(
                os.path.join(cls.pictures, "%dx%d.png" % (width, height)), compress_level=1
            )

    def write_samples(self, family):
        """The tokenizer, and conversations over the pictures; the model's processor."""
        from tests.trainer_shim.python import family_models  # first: it finds the others
        from check_family_chats import save_tokenizer

        os.makedirs(self.path(family), exist_ok=True)
        processor = family_models.processor_of(family)
        save_tokenizer(processor, self.path(family, "tokenizer.json"))
        lines = []
        for images in samples():
            names = ["%dx%d.png" % size for size in images]
            text = "<image>" * len(images) + "What?"
            lines.append(
                json.dumps(
                    {
                        "images": names,
                        "messages": [
                            {"role": "user", "content": text},
                            {"role": "assistant", "content": "A."},
                        ],
                    }
                )
            )
        self.write(os.path.join(family, "chat.jsonl"), "\n".join(lines) + "\n")
        return processor

    def check(self, family):
        import torch

        from ballast.adapters.huggingface_families import Family
        from tests.trainer_shim.python import family_models

        processor = self.write_samples(family)
        for rules in ("authors", "transformers") if family in DIFFERENT else ("authors",):
            config = CONFIG % (self.pictures, family, rules)
            config = self.write(os.path.join(family, rules + ".yaml"), config)
            self.ok("ballast-server", "index", "--config", config)
            model = family_models.model_of(family, processor, rules, "values")
            adapter = Family(model.config)
            seen = 0
            with self.server(config, f"unix:{self.folder}/{family[:16]}{rules[0]}.sock") as (
                address,
            ):
                with (
                    ballast.Loader(
                        address,
                        dp_rank=0,
                        device="cpu",
                        pixel_type="float32",
                        steps=len(samples()) // 4,
                    ) as loader,
                    torch.no_grad(),
                ):
                    for batch in loader:
                        for sample in adapter.unpacked(batch):
                            sample.pop("labels")
                            try:
                                model(**sample, logits_to_keep=1)
                            except ValueError as error:
                                sizes = samples()[batch.samples[seen % 4].ordinal]
                                raise AssertionError(
                                    f"{family}, {rules}, {sizes}: {error}"
                                ) from error
                            seen += 1
            self.assertEqual(seen, len(samples()) // 4 * 4)


def _add(family):
    setattr(AcceptedSizesTest, "test_" + family, lambda self: self.check(family))


for _family in FAMILIES:
    _add(_family)


if __name__ == "__main__":
    unittest.main()
