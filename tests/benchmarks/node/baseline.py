"""Images per second of common alternatives, over the images of a corpus.

processor: PyTorch's DataLoader, whose workers run Hugging Face's processor.
torchvision: the same with torchvision's decoding and resizing instead.
pillow: Pillow's decoding and resizing, in this process alone.

With --ranks, like a training job: that many processes, each with a DataLoader with its
share of the workers, pinned memory and a copy to its GPU. Without it, one process takes
all batches and drops them, which shows the most that the workers can do.

Images lie in memory; the rate counts from when every worker has had its first.
Prints JSON.
"""

import argparse
import io
import json
import multiprocessing
import os
import tarfile
import time

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")


def files_of(folder):
    found = []
    for root, _, names in sorted(os.walk(folder)):
        for name in sorted(names):
            path = os.path.join(root, name)
            if name.lower().endswith(SUFFIXES):
                with open(path, "rb") as file:
                    found.append(file.read())
            elif name.endswith(".tar"):
                with tarfile.open(path) as tar:
                    for member in tar:
                        if member.name.lower().endswith(SUFFIXES):
                            found.append(tar.extractfile(member).read())
    return found


def size_of(width, height, most, factor=28, least=3136):
    """The size that Qwen's processors choose; round() rounds halves to even, as theirs
    does."""
    w, h = (max(factor, round(side / factor) * factor) for side in (width, height))
    if w * h > most:
        beta = (width * height / most) ** 0.5
        return [max(factor, int(s / beta // factor) * factor) for s in (width, height)]
    if w * h < least:
        beta = (least / (width * height)) ** 0.5
        return [-int(-s * beta // factor) * factor for s in (width, height)]
    return [w, h]


def pillow(most):
    from PIL import Image

    def work(data):
        with Image.open(io.BytesIO(data)) as image:
            size = size_of(*image.size, most)
            return image.convert("RGB").resize(size, Image.Resampling.BICUBIC)

    return work


def torchvision(most):
    import torch
    from torchvision.io import ImageReadMode, decode_image
    from torchvision.transforms.v2 import functional

    def work(data):
        raw = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        image = decode_image(raw, ImageReadMode.RGB)
        width, height = size_of(image.shape[2], image.shape[1], most)
        return functional.resize(
            image, [height, width], functional.InterpolationMode.BICUBIC, antialias=True
        )

    return work


def processor(most):
    import transformers
    from PIL import Image

    made = transformers.Qwen2VLImageProcessor(size={"shortest_edge": 3136, "longest_edge": most})
    tensors = "np" if "Pil" in type(made).__name__ else "pt"

    def work(data):
        with Image.open(io.BytesIO(data)) as image:
            return made(image.convert("RGB"), return_tensors=tensors)["pixel_values"]

    return work


KINDS = {"pillow": pillow, "torchvision": torchvision, "processor": processor}


class Images:
    """An endless map-style dataset; each worker creates its own processor."""

    def __init__(self, files, kind, most):
        self.files, self.kind, self.most, self.work = files, kind, most, None

    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        if self.work is None:
            self.work = KINDS[self.kind](self.most)
        return self.work(self.files[index % len(self.files)])


def in_workers(files, options, workers, rank=None, begin=None):
    """Images per second of one DataLoader, to the rank's GPU if there is one."""
    import torch

    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(
        Images(files, options.kind, options.max_pixels), batch_size=8,
        num_workers=workers, collate_fn=list, prefetch_factor=2,
        pin_memory=rank is not None,
    )  # fmt: skip
    batches = iter(loader)
    device = None
    if rank is not None:
        device = torch.device("cuda", rank % torch.cuda.device_count())

    def take():
        batch = next(batches)
        if device is not None:
            batch = [each.to(device, non_blocking=True) for each in batch]
            torch.cuda.synchronize(device)
        return len(batch)

    for _ in range(2 * workers):
        take()
    if begin is not None:
        begin.wait()
    images = 0
    start = time.monotonic()
    while time.monotonic() - start < options.seconds:
        images += take()
    return images / (time.monotonic() - start)


def in_ranks(files, options):
    """The sum over --ranks processes that measure at the same time."""
    # Forked, so that they share the files. CUDA starts in the children.
    fork = multiprocessing.get_context("fork")
    begin = fork.Barrier(options.ranks)
    rates = fork.Queue()

    def run(rank):
        workers = max(1, options.workers // options.ranks)
        rates.put(in_workers(files, options, workers, rank, begin))
        rates.close()
        rates.join_thread()
        os._exit(0)  # workers are not waited for

    for rank in range(options.ranks):
        fork.Process(target=run, args=(rank,)).start()
    return sum(rates.get(timeout=80) for _ in range(options.ranks))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=0)
    parser.add_argument("--max-pixels", type=int, default=1003520)
    parser.add_argument("--seconds", type=float, default=6)
    options = parser.parse_args()
    files = files_of(options.folder)
    if options.kind == "pillow":
        work = pillow(options.max_pixels)
        images = 0
        start = time.monotonic()
        while time.monotonic() - start < options.seconds:
            work(files[images % len(files)])
            images += 1
        rate = images / (time.monotonic() - start)
    elif options.ranks:
        rate = in_ranks(files, options)
    else:
        rate = in_workers(files, options, options.workers)
    print(json.dumps({"kind": options.kind, "workers": options.workers,
                      "ranks": options.ranks, "images_s": round(rate, 1)}),
          flush=True)  # fmt: skip
    # Does not wait for workers.
    os._exit(0)


if __name__ == "__main__":
    main()
