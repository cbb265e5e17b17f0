"""Writes testdata/llava_video_vectors.json: what LLaVA-Video's training code makes of videos.

No package has that code, so its rules (LLaVA-NeXT, llava/utils.py, llava/train/train.py
and llava/model/llava_arch.py) are written here a second time, with NumPy and torch:
which frames are sampled, what the sentence of times says, and how many rows the model
puts in the place of a video. An entry without `frames_taken` is a video that it cannot
read.

    python make_llava_video_vectors.py testdata/llava_video_vectors.json
"""

import hashlib
import json
import random
import sys

import numpy
import torch

SENTENCE = (
    "The video lasts for {:.2f} seconds, and {} frames are uniformly sampled from it. These "
    "frames are located at {}.Please answer the following questions related to this video."
)
POOLS = ["bilinear", "average", "max"]
NEWLINES = ["grid", "frame", "one_token", "no_token"]


def sampled(frames, rate, fps, most, force):
    """The numbers of the frames, and their times."""
    step = round(rate / fps)
    taken = list(range(0, frames, step))
    times = [number / step for number in taken]
    if most > 0 and (force or len(taken) > most):
        taken = numpy.linspace(0, frames - 1, most, dtype=int).tolist()
        times = [number / rate for number in taken]
    return taken, times


def rows(frames, pool, newline):
    """Rows of the language model's input, from a tower's output of 27x27 patches a frame."""
    tower = torch.zeros(frames, 1, 27, 27)
    if pool == "bilinear":
        half = -(-27 // 2)
        pooled = torch.nn.functional.interpolate(tower, size=(half, half), mode="bilinear")
    elif pool == "average":
        pooled = torch.nn.functional.avg_pool2d(tower, 2)
    else:
        pooled = torch.nn.functional.max_pool2d(tower, 2)
    if newline == "grid":  # a column of newlines at the right of all frames' rows
        picture = torch.cat(list(pooled), dim=1)
        return torch.cat([picture, picture[:, :, :1]], dim=2).numel()
    if newline == "frame":
        lines = pooled.flatten(1)
        return torch.cat([lines, lines[:, :1]], dim=1).numel()
    line = pooled.flatten()
    return torch.cat([line, line[:1]]).numel() if newline == "one_token" else line.numel()


def answer(case):
    limits = case["limits"]
    try:
        taken, times = sampled(
            case["frames"],
            case["fps"],
            limits.get("fps", 1),
            limits.get("max_frames", 0),
            limits.get("force_sample", False),
        )
    except ValueError as error:
        return {"refused": str(error)}
    told = SENTENCE.format(
        case["frames"] / case["fps"], len(taken), ",".join("{:.2f}s".format(time) for time in times)
    )

    def digest(text):
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    return {
        "frames_taken": len(taken),
        "indices": digest(",".join(map(str, taken))),
        "times": told if len(told) < 400 else digest(told),
        "rows": rows(len(taken), case["pool"], case["newline"]),
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
    0.4,
    600 / 31,
    2.5,
    1.5,
    240.0,
    30.000000000000004,
]
FRAMES = [1, 2, 3, 7, 30, 59, 60, 61, 119, 300, 450, 1799, 1800, 1920, 1921, 9000, 53946]


def cases():
    draw = random.Random(61)
    for number in range(300):
        limits = {}
        if draw.random() < 0.4:
            limits["fps"] = draw.choice([0.25, 0.5, 1, 2, 3, 4, 60])
        if draw.random() < 0.7:
            limits["max_frames"] = draw.choice([1, 2, 8, 32, 64, 110])
            limits["force_sample"] = draw.random() < 0.5
        yield {
            "frames": draw.choice([*FRAMES, draw.randrange(1, 20000)]),
            "fps": draw.choice(RATES),
            "limits": limits,
            "pool": POOLS[number % 3],
            "newline": NEWLINES[number % 4],
        }


def main(path):
    with open(path, "w", encoding="utf-8") as file:
        lines = [json.dumps({**case, **answer(case)}) for case in cases()]
        file.write("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main(sys.argv[1])
