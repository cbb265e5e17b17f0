"""Writes testdata/text_vectors.json: the text that processors write for images.

Runs the processors of transformers 5.23 with tokenizers of bytes. An entry has
the text of an image (number `image` of `images` of the same size) as a list of
texts and lengths of runs of placeholders, and the number of its tokens. Marks that
a chat template writes around an image (TEMPLATE_MARKS) are part of it. Sizes that a
processor refuses are left out.

    python make_text_vectors.py testdata/text_vectors.json            # all
    python make_text_vectors.py testdata/text_vectors.json vipllava   # one of them anew
"""

import json
import re
import sys

from PIL import Image

from image_processors import SIZES
from text_processors import PROCESSORS, TEMPLATE_MARKS, text_processor

# Families whose canvas of a picture of 1x4000 takes gigabytes.
TOO_LONG = {"llava1_5": 600, "vipllava": 600}
SEVERAL = [(448, 896), (300, 1100), (500, 500)]
# The token that is repeated, where it is not the one that stands for the image.
REPEATED = {
    "aya_vision": "<|IMG_PATCH|>",
    "gemma3": "<image_soft_token>",
    "gemma3_pan_and_scan": "<image_soft_token>",
    "llama4": "<|patch|>",
}


def texts_of(processor, family, images):
    """The text of each image of a sample."""
    before, after = TEMPLATE_MARKS.get(family, ("", ""))
    mark = getattr(processor, "image_placeholder_token", processor.image_token)
    wrapped = before + mark + after
    several = [images] if len(images) > 1 else images
    answer = processor(
        images=several,
        text=[wrapped * len(images)],
        return_tensors=None,
        return_text_replacement_offsets=True,
    )
    return [before + span["replacement"] + after for span in answer["text_replacement_offsets"][0]]


def pieces_of(text, placeholder):
    pieces = []
    for part in re.split(f"((?:{re.escape(placeholder)})+)", text):
        if part:
            run = len(part) // len(placeholder)
            pieces.append(run if part == placeholder * run else part)
    return pieces


def entry(processor, family, width, height, number, images):
    pictures = [Image.new("RGB", (width, height)) for _ in range(images)]
    try:
        text = texts_of(processor, family, pictures)[number]
    except (ValueError, ZeroDivisionError, RuntimeError) as error:
        print("  refused", width, height, str(error)[:90])
        return []
    placeholder = REPEATED.get(family, processor.image_token)
    tokens = processor.tokenizer(text, add_special_tokens=False)["input_ids"]
    return [
        {
            "family": family,
            "width": width,
            "height": height,
            "image": number,
            "images": images,
            "text": pieces_of(text, placeholder),
            "tokens": len(tokens),
        }
    ]


def main(path, families):
    vectors = []
    if families:
        with open(path) as file:
            vectors = [v for v in json.load(file) if v["family"] not in families]
    for family in families or PROCESSORS:
        print(family)
        processor = text_processor(family)
        for width, height in SIZES:
            if max(width, height) <= TOO_LONG.get(family, 10**9):
                vectors += entry(processor, family, width, height, 0, 1)
        for width, height in SEVERAL:
            vectors += entry(processor, family, width, height, 1, 2)
    with open(path, "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(v, ensure_ascii=False) for v in vectors) + "\n]\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
