#!/usr/bin/env python3
"""Megatron-Bridge's `pretrain` with `vlm_step`, fed in turns by Energon, Bridge's reordering
buffer, Ballast and data in memory: who feeds the loop how fast.

    several_feeders.py --ballast-server ballast-server --world 2 --buffer FOLDER --out feeders.json

One job, one model. The ways of feeding take turns of `--turn` iterations, of which the first
`--drop` are left out; each is opened at the beginning of its turn and closed at its end, and
begins its next turn where it was. Ballast's ways read the same samples in the same iterations.
`memory` repeats batches of the first turn of `direct`, which stay on the GPU. Of each iteration:
its time, until the GPUs are done with it; how long the trainer waited for the batch; patches of
the rank. Of each turn: processor time of the rank and its workers, and of the server; by how much
the GPU's memory outside PyTorch's allocator grew. Ranks' JSON is merged: times and waits of the
slowest rank, the rest in all. Without GPUs: `--device cpu`, over Gloo.
"""

import argparse
import contextlib
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from unittest import mock

_ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
_EXAMPLES = os.path.join(_ROOT, "trainer_shim", "python", "examples")
sys.path[:0] = [_ROOT, os.path.dirname(os.path.abspath(__file__)), _EXAMPLES,
                os.path.join(_EXAMPLES, "megatron")]  # fmt: skip

BALLAST = ("off", "direct", "exchange", "hybrid")
WAYS = ("energon", "buffer", "off", "direct", "exchange", "hybrid", "memory")
MICRO = 8  # samples of a micro-batch for each rank; an iteration is one micro-batch
COSTS = 1.0, 0.6  # of a patch and of a token
KEPT = 24  # batches in memory


