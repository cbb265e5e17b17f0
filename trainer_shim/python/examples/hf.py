"""Hugging Face's own processor, and small models with random weights."""

import torch
import transformers
from transformers import PreTrainedTokenizerFast

# Qwen3-VL's template for user and assistant turns. Qwen2.5-VL's adds a default system
# prompt, as `model.system_prompt` does.
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
)
SHAPES = {  # patch, mean, std
    "qwen2_5_vl": (14, [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]),
    "qwen3_vl": (16, [0.5] * 3, [0.5] * 3),
}


def tokenizer_of(path):
    return PreTrainedTokenizerFast(
        tokenizer_file=path, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )


def image_processor_of(profile, min_pixels, max_pixels, pil):
    """Hugging Face's image processor. `pil` selects the one that uses Pillow."""
    from transformers.models.qwen2_vl import image_processing_pil_qwen2_vl as with_pil
    from transformers.models.qwen2_vl import image_processing_qwen2_vl as with_torch

    patch, mean, std = SHAPES[profile]
    kind = with_pil.Qwen2VLImageProcessorPil if pil else with_torch.Qwen2VLImageProcessor
    return kind(
        size={"shortest_edge": min_pixels, "longest_edge": max_pixels},
        patch_size=patch, merge_size=2, temporal_patch_size=2,
        image_mean=mean, image_std=std,
    )  # fmt: skip


def processor_of(profile, tokenizer, image_processor):
    """Hugging Face's whole processor, constructed without any download."""
    if profile == "qwen3_vl":
        from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

        kind, video = transformers.Qwen3VLProcessor, Qwen3VLVideoProcessor()
    else:
        from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor

        kind, video = transformers.Qwen2_5_VLProcessor, Qwen2VLVideoProcessor()
    return kind(
        image_processor=image_processor, tokenizer=tokenizer,
        video_processor=video, chat_template=TEMPLATE,
    )  # fmt: skip


def labels_of(ids, tokenizer):
    """[1, L] labels, not shifted: the assistant's text and its `<|im_end|>`."""
    begin, end = tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
    head = tokenizer.encode("assistant\n", add_special_tokens=False)
    row = ids[0].tolist()
    labels = [-100] * len(row)
    i = 0
    while i < len(row):
        if row[i] == begin and row[i + 1 : i + 1 + len(head)] == head:
            i += 1 + len(head)
            while i < len(row):
                labels[i] = row[i]
                if row[i] == end:
                    break
                i += 1
        i += 1
    return torch.tensor([labels])


def model_of(profile, tokenizer, seed=7):
    """A small model of the family with random weights."""
    patch = SHAPES[profile][0]
    token = tokenizer.convert_tokens_to_ids
    special = dict(
        image_token_id=token("<|image_pad|>"),
        video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"),
        vision_end_token_id=token("<|vision_end|>"),
    )
    text = dict(
        vocab_size=(len(tokenizer) + 63) // 64 * 64, hidden_size=256, intermediate_size=512,
        bos_token_id=None, eos_token_id=None, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6,
                         "mrope_section": [8, 12, 12]},
    )  # fmt: skip
    vision = dict(
        depth=4, hidden_size=128, intermediate_size=256, num_heads=4,
        patch_size=patch, spatial_merge_size=2, temporal_patch_size=2, out_hidden_size=256,
    )  # fmt: skip
    torch.manual_seed(seed)
    if profile == "qwen3_vl":
        vision.update(num_position_embeddings=256, deepstack_visual_indexes=[0, 1])
        text["rope_parameters"]["mrope_interleaved"] = True
        config = transformers.Qwen3VLConfig(text_config=text, vision_config=vision, **special)
        model = transformers.Qwen3VLForConditionalGeneration(config)
    else:
        vision.update(window_size=112, fullatt_block_indexes=[1, 3])
        config = transformers.Qwen2_5_VLConfig(text_config=text, vision_config=vision, **special)
        model = transformers.Qwen2_5_VLForConditionalGeneration(config)
    return model.eval()
