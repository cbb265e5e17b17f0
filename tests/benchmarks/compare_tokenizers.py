#!/usr/bin/env python3
"""Hugging Face's tokenizers beside ours: MB/s on one core, in one run.

    pip install tokenizers==0.23.3
    bazel build --config=opt //tests/benchmarks:text_benchmark //server:ballast-server
    tests/benchmarks/compare_tokenizers.py TOKENIZER_JSON [TEXT...]

Without texts, those of /usr/share/common-licenses (English prose on every
Debian). Rounds of the two alternate, and medians are printed, since the machine
may be doing other things. The ids of the whole text are compared first.
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
import tokenizers  # noqa: E402

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
    theirs = tokenizers.Tokenizer.from_file(options.tokenizer)

    lines = "".join(json.dumps({"text": piece}) + "\n" for piece in pieces)
    out = subprocess.run(
        [options.server, "inspect", "text", "--tokenizer", options.tokenizer],
        input=lines.encode(), stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    ours = [json.loads(line)["ids"] for line in out.stdout.splitlines()]
    expected = [theirs.encode(piece, add_special_tokens=False).ids for piece in pieces]
    if ours != expected:
        sys.exit("the ids differ")
    print(f"{len(data)} bytes, {sum(map(len, ours))} tokens, ids equal")

    with tempfile.NamedTemporaryFile() as text:
        text.write(data)
        text.flush()
        environment = dict(
            os.environ, BALLAST_BENCHMARK_TOKENIZER=options.tokenizer, BALLAST_BENCHMARK_TEXT=text.name
        )
        rates = {"ours": [], "ours with ends": [], "theirs": []}
        for _ in range(options.rounds):
            begin = time.process_time()
            for piece in pieces:
                theirs.encode(piece, add_special_tokens=False)
            rates["theirs"].append(len(data) / (time.process_time() - begin) / 1e6)
            out = subprocess.run(
                [options.benchmark, "--benchmark_min_time=0.3", "--benchmark_format=json"],
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True,
            )  # fmt: skip
            for result in json.loads(out.stdout)["benchmarks"]:
                name = "ours with ends" if result["name"].endswith(":1") else "ours"
                rates[name].append(result["bytes_per_second"] / 1e6)
    for name, values in rates.items():
        print(f"{name}: {statistics.median(values):.1f} MB/s (median of {options.rounds})")
    ratios = [a / b for a, b in zip(rates["ours"], rates["theirs"])]
    print(f"ours/theirs: {statistics.median(ratios):.1f}")


main()
