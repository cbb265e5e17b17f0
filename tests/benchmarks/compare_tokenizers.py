#!/usr/bin/env python3
"""Compares the speed of Hugging Face's tokenizers, or SentencePiece's package, with ours.

Prints MB/s on one core, measured in one run.

    pip install tokenizers==0.23.3 sentencepiece==0.2.3
    bazel build --config=opt //tests/benchmarks:text_benchmark //server:ballast-server
    tests/benchmarks/compare_tokenizers.py TOKENIZER_JSON|X.model [TEXT...]

Without texts, those of /usr/share/common-licenses (English prose on every
Debian). Rounds of the two alternate, and medians are printed, since the machine
may be doing other things. The ids of the whole text are compared first, and the
time that both take to load is printed. Times are a
processor's; for SentencePiece, which takes two processes here, a clock's.
"""

import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

PIECE = 4096


def pieces_of(data):
    pieces = []
    begin = 0
    while begin < len(data):
        end = begin + PIECE
        end = len(data) if end >= len(data) else data.find(b" ", end)
        end = len(data) if end < 0 else end
        pieces.append(data[begin:end].decode())
        begin = end
    return pieces


def load(path):
    """A function from a text to its ids."""
    if path.endswith(".model"):
        import sentencepiece

        return sentencepiece.SentencePieceProcessor(model_file=path).encode
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(path)
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tokenizer")
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--server", default="bazel-bin/server/ballast-server")
    parser.add_argument("--benchmark", default="bazel-bin/tests/benchmarks/text_benchmark")
    options = parser.parse_args()
    paths = options.texts or sorted(
        path for path in glob.glob("/usr/share/common-licenses/*") if not os.path.islink(path)
    )
    data = b"\n".join(open(path, "rb").read() for path in paths)
    data = data.decode(errors="replace").encode()
    pieces = pieces_of(data)
    is_model = options.tokenizer.endswith(".model")
    now = time.perf_counter if is_model else time.process_time
    begin = now()
    theirs = load(options.tokenizer)
    load_time = now() - begin

    lines = "".join(json.dumps({"text": piece}) + "\n" for piece in pieces)
    out = subprocess.run(
        [options.server, "inspect", "text", "--tokenizer", options.tokenizer],
        input=lines.encode(), stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    ours = [json.loads(line)["ids"] for line in out.stdout.splitlines()]
    expected = [theirs(piece) for piece in pieces]
    if ours != expected:
        sys.exit("the ids differ")
    print(f"{len(data)} bytes, {sum(map(len, ours))} tokens, ids equal")

    with tempfile.NamedTemporaryFile() as text:
        text.write(data)
        text.flush()
        environment = dict(
            os.environ,
            BALLAST_BENCHMARK_TOKENIZER=options.tokenizer,
            BALLAST_BENCHMARK_TEXT=text.name,
        )
        rates = {"ours": [], "ours with ends": [], "theirs": []}
        loads = []
        for _ in range(options.rounds):
            begin = now()
            for piece in pieces:
                theirs(piece)
            rates["theirs"].append(len(data) / (now() - begin) / 1e6)
            out = subprocess.run(
                [options.benchmark, "--benchmark_filter=/" + ("sentencepiece" if is_model else "bpe"), "--benchmark_min_time=0.3",
                 "--benchmark_format=json"],
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True,
            )  # fmt: skip
            for result in json.loads(out.stdout)["benchmarks"]:
                if result["name"].startswith("BM_Load"):
                    loads.append(result["real_time" if is_model else "cpu_time"])
                    continue
                name = "ours with ends" if "/ends:1" in result["name"] else "ours"
                rates[name].append(result["bytes_per_second"] / 1e6)
    for name, values in rates.items():
        print(f"{name}: {statistics.median(values):.1f} MB/s (median of {options.rounds})")
    print(f"loading: ours {statistics.median(loads):.0f} ms, theirs {load_time * 1e3:.0f} ms")
    ratios = [a / b for a, b in zip(rates["ours"], rates["theirs"])]
    print(f"ours/theirs: {statistics.median(ratios):.1f}")


main()
