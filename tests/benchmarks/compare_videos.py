#!/usr/bin/env python3
"""Frames a second of processor time: Ballast, torchcodec and decord, in one run.

    pip install torch torchcodec decord
    bazel build --config=opt //tests/benchmarks:video_decode
    tests/benchmarks/compare_videos.py [--size 1280x720] [--rounds 3]

Makes clips of 60 seconds with ffmpeg and samples two frames a second of each to RGB,
120 frames a clip, the same frames with all three. One thread each; processor time of
all of a program's threads and children; the median of rounds in which they take turns.
Ballast's includes starting its decoder, its peers' leaves out importing them.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

PEER = """
import resource, sys
kind, files = sys.argv[1], sys.argv[2:]
if kind == "torchcodec":
    from torchcodec.decoders import VideoDecoder
    def read(path):
        video = VideoDecoder(path, num_ffmpeg_threads=1, dimension_order="NHWC")
        return video.get_frames_at(indices=sampled(video.metadata.num_frames)).data
else:
    import decord
    def read(path):
        video = decord.VideoReader(path, num_threads=1)
        return video.get_batch(sampled(len(video))).asnumpy()
def sampled(frames):
    count = 120
    return [round(i * (frames - 1) / (count - 1)) for i in range(count)]
def spent():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
start, frames = spent(), 0
for path in files:
    frames += len(read(path))
print(frames, spent() - start)
"""

CLIPS = {
    "h264": "-c:v libx264 -preset medium -pix_fmt yuv420p",
    "hevc": "-c:v libx265 -preset fast -x265-params log-level=none -pix_fmt yuv420p",
    "vp9": "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 150 -pix_fmt yuv420p",
}


def make(folder, size):
    clips = {}
    for name, arguments in CLIPS.items():
        path = os.path.join(folder, name + (".webm" if name == "vp9" else ".mp4"))
        # Noise moves, so that there is something to decode.
        subprocess.run(
            ["ffmpeg", "-nostdin", "-loglevel", "error", "-y", "-f", "lavfi", "-i",
             "mandelbrot=size=%s:rate=30" % size, "-t", "60", *arguments.split(), path],
            check=True)
        clips[name] = path
    return clips


def ballast(program, path):
    out = json.loads(subprocess.check_output([program, path]))
    return out["frames"] / out["cpu_s"]


def peer(kind, path):
    frames, seconds = subprocess.check_output(
        [sys.executable, "-W", "ignore", "-c", PEER, kind, path]).split()
    return int(frames) / float(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="1280x720")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--program", default="bazel-bin/tests/benchmarks/video_decode")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, path in make(folder, arguments.size).items():
            rates = {"ballast": [], "torchcodec": [], "decord": []}
            for _ in range(arguments.rounds):
                rates["ballast"].append(ballast(arguments.program, path))
                for kind in ("torchcodec", "decord"):
                    rates[kind].append(peer(kind, path))
            medians = {k: statistics.median(v) for k, v in rates.items()}
            print(json.dumps({
                "clip": name, "size": arguments.size,
                **{k: round(v, 1) for k, v in medians.items()},
                "to_torchcodec": round(medians["ballast"] / medians["torchcodec"], 2),
                "to_decord": round(medians["ballast"] / medians["decord"], 2)}),
                flush=True)


if __name__ == "__main__":
    main()
