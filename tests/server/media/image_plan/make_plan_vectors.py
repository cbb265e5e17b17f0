"""Writes testdata/plan_vectors.json: what image processors make of odd sizes.

Runs the processors of transformers 5.23 over drawn pictures: those with Pillow
(12.3) as the library `pillow12`, those with torchvision (0.29) as
`torchvision`. plan_vectors_test.cc draws the same pictures. An entry without
crops and patches is a size that the processor refuses. The hash of crops is that
of their hashes in hex, one after the other.

    python make_plan_vectors.py testdata/plan_vectors.json            # all
    python make_plan_vectors.py testdata/plan_vectors.json vipllava   # one of them anew
"""

import json
import sys

import numpy

from image_processors import PLAIN, SIZES, drawn, image_processor, IMAGE_PROCESSORS
from vector_picture import sha256

# Enough for torchvision where the processor with Pillow has all others.
FEW_SIZES = [(1, 200), (336, 672), (615, 512), (300, 1100)]
# Families whose pictures of 1x4000 take gigabytes in the processor.
TOO_LONG = {"llava1_5": 600, "vipllava": 600}


def digest(values):
    values = numpy.ascontiguousarray(values)
    assert (values == values.astype(numpy.uint8)).all()
    return sha256(values.astype(numpy.uint8).tobytes())


def arrays_of(pixels):
    """The tensors of a processor's answer, as NumPy arrays."""
    if isinstance(pixels, (list, tuple)):
        return [array for item in pixels for array in arrays_of(item)]
    return [numpy.asarray(pixels)]


def entry(processor, width, height):
    try:
        answer = processor(images=[drawn(width, height)], **PLAIN)
    except (ValueError, ZeroDivisionError, RuntimeError) as error:
        print("  refused", width, height, str(error)[:90])
        return {}
    arrays = arrays_of(answer["pixel_values"])
    if all(
        a.ndim >= 3 and a.shape[-3] == 3 and a.shape[-2:] != (14, 14) and a.shape[-2] != 14
        for a in arrays
    ):
        crops = [crop for a in arrays for crop in a.reshape(-1, *a.shape[-3:])]
        ((height, width),) = {crop.shape[1:] for crop in crops}
        hashes = "".join(digest(crop.transpose(1, 2, 0)) for crop in crops)
        return {
            "crops": {
                "count": len(crops),
                "height": height,
                "width": width,
                "sha256": sha256(hashes.encode()),
            }
        }
    (array,) = arrays
    return {"patches": {"shape": list(array.shape), "sha256": digest(array)}}


def main(path, families):
    vectors = []
    if families:
        with open(path) as file:
            vectors = [v for v in json.load(file) if v["family"] not in families]
    for family in families or IMAGE_PROCESSORS:
        sizes = SIZES
        for library in ("pillow12", "torchvision"):
            processor = image_processor(family, library)
            if processor is None:
                continue  # of torchvision only
            print(family, library)
            for width, height in sizes:
                if max(width, height) > TOO_LONG.get(family, 10**9):
                    continue
                vectors.append(
                    {
                        "family": family,
                        "library": library,
                        "width": width,
                        "height": height,
                        **entry(processor, width, height),
                    }
                )
            sizes = FEW_SIZES
    with open(path, "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(v) for v in vectors) + "\n]\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
