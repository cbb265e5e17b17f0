"""Writes testdata/resize_vectors.json: resized pixels of the libraries.

Adds the vectors of the installed Pillow (12 or 13) and, if it is there, of
torchvision; run it once with each Pillow. resize_test.cc draws the same
pictures.

    python make_resize_vectors.py testdata/resize_vectors.json
"""

import json
import os
import sys

import PIL
from PIL import Image

from vector_picture import picture, sha256

# Width and height before and after: growing, shrinking, both, one side only,
# very tall ones, and sides at which Pillow 13 changes its order of passes.
SIZES = [
    (1, 1, 5, 4),
    (7, 5, 20, 31),
    (40, 30, 13, 11),
    (64, 48, 67, 40),
    (64, 48, 40, 67),
    (33, 9, 33, 4),
    (33, 9, 12, 9),
    (200, 3, 28, 28),
    (3, 410, 2, 30),
    (3, 410, 2, 409),
    (2, 150, 1, 149),
    (90, 60, 70, 20),
    (90, 60, 70, 19),
    (90, 60, 70, 21),
    (61, 200, 31, 139),
    (400, 300, 224, 224),
]
FILTERS = {"box": 4, "bilinear": 2, "bicubic": 3, "lanczos": 1}


def pillow():
    vectors = []
    for name, code in FILTERS.items():
        for w, h, new_w, new_h in SIZES:
            image = Image.frombytes("RGB", (w, h), picture(w, h))
            resized = image.resize((new_w, new_h), code).tobytes()
            vectors.append([name, w, h, new_w, new_h, sha256(resized)])
    return vectors


def torchvision():
    import numpy
    import torch
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.v2 import functional

    vectors = []
    for name in FILTERS:
        if name == "box":  # not for tensors
            continue
        for w, h, new_w, new_h in SIZES:
            image = numpy.frombuffer(picture(w, h), numpy.uint8).reshape(h, w, 3)
            tensor = torch.from_numpy(image.copy()).permute(2, 0, 1)
            resized = functional.resize(
                tensor, [new_h, new_w], interpolation=InterpolationMode(name), antialias=True
            )
            pixels = resized.permute(1, 2, 0).contiguous().numpy().tobytes()
            vectors.append([name, w, h, new_w, new_h, sha256(pixels)])
    return vectors


def main(path):
    vectors = {}
    if os.path.exists(path):
        with open(path) as file:
            vectors = json.load(file)
    major = PIL.__version__.split(".")[0]
    vectors[f"pillow{major}"] = {"version": PIL.__version__, "vectors": pillow()}
    try:
        import torchvision as installed

        vectors["torchvision"] = {"version": installed.__version__, "vectors": torchvision()}
    except ImportError:
        pass
    with open(path, "w") as file:
        file.write(
            "{\n"
            + ",\n".join(
                f'"{library}": {{"version": "{made["version"]}", "vectors": [\n'
                + ",\n".join(json.dumps(v) for v in made["vectors"])
                + "]}"
                for library, made in sorted(vectors.items())
            )
            + "}\n"
        )


if __name__ == "__main__":
    main(sys.argv[1])
