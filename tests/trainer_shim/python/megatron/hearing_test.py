"""Three processes over Gloo, one for each module of a MimoModel: audio, vision and language, in
Megatron-Core's 1F1B schedule, fed by the adapter. Loss and gradients are those of the model in
one process."""

import tempfile
import types
import unittest

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.pipeline_parallel.multimodule_communicator import (
    MultiModulePipelineCommunicator,
)
from megatron.core.pipeline_parallel.schedules import (
    forward_backward_pipelining_without_interleaving,
)
from megatron.core.process_groups_config import MultiModuleProcessGroupCollection

import model as models
import on_cpu
import pipeline
import single
from ballast.adapters import megatron_bridge
from ballast.batch import Batch
from tests.trainer_shim.python import adapters_megatron_test as consumers
from tests.trainer_shim.python.megatron.mimo_test import (
    AUDIO,
    GRIDS,
    IDS,
    batch,
    hearing_model,
    with_clips,
)

MODULES = ["audios", "images", "language"]
KEYS = {
    "audios": ("input_features", "audio_feature_lengths", "audio_cu_rows"),
    "images": ("pixel_values", "image_grid_thw"),
}


def micro_batches():
    """Clips and images, images alone, clips alone, text alone."""
    made = [with_clips(batch(GRIDS), [6, 4]), batch(GRIDS[:1]), with_clips(batch([]), [8]),
            batch([])]  # fmt: skip
    for given in made:
        given.step_totals = types.SimpleNamespace(label_tokens=100)
    return made


def part(given, module):
    """What a loader of one module has of a batch."""
    others = sum(KEYS.values(), ())
    own = Batch()
    own.update((key, value) for key, value in given.items()
               if key in KEYS.get(module, ()) or (module == "language" and key not in others))  # fmt: skip
    own.step_totals = given.step_totals
    return own


def adapter(model, colocated):
    loader = types.SimpleNamespace(job=consumers.job(colocated=colocated), schedule=None)
    loader.job["modules"].append({"module": "audio", "dp": 1})
    loader.job["model"]["token_ids"].update(image=IDS["image"], audio=AUDIO)
    return megatron_bridge.Mimo(loader, model=model)


def run(rank, folder):
    torch.set_num_threads(1)
    on_cpu.install()
    dist.init_process_group(
        "gloo", init_method="file://" + folder + "/meeting", rank=rank, world_size=3
    )
    parallel_state.initialize_model_parallel()
    source = models.hugging_face(IDS, 320, layers=1)
    whole = hearing_model(source)
    to_mimo, wanted = adapter(whole, True), 0.0
    for given in micro_batches():
        loss = single.loss_sum(whole, to_mimo(given)) / given.step_totals.label_tokens
        loss.backward()
        wanted += float(loss.detach())
    gradients = {name: weight.grad for name, weight in whole.named_parameters()}

    mine = MODULES[rank]
    grids = {name: pipeline.grid_of(i, 1, 1, "gloo") for i, name in enumerate(MODULES)}
    ends = dist.new_group([2])
    groups = {mine: pipeline.groups_of(grids[mine], ends)}
    model = hearing_model(source, grids=grids, groups=groups)
    communicator = MultiModulePipelineCommunicator(
        grids, {"audios": ["language"], "images": ["language"], "language": []}, model.config,
        {"s": 0, "b": 1, "h": 2}, {"audios": 2, "images": 2},
    )  # fmt: skip
    given = [part(one, mine) for one in micro_batches()]
    parts = forward_backward_pipelining_without_interleaving(
        forward_step_func=lambda batches, m: pipeline.forward_step(
            adapter(model, False), batches, m
        ),
        data_iterator=iter(given), model=[model], num_microbatches=len(given), seq_length=1,
        micro_batch_size=1, forward_only=False, p2p_communicator=communicator,
        pg_collection=MultiModuleProcessGroupCollection(
            module_pgs=groups, language_model_module_name="language" if mine == "language" else None
        ),
    )  # fmt: skip
    if mine == "language":
        found = sum(float(one["loss"]) for one in parts)
        assert abs(found - wanted) <= 1e-6 * abs(wanted), (found, wanted)
    compared = 0
    for name, weight in model.named_parameters():
        away = float((weight.grad - gradients[name]).norm() / gradients[name].norm())
        assert away <= 1e-5, (name, away)
        compared += 1
    assert compared == {"audios": 2}.get(mine, compared) and compared > 0
    dist.barrier()
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()


class HearingTest(unittest.TestCase):
    def test_each_encoder_has_a_rank_of_its_own(self):
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.start_processes(run, (folder,), 3, start_method="fork")


if __name__ == "__main__":
    unittest.main()
