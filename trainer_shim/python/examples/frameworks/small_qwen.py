"""A small Qwen2.5-VL with random weights, made for a job: nothing is downloaded."""

import torch
import transformers


def model_for(job, seed=7):
    """A model with the image tokens and patches of `loader.job`.

    With `tokenizer: bytes` and the profile's token ids the vocabulary is Qwen's, of
    which only the bytes and the special tokens occur.
    """
    model, ids = job["model"], job["model"]["token_ids"]
    torch.manual_seed(seed)
    config = transformers.Qwen2_5_VLConfig(
        text_config=dict(
            vocab_size=max(ids.values()) + 1, hidden_size=64, intermediate_size=128,
            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            bos_token_id=None, eos_token_id=None,
            rope_parameters={"rope_type": "default", "rope_theta": 1e6,
                             "mrope_section": [2, 3, 3]},
        ),
        vision_config=dict(
            depth=2, hidden_size=32, intermediate_size=64, num_heads=2, out_hidden_size=64,
            patch_size=model["patch"], spatial_merge_size=model["merge"],
            temporal_patch_size=model["temporal_patch"],
            window_size=8 * model["patch"], fullatt_block_indexes=[1],
        ),
        image_token_id=ids["image"], video_token_id=ids["video"],
        vision_start_token_id=ids["vision_start"], vision_end_token_id=ids["vision_end"],
    )  # fmt: skip
    return transformers.Qwen2_5_VLForConditionalGeneration(config)
