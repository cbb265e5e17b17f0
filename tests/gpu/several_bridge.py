#!/usr/bin/env python3
"""Megatron-Bridge's own `pretrain` with `vlm_step` on GPUs in bfloat16, over a
BallastDatasetProvider, once for each way of delivery.

    several_bridge.py --ballast-server ballast-server --world 4 --out bridge.json

Each way begins with the same weights and trains on the same samples, so the loss of each
iteration must equal the loss of `off`, except for rounding, and the first one Hugging Face's on
each sample alone in float32. The model is Bridge's Qwen2.5-VL as in
tests/trainer_shim/python/bridge/pretrain_test.py, or, with `--transformer-engine`, of Transformer
Engine's layers, as Bridge makes it. An iteration's
time ends when the GPUs are done with it. Prints a JSON object for each way and exits with 1
if a loss differs by more than `--noise` of it. Without GPUs: `--device cpu`, over Gloo.
"""

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time

_ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
_EXAMPLES = os.path.join(_ROOT, "trainer_shim", "python", "examples")
sys.path[:0] = [_ROOT, _EXAMPLES, os.path.join(_EXAMPLES, "megatron")]

WAYS = ("off", "direct", "exchange")
MICRO, MICRO_BATCHES = 8, 2  # samples of a micro-batch for each rank; micro-batches of a step


def source_of(arguments, job):
    """Hugging Face's model of the sizes asked for, with random weights."""
    import model as models
    from tests.trainer_shim.python.bridge import pretrain_test as bridge

    return models.hugging_face(
        job["model"]["token_ids"], bridge.VOCABULARY, hidden=arguments.hidden,
        layers=arguments.layers,
    )  # fmt: skip


def configuration(arguments, micro=MICRO, micro_batches=MICRO_BATCHES):
    """Bridge's configuration of this process's run, over a BallastDatasetProvider."""
    import torch
    from megatron.bridge.models.gpt_provider import transformer_engine_layer_spec

    import ballast
    from tests.trainer_shim.python.bridge import pretrain_test as bridge

    torch.set_num_threads(1)
    rank, cuda = int(os.environ["LOCAL_RANK"]), arguments.device == "cuda"
    source = source_of(arguments, ballast.Connection.of(arguments.address).job())
    cfg = bridge.configuration(source, arguments.address, steps=arguments.steps)
    cfg.train.micro_batch_size = micro
    cfg.train.global_batch_size = micro * micro_batches * arguments.world
    cfg.validation.eval_iters = 0
    cfg.validation.eval_micro_batch_size = cfg.train.micro_batch_size
    cfg.validation.eval_global_batch_size = cfg.train.global_batch_size
    cfg.optimizer.lr = cfg.optimizer.min_lr = 1e-4
    cfg.dataset.loader["device"] = "cuda:%d" % rank if cuda else "cpu"
    if cuda:
        cfg.dataset.loader["pixel_type"] = "bfloat16"
        cfg.mixed_precision = "bf16_mixed"
        cfg.dist.distributed_backend = "nccl"
    if arguments.transformer_engine:
        cfg.model.transformer_layer_spec = transformer_engine_layer_spec
    return cfg


def train(arguments):
    """One process of the job, which torchrun started; the first writes `--out`."""
    import torch

    from tests.trainer_shim.python.bridge import pretrain_test as bridge

    from megatron.bridge.training.callbacks import Callback
    from megatron.bridge.training.pretrain import pretrain
    from megatron.bridge.training.vlm_step import forward_step

    if arguments.alone:
        losses, _ = bridge.reference(
            arguments.address, "train", 1, arguments.world, functools.partial(source_of, arguments)
        )
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(losses[0], file)
        return
    cfg = configuration(arguments)
    rank, cuda = int(os.environ["LOCAL_RANK"]), arguments.device == "cuda"
    losses, times = [], []

    class Seen(Callback):
        def on_train_step_start(self, context):
            if cuda:
                torch.cuda.synchronize()
            times.append(time.perf_counter())

        def on_train_step_end(self, context):
            losses.append(float(context.loss_dict["lm loss"]))
            if cuda:
                torch.cuda.synchronize()
            times[-1] = time.perf_counter() - times[-1]

    pretrain(cfg, forward_step, callbacks=[Seen()])
    if rank == 0:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump({"loss": losses, "ms": [1e3 * seconds for seconds in times],
                       "torch": torch.__version__,
                       "device": torch.cuda.get_device_name() if cuda else "cpu"}, file)  # fmt: skip


