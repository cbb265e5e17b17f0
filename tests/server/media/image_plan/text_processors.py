"""The processors of transformers with small tokenizers, one a family.

A tokenizer has a token for each byte, the merges that it is given, and the special
tokens that the family's processor and chat template write. Imported by scripts
that compare texts and ids with the processors.
"""

import importlib
import types

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast
from transformers.processing_utils import ProcessorMixin

from image_processors import IMAGE_PROCESSORS, image_processor

# Family -> module, class, settings, attributes of the tokenizer, further special
# tokens of its texts.
LLAVA = {
    "patch_size": 14,
    "vision_feature_select_strategy": "default",
    "num_additional_image_tokens": 1,
}
GLM = {"image_token": "<|image|>", "video_token": "<|video|>"}
GLM_TOKENS = ["<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>"]
IDEFICS_TOKENS = ["<fake_token_around_image>", "<image>", "<global-img>", "<end_of_utterance>"] + [
    f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)
]
GEMMA = {
    "image_token": "<image_soft_token>",
    "image_token_id": None,
    "boi_token": "<start_of_image>",
    "eoi_token": "<end_of_image>",
}
PROCESSORS = {
    "aya_vision": (
        "aya_vision",
        "AyaVisionProcessor",
        {},
        {},
        ["<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_PATCH|>", "<image>"],
    ),
    "ernie4_5_vl": (
        "ernie4_5_vl_moe",
        "Ernie4_5_VLMoeProcessor",
        {},
        {
            "image_token": "<|IMAGE_PLACEHOLDER|>",
            "image_start_token": "<|IMAGE_START|>",
            "image_end_token": "<|IMAGE_END|>",
            "video_token": "<|VIDEO_PLACEHOLDER|>",
            "video_start_token": "<|VIDEO_START|>",
            "video_end_token": "<|VIDEO_END|>",
        },
        [],
    ),
    "gemma3": ("gemma3", "Gemma3Processor", {}, GEMMA, []),
    "gemma3_pan_and_scan": ("gemma3", "Gemma3Processor", {}, GEMMA, []),
    "gemma4": (
        "gemma4",
        "Gemma4Processor",
        {},
        {
            "image_token": "<|image|>",
            "boi_token": "<|image>",
            "eoi_token": "<image|>",
            "audio_token": "<|audio|>",
            "boa_token": "<|audio>",
            "eoa_token": "<audio|>",
        },
        [],
    ),
    "glm46v": ("glm46v", "Glm46VProcessor", {}, GLM, GLM_TOKENS),
    "glm4v": ("glm4v", "Glm4vProcessor", {}, GLM, GLM_TOKENS),
    "hunyuan_vl": (
        "hunyuan_vl",
        "HunYuanVLProcessor",
        {},
        {
            "image_token": "<｜hy_place▁holder▁no▁102｜>",
            "image_start_token": "<｜hy_place▁holder▁no▁100｜>",
            "image_end_token": "<｜hy_place▁holder▁no▁101｜>",
        },
        [],
    ),
    "idefics3": ("idefics3", "Idefics3Processor", {}, {}, IDEFICS_TOKENS),
    "internvl3": (
        "internvl",
        "InternVLProcessor",
        {},
        {
            "start_image_token": "<img>",
            "end_image_token": "</img>",
            "context_image_token": "<IMG_CONTEXT>",
            "video_token": "<video>",
        },
        [],
    ),
    "kimi_k25": (
        "kimi_k25",
        "Kimi_K25Processor",
        {},
        {},
        [
            "<|media_pad|>",
            "<|kimi_k25_video_placeholder|>",
            "<|media_begin|>",
            "<|media_content|>",
            "<|media_end|>",
        ],
    ),
    "llama4": (
        "llama4",
        "Llama4Processor",
        {},
        {},
        [
            "<|image|>",
            "<|image_start|>",
            "<|image_end|>",
            "<|patch|>",
            "<|tile_x_separator|>",
            "<|tile_y_separator|>",
        ],
    ),
    "llava1_5": ("llava", "LlavaProcessor", LLAVA, {}, ["<image>"]),
    "llava1_5_pad": ("llava", "LlavaProcessor", LLAVA, {}, ["<image>"]),
    "llava_next": ("llava_next", "LlavaNextProcessor", LLAVA, {}, ["<image>"]),
    "llava_onevision": (
        "llava_onevision",
        "LlavaOnevisionProcessor",
        {"num_image_tokens": 729, "vision_feature_select_strategy": "full"},
        {},
        ["<image>", "<video>"],
    ),
    "minicpmv4_6": (
        "minicpmv4_6",
        "MiniCPMV4_6Processor",
        {},
        {
            "image_token": "<|image_pad|>",
            "video_token": "<|video_pad|>",
            "image_start_token": "<image>",
            "image_end_token": "</image>",
            "slice_start_token": "<slice>",
            "slice_end_token": "</slice>",
            "image_id_start_token": "<image_id>",
            "image_id_end_token": "</image_id>",
        },
        [],
    ),
    "pixtral": ("pixtral", "PixtralProcessor", {}, {}, ["[IMG]", "[IMG_BREAK]", "[IMG_END]"]),
    "qianfan_ocr": (
        "qianfan_ocr",
        "QianfanOCRProcessor",
        {},
        {
            "start_image_token": "<img>",
            "end_image_token": "</img>",
            "context_image_token": "<IMG_CONTEXT>",
        },
        [],
    ),
    "smolvlm": ("smolvlm", "SmolVLMProcessor", {}, {}, IDEFICS_TOKENS + ["<video>"]),
    "smolvlm_500m": (
        "smolvlm",
        "SmolVLMProcessor",
        {"image_seq_len": 64},
        {},
        IDEFICS_TOKENS + ["<video>"],
    ),
    "vipllava": ("llava", "LlavaProcessor", LLAVA, {}, ["<image>"]),
}
# What stands around an image in every text of a model and is not written by its
# processor: its chat template writes it. ERNIE's and HunyuanVL's are named by the
# processor, which refuses HunyuanVL's images without them; GLM's and Kimi's stand around
# the frames of videos in the processor's texts.
TEMPLATE_MARKS = {
    "ernie4_5_vl": ("<|IMAGE_START|>", "<|IMAGE_END|>"),
    "glm46v": ("<|begin_of_image|>", "<|end_of_image|>"),
    "glm4v": ("<|begin_of_image|>", "<|end_of_image|>"),
    "hunyuan_vl": ("<｜hy_place▁holder▁no▁100｜>", "<｜hy_place▁holder▁no▁101｜>"),
    "kimi_k25": ("<|media_begin|>image<|media_content|>", "<|media_end|>"),
}
# The family whose image processor has the same class and numbers.
SAME_IMAGES = {"glm46v": "glm4v", "smolvlm": "idefics3"}


