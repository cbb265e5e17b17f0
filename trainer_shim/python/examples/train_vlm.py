#!/usr/bin/env python3
"""Trains a small vision-language model on drawn receipts, one process per GPU, and
measures how the loader affects the step time.

    PYTHONPATH=trainer_shim/python train_vlm.py \\
        --ballast-server ballast-server --tokenizer tokenizer.json --world 4 --out out.json

Modes, in one run, on the same samples in the same order:
  slice     PyTorch's DataLoader; each rank reads and decodes all and keeps its part
  shards    PyTorch's DataLoader; each rank reads its own part
  off       Ballast without reordering: the shards of `shards`
  sync      Ballast; samples are exchanged when a batch is requested
  exchange  Ballast; samples are exchanged during the step before
  direct    Ballast; the server delivers balanced batches
  direct_phases, exchange_phases
            the same, balanced with balance.objective `phases`, not `sum`
  split     as direct, with balance.placement `split`: embeddings are exchanged
  apart     the first half of the ranks runs the vision tower, the other half the language
            model, in 1F1B over `--micro-batches` of a step; placement `split` divides each
            module among its own ranks (topology.colocated: false)
  bound     batches that are on the GPU already, the same on every rank: no loading
            and no difference between ranks
The time of a step runs on the GPU from the end of the step before, waiting included;
the slowest rank counts. docs/measurements/gpus.md has figures; plot_training.py makes a
table and a plot.
"""

import argparse
import contextlib
import json
import os
import subprocess
import tempfile
import time

import torch
import torch.distributed as dist

import ballast
import hf_loader
import job as jobs
import vlm

CONFIG = """
    sources:
      - {{name: docs, format: webdataset, path: "docs-*.tar"}}
    model: {{profile: {profile}, tokenizer: "{tokenizer}", chat_template: chatml,
            min_pixels: {min_pixels}, max_pixels: {max_pixels}}}
    batch: {{global: {batch}, micro: {micro}, max_tokens: 16384}}
    topology:
      modules: {{vision: {{dp: {vision}}}, language: {{dp: {language}}}}}
      colocated: {colocated}
    balance:
      delivery: {delivery}
      objective: {objective}
      placement: {placement}
      cost:
        vision: {{linear: {patch_cost}, quadratic: {patch_pair_cost}}}
        language: {{linear: {token_cost}, quadratic: {token_pair_cost}}}
    serve: {{memory: {memory}, prefetch_steps: 4}}
"""
# Delivery, objective and placement of each mode; PyTorch's modes use theirs for the
# shards.
BALANCE = {
    "off": ("off", "sum", "paired"),
    "sync": ("exchange", "sum", "paired"),
    "exchange": ("exchange", "sum", "paired"),
    "exchange_phases": ("exchange", "phases", "paired"),
    "direct": ("direct", "sum", "paired"),
    "direct_phases": ("direct", "phases", "paired"),
    "split": ("direct", "sum", "split"),
    "apart": ("direct", "sum", "split", "apart"),
    "bound": ("exchange", "sum", "paired"),
}  # fmt: skip
MODES = ("shards", "slice", "off", "sync", "exchange", "direct", "bound")


def shape_of(arguments):
    return vlm.SMALL if arguments.small else vlm.SHAPES[arguments.shape]


def balance_of(mode):
    return BALANCE.get(mode, BALANCE["off"])


def plan(arguments, config):
    """The ordinals in each rank's natural shard, for each step."""
    text = subprocess.run(
        [arguments.ballast_server, "plan", "--config", config, "--step", "0",
         "--steps", str(arguments.steps), "--json"],
        check=True, stdout=subprocess.PIPE,
    ).stdout  # fmt: skip
    steps = []
    for line in text.decode().splitlines():
        shards = [[] for _ in range(arguments.world)]
        for sample in json.loads(line)["micro_batches"][0]["samples"]:
            ordinal = int(sample["sample"].partition(":")[2])
            shards[sample["reader"]["vision"]].append(ordinal)
        steps.append(shards)
    return steps


