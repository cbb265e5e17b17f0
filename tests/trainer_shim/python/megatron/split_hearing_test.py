"""Split placement of vision, with images and videos, of audio and of language in Megatron-Core's
1F1B schedule: processes over Gloo, each with one module, three numbers of data-parallel ranks.
Loss and gradients are those of the model in one process on the same samples, and batches that are
exchanged over Gloo those that servers deliver, to the byte."""

import json
import os
import unittest
import wave

import numpy
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.pipeline_parallel.schedules import (
    forward_backward_pipelining_without_interleaving,
)
from megatron.core.process_groups_config import MultiModuleProcessGroupCollection
from PIL import Image

import ballast
import model as models
import on_cpu
import pipeline
import single
from ballast.adapters import megatron_bridge, megatron_split
from tests.harness import tools
from tests.trainer_shim.python.megatron.mimo_test import AUDIO, IDS, hearing_model

VOCABULARY = 320
TOKENS = {**IDS, "audio": AUDIO, "end_of_text": 261, "pad": 261, "im_start": 262, "im_end": 263}
#: The trainer's modules, the job's, and the ranks of each.
MODULES = {
    "audios": ("audio", [0]),
    "images": ("vision", [1, 2]),
    "language": ("language", [3, 4, 5]),
}
CONFIG = """
sources: [{name: shown, format: jsonl, path: shown.jsonl, media_root: .}]
model: {profile: qwen2_5_omni, tokenizer: bytes, chat_template: chatml, max_pixels: 12544,
        token_ids: {%s}, video: {min_pixels: 3136, max_pixels: 12544}}
batch: {global: 24, micro: 6}
topology: {colocated: %s, modules: {vision: {dp: %d}, audio: {dp: %d}, language: {dp: %d}}}
balance:
  placement: %s
  delivery: %s
  cost: {vision: {linear: 1}, audio: {linear: 1}, language: {linear: 3}}
packing: {align: 1}
serve: {listen: ["127.0.0.1:0"], threads: 1}
"""


