#!/usr/bin/env python3
"""Writes testdata/: small tokenizers, and Hugging Face's ids of texts.

    pip install tokenizers==0.23.3
    python3 make_vectors.py

One tokenizer.json for each way in which files differ (patterns, normalizers,
forms of the merges, flags of added tokens), trained on the texts below.
texts.json holds the texts; NAME.ids.json, for each text in order, the ids of
encode(text, add_special_tokens=False).
"""

import json
import os
import random
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "testdata")

GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
QWEN2 = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
QWEN3_5 = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
O200K = "|".join(
    [
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""",
        r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
        r"""\s*[\r\n]+""",
        r"""\s+(?!\S)""",
        r"""\s+""",
    ]
)

PROSE = """
The quick brown fox jumps over the lazy dog, and it's said that they'll do it again.
Receipts list items, prices and totals: 3 x coffee 12.50, total 37.50 EUR; paid 40.00.
What is in this picture? A table with four columns; the second holds the dates.
def main(argc, argv):\n    return sum(x ** 2 for x in range(argc)) if argv else None\n
Die Straße ist schön, der Fluß auch. Où est la bibliothèque? Él comió una piña.
Быстрая коричневая лиса прыгает через ленивую собаку. Καλημέρα κόσμε, τι κάνεις;
快速的棕色狐狸跳过了懒狗。这是一张收据。東京タワーはどこですか。 こんにちは世界
안녕하세요 세계 반갑습니다 한국어 문장입니다. مرحبا بالعالم كيف حالك שלום עולם
नमस्ते दुनिया यह एक वाक्य है สวัสดีชาวโลก 😀😁🎉👨‍👩‍👧‍👦🇩🇪🇫🇷 ✓ → ∑ ½ ² Ⅷ ①
"""

HAND = [
    "",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    " \n \n",
    "   \n\n  x",
    "a",
    " a",
    "a ",
    "Hello world",
    "Hello, world!",
    "I'm you're we'll they've it's he'd don't",
    "I'M YOU'RE WE'LL THEY'VE IT'S HE'D DON'T",
    "'s 'S 'ſ 'ſs x'ſ it'ſ",
    "o'clock 'tis rock'n'roll",
    "1 12 123 1234 12345 3.14159 1,000,000",
    "x=1;y=22;z=333",
    "²³¹½¼Ⅷ①٣४",
    "naïve café",
    "e\u0301 a\u0308o\u0308 \u0041\u030a \u212b",
    "q\u0307\u0323 q\u0323\u0307",
    "\u1100\u1161\u11a8 \u1112\u1161\u11ab\u1100\u1173\u11af",
    "\uac00\u11a8",
    "\u0344 \u0f73 \u0958 \ufb1d \u2126 \uf900",
    "\u0301leading mark",
    "a\u0301\u0301\u0327\u0301",
    "안녕하세요 세계",
    "你好,世界!这是一张收据。",
    "東京タワーはどこですか。",
    "مرحبا بالعالم",
    "שלום עולם",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "Привет, мир! Ёлка й ё",
    "😀😁🎉",
    "👨‍👩‍👧‍👦 family",
    "🇩🇪🇫🇷",
    "👍🏽 skin",
    "\u200b\u200d\ufeffx\u2060",
    "\x00\x01\x1f\x7f\x80\x85\x9f",
    "a\u00a0b\u2003c\u3000d\u180ee\u1680f\u2028g\u2029h",
    "\u0085\u0085 \u0085x",
    "x\u001c\u001d\u001e\u001fy",
    "line one\nline two\r\nline three\n\n\nend",
    "    indented\n\tcode()\n",
    "trailing   ",
    "   leading",
    "a  b   c    d",
    "\n\n\n",
    " \n",
    "\n ",
    "\r\r\r",
    "x \r\n y",
    "!!!???...",
    "-- --- ----",
    "a-b_c.d/e\\f",
    "http://example.com/?q=1&r=2#frag",
    "foo@bar.baz",
    "C++ and C# and .NET",
    "<html><body>&nbsp;</body></html>",
    '{"key": [1, 2.5, null, true]}',
    "\ufffd replacement",
    "ﬁ ligature ﬀ",
    "ǅ titlecase ǈ",
    "İstanbul ıI",
    "ΑΣ ς σ",
    "mixedСкриптtext漢字かなhangul한글",
    "a" * 70,
    "ab" * 40,
    "word" * 20,
    " " * 40 + "x",
    "é" * 40,
    "한" * 30,
    "\U0001f9d1\U0001f3fb\u200d\U0001f4bb",
    "\U00031350\U0002ebf0\U00011f02\U0001e4d0",
    "\U00010d40\U00011f50x\U0001ccf0",
    "\u0897x\u0ece\u0cf3",
    "\U00020000\U0002a6df",
    "\U0010ffff\ue000\U000f0000",
    "<|a|>",
    "<|a|><|b|>",
    "x<|a|>y",
    " <|a|> ",
    "  <|left|>  x",
    "x  <|right|>  y",
    "x <|both|> y\n<|both|>",
    "word<word>word <word> (<word>)",
    "é<word>é _<word> 9<word> \u0301<word> <word>\u200d",
    "<|a|",
    "<|a|>>",
    "<|ab|><|a|>",
    "cafe\u0301 caf\u00e9 CAFÉ cafés",
    "norm\u0041\u030a norm\u00c5 norm\u212b",
    "xnormÅx",
    "<<|a|>|a|>",
    "<|both|><|both|> <|left|><|right|> <|left|> <|right|>",
    "\u3000<|left|>\u2003<|right|>\u2003\u3000<|both|>",
    "don<|a|>'t",
    "<think>let me see</think>",
    "<tool_call>{}</tool_call>",
    "\n<|both|>\n\n<|right|>\n\n<|left|>x",
]


def random_texts(count):
    rng = random.Random(20240229)
    ranges = [(0x20, 0x7E)] * 4 + [
        (0, 0x1F),
        (0x80, 0xFF),
        (0x100, 0x24F),
        (0x300, 0x36F),
        (0x370, 0x3FF),
        (0x400, 0x4FF),
        (0x590, 0x5FF),
        (0x600, 0x6FF),
        (0x900, 0x97F),
        (0xE00, 0xE7F),
        (0x1100, 0x11FF),
        (0x1E00, 0x1EFF),
        (0x2000, 0x206F),
        (0x20A0, 0x20CF),
        (0x2150, 0x218F),
        (0x3000, 0x30FF),
        (0x4E00, 0x4FFF),
        (0xAC00, 0xAFFF),
        (0xF900, 0xFAD9),
        (0xFB00, 0xFB4F),
        (0x1F300, 0x1F64F),
        (0x1D400, 0x1D7FF),
        (0x10000, 0x103FF),
        (0x11F00, 0x11F59),
    ]
    bits = [
        "'s",
        "'T",
        "'ll",
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "the",
        "The",
        "ing",
        "123",
        "é",
        "e\u0301",
        "<|a|>",
        " <|left|>",
        "<|right|> ",
        "<word>",
        "<|both|>",
        "caf",
        "\u0301",
        "\u0323",
        "ſ",
        "한",
        "\u1161",
        "\u11a8",
    ]
    texts = []
    for _ in range(count):
        text = ""
        for _ in range(rng.randint(1, 14)):
            if rng.random() < 0.5:
                text += rng.choice(bits)
            else:
                first, last = rng.choice(ranges)
                for _ in range(rng.randint(1, 3)):
                    text += chr(rng.randint(first, last))
        texts.append(text)
    return texts


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(**options):
    return pre_tokenizers.ByteLevel(**{"add_prefix_space": False, "use_regex": False, **options})


def train(pre_tokenizer, normalizer=None, size=640, alphabet=None):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet() if alphabet is None else alphabet
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=sorted(alphabet), show_progress=False
    )
    tokenizer.train_from_iterator(PROSE.strip().split("\n") * 2, trainer)
    return tokenizer


SPECIAL = [
    AddedToken(f"<|{name}|>", special=True, normalized=False)
    for name in ("a", "ab", "b", "im_start", "im_end")
]
FLAGS = [
    AddedToken("<|left|>", lstrip=True, normalized=False, special=True),
    AddedToken("<|right|>", rstrip=True, normalized=False, special=True),
    AddedToken("<|both|>", lstrip=True, rstrip=True, normalized=False),
    AddedToken("<word>", single_word=True, normalized=False),
    AddedToken("caf\u00e9", normalized=True),
    AddedToken("norm\u0041\u030a", normalized=True),
    AddedToken("ing", single_word=True, normalized=True, lstrip=True),
    AddedToken("<think>", normalized=False),
    AddedToken("</think>", normalized=True),
]


def all_tokenizers():
    nfc = normalizers.NFC()
    yield "gpt2", train(pre_tokenizers.ByteLevel(add_prefix_space=False)), {"legacy_merges": True}
    tokenizer = train(pre_tokenizers.ByteLevel(add_prefix_space=True))
    tokenizer.add_tokens(SPECIAL + FLAGS)
    yield "prefix_space", tokenizer, {}
    tokenizer = train(pre_tokenizers.Sequence([split(LLAMA3), byte_level()]))
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|a|> $A", special_tokens=[("<|a|>", 640)]
    )
    yield "llama3", tokenizer, {"ignore_merges": True}
    tokenizer = train(pre_tokenizers.Sequence([split(QWEN2), byte_level()]), nfc)
    tokenizer.add_special_tokens(SPECIAL)
    yield "qwen2", tokenizer, {"legacy_merges": True}
    tokenizer = train(
        pre_tokenizers.Sequence([split(QWEN3_5), byte_level()]), normalizers.Sequence([nfc])
    )
    tokenizer.add_tokens(SPECIAL + FLAGS)
    yield "flags", tokenizer, {}
    yield "o200k", train(pre_tokenizers.Sequence([split(O200K), byte_level()])), {}
    tokenizer = train(
        pre_tokenizers.Sequence(
            [
                split(r"\p{N}{1,3}"),
                split("[一-龥぀-ゟ゠-ヿ]+"),
                split(r"\d|\P{N}+?(?=\s)"),
                split(QWEN2, "removed", True),
                byte_level(add_prefix_space=True, use_regex=True),
            ]
        )
    )
    yield "sequence", tokenizer, {}
    # Lacks most bytes: bytes without a token are dropped.
    yield (
        "gaps",
        train(pre_tokenizers.ByteLevel(add_prefix_space=False), alphabet=["a", "b"], size=300),
        {"drop_bytes": True},
    )


def main():
    assert tokenizers.__version__ == "0.23.3", tokenizers.__version__
    os.makedirs(OUT, exist_ok=True)
    texts = HAND + random_texts(110)

    def write(name, value, **options):
        with open(os.path.join(OUT, name), "w", encoding="utf-8") as file:
            json.dump(value, file, **options)
            file.write("\n")

    write("texts.json", texts, indent=0)
    for name, tokenizer, changes in all_tokenizers():
        data = json.loads(tokenizer.to_str())
        model = data["model"]
        if changes.get("legacy_merges"):
            model["merges"] = [" ".join(pair) for pair in model["merges"]]
        if changes.get("ignore_merges"):
            model["ignore_merges"] = True
            # A token that no merge produces.
            model["vocab"]["Ġbrown"] = (
                len(model["vocab"]) if "Ġbrown" not in model["vocab"] else model["vocab"]["Ġbrown"]
            )
            for i, token in enumerate(data["added_tokens"]):
                token["id"] = len(model["vocab"]) + i
        if changes.get("drop_bytes"):
            kept = [(t, i) for t, i in model["vocab"].items() if not any(c in t for c in "ĠqxĊ")]
            names = {t for t, _ in kept}
            model["vocab"] = {
                t: n for n, (t, _) in enumerate(sorted(kept, key=lambda item: item[1]))
            }
            model["merges"] = [
                m
                for m in model["merges"]
                if m[0] in names and m[1] in names and m[0] + m[1] in names
            ]
        text = json.dumps(data)
        real = Tokenizer.from_str(text)
        write(f"{name}.tokenizer.json", data, ensure_ascii=False, separators=(",", ":"))
        write(
            f"{name}.ids.json",
            [real.encode(t, add_special_tokens=False).ids for t in texts],
            separators=(",", ":"),
        )
    total = sum(os.path.getsize(os.path.join(OUT, f)) for f in os.listdir(OUT))
    print(f"{total} bytes", file=sys.stderr)


main()
