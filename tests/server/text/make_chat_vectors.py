#!/usr/bin/env python3
"""Writes testdata/: conversations, and Hugging Face's ids and labels of them.

    pip install tokenizers==0.23.3 jinja2
    python3 make_chat_vectors.py

Each conversation is rendered with the Jinja template of the real model, as
transformers' apply_chat_template(tokenize=True) does: the whole text is encoded
at once, and special tokens are found anywhere in it. A token is supervised if one
of its characters is, as for transformers' return_assistant_tokens_mask.

chat.tokenizer.json is bpe/testdata/llama3.tokenizer.json with the special tokens
of Qwen and Llama 3; chat.json holds the cases.
"""

import json
import os

import jinja2.sandbox
import tokenizers
from tokenizers import AddedToken, Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))

SPECIAL = [
    "<|endoftext|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
]

# Qwen2-VL's and Qwen2.5-VL's, for contents that are strings; `system_prompt` stands where theirs is written out.
QWEN = (
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' and system_prompt %}"
    "<|im_start|>system\n{{ system_prompt }}<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
)
LLAMA3 = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    "+ message['content'] | trim + '<|eot_id|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
)
VICUNA = (
    "{{ '<|begin_of_text|>' }}{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ message['content'] + ' ' }}"
    "{% elif message['role'] == 'user' %}{{ 'USER: ' + message['content'] + ' ' }}"
    "{% else %}{{ 'ASSISTANT: ' + message['content'] + '<|endoftext|>' }}{% endif %}{% endfor %}"
)
TEMPLATES = {"chatml": QWEN, "llama3": LLAMA3, "custom": VICUNA}
# The supervised end after the assistant's text.
ENDS = {"chatml": "<|im_end|>", "llama3": "<|eot_id|>", "custom": "<|endoftext|>"}

CONVERSATIONS = [
    [("user", "Hello"), ("assistant", "Hello, world!")],
    [
        ("system", "You see pictures."),
        ("user", "<image>\nWhat is this?"),
        ("assistant", "A brown fox."),
    ],
    [
        ("user", "<image><image> Which is larger?"),
        ("assistant", "The second.\nIt has 4 columns."),
        ("user", "And this one? <image>"),
        ("assistant", "Smaller; 12.50 EUR."),
    ],
    [
        ("user", "naïve café e\u0301"),
        ("assistant", "안녕하세요 세계 e\u0301 😀"),
        ("user", "你好"),
        ("assistant", ""),
    ],
    # Merges across the seams: white space beside the template's line feeds.
    [("user", "\n\nline\n"), ("assistant", "\n\n  indented\n\n")],
    [("user", "  two  "), ("assistant", "  \u3000ideographic\u3000 ")],
    [("assistant", "I speak first."), ("assistant", "And again."), ("user", "")],
    # Spelled-out special tokens are special tokens.
    [
        ("user", "Say <|im_end|>\n<|im_start|>assistant\nno"),
        ("assistant", "<|eot_id|> or <|endoftext|>?"),
    ],
    [("user", "<|im_<|im_end|> <|IM_END|> <| im_end |>"), ("assistant", "<a><|a|><|ab|>")],
    [("user", "x"), ("assistant", "before <image> after<image>")],
]
COUNTS = [4, 1, 6, 2]
PROMPT = "You are a helpful assistant."


def render(name, messages, system_prompt):
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(TEMPLATES[name])
    return template.render(
        messages=messages, bos_token="<|begin_of_text|>", system_prompt=system_prompt
    )


def expand(text, counts):
    parts = text.split("<image>")
    result = parts[0]
    for part in parts[1:]:
        result += "<|vision_start|>" + "<|image_pad|>" * counts.pop(0) + "<|vision_end|>" + part
    return result


def case(tokenizer, name, turns, system_prompt):
    counts = list(COUNTS)
    messages = [{"role": role, "content": expand(text, counts)} for role, text in turns]
    text = render(name, messages, system_prompt)
    # Marks the supervised characters: those that each further assistant turn
    # adds.
    learnt = [False] * len(text)
    done = 0
    for i, message in enumerate(messages):
        end = len(render(name, messages[: i + 1], system_prompt))
        if message["role"] == "assistant":
            said = message["content"].strip() if name == "llama3" else message["content"]
            said += ENDS[name]
            begin = text.rindex(said, done, end)
            for k in range(begin, begin + len(said)):
                learnt[k] = True
        done = end
    # Tokens of images are never supervised.
    for token in ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>"):
        at = text.find(token)
        while at >= 0:
            learnt[at : at + len(token)] = [False] * len(token)
            at = text.find(token, at + 1)
    encoding = tokenizer.encode(text, add_special_tokens=False)
    mask = [int(any(learnt[begin:end])) for begin, end in encoding.offsets]
    return {
        "template": name,
        "system_prompt": system_prompt,
        "messages": [{"role": role, "content": text} for role, text in turns],
        "image_tokens": COUNTS[: len(COUNTS) - len(counts)],
        "ids": encoding.ids,
        "learnt": mask,
    }


def main():
    assert tokenizers.__version__ == "0.23.3", tokenizers.__version__
    base = Tokenizer.from_file(os.path.join(HERE, "bpe", "testdata", "llama3.tokenizer.json"))
    base.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in SPECIAL]
    )
    data = json.loads(base.to_str())
    data["post_processor"] = None
    tokenizer = Tokenizer.from_str(json.dumps(data))
    cases = []
    for name in TEMPLATES:
        for turns in CONVERSATIONS:
            cases.append(case(tokenizer, name, turns, ""))
    for turns in CONVERSATIONS[:2]:
        cases.append(case(tokenizer, "chatml", turns, PROMPT))
    out = os.path.join(HERE, "testdata")
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "chat.tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump(data, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")
    with open(os.path.join(out, "chat.json"), "w", encoding="utf-8") as file:
        file.write(
            "[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n"
        )


main()
