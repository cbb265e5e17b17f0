#!/usr/bin/env python3
"""Dynamic context parallelism with images in Megatron-Core, fed by Ballast.

    PYTHONPATH=trainer_shim/python python3 dynamic_images.py --ballast-server ballast-server

Four processes over Gloo train a small Qwen2.5-VL, or Qwen3-VL (`--model qwen3_vl`), on
samples with a long tail of lengths, in packs that 1, 2 or 4 of them share
(packing.dynamic_cp). Each image is encoded by one of them, and its embeddings, with
Qwen3-VL's deepstack features, go to all ranks that share its pack. Compares the
losses and gradients, summed over all processes, with Hugging Face's model on each sample alone.
Prints one JSON object and exits with 1 if they differ by more than `--noise`. Needs torch,
transformers and megatron-core; runs on a CPU, without Transformer Engine.
"""

import argparse
import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.packed_seq_params import PackedSeqParams

import ballast
import context
import data
import loss
import model as models
import on_cpu
from ballast.adapters import megatron_core

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import job as jobs

RANKS, LAYERS = 4, 3  # of language: the last layer takes no deepstack features
CONFIG = """
    sources:
      - name: documents
        format: mock
        vocabulary: 256
        lengths: {mode: lognormal, min: 4, max: 500, mean: 60, sigma: 1.2}
        images: {min: 0, max: 2, pixels: {min: 3200, max: 60000, mean: 12000, sigma: 1.0}}
    model: {profile: %s, tokenizer: bytes, chat_template: chatml, min_pixels: 3136,
            token_ids: {image: 256, video: 257, vision_start: 258, vision_end: 259,
                        im_start: 260, im_end: 261, end_of_text: 262, pad: 262}}
    batch: {global: 24, micro: 24, max_tokens: 512}
    topology: {modules: {vision: {dp: %d}, language: {dp: %d}}}
    balance: {%s}
    packing: {%s}
"""
JOBS = {
    "whole": (1, 1, "delivery: direct", "mode: shard"),
    "dynamic": (RANKS, RANKS, "delivery: direct, placement: split",
                "mode: scheduled, max_tokens_per_rank: 128, dynamic_cp: 4"),
}  # fmt: skip


def group_of(size):
    return parallel_state.get_hybrid_data_context_parallel_groups(group_size=size)


def encode(tower, batch):
    """A row for each image token of this rank's images, the dummy image's last: [rows, 1, width],
    or with deepstack features of layers [rows, 1 + layers, width]."""
    pixels = batch["pixel_values"]
    if len(pixels) == 0:  # no rank has an image
        layers = len(getattr(tower.config, "deepstack_visual_indexes", ()))
        return pixels.new_zeros((0, 1 + layers, tower.config.out_hidden_size))
    output = tower(pixels, grid_thw=batch["image_grid_thw"])
    features = getattr(output, "deepstack_features", ())
    return torch.stack([output.pooler_output, *features], 1)


def backward(model, batch, image_token):
    """Adds a micro-batch's part of the gradients of the step's mean loss; returns its part
    of the loss, and the rows of the pack's images."""
    language = model.language_model
    encoder = model.modality_submodules[models.MODALITY].encoders[models.ENCODER]
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    rows = ballast.exchange_embeddings(encode(encoder.tower, batch), batch, group)
    images = megatron_core.ContextImages(batch, rows, image_token)
    total = 0.0
    for tokens, labels, loss_mask, _, positions, params, _ in megatron_core.context_batches(
        batch, PackedSeqParams, group_of=group_of, images=images
    ):
        hidden = images.put(language.embedding(input_ids=tokens, position_ids=positions))
        with models.deepstack(language, *images.deepstack()):
            losses = language(
                tokens, positions, None, decoder_input=hidden, labels=labels.clamp(min=0),
                packed_seq_params=params,
            )  # fmt: skip
        part = (losses * loss_mask).sum() / max(batch.step_totals.label_tokens, 1)
        part.backward()
        total += float(part.detach())
    images.backward()
    return total, len(rows)


def compare(rank, addresses, family, steps):
    """Runs the steps in all processes; returns the largest difference, or None where another
    rank has the same sums."""
    options = dict(device="cpu", array="torch", steps=steps)
    total = torch.zeros(1, dtype=torch.float64)
    seen = {}  # packs by their ranks: with images, all
    with ballast.Loader(addresses["dynamic"], dp_rank=rank, **options) as loader:
        token_ids = loader.job["model"]["token_ids"]
        source = models.hugging_face(token_ids, data.VOCABULARY, layers=LAYERS, family=family)
        model = models.mimo_model(source, token_ids["image"], attention=models.SharedAttention)
        for batch in loader:
            part, rows = backward(model, batch, int(token_ids["image"]))
            total += part
            size = int(batch["pack_share_host"][0])
            with_images, count = seen.get(size, (0, 0))
            seen[size] = (with_images + (rows > 0), count + 1)
    dist.all_reduce(total)
    for weight in model.parameters():
        if weight.grad is None:  # this rank had no image
            weight.grad = torch.zeros_like(weight)
        dist.all_reduce(weight.grad)
    if rank > 0:
        return None
    wanted = 0.0
    with ballast.Loader(addresses["whole"], dp_rank=0, **options) as loader:
        for batch in loader:
            wanted += loss.hugging_face_backward(source, batch)
    gradient, name = loss.farthest(
        {name: weight.grad for name, weight in model.named_parameters()},
        context.gradients_of(source),
    )
    return {"loss": float(total), "wanted": wanted, "relative": loss.difference(float(total), wanted),
            "gradient": gradient, "weight": name, "packs_of_rank_0": seen}  # fmt: skip


def run(rank, addresses, folder, family, steps, noise):
    """Runs one process; exits with 1 if it found a difference, or no shared image."""
    torch.set_num_threads(1)
    on_cpu.install()
    dist.init_process_group(
        "gloo", init_method="file://" + folder + "/meeting", rank=rank, world_size=RANKS
    )
    parallel_state.initialize_model_parallel(hybrid_context_parallel=True)
    worst = compare(rank, addresses, family, steps)
    if worst is not None:
        print(json.dumps(worst), flush=True)
    dist.barrier()
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()
    if worst is None:
        return
    shared = sum(images for size, (images, _) in worst["packs_of_rank_0"].items() if size > 1)
    if not max(worst["relative"], worst["gradient"]) <= noise or not shared:
        sys.exit(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ballast-server", required=True)
    parser.add_argument("--model", default="qwen2_5_vl", choices=("qwen2_5_vl", "qwen3_vl"))
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--noise", type=float, default=1e-5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        job = jobs.Job(folder, arguments.ballast_server, 4, preset="text")
        servers = {
            way: job.serve(job.configure(way, CONFIG % (arguments.model, *keys)))
            for way, keys in JOBS.items()
        }
        with servers["whole"] as whole, servers["dynamic"] as dynamic:
            addresses = {"whole": whole, "dynamic": dynamic}
            return on_cpu.run_everywhere(
                run, RANKS, addresses, folder, arguments.model, arguments.steps, arguments.noise
            )


if __name__ == "__main__":
    sys.exit(main())
