"""The adapter for models of crops, on rows of text alone: language models that keep the
samples of a row apart, those that do not, and batches that no row can be made of."""

import copy
import importlib.util
import types
import unittest

import numpy

from ballast.adapters import huggingface
from ballast.adapters.huggingface_families import Family
from ballast.errors import FailedPrecondition, Unimplemented

MISSING = [name for name in ("transformers", "torch", "torchvision", "PIL", "jinja2")
           if importlib.util.find_spec(name) is None]  # fmt: skip
LLAVA = types.SimpleNamespace(model_type="llava", image_token_id=5)


class Batch(dict):
    """A batch: a dictionary, and how many images each sample has."""

    images_per_sample = [0, 0]
    dummy_image = False


def text_of(lengths, like=numpy.array):
    """A batch of samples of `lengths` without images."""
    total = sum(lengths)
    places = numpy.cumsum([0, *lengths])
    return Batch(
        input_ids=like(numpy.arange(1, total + 1)[None]), labels=like(numpy.full((1, total), -100)),
        position_ids=like(numpy.concatenate([numpy.arange(n) for n in lengths])[None]),
        cu_seqlens=places, cu_seqlens_padded=places, max_seqlen=max(lengths),
    )  # fmt: skip


@unittest.skipIf(MISSING, "SKIPPED: Python lacks %s (BALLAST_PYTHON)" % ", ".join(MISSING))
class Llama4Test(unittest.TestCase):
    """It scales the attention of tokens by their places in the row."""

    def model(self, floor_scale):
        import torch
        import transformers

        from tests.trainer_shim.python import family_models

        torch.manual_seed(3)
        text = dict(family_models.TEXT, vocab_size=64, intermediate_size_mlp=32,
                    num_local_experts=2, floor_scale=floor_scale, no_rope_layers=[1, 0],
                    attention_chunk_size=10)  # fmt: skip
        vision = dict(
            family_models.VISION,
            image_size=28,
            patch_size=14,
            vision_output_dim=32,
            projector_input_dim=32,
            projector_output_dim=32,
            pixel_shuffle_ratio=0.5,
        )
        config = transformers.Llama4Config(text_config=text, vision_config=vision)
        model = transformers.Llama4ForConditionalGeneration(config).float().eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, 0, 0.5)
        return model

    def test_rows_as_long_as_the_model_allows(self):
        import torch

        given = text_of([7, 9], torch.from_numpy)
        model = self.model(floor_scale=17)
        adapter = Family(model.config)
        with torch.no_grad():
            alone = torch.cat([model(**one).logits for one in adapter.unpacked(given)], 1)
            row = model(**adapter.packed(given)).logits
        self.assertLess(float((row - alone).abs().max()), float(alone.abs().max()) * 1e-5)

    def test_longer_rows_are_refused(self):
        import torch

        adapter = Family(self.model(floor_scale=16).config)
        with self.assertRaisesRegex(Unimplemented, "rows of up to 15 tokens.* and found 16: call"):
            adapter.packed(text_of([7, 9], torch.from_numpy))
        # A sample of its own begins where its row does.
        self.assertEqual(
            adapter.packed(text_of([16], torch.from_numpy))["input_ids"].shape, (1, 16)
        )


@unittest.skipIf(MISSING, "SKIPPED: Python lacks %s (BALLAST_PYTHON)" % ", ".join(MISSING))
class LanguageModelTest(unittest.TestCase):
    """InternVL with other language models than its first ones."""

    def family_and_losses(self, language, **own):
        """(adapter, logits of each sample alone, logits of the row)."""
        import torch
        import transformers

        from tests.trainer_shim.python import family_models

        torch.manual_seed(3)
        text = dict(family_models.TEXT, model_type=language, vocab_size=64, bos_token_id=1,
                    eos_token_id=2, **own)  # fmt: skip
        vision = dict(family_models.VISION, image_size=[28, 28], patch_size=[14, 14])
        config = transformers.InternVLConfig(vision_config=vision, text_config=text)
        config._attn_implementation = "eager"
        model = transformers.InternVLForConditionalGeneration(config).float().eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, 0, 0.3)
        given = text_of([7, 9], torch.from_numpy)
        adapter = Family(model.config)
        row = {key: given[key] for key in ("input_ids", "position_ids")}
        with torch.no_grad():
            alone = torch.cat([model(**one).logits for one in adapter.unpacked(given)], 1)
            row = model(**row, attention_mask=None, use_cache=False).logits
        return lambda: adapter.packed(given), float((row - alone).abs().max())

    def test_one_that_keeps_samples_apart(self):
        packed, farthest = self.family_and_losses("qwen3")
        self.assertLess(farthest, 1e-4)
        self.assertNotIn("attention_mask", packed())

    def test_one_that_does_not_is_refused(self):
        packed, farthest = self.family_and_losses(
            "gpt_oss", num_local_experts=2, num_experts_per_tok=1, sliding_window=4
        )
        self.assertGreater(farthest, 0.1)  # else transformers has mended it
        with self.assertRaisesRegex(Unimplemented, "language model gpt_oss.*call `unpacked`"):
            packed()

    def test_an_unknown_one_is_refused(self):
        config = types.SimpleNamespace(
            model_type="llava", text_config=types.SimpleNamespace(model_type="mamba7")
        )
        with self.assertRaisesRegex(Unimplemented, "mamba7.*not known to keep them apart"):
            Family(config).packed(text_of([7, 9]))


class RefusalTest(unittest.TestCase):
    def test_slices_of_context_ranks(self):
        cut = text_of([8, 4])
        for key in ("input_ids", "labels", "position_ids"):
            cut[key] = cut[key][:, :6]
        family = Family(LLAVA)
        for call in (family.packed, family.padded, family.unpacked):
            with self.assertRaisesRegex(
                FailedPrecondition, "6 of 12 tokens, cut for a context rank"
            ):
                call(cut)

    def test_text_of_images_without_them(self):
        text = text_of([8])
        text.totals = types.SimpleNamespace(images=2, videos=1)
        text.images_per_sample, text.videos_per_sample = [2], [1]
        family = Family(LLAVA)
        three = copy.copy(text)
        three["position_ids"] = numpy.stack([text["position_ids"]] * 3)
        said = "2 images and 1 videos without their pix"
        for module, batch in ((family, text), (huggingface, three)):
            for call in (module.packed, module.padded, module.unpacked):
                with self.assertRaisesRegex(FailedPrecondition, said):
                    call(batch)
        text.totals = types.SimpleNamespace(images=0, videos=0)
        self.assertNotIn("pixel_values", family.packed(text))


if __name__ == "__main__":
    unittest.main()
