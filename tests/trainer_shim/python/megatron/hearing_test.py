"""Processes over Gloo, one for each encoder of a MimoModel, audio and vision, and two for the
language model, each with texts of its own, in Megatron-Core's 1F1B schedule, fed by the adapter.
Loss and gradients are those of the model in one process."""

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
PEERS = 2  # ranks of language
KEYS = {
    "audios": ("input_features", "audio_feature_lengths", "audio_cu_rows"),
    "images": ("pixel_values", "image_grid_thw"),
}


def micro_batches():
    """Of each micro-batch the texts of both ranks: clips and images, images alone, clips alone,
    text alone, for which the rank of audio has a dummy clip."""
    made = [
        (with_clips(batch(GRIDS), [6, 4]), with_clips(batch(GRIDS[1:]), [4])),
        (batch(GRIDS[:1]), with_clips(batch([]), [2, 2, 4])),
        (with_clips(batch([]), [8]), batch(GRIDS)),
        (batch([]), batch([])),
    ]
    for number, texts in enumerate(made):
        for peer, given in enumerate(texts):
            given.step_totals = types.SimpleNamespace(label_tokens=100)
            given.step, given.micro_batch = 0, number
            given._samples = [types.SimpleNamespace(position=PEERS * number + peer)]
    return made


def joined(texts, module):
    """The batch of an encoder's rank, which feeds the ranks of language."""
    given = Batch()
    for key in KEYS[module]:
        parts = [text[key] for text in texts if key in text]
        if key == "audio_cu_rows":
            given[key] = torch.nn.functional.pad(given["audio_feature_lengths"], (1, 0)).cumsum(0)
        elif parts or key in ("audio_feature_lengths",):
            given[key] = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64)
        else:
            given[key] = torch.zeros(0, 4)
    if module == "audios" and not len(given["audio_feature_lengths"]):
        given["input_features"], given["audio_feature_lengths"] = (
            torch.zeros(4, 4),
            torch.tensor([4]),
        )
        given["audio_cu_rows"], given.dummy_clip = torch.tensor([0, 4]), True
    given.step_totals, given.step = texts[0].step_totals, 0
    given.micro_batch, given._schedule = texts[0].micro_batch, schedule
    given._samples = [sample for text in texts for sample in text.samples]
    return given


def text_alone(given):
    own = Batch()
    own.update((key, value) for key, value in given.items() if key not in sum(KEYS.values(), ()))
    own.step_totals = given.step_totals
    return own


def schedule():
    return {"step": 0, "micro_batches": [{"samples": [
        {"position": text.samples[0].position, "patches": len(text["pixel_values"]),
         "audio_tokens": int((text["input_ids"] == AUDIO).sum()),
         "owner": {"vision": 0, "audio": 0, "language": peer}}
        for peer, text in enumerate(texts)]} for texts in micro_batches()]}  # fmt: skip


def adapter(model, colocated):
    peers = {} if colocated else {"dp": PEERS}
    loader = types.SimpleNamespace(
        job=consumers.job(colocated=colocated, language=peers), keep_schedules=lambda: None
    )
    loader.job["modules"].append({"module": "audio", "dp": 1})
    loader.job["model"]["token_ids"].update(image=IDS["image"], audio=AUDIO)
    return megatron_bridge.Mimo(loader, model=model)


def run(rank, folder):
    torch.set_num_threads(1)
    on_cpu.install()
    dist.init_process_group(
        "gloo", init_method="file://" + folder + "/meeting", rank=rank, world_size=2 + PEERS
    )
    parallel_state.initialize_model_parallel()
    source = models.hugging_face(IDS, 320, layers=1)
    whole = hearing_model(source)
    to_mimo, wanted = adapter(whole, True), 0.0
    for texts in micro_batches():
        for given in texts:
            loss = single.loss_sum(whole, to_mimo(given)) / given.step_totals.label_tokens
            loss.backward()
            wanted += float(loss.detach())
    gradients = {name: weight.grad for name, weight in whole.named_parameters()}

    mine, peer = MODULES[min(rank, 2)], rank - 2
    grids = {name: pipeline.grid_of(i, 1, PEERS if i == 2 else 1, "gloo")
             for i, name in enumerate(MODULES)}  # fmt: skip
    ends = [dist.new_group([2 + of]) for of in range(PEERS)]
    groups = {mine: pipeline.groups_of(grids[mine], ends[peer] if mine == "language" else None)}
    model = hearing_model(source, grids=grids, groups=groups)
    communicator = MultiModulePipelineCommunicator(
        grids, {"audios": ["language"], "images": ["language"], "language": []}, model.config,
        {"s": 0, "b": 1, "h": 2}, {"audios": 2, "images": 2},
    )  # fmt: skip
    given = [text_alone(texts[peer]) if mine == "language" else joined(texts, mine)
             for texts in micro_batches()]  # fmt: skip
    to_mimo = adapter(model, False)
    parts = forward_backward_pipelining_without_interleaving(
        forward_step_func=lambda batches, m: pipeline.forward_step(to_mimo, batches, m),
        data_iterator=iter(given), model=[model], num_microbatches=len(given), seq_length=1,
        micro_batch_size=1, forward_only=False, p2p_communicator=communicator,
        pg_collection=MultiModuleProcessGroupCollection(
            module_pgs=groups, language_model_module_name="language" if mine == "language" else None
        ),
    )  # fmt: skip
    ranks = grids[mine].get_pg("dp")
    if mine == "language":
        found = torch.tensor(sum(float(one["loss"]) for one in parts), dtype=torch.float64)
        dist.all_reduce(found, group=ranks)
        assert abs(found - wanted) <= 1e-6 * abs(wanted), (found, wanted)
    compared = 0
    for name, weight in model.named_parameters():
        dist.all_reduce(weight.grad, group=ranks)
        away = float((weight.grad - gradients[name]).norm() / gradients[name].norm())
        assert away <= 1e-5, (name, away)
        compared += 1
    assert compared == {"audios": 2}.get(mine, compared) and compared > 0
    dist.barrier()
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()


class HearingTest(unittest.TestCase):
    def test_each_encoder_has_a_rank_of_its_own(self):
        # Forked: nobody imports torch again.
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.start_processes(
                run, (folder,), nprocs=2 + PEERS, start_method="fork"
            )


if __name__ == "__main__":
    unittest.main()
