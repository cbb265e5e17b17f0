#!/usr/bin/env python3
"""Compares Megatron-Core's 1F1B schedule, fed by Ballast, with a run without a pipeline.

    PYTHONPATH=trainer_shim/python python3 pipeline.py --ballast-server ballast-server

One process for the vision tower and one for each stage of the language model, over Gloo,
or over NCCL on as many GPUs (`--device cuda`), with MultiModulePipelineCommunicator
between them. Each loads its own part of the batches,
holds as many as the schedule has in flight, and compares the gradients of its weights
with the whole model's. With `--vision-ranks V --ranks L` the modules have so many
data-parallel ranks, and `balance.placement: split` gives each its own owners: embeddings move
by the batches' plans (`megatron_split`), and gradients are summed over a module's ranks.
Prints one JSON object per process and exits with 1 if they
differ by more than `--noise`. Needs torch, transformers and megatron-core.
"""

import argparse
import json
import math
import sys
import tempfile
from functools import partial

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.hyper_comm_grid import HyperCommGrid
from megatron.core.pipeline_parallel.multimodule_communicator import (
    MultiModulePipelineCommunicator,
)
from megatron.core.pipeline_parallel.schedules import (
    forward_backward_pipelining_without_interleaving,
)
from megatron.core.process_groups_config import (
    MultiModuleProcessGroupCollection,
    ProcessGroupCollection,
)

import ballast
import data
import model as models
import on_cpu
import single
from ballast.adapters import megatron_bridge, megatron_split
from loss import difference, farthest

SAMPLES, MICRO = 16, 2  # eight micro-batches a step
LANGUAGE = "language"


def grid_of(first, stages, ranks, backend):
    """The groups of a module whose pipelines, one a data-parallel rank, begin at rank
    `first`."""
    grid = HyperCommGrid(
        shape=[1, 1, stages, ranks], dim_names=["tp", "cp", "pp", "dp"], rank_offset=first,
        backend=backend,
    )  # fmt: skip
    for dims in ("tp", "cp", "pp", "dp", ["dp", "cp"], ["tp", "pp"], ["tp", "cp", "dp", "pp"]):
        grid.create_pg(dims)
    return grid


def groups_of(grid, ends):
    groups = ProcessGroupCollection()
    for name in ("tp", "cp", "pp", "dp"):
        setattr(groups, name, grid.get_pg(name))
    groups.ep = groups.tp
    groups.dp_cp = grid.get_pg(["dp", "cp"])
    groups.mp = groups.tp_ep_pp = grid.get_pg(["tp", "pp"])
    groups.expt_dp = groups.dp
    groups.intra_dist_opt = grid.get_pg(["tp", "cp", "dp", "pp"])
    groups.pos_embd = groups.embd = ends
    return groups


class Pipeline:
    """This process's part of a MimoModel in a pipeline."""

    def __init__(self, place, source, image_token, loader):
        backend, first, stages = dist.get_backend(), place.vision_ranks, place.stages
        grids = {
            models.MODALITY: grid_of(0, 1, first, backend),
            LANGUAGE: grid_of(first, stages, place.ranks, backend),
        }
        ends = None
        for begin in range(first, first + place.ranks * stages, stages):
            made = dist.new_group(sorted({begin, begin + stages - 1}))
            ends = made if begin <= place.rank < begin + stages else ends
        mine = models.MODALITY if place.has_tower else LANGUAGE
        groups = {mine: groups_of(grids[mine], ends)}
        self.model = models.mimo_model(source, image_token, grids=grids, groups=groups)
        self.groups = MultiModuleProcessGroupCollection(
            module_pgs=groups, language_model_module_name=None if place.has_tower else LANGUAGE
        )
        self.dp = grids[mine].get_pg("dp")
        arguments = (grids, {models.MODALITY: [LANGUAGE], LANGUAGE: []}, self.model.config,
                     {"s": 0, "b": 1, "h": 2}, {models.MODALITY: 2})  # fmt: skip
        self.batches = loader
        if place.split:
            self.batches = megatron_split.Batches(loader)
            self.communicator = megatron_split.pipeline_communicator(self.batches, *arguments)
            self.to_mimo = megatron_bridge.Mimo(loader, model=self.model, batches=self.batches)
        else:
            self.communicator = MultiModulePipelineCommunicator(*arguments)
            self.to_mimo = megatron_bridge.Mimo(loader, model=self.model)

    def step(self, count):
        """Computes the gradients of a step's mean loss; returns the last stage's parts
        of that loss."""
        return forward_backward_pipelining_without_interleaving(
            forward_step_func=partial(forward_step, self.to_mimo),
            data_iterator=self.batches, model=[self.model],
            num_microbatches=count, seq_length=1, micro_batch_size=1, forward_only=False,
            p2p_communicator=self.communicator, pg_collection=self.groups,
        )  # fmt: skip


class Place:
    """A process's place in the job."""

    def __init__(self, rank, arguments):
        self.rank, self.stages = rank, arguments.stages
        self.vision_ranks, self.ranks = arguments.vision_ranks, arguments.ranks
        self.split = arguments.split
        self.has_tower = rank < self.vision_ranks
        self.dp_rank, self.stage = divmod(rank - self.vision_ranks, self.stages)
        if self.has_tower:
            self.dp_rank, self.stage = rank, 0

    def loader(self):
        """The loader's arguments that say which part of the batches the process has."""
        if self.has_tower:
            return {"modules": "vision", "dp_rank": self.dp_rank}
        return {"modules": LANGUAGE, "dp_rank": self.dp_rank, "pp_rank": self.stage}


