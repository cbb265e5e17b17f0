"""Images per second of NVIDIA DALI over the images of a folder: its mixed decoder, which
uses the GPU's JPEG engines, and a cubic resize to the sizes that Ballast resizes to, two
batches in flight. Its pixels are not Pillow's. Prints JSON; says so if DALI is absent.

    tests/benchmarks/node/dali_baseline.py FOLDER --batch 32
"""

import argparse
import importlib.util
import json
import os
import resource
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import baseline  # noqa: E402  pylint: disable=wrong-import-position


def size_in(data):
    """Width and height from a JPEG's frame header."""
    at = 2
    while at + 9 < len(data):
        marker, length = data[at + 1], struct.unpack(">H", data[at + 2 : at + 4])[0]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        at += 2 + length
    raise ValueError("not a JPEG")


def measure(files, options):
    import numpy
    from nvidia import dali
    from nvidia.dali import fn, types

    # DALI wants (height, width).
    sizes = [baseline.size_of(*size_in(data), options.max_pixels)[::-1] for data in files]
    encoded = [numpy.frombuffer(data, dtype=numpy.uint8) for data in files]
    wanted = [numpy.array(size, dtype=numpy.float32) for size in sizes]
    place = 0

    def source():
        nonlocal place
        chosen = [(place + i) % len(files) for i in range(options.batch)]
        place += options.batch
        return [encoded[i] for i in chosen], [wanted[i] for i in chosen]

    pipeline = dali.Pipeline(
        batch_size=options.batch, num_threads=options.threads, device_id=0,
        prefetch_queue_depth=2,
    )  # fmt: skip
    with pipeline:
        data, size = fn.external_source(source, num_outputs=2, no_copy=True)
        decoding = {}
        if options.engines_only:
            decoding["hw_decoder_load"] = 1.0
        pixels = fn.decoders.image(data, device="mixed", output_type=types.RGB, **decoding)
        pipeline.set_outputs(fn.resize(pixels, size=size, interp_type=types.INTERP_CUBIC))
    pipeline.build()
    for _ in range(6):
        pipeline.run()

    def processor():
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime

    images, cpu, begin = 0, processor(), time.monotonic()
    while time.monotonic() - begin < options.seconds:
        pipeline.run()
        images += options.batch
    seconds = time.monotonic() - begin
    return {"kind": "dali", "version": dali.__version__, "batch": options.batch,
            "threads": options.threads, "engines_only": options.engines_only,
            "images_s": round(images / seconds, 1),
            "cpu_ms": round(1000 * (processor() - cpu) / images, 3)}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--max-pixels", type=int, default=1003520)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--engines-only", action="store_true",
                        help="the CPU and the GPU's cores decode none")  # fmt: skip
    options = parser.parse_args()
    if importlib.util.find_spec("nvidia") is None or (
        importlib.util.find_spec("nvidia.dali") is None
    ):
        print(json.dumps({"kind": "dali", "absent": "nvidia.dali cannot be imported: "
                          "pip install nvidia-dali-cuda130"}))  # fmt: skip
        return
    # Only JPEGs: DALI's engines decode no others.
    files = [data for data in baseline.files_of(options.folder) if data[:2] == b"\xff\xd8"]
    print(json.dumps(measure(files, options)), flush=True)


if __name__ == "__main__":
    main()
