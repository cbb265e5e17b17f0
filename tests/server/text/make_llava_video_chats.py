#!/usr/bin/env python3
"""Writes the ids of conversations with a video as LLaVA-Video's training code makes them.

    python3 make_llava_video_chats.py testdata/llava_video_chats.json

No package has that code, so its rules (LLaVA-NeXT, llava/train/train.py: the sentence of
times, preprocess_multimodal and preprocess_qwen) are written here a second time. A line
has the conversation, the frames and their times, or `images`, and the ids, runs as
[id, count]: a video's mark is replaced by its rows, 210 a frame; an image's by 730, of
two that are padded to squares. Needs tokenizers, and family_chats.tokenizer.json.
"""

import itertools
import json
import os
import sys

from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
MARK = "<image>"
SYSTEM = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
# Conversations, the frames of their video (0: none), and whether its times are told.
CASES = [
    ([("human", "<image>\nWhat moves?"), ("gpt", "A fox.")], 3, False),
    ([("human", "<image>\nWhat moves?"), ("gpt", "A fox.")], 3, True),
    ([("human", "Look at it:\n<image> \n"), ("gpt", "Yes.\n"), ("human", " And? "),
      ("gpt", "  It ends.")], 2, False),
    ([("human", "Look at it:\n<image> \n"), ("gpt", "Yes.\n"), ("human", " And? "),
      ("gpt", "  It ends.")], 2, True),
    ([("human", "<image>"), ("gpt", "One")], 1, False),
    ([("human", " \n<image>\u3000"), ("gpt", "One")], 1, False),
    ([("human", "Before."), ("gpt", "Sure."), ("human", "now\n\n<image>\n\nthen"),
      ("gpt", "naïve 안녕")], 12, False),
    # The sentence has the mark, also where no turn had one.
    ([("human", "No mark?"), ("gpt", "There is.")], 4, True),
    ([("human", "<image>\n<image>\nTwice"), ("gpt", "Once.")], 1, True),
    ([("human", "Two: <image> and <image>\nWhich?"), ("gpt", "That.")], 0, False),
    ([("human", "First. <image> "), ("gpt", "Yes."), ("human", "<image>\nSame?"),
      ("gpt", "No.")], 0, False),
    ([("human", "Hello "), ("gpt", " World\n")], 0, False),
]  # fmt: skip


def with_times(turns, length, frames):
    told = ",".join(f"{at:.2f}s" for at in frames)
    sentence = (
        f"The video lasts for {length:.2f} seconds, and {len(frames)} frames are uniformly "
        f"sampled from it. These frames are located at {told}.Please answer the following "
        "questions related to this video.")  # fmt: skip
    (speaker, text), *others = turns
    return [(speaker, f"{MARK}\n{sentence}\n{text.replace(MARK, '')}"), *others]


def moved(text):
    if text.count(MARK) == 1 and not text.startswith(MARK):
        return f"{MARK}\n{text.replace(MARK, '').strip()}".strip()
    return text


def ids_of(turns, tokenizer, run):
    """Each turn is encoded alone, after the code's own system turn; `run` placeholders stand
    for a mark."""
    ids = tokenizer.encode(SYSTEM).ids
    for speaker, text in turns:
        role = {"human": "user", "gpt": "assistant"}[speaker]
        ids += tokenizer.encode(f"<|im_start|>{role}\n{text}<|im_end|>\n").ids
    image = tokenizer.token_to_id(MARK)
    expanded = []
    for key, group in itertools.groupby(ids):
        count = len(list(group)) * (run if key == image else 1)
        expanded += [[key, count]] if count > 3 else [key] * count
    return expanded


def main(path):
    tokenizer = Tokenizer.from_file(os.path.join(HERE, "testdata", "family_chats.tokenizer.json"))
    lines = []
    for turns, frames, tells in CASES:
        line = {"conversations": [{"from": who, "value": text} for who, text in turns]}
        if frames == 0:
            marks = sum(text.count(MARK) for _, text in turns)
            line["images"] = [[400, 500]] * marks
            line["ids"] = ids_of([(who, moved(text)) for who, text in turns], tokenizer, 730)
        else:
            times = [i * 1.337 for i in range(frames)]
            line.update(
                frames=frames, length=frames * 1.337 if tells else 0, times=times if tells else []
            )
            if tells:
                turns = with_times(turns, line["length"], times)
            turns = [(who, moved(text)) for who, text in turns]
            line["ids"] = ids_of(turns, tokenizer, 210 * frames)
        lines.append(json.dumps(line, ensure_ascii=False))
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    if {"--help", "-h"} & set(sys.argv[1:]):
        print(__doc__, end="")
        sys.exit()
    main(sys.argv[1])
