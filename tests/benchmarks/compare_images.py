#!/usr/bin/env python3
"""Images a second of Ballast, Pillow and Hugging Face's processor, in one run.

    pip install pillow numpy transformers        # torchvision too, if wanted
    bazel build --config=opt //tests/benchmarks:image_benchmark
    BALLAST_SHARED_DIR=DIR tests/benchmarks/compare_images.py

All three start from the bytes of the JPEGs in DIR/corpus/images, as they are or as
files of --formats that Pillow writes of them, at most --megapixels large, and make the RGB
pixels of a Qwen2.5-VL processor's size (at most --max-pixels). Pillow does
convert("RGB") and resize(BICUBIC); the processor also normalises and cuts into
patches, which Ballast leaves to the GPU. One thread each, its own processor
time, medians of --rounds in which they take turns.
"""

import argparse
import io
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from PIL import Image

NAME = "BM_DecodeResize/max_pixels:{}/avx2:0"


def smart_resize(width, height, factor, least, most):
    """The size that Qwen's processors choose; round() rounds halves to even, as theirs
    does."""
    w, h = (round(side / factor) * factor for side in (width, height))
    if w * h > most:
        beta = (width * height / most) ** 0.5
        w, h = (max(factor, int(side / beta // factor) * factor) for side in (width, height))
    elif w * h < least:
        beta = (least / (width * height)) ** 0.5
        w, h = (-int(-side * beta // factor) * factor for side in (width, height))
    return w, h


def pillow(data, most):
    with Image.open(io.BytesIO(data)) as image:
        size = smart_resize(*image.size, 28, 3136, most)
        return image.convert("RGB").resize(size, Image.Resampling.BICUBIC)


# How Pillow writes each format.
FORMATS = {
    "jpeg": ("JPEG", {"quality": 90}),
    "progressive": ("JPEG", {"quality": 90, "progressive": True}),
    "png": ("PNG", {}),
    "webp": ("WEBP", {"quality": 90}),
    "lossless": ("WEBP", {"lossless": True}),
}


def write_corpus(format_name, megapixels, source, shared):
    """Files of a format of the pictures in `source`, as a shared folder `shared`."""
    name, options = FORMATS[format_name]
    folder = pathlib.Path(shared) / "corpus" / "images"
    folder.mkdir(parents=True)
    for path in pictures(source):
        with Image.open(path) as image:
            rgb = image.convert("RGB")
        scale = (megapixels * 1e6 / (rgb.width * rgb.height)) ** 0.5
        if scale < 1:
            rgb = rgb.resize((round(rgb.width * scale), round(rgb.height * scale)))
        suffix = {"JPEG": ".jpg"}.get(name, "." + name.lower())
        rgb.save(folder / (path.stem + suffix), name, **options)
    return folder


def pictures(folder):
    suffixes = (".jpg", ".jpeg", ".png", ".webp")
    return [path for path in sorted(folder.iterdir()) if path.suffix in suffixes]


def hugging_face(most):
    """A function of a file's bytes, or None if there is no such processor."""
    try:
        import transformers

        processor = transformers.Qwen2VLImageProcessor(
            size={"shortest_edge": 3136, "longest_edge": most}
        )
        tensors = "pt" if "Pil" not in type(processor).__name__ else "np"

        def process(data):
            with Image.open(io.BytesIO(data)) as image:
                return processor(image, return_tensors=tensors)

        buffer = io.BytesIO()
        Image.new("RGB", (64, 64)).save(buffer, "JPEG")
        process(buffer.getvalue())
    except Exception as error:  # Any of its parts may be missing.
        print(f"no Hugging Face processor: {error}", file=sys.stderr)
        return None, None
    return process, f"{type(processor).__name__} of {transformers.__version__}"


def rate(work, files):
    """Images per second of processor time, summed over threads."""
    start = time.process_time()
    for data in files:
        work(data)
    return len(files) / (time.process_time() - start)


def ballast(binary, most, shared):
    name = NAME.format(most)
    out = subprocess.run(
        [binary, f"--benchmark_filter={name}$", "--benchmark_format=json",
         "--benchmark_min_time=1"],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env={**os.environ, "BALLAST_SHARED_DIR": str(shared)},
    ).stdout  # fmt: skip
    (found,) = json.loads(out)["benchmarks"]
    return found["images/s"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--binary", default="bazel-bin/tests/benchmarks/image_benchmark")
    parser.add_argument("--max-pixels", type=int, default=1003520)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--formats", nargs="*", choices=FORMATS, default=[])
    parser.add_argument("--megapixels", type=float, default=2)
    options = parser.parse_args()
    shared = os.environ.get("BALLAST_SHARED_DIR")
    if not shared:
        parser.error("BALLAST_SHARED_DIR is not set")
    process, name = hugging_face(options.max_pixels)
    columns = ["Ballast", f"Pillow {Image.__version__}"] + [name] * bool(process)
    source = pathlib.Path(shared) / "corpus" / "images"
    for format_name in options.formats or [None]:
        with tempfile.TemporaryDirectory() as written:
            if format_name is None:
                title, root, folder = "as they are", shared, source
            else:
                title, root = f"{format_name}, {options.megapixels:g} megapixels", written
                folder = write_corpus(format_name, options.megapixels, source, written)
            files = [path.read_bytes() for path in pictures(folder)]
            rates = {column: [] for column in columns}
            for _ in range(options.rounds):
                row = [
                    ballast(options.binary, options.max_pixels, root),
                    rate(lambda data: pillow(data, options.max_pixels), files),
                ]
                if process:
                    row.append(rate(process, files))
                for kind, value in zip(columns, row):
                    rates[kind].append(value)
        best = statistics.median(rates["Ballast"])
        print(f"{len(files)} files, {title}; at most {options.max_pixels} pixels after resizing")
        for kind, values in rates.items():
            median = statistics.median(values)
            print(
                f"{kind:45} {median:8.1f} images/s {1000 / median:7.1f} ms"
                f"   Ballast is {best / median:.2f} times as fast"
            )


if __name__ == "__main__":
    main()
