#!/usr/bin/env python3
"""Compares ids of conversations with those of the model families' processors.

    python3 check_family_chats.py --ballast-server ballast-server
    python3 check_family_chats.py --vectors testdata

For each family builds the processor of transformers 5 with a small tokenizer,
renders conversations with images by the family's chat template, or by ChatML where
it has none of its own, and compares the ids with those of `ballast-server inspect
conversation`. Prints a line for each family; exits with 1 if any id differs. Needs
transformers, torch, torchvision and Pillow.

--vectors writes family_chats.json, the conversations and the processors' ids, and
family_chats.tokenizer.json for family_conversation_test.cc.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "media", "image_plan"))
from PIL import Image  # noqa: E402
from text_processors import PROCESSORS, text_processor  # noqa: E402
from transformers.models.llama4 import processing_llama4  # noqa: E402
from transformers.models.smolvlm import processing_smolvlm  # noqa: E402

GEMMA = (
    "<bos>{% set first = messages[0]['content'][0]['text'] + '\n\n'"
    " if messages[0]['role'] == 'system' else '' %}"
    "{% for m in messages if m['role'] != 'system' %}"
    "{{ '<start_of_turn>' + ('model' if m['role'] == 'assistant' else 'user') + '\n' }}"
    "{{ first if loop.first }}{% for c in m['content'] %}"
    "{{ '<start_of_image>' if c['type'] == 'image' else c['text'] | trim }}{% endfor %}"
    "{{ '<end_of_turn>\n' }}{% endfor %}"
)
INTERNVL = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% for c in m['content'] %}"
    "{{ '<IMG_CONTEXT>\n' if c['type'] == 'image' else c['text'] }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
)
LLAVA = (
    "{% for m in messages %}{{ m['role'].upper() + ': ' if m['role'] != 'system' }}"
    "{% for c in m['content'] if c['type'] == 'image' %}{{ '<image>\n' }}{% endfor %}"
    "{% for c in m['content'] if c['type'] == 'text' %}{{ c['text'] + ' ' }}{% endfor %}"
    "{% endfor %}"
)
ONEVISION = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + ' ' }}"
    "{% for c in m['content'] if c['type'] == 'image' %}<image>{% endfor %}"
    "{% for c in m['content'] if c['type'] == 'text' %}{{ '\n' + c['text'] }}{% endfor %}"
    "<|im_end|>{% endfor %}"
)
# As the checkpoints' own, with their videos.
ONEVISION_VIDEOS = ONEVISION.replace(
    "<image>{% endfor %}",
    "<image>{% endfor %}{% for c in m['content'] if c['type'] == 'video' %}<video>{% endfor %}",
)
PIXTRAL = (
    "<s>{% for m in messages %}{{ '[INST]' if m['role'] == 'user' }}{% for c in m['content'] %}"
    "{{ '[IMG]' if c['type'] == 'image' else c['text'] }}{% endfor %}"
    "{{ '[/INST]' if m['role'] == 'user' else '</s>' }}{% endfor %}"
)
KIMI = (
    "{% for m in messages %}{{ '<|im_' + m['role'] + '|>' + m['role'] + '<|im_middle|>' }}"
    "{{ '<think></think>' if m['role'] == 'assistant' }}{% for c in m['content'] %}"
    "{{ '<|media_begin|>image<|media_content|><|media_pad|><|media_end|>\n' if c['type'] == 'image'"
    " else c['text'] }}{% endfor %}{{ '<|im_end|>' }}{% endfor %}"
)
# The thoughts, none here, of answers to the last question alone.
MINICPM = (
    "{% set ns = namespace(last=-1, parts=[]) %}"
    "{% for m in messages if m['role'] == 'user' %}{% set ns.last = messages.index(m) %}{% endfor %}"
    "{% for m in messages %}{% set ns.parts = [] %}{% for c in m['content'] %}"
    "{% set ns.parts = ns.parts + ['<|image_pad|>' if c['type'] == 'image' else c['text']] %}{% endfor %}"
    "{{ '<|im_start|>' + m['role'] + '\n' }}"
    "{{ '<think>\n\n</think>\n\n' if m['role'] == 'assistant' and loop.index0 > ns.last }}"
    "{{ ns.parts | join('\n') | trim }}{{ '<|im_end|>\n' }}{% endfor %}"
)
GEMMA4 = (
    "<bos>{% for m in messages %}"
    "{{ '<|turn>' + ('model' if m['role'] == 'assistant' else m['role']) + '\n' }}"
    "{% for c in m['content'] %}{{ '<|image|>' if c['type'] == 'image' else c['text'] | trim }}{% endfor %}"
    "{{ '<turn|>\n' }}{% endfor %}"
)
GLM_TURNS = (
    "[gMASK]<sop>{% for m in messages %}{{ '<|' + m['role'] + '|>\n' }}ANSWER{% for c in m['content'] %}"
    "{{ '<|begin_of_image|><|image|><|end_of_image|>' if c['type'] == 'image' else TEXT }}"
    "{% endfor %}{% endfor %}"
)
GLM41 = GLM_TURNS.replace("ANSWER", "").replace("TEXT", "c['text']")
# An answer has one part.
GLM46 = GLM_TURNS.replace(
    "ANSWER",
    "{{ '<think></think>' if m['role'] == 'assistant' }}"
    "{{ '\n' if m['role'] == 'assistant' and m['content'][0]['text'] | trim }}",
).replace("TEXT", "c['text'] | trim if m['role'] == 'assistant' else c['text']")
ERNIE = (
    "<|begin_of_sentence|>{% set ns = namespace(images=0) %}{% for m in messages %}"
    "{{ {'system': '', 'user': 'User: ', 'assistant': '\nAssistant: '}[m['role']] }}"
    "{% for c in m['content'] %}{% if c['type'] == 'image' %}{% set ns.images = ns.images + 1 %}"
    "{{ 'Picture ' ~ ns.images ~ ':<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>' }}"
    "{% else %}{{ c['text'] }}{% endif %}{% endfor %}"
    "{{ {'system': '\n', 'user': '', 'assistant': '<|end_of_sentence|>'}[m['role']] }}{% endfor %}"
)
HUNYUAN = (
    "<｜hy_begin▁of▁sentence｜>{% for m in messages %}{% for c in m['content'] %}"
    "{{ '<｜hy_place▁holder▁no▁100｜><｜hy_place▁holder▁no▁102｜><｜hy_place▁holder▁no▁101｜>'"
    " if c['type'] == 'image' else c['text'] }}{% endfor %}"
    "{{ {'system': '<｜hy_place▁holder▁no▁3｜>', 'user': '<｜hy_User｜>',"
    " 'assistant': '<｜hy_Assistant｜>'}[m['role']] }}{% endfor %}"
)
VIPLLAVA = (
    "{% for m in messages %}"
    "{{ {'system': '', 'user': '###Human: ', 'assistant': '###Assistant: '}[m['role']] }}"
    "{% for c in m['content'] if c['type'] == 'image' %}{{ '<image>\n' }}{% endfor %}"
    "{% for c in m['content'] if c['type'] == 'text' %}{{ c['text'] }}{% endfor %}{% endfor %}"
)
# Of a model without a template here; its processor replaces <image>.
PLAIN = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% for c in m['content'] %}"
    "{{ '<image>' if c['type'] == 'image' else c['text'] }}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}"
)
SMOLVLM = processing_smolvlm.DEFAULT_CHAT_TEMPLATE
LLAMA4 = processing_llama4.chat_template.replace("{{- bos_token }}", "{{- '<|begin_of_text|>' }}")
CHATML = ["<|im_start|>", "<|im_end|>"]
GLM = ["[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>"]
# Family -> template, its special tokens, the token that the tokenizer writes first.
COVERED = {
    "aya_vision": (PLAIN, CHATML, None),
    "ernie4_5_vl": (ERNIE, ["<|begin_of_sentence|>", "<|end_of_sentence|>", "</think>"], None),
    "gemma3": (GEMMA, ["<bos>", "<start_of_turn>", "<end_of_turn>"], None),
    "gemma3_pan_and_scan": (GEMMA, ["<bos>", "<start_of_turn>", "<end_of_turn>"], None),
    "gemma4": (GEMMA4, ["<bos>", "<|turn>", "<turn|>", "<|channel>", "<channel|>"], None),
    "glm46v": (GLM46, [*GLM, "<think>", "</think>"], None),
    "glm4v": (GLM41, GLM, None),
    "hunyuan_vl": (
        HUNYUAN,
        [
            "<｜hy_begin▁of▁sentence｜>",
            "<｜hy_place▁holder▁no▁3｜>",
            "<｜hy_User｜>",
            "<｜hy_Assistant｜>",
        ],
        None,
    ),
    "idefics3": (SMOLVLM.replace("<|im_start|>", "<|begin_of_text|>"), ["<|begin_of_text|>"], None),
    "internvl3": (INTERNVL, CHATML, None),
    "kimi_k25": (
        KIMI,
        [
            "<|im_system|>",
            "<|im_user|>",
            "<|im_assistant|>",
            "<|im_middle|>",
            "<|im_end|>",
            "<think>",
            "</think>",
        ],
        None,
    ),
    "llama4": (
        LLAMA4,
        ["<|begin_of_text|>", "<|header_start|>", "<|header_end|>", "<|eot|>"],
        None,
    ),
    "llava1_5": (LLAVA, ["<s>"], "<s>"),
    "llava1_5_pad": (LLAVA, ["<s>"], "<s>"),
    "llava_next": (LLAVA, ["<s>"], "<s>"),
    "llava_onevision": (ONEVISION, CHATML, None),
    "minicpmv4_6": (MINICPM, [*CHATML, "<think>", "</think>"], None),
    "pixtral": (PIXTRAL, ["<s>", "</s>", "[INST]", "[/INST]"], None),
    "qianfan_ocr": (PLAIN, CHATML, None),
    "smolvlm": (SMOLVLM, ["<|im_start|>"], None),
    "vipllava": (VIPLLAVA, ["<s>"], "<s>"),
}
# One tokenizer serves all families.
SPECIALS = sorted(
    {token for _, tokens, _ in COVERED.values() for token in tokens}
    | {
        token
        for _, _, _, named, tokens in PROCESSORS.values()
        for token in [*named.values(), *tokens]
        if token
    }
)
NO_SYSTEM = {"pixtral"}
ONE_ANSWER = {"hunyuan_vl"}
# White space beside images and turns merges, so that ids show what is encoded
# together.
MERGES = [("Ċ", "Ċ"), ("ĊĊ", "ĊĊ"), ("Ġ", "Ċ"), ("Ġ", "Ġ"), (":", "Ġ"), ("Ċ", "W"), ("e", "r")]

# A part is a text, or an image's (width, height).
CONVERSATIONS = [
    [("user", ["Hello"]), ("assistant", ["Hello, world!"])],
    [("user", [(640, 480), "What is this?"]), ("assistant", ["A brown fox."])],
    [
        ("system", ["You see pictures."]),
        ("user", [(448, 896), "\nWhere?\n"]),
        ("assistant", ["Here: 😀 naïve 안녕"]),
        ("user", ["And now?  "]),
        ("assistant", ["  There\n\n"]),
    ],
    [
        ("user", ["Compare ", (1200, 300), " with \n", (500, 500), "\n\nWhich is larger?"]),
        ("assistant", ["The second."]),
        ("user", [(300, 1100), "Smaller?"]),
        ("assistant", ["Yes."]),
    ],
    [("user", [(337, 336), (1, 200)]), ("assistant", ["Two."])],
    [
        ("user", ["  \n", (500, 500), " "]),
        ("assistant", ["One"]),
        ("user", ["And?"]),
        ("assistant", [" and one.\n"]),
    ],
    [
        ("system", [" Read. "]),
        ("user", ["Text:", (700, 60), " \n", (60, 700), "?"]),
        ("assistant", [" None \n"]),
    ],
]


def by_hugging_face(processor, turns):
    sizes = [part for _, parts in turns for part in parts if not isinstance(part, str)]
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
    text = processor.apply_chat_template(messages, tokenize=False)
    images = [[Image.new("RGB", size) for size in sizes]] if sizes else None
    return list(processor(text=[text], images=images, return_tensors=None)["input_ids"][0])


def line_of(turns):
    messages = [
        {"role": role, "content": "".join(p if isinstance(p, str) else "<image>" for p in parts)}
        for role, parts in turns
    ]
    sizes = [[p[1], p[0]] for _, parts in turns for p in parts if not isinstance(p, str)]
    return json.dumps({"messages": messages, "images": sizes})


def by_ballast(server, family, tokenizer, conversations):
    command = [
        server,
        "inspect",
        "conversation",
        "--model",
        family,
        "--rules",
        "transformers",
        "--tokenizer",
        tokenizer,
    ]
    lines = "\n".join(line_of(turns) for turns in conversations)
    return subprocess.run(command, input=lines, capture_output=True, text=True, check=False)


def conversations_of(family):
    return [
        turns
        for turns in CONVERSATIONS
        if (family not in NO_SYSTEM or turns[0][0] != "system")
        and (family not in ONE_ANSWER or sum(role == "assistant" for role, _ in turns) == 1)
    ]


def processor_of(family):
    template, _, begin = COVERED[family]
    return text_processor(family, SPECIALS, MERGES, begin, template)


def save_tokenizer(processor, path):
    data = json.loads(processor.tokenizer.backend_tokenizer.to_str())
    data["post_processor"] = None
    with open(path, "w", encoding="utf-8") as file:
        json.dump(data, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")


def check(server, family, folder):
    """The faults of one family."""
    path = os.path.join(folder, family + ".json")
    processor = processor_of(family)
    save_tokenizer(processor, path)
    conversations = conversations_of(family)
    ours = by_ballast(server, family, path, conversations)
    if ours.returncode != 0:
        return [ours.stderr]
    faults = []
    for turns, line in zip(conversations, ours.stdout.splitlines(), strict=True):
        theirs = by_hugging_face(processor, turns)
        ids = json.loads(line)["ids"]
        if ids != theirs:
            at = next(
                (i for i, (a, b) in enumerate(zip(ids, theirs)) if a != b),
                min(len(ids), len(theirs)),
            )
            decode = processor.tokenizer.decode
            faults.append(
                f"{turns}: differ at token {at} of {len(theirs)}: ours "
                f"{decode(ids[at - 5 : at + 20])!r}, theirs {decode(theirs[at - 5 : at + 20])!r}"
            )
    return faults


def in_runs(ids):
    """Ids, with [id, count] for a run of more than three."""
    runs = [(key, len(list(group))) for key, group in itertools.groupby(ids)]
    return [
        item for key, count in runs for item in ([[key, count]] if count > 3 else [key] * count)
    ]


def write_vectors(folder):
    vectors = []
    for family in COVERED:
        processor = processor_of(family)
        for turns in conversations_of(family):
            ids = in_runs(by_hugging_face(processor, turns))
            vectors.append({"family": family, **json.loads(line_of(turns)), "ids": ids})
    save_tokenizer(processor, os.path.join(folder, "family_chats.tokenizer.json"))
    with open(os.path.join(folder, "family_chats.json"), "w", encoding="utf-8") as file:
        lines = [json.dumps(v, ensure_ascii=False, separators=(",", ":")) for v in vectors]
        file.write("[\n" + ",\n".join(lines) + "\n]\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ballast-server", help="program to compare")
    parser.add_argument("--vectors", metavar="DIR", help="write vectors in place of comparing")
    parser.add_argument("--families", default=",".join(PROCESSORS))
    arguments = parser.parse_args()
    if arguments.vectors:
        return write_vectors(arguments.vectors)
    failed = False
    with tempfile.TemporaryDirectory(prefix="ballast") as folder:
        for family in arguments.families.split(","):
            faults = check(arguments.ballast_server, family, folder)
            print(family, *(faults or ["equal"]), sep=": ", flush=True)
            failed |= bool(faults)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
