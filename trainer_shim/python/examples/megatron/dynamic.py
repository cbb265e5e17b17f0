#!/usr/bin/env python3
"""Compares dynamic with static context parallelism in Megatron-Core, fed by Ballast.

    PYTHONPATH=trainer_shim/python python3 dynamic.py --ballast-server ballast-server

Four processes over Gloo, or NCCL (`--device cuda`), train a small GPTModel on texts with a
long tail of lengths: with packing.dynamic_cp, in the groups that Megatron-Core makes for
hybrid context parallelism, and with packs that all are shared by two ranks. Adds up
losses and gradients over all processes, and compares them with one process that takes each
text whole. Prints one JSON object and exits with 1 if they differ by more than `--noise`.
Needs torch and megatron-core, not Transformer Engine; in bfloat16 on four GPUs.
"""

import argparse
import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.transformer_config import TransformerConfig

import ballast
import model as models
import on_cpu
from ballast.adapters import megatron_core
from loss import difference, farthest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import job as jobs

RANKS, STATIC_CP = 4, 2
NOISE = {"cpu": 1e-5, "cuda": 5e-2}
VOCABULARY = 512
CONFIG = """
    sources:
      - name: texts
        format: mock
        vocabulary: 512
        lengths: {mode: lognormal, min: 4, max: 500, mean: 60, sigma: 1.2}
    model: {position_axes: 1, tokenizer: bytes,
            token_ids: {image: 256, video: 257, vision_start: 258, vision_end: 259,
                        im_start: 260, im_end: 261, end_of_text: 262, pad: 262}}
    batch: {global: 24, micro: 24, max_tokens: 512}
    topology: {modules: {language: {%s}}}
    balance: {delivery: direct}
    packing: {%s}
"""
JOBS = {
    "whole": ("dp: 1", "mode: shard"),
    "dynamic": ("dp: %d" % RANKS, "mode: scheduled, max_tokens_per_rank: 128, dynamic_cp: 4"),
    "static": (
        "dp: %d, cp: %d" % (RANKS // STATIC_CP, STATIC_CP),
        "mode: scheduled, max_tokens_per_rank: 256",
    ),
}


def device_of(kind, rank):
    """This process's device, and the type of its weights."""
    if kind == "cpu":
        return "cpu", torch.float32
    return "cuda:%d" % rank, torch.bfloat16


def gpt_model(device, dtype):
    """The same random weights in every process."""
    torch.manual_seed(5)
    config = TransformerConfig(
        num_layers=2, hidden_size=64, ffn_hidden_size=128, num_attention_heads=4,
        num_query_groups=2, normalization="RMSNorm", persist_layer_norm=False,
        add_bias_linear=False, attention_dropout=0.0, hidden_dropout=0.0,
        masked_softmax_fusion=False, bias_dropout_fusion=False, apply_rope_fusion=False,
        gradient_accumulation_fusion=False, bias_activation_fusion=False,
        calculate_per_token_loss=True, use_cpu_initialization=True,
        params_dtype=dtype, bf16=dtype == torch.bfloat16,
    )  # fmt: skip
    layer = get_gpt_layer_local_spec(normalization="RMSNorm")
    layer.submodules.self_attention.submodules.core_attention = models.SharedAttention
    return GPTModel(
        config=config, transformer_layer_spec=layer, vocab_size=VOCABULARY,
        max_sequence_length=1024, position_embedding_type="rope",
    ).to(device)  # fmt: skip


def static_batches(batch, cp_rank):
    """The passes of a batch whose pack the static context ranks share."""
    given = dict(batch, pack_share_host=torch.tensor([STATIC_CP, cp_rank]))
    group = parallel_state.get_hybrid_data_context_parallel_groups(group_size=STATIC_CP)
    return megatron_core.context_batches(given, PackedSeqParams, group_of=lambda size: group)


def dynamic_batches(batch, sizes):
    def group_of(size):
        return parallel_state.get_hybrid_data_context_parallel_groups(group_size=size)

    size = int(batch["pack_share_host"][0])
    sizes[size] = sizes.get(size, 0) + 1
    return megatron_core.context_batches(batch, PackedSeqParams, group_of=group_of)


def train(loader, passes_of, on):
    """A model `on` a device with the gradients of the steps' summed mean losses, and this
    process's part of that loss."""
    model = gpt_model(*on)
    total = 0.0
    with loader:
        for batch in loader:
            for tokens, labels, loss_mask, attention_mask, positions, params, _ in passes_of(batch):
                losses = model(
                    tokens, positions, attention_mask, labels=labels.clamp(min=0),
                    packed_seq_params=params,
                )  # fmt: skip
                loss = (losses * loss_mask).sum() / max(batch.step_totals.label_tokens, 1)
                loss.backward()
                total += float(loss.detach())
    return model, total


def summed(model, total):
    """The gradients and the loss, over all processes."""
    total = torch.tensor([total], dtype=torch.float64, device=next(model.parameters()).device)
    dist.all_reduce(total)
    for weight in model.parameters():
        dist.all_reduce(weight.grad)
    return {name: weight.grad for name, weight in model.named_parameters()}, float(total)


def compare(rank, addresses, steps, on):
    options = dict(device=on[0], array="torch", steps=steps)
    sizes = {}
    found = {
        "dynamic": summed(*train(
            ballast.Loader(addresses["dynamic"], "language", dp_rank=rank, **options),
            lambda batch: dynamic_batches(batch, sizes), on,
        )),
        "static": summed(*train(
            ballast.Loader(
                addresses["static"], "language", dp_rank=rank // STATIC_CP,
                cp_rank=rank % STATIC_CP, **options,
            ),
            lambda batch: static_batches(batch, rank % STATIC_CP), on,
        )),
    }  # fmt: skip
    if rank > 0:
        return {"relative": 0.0}
    model, wanted = train(
        ballast.Loader(addresses["whole"], "language", dp_rank=0, **options),
        lambda batch: [megatron_core.get_batch(batch, PackedSeqParams)],
        on,
    )
    worst = {"wanted": wanted, "relative": 0.0, "packs_of_rank_0": sizes}
    for way, (gradients, loss) in found.items():
        relative = difference(loss, wanted)
        gradient, name = farthest(
            gradients, {name: weight.grad for name, weight in model.named_parameters()}
        )
        worst[way] = {"loss": loss, "relative": relative, "gradient": gradient, "weight": name}
        worst["relative"] = max(worst["relative"], gradient, relative)
    return worst


def run(rank, addresses, folder, steps, noise, kind):
    """Runs one process; exits with 1 if it found a difference."""
    torch.set_num_threads(1)
    on_cpu.install()
    on = device_of(kind, rank)
    if kind == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        {"cpu": "gloo", "cuda": "nccl"}[kind], init_method="file://" + folder + "/meeting",
        rank=rank, world_size=RANKS,
    )  # fmt: skip
    parallel_state.initialize_model_parallel(hybrid_context_parallel=True)
    worst = compare(rank, addresses, steps, on)
    if rank == 0:
        print(json.dumps(worst), flush=True)
    dist.barrier()
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()
    if not worst["relative"] <= noise or (rank == 0 and len(worst["packs_of_rank_0"]) < 2):
        sys.exit(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ballast-server", required=True)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--noise", type=float, help="default: 1e-5 on a CPU, else 5e-2")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    arguments = parser.parse_args()
    noise = arguments.noise or NOISE[arguments.device]
    with tempfile.TemporaryDirectory() as folder:
        job = jobs.Job(folder, arguments.ballast_server, 4, preset="text")
        servers = {way: job.serve(job.configure(way, CONFIG % keys)) for way, keys in JOBS.items()}
        with servers["whole"] as whole, servers["dynamic"] as dynamic, servers["static"] as static:
            addresses = {"whole": whole, "dynamic": dynamic, "static": static}
            return on_cpu.run_everywhere(
                run, RANKS, addresses, folder, arguments.steps, noise, arguments.device
            )


if __name__ == "__main__":
    sys.exit(main())