def measure(arguments, way, address, folder):
    """{loss, ms, …} of a job of one way; of "alone", the loss of the first iteration."""
    out = os.path.join(folder, way + ".json")
    command = [sys.executable]
    if way != "alone":
        command += ["-m", "torch.distributed.run", "--standalone",
                    "--nproc-per-node", str(arguments.world)]  # fmt: skip
    command += [
        os.path.abspath(__file__), "--ballast-server", arguments.ballast_server,
        "--address", address, "--out", out,
    ]  # fmt: skip
    if way == "alone" or arguments.transformer_engine:
        command.append("--alone" if way == "alone" else "--transformer-engine")
    for name in ("world", "device", "steps", "hidden", "layers"):
        command += ["--" + name, str(getattr(arguments, name))]
    with open(os.path.join(folder, way + ".log"), "w+", encoding="utf-8") as log:
        status = subprocess.run(command, stdout=log, stderr=log, cwd=folder, check=False).returncode
        if status:
            log.seek(0)
            raise RuntimeError("%s ended with %d:\n%s" % (way, status, log.read()[-4000:]))
    with open(out, encoding="utf-8") as file:
        return json.load(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--ballast-server", required=True)
    parser.add_argument("--out", required=True, help="JSON file")
    parser.add_argument("--world", type=int, default=4, help="number of processes, one per GPU")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--warmup", type=int, default=20, help="steps left out of the times")
    parser.add_argument("--samples", type=int, default=1024, help="samples in the dataset")
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--max-pixels", type=int, default=401408)
    parser.add_argument("--noise", type=float, help="default: 1e-4 on a CPU, else 3e-2")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--transformer-engine", action="store_true")
    parser.add_argument("--address", help="of a server: be one process of its job")
    parser.add_argument("--alone", action="store_true", help="or train on its samples one by one")
    arguments = parser.parse_args()
    if arguments.address:
        train(arguments)
        return 0
    arguments.ballast_server = os.path.abspath(arguments.ballast_server)
    noise = arguments.noise or (3e-2 if arguments.device == "cuda" else 1e-4)

    import data
    import plot_training

    result, bad = {"world": arguments.world, "warmup": arguments.warmup, "ways": {}}, []
    micro = MICRO * arguments.world
    with tempfile.TemporaryDirectory(prefix="ballast") as folder:
        for way in arguments.ways.split(","):
            with data.served(
                arguments.ballast_server, delivery=way, samples=micro * MICRO_BATCHES, micro=micro,
                dp=arguments.world, max_pixels=arguments.max_pixels, dataset=arguments.samples,
                preset="receipts", max_tokens=16384,
                balance=", cost: {vision: {linear: 1}, language: {linear: 0.6}}",
                serve="memory: 1GiB, prefetch_steps: 4",
            ) as address:  # fmt: skip
                if "alone" not in result:
                    result["alone"] = measure(arguments, "alone", address, folder)
                found = measure(arguments, way, address, folder)
            result["ways"][way] = found
            times = found["ms"][arguments.warmup :]
            found.update({"p%d" % p: plot_training.quantile(sorted(times), p / 100)
                          for p in (10, 50, 90, 99)}, mean=plot_training.mean(times))  # fmt: skip
            wanted = next(iter(result["ways"].values()))["loss"]
            found["difference"] = max(abs(a - b) / b for a, b in zip(found["loss"], wanted))
            found["to_alone"] = abs(found["loss"][0] - result["alone"]) / result["alone"]
            if (
                not max(found["difference"], found["to_alone"]) <= noise
                or len(found["loss"]) != arguments.steps
            ):
                bad.append("%s: losses differ by %.1e, from the samples alone by %.1e, wanted "
                           "%.1e; %d steps" % (way, found["difference"], found["to_alone"],
                                               noise, len(found["loss"])))  # fmt: skip
            print(way, json.dumps({k: v for k, v in found.items() if k not in ("loss", "ms")}),
                  "losses %.4f to %.4f" % (found["loss"][0], found["loss"][-1]), flush=True)  # fmt: skip
            with open(arguments.out, "w", encoding="utf-8") as file:
                json.dump(result, file)
    print("\n".join(bad) or "PASSED")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