def small_tokenizer(attributes, specials, merges, begin):
    """`attributes` maps names of the tokenizer's attributes to tokens; `begin` is a
    token that it writes before each text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet()) + ["".join(m) for m in merges]
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    named = {name: token for name, token in attributes.items() if token}
    tokens = list(dict.fromkeys([*specials, "<|pad|>", *named.values()]))
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in tokens])
    if begin:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A", special_tokens=[(begin, tokenizer.token_to_id(begin))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<|pad|>", extra_special_tokens=named
    )


def text_processor(family, specials=(), merges=(), begin=None, chat_template=None):
    """The family's processor; `specials` are further special tokens."""
    module, name, settings, attributes, tokens = PROCESSORS[family]
    home = importlib.import_module(f"transformers.models.{module}.processing_{module}")
    home.num2words = home.__dict__.get("num2words") or str  # only for videos
    # Parts that images do not use are not made.
    ProcessorMixin.check_argument_for_proper_class = lambda *_: None
    images = SAME_IMAGES.get(family, family)
    parts = {
        "image_processor": image_processor(images, "pillow12")
        or image_processor(images, "torchvision"),
        "tokenizer": small_tokenizer(attributes, [*specials, *tokens], list(merges), begin),
    }
    kind = getattr(home, name)
    for part in kind.get_attributes():
        parts.setdefault(
            part,
            types.SimpleNamespace(
                slice_mode=True, downsample_mode="16x", model_input_names=[], num_frames=1, fps=1
            ),
        )
    processor = kind(**parts, **settings, chat_template=chat_template)
    # A processor's own defaults would hide the settings of its image processor.
    processor.images_kwargs = {
        **(getattr(kind, "images_kwargs", None) or {}),
        **IMAGE_PROCESSORS[images][2],
    }
    return processor
