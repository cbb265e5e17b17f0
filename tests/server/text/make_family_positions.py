#!/usr/bin/env python3
"""Writes testdata/family_positions.json: position ids of transformers' models.

    pip install transformers==5.23.0 torch
    python3 make_family_positions.py testdata/family_positions.json

A case has a sample's length, its images as [first placeholder, rows, columns] in
tokens, and the ids as the model's get_rope_index answers them, axis by axis. Gemma 3
and Llama 4 count from 0, which their models do without a function of that kind.
"""

import json
import sys
import types

import torch
from transformers.models.ernie4_5_vl_moe.modeling_ernie4_5_vl_moe import Ernie4_5_VLMoeModel
from transformers.models.glm46v.modeling_glm46v import Glm46VModel
from transformers.models.glm4v.modeling_glm4v import Glm4vModel
from transformers.models.hunyuan_vl.modeling_hunyuan_vl import HunYuanVLModel

MODELS = {
    "ernie4_5_vl": Ernie4_5_VLMoeModel,
    "glm46v": Glm46VModel,
    "glm4v": Glm4vModel,
    "hunyuan_vl": HunYuanVLModel,
}
# Tokens of text, and images of (rows, columns) tokens.
SAMPLES = [
    [3],
    [2, (1, 1), 1],
    [(2, 3), 4],
    [1, (5, 2)],
    [3, (2, 2), 1, (1, 6), 5],
    [2, (4, 4), 1, (4, 4), 1, (3, 1), 2],
]


def positions(family, sample):
    kind = MODELS[family]
    extra = (lambda h, w: h * (w + 1) + 2) if family == "hunyuan_vl" else (lambda h, w: h * w)
    types_of, images, grids = [], [], []
    for part in sample:
        if isinstance(part, int):
            types_of += [0] * part
        else:
            images.append([len(types_of), *part])
            grids.append([1, part[0] * 2, part[1] * 2])
            types_of += [1] * extra(*part)
    config = types.SimpleNamespace(
        vision_config=types.SimpleNamespace(spatial_merge_size=2, temporal_merge_size=2),
        text_config=types.SimpleNamespace(rope_parameters={"mrope_section": [4, 4, 4, 4]}),
    )
    model = types.SimpleNamespace(config=config)
    model.get_vision_position_ids = types.MethodType(kind.get_vision_position_ids, model)
    ids, _ = kind.get_rope_index(
        model,
        torch.zeros(1, len(types_of), dtype=torch.long),
        torch.tensor([types_of]),
        image_grid_thw=torch.tensor(grids) if grids else None,
    )
    return {
        "family": family,
        "tokens": len(types_of),
        "images": images,
        "positions": ids[:, 0].tolist(),
    }


def main(path):
    cases = [positions(family, sample) for family in MODELS for sample in SAMPLES]
    with open(path, "w") as file:
        file.write(
            "[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n"
        )


main(sys.argv[1])
