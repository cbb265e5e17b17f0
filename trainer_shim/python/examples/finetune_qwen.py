#!/usr/bin/env python3
"""Fine-tunes a Qwen-VL on images and conversations: one node, any number of processes.

    finetune_qwen.py --out run                        # drawn receipts, a small random model
    torchrun --nproc-per-node 2 finetune_qwen.py --out run --steps 40
    torchrun --nproc-per-node 8 finetune_qwen.py --out run --device cuda \\
        --data my/receipts --model Qwen2.5-VL-3B-Instruct

Process 0 runs the loader server. Repeat the command to continue: the checkpoint in --out
resumes at exactly the next sample, with another number of processes as well. --out then
holds checkpoint.pt, losses.csv and losses.svg.
"""

import argparse
import contextlib
import csv
import os
import re
import subprocess

import ballast
import torch
import torch.distributed as dist
import transformers
from frameworks.small_qwen import model_for

# For the small model: bytes as tokens, small images and the first words of each text,
# so that a step takes seconds on a laptop.
SMALL = """\
sources: [{name: receipts, format: webdataset, path: "receipts/docs-*.tar"}]
model: {profile: qwen2_5_vl, tokenizer: bytes, max_pixels: 25088,
        token_ids: {image: 256, video: 257, vision_start: 258, vision_end: 259,
                    im_start: 260, im_end: 261, end_of_text: 262, pad: 263}}
batch: {global: 24, micro: 12, max_tokens: 256, on_too_long: truncate_text}
topology: {modules: {vision: {dp: 1}, language: {dp: 1}}}
serve: {memory: 512MiB}
"""


def configuration(arguments, world):
    """Writes OUT/ballast.yaml for this number of processes; returns its path."""
    path = os.path.join(arguments.out, "ballast.yaml")
    if not os.path.exists(path):
        if arguments.data is None:
            folder = os.path.join(arguments.out, "receipts")
            tool("make-corpus", "--out", folder, "--samples", "96", "--preset", "receipts")
        if arguments.data is None and arguments.model is None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(SMALL)
        else:
            more = ["--model-dir", arguments.model] if arguments.model else []
            tool("init", arguments.data or folder, "--out", path, *more)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    # The layout may change between two runs; the samples of a step may not.
    text = re.sub(r"\bdp: \d+", "dp: %d" % world, text)
    if arguments.batch:
        text = re.sub(r"\bglobal: \d+", "global: %d" % arguments.batch, text)
        text = re.sub(r"\bmicro: \d+", "micro: %d" % (arguments.micro or arguments.batch), text)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def tool(*arguments):
    subprocess.run(["ballast-server", *arguments], check=True)


@contextlib.contextmanager
def serving(arguments, rank, world):
    """The address of the loader server, which process 0 runs."""
    with contextlib.ExitStack() as stack:
        address = [None]
        if rank == 0:
            path = configuration(arguments, world)
            address[0] = stack.enter_context(ballast.serve(path, listen="127.0.0.1:0"))
        if world > 1:
            dist.broadcast_object_list(address)
        yield address[0]
        if world > 1:
            dist.barrier()  # the server stays until the last process is done


def open_model(arguments, job):
    if arguments.model is None:
        return model_for(job)
    return transformers.AutoModelForImageTextToText.from_pretrained(
        arguments.model, dtype=torch.bfloat16 if arguments.device == "cuda" else torch.float32
    )