class Turns:
    """Bridge's data iterator: the ways in turns, `rounds` times."""

    def __init__(self, arguments, rank, device):
        import torch
        import torch.distributed as dist

        import ballast

        self.arguments, self.rank, self.device = arguments, rank, device
        self.addresses = dict(zip(BALLAST, arguments.address.split(",")))
        # The first turn warms up: kernels are loaded, and the allocator's memory is found.
        self.ways = ["off"] + arguments.ways.split(",") * arguments.rounds
        self.ids = ballast.Connection.of(self.addresses["off"]).job()["model"]["token_ids"]
        world = list(range(arguments.world))
        backend = "nccl" if arguments.device == "cuda" else "gloo"
        self.groups = (rank, arguments.world, dist.new_group(world, backend="gloo"),
                       dist.new_group(world, backend=backend))  # fmt: skip
        self.torch, self.dist, self.ballast = torch, dist, ballast
        self.turn, self.given, self.iterator, self.open = -1, 0, None, None
        self.kept, self.turns = [], []
        self.times, self.losses = [], []  # of the iterations; written by the callback

    def __iter__(self):
        return self

    def __next__(self):
        if self.given % self.arguments.turn == 0:
            self.shutdown()
            self.turn += 1
            self.begin()
        self.given += 1
        asked = time.perf_counter()
        batch = next(self.iterator)
        turn = self.turns[-1]
        turn["wait_ms"].append(1e3 * (time.perf_counter() - asked))
        if self.ways[self.turn] == "direct" and len(self.kept) < KEPT:
            self.kept.append({key: copied(value) for key, value in batch.items()})
        visual = batch["visual_inputs"]
        turn["patches"].append(0 if visual is None else len(visual.pixel_values))
        turn["tokens"].append(batch["input_ids"].shape[1])
        return batch

    def begin(self):
        way = self.ways[self.turn]
        self.dist.barrier(self.groups[2])
        self.turns.append({"way": way, "wait_ms": [], "patches": [], "tokens": []})
        self.before = self.taken(), processor_seconds(self.servers(way))
        began = time.perf_counter()
        self.open = contextlib.ExitStack()
        self.iterator = getattr(self, "of_" + (way if way not in BALLAST else "ballast"))(way)
        self.turns[-1]["open_s"] = time.perf_counter() - began

    def shutdown(self):
        """Ends the turn. Bridge calls it, too, at the end."""
        if self.open is None:
            return
        turn, (memory, seconds) = self.turns[-1], self.before
        turn["memory_mib"] = (self.taken() - memory) / 2**20
        used = processor_seconds(self.servers(turn["way"]))
        turn["server_s"] = used[1] - seconds[1]
        self.iterator = None
        self.open.close()
        self.open = None
        gc.collect()
        # Workers that have ended are among the children.
        turn["rank_s"] = processor_seconds(())[0] - seconds[0]
        self.write()
        self.dist.barrier(self.groups[2])

    def write(self):
        """Writes the turns that are done: a run that is cut off has them."""
        size = self.arguments.turn
        for i, turn in enumerate(self.turns):
            turn["ms"] = self.times[i * size : (i + 1) * size]
            turn["loss"] = self.losses[i * size : (i + 1) * size]
        path = "%s.%d" % (self.arguments.out, self.rank)
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump({
                "turns": self.turns, "torch": self.torch.__version__,
                "device": "cpu" if self.device.type == "cpu" else self.torch.cuda.get_device_name(),
            }, file)  # fmt: skip
        os.replace(path + ".new", path)

    def servers(self, way):
        return [self.arguments.servers[BALLAST.index(way)]] if way in BALLAST else []

    def taken(self):
        """Bytes of the GPU in use outside PyTorch's allocator."""
        if self.device.type != "cuda":
            return 0
        self.torch.cuda.synchronize()
        free, total = self.torch.cuda.mem_get_info()
        return total - free - self.torch.cuda.memory_reserved()

    def steps_before(self, way):
        return self.ways[: self.turn].count(way) * self.arguments.turn

    def of_ballast(self, way):
        from ballast.adapters import bridge_vlm

        loader = self.open.enter_context(self.ballast.Loader(
            self.addresses[way], dp_rank=self.rank, array="torch", needs_input_ids=True,
            device="cpu" if self.device.type == "cpu" else str(self.device),
            pixel_type="bfloat16" if self.device.type == "cuda" else "float32",
            start_step=self.steps_before(way), steps=self.arguments.turn,
        ))  # fmt: skip
        return map(bridge_vlm.Vlm(loader, "qwen2_5_vl"), loader)

    def energon(self):
        import energon_feed

        samples = energon_feed.Samples(
            self.ids, self.arguments.max_pixels, self.arguments.row_length,
            self.torch.bfloat16 if self.device.type == "cuda" else self.torch.float32,
        )  # fmt: skip
        loader = energon_feed.loader(
            self.arguments.folder, samples, rank=self.rank, world=self.arguments.world, batch=MICRO,
            workers=self.arguments.workers,
        )  # fmt: skip
        if self.device.type == "cpu":
            loader.pin_memory = False
        # So long torch waits, at the end of the turn, for each worker that has work ahead.
        self.torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 0.2
        return energon_feed, iter(loader)

    def of_energon(self, _):
        feed, batches = self.energon()
        return (feed.for_vlm_step(batch, self.device) for batch in batches)

    def of_buffer(self, _):
        feed, batches = self.energon()
        module = feed.reordering(self.arguments.buffer)
        if self.device.type == "cpu":  # for as long as the buffer asks
            self.open.enter_context(mock.patch("torch.cuda.is_available", lambda: False))
        buffer = feed.reordered(module, batches, self.groups, COSTS, self.ids)
        self.open.callback(buffer.shutdown)
        return (feed.for_vlm_step(batch, self.device) for batch in buffer)

    def of_memory(self, _):
        while True:
            yield from ({key: copied(value, False) for key, value in batch.items()}
                        for batch in self.kept)  # fmt: skip


def copied(value, deep=True):
    """A tensor, or an object of tensors such as `visual_inputs`, which the step changes."""
    if hasattr(value, "clone"):
        return value.clone() if deep else value
    if value is None:
        return None
    parts = {key: copied(part, deep) for key, part in vars(value).items()}
    return type(value)(**parts)


def processor_seconds(servers):
    """(this process with its children, those processes), in seconds."""
    ticks = os.sysconf("SC_CLK_TCK")

    def of(process, fields):
        with open("/proc/%s/stat" % process, encoding="ascii") as file:
            values = file.read().rpartition(")")[2].split()
        return sum(int(values[i]) for i in fields) / ticks

    # User and system time; then that of children which have ended.
    return of("self", (11, 12, 13, 14)), sum(of(server, (11, 12)) for server in servers)


