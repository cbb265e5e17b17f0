"""Small random models of transformers for the image families, and what their own
processors make of conversations.

Imported by the tests that compare losses. Needs transformers, torch, torchvision and
Pillow.
"""

import os
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
for folder in ("tests/server/text", "tests/server/image_plan"):
    sys.path.insert(0, os.path.join(ROOT, folder))

import torch  # noqa: E402
import transformers  # noqa: E402
from check_family_chats import COVERED, MERGES, SPECIALS  # noqa: E402
from image_processors import drawn  # noqa: E402
from text_processors import text_processor  # noqa: E402

TEXT = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16,
        "max_position_embeddings": 32768, "pad_token_id": 0}
VISION = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2,
          "num_attention_heads": 2}


def _clip(size, patch=14):
    return {**VISION, "model_type": "clip_vision_model", "image_size": size, "patch_size": patch,
            "projection_dim": 16}


def _siglip(size, patch=14):
    return {**VISION, "model_type": "siglip_vision_model", "image_size": size, "patch_size": patch,
            "vision_use_head": False}


def _llava(kind):
    return lambda token, words: getattr(transformers, kind + "Config")(
        vision_config=_clip(336), text_config={"model_type": "llama", "vocab_size": words, **TEXT},
        image_token_index=token, vision_feature_layer=-2)


def _onevision(token, words):
    return transformers.LlavaOnevisionConfig(
        vision_config=_siglip(384), text_config={"model_type": "qwen2", "vocab_size": words, **TEXT},
        image_token_index=token)


def _internvl(token, words):
    return transformers.InternVLConfig(
        vision_config={**VISION, "image_size": [448, 448], "patch_size": [14, 14]},
        text_config={"model_type": "qwen2", "vocab_size": words, **TEXT}, image_token_id=token)


def _gemma3(token, words):
    return transformers.Gemma3Config(
        vision_config=_siglip(896),
        text_config={"vocab_size": words, "sliding_window": 64, "query_pre_attn_scalar": 16, **TEXT},
        image_token_index=token, mm_tokens_per_image=256)


def _idefics(kind):
    return lambda token, words: getattr(transformers, kind + "Config")(
        vision_config={**VISION, "image_size": 364, "patch_size": 14}, scale_factor=2,
        text_config={"model_type": "llama", "vocab_size": words, **TEXT}, image_token_id=token)


def _llama4(token, words):
    return transformers.Llama4Config(
        vision_config={**VISION, "image_size": 336, "patch_size": 14, "vision_output_dim": 32,
                       "projector_input_dim": 32, "projector_output_dim": 32,
                       "pixel_shuffle_ratio": 0.5, "intermediate_size": 128},
        text_config={"vocab_size": words, "intermediate_size_mlp": 32, "num_local_experts": 2,
                     "attention_chunk_size": 4096, **TEXT},
        image_token_index=token)


def _pixtral(token, words):
    return transformers.LlavaConfig(
        vision_config={**VISION, "model_type": "pixtral", "image_size": 1024, "patch_size": 16,
                       "head_dim": 16},
        text_config={"model_type": "mistral", "vocab_size": words, **TEXT},
        image_token_index=token, vision_feature_layer=-1, vision_feature_select_strategy="full")


def _glm4v(token, words):
    return transformers.Glm4vConfig(
        vision_config={**VISION, "depth": 2, "num_heads": 2, "out_hidden_size": 32,
                       "image_size": 336, "patch_size": 14},
        text_config={"vocab_size": words, **TEXT, "rope_parameters": {
            "rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1],
            "partial_rotary_factor": 0.5}},
        image_token_id=token, video_token_id=words - 1, image_start_token_id=words - 2,
        image_end_token_id=words - 3, video_start_token_id=words - 4, video_end_token_id=words - 5)


#: Family -> configuration of (image token, vocabulary), class of the model.
MODELS = {
    "gemma3": (_gemma3, "Gemma3ForConditionalGeneration"),
    "gemma3_pan_and_scan": (_gemma3, "Gemma3ForConditionalGeneration"),
    "glm4v": (_glm4v, "Glm4vForConditionalGeneration"),
    "idefics3": (_idefics("Idefics3"), "Idefics3ForConditionalGeneration"),
    "internvl3": (_internvl, "InternVLForConditionalGeneration"),
    "llama4": (_llama4, "Llama4ForConditionalGeneration"),
    "llava1_5": (_llava("Llava"), "LlavaForConditionalGeneration"),
    "llava1_5_pad": (_llava("Llava"), "LlavaForConditionalGeneration"),
    "llava_next": (_llava("LlavaNext"), "LlavaNextForConditionalGeneration"),
    "llava_onevision": (_onevision, "LlavaOnevisionForConditionalGeneration"),
    "pixtral": (_pixtral, "LlavaForConditionalGeneration"),
    "smolvlm": (_idefics("SmolVLM"), "SmolVLMForConditionalGeneration"),
}
PLAIN_CHAT = ("{% for m in messages %}{{ m['role'] }}: {% for c in m['content'] %}"
              "{{ '<|begin_of_image|><|image|><|end_of_image|>' if c['type'] == 'image' else c['text'] }}"
              "{% endfor %}\n{% endfor %}")


def processor_of(family):
    template, _, begin = COVERED.get(family, (PLAIN_CHAT, [], None))
    return text_processor(family, SPECIALS, MERGES, begin, template)


PLACEHOLDERS = {"gemma3": "<image_soft_token>", "gemma3_pan_and_scan": "<image_soft_token>",
                "glm4v": "<|image|>", "internvl3": "<IMG_CONTEXT>", "llama4": "<|patch|>",
                "pixtral": "[IMG]"}


def placeholder_of(family, processor):
    """The id that the model replaces by the image's features."""
    return processor.tokenizer.convert_tokens_to_ids(PLACEHOLDERS.get(family, "<image>"))


def model_of(family, processor):
    """A model of random weights, float32, for the processor's image token."""
    config_of, kind = MODELS[family]
    token = placeholder_of(family, processor)
    words = len(processor.tokenizer)
    torch.manual_seed(7)
    config = config_of(token, words)
    config._attn_implementation = "eager"
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
        {"role": role, "content": [{"type": "text", "text": p} if isinstance(p, str) else {"type": "image"}
                                   for p in parts]} for role, parts in turns]
    sizes = [part for _, parts in turns for part in parts if not isinstance(part, str)]
    text = processor.apply_chat_template(messages, tokenize=False)
    images = [[drawn(*size) for size in sizes]] if sizes else None
    inputs = processor(text=[text], images=images, return_tensors="pt", add_special_tokens=False)
    if "pixel_values" in inputs:  # Llama 4's are bfloat16
        inputs["pixel_values"] = inputs["pixel_values"].float()
    return inputs
