#!/usr/bin/env python3
"""Compares Megatron-Core's context or tensor parallelism, fed by Ballast, with Hugging Face's
model.

    PYTHONPATH=trainer_shim/python python3 context.py --ballast-server ballast-server

Four processes over Gloo: two data-parallel ranks of two context ranks each. MimoModel
cuts a batch for its context ranks itself, so each of them loads the whole padded batch
(packing.mode: padded). With `--tensor` they are tensor ranks, each of which has a part of
the language model's weights, and batches are packed. Compares the sums of the losses and
gradients with the sums for Hugging Face's Qwen2.5-VL over the same samples. Prints a JSON
object for each process that compares, and exits with 1 if they differ by more than
`--noise`. Needs torch, transformers and megatron-core; runs on a CPU, without Transformer
Engine.
"""

import argparse
import json
import sys
import tempfile

import torch
import torch.distributed as dist
from megatron.core import parallel_state

import ballast
import data
import loss
import model as models
import on_cpu
import single

SHARING, DP = 2, 2  # ranks that share a batch, and groups of them
MODULES = ("vision", "language")


def loader_of(address, dp_rank, number, steps):
    """A loader of the whole batches of a data-parallel rank, for one of its ranks."""
    return ballast.Loader(
        address, MODULES, dp_rank=dp_rank, tp_rank={"vision": 0, "language": number},
        device="cpu", array="torch", steps=steps,
    )  # fmt: skip


def wanted_of(source, address, steps):
    """Adds the gradients of all ranks' samples to Hugging Face's model; returns the sum of
    the steps' mean losses."""
    total = 0.0
    for rank in range(DP):
        with loader_of(address, rank, 0, steps) as loader:
            total += sum(loss.hugging_face_backward(source, batch) for batch in loader)
    return total


@torch.no_grad()
def gradients_of(source):
    """Hugging Face's gradients under the names of MimoModel's weights."""
    for weight in source.parameters():
        weight.copy_(weight.grad)
    text = source.model.language_model
    found = {
        "embedding.word_embeddings.weight": text.embed_tokens.weight,
        "decoder.final_layernorm.weight": text.norm.weight,
        "output_layer.weight": source.lm_head.weight,
    }
    for number, layer in enumerate(text.layers):
        for name, value in models.layer_weights(layer, text.config).items():
            found["decoder.layers.%d.%s" % (number, name)] = value
    tower = "modality_submodules.%s.encoders.%s.tower." % (models.MODALITY, models.ENCODER)
    return {
        **{"language_model." + name: value for name, value in found.items()},
        **{tower + name: value for name, value in source.model.visual.named_parameters()},
    }


def compare(rank, address, arguments):
    """Runs the steps in all processes; returns the largest difference, or None where another
    rank has the same sums."""
    dp_rank, number = divmod(rank, SHARING)
    tensor, context = (SHARING, 1) if arguments.tensor else (1, SHARING)
    assert parallel_state.get_context_parallel_rank() == number % context
    assert parallel_state.get_tensor_model_parallel_rank() == number % tensor
    assert parallel_state.get_data_parallel_rank() == dp_rank
    with loader_of(address, dp_rank, number, arguments.steps) as loader:
        token_ids = loader.job["model"]["token_ids"]
        source = models.hugging_face(token_ids, data.VOCABULARY)
        model = models.mimo_model(
            source, token_ids["image"], rows=not arguments.tensor, context=context, tensor=tensor
        )
        total = torch.zeros(1)
        batches = [0, 0]  # all batches, and batches with padding
        for batch in loader:
            total += single.backward(model, batch)
            batches[0] += 1
            batches[1] += "attention_mask" in batch and not bool(batch["attention_mask"].all())
    # Tensor ranks have the whole loss, context ranks parts of it.
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    dist.all_reduce(total, group=group)
    for weight in model.parameters():
        if weight.grad is None:  # this rank had no image
            weight.grad = torch.zeros_like(weight)
        dist.all_reduce(weight.grad, group=group)
    if group.rank() > 0:
        return None
    wanted = wanted_of(source, address, arguments.steps)
    expected = {
        name: models.tensor_part(name, value, model.language_model.tp_group)
        if name.startswith("language_model.") else value
        for name, value in gradients_of(source).items()
    }  # fmt: skip
    gradient, name = loss.farthest({n: w.grad for n, w in model.named_parameters()}, expected)
    return {
        "loss": float(total), "wanted": wanted, "weight": name, "gradient": gradient,
        "relative": max(loss.difference(float(total), wanted), gradient),
        "padded_batches": batches[1], "batches": batches[0],
    }  # fmt: skip


def run(rank, address, folder, arguments):
    """Runs one process; exits with 1 if it found a difference."""
    torch.set_num_threads(1)
    on_cpu.install()
    dist.init_process_group(
        "gloo", init_method="file://" + folder + "/meeting", rank=rank, world_size=SHARING * DP
    )
    if arguments.tensor:
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=SHARING)
    else:
        parallel_state.initialize_model_parallel(context_parallel_size=SHARING)
    worst = compare(rank, address, arguments)
    if worst is not None:
        print(json.dumps(worst), flush=True)
    dist.barrier()
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()
    if worst is not None and not worst["relative"] <= arguments.noise:
        sys.exit(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ballast-server", required=True)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--noise", type=float, default=1e-4)
    parser.add_argument("--tensor", action="store_true", help="tensor ranks, not context ranks")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        data.served(
            arguments.ballast_server,
            samples=8,
            micro=4,
            dp=DP,
            cp=SHARING,
            packing="shard" if arguments.tensor else "padded",
        ) as address,
    ):
        return on_cpu.run_everywhere(run, SHARING * DP, address, folder, arguments)


if __name__ == "__main__":
    sys.exit(main())
