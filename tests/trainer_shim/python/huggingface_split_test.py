"""Hugging Face's Qwen2.5-VL and Qwen3-VL with split placement: gradients are those of
paired placement."""

import unittest

import torch
import transformers

import ballast
from tests.trainer_shim.python import split_job

VOCABULARY, HIDDEN = 320, 32


class HuggingFaceSplitTest(split_job.SplitJobTest):
    def test_qwen2_5_vl(self):
        self.assert_split_equals_paired(run_qwen2_5_vl, "qwen2_5_vl", "many")

    def test_qwen3_vl_with_deepstack(self):
        self.assert_split_equals_paired(run_qwen3_vl, "qwen3_vl", "many")

    def test_dummy_images(self):
        seen = self.assert_split_equals_paired(run_qwen2_5_vl, "qwen2_5_vl", "few")
        self.assertGreater(seen["dummies"], 0)

    def test_ranks_without_images_beside_others(self):
        seen = self.assert_split_equals_paired(run_qwen3_vl, "qwen3_vl", "unaligned")
        self.assertGreater(seen["without_images"], 0)

    def test_other_calls_are_left_alone(self):
        model = qwen2_5_vl({"image": 256, "video": 257, "vision_start": 258, "vision_end": 259})
        ids = torch.tensor([[1, 258, 256, 256, 259, 2]])
        inputs = {"input_ids": ids, "pixel_values": torch.randn(8, 1176).double(),
                  "image_grid_thw": torch.tensor([[1, 2, 4]]),
                  "mm_token_type_ids": (ids == 256).int()}  # fmt: skip
        wanted = model(**inputs).logits
        with ballast.adapters.huggingface_split.SplitPlacement(model):
            found = model(**inputs).logits
        self.assertTrue(torch.equal(found, wanted))

    def test_refuses_a_split_batch_outside_the_context(self):
        model = qwen2_5_vl({"image": 256, "video": 257, "vision_start": 258, "vision_end": 259})
        split = ballast.adapters.huggingface_split.SplitPlacement(model)
        batch = by_hand()
        with self.assertRaises(AttributeError):
            model(**split.packed(batch))
        del batch["pixel_values"]
        with self.assertRaisesRegex(ballast.FailedPrecondition, "text alone"):
            split.packed(batch)
        with self.assertRaisesRegex(ballast.InvalidArgument, "model.visual"):
            ballast.adapters.huggingface_split.SplitPlacement(torch.nn.Linear(1, 1))


def by_hand():
    """A batch of one sample with split placement on one rank."""
    ids = torch.tensor([[1, 258, 256, 256, 259, 2]])
    return {
        "input_ids": ids, "labels": ids, "position_ids": torch.arange(6).expand(3, 1, -1),
        "cu_seqlens": torch.tensor([0, 6]), "cu_seqlens_padded": torch.tensor([0, 6]),
        "max_seqlen": 6, "pixel_values": torch.zeros(8, 1176),
        "image_grid_thw": torch.tensor([[1, 2, 4]]), "embedding_send_host": torch.tensor([2]),
        "embedding_order": torch.tensor([0, 1]),
    }  # fmt: skip


def _finish(model):
    """Float64, with weights large enough for every gradient to count."""
    torch.manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(0, weight.shape[-1] ** -0.5)
    return model.double()


def _ids(ids):
    return {key + "_token_id": int(ids[key])
            for key in ("image", "video", "vision_start", "vision_end")}  # fmt: skip


TEXT = dict(
    vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=2 * HIDDEN, num_hidden_layers=3,
    num_attention_heads=4, num_key_value_heads=2, bos_token_id=None, eos_token_id=None,
    tie_word_embeddings=False,
    rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": [1, 1, 2]},
)  # fmt: skip


def qwen2_5_vl(ids):
    vision = dict(
        depth=2, hidden_size=HIDDEN, intermediate_size=2 * HIDDEN, num_heads=4, patch_size=14,
        spatial_merge_size=2, temporal_patch_size=2, out_hidden_size=HIDDEN, window_size=112,
        fullatt_block_indexes=[1],
    )  # fmt: skip
    config = transformers.Qwen2_5_VLConfig(
        text_config=dict(TEXT, use_sliding_window=False), vision_config=vision,
        tie_word_embeddings=False, **_ids(ids),
    )  # fmt: skip
    return _finish(transformers.Qwen2_5_VLForConditionalGeneration(config))


def qwen3_vl(ids):
    vision = dict(
        depth=3, hidden_size=HIDDEN, intermediate_size=2 * HIDDEN, num_heads=4, patch_size=16,
        spatial_merge_size=2, temporal_patch_size=2, out_hidden_size=HIDDEN,
        num_position_embeddings=256, deepstack_visual_indexes=[0, 1],
    )  # fmt: skip
    config = transformers.Qwen3VLConfig(
        text_config=dict(TEXT, head_dim=8), vision_config=vision, tie_word_embeddings=False,
        **_ids(ids),
    )  # fmt: skip
    return _finish(transformers.Qwen3VLForConditionalGeneration(config))


def _run(make, rank, loader, seen):
    model = make(loader.job["model"]["token_ids"])
    with ballast.adapters.huggingface_split.SplitPlacement(model) as split:
        for batch in loader:
            split_job.note(batch, rank, seen)
            batch["pixel_values"] = batch["pixel_values"].double()
            inputs = split.packed(batch)
            inputs.pop("labels")
            # Without a dummy image's sample, the row's last.
            logits = model(**inputs).logits[0, : batch["labels"].shape[1]]
            loss = torch.nn.functional.cross_entropy(
                logits, batch["labels"][0], ignore_index=-100, reduction="sum"
            )
            (loss / batch.step_totals.label_tokens).backward()
    return split_job.gradients_of(model)


def run_qwen2_5_vl(rank, loader, split, seen):
    return _run(qwen2_5_vl, rank, loader, seen)


def run_qwen3_vl(rank, loader, split, seen):
    return _run(qwen3_vl, rank, loader, seen)


if __name__ == "__main__":
    unittest.main()
