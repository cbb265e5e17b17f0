#!/usr/bin/env python3
"""Writes testdata/: small SentencePiece models, and other programs' ids of texts.

    pip install sentencepiece==0.2.3 transformers==5.23.0
    python3 make_vectors.py

The models are trained on the prose below and differ as models in use do.
NAME.ids.json holds a list of [text, ids, ends]:

  ids   SentencePieceProcessor.encode(text). Where a text spells out a control
        symbol, or begins with a user-defined one, Hugging Face's rules apply
        instead: the text is cut at control symbols, and the model's space
        precedes it only if it begins with text, not a symbol (the same model
        with add_dummy_prefix off encodes the rest).
  ends  the end of each piece, in bytes of UTF-8; null where symbols were cut.

llama.hf.json holds [text, ids] of transformers' LlamaTokenizer, made of the
same model file with legacy=False, which does not follow these rules.
"""

import io
import json
import os
import random
import re
import shutil
import sys
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as model_pb2

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "testdata")

PROSE = """
The quick brown fox jumps over the lazy dog, and it's said that they'll do it again.
Receipts list items, prices and totals: 3 x coffee 12.50, total 37.50 EUR; paid 40.00.
What is in this picture? A table with four columns; the second holds the dates.
The third row says that the total was paid in cash, and the last that it was not.
Die Straße ist schön, der Fluß auch. Où est la bibliothèque? Él comió una piña.
Быстрая коричневая лиса прыгает через ленивую собаку. Καλημέρα κόσμε, τι κάνεις;
快速的棕色狐狸跳过了懒狗。这是一张收据。東京タワーはどこですか。 こんにちは世界
"""

# Two columns of code points in hexadecimal: a small table; the library's own
# rules take a quarter of a megabyte.
RULES = "".join(
    " ".join("%X" % ord(c) for c in a) + "\t" + " ".join("%X" % ord(c) for c in b) + "\n"
    for a, b in [
        ("ﬁ", "fi"),
        ("ﬀ", "ff"),
        ("½", "1/2"),
        ("\u212b", "\u00c5"),
        ("e\u0301", "é"),
        ("\u3000", " "),
        ("\t", " "),
        ("\n", " "),
        ("\u200b", ""),
        ("Ａ", "A"),
        ("…", "..."),
    ]
)

SYMBOLS = ["<|im_start|>", "<|im_end|>", "<|image_pad|>", "<|vision_start|>", "<|vision_end|>"]
CONTROL = ["<|endoftext|>", "<|c|>"]

MODELS = {
    # Like T5's or ALBERT's: normalised, white space removed, no bytes.
    "unigram": dict(model_type="unigram", vocab_size=400, normalization_rule_tsv=RULES),
    # Like Llama's: nothing normalised, bytes for characters in no piece.
    "llama": dict(
        model_type="bpe",
        vocab_size=640,
        byte_fallback=True,
        normalization_rule_name="identity",
        split_digits=True,
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
    ),
    # Like chat models trained with their symbols.
    "symbols": dict(
        model_type="bpe",
        vocab_size=660,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        user_defined_symbols=SYMBOLS + ["\n\n", "   "],
        control_symbols=CONTROL,
        pad_id=3,
    ),
    # Like Gemma's: no space before the text.
    "no_prefix": dict(
        model_type="unigram",
        vocab_size=660,
        byte_fallback=True,
        add_dummy_prefix=False,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        user_defined_symbols=SYMBOLS,
    ),
}

OWN_TEXTS = [
    "▁",
    "a▁b ▁c",
    "<s>",
    "</s>",
    "<unk>",
    "<pad>",
    "<s> The</s>",
    "<s>The",
    "x<s>y",
    " <s> ",
    "The fox<s>The fox</s> The fox",
    "<0x0A>",
    "The <unk> fox",
    "<s><s>",
    "<|c|>The fox<|c|> The fox <|c|>",
    "<|im_start|>user\nWhat is this?<|im_end|>\n<|im_start|>assistant\nA fox.",
    "The<|im_start|> fox",
    "The <|im_start|>fox",
    "<|im_start|>",
    "<|im_end|>x",
    "<|im_start",
    "<|im_start|><|im_end|>",
    "<|endoftext|>The fox",
    "The fox<|endoftext|>",
    "<|c|><|im_start|>user",
    "<|c|> <|im_start|> user",
    "\n\n",
    "\n\nThe",
    "   The",
    "a\n\n\nb",
    "a    b     c",
    " <|im_start|>x",
    "12345 67890",
    "ﬁne ½ Ａ…",
    "the quick brown fox",
]


