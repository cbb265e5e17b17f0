"""Writes testdata/video_plan_vectors.json: what Python makes of odd videos.

Runs qwen-vl-utils 0.0.14 and the video processors of transformers 5.23 (torch
2.15) over lengths, rates, sizes and limits, without a frame: readers and resizing
are replaced by ones that note what they were asked for. An entry without `count` is
a video that the Python code refuses. LLaVA-Video's: make_llava_video_vectors.py.

    python make_video_plan_vectors.py testdata/video_plan_vectors.json
"""

import hashlib
import json
import random
import sys
import types

import numpy
import torch
from qwen_vl_utils import vision_process
from transformers.image_utils import SizeDict
from transformers.models.internvl.video_processing_internvl import InternVLVideoProcessor
from transformers.models.llava_onevision.video_processing_llava_onevision import (
    LlavaOnevisionVideoProcessor,
)
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
from transformers.video_processing_utils import BaseVideoProcessor
from transformers.video_utils import VideoMetadata

PATCH = {"qwen2_vl": 14, "qwen2_5_vl": 14, "qwen3_vl": 16, "qwen3_5_vl": 16}
REFUSALS = (ValueError, ZeroDivisionError, AssertionError, RuntimeError, IndexError)


class Resized(Exception):
    """The size that a processor asks for."""


def note_size(*args, size=None, **kwargs):
    if size is None:
        size = args[1]
    raise Resized((size.height, size.width) if hasattr(size, "height") else tuple(size))


class FakeReader:
    """decord's, of frames of one pixel."""

    def __init__(self, case):
        self.case = case

    def __len__(self):
        return self.case["frames"]

    def get_avg_fps(self):
        return self.case["fps"]

    def get_batch(self, indices):
        return types.SimpleNamespace(
            asnumpy=lambda: numpy.zeros((len(indices), 1, 1, 3), numpy.uint8)
        )


def by_utils(case):
    noted = {}

    def read(ele):
        video, metadata, sampled_fps = vision_process._read_video_decord(ele)
        noted["indices"] = metadata["frames_indices"]
        noted["fps"] = sampled_fps
        return (video.expand(len(video), 3, case["height"], case["width"]), metadata, sampled_fps)

    sys.modules["decord"] = types.SimpleNamespace(VideoReader=lambda path: FakeReader(case))
    vision_process.VIDEO_READER_BACKENDS.update(torchcodec=read, torchvision=read, decord=read)
    element = {"video": "a.mp4", **case["limits"]}
    if "start" in case:
        element["video_start"] = case["start"]
    if "end" in case:
        element["video_end"] = case["end"]
    vision_process.transforms.functional.resize = note_size
    try:
        vision_process.fetch_video(element, image_patch_size=PATCH[case["model"]])
    except Resized as size:
        return noted["indices"], noted["fps"], size.args[0]
    raise AssertionError


def by_transformers(case):
    limits = dict(case["limits"])
    fps = limits.pop("fps", 2)
    metadata = VideoMetadata(total_num_frames=case["frames"], fps=case["fps"])
    if case["model"] == "internvl3":
        indices = InternVLVideoProcessor().sample_frames(metadata, fps=fps)
        size = (448, 448)
    elif case["model"] == "llava_onevision":
        indices = LlavaOnevisionVideoProcessor().sample_frames(metadata, fps=fps)
        size = (384, 384)
    else:
        kind = Qwen2VLVideoProcessor if case["model"].startswith("qwen2") else Qwen3VLVideoProcessor
        frames = {k: limits[k] for k in ("min_frames", "max_frames") if k in limits}
        processor = kind(**frames)
        indices = processor.sample_frames(metadata, fps=fps)
        indices = [int(i) for i in indices if int(i) < case["frames"]]
        factor = PATCH[case["model"]] * 2
        video = torch.empty(1).expand(1, len(indices), 3, case["height"], case["width"])
        size = SizeDict(
            shortest_edge=limits.get("min_pixels", processor.size["shortest_edge"]),
            longest_edge=limits.get("max_pixels", processor.size["longest_edge"]),
        )
        BaseVideoProcessor.resize = note_size
        try:
            processor.resize(
                video,
                size=size,
                resample=3,
                factor=factor,
                temporal_factor=2,
                cap_pixels_per_frame=limits.get("cap_pixels_per_frame"),
            )
        except Resized as resized:
            size = resized.args[0]
    # torch.arange may end with a frame that the video does not have, which readers
    # refuse or skip.
    metadata.frames_indices = [int(i) for i in indices if int(i) < case["frames"]]
    return metadata.frames_indices, metadata.sampled_fps, size


