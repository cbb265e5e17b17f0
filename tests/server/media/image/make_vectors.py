#!/usr/bin/env python3
"""Writes the small images of testdata/ and Pillow's pixels of them.

    pip install pillow==12.3.0
    tests/server/media/image/make_vectors.py
    tests/server/media/image/make_vectors.py --arm     # then, on an ARM machine

vectors.json names the Pillow that was used and holds, for each file: its size,
SHA-256 of convert("RGB")'s bytes, SHA-256 of several BICUBIC sizes, and the
length of the shortest prefix that is accepted (it and all longer ones give the
same pixels, all shorter ones are refused). For files with an EXIF orientation it
also has these for exif_transpose's picture. `refused` lists files that Pillow does
not open, or that we refuse on purpose.

damaged.json holds bytes to change in these files, and Pillow's verdict on each:
SHA-256 of the pixels, or null where it refuses. Coefficients that overflow have
other pixels in libjpeg-turbo's code for ARM: `arm_rgb_sha256`, where it differs.

vector_files.py draws the files.
"""

import hashlib
import io
import json
import math
import pathlib
import sys
import warnings

import PIL
from PIL import Image, ImageOps, features

from vector_files import RANDOM, jpegs, others, pngs, webps

warnings.simplefilter("ignore")
OUT = pathlib.Path(__file__).parent / "testdata"

# Pillow leaves the missing rows black; see docs/decisions/0006.
REFUSED_BY_US = {"early_end_of_whole_rows.png"}


# ---- damage ------------------------------------------------------------------

DAMAGED = ["420.jpg", "444.jpg", "420_progressive.jpg", "420_restarts.jpg",
           "grey.jpg", "cmyk_adobe.jpg", "rgb8.png", "palette4.png",
           "rgba16_interlaced.png", "grey1.png", "lossy.webp", "lossless.webp",
           "lossy_alpha.webp", "animated.webp"]  # fmt: skip


def damages(size):
    """Changes of one to three bytes; half of them among the first 200."""
    for n in range(40):
        changes = {}
        for _ in range(1 + n % 3):
            at = RANDOM.randrange(size if n % 2 else min(size, 200))
            changes[at] = RANDOM.randrange(256)
        yield sorted(changes.items())


def verdict(file, changes):
    data = bytearray((OUT / file).read_bytes())
    for at, value in changes:
        data[at] = value
    image = decoded(bytes(data))
    return None if image is None else sha256(image)


def damaged():
    for file in DAMAGED:
        for changes in damages((OUT / file).stat().st_size):
            yield {"file": file, "changes": changes, "rgb_sha256": verdict(file, changes)}


def damaged_on_arm():
    for case in json.loads((OUT / "damaged.json").read_text()):
        found = verdict(case["file"], case["changes"])
        yield case if found == case["rgb_sha256"] else {**case, "arm_rgb_sha256": found}


# ---- Pillow's results
# ---------------------------------------------------------


def decoded(data):
    try:
        with Image.open(io.BytesIO(data)) as image:
            return image.convert("RGB")
    except Exception:  # Pillow raises many kinds.
        return None


def sha256(image):
    return hashlib.sha256(image.tobytes()).hexdigest()


def sizes(width, height):
    yield width, height
    yield 1, 1
    yield width, height * 2 + 1
    yield width * 3 - 1, height
    yield width * 2, height * 3
    yield max(1, width // 2), max(1, height // 3)
    yield max(1, width // 7), height + 5
    yield 56, 28
    if max(width, height) <= 200 * min(width, height):
        yield smart_resize(width, height, 28, 3136, 1003520)
        yield smart_resize(width, height, 32, 65536, 1048576)


def smart_resize(width, height, factor, least, most):
    """The size that the Qwen processors choose."""
    w, h = (round(side / factor) * factor for side in (width, height))
    if w * h > most:
        beta = math.sqrt(width * height / most)
        w, h = (max(factor, math.floor(side / beta / factor) * factor) for side in (width, height))
    elif w * h < least:
        beta = math.sqrt(least / (width * height))
        w, h = (math.ceil(side * beta / factor) * factor for side in (width, height))
    return w, h


def resized(image):
    return [
        {
            "width": w,
            "height": h,
            "sha256": sha256(image.resize((w, h), Image.Resampling.BICUBIC)),
        }
        for w, h in sizes(*image.size)
    ]


def transposed(data):
    """The picture rotated as EXIF says; unchanged without EXIF."""
    with Image.open(io.BytesIO(data)) as image:
        if image.getexif().get(0x0112, 1) == 1:
            return {}
        turned = ImageOps.exif_transpose(image).convert("RGB")
    return {
        "transposed": {
            "width": turned.width,
            "height": turned.height,
            "rgb_sha256": sha256(turned),
            "resized": resized(turned),
        }
    }


def shortest_accepted(data, image):
    """Also checks that all longer prefixes are accepted with the same pixels."""
    shortest = next(n for n in range(len(data) + 1) if decoded(data[:n]))
    for n in range(shortest, len(data)):
        assert decoded(data[:n]).tobytes() == image.tobytes(), n
    return shortest


def in_lines(values):
    """A JSON list with a line for each value."""
    return "[\n" + ",\n".join(map(json.dumps, values)) + "\n]"


def main():
    if "--arm" in sys.argv:
        (OUT / "damaged.json").write_text(in_lines(list(damaged_on_arm())) + "\n")
        return
    OUT.mkdir(exist_ok=True)
    for old in OUT.iterdir():
        old.unlink()
    files, refused = [], []
    drawn = [
        (f"{name}.{extension}", data)
        for kind, extension in ((jpegs, "jpg"), (pngs, "png"), (webps, "webp"))
        for name, data in kind()
    ]
    for file, data in drawn + list(others()):
        (OUT / file).write_bytes(data)
        image = decoded(data)
        if image is None or file in REFUSED_BY_US:
            refused.append(file)
            continue
        files.append(
            {
                "file": file,
                "width": image.width,
                "height": image.height,
                "rgb_sha256": sha256(image),
                "shortest_accepted": shortest_accepted(data, image),
                "resized": resized(image),
                **transposed(data),
            }
        )
    made_by = {
        "pillow": PIL.__version__,
        **{n: features.version(n) for n in ("libjpeg_turbo", "webp", "zlib")},
    }
    head = json.dumps({"made_by": made_by, "refused": refused})[:-1]
    (OUT / "vectors.json").write_text(f'{head}, "files": {in_lines(files)}}}\n')
    (OUT / "damaged.json").write_text(in_lines(list(damaged())) + "\n")


if __name__ == "__main__":
    if {"--help", "-h"} & set(sys.argv[1:]):
        print(__doc__, end="")
        sys.exit()
    main()