def train(options):
    lines = [line for line in PROSE.split("\n") if line]
    if "normalization_rule_tsv" in options:
        with tempfile.NamedTemporaryFile("w", delete=False) as rules:
            rules.write(options["normalization_rule_tsv"])
        options = dict(options, normalization_rule_tsv=rules.name)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        minloglevel=2,
        hard_vocab_limit=False,
        character_coverage=0.98,
        num_threads=1,
        **options,
    )
    proto = model_pb2.ModelProto.FromString(model.getvalue())
    # Removes the paths of the machine that ran this.
    proto.trainer_spec.ClearField("input")
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    return proto


def encode(proto, text):
    types = model_pb2.ModelProto.SentencePiece
    control = [p.piece for p in proto.pieces if p.type in (types.CONTROL, types.UNKNOWN)]
    user = [p.piece for p in proto.pieces if p.type == types.USER_DEFINED]
    model = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    bare = model_pb2.ModelProto()
    bare.CopyFrom(proto)
    bare.normalizer_spec.add_dummy_prefix = False
    without = sentencepiece.SentencePieceProcessor(model_proto=bare.SerializeToString())
    has_control = any(c in text for c in control)
    if not has_control and not any(text.startswith(u.replace("▁", " ")) for u in user):
        found = model.encode(text, return_type="proto")
        return model.encode(text), [p.end for p in found.pieces]
    ids = []
    cut = re.split(
        "(" + "|".join(map(re.escape, sorted(control, key=len, reverse=True))) + ")", text
    )
    for i, part in enumerate(cut):
        if part in control:
            ids.append(model.piece_to_id(part))
        elif i == 0 and not any(part.startswith(u.replace("▁", " ")) for u in user):
            ids += model.encode(part)
        else:
            ids += without.encode(part)
    return ids, None


def main():
    os.makedirs(OUT, exist_ok=True)
    texts = json.load(open(os.path.join(HERE, "../bpe/testdata/texts.json")))
    texts += OWN_TEXTS
    pick = random.Random(7)
    snippets = [
        "The fox",
        " ",
        "  ",
        "\n",
        "<s>",
        "</s>",
        "<|c|>",
        "12",
        "<|im_start|>",
        "<|im_end|>",
        "é",
        "😀",
        "这是",
        "x",
        " a",
        "\n\n",
        "   ",
        "▁",
        "Straße",
        "<|image_pad|>",
        "<unk>",
    ]
    for _ in range(150):
        texts.append("".join(pick.choice(snippets) for _ in range(pick.randint(1, 8))))
    for name, options in MODELS.items():
        proto = train(options)
        with open(os.path.join(OUT, name + ".model"), "wb") as file:
            file.write(proto.SerializeToString())
        vectors = [[t, *encode(proto, t)] for t in texts]
        with open(os.path.join(OUT, name + ".ids.json"), "w") as file:
            json.dump(vectors, file, ensure_ascii=True, separators=(",", ":"))
    hugging_face(texts)


def hugging_face(texts):
    from transformers import LlamaTokenizer

    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(os.path.join(OUT, "llama.model"), os.path.join(folder, "tokenizer.model"))
        tokenizer = LlamaTokenizer.from_pretrained(folder, legacy=False)
    vectors = [[t, tokenizer.encode(t, add_special_tokens=False)] for t in texts]
    with open(os.path.join(OUT, "llama.hf.json"), "w") as file:
        json.dump(vectors, file, ensure_ascii=True, separators=(",", ":"))


if __name__ == "__main__":
    sys.exit(main())