def answer(case):
    oracle = by_utils if case["sampling"] == "own" else by_transformers
    try:
        indices, sampled_fps, size = oracle(case)
    except REFUSALS as error:
        return {"refused": str(error)[:60]}
    indices = [int(i) for i in indices]
    temporal = 2 if case["model"] in PATCH else 1
    seconds = Qwen3VLProcessor._calculate_timestamps(None, list(indices), case["fps"], temporal)

    def text(values):
        return hashlib.sha256(",".join(values).encode()).hexdigest()[:16]

    return {
        "count": len(indices),
        "indices": text(map(str, indices)),
        "height_out": size[0],
        "width_out": size[1],
        "seconds": text("%.9f" % s for s in seconds),
        "seconds_per_patch": temporal / sampled_fps,
    }


RATES = [
    30.0,
    30000 / 1001,
    24000 / 1001,
    25.0,
    60.0,
    15.0,
    12.5,
    1.0,
    0.5,
    600 / 31,
    240.0,
    30.000000000000004,
]
FRAMES = [
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    30,
    59,
    60,
    61,
    119,
    300,
    450,
    1799,
    1800,
    9000,
    11520,
    53946,
    107892,
    216000,
]
SIZES = [
    (1080, 1920),
    (1920, 1080),
    (240, 320),
    (242, 322),
    (721, 1281),
    (16, 16),
    (10, 500),
    (2160, 3840),
    (100, 30000),
    (27, 41),
    (480, 854),
]


def limits_of(random_, sampling):
    limits = {}
    if random_.random() < 0.4:
        limits["fps"] = random_.choice([0.25, 0.5, 1, 1.5, 2, 3, 4, 6])
    if random_.random() < 0.3:
        limits["min_frames"] = random_.choice([2, 3, 4, 8, 17])
    if random_.random() < 0.3:
        limits["max_frames"] = random_.choice([4, 9, 32, 64, 128, 510])
    if random_.random() < 0.3:
        limits["min_pixels"] = random_.choice([3136, 28 * 28 * 16, 256 * 28 * 28])
    if random_.random() < 0.3:
        limits["max_pixels"] = random_.choice([360 * 420, 602112, 1003520, 12845056, 25165824])
    if sampling == "own" and random_.random() < 0.3:
        limits["total_pixels"] = random_.choice([20480 * 28 * 28, 1003520, 24576 * 28 * 28])
    if sampling != "own" and random_.random() < 0.4:
        limits["cap_pixels_per_frame"] = True
    return limits


def cases():
    random_ = random.Random(23)
    for model in (
        "qwen2_vl",
        "qwen2_5_vl",
        "qwen3_vl",
        "qwen3_5_vl",
        "llava_video",
        "llava_onevision",
        "internvl3",
    ):
        for sampling in ("own", "transformers"):
            if (model, sampling) in (
                ("internvl3", "own"),
                ("llava_onevision", "own"),
                ("llava_video", "transformers"),
            ):
                continue
            for number in range(120 if model in PATCH else 60):
                limits = limits_of(random_, sampling)
                if model not in PATCH:
                    limits = {
                        k: v
                        for k, v in limits.items()
                        if k == "fps" or (k == "max_frames" and model == "llava_video")
                    }
                height, width = random_.choice(SIZES)
                frames = (
                    FRAMES[number]
                    if number < len(FRAMES)
                    else random_.choice(FRAMES + [random_.randrange(2, 20000)] * 20)
                )
                case = {
                    "model": model,
                    "sampling": sampling,
                    "limits": limits,
                    "frames": frames,
                    "fps": random_.choice(RATES),
                    "height": height,
                    "width": width,
                }
                if sampling == "own" and model in PATCH and random_.random() < 0.3:
                    length = frames / case["fps"]
                    case["start"] = round(random_.uniform(-1, length), 3)
                    if random_.random() < 0.7:
                        case["end"] = round(random_.uniform(0, length * 1.2), 3)
                if model != "llava_video":  # which was here, and moved the draws
                    yield case


def main(path):
    with open(path, "w") as file:
        lines = [json.dumps({**case, **answer(case)}) for case in cases()]
        file.write("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main(sys.argv[1])