class Trainer:
    """One rank: a model, an optimizer, and a clock."""

    def __init__(self, rank, arguments):
        self.rank, self.arguments, self.divisor = rank, arguments, arguments.world
        self.cuda = arguments.device == "cuda"
        self.device = torch.device("cuda", rank) if self.cuda else torch.device("cpu")
        self.shape = shape_of(arguments)
        torch.manual_seed(1)
        model = vlm.Model(self.shape, arguments.image_token)
        model = model.to(self.device, torch.bfloat16 if self.cuda else torch.float32)
        self.parameters = sum(p.numel() for p in model.parameters())
        self.model = self.sharded(model) if arguments.fsdp else self.replicated(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=self.cuda)

    def replicated(self, model):
        return torch.nn.parallel.DistributedDataParallel(
            model, device_ids=[self.rank] if self.cuda else None,
            gradient_as_bucket_view=True, broadcast_buffers=False,
        )  # fmt: skip

    @staticmethod
    def sharded(model):
        """FSDP2: each layer gathers its weights, so ranks wait for each other in both
        modules."""
        from torch.distributed.fsdp import fully_shard

        for block in (*model.tower.blocks, *model.language.blocks):
            fully_shard(block)
        return fully_shard(model)

    def mark(self):
        """Records the time on the device; it can be read once the device has reached
        it."""
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def milliseconds(self, begin, end):
        return begin.elapsed_time(end) if self.cuda else (end - begin) * 1e3

    def take(self, batches):
        """The batches of a step."""
        return [next(batches)]

    def step(self, batches, label_tokens):
        prepared = vlm.prepare(batches[0], self.shape, self.device)
        loss = self.model(prepared) * (self.arguments.world / max(label_tokens, 1))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def run(self, batches, steps, label_tokens=None):
        """Trains on the batches; returns the measurements, the same on every rank."""
        patches, tokens, waits, losses = [], [], [], []
        marks = [self.mark()]
        for number in range(steps):
            asked = time.perf_counter()
            taken = self.take(batches)
            waits.append((time.perf_counter() - asked) * 1e3)
            patches.append(lengths(taken, "vision_cu_seqlens_host"))
            tokens.append(lengths(taken, "cu_seqlens_padded_host"))
            # Ballast knows the whole step's number without a collective. The other modes use a
            # constant.
            totals = getattr(taken[0], "step_totals", None)
            losses.append(self.step(taken, totals.label_tokens if totals else 1000))
            marks.append(self.mark())
            if self.cuda and number >= 2:  # like a trainer that reads its loss late
                marks[-3].synchronize()
        if self.cuda:
            torch.cuda.synchronize()
        times = [self.milliseconds(a, b) for a, b in zip(marks, marks[1:])]
        rows = [None] * self.arguments.world
        dist.all_gather_object(rows, (times, patches, waits, tokens, float(losses[-1])))
        loads = list(zip(*(row[1] for row in rows)))
        text = list(zip(*(row[3] for row in rows)))
        return {
            "steps": steps,
            "step_ms": [max(column) for column in zip(*(row[0] for row in rows))],
            "wait_ms": [max(column) for column in zip(*(row[2] for row in rows))],
            "patches": [sum(map(sum, load)) for load in loads],
            "imbalance": [imbalance(load) for load in loads],
            "language_imbalance": [imbalance(load) for load in text],
            # Of all supervised tokens of the step: DistributedDataParallel takes the mean of
            # the ranks' losses, ApartTrainer their sum.
            "last_loss": sum(row[4] for row in rows) / self.divisor,
        }


def lengths(batches, key):
    """The total of each batch; none on a rank without the module."""
    return [int(batch[key][-1]) for batch in batches if key in batch]


def imbalance(ranks):
    """The largest load over the mean, of the ranks that have the module; the mean over the
    step's micro-batches."""
    loads = list(zip(*(of for of in ranks if of)))
    return sum(max(load) * len(load) / sum(load) for load in loads) / len(loads)


class ApartTrainer(Trainer):
    """A rank of the tower or of the language model, in 1F1B."""

    def __init__(self, rank, arguments):
        half = arguments.world // 2
        modules = list(range(half)), list(range(half, arguments.world))
        self.has_tower = rank < half
        self.group = [dist.new_group(ranks) for ranks in modules][not self.has_tower]
        self.groups = ballast.ModuleGroups(*modules)
        self.dp_rank = rank % half if self.has_tower else rank - half
        super().__init__(rank, arguments)
        self.divisor = 1

    def replicated(self, model):
        # DistributedDataParallel sums gradients during the backward pass of the last forward
        # pass, and here another comes first: `step` sums them at its end.
        return model.tower if self.has_tower else model.language

    def take(self, batches):
        return [next(batches) for _ in range(self.arguments.micro_batches)]

    def step(self, batches, label_tokens):
        ahead, waiting, total = int(self.has_tower), [], 0
        for batch in batches:
            waiting.append(self.forward(batch) / max(label_tokens, 1))
            total = total + waiting[-1].detach()
            if len(waiting) > ahead:
                waiting.pop(0).backward()
        while waiting:
            waiting.pop(0).backward()
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        flat = torch.cat([gradient.view(-1) for gradient in gradients])
        dist.all_reduce(flat, group=self.group)
        sums = flat.split([gradient.numel() for gradient in gradients])
        torch._foreach_copy_(gradients, [s.view_as(g) for s, g in zip(sums, gradients)])
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total

    def forward(self, batch):
        prepared = vlm.prepare(batch, self.shape, self.device)
        if self.has_tower:
            return ballast.exchange_embeddings(self.model(prepared), batch, self.groups).sum()
        none = self.model.tokens.weight.new_empty((0, self.shape.dim))
        return self.model(prepared, ballast.EmbeddingExchange(none, batch, self.groups))


