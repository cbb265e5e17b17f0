"""Small random models of transformers for the image families, and what their own
processors make of conversations.

Imported by the tests that compare losses. Needs transformers, torch, torchvision and
Pillow.
"""

import os
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
for folder in ("tests/server/text", "tests/server/media/image_plan"):
    sys.path.insert(0, os.path.join(ROOT, folder))

import torch  # noqa: E402
import transformers  # noqa: E402
from check_family_chats import COVERED, MERGES, SPECIALS  # noqa: E402
from image_processors import drawn  # noqa: E402
from text_processors import text_processor  # noqa: E402

TEXT = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 32768,
    "pad_token_id": 0,
}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}


def _clip(size, patch=14):
    return {
        **VISION,
        "model_type": "clip_vision_model",
        "image_size": size,
        "patch_size": patch,
        "projection_dim": 16,
    }


def _siglip(size, patch=14):
    return {
        **VISION,
        "model_type": "siglip_vision_model",
        "image_size": size,
        "patch_size": patch,
        "vision_use_head": False,
    }


def _llava(kind):
    return lambda token, words: getattr(transformers, kind + "Config")(
        vision_config=_clip(336),
        text_config={"model_type": "llama", "vocab_size": words, **TEXT},
        image_token_index=token,
        vision_feature_layer=-2,
    )


def _onevision(token, words):
    return transformers.LlavaOnevisionConfig(
        vision_config=_siglip(384),
        text_config={"model_type": "qwen2", "vocab_size": words, **TEXT},
        image_token_index=token,
    )


def _internvl(token, words):
    return transformers.InternVLConfig(
        vision_config={**VISION, "image_size": [448, 448], "patch_size": [14, 14]},
        text_config={"model_type": "qwen2", "vocab_size": words, **TEXT},
        image_token_id=token,
    )


def _qianfan(token, words):
    return transformers.QianfanOCRConfig(
        vision_config={**VISION, "image_size": [448, 448], "patch_size": [14, 14]},
        text_config={"model_type": "qwen3", "vocab_size": words, **TEXT},
        image_token_id=token,
    )


def _aya(token, words):
    return transformers.AyaVisionConfig(
        vision_config=_siglip(364),
        text_config={"vocab_size": words, "initializer_range": 0.1, **TEXT},
        image_token_index=token,
    )


def _gemma3(token, words):
    return transformers.Gemma3Config(
        vision_config=_siglip(896),
        text_config={
            "vocab_size": words,
            "sliding_window": 64,
            "query_pre_attn_scalar": 16,
            **TEXT,
        },
        image_token_index=token,
        mm_tokens_per_image=256,
    )


def _idefics(kind, size=364, patch=14, scale=2):
    return lambda token, words: getattr(transformers, kind + "Config")(
        vision_config={**VISION, "image_size": size, "patch_size": patch},
        scale_factor=scale,
        text_config={"model_type": "llama", "vocab_size": words, **TEXT},
        image_token_id=token,
    )


def _llama4(token, words):
    return transformers.Llama4Config(
        vision_config={
            **VISION,
            "image_size": 336,
            "patch_size": 14,
            "vision_output_dim": 32,
            "projector_input_dim": 32,
            "projector_output_dim": 32,
            "pixel_shuffle_ratio": 0.5,
            "intermediate_size": 128,
        },
        text_config={
            "vocab_size": words,
            "intermediate_size_mlp": 32,
            "num_local_experts": 2,
            "attention_chunk_size": 4096,
            **TEXT,
        },
        image_token_index=token,
    )


def _pixtral(token, words):
    return transformers.LlavaConfig(
        vision_config={
            **VISION,
            "model_type": "pixtral",
            "image_size": 1024,
            "patch_size": 16,
            "head_dim": 16,
        },
        text_config={"model_type": "mistral", "vocab_size": words, **TEXT},
        image_token_index=token,
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
    )


def _glm(kind):
    return lambda token, words: getattr(transformers, kind + "Config")(
        vision_config={
            **VISION,
            "depth": 2,
            "num_heads": 2,
            "out_hidden_size": 32,
            "image_size": 336,
            "patch_size": 14,
        },
        text_config={
            "vocab_size": words,
            **TEXT,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [2, 1, 1],
                "partial_rotary_factor": 0.5,
            },
        },
        image_token_id=token,
        video_token_id=words - 1,
        image_start_token_id=words - 2,
        image_end_token_id=words - 3,
        video_start_token_id=words - 4,
        video_end_token_id=words - 5,
    )


def _ernie(token, words):
    return transformers.Ernie4_5_VLMoeConfig(
        vision_config={**VISION, "depth": 2, "num_heads": 2, "patch_size": 14},
        text_config={
            "vocab_size": words,
            **TEXT,
            "moe_intermediate_size": [32, 16],
            "moe_k": 2,
            "moe_num_experts": 4,
            "moe_num_shared_experts": 1,
            "mlp_layer_types": ["dense", "sparse"],
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [3, 3, 2],
            },
        },
        image_token_id=token,
        video_token_id=words - 1,
        image_start_token_id=words - 2,
        image_end_token_id=words - 3,
        video_start_token_id=words - 4,
        video_end_token_id=words - 5,
    )


