"""The files of docs/unknown_model.md: a model that no profile describes, from a recipe and a
file of numbers to the loss of its own processor.
"""

import importlib.util
import json
import os
import re
import sys
import unittest

import ballast
from tests.harness import tools

MISSING = [name for name in ("transformers", "torch", "PIL", "jinja2", "numpy")
           if importlib.util.find_spec(name) is None]  # fmt: skip
PAGE = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "docs/unknown_model.md"
)
IMAGE, END = "<image_placeholder>", "<|end_of_sentence|>"
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] | capitalize + ': ' }}{% for c in m['content'] %}"
    "{{ '" + IMAGE + "' if c['type'] == 'image' else c['text'] }}{% endfor %}"
    "{{ '" + END + "' if m['role'] == 'assistant' else '\\n\\n' }}{% endfor %}"
)
CONVERSATIONS = [
    [("user", [(640, 480), "What is this?"]), ("assistant", ["A brown fox."])],
    [("user", ["Hello"]), ("assistant", ["Hello, world!"])],
    [("user", [(300, 500), (50, 700), "Which?"]), ("assistant", ["The second."])],
    [("user", ["And ", (384, 384), "?"]), ("assistant", ["A cat."])],
]


@unittest.skipIf(MISSING, "SKIPPED: Python lacks %s (BALLAST_PYTHON)" % ", ".join(MISSING))
class UnknownModelTest(tools.ToolTest):
    def fence(self, language):
        """The first block of the page in `language`."""
        with open(PAGE, encoding="utf-8") as page:
            return re.search(r"```%s\n(.*?)```" % language, page.read(), re.S)[1]

    def processor(self):
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast
        from transformers.models.deepseek_vl.image_processing_pil_deepseek_vl import (
            DeepseekVLImageProcessorPil,
        )
        from transformers.models.deepseek_vl.processing_deepseek_vl import DeepseekVLProcessor

        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokens = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
        tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokens.decoder = decoders.ByteLevel()
        tokens.add_special_tokens([AddedToken(t, special=True) for t in (IMAGE, END)])
        tokens.save(self.path("tokenizer.json"))
        self.write("chat_template.jinja", TEMPLATE)
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=tokens, extra_special_tokens={"image_token": IMAGE}
        )
        return DeepseekVLProcessor(DeepseekVLImageProcessorPil(), tokenizer, TEMPLATE)

    def model(self, processor):
        import torch
        import transformers

        small = {
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
        }
        torch.manual_seed(7)
        config = transformers.DeepseekVLConfig(
            vision_config={**small, "model_type": "siglip_vision_model", "image_size": 384, "patch_size": 16},
            text_config={**small, "model_type": "llama", "vocab_size": len(processor.tokenizer),
                         "max_position_embeddings": 4096, "num_key_value_heads": 2, "pad_token_id": 0},
            image_token_id=processor.image_token_id)  # fmt: skip
        config._attn_implementation = "eager"
        return transformers.DeepseekVLForConditionalGeneration(config).float().eval()

    def test_loss_is_that_of_its_own_processor(self):
        import numpy
        import torch
        from ballast.adapters.huggingface_families import Family
        from PIL import Image

        torch.set_num_threads(1)
        # The server's Python is this one.
        os.environ["PATH"] = os.path.dirname(sys.executable) + ":" + os.environ["PATH"]
        processor = self.processor()
        drawn, lines = [], []
        for number, turns in enumerate(CONVERSATIONS):
            images, messages = [], []
            for role, parts in turns:
                content = ""
                for part in parts:
                    if isinstance(part, str):
                        content += part
                        continue
                    noise = numpy.random.default_rng(len(images) + 9 * number)
                    coarse = noise.integers(0, 256, (7, 9, 3), dtype=numpy.uint8)
                    images.append(Image.fromarray(coarse).resize(part, Image.Resampling.BICUBIC))
                    content += "<image>"
                messages.append({"role": role, "content": content})
            names = ["%d_%d.png" % (number, k) for k in range(len(images))]
            for image, name in zip(images, names):
                image.save(self.path(name))
            drawn.append(images)
            lines.append(json.dumps({"messages": messages, "images": names}))
        self.write("chat.jsonl", "\n".join(lines) + "\n")
        profile = self.write("deepseek_vl.textproto", self.fence("textproto"))
        self.write("deepseek_vl.py", self.fence("python"))
        config = self.write("ballast.yaml", self.fence("yaml"))
        self.ok("ballast-server", "index", "--config", config, "--verify-recipe", "4")
        model = self.model(processor)
        with self.server(config, f"unix:{self.folder}/server.sock") as (address,):
            with ballast.Loader(address, dp_rank=0, device="cpu", steps=1, pixel_type="float32",
                                normalisation="pil") as loader:  # fmt: skip
                batch = next(loader)
                own = Family(model.config, profile=profile).unpacked(batch)
                self.assertEqual(
                    loader.job["model"]["token_ids"]["image"], processor.image_token_id
                )
                self.assertEqual(len(own), len(CONVERSATIONS))
                for sample, ours in zip(batch.samples, own):
                    self.compare(model, processor, sample.ordinal, drawn[sample.ordinal], ours)

    def compare(self, model, processor, number, images, ours):
        import torch

        messages = [
            {"role": role, "content": [
                {"type": "text", "text": part} if isinstance(part, str) else {"type": "image"} for part in parts]}
            for role, parts in CONVERSATIONS[number]
        ]  # fmt: skip
        text = processor.apply_chat_template(messages, tokenize=False)
        theirs = processor(text=[text], images=[images] if images else None, return_tensors="pt")
        self.assertEqual(ours["input_ids"].tolist(), theirs["input_ids"].tolist())
        if images:
            self.assertEqual(tuple(ours["pixel_values"].shape), tuple(theirs["pixel_values"].shape))
            self.assertTrue(torch.equal(ours["pixel_values"], theirs["pixel_values"].float()))
        with torch.no_grad():
            wanted = float(model(**theirs, labels=ours["labels"]).loss)
            found = float(model(**ours).loss)
        self.assertAlmostEqual(found, wanted, delta=abs(wanted) * 1e-6)


if __name__ == "__main__":
    unittest.main()