def with_data_loader(trainer, shards, mode):
    arguments = trainer.arguments
    steps = min(arguments.steps, arguments.slow_steps if mode == "slice" else arguments.steps)
    mine = [step[trainer.rank] for step in shards[:steps]]
    everything = [[o for part in step for o in part] for step in shards[:steps]]
    dataset = hf_loader.MicroBatches(
        arguments.folder, arguments.tokenizer, trainer.shape.profile,
        arguments.min_pixels, arguments.max_pixels,
        reads=everything if mode == "slice" else mine, keeps=mine,
    )  # fmt: skip
    batches = hf_loader.batches(dataset, arguments.workers, trainer.device)
    return trainer.run(batches, steps)


def with_ballast(trainer, address, mode):
    arguments = trainer.arguments
    own = {"dp_rank": trainer.rank}
    if mode == "apart":
        trainer = ApartTrainer(trainer.rank, arguments)
        own = {"dp_rank": trainer.dp_rank, "modules": "vision" if trainer.has_tower else "language",
               "max_batches_held": 2 * arguments.micro_batches}  # fmt: skip
    loader = ballast.Loader(
        address, device=str(trainer.device), array="torch",
        pixel_type="bfloat16" if trainer.cuda else "float32",
        steps=arguments.steps, overlap=mode != "sync", **own,
    )  # fmt: skip
    with loader:
        dist.barrier()
        if mode != "bound":
            return trainer.run(loader, arguments.steps)
        kept = [everywhere(trainer, batch) for batch in loader]
    dist.barrier()
    return trainer.run(iter(kept), arguments.steps)


def everywhere(trainer, batch):
    """Copies one rank's batch to every rank, a different rank's in each step."""
    source = batch.step % trainer.arguments.world
    copy = batch.clone()
    box = [batch.dummy_image]
    dist.broadcast_object_list(box, src=source, device=torch.device("cpu"), group=trainer.hosts)
    copy.dummy_image = box[0]
    for key in sorted(batch):
        value = batch[key]
        if not torch.is_tensor(value):
            continue
        box = [value.shape]
        dist.broadcast_object_list(box, src=source, device=torch.device("cpu"), group=trainer.hosts)
        there = value.is_cuda
        tensor = value.clone() if trainer.rank == source else value.new_empty(box[0])
        dist.broadcast(tensor, src=source, group=None if there else trainer.hosts)
        copy[key] = tensor
    return copy