def _gemma4(bidirectional):
    return lambda token, words: transformers.Gemma4Config(
        vision_config={**VISION, "num_key_value_heads": 2, "head_dim": 16, "patch_size": 16},
        text_config={
            "vocab_size": words,
            "vocab_size_per_layer_input": words,
            "hidden_size_per_layer_input": 8,
            "sliding_window": 64,
            "use_bidirectional_attention": bidirectional,
            "layer_types": ["sliding_attention", "full_attention"],
            **TEXT,
        },
        audio_config=None,
        image_token_id=token,
        video_token_id=words - 1,
        audio_token_id=words - 2,
    )


def _hunyuan(token, words):
    return transformers.HunYuanVLConfig(
        vision_config={
            **VISION,
            "num_key_value_heads": 2,
            "out_hidden_size": 32,
            "text_hidden_size": 32,
            "patch_size": 16,
        },
        text_config={
            "vocab_size": words,
            "initializer_range": 0.1,
            **TEXT,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [2, 2, 2, 2],
            },
        },
        image_token_id=token,
    )


def _kimi(token, words):
    return transformers.Kimi_K25Config(
        vision_config={**VISION, "patch_size": 14},
        text_config={
            "model_type": "deepseek_v3",
            "vocab_size": words,
            **TEXT,
            "head_dim": 8,
            "moe_intermediate_size": 16,
            "n_routed_experts": 4,
            "n_group": 2,
            "topk_group": 1,
            "num_experts_per_tok": 2,
            "first_k_dense_replace": 1,
            "kv_lora_rank": 16,
            "q_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "v_head_dim": 16,
            "qk_nope_head_dim": 8,
            "num_mtp_layers": 0,
        },
        projection_hidden_size=32,
        image_token_id=token,
        video_token_id=words - 1,
    )


def _minicpm(token, words):
    return transformers.MiniCPMV4_6Config(
        vision_config={**VISION, "image_size": 448, "patch_size": 14, "insert_layer_id": 0},
        text_config={
            "model_type": "qwen3_5_text",
            "vocab_size": words,
            **TEXT,
            "layer_types": ["linear_attention", "full_attention"],
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 2,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
        },
        insert_layer_id=0,
        image_token_id=token,
        video_token_id=words - 1,
    )


#: Family -> configuration of (image token, vocabulary), class of the model.
MODELS = {
    "aya_vision": (_aya, "AyaVisionForConditionalGeneration"),
    "ernie4_5_vl": (_ernie, "Ernie4_5_VLMoeForConditionalGeneration"),
    "gemma4": (_gemma4(None), "Gemma4ForConditionalGeneration"),
    "gemma4_blocks": (_gemma4("vision"), "Gemma4ForConditionalGeneration"),
    "hunyuan_vl": (_hunyuan, "HunYuanVLForConditionalGeneration"),
    "kimi_k25": (_kimi, "Kimi_K25ForConditionalGeneration"),
    "minicpmv4_6": (_minicpm, "MiniCPMV4_6ForConditionalGeneration"),
    "gemma3": (_gemma3, "Gemma3ForConditionalGeneration"),
    "gemma3_pan_and_scan": (_gemma3, "Gemma3ForConditionalGeneration"),
    "glm46v": (_glm("Glm46V"), "Glm46VForConditionalGeneration"),
    "glm4v": (_glm("Glm4v"), "Glm4vForConditionalGeneration"),
    "idefics3": (_idefics("Idefics3"), "Idefics3ForConditionalGeneration"),
    "internvl3": (_internvl, "InternVLForConditionalGeneration"),
    "llama4": (_llama4, "Llama4ForConditionalGeneration"),
    "llava1_5": (_llava("Llava"), "LlavaForConditionalGeneration"),
    "llava1_5_pad": (_llava("Llava"), "LlavaForConditionalGeneration"),
    "llava_next": (_llava("LlavaNext"), "LlavaNextForConditionalGeneration"),
    "llava_onevision": (_onevision, "LlavaOnevisionForConditionalGeneration"),
    "pixtral": (_pixtral, "LlavaForConditionalGeneration"),
    "qianfan_ocr": (_qianfan, "QianfanOCRForConditionalGeneration"),
    "smolvlm": (_idefics("SmolVLM"), "SmolVLMForConditionalGeneration"),
    "smolvlm_500m": (_idefics("SmolVLM", 512, 16, 4), "SmolVLMForConditionalGeneration"),
    "vipllava": (
        lambda token, words: transformers.VipLlavaConfig(
            vision_config=_clip(336),
            text_config={"model_type": "llama", "vocab_size": words, **TEXT},
            image_token_index=token,
            vision_feature_layers=[-2, -1],
        ),
        "VipLlavaForConditionalGeneration",
    ),
}
#: Models of families whose authors have other numbers than the class.
AUTHORS = {
    "llava_next": (
        lambda token, words: transformers.LlavaNextConfig(
            vision_config=_clip(336),
            text_config={"model_type": "llama", "vocab_size": words, **TEXT},
            image_token_index=token,
            vision_feature_layer=-2,
            image_grid_pinpoints=[
                # The class reads height and width.
                [672, 336],
                [336, 672],
                [672, 672],
                [336, 1008],
                [1008, 336],
            ],
        ),
        "LlavaNextForConditionalGeneration",
    ),
    "smolvlm": (_idefics("SmolVLM", 384, 14, 3), "SmolVLMForConditionalGeneration"),
}
#: What stands for an image in a text, for families without a chat template here.
IMAGE_TEXTS = {
    "aya_vision": "<image>",
    "ernie4_5_vl": "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>",
    "gemma4": "<|image|>",
    "gemma4_blocks": "<|image|>",
    "glm4v": "<|begin_of_image|><|image|><|end_of_image|>",
    "hunyuan_vl": "<｜hy_place▁holder▁no▁100｜><｜hy_place▁holder▁no▁102｜><｜hy_place▁holder▁no▁101｜>",
    "kimi_k25": "<|media_begin|>image<|media_content|><|media_pad|><|media_end|>",
    "minicpmv4_6": "<|image_pad|>",
    "qianfan_ocr": "<image>",
    "vipllava": "<image>",
}
PLAIN_CHAT = (
    "{%% for m in messages %%}{{ m['role'] }}: {%% for c in m['content'] %%}"
    "{{ '%s' if c['type'] == 'image' else c['text'] }}"
    "{%% endfor %%}\n{%% endfor %%}"
)
#: Families that differ in the model alone.
SAME_PROCESSOR = {"gemma4_blocks": "gemma4"}


