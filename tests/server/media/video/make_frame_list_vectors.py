"""Writes testdata/frame_list_vectors.json: what Python makes of lists of pictures.

Runs qwen-vl-utils 0.0.14 and the processors of transformers 5.23 (torch 2.15) over
lists of grey pictures. An entry without `height_out` is a list that they refuse.

    python make_frame_list_vectors.py testdata/frame_list_vectors.json
"""

import json
import random
import sys

import torch
from PIL import Image
from qwen_vl_utils import vision_process
from transformers.image_utils import SizeDict
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
from transformers.video_utils import VideoMetadata

PATCH = {"qwen2_vl": 14, "qwen2_5_vl": 14, "qwen3_vl": 16, "qwen3_5_vl": 16}
SIZES = [
    (90, 130),
    (240, 320),
    (322, 242),
    (16, 16),
    (10, 500),
    (27, 41),
    (480, 854),
    (9, 2000),
    (56, 56),
    (64, 300),
]


def by_utils(case):
    element = {
        "type": "video",
        **case["limits"],
        "video": [Image.new("RGB", (case["width"], case["height"])) for _ in range(case["count"])],
    }
    if case["fps"]:
        element["sample_fps"] = case["fps"]
    noted = {}
    resize = vision_process.transforms.functional.resize

    def note(video, *args, **kwargs):
        noted["first"] = tuple(video.shape[-2:])
        return resize(video, *args, **kwargs)

    vision_process.transforms.functional.resize = note
    try:
        (video, metadata), fps = vision_process.fetch_video(
            element,
            image_patch_size=PATCH[case["model"]],
            return_video_sample_fps=True,
            return_video_metadata=True,
        )
    finally:
        vision_process.transforms.functional.resize = resize
    return noted["first"], tuple(video.shape[-2:]), fps, metadata


def by_transformers(case):
    kind = Qwen2VLVideoProcessor if case["model"].startswith("qwen2") else Qwen3VLVideoProcessor
    processor = kind()
    limits = case["limits"]
    size = SizeDict(
        shortest_edge=limits.get("min_pixels", processor.size["shortest_edge"]),
        longest_edge=limits.get("max_pixels", processor.size["longest_edge"]),
    )
    video = torch.zeros((1, case["count"], 3, case["height"], case["width"]), dtype=torch.uint8)
    resized = processor.resize(
        video,
        size=size,
        resample=3,
        factor=PATCH[case["model"]] * 2,
        temporal_factor=2,
        cap_pixels_per_frame=limits.get("cap_pixels_per_frame"),
    )
    metadata = VideoMetadata(
        total_num_frames=case["count"],
        fps=case["fps"] or None,
        frames_indices=list(range(case["count"])),
    )
    # Qwen2.5's and Qwen3's processors alike.
    fps = metadata.sampled_fps
    return (
        (0, 0),
        tuple(resized.shape[-2:]),
        fps,
        {"fps": metadata.fps or 24, "frames_indices": metadata.frames_indices},
    )


def answer(case):
    try:
        first, size, fps, metadata = (by_utils if case["sampling"] == "own" else by_transformers)(
            case
        )
    except (ValueError, AssertionError, RuntimeError) as error:
        return {"refused": str(error)[:60]}
    return {
        "first": first,
        "height_out": size[0],
        "width_out": size[1],
        "seconds_per_patch": 2 / fps,
        "seconds": Qwen3VLProcessor._calculate_timestamps(
            None, list(metadata["frames_indices"]), metadata["fps"], 2
        ),
    }


def cases():
    random_ = random.Random(23)
    for model in PATCH:
        for sampling in ("own", "transformers"):
            for _ in range(30):
                limits = {}
                if random_.random() < 0.3:
                    limits["min_pixels"] = random_.choice([3136, 28 * 28 * 16])
                if random_.random() < 0.4:
                    limits["max_pixels"] = random_.choice([12544, 360 * 420, 602112])
                if sampling == "own" and random_.random() < 0.3:
                    limits["total_pixels"] = random_.choice([200704, 1003520])
                if sampling != "own" and random_.random() < 0.3:
                    limits["cap_pixels_per_frame"] = True
                height, width = random_.choice(SIZES)
                yield {
                    "model": model,
                    "sampling": sampling,
                    "limits": limits,
                    "count": random_.choice([1, 2, 3, 4, 5, 8, 9]),
                    "fps": random_.choice([0, 0, 1, 0.5, 3, 29.97]),
                    "height": height,
                    "width": width,
                }


def main(path):
    with open(path, "w") as file:
        lines = [json.dumps({**case, **answer(case)}) for case in cases()]
        file.write("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main(sys.argv[1])
