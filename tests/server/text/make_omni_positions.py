#!/usr/bin/env python3
"""Writes positions of the omni models as transformers' get_rope_index computes them.

    python3 make_omni_positions.py testdata/omni_positions.json

A line has a sample's ids as runs [id, count], the grids of its images, and of each video
the grid, the seconds between patches and the tokens of its audio (0: none); then the time,
row and column of each token. Videos and their audio stand as the processors order them.
Needs transformers and torch; written with transformers 5.23.
"""

import json
import sys
import types

import numpy
import torch
from transformers.models.qwen2_5_omni import modeling_qwen2_5_omni as two
from transformers.models.qwen2_5_omni import processing_qwen2_5_omni as of_two
from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as three
from transformers.models.qwen3_omni_moe import processing_qwen3_omni_moe as of_three

IDS = {"image": 151655, "video": 151656, "audio": 151646, "vision_start": 151652,
       "vision_end": 151653, "audio_start": 151669, "audio_end": 151670}  # fmt: skip
TEXT = 11
# Parts of samples: a number of tokens of text; an image's grid; a clip's tokens; a video's
# grid, seconds a patch and tokens of its audio.
CASES = [
    [3, ("image", [1, 4, 6]), 2],
    [3, ("video", [3, 4, 6], 1.0, 0), 4, ("image", [1, 4, 4]), 1],
    [1, ("video", [3, 4, 4], 0.7, 0), 5, ("video", [2, 4, 4], 1.3, 0), 2],
    [4, ("audio", 13), 2],
    [2, ("video", [3, 4, 6], 1.0, 40), 3],
    [2, ("audio", 7), 1, ("video", [3, 4, 4], 0.7, 30), 2, ("audio", 5), 0,
     ("video", [2, 4, 4], 1.3, 26), 2, ("image", [1, 2, 2]), 3],
    [40, ("video", [4, 4, 4], 0.83, 50), 60, ("audio", 25), 70],
]  # fmt: skip


def frames_of(model, tokens):
    """The least frames of which the model makes so many tokens."""
    if model == "qwen2_5_omni":
        return next(f for f in range(1, 10000) if ((f - 1) // 2 + 1 - 2) // 2 + 1 == tokens)
    return next(f for f in range(1, 10000)
                if of_three._get_feat_extract_output_lengths(f) == tokens)  # fmt: skip


def heard_and_seen(model, grid, seconds, tokens):
    """The order of a video's tokens and its audio's, as ids."""
    kind, ids = (
        (of_two.Qwen2_5OmniProcessor, 25)
        if model == "qwen2_5_omni"
        else (of_three.Qwen3OmniMoeProcessor, 13.0)
    )
    processor = types.SimpleNamespace(
        video_processor=types.SimpleNamespace(merge_size=2), audio_bos_token="b",
        audio_eos_token="e", video_token="v", audio_token="a",
        get_chunked_index=lambda *given: kind.get_chunked_index(None, *given))  # fmt: skip
    text = kind.replace_video_with_audio_token(
        processor, {"video_grid_thw": numpy.array([grid]), "video_second_per_grid": [seconds]}, 0,
        {"num_audio_tokens": [tokens]}, 0, position_id_per_seconds=ids, seconds_per_chunk=2.0)  # fmt: skip
    names = {"b": "audio_start", "e": "audio_end", "v": "video", "a": "audio"}
    return [IDS[names[letter]] for letter in text]


def positions(model, parts):
    ids, images, videos, lengths, in_video = [], [], [], [], False
    for part in parts:
        if isinstance(part, int):
            ids += [TEXT] * part
            continue
        kind, *rest = part
        if kind == "audio":
            ids += [IDS["audio_start"], *[IDS["audio"]] * rest[0], IDS["audio_end"]]
            lengths.append(frames_of(model, rest[0]))
            continue
        t, h, w = rest[0]
        count = t * h * w // 4
        if kind == "image":
            images.append(rest[0])
            inside = [IDS["image"]] * count
        elif rest[2] == 0:
            videos.append(rest)
            inside = [IDS["video"]] * count
        else:
            in_video = True
            videos.append(rest)
            lengths.append(frames_of(model, rest[2]))
            inside = heard_and_seen(model, *rest)
        ids += [IDS["vision_start"], *inside, IDS["vision_end"]]
    module, ids_per_second = (two, 25) if model == "qwen2_5_omni" else (three, 13)
    name = {"qwen2_5_omni": "Qwen2_5OmniPreTrainedModelForConditionalGeneration",
            "qwen3_omni_moe": "Qwen3OmniMoePreTrainedModelForConditionalGeneration"}[model]  # fmt: skip
    base = getattr(module, name)
    thinker = types.SimpleNamespace(
        spatial_merge_size=2,
        config=types.SimpleNamespace(
            image_token_id=IDS["image"], video_token_id=IDS["video"], audio_token_id=IDS["audio"],
            vision_start_token_id=IDS["vision_start"], audio_start_token_id=IDS["audio_start"],
            position_id_per_seconds=ids_per_second, seconds_per_chunk=2,
            audio_config=types.SimpleNamespace(n_window=50)),
        get_llm_pos_ids_for_vision=lambda *given: base.get_llm_pos_ids_for_vision(None, *given),
        get_chunked_index=lambda *given: base.get_chunked_index(None, *given))  # fmt: skip
    tensor = torch.tensor
    found, _ = base.get_rope_index(
        thinker, tensor([ids]), tensor(images) if images else None,
        tensor([v[0] for v in videos]) if videos else None,
        torch.ones(1, len(ids), dtype=torch.int64), in_video,
        tensor(lengths) if lengths else None,
        tensor([v[1] for v in videos]) if videos else None)  # fmt: skip
    return ids, images, videos, found[:, 0]


def runs(values):
    found = []
    for value in values:
        if found and found[-1][0] == value:
            found[-1][1] += 1
        else:
            found.append([value, 1])
    return found


def main():
    lines = []
    for model in ("qwen2_5_omni", "qwen3_omni_moe"):
        for parts in CASES:
            if all(isinstance(part, int) or part[0] == "audio" for part in parts):
                # get_rope_index numbers texts without images otherwise, to the same effect.
                parts = [*parts, ("image", [1, 2, 2]), 1]
            ids, images, videos, found = positions(model, parts)
            lines.append(json.dumps({"model": model, "ids": runs(ids), "images": images,
                                     "videos": videos, "positions": found.tolist()}))  # fmt: skip
    with open(sys.argv[1], "w") as out:
        out.write("[" + ",\n".join(lines) + "]\n")


main()