#: Mean and deviation of the released checkpoints, where the classes have others: as in
#: the files of models/, which name the sources.
CHECKPOINTS = {
    "internvl3": ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    "llava_onevision": ([0.5, 0.5, 0.5], [0.5, 0.5, 0.5]),
}  # fmt: skip


def processor_of(family):
    template, _, begin = COVERED.get(family, (PLAIN_CHAT % IMAGE_TEXTS.get(family), [], None))
    processor = text_processor(
        SAME_PROCESSOR.get(family, family), SPECIALS, MERGES, begin, template
    )
    if family in CHECKPOINTS:
        images = processor.image_processor
        images.image_mean, images.image_std = CHECKPOINTS[family]
    return processor


PLACEHOLDERS = {
    "aya_vision": "<|IMG_PATCH|>",
    "qianfan_ocr": "<IMG_CONTEXT>",
    "ernie4_5_vl": "<|IMAGE_PLACEHOLDER|>",
    "gemma4": "<|image|>",
    "gemma4_blocks": "<|image|>",
    "hunyuan_vl": "<｜hy_place▁holder▁no▁102｜>",
    "kimi_k25": "<|media_pad|>",
    "minicpmv4_6": "<|image_pad|>",
    "gemma3": "<image_soft_token>",
    "gemma3_pan_and_scan": "<image_soft_token>",
    "glm46v": "<|image|>",
    "glm4v": "<|image|>",
    "internvl3": "<IMG_CONTEXT>",
    "llama4": "<|patch|>",
    "pixtral": "[IMG]",
}


def placeholder_of(family, processor):
    """The id that the model replaces by the image's features."""
    return processor.tokenizer.convert_tokens_to_ids(PLACEHOLDERS.get(family, "<image>"))


def model_of(family, processor, rules="transformers", attention="eager"):
    """A model of random weights, float32, for the processor's image token."""
    config_of, kind = (AUTHORS if rules == "authors" and family in AUTHORS else MODELS)[family]
    token = placeholder_of(family, processor)
    words = len(processor.tokenizer)
    torch.manual_seed(7)
    config = config_of(token, words)
    if family == "ernie4_5_vl":
        config.image_start_token_id = processor.image_start_token_id
        config.image_end_token_id = processor.image_end_token_id
    config._attn_implementation = attention
    model = getattr(transformers, kind)(config).float().eval()
    # Weights that are zero at first would hide what the image contributes.
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.any():
                parameter.normal_(0, 0.05)
    return model


def inputs_of(processor, turns):
    """What the processor makes of a conversation, as tensors. A part of a turn is a
    text, or an image's (width, height)."""
    messages = [
        {
            "role": role,
            "content": [
                {"type": "text", "text": p} if isinstance(p, str) else {"type": "image"}
                for p in parts
            ],
        }
        for role, parts in turns
    ]
    sizes = [part for _, parts in turns for part in parts if not isinstance(part, str)]
    text = processor.apply_chat_template(messages, tokenize=False)
    images = [[drawn(*size) for size in sizes]] if sizes else None
    inputs = processor(text=[text], images=images, return_tensors="pt")
    if "pixel_values" in inputs:  # Llama 4's are bfloat16
        inputs["pixel_values"] = inputs["pixel_values"].float()
    return inputs
