#!/usr/bin/env python3
"""Compares Ballast with Hugging Face's own processor and model code.

    PYTHONPATH=trainer_shim/python check_huggingface.py \\
        --ballast-server ballast-server --tokenizer tokenizer.json --device cuda

For Qwen2.5-VL and Qwen3-VL (small, random weights), generates receipts, starts a loader
server, and feeds the same samples to the same model in three ways:
  - prepared by Hugging Face's processor, one by one;
  - prepared by Ballast, unpacked: inputs and loss must be equal bit by bit;
  - prepared by Ballast, packed in one row: the loss must be the mean of the samples'
    losses, weighted by supervised tokens, within the rounding of the number type.
Compares the pixels of the job's `--resample`, a value of `model.resample`, with the
pixels of this environment's Pillow or, with `--backend torchvision`, of its
torchvision. If they differ, the output names the library, its version and the value
that belongs to it. Prints one JSON object for each model and type. Exits with 1 if
anything differs.
Needs torch, torchvision, transformers 5 and Pillow.
"""

import argparse
import json
import os
import sys
import tempfile

import torch

import ballast
import corpus as corpora
import hf
import job as jobs
import pixels

CONFIG = """
    sources:
      - {{name: docs, format: webdataset, path: "docs-*.tar"}}
    model: {{profile: {profile}, tokenizer: "{tokenizer}", chat_template: chatml,
            min_pixels: {min_pixels}, max_pixels: {max_pixels}, resample: {resample}}}
    batch: {{global: {samples}, micro: {samples}, max_tokens: 16384}}
    topology:
      modules: {{vision: {{dp: 1}}, language: {{dp: 1}}}}
    balance: {{delivery: direct}}
    serve: {{memory: 512MiB}}
"""
# Packing adds the same numbers in another order. Largest relative change of the mean
# loss, which is about 6.6.
NOISE = {torch.float32: 1e-5, torch.bfloat16: 5e-3}


def by_hugging_face(processor, tokenizer, corpus, ordinal):
    """One sample's inputs, made by the processor alone."""
    text = processor.apply_chat_template(corpus.messages(ordinal), tokenize=False)
    inputs = processor(text=[text], images=corpus.images(ordinal), return_tensors="pt")
    inputs["labels"] = hf.labels_of(inputs["input_ids"], tokenizer)
    return inputs


def compare_inputs(theirs, ours, faults, name):
    """Notes tensors that differ; returns the largest difference of pixels, and for each
    image whether it differs."""
    for key in ("input_ids", "labels", "image_grid_thw"):
        if not torch.equal(theirs[key], ours[key].cpu()):
            faults.append("%s: %s differs" % (name, key))
    difference = (theirs["pixel_values"] - ours["pixel_values"].cpu()).abs().amax(1)
    sizes = theirs["image_grid_thw"].prod(1).tolist()
    largest = [image.max().item() for image in difference.split(sizes)]
    if max(largest) != 0:
        faults.append("%s: pixel_values differ by %g" % (name, max(largest)))
    return max(largest), [each != 0 for each in largest]


@torch.no_grad()
def check(profile, dtype, arguments, address, corpus, tokenizer):
    device = arguments.device
    image_processor = hf.image_processor_of(
        profile, arguments.min_pixels, arguments.max_pixels,
        pil=arguments.backend == "pil",
    )  # fmt: skip
    processor = hf.processor_of(profile, tokenizer, image_processor)
    model = hf.model_of(profile, tokenizer).to(device, dtype)
    faults, samples, differs = [], 0, []
    worst = {"pixels": 0.0, "unpacked_loss": 0.0, "packed_loss_relative": 0.0}
    loader = ballast.Loader(
        address, device=device, array="torch", pixel_type="float32",
        normalisation=arguments.backend, steps=arguments.steps,
    )  # fmt: skip
    with loader:
        for batch in loader:
            total, count = 0.0, 0
            for sample, ours in zip(batch.samples, ballast.adapters.huggingface.unpacked(batch)):
                theirs = by_hugging_face(processor, tokenizer, corpus, sample.ordinal)
                largest, of_images = compare_inputs(theirs, ours, faults, sample.name)
                differs += of_images
                their_loss = model(**theirs.to(device)).loss.item()
                our_loss = model(**ours).loss.item()
                if our_loss != their_loss:
                    faults.append("%s: loss %r; theirs %r" % (sample.name, our_loss, their_loss))
                worst["pixels"] = max(worst["pixels"], largest)
                worst["unpacked_loss"] = max(worst["unpacked_loss"], abs(our_loss - their_loss))
                supervised = int((ours["labels"] != -100).sum())
                total += our_loss * supervised
                count += supervised
                samples += 1
            packed = model(**ballast.adapters.huggingface.packed(batch)).loss.item()
            relative = abs(packed - total / count) / (total / count)
            worst["packed_loss_relative"] = max(worst["packed_loss_relative"], relative)
            if count != batch.totals.label_tokens:
                faults.append("label_tokens %d; counted %d" % (batch.totals.label_tokens, count))
            if not relative <= NOISE[dtype]:
                faults.append("step %d: packed loss %r; mean of the samples' %r"
                              % (batch.step, packed, total / count))  # fmt: skip
    versions = pixels.versions()
    library = versions[pixels.LIBRARIES[arguments.backend]]
    if any(differs):
        faults.insert(0, pixels.difference(
            sum(differs), len(differs), arguments.resample, arguments.backend, library
        ))  # fmt: skip
    print(json.dumps({
        "model": profile, "dtype": str(dtype).partition(".")[2], "device": device,
        "samples": samples, "images": len(differs), "versions": versions,
        "backend": arguments.backend, "resample": arguments.resample,
        "resample_of_environment": pixels.resample_of(arguments.backend, library),
        "largest_difference": worst, "faults": faults,
    }), flush=True)  # fmt: skip
    return not faults and samples > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ballast-server", required=True, help="program")
    parser.add_argument(
        "--tokenizer", required=True, help="tokenizer.json with Qwen's special tokens"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--models", default="qwen2_5_vl,qwen3_vl")
    parser.add_argument("--samples", type=int, default=4, help="a step")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--min-pixels", type=int, default=65536)
    parser.add_argument("--max-pixels", type=int, default=401408)
    parser.add_argument("--resample", choices=sorted(pixels.PIXELS), default="pillow12",
                        help="the job's model.resample (default pillow12, as the server's)")  # fmt: skip
    parser.add_argument("--backend", choices=sorted(pixels.LIBRARIES), default="pil",
                        help="of the image processor that is compared (default pil)")  # fmt: skip
    arguments = parser.parse_args()
    arguments.tokenizer = os.path.abspath(arguments.tokenizer)
    torch.backends.cuda.matmul.allow_tf32 = False
    tokenizer = hf.tokenizer_of(arguments.tokenizer)
    good = True
    with tempfile.TemporaryDirectory(prefix="ballast") as folder:
        job = jobs.Job(folder, arguments.ballast_server, samples=32)
        corpus = corpora.Corpus(folder)
        for profile in arguments.models.split(","):
            config = job.configure(profile, CONFIG.format(profile=profile, **vars(arguments)))
            with job.serve(config) as address:
                for dtype in arguments.dtypes.split(","):
                    good &= check(
                        profile, getattr(torch, dtype), arguments, address, corpus, tokenizer
                    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
