#!/usr/bin/env python3
"""Writes the ids of conversations with videos: InternVL's and LLaVA-OneVision's.

    python3 make_family_video_vectors.py testdata/family_videos.json \\
        testdata/onevision_videos.json

As transformers' InternVLProcessor and LlavaOnevisionProcessor make them with the tokenizer of
family_chats.tokenizer.json (check_family_chats.py). Frames are given, so none is
sampled. Needs transformers 5.23, torch, torchvision and Pillow.
"""

import json
import sys

import torch
from check_family_chats import COVERED, MERGES, ONEVISION_VIDEOS, SPECIALS, in_runs
from PIL import Image
from text_processors import text_processor
from transformers.models.internvl.video_processing_internvl import InternVLVideoProcessor
from transformers.models.llava_onevision.video_processing_llava_onevision import (
    LlavaOnevisionVideoProcessor,
)

# A part is a text, an image's (width, height), or the number of a video's frames.
CONVERSATIONS = [
    [("user", [3, "What moves?"]), ("assistant", ["A fox."])],
    [("user", ["Look: ", 1, "\n\nAnd "]), ("assistant", ["Yes.\n"])],
    [("system", ["You see videos."]), ("user", [(448, 448), "Before\n", 2, 12, "After"]),
     ("assistant", ["Two."]), ("user", ["One more: ", 1]), ("assistant", ["Done."])],
    [("user", [2, "then ", (448, 448), 1, "Which?"]), ("assistant", ["That."]),
     ("user", ["And ", (448, 448)]), ("assistant", ["This."])],
]  # fmt: skip


def write(path, vectors):
    with open(path, "w", encoding="utf-8") as file:
        lines = [json.dumps(v, ensure_ascii=False, separators=(",", ":")) for v in vectors]
        file.write("[\n" + ",\n".join(lines) + "\n]\n")


def described(turns, counts, ids):
    return {
        "messages": [{"role": role, "content": "".join(
            p if isinstance(p, str) else "<image>" if isinstance(p, tuple) else "<video>"
            for p in own)} for role, own in turns],
        "images": [[p[1], p[0]] for _, own in turns for p in own if isinstance(p, tuple)],
        "frames": counts,
        "ids": in_runs(ids),
    }  # fmt: skip


def templated(processor, turns):
    kinds = {tuple: "image", int: "video"}
    return processor.apply_chat_template(
        [{"role": role, "content": [
            {"type": "text", "text": p} if isinstance(p, str) else {"type": kinds[type(p)]}
            for p in own]} for role, own in turns], tokenize=False)  # fmt: skip


def media_of(turns):
    """The images of the turns, and the numbers of frames of their videos."""
    parts = [part for _, own in turns for part in own]
    images = [Image.new("RGB", part) for part in parts if isinstance(part, tuple)]
    return images, [part for part in parts if isinstance(part, int)]


def video_of(processor, frames):
    """A video of this many frames, made alone: processors want videos of one length."""
    return processor.video_processor(
        [torch.zeros((frames, 3, 30, 40), dtype=torch.uint8)], return_tensors="pt"
    )


def onevision():
    processor = text_processor("llava_onevision", SPECIALS, MERGES, None, ONEVISION_VIDEOS)
    processor.video_processor = LlavaOnevisionVideoProcessor()
    vectors = []
    for turns in CONVERSATIONS:
        images, counts = media_of(turns)
        text = templated(processor, turns)
        for count in counts:
            made = video_of(processor, count)
            text = text.replace(
                "<video>", processor.replace_video_token(made, 0).replace("<video>", "<vide0>"), 1
            )
        made = processor.image_processor([images], return_tensors="pt") if images else {}
        for number in range(len(images)):
            text = text.replace(
                "<image>",
                processor.replace_image_token(made, number).replace("<image>", "<imag0>"),
                1,
            )
        text = text.replace("<vide0>", "<video>").replace("<imag0>", "<image>")
        vectors.append(described(turns, counts, processor.tokenizer(text)["input_ids"]))
    return vectors


def main():
    write(sys.argv[2], onevision())
    # As the checkpoints' own: `<video>` and a line feed.
    template = COVERED["internvl3"][0].replace(
        "{{ '<IMG_CONTEXT>\n' if",
        "{{ '<video>\n' if c['type'] == 'video' else '<IMG_CONTEXT>\n' if",
    )
    assert "<video>" in template
    processor = text_processor("internvl3", SPECIALS, MERGES, None, template)
    processor.video_processor = InternVLVideoProcessor(size={"height": 448, "width": 448})
    vectors = []
    for turns in CONVERSATIONS:
        images, counts = media_of(turns)
        text = templated(processor, turns)
        # The text of each is put in the place of its mark, as the processor does.
        for count in counts:
            made = video_of(processor, count)
            text = text.replace("<video>", processor.replace_video_token(made, 0), 1)
        # Of one tile an image is what it is alone: the marks of frames are no images'.
        frame = "<img>" + "<IMG_CONTEXT>" * 256 + "</img>"
        pieces = text.split(frame)
        if images:
            sizes = processor.image_processor(images, return_tensors="pt")
            pieces = [
                p.replace("<IMG_CONTEXT>", processor.replace_image_token(sizes, 0)) for p in pieces
            ]
        ids = processor.tokenizer(frame.join(pieces))["input_ids"]
        vectors.append(described(turns, counts, ids))
        # All at once where the processor takes them.
        if len(set(counts)) == 1 and not images:
            whole = processor(
                text=[processor.apply_chat_template(
                    [{"role": role, "content": [
                        {"type": "text", "text": p} if isinstance(p, str) else {"type": "video"}
                        for p in own]} for role, own in turns], tokenize=False)],
                videos=[torch.zeros((n, 3, 30, 40), dtype=torch.uint8) for n in counts],
                return_tensors="pt")  # fmt: skip
            assert whole["input_ids"][0].tolist() == ids
    write(sys.argv[1], vectors)


if __name__ == "__main__":
    main()
