#!/usr/bin/env python3
"""Seconds of audio a second from FLAC to Whisper's features, one thread each:
Ballast beside librosa with transformers' WhisperFeatureExtractor.

    pip install 'librosa<1' soundfile transformers torch
    bazel build --config=opt //tests/benchmarks:audio_benchmark
    tests/benchmarks/compare_audio.py

Draws a file of --seconds at --rate, mono. librosa.load decodes, takes the mean and
resamples; the extractor pads to 30 s, as Qwen2-Audio's processor has it. Without
torch the extractor computes in numpy. Processor time of all threads and processes;
medians of --rounds in which they take turns.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import librosa  # noqa: E402
import numpy  # noqa: E402
import soundfile  # noqa: E402
import transformers  # noqa: E402

try:
    import torch

    torch.set_num_threads(1)
except ImportError:
    torch = None


def draw(path, seconds, rate):
    n = int(seconds * rate)
    t = numpy.arange(n) / rate
    noise = numpy.random.default_rng(1).standard_normal(n)
    tone = numpy.sin(2 * numpy.pi * 220 * t) * (1 + numpy.sin(2 * numpy.pi * 4 * t))
    soundfile.write(path, 0.2 * tone + 0.01 * noise, rate, subtype="PCM_16")


def peer(path, extractor):
    start = time.process_time()
    samples, _ = librosa.load(path, sr=16000)
    extractor(samples, sampling_rate=16000, return_tensors="np")
    return time.process_time() - start


def ballast(program, path):
    out = subprocess.run(
        [program, "--flac", path, "--benchmark_filter=BM_FlacToFeatures",
         "--benchmark_format=json"],
        check=True, stdout=subprocess.PIPE,
    ).stdout
    return json.loads(out)["benchmarks"][0]["seconds_of_audio"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, nargs="+", default=[3, 10, 29])
    parser.add_argument("--rate", type=int, nargs="+", default=[16000, 44100])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--program", default="bazel-bin/tests/benchmarks/audio_benchmark"
    )
    args = parser.parse_args()
    extractor = transformers.WhisperFeatureExtractor(feature_size=128)
    with tempfile.TemporaryDirectory() as folder:
        for rate in args.rate:
            for seconds in args.seconds:
                path = f"{folder}/{rate}_{seconds}.flac"
                draw(path, seconds, rate)
                peer(path, extractor)
                rounds = [
                    (ballast(args.program, path), seconds / peer(path, extractor))
                    for _ in range(args.rounds)
                ]
                ours, theirs = (
                    statistics.median(column) for column in zip(*rounds)
                )
                print(
                    f"{seconds:g} s at {rate} Hz: Ballast {ours:.0f}, "
                    f"{'torch' if torch else 'numpy'} {theirs:.0f} seconds of audio "
                    f"a second, ratio {ours / theirs:.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