class Ears(torch.nn.Module):
    """As many rows of a clip as its text has placeholders."""

    def __init__(self):
        super().__init__()
        self.out = torch.nn.Linear(128, 64)
        with torch.no_grad():
            self.out.weight.copy_(torch.linspace(-0.3, 0.3, 8192).sin().reshape(64, 128))
            self.out.bias.fill_(0.1)

    def forward(self, input_features, seq_lengths):
        rows = []
        for clip, frames in zip(input_features, seq_lengths.tolist()):
            tokens = ((frames - 1) // 2 + 1 - 2) // 2 + 1
            rows += [part.mean(0) for part in self.out(clip[:, :frames].T).tensor_split(tokens)]
        return torch.stack(rows)


class Seen:
    """A loader that notes the digests of its batches."""

    def __init__(self, loader):
        self.loader, self.digests = loader, []

    def __next__(self):
        batch = next(self.loader)
        self.digests.append(batch.digest())
        return batch

    def __getattr__(self, name):
        return getattr(self.loader, name)


def whole_model(source, address, path):
    """Writes (loss of the step, gradients by name) of one process with all modules."""
    model = hearing_model(source, ears=Ears)
    total = 0.0
    kinds = set()
    modules = [module for module, _ in sorted(MODULES.values(), key=lambda each: each[1][0])]
    with ballast.Loader(
        address, modules, dp_rank=0, device="cpu", array="torch", steps=1
    ) as loader:
        to_mimo = megatron_bridge.Mimo(loader, model=model, dummy_image="drop")
        for batch in loader:
            kinds |= {(images > 0, videos > 0) for images, videos in
                      zip(batch.images_per_sample, batch.videos_per_sample)}  # fmt: skip
            loss = single.loss_sum(model, to_mimo(batch)) / batch.step_totals.label_tokens
            loss.backward()
            total += float(loss.detach())
    assert kinds == {(False, False), (True, False), (False, True), (True, True)}, kinds
    torch.save((total, {name: each.grad for name, each in model.named_parameters()}), path)


def run(rank, addresses, folder, delivery):
    torch.set_num_threads(1)
    on_cpu.install()
    dist.init_process_group(
        "gloo", init_method="file://" + folder + "/meeting", rank=rank,
        world_size=sum(len(ranks) for _, ranks in MODULES.values()),
    )  # fmt: skip
    parallel_state.initialize_model_parallel()
    source = models.hugging_face(TOKENS, VOCABULARY, layers=1)
    if rank == 0:
        whole_model(source, addresses[0], folder + "/whole.pt")
    dist.barrier()
    wanted, gradients = torch.load(folder + "/whole.pt")

    (mine, (module, ranks)) = next(each for each in MODULES.items() if rank in each[1][1])
    grids = {name: pipeline.grid_of(of[0], 1, len(of), "gloo") for name, (_, of) in MODULES.items()}
    ends = {each: dist.new_group([each]) for each in MODULES["language"][1]}
    groups = {mine: pipeline.groups_of(grids[mine], ends.get(rank))}
    model = hearing_model(source, ears=Ears, grids=grids, groups=groups)
    with ballast.Loader(
        addresses[1], module, dp_rank=ranks.index(rank), device="cpu", array="torch", steps=1,
        exchange=delivery == "exchange",
    ) as loader:  # fmt: skip
        seen = Seen(loader)
        batches = megatron_split.Batches(seen)
        communicator = megatron_split.pipeline_communicator(
            batches, grids, {"audios": ["language"], "images": ["language"], "language": []},
            model.config, {"s": 0, "b": 1, "h": 2}, {"audios": 2, "images": 2},
            modules={"audios": "audio", "images": "vision"},
        )  # fmt: skip
        to_mimo = megatron_bridge.Mimo(seen, model=model, batches=batches, dummy_image="drop")
        parts = forward_backward_pipelining_without_interleaving(
            forward_step_func=lambda given, m: pipeline.forward_step(to_mimo, given, m),
            data_iterator=batches, model=[model], num_microbatches=loader.num_micro_batches(),
            seq_length=1, micro_batch_size=1, forward_only=False, p2p_communicator=communicator,
            pg_collection=MultiModuleProcessGroupCollection(
                module_pgs=groups,
                language_model_module_name="language" if mine == "language" else None,
            ),
        )  # fmt: skip
    own = grids[mine].get_pg("dp")
    if mine == "language":
        found = torch.tensor(sum(float(one["loss"]) for one in parts), dtype=torch.float64)
        dist.all_reduce(found, group=own)
        assert abs(found - wanted) <= 1e-6 * abs(wanted), (found, wanted)
    for name, weight in model.named_parameters():
        grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
        dist.all_reduce(grad, group=own)
        away = float((grad - gradients[name]).norm() / gradients[name].norm())
        assert away <= 1e-5, (name, away)
    with open("%s/%d.json" % (folder, rank), "w") as file:
        json.dump(seen.digests, file)
    dist.barrier()
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()


class SplitHearingTest(tools.ToolTest):
    def test_each_encoder_has_ranks_of_its_own(self):
        self.write_data()
        digests = {}
        with self.served("one", "paired", "off") as (whole,):
            for delivery in ("direct", "exchange"):
                folder = self.path(delivery)
                os.mkdir(folder)
                with self.served(delivery + "-job", "split", delivery) as (address,):
                    # Forked: nobody imports torch again.
                    torch.multiprocessing.start_processes(
                        run, ((whole, address), folder, delivery), nprocs=6, start_method="fork"
                    )
                digests[delivery] = []
                for rank in range(6):
                    with open("%s/%d.json" % (folder, rank)) as file:
                        digests[delivery].append(json.load(file))
        self.assertTrue(all(len(each) == 4 for each in digests["direct"]))
        self.assertEqual(digests["exchange"], digests["direct"])

    def served(self, name, placement, delivery):
        apart = placement == "split"
        sizes = [len(MODULES[key][1]) if apart else 1 for key in ("images", "audios", "language")]
        config = self.write(name + ".yaml", CONFIG % (
            ", ".join("%s: %d" % each for each in TOKENS.items()), str(not apart).lower(), *sizes,
            placement, delivery))  # fmt: skip
        self.ok("ballast-server", "index", "--config", config)
        return self.server(config, "unix:%s/%s.sock" % (self.folder, name))

    def write_data(self):
        """Samples of images and videos, which are lists of pictures, in either order, and
        clips, of unequal sizes."""
        random = numpy.random.default_rng(3)

        def picture(name, height, width):
            pixels = random.integers(0, 255, (height, width, 3), dtype=numpy.uint8)
            Image.fromarray(pixels).save(self.path(name))
            return name

        lines = []
        for i in range(24):
            parts = []
            if i % 3 == 1:
                parts.append(
                    {"type": "image", "image": picture("%d.png" % i, 56, 56 + 28 * (i % 2))}
                )
            if i % 4 > 1:
                frames = [picture("%d.%d.png" % (i, k), 56, 56) for k in range(2 + 2 * (i % 2))]
                parts.insert(i % 2, {"type": "video", "video": frames})
            for k in range((0, 2, 0, 1, 0, 0)[i % 6]):
                name = "%d.%d.wav" % (i, k)
                with wave.open(self.path(name), "wb") as file:
                    file.setparams((1, 2, 16000, 0, "NONE", ""))
                    heard = random.integers(-9000, 9000, 4800 + 2720 * ((7 * i + k) % 11))
                    file.writeframes(heard.astype(numpy.int16).tobytes())
                parts.append({"type": "audio", "audio": name})
            parts.append({"type": "text", "text": "What, %d?" % i})
            lines.append(json.dumps({"messages": [
                {"role": "user", "content": parts},
                {"role": "assistant", "content": "That." * (1 + i % 3)},
            ]}))  # fmt: skip
        self.write("shown.jsonl", "\n".join(lines) + "\n")


if __name__ == "__main__":
    unittest.main()
