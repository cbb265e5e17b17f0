#!/usr/bin/env python3
"""Seconds of audio a second from FLAC to Whisper's features, one thread each:
Ballast beside librosa or torchcodec with transformers' WhisperFeatureExtractor, and
beside Lhotse's WhisperFbank.

    pip install 'librosa<1' soundfile transformers torch torchcodec lhotse
    bazel build --config=opt //tests/benchmarks:audio_benchmark
    tests/benchmarks/compare_audio.py

Draws a file of --seconds at --rate, mono. librosa.load decodes, takes the mean and
resamples by soxr HQ, as Ballast does; torchcodec resamples by FFmpeg's own resampler,
Lhotse by torchaudio's, to other values. The extractor pads to 30 s, as Qwen2-Audio's
processor has it; Lhotse's does not. Without torch the extractor computes in numpy, and
libraries that are not installed are left out. Processor time of all threads and processes;
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


def find_peers():
    """Functions of a path, by name."""
    extractor = transformers.WhisperFeatureExtractor(feature_size=128)

    def extract(samples):
        extractor(samples, sampling_rate=16000, return_tensors="np")

    found = {"librosa": lambda path: extract(librosa.load(path, sr=16000)[0])}
    try:
        from torchcodec.decoders import AudioDecoder
    except ImportError:
        pass
    else:
        found["torchcodec"] = lambda path: extract(
            AudioDecoder(path, sample_rate=16000, num_channels=1).get_all_samples().data[0].numpy()
        )
    try:
        import lhotse
    except ImportError:
        pass
    else:
        fbank = lhotse.WhisperFbank(lhotse.WhisperFbankConfig(num_filters=128))

        def by_lhotse(path):
            recording = lhotse.Recording.from_file(path).resample(16000)
            fbank.extract(recording.load_audio(), 16000)

        found["lhotse"] = by_lhotse
    return found


def measure(call, path):
    start = time.process_time()
    call(path)
    return time.process_time() - start


def ballast(program, path):
    out = subprocess.run(
        [
            program,
            "--flac",
            path,
            "--benchmark_filter=BM_FlacToFeatures",
            "--benchmark_format=json",
        ],
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    return json.loads(out)["benchmarks"][0]["seconds_of_audio"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, nargs="+", default=[3, 10, 29])
    parser.add_argument("--rate", type=int, nargs="+", default=[16000, 44100])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--program", default="bazel-bin/tests/benchmarks/audio_benchmark")
    args = parser.parse_args()
    peers = find_peers()
    with tempfile.TemporaryDirectory() as folder:
        for rate in args.rate:
            for seconds in args.seconds:
                path = f"{folder}/{rate}_{seconds}.flac"
                draw(path, seconds, rate)
                for call in peers.values():
                    call(path)
                ours, theirs = [], {name: [] for name in peers}
                for _ in range(args.rounds):
                    ours.append(ballast(args.program, path))
                    for name, call in peers.items():
                        theirs[name].append(seconds / measure(call, path))
                own = statistics.median(ours)
                print(
                    f"{seconds:g} s at {rate} Hz: Ballast {own:.0f} seconds of audio a second, "
                    + ", ".join(
                        f"{name} {statistics.median(rates):.0f} ({own / statistics.median(rates):.1f})"
                        for name, rates in theirs.items()
                    )
                    + ("" if torch else ", extractor in numpy"),
                    flush=True,
                )


if __name__ == "__main__":
    main()
