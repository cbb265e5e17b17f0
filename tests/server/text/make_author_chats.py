#!/usr/bin/env python3
"""Writes conversations as the models' authors' training code makes them.

    python3 make_author_chats.py testdata/author_chats.json

The code (`trained_by` of models/NAME.textproto names it) is not run here: its rules are
written a second time. A line has a family, a conversation with its images, the whole text
with `<image>` for each image, and the pieces that are learnt. Needs nothing.

What a page says of the authors' code and Ballast leaves out (docs/families.md, "Whose
code") is left out here, too: line feeds, headers of turns and marks that are learnt beside
the answers.
"""

import json
import sys

MARK = "<image>"
POLITE = (
    "A chat between a curious {0} and an artificial intelligence assistant. The assistant "
    "gives helpful, detailed, and polite answers to the {0}'s questions."
)
INTERN = (
    "你是书生·万象，英文名是InternVL，是由上海人工智能实验室、清华大学及多家合作单位联合开发的"
    "多模态大语言模型。"
)
SMOL = (
    "You are a helpful language and vision assistant. You are able to understand the visual "
    "content that the user provides, and assist the user with a variety of tasks using natural "
    "language."
)
# Turns of LLaVA's form; the first five are those of the review of 2026-11.
RECORDS = [
    [("human", "<image>\nWhat is this?"), ("gpt", "A cat."), ("human", "Colour?"), ("gpt", "Red.")],
    [("human", "<image>What?"), ("gpt", "A cat.")],
    [("system", ""), ("human", "<image>What is this?"), ("gpt", "A cat.")],
    [("human", "Image 1: <image>\nImage 2: <image>\nWhich is red?"), ("gpt", "The first.")],
    [("human", "<image>\n<image>\nCompare."), ("gpt", "Ok.")],
    [("human", "What is this?\n<image>"), ("gpt", " A cat.\n")],
    [("human", "Look at <image> and say.  "), ("gpt", "Yes."), ("human", " And? "), ("gpt", " No. ")],
    [("human", "First."), ("gpt", "One."), ("human", "<image>\nNow?"), ("gpt", "Two.")],
    [("human", "<image>"), ("gpt", "A cat.")],
    [("system", " Be brief. "), ("human", "Hello"), ("gpt", "Hi.")],
]  # fmt: skip


def on_lines(text):
    """preprocess_multimodal of LLaVA, which keeps one mark of several; here each stays."""
    marks = text.count(MARK)
    if marks == 0:
        return text
    return ((MARK + "\n") * marks + text.replace(MARK, "").strip()).strip()


def only_first(text):
    """preprocess_multimodal of LLaVA-NeXT."""
    if text.count(MARK) != 1 or text.startswith(MARK):
        return text
    return (MARK + "\n" + text.replace(MARK, "").strip()).strip()


def with_system(turns, default):
    return turns if turns[0][0] == "system" else [("system", default), *turns]


class Text:
    """A text and its learnt pieces."""

    def __init__(self, begin=""):
        self.text = begin
        self.learnt = []

    def add(self, text, learnt=""):
        self.text += text + learnt
        if learnt:
            self.learnt.append(learnt)


def vicuna(turns, person, move):
    out = Text("<s>")
    for who, text in with_system(turns, POLITE.format(person)):
        if who == "system":
            out.add(text + " ")
        elif who == "human":
            out.add("USER: " + move(text) + " ")
        else:
            # The prompt ends before the space, which is learnt.
            out.add("ASSISTANT:", " " + move(text) + "</s>")
    return out


def chatml(turns, system, move):
    out = Text()
    for who, text in with_system(turns, system):
        if who == "gpt":
            out.add("<|im_start|>assistant\n", move(text) + "<|im_end|>")
            out.add("\n")
        else:
            out.add(f"<|im_start|>{'user' if who == 'human' else who}\n{move(text)}<|im_end|>\n")
    return out