def train(arguments):
    """One process of the job, which torchrun started; writes `--out` with its rank."""
    import torch

    import several_bridge
    from tests.trainer_shim.python.bridge import without_gpu  # noqa: F401

    from megatron.bridge.training.callbacks import Callback
    from megatron.bridge.training.pretrain import pretrain
    from megatron.bridge.training.vlm_step import forward_step

    addresses = arguments.address
    arguments.address = addresses.partition(",")[0]
    cfg = several_bridge.configuration(arguments, MICRO, 1)
    arguments.address = addresses
    rank, cuda = int(os.environ["LOCAL_RANK"]), arguments.device == "cuda"
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    made = []

    def build(_):
        made.append(Turns(arguments, rank, device))
        return made[0], None, None

    class Seen(Callback):
        def on_train_step_start(self, context):
            if cuda:
                torch.cuda.synchronize()
            made[0].times.append(time.perf_counter())

        def on_train_step_end(self, context):
            times = made[0].times
            made[0].losses.append(float(context.loss_dict["lm loss"]))
            if cuda:
                torch.cuda.synchronize()
            times[-1] = 1e3 * (time.perf_counter() - times[-1])
            if rank == 0 and len(times) % arguments.turn == 0:
                last = sorted(times[-arguments.turn :])
                print(made[0].turns[-1]["way"], "p50 %.1f ms" % last[len(last) // 2], flush=True)

    cfg.dataset.build_datasets = build
    pretrain(cfg, forward_step, callbacks=[Seen()])
    made[0].shutdown()


def merged(arguments, ranks):
    """{way: figures of its iterations} from the ranks' files."""
    import plot_training

    ways = {}
    for turns in zip(*(rank["turns"][1:] for rank in ranks)):
        if any(len(turn["ms"]) < arguments.turn for turn in turns):
            continue
        way = ways.setdefault(turns[0]["way"], {
            "ms": [], "wait_ms": [], "patches": [], "imbalance": [], "open_s": [], "rank_s": 0,
            "server_s": 0, "memory_mib": [], "loss": [], "iterations": 0,
        })  # fmt: skip
        kept = slice(arguments.drop, None)
        for key in ("ms", "wait_ms"):
            way[key] += [max(values) for values in zip(*(turn[key][kept] for turn in turns))]
        loads = list(zip(*(turn["patches"][kept] for turn in turns)))
        way["patches"] += [sum(load) for load in loads]
        way["imbalance"] += [max(load) * len(load) / max(sum(load), 1) for load in loads]
        way["loss"] += turns[0]["loss"]
        way["open_s"].append(max(turn["open_s"] for turn in turns))
        way["memory_mib"].append(max(turn["memory_mib"] for turn in turns))
        way["rank_s"] += sum(turn["rank_s"] for turn in turns)
        way["server_s"] += turns[0]["server_s"]
        way["iterations"] += len(turns[0]["ms"])
    for way in ways.values():
        for key in ("ms", "wait_ms"):
            for p in (10, 50, 90, 99):
                way["%s_p%d" % (key, p)] = plot_training.quantile(sorted(way[key]), p / 100)
            way[key + "_mean"] = plot_training.mean(way[key])
        way["imbalance"] = plot_training.mean(way["imbalance"])
        samples = way["iterations"] * MICRO * arguments.world
        way["processor_ms_a_sample"] = 1e3 * (way["rank_s"] + way["server_s"]) / samples
    return ways


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--ballast-server", required=True)
    parser.add_argument("--out", required=True, help="JSON file")
    parser.add_argument("--world", type=int, default=2, help="number of processes, one per GPU")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--buffer", help="folder with the files that energon_feed.py names")
    parser.add_argument("--turn", type=int, default=55, help="iterations of a turn")
    parser.add_argument("--drop", type=int, default=5, help="the first of a turn, left out")
    parser.add_argument("--rounds", type=int, default=4, help="turns of each way")
    parser.add_argument("--workers", type=int, default=14, help="of each rank, for Energon")
    parser.add_argument("--threads", type=int, default=0, help="serve.threads; 0: all processors")
    parser.add_argument("--samples", type=int, default=1024, help="samples in the dataset")
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--max-pixels", type=int, default=401408)
    parser.add_argument("--row-length", type=int, default=4096)
    parser.add_argument("--seconds", type=float, default=330, help="for all")
    parser.add_argument("--transformer-engine", action="store_true")
    parser.add_argument("--steps", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--servers", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    begun = time.perf_counter()
    if arguments.address:
        arguments.servers = arguments.servers.split(",")
        train(arguments)
        return 0
    import data
    import job as jobs

    arguments.ballast_server = os.path.abspath(arguments.ballast_server)
    arguments.out = os.path.abspath(arguments.out)
    turns = 1 + arguments.rounds * len(arguments.ways.split(","))
    arguments.steps = arguments.turn * turns
    micro = MICRO * arguments.world
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ballast"))
        job = jobs.Job(folder, arguments.ballast_server, arguments.samples)
        addresses, servers = [], []
        for way in BALLAST:
            text = data.CONFIG.format(
                delivery=way, samples=micro, micro=micro, dp=arguments.world,
                vision_dp=arguments.world, pp=1, cp=1, max_pixels=arguments.max_pixels,
                max_tokens=65536, colocated="true", packing="shard", align="auto",
                equal_count="false", serve="memory: 1GiB, prefetch_steps: 4" + (
                    ", threads: %d" % arguments.threads if arguments.threads else ""),
                balance=", cost: {vision: {linear: %g}, language: {linear: %g}}" % COSTS,
            )  # fmt: skip
            before = children()
            addresses.append(stack.enter_context(job.serve(job.configure(way, text))))
            (server,) = children() - before
            servers.append(str(server))
        if {"energon", "buffer"} & set(arguments.ways.split(",")):
            began = time.perf_counter()
            energon = os.path.join(folder, "energon")
            os.mkdir(energon)
            for name in os.listdir(folder):
                if name.endswith(".tar"):
                    shutil.copy(os.path.join(folder, name), energon)
            subprocess.run(
                [sys.executable, "-m", "megatron.energon.cli.main", "prepare", energon,
                 "--non-interactive", "--split-ratio", "1,0,0", "--sample-type", "CrudeWebdataset"],
                check=True, stdout=subprocess.DEVNULL,
            )  # fmt: skip
            print("energon prepare: %.1f s" % (time.perf_counter() - began), flush=True)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone",
                   "--nproc-per-node", str(arguments.world), os.path.abspath(__file__),
                   "--address", ",".join(addresses), "--servers", ",".join(servers),
                   "--folder", os.path.join(folder, "energon")]  # fmt: skip
        for name in ("ballast_server", "out", "world", "device", "ways", "turn", "drop", "rounds",
                     "workers", "hidden", "layers", "max_pixels", "row_length", "steps"):  # fmt: skip
            command += ["--" + name.replace("_", "-"), str(getattr(arguments, name))]
        if arguments.buffer:
            command += ["--buffer", os.path.abspath(arguments.buffer)]
        if arguments.transformer_engine:
            command.append("--transformer-engine")
        # Energon's workers are forked: gRPC need not follow them.
        environment = dict(os.environ, GRPC_ENABLE_FORK_SUPPORT="0")
        job = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True)
        try:
            status = job.wait(arguments.seconds - (time.perf_counter() - begun))
        except subprocess.TimeoutExpired:
            print("cut off after %d s" % arguments.seconds, flush=True)
            status = 1
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    ranks = []
    for rank in range(arguments.world):
        path = "%s.%d" % (arguments.out, rank)
        with open(path, encoding="utf-8") as file:
            ranks.append(json.load(file))
        os.remove(path)
    ways = merged(arguments, ranks)
    with open(arguments.out, "w", encoding="utf-8") as file:
        json.dump({
            "world": arguments.world, "samples_a_rank": MICRO, "cores": os.cpu_count(),
            "layers": arguments.layers, "hidden": arguments.hidden, "turn": arguments.turn,
            "max_pixels": arguments.max_pixels, "workers": arguments.workers,
            "drop": arguments.drop, "rounds": arguments.rounds, "torch": ranks[0]["torch"],
            "device": ranks[0]["device"], "ways": ways,
        }, file)  # fmt: skip
    for name, way in ways.items():
        print("%-9s ms p10 %.1f p50 %.1f p90 %.1f p99 %.1f  wait p50 %.2f p99 %.1f  max/mean %.3f  "
              "processor %.1f ms a sample  open %.1f s  memory %.0f MiB"
              % (name, way["ms_p10"], way["ms_p50"], way["ms_p90"], way["ms_p99"],
                 way["wait_ms_p50"], way["wait_ms_p99"], way["imbalance"],
                 way["processor_ms_a_sample"], max(way["open_s"]), max(way["memory_mib"])))  # fmt: skip
    return status


def children():
    """Processes that this one has started and that have not ended."""
    with open("/proc/self/task/%d/children" % os.getpid(), encoding="ascii") as file:
        return {int(process) for process in file.read().split()}


if __name__ == "__main__":
    sys.exit(main())
