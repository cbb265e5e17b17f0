"""The image processors of transformers, with the settings of our families.

Imported by the scripts of this folder that write vectors.
"""

import importlib
import importlib.util
import os
import sys

from PIL import Image

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "image"))
from vector_picture import picture  # noqa: E402

PLAIN = {"do_rescale": False, "do_normalize": False}

# Family -> module, class of the processor, settings. glm46v and smolvlm have the
# numbers of glm4v and idefics3.
IMAGE_PROCESSORS = {
    "aya_vision": (
        "got_ocr2",
        "GotOcr2ImageProcessor",
        {"crop_to_patches": True, "size": {"height": 364, "width": 364}},
    ),
    "ernie4_5_vl": (
        "ernie4_5_vl_moe",
        "Ernie4_5_VLMoeImageProcessor",
        {
            "patch_size": 14,
            "temporal_patch_size": 1,
            "merge_size": 2,
            "size": {"shortest_edge": 3136, "longest_edge": 4842768},
        },
    ),
    "gemma3": ("gemma3", "Gemma3ImageProcessor", {"size": {"height": 896, "width": 896}}),
    "gemma3_pan_and_scan": (
        "gemma3",
        "Gemma3ImageProcessor",
        {
            "size": {"height": 896, "width": 896},
            "do_pan_and_scan": True,
            "pan_and_scan_min_crop_size": 256,
            "pan_and_scan_max_num_crops": 4,
            "pan_and_scan_min_ratio_to_activate": 1.2,
        },
    ),
    "gemma4": ("gemma4", "Gemma4ImageProcessor", {}),
    "glm4v": ("glm4v", "Glm4vImageProcessor", {}),
    "hunyuan_vl": ("hunyuan_vl", "HunYuanVLImageProcessor", {}),
    "idefics3": ("idefics3", "Idefics3ImageProcessor", {}),
    "internvl3": (
        "got_ocr2",
        "GotOcr2ImageProcessor",
        {"crop_to_patches": True, "size": {"height": 448, "width": 448}},
    ),
    "kimi_k25": ("kimi_k25", "Kimi_K25ImageProcessor", {}),
    "llama4": ("llama4", "Llama4ImageProcessor", {}),
    "llava1_5": (
        "clip",
        "CLIPImageProcessor",
        {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}},
    ),
    "llava1_5_pad": (
        "llava",
        "LlavaImageProcessor",
        {
            "size": {"shortest_edge": 336},
            "do_pad": True,
            "crop_size": {"height": 336, "width": 336},
        },
    ),
    "llava_next": (
        "llava_next",
        "LlavaNextImageProcessor",
        {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}},
    ),
    "llava_onevision": ("llava_onevision", "LlavaOnevisionImageProcessor", {}),
    "minicpmv4_6": ("minicpmv4_6", "MiniCPMV4_6ImageProcessor", {}),
    "pixtral": ("pixtral", "PixtralImageProcessor", {}),
    "qianfan_ocr": (
        "got_ocr2",
        "GotOcr2ImageProcessor",
        {"crop_to_patches": True, "size": {"height": 448, "width": 448}},
    ),
    "siglip": ("siglip", "SiglipImageProcessor", {"size": {"height": 384, "width": 384}}),
    "siglip2": ("siglip2", "Siglip2ImageProcessor", {}),
    "smolvlm_500m": (
        "smolvlm",
        "SmolVLMImageProcessor",
        {"size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}},
    ),
    "vipllava": (
        "clip",
        "CLIPImageProcessor",
        {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}},
    ),
}

# Width and height: single pixels and lines, exact tile borders and one more,
# ties between grids, ratios at which rules change.
SIZES = [
    (1, 1),
    (1, 200),
    (200, 1),
    (1, 4000),
    (4000, 1),
    (13, 27),
    (27, 28),
    (28, 27),
    (70, 42),
    (336, 336),
    (337, 336),
    (336, 672),
    (672, 672),
    (448, 448),
    (449, 448),
    (896, 448),
    (600, 400),
    (364, 364),
    (728, 365),
    (512, 256),
    (614, 512),
    (615, 512),
    (300, 1100),
    (640, 48),
    (500, 500),
]


def drawn(width, height):
    return Image.frombytes("RGB", (width, height), picture(width, height))


def image_processor(family, library):
    """The processor of library `pillow12` or `torchvision`; None without one of both."""
    module, name, settings = IMAGE_PROCESSORS[family]
    suffix = "Pil" if library == "pillow12" else ""
    kind = "image_processing_pil" if suffix else "image_processing"
    if not suffix and importlib.util.find_spec("torchvision") is None:
        return None
    try:
        home = importlib.import_module(f"transformers.models.{module}.{kind}_{module}")
    except ImportError:
        return None
    return getattr(home, name + suffix)(**settings)