def kimi(turns):
    """No code of the authors: the template, and a record's own line feed."""
    out = Text()
    for who, text in turns:
        if who == "gpt":
            out.add("<|im_assistant|>assistant<|im_middle|><think></think>", text + "<|im_end|>")
            continue
        role = "user" if who == "human" else who
        text = text.replace(MARK + "\n", MARK).replace(MARK, MARK + "\n")
        out.add(f"<|im_{role}|>{role}<|im_middle|>{text}<|im_end|>")
    return out


def ernie(turns):
    """SFTMultimodalDatasetJson: texts are stripped; the last answer alone is learnt."""
    out = Text("<|begin_of_sentence|>")
    pictures = 0
    for number, (who, text) in enumerate(turns):
        if who == "system":
            out.add(text.strip() + "\n")
        elif who == "human":
            out.add("User: ")
            for part, piece in enumerate(text.split(MARK)):
                if part:
                    pictures += 1
                    out.add(f"Picture {pictures}:{MARK}")
                out.add(piece.strip())
        elif number == len(turns) - 1:
            out.add("\nAssistant: <think>\n\n</think>\n\n", text.strip() + "<|end_of_sentence|>")
        else:
            out.add(f"\nAssistant: {text.strip()}<|end_of_sentence|>")
    return out


def glm(turns, before, strip):
    """The checkpoints' templates; the ends by efficient_eos of LLaMA-Factory."""
    out = Text("[gMASK]<sop>")
    for number, (who, text) in enumerate(turns):
        if who == "gpt":
            last = number == len(turns) - 1
            out.add(
                "<|assistant|>\n" + before,
                (text.strip() if strip else text) + ("<|endoftext|>" if last else ""),
            )
            if not last:  # what is learnt there is not the token that stands there
                out.text += "<|user|>"
                out.learnt[-1] += "<|endoftext|>"
            continue
        header = "<|system|>" if who == "system" else "<|user|>"
        written = number > 0 and turns[number - 1][0] == "gpt"
        out.add(("" if written else header) + "\n" + text)
    return out


def smol(turns):
    """SupervisedDataset of SmolVLM2: stripped parts, and its processor's template."""
    out = Text("<|im_start|>")
    for who, text in with_system(turns, SMOL):
        parts = [part.strip() for part in text.replace(MARK, "\0" + MARK + "\0").split("\0")]
        parts = [part for part in parts if part] or [text]
        role = {"system": "System:", "human": "User:", "gpt": "Assistant:"}[who]
        out.add(role + ("" if parts[0] == MARK else " "))
        said = "".join(parts) + "<end_of_utterance>"
        out.add("" if who == "gpt" else said, said if who == "gpt" else "")
        out.add("\n")
    return out


def same(text):
    return text


QWEN = "You are a helpful assistant."
FAMILIES = {
    "llava1_5": lambda turns: vicuna(turns, "user", on_lines),
    "llava1_5_pad": lambda turns: vicuna(turns, "user", on_lines),
    "vipllava": lambda turns: vicuna(turns, "human", on_lines),
    "llava_next": lambda turns: vicuna(turns, "user", only_first),
    "llava_onevision": lambda turns: chatml(turns, QWEN, only_first),
    "llava_video": lambda turns: chatml(turns, QWEN, only_first),
    "internvl3": lambda turns: chatml(turns, INTERN, same),
    "kimi_k25": kimi,
    "ernie4_5_vl": ernie,
    "glm4v": lambda turns: glm(turns, "", False),
    "glm46v": lambda turns: glm(turns, "<think></think>\n", True),
    "smolvlm": smol,
}


def main(path):
    lines = []
    for family, write in FAMILIES.items():
        for turns in RECORDS:
            written = write(turns)
            lines.append(
                {
                    "family": family,
                    "conversations": [{"from": who, "value": text} for who, text in turns],
                    "images": sum(text.count(MARK) for _, text in turns),
                    "text": written.text,
                    "learnt": written.learnt,
                }
            )
    with open(path, "w", encoding="utf-8") as file:
        rows = [json.dumps(line, ensure_ascii=False, separators=(",", ":")) for line in lines]
        file.write("[\n" + ",\n".join(rows) + "\n]\n")


if __name__ == "__main__":
    main(sys.argv[1])
