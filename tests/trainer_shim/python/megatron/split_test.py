"""Megatron-Core's MimoModel with split placement: gradients are those of paired placement,
and a tower without the hook refuses such a batch."""

import copy
import unittest

import torch

import ballast
import model as models
import on_cpu
from ballast.adapters import megatron_bridge
from tests.trainer_shim.python import split_job

VOCABULARY = 320


class SplitTest(split_job.SplitJobTest):
    def test_gradients_are_those_of_paired_placement(self):
        self.assert_split_equals_paired(run_mimo, "qwen2_5_vl", "many")

    def test_ranks_without_images(self):
        seen = self.assert_split_equals_paired(run_mimo, "qwen2_5_vl", "few")
        self.assertGreater(seen["dummies"], 0)

    def test_a_tower_without_the_hook_refuses_the_batch(self):
        ids = {"image": 256, "video": 257, "vision_start": 258, "vision_end": 259}
        tower = models.Tower(
            copy.deepcopy(models.hugging_face(ids, VOCABULARY, layers=1).model.visual)
        )
        batch = {
            "input_ids": torch.tensor([[1, 256, 256, 2]]), "pixel_values": torch.zeros(8, 1176),
            "image_grid_thw": torch.tensor([[1, 2, 4]]), "embedding_send_host": torch.tensor([2]),
            "embedding_order": torch.tensor([0, 1]),
        }  # fmt: skip
        inputs = megatron_bridge.forward_inputs(batch)
        with self.assertRaisesRegex(TypeError, "split"):
            tower(**inputs["modality_inputs"]["images"]["qwen_visual"])
        with self.assertRaisesRegex(ballast.FailedPrecondition, "dummy_image"):
            megatron_bridge.forward_inputs(batch, dummy_image="drop")


def run_mimo(rank, loader, split, seen):
    from megatron.core import parallel_state

    on_cpu.install()
    parallel_state.initialize_model_parallel()
    ids = loader.job["model"]["token_ids"]
    source = models.hugging_face(ids, VOCABULARY, hidden=32, layers=2).double()
    # Norms are made in float32.
    model = models.mimo_model(source, int(ids["image"])).double()
    tower = model.modality_submodules[models.MODALITY].encoders[models.ENCODER]
    megatron_bridge.accept_split_placement(tower)
    to_mimo = megatron_bridge.Mimo(loader, model=model)
    for batch in loader:
        split_job.note(batch, rank, seen)
        losses, loss_mask = model(**to_mimo(batch))
        loss = (losses.reshape(-1) * loss_mask.reshape(-1)).sum()
        (loss / batch.step_totals.label_tokens).backward()
    gradients = split_job.gradients_of(model)
    parallel_state.destroy_model_parallel()
    return gradients


if __name__ == "__main__":
    unittest.main()
