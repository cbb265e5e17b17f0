"""Counts the FLOPs of Hugging Face's Qwen2.5-VL, which the costs from a model are held
against (tests/server/config/model_flops.json and model_cost_test.cc).

The classes are transformers' and the counter is torch's, so the figures are independent
of our formula. The sizes are those of the released checkpoints.
"""

import json
import unittest

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl

with open("tests/server/config/model_flops.json", encoding="utf-8") as file:
    FIGURES = json.load(file)
TEXT = {
    "Qwen2.5-VL-3B": dict(
        hidden_size=2048, num_hidden_layers=36, num_attention_heads=16, num_key_value_heads=2,
        intermediate_size=11008, vocab_size=151936, tie_word_embeddings=True,
    ),
    "Qwen2.5-VL-7B": dict(
        hidden_size=3584, num_hidden_layers=28, num_attention_heads=28, num_key_value_heads=4,
        intermediate_size=18944, vocab_size=152064, tie_word_embeddings=False,
    ),
}  # fmt: skip
ROPE = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}
LAYERS, FULL_LAYERS = 32, [7, 15, 23, 31]
PATCH_VALUES = 3 * 2 * 14 * 14


def config_of(name, depth=LAYERS, full=None):
    text = dict(TEXT[name], bos_token_id=None, eos_token_id=None, rope_parameters=ROPE)
    vision = dict(
        depth=depth, hidden_size=1280, num_heads=16, intermediate_size=3420,
        out_hidden_size=text["hidden_size"], patch_size=14, spatial_merge_size=2,
        temporal_patch_size=2, window_size=112,
        fullatt_block_indexes=FULL_LAYERS if full is None else full,
    )  # fmt: skip
    return transformers.Qwen2_5_VLConfig(
        text_config=text, vision_config=vision, tie_word_embeddings=text["tie_word_embeddings"]
    )


def tower_flops(name, depth, full, grid):
    """Of a tower of `depth` layers, of which those in `full` attend to the whole image."""
    config = config_of(name, depth, full).vision_config
    config._attn_implementation = "eager"  # whose products the counter sees
    with torch.device("meta"):
        tower = modeling_qwen2_5_vl.Qwen2_5_VisionTransformerPretrainedModel(config)
    tower.to_empty(device="cpu")
    for weight in tower.parameters():
        weight.data.zero_()  # any values will do
    t, h, w = grid
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        tower(torch.zeros(t * h * w, PATCH_VALUES), grid_thw=torch.tensor([grid]))
    return counter.get_total_flops()


class FlopsTest(unittest.TestCase):
    def test_language(self):
        for name, figures in FIGURES.items():
            if name not in TEXT:
                continue
            with torch.device("meta"):  # shapes without memory
                model = transformers.Qwen2_5_VLForConditionalGeneration(config_of(name))
            self.assertEqual(sum(p.numel() for p in model.parameters()), figures["parameters"])
            tokens = figures["language"]["tokens"]
            with FlopCounterMode(display=False) as counter:
                hidden = model.model.language_model(
                    inputs_embeds=torch.empty(1, tokens, TEXT[name]["hidden_size"], device="meta"),
                    position_ids=torch.zeros(3, 1, tokens, dtype=torch.long, device="meta"),
                    use_cache=False,
                ).last_hidden_state
                model.lm_head(hidden)
            counts = {str(key): n for key, n in counter.get_flop_counts()["Global"].items()}
            attention = counts.pop("aten.bmm")
            self.assertEqual(attention, figures["language"]["attention_without_causality"], name)
            self.assertEqual(sum(counts.values()), figures["language"]["matrices"], name)

    def test_vision(self):
        # All layers of a kind do the same, so three small towers tell what 32 layers do.
        for name in TEXT:
            for entry in FIGURES[name]["vision"]:
                grid = entry["grid"]
                one, two = (tower_flops(name, depth, [], grid) for depth in (1, 2))
                windowed = two - one
                rest = one - windowed
                full = tower_flops(name, 1, [0], grid) - rest
                counted = rest + (LAYERS - len(FULL_LAYERS)) * windowed + len(FULL_LAYERS) * full
                self.assertEqual(counted, entry["flops"], (name, grid))


if __name__ == "__main__":
    unittest.main()