def forward_step(to_mimo, batches, model):
    batch = next(batches)
    output, loss_mask = model(**to_mimo(batch))
    return output, partial(loss_of, loss_mask, batch.step_totals.label_tokens)


def loss_of(loss_mask, label_tokens, losses):
    """The micro-batch's part of the step's mean loss, already divided."""
    loss = (losses.float().view(-1) * loss_mask.view(-1)).sum() / max(label_tokens, 1)
    return loss, torch.tensor(1, dtype=torch.int), {"loss": loss.detach()}


def options(arguments, rank):
    """A loader's arguments, for this process's device."""
    cuda = arguments.device == "cuda"
    return {"device": "cuda:%d" % rank if cuda else "cpu", "array": "torch",
            "steps": arguments.steps,
            "pixel_type": "bfloat16" if cuda else "float32"}  # fmt: skip


def whole_model(model, address, options):
    """(losses of the steps, gradients by name) without a pipeline."""
    losses = []
    loader = ballast.Loader(address, needs_labels=True, dp_rank=0, **options)
    with loader:
        for batch in loader:
            part = single.backward(model, batch)
            if batch.micro_batch == 0:
                losses.append(0.0)
            losses[-1] += part
    return losses, {name: weight.grad for name, weight in model.named_parameters()}


def whole_name(name, first):
    """A weight's name in the whole model; `first`: number of this stage's first layer."""
    parts = name.split(".")
    if "layers" in parts and parts[0] == "language_model":
        parts[parts.index("layers") + 1] = str(int(parts[parts.index("layers") + 1]) + first)
    return ".".join(parts)


def compare(rank, addresses, arguments):
    """Runs the steps with and without a pipeline; returns the differences of this
    process's part. `addresses`: servers of the job, and of one rank of both modules."""
    place, (address, whole) = Place(rank, arguments), addresses
    given, stages = options(arguments, rank), arguments.stages
    with ballast.Loader(address, **given, **place.loader()) as loader:
        token_ids = loader.job["model"]["token_ids"]
        source = models.hugging_face(token_ids, data.VOCABULARY)
        # Attention over packed sequences on a GPU takes no float32.
        source = source.to(given["device"], getattr(torch, given["pixel_type"]))
        wanted, gradients = whole_model(models.mimo_model(source, token_ids["image"]), whole, given)
        pipeline = Pipeline(place, source, token_ids["image"], loader)
        losses = []
        for _ in range(arguments.steps):
            parts = pipeline.step(loader.num_micro_batches())
            loss = torch.tensor(float(sum(part["loss"] for part in parts)), dtype=torch.float64,
                                device=given["device"])  # fmt: skip
            dist.all_reduce(loss, group=pipeline.dp)
            losses.append(loss.item())
    first = place.stage * pipeline.model.config.num_layers // stages
    found, expected, norm = {}, {}, 0.0
    for name, weight in pipeline.model.named_parameters():
        dist.all_reduce(weight.grad, group=pipeline.dp)
        found[name], expected[name] = weight.grad, gradients[whole_name(name, first)]
        norm += float(weight.grad.double().square().sum())
    relative, name = farthest(found, expected)
    worst = {"weight": name, "relative": relative}
    result = {"rank": rank, "gradient_norm": norm**0.5, "worst": worst}
    if not place.has_tower and place.stage == stages - 1:
        result["losses"], result["wanted"] = losses, wanted
        largest = max(map(difference, losses, wanted))
        result["worst"] = max(worst, {"loss": True, "relative": largest},
                              key=lambda found: found["relative"])  # fmt: skip
    return result


def run(rank, addresses, folder, arguments):
    """Runs one process; exits with 1 if it found a difference."""
    torch.set_num_threads(1)
    on_cpu.install()
    cuda = arguments.device == "cuda"
    if cuda:
        torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl" if cuda else "gloo", init_method="file://" + folder + "/meeting", rank=rank,
        world_size=world_of(arguments),
        device_id=torch.device("cuda", rank) if cuda else None,
    )  # fmt: skip
    parallel_state.initialize_model_parallel()
    result = compare(rank, addresses, arguments)
    print(json.dumps(result), flush=True)
    dist.barrier()
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()
    if not result["worst"]["relative"] <= arguments.noise:
        sys.exit(1)


def world_of(arguments):
    return arguments.vision_ranks + arguments.ranks * arguments.stages


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ballast-server", required=True)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--noise", type=float, default=1e-4)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--stages", type=int, default=2, help="of the language model")
    parser.add_argument("--vision-ranks", type=int, default=1, help="data-parallel, of vision")
    parser.add_argument("--ranks", type=int, default=1, help="data-parallel, of language")
    arguments = parser.parse_args()
    arguments.split = arguments.vision_ranks + arguments.ranks > 2
    micro = MICRO
    if arguments.split:
        micro = 2 * math.lcm(arguments.vision_ranks, arguments.ranks)
    sizes = {"samples": SAMPLES // MICRO * micro, "micro": micro}
    cost = ", cost: {vision: {linear: 1}, language: {linear: 3, quadratic: 0.01}}"
    with (
        tempfile.TemporaryDirectory() as folder,
        data.served(
            arguments.ballast_server,
            **sizes,
            dp=arguments.ranks,
            vision_dp=arguments.vision_ranks,
            pp=arguments.stages,
            colocated=False,
            name="pipeline",
            balance=cost + ", placement: split" if arguments.split else "",
        ) as address,
        data.served(arguments.ballast_server, **sizes, name="whole") as whole,
    ):
        return on_cpu.run_everywhere(run, world_of(arguments), (address, whole), folder, arguments)


if __name__ == "__main__":
    sys.exit(main())
