"""Writes testdata/plan_vectors.json: what image processors make of odd sizes.

Runs the processors of transformers 5.23 over drawn pictures: those with Pillow
(12.3) as the library `pillow12`, those with torchvision (0.29) as
`torchvision`. plan_vectors_test.cc draws the same pictures. An entry without
crops and patches is a size that the processor refuses. The hash of crops is that
of their hashes in hex, one after the other.

    python make_plan_vectors.py testdata/plan_vectors.json
"""

import hashlib
import importlib
import json
import sys

import numpy
from PIL import Image

PLAIN = {"do_rescale": False, "do_normalize": False}

# Family -> module, class of the processor, settings. glm46v and smolvlm have the
# numbers of glm4v and idefics3.
FAMILIES = {
    "ernie4_5_vl": ("ernie4_5_vl_moe", "Ernie4_5_VLMoeImageProcessor", {
        "patch_size": 14, "temporal_patch_size": 1, "merge_size": 2,
        "size": {"shortest_edge": 3136, "longest_edge": 4842768}}),
    "gemma3": ("gemma3", "Gemma3ImageProcessor",
               {"size": {"height": 896, "width": 896}}),
    "gemma3_pan_and_scan": ("gemma3", "Gemma3ImageProcessor", {
        "size": {"height": 896, "width": 896}, "do_pan_and_scan": True,
        "pan_and_scan_min_crop_size": 256, "pan_and_scan_max_num_crops": 4,
        "pan_and_scan_min_ratio_to_activate": 1.2}),
    "gemma4": ("gemma4", "Gemma4ImageProcessor", {}),
    "glm4v": ("glm4v", "Glm4vImageProcessor", {}),
    "hunyuan_vl": ("hunyuan_vl", "HunYuanVLImageProcessor", {}),
    "idefics3": ("idefics3", "Idefics3ImageProcessor", {}),
    "internvl3": ("got_ocr2", "GotOcr2ImageProcessor", {
        "crop_to_patches": True, "size": {"height": 448, "width": 448}}),
    "kimi_k25": ("kimi_k25", "Kimi_K25ImageProcessor", {}),
    "llama4": ("llama4", "Llama4ImageProcessor", {}),
    "llava1_5": ("clip", "CLIPImageProcessor", {
        "size": {"shortest_edge": 336},
        "crop_size": {"height": 336, "width": 336}}),
    "llava1_5_pad": ("llava", "LlavaImageProcessor", {
        "size": {"shortest_edge": 336}, "do_pad": True,
        "crop_size": {"height": 336, "width": 336}}),
    "llava_next": ("llava_next", "LlavaNextImageProcessor", {
        "size": {"shortest_edge": 336},
        "crop_size": {"height": 336, "width": 336}}),
    "llava_onevision": ("llava_onevision", "LlavaOnevisionImageProcessor", {}),
    "minicpmv4_6": ("minicpmv4_6", "MiniCPMV4_6ImageProcessor", {}),
    "pixtral": ("pixtral", "PixtralImageProcessor", {}),
    "siglip": ("siglip", "SiglipImageProcessor",
               {"size": {"height": 384, "width": 384}}),
    "siglip2": ("siglip2", "Siglip2ImageProcessor", {}),
}

# Width and height: single pixels and lines, exact tile borders and one more,
# ties between grids, ratios at which rules change.
SIZES = [
    (1, 1), (1, 200), (200, 1), (1, 4000), (4000, 1), (13, 27), (27, 28),
    (28, 27), (70, 42), (336, 336), (337, 336), (336, 672), (672, 672),
    (448, 448), (449, 448), (896, 448), (600, 400), (364, 364), (728, 365),
    (512, 256), (614, 512), (615, 512), (300, 1100), (640, 48), (500, 500),
]
# Enough for torchvision where the processor with Pillow has all others.
FEW_SIZES = [(1, 200), (336, 672), (615, 512), (300, 1100)]
# Families whose pictures of 1x4000 take gigabytes in the processor.
TOO_LONG = {"llava1_5": 600}


def picture(width, height):
    """Bytes of a linear congruential generator, with stretches of extremes."""
    state = width * 65536 + height
    out = bytearray()
    for i in range(width * height * 3):
        state = (state * 1664525 + 1013904223) % (1 << 32)
        out.append((i // 17 % 2) * 255 if i // 97 % 3 == 0 else state >> 24)
    return bytes(out)


def sha256(values):
    values = numpy.ascontiguousarray(values)
    assert (values == values.astype(numpy.uint8)).all()
    return hashlib.sha256(values.astype(numpy.uint8).tobytes()).hexdigest()


def arrays_of(pixels):
    """The tensors of a processor's answer, as NumPy arrays."""
    if isinstance(pixels, (list, tuple)):
        return [array for item in pixels for array in arrays_of(item)]
    return [numpy.asarray(pixels)]


def entry(processor, width, height):
    image = Image.frombytes("RGB", (width, height), picture(width, height))
    try:
        answer = processor(images=[image], **PLAIN)
    except (ValueError, ZeroDivisionError, RuntimeError) as error:
        print("  refused", width, height, str(error)[:90])
        return {}
    arrays = arrays_of(answer["pixel_values"])
    if all(a.ndim >= 3 and a.shape[-3] == 3 and
           a.shape[-2:] != (14, 14) and a.shape[-2] != 14 for a in arrays):
        crops = [crop for a in arrays for crop in a.reshape(-1, *a.shape[-3:])]
        ((height, width),) = {crop.shape[1:] for crop in crops}
        hashes = "".join(sha256(crop.transpose(1, 2, 0)) for crop in crops)
        return {"crops": {"count": len(crops), "height": height, "width": width,
                          "sha256": hashlib.sha256(hashes.encode()).hexdigest()}}
    (array,) = arrays
    return {"patches": {"shape": list(array.shape), "sha256": sha256(array)}}


def main(path):
    vectors = []
    for family, (module, name, settings) in FAMILIES.items():
        sizes = SIZES
        for library, suffix in (("pillow12", "Pil"), ("torchvision", "")):
            kind = "image_processing_pil" if suffix else "image_processing"
            try:
                home = importlib.import_module(
                    f"transformers.models.{module}.{kind}_{module}")
            except ImportError:
                continue  # of torchvision only
            processor = getattr(home, name + suffix)(**settings)
            print(family, library)
            for width, height in sizes:
                if max(width, height) > TOO_LONG.get(family, 10**9):
                    continue
                vectors.append({"family": family, "library": library,
                                "width": width, "height": height,
                                **entry(processor, width, height)})
            sizes = FEW_SIZES
    with open(path, "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(v) for v in vectors) + "\n]\n")


if __name__ == "__main__":
    main(sys.argv[1])