def save(arguments, model, optimizer, loader, losses):
    """Writes checkpoint and loss curve; each file is complete at any moment."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(),
             "data": loader.state_dict(), "losses": losses}  # fmt: skip
    path = os.path.join(arguments.out, "checkpoint.pt")
    torch.save(state, path + ".part")
    os.replace(path + ".part", path)
    with open(os.path.join(arguments.out, "losses.csv"), "w", encoding="utf-8") as file:
        csv.writer(file).writerows([("step", "loss", "heaviest_over_mean"), *losses])
    if len(losses) > 1:
        with open(os.path.join(arguments.out, "losses.svg"), "w", encoding="utf-8") as file:
            file.write(curve(losses))


def curve(losses):
    """Losses, and the heaviest rank's load over the mean, as a picture."""
    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 600 330" font-size="12"'
        ' font-family="sans-serif"><rect width="600" height="330" fill="#fff"/>'
    ]
    for title, column, low, top, height, colour in (
        ("loss", 1, 0.0, 30, 160, "#06c"),
        ("heaviest rank over mean", 2, 1.0, 230, 70, "#1b7837"),
    ):
        most = max(max(row[column] for row in losses), low + 0.1)
        points = " ".join(
            "%.1f,%.1f"
            % (50 + 530 * i / (len(losses) - 1),
               top + height * (most - row[column]) / (most - low))
            for i, row in enumerate(losses)
        )  # fmt: skip
        out.append(
            '<path d="M50 %d V%d H590" fill="none" stroke="#888"/>'
            '<text x="50" y="%d">%s</text><text x="6" y="%d">%.2f</text>'
            '<text x="6" y="%d">%.2f</text>'
            '<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>'
            % (top, top + height, top - 12, title, top + 5, most, top + height + 4, low, points,
               colour)
        )  # fmt: skip
    out.append('<text x="480" y="324">step %d to %d</text></svg>' % (losses[0][0], losses[-1][0]))
    return "".join(out)


def balance_of(schedule):
    """The load of the heaviest rank over the mean, of all modules together."""
    most = mean = 0.0
    for micro_batch in schedule["micro_batches"]:
        loads = [sum(ranks) for ranks in zip(*(m["after"] for m in micro_batch["load"].values()))]
        most += max(loads)
        mean += sum(loads) / len(loads)
    return most / mean if mean else 1.0


def train(arguments, address, rank, world):
    path = os.path.join(arguments.out, "checkpoint.pt")
    saved = (
        torch.load(path, map_location="cpu", weights_only=False) if os.path.exists(path) else None
    )
    losses = saved["losses"] if saved else []
    done = losses[-1][0] + 1 if losses else 0
    if done >= arguments.steps:
        return losses
    with ballast.Loader(
        address, dp_rank=rank, device=arguments.device, array="torch",
        steps=arguments.steps - done, state_dict=saved and saved["data"],
    ) as loader:  # fmt: skip
        model = open_model(arguments, loader.job).to(arguments.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr)
        if saved:
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
        parallel = model
        if world > 1:
            # In a micro-batch without an image on any rank, the tower has no gradient.
            parallel = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        loss = torch.zeros((), device=arguments.device)
        for batch in loader:
            # The sum of this rank's losses over the tokens of all ranks; DDP averages.
            inputs = ballast.adapters.huggingface.packed(batch)
            labels = inputs.pop("labels")
            part = ballast.adapters.huggingface.loss(
                parallel(**inputs), labels, batch.step_totals.label_tokens
            )
            (world * part).backward()
            loss += part.detach()
            if batch.micro_batch + 1 < batch.num_micro_batches:
                continue  # the step goes on
            optimizer.step()
            optimizer.zero_grad()
            if world > 1:
                dist.all_reduce(loss)
            losses.append((batch.step, float(loss), balance_of(loader.schedule())))
            loss.zero_()
            if rank == 0:
                report = loader.report()
                print("step %d loss %.4f  heaviest rank over mean %.3f  %.1f samples/s a rank"
                      % (*losses[-1], report["samples_per_second"]), flush=True)  # fmt: skip
                last = batch.step + 1 == arguments.steps
                if last or len(losses) % arguments.save == 0:
                    save(arguments, model, optimizer, loader, losses)
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", required=True, help="folder of the run, made if needed")
    parser.add_argument("--data", help="folder of the data; default: receipts are drawn")
    parser.add_argument("--model", help="folder of a checkpoint; default: small, random")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--steps", type=int, default=20, help="steps from the beginning")
    parser.add_argument("--save", type=int, default=10, help="steps between checkpoints")
    parser.add_argument("--batch", type=int, help="samples a step, over all processes")
    parser.add_argument("--micro", type=int, help="samples a micro-batch; default: --batch")
    parser.add_argument("--lr", type=float, default=1e-3)
    arguments = parser.parse_args()
    os.makedirs(arguments.out, exist_ok=True)
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if arguments.device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    if world > 1:
        dist.init_process_group("nccl" if arguments.device == "cuda" else "gloo")
    with serving(arguments, rank, world) as address:
        train(arguments, address, rank, world)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