def train(rank, arguments, addresses, shards):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(arguments.port))
    torch.set_num_threads(1)
    if arguments.device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl" if arguments.device == "cuda" else "gloo", rank=rank, world_size=arguments.world,
        device_id=torch.device("cuda", rank) if arguments.device == "cuda" else None,
    )  # fmt: skip
    trainer = Trainer(rank, arguments)
    trainer.hosts = dist.new_group(backend="gloo")
    result = {
        "device": torch.cuda.get_device_name() if trainer.cuda else "cpu",
        "torch": torch.__version__,
        "parameters": trainer.parameters,
        "shape": vars(trainer.shape), "fsdp": arguments.fsdp,
        "cores": os.cpu_count(),
        "world": arguments.world, "batch": arguments.batch, "workers": arguments.workers,
        "min_pixels": arguments.min_pixels, "max_pixels": arguments.max_pixels,
        "warmup": arguments.warmup, "modes": {},
    }  # fmt: skip
    for mode in arguments.modes.split(","):
        began = time.perf_counter()
        if mode in BALANCE:
            found = with_ballast(trainer, addresses[balance_of(mode)], mode)
        else:
            found = with_data_loader(trainer, shards, mode)
        dist.barrier()
        if trainer.cuda:
            torch.cuda.empty_cache()  # The modes need buffers of other sizes.
        found["seconds"] = time.perf_counter() - began
        result["modes"][mode] = found
        if rank == 0:
            times = sorted(found["step_ms"][arguments.warmup :])
            print("%-9s %4d steps  p50 %.1f ms  mean %.1f ms  max/mean load %.3f  wait %.1f ms  %.0f s"
                  % (mode, found["steps"], times[len(times) // 2], sum(times) / len(times),
                     sum(found["imbalance"]) / found["steps"],
                     sum(found["wait_ms"]) / found["steps"], found["seconds"]), flush=True)  # fmt: skip
            with open(arguments.out, "w", encoding="utf-8") as file:
                json.dump(result, file)
    dist.destroy_process_group()


def special_token(arguments):
    """The image token's id in the tokenizer."""
    with open(arguments.tokenizer, encoding="utf-8") as file:
        added = json.load(file)["added_tokens"]
    return next(token["id"] for token in added if token["content"] == "<|image_pad|>")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ballast-server", required=True, help="program")
    parser.add_argument(
        "--tokenizer", required=True, help="tokenizer.json with Qwen's special tokens"
    )
    parser.add_argument("--out", required=True, help="JSON file")
    parser.add_argument("--folder", help="folder of the dataset; default: a temporary one")
    parser.add_argument("--world", type=int, default=4, help="number of processes, one per GPU")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--steps", type=int, default=210)
    parser.add_argument("--warmup", type=int, default=10, help="steps left out of the figures")
    parser.add_argument("--slow-steps", type=int, default=60, help="steps of mode slice")
    parser.add_argument("--batch", type=int, default=32, help="samples per step, over all ranks")
    parser.add_argument("--micro-batches", type=int, default=4, help="of a step of mode apart")
    parser.add_argument("--samples", type=int, default=2048, help="samples in the dataset")
    parser.add_argument("--workers", type=int, default=14, help="workers of each rank's DataLoader")
    parser.add_argument("--min-pixels", type=int, default=3136)
    parser.add_argument("--max-pixels", type=int, default=12845056)
    # Proportional to the number of parameters that a patch and a token are multiplied by.
    parser.add_argument("--patch-cost", type=float, default=1.0)
    parser.add_argument("--token-cost", type=float, default=0.11)
    # Attention over whole images and texts: per patch and token 4·n·d and 2·n·d operations a
    # layer, in addition to the 24·d² of its weights.
    parser.add_argument("--patch-pair-cost", type=float, default=0.0)
    parser.add_argument("--token-pair-cost", type=float, default=0.0)
    parser.add_argument("--memory", default="2GiB", help="serve.memory of each server")
    parser.add_argument("--port", type=int, default=29511)
    parser.add_argument("--shape", default="default", choices=sorted(vlm.SHAPES))
    parser.add_argument("--fsdp", action="store_true", help="shard the weights (FSDP2)")
    parser.add_argument(
        "--small", action="store_true", help="train a tiny model, to try things out"
    )
    arguments = parser.parse_args()
    if arguments.fsdp and "apart" in arguments.modes.split(","):
        parser.error("--fsdp: mode apart has replicas")
    arguments.tokenizer = os.path.abspath(arguments.tokenizer)
    arguments.image_token = special_token(arguments)
    with contextlib.ExitStack() as stack:
        if arguments.folder is None:
            arguments.folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ballast"))
        job = jobs.Job(arguments.folder, arguments.ballast_server, arguments.samples)
        modes = arguments.modes.split(",")
        configs = {}
        for balance in sorted({balance_of(mode) for mode in modes}):
            delivery, objective, placement, *apart = balance
            half = arguments.world // 2
            text = CONFIG.format(
                delivery=delivery, objective=objective, placement=placement,
                profile=shape_of(arguments).profile,
                micro=arguments.batch // (arguments.micro_batches if apart else 1),
                vision=half if apart else arguments.world,
                language=arguments.world - half if apart else arguments.world,
                colocated=str(not apart).lower(), **vars(arguments),
            )  # fmt: skip
            configs[balance] = job.configure("-".join(balance), text)
        together = [config for balance, config in configs.items() if "apart" not in balance]
        shards = plan(arguments, together[0]) if together else []
        addresses = {
            balance: stack.enter_context(job.serve(config)) for balance, config in configs.items()
        }
        torch.multiprocessing.spawn(train, (arguments, addresses, shards), arguments.world)


if __name__ == "__main__":
    main()
