#!/usr/bin/env python3
"""Frames a second of processor time: Ballast, torchcodec and decord, in one run.

    pip install torch torchcodec decord torchvision
    bazel build --config=opt //tests/benchmarks:video_decode //server:ballast-server \\
        //trainer_shim/ballast_rank:ballast-rank
    tests/benchmarks/compare_videos.py [--size 1280x720] [--rounds 3] [--server]

Makes clips of 60 seconds with ffmpeg and samples two frames a second of each to RGB,
120 frames a clip, the same frames with all three. One thread each; processor time of
all of a program's threads and children; the median of rounds in which they take turns.
Ballast's includes starting its decoder, its peers' leaves out importing them.

--server measures the whole way instead: a server that plans, decodes and resizes the
clip's frames into blocks, and its decoders, while a rank takes them; beside peers that
also resize each frame to the same size, with torchvision (bicubic, antialiased, as the
model's processor does). The server's start is left out.
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
kind, resized, path = sys.argv[1], sys.argv[2], sys.argv[3]
if kind == "torchcodec":
    from torchcodec.decoders import VideoDecoder
    def read(path):
        video = VideoDecoder(path, num_ffmpeg_threads=1, dimension_order="NCHW")
        return video.get_frames_at(indices=sampled(video.metadata.num_frames)).data
else:
    import decord
    import torch
    def read(path):
        video = decord.VideoReader(path, num_threads=1)
        frames = video.get_batch(sampled(len(video))).asnumpy()
        return torch.from_numpy(frames).permute(0, 3, 1, 2)
if resized != "-":
    import torch
    from torchvision.transforms.v2 import functional
    torch.set_num_threads(1)
def sampled(frames):
    count = 120
    return [round(i * (frames - 1) / (count - 1)) for i in range(count)]
def spent():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
start = spent()
frames = read(path)
if resized != "-":
    size = [int(side) for side in resized.split("x")]
    frames = torch.stack([functional.resize(
        frame, size, interpolation=functional.InterpolationMode.BICUBIC, antialias=True)
        for frame in frames])
print(len(frames), spent() - start)
"""

CLIPS = {
    "h264, key frame a second": "-c:v libx264 -preset medium -g 30 -pix_fmt yuv420p",
    "h264, key frame in 250": "-c:v libx264 -preset medium -pix_fmt yuv420p",
    "hevc": "-c:v libx265 -preset fast -x265-params log-level=none -pix_fmt yuv420p",
    "vp9": "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 150 -pix_fmt yuv420p",
}

CONFIG = """
sources: [{name: clips, format: jsonl, path: clips.jsonl, media_root: .}]
order: {shuffle: false, epochs: 1}
model: {profile: qwen2_5_vl, video: {fps: 2}}
batch: {global: 1, micro: 1, max_tokens: 1000000}
topology: {modules: {vision: {dp: 1}, language: {dp: 1}}}
serve: {listen: ["127.0.0.1:0"], threads: 1, prefetch_steps: 1}
"""


def make(folder, size):
    clips = {}
    for name, arguments in CLIPS.items():
        stem = name.replace(",", "").replace(" ", "_")
        path = os.path.join(folder, stem + (".webm" if name == "vp9" else ".mp4"))
        if os.path.exists(path):
            clips[name] = path
            continue
        # Noise moves, so that there is something to decode.
        subprocess.run(
            [
                "ffmpeg",
                "-nostdin",
                "-loglevel",
                "error",
                "-y",
                "-f",
                "lavfi",
                "-i",
                "testsrc2=size=%s:rate=30" % size,
                "-vf",
                "noise=alls=8:allf=t",
                "-t",
                "60",
                *arguments.split(),
                path,
            ],
            check=True,
        )
        clips[name] = path
    return clips


def ballast(program, path):
    out = json.loads(subprocess.check_output([program, path]))
    return out["frames"] / out["cpu_s"]


def peer(kind, path, resized="-"):
    frames, seconds = subprocess.check_output(
        [sys.executable, "-W", "ignore", "-c", PEER, kind, resized, path]
    ).split()
    return int(frames) / float(seconds)


def tree_seconds(pid):
    """Processor time of a process, its children and those that it has reaped."""
    with open("/proc/%d/stat" % pid, encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    ticks = sum(int(field) for field in fields[11:15])
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as file:
        children = file.read().split()
    for task in os.listdir("/proc/%d/task" % pid):
        if int(task) != pid:
            with open("/proc/%d/task/%s/children" % (pid, task), encoding="ascii") as file:
                children += file.read().split()
    return ticks / os.sysconf("SC_CLK_TCK") + sum(tree_seconds(int(c)) for c in children)


def through_server(arguments, folder, path, samples=4):
    """Frames a second of processor time, and a frame's size."""
    line = json.dumps(
        {
            "video": os.path.basename(path),
            "conversations": [
                {"from": "human", "value": "<video>"},
                {"from": "gpt", "value": "A."},
            ],
        }
    )
    with open(os.path.join(folder, "clips.jsonl"), "w", encoding="utf-8") as file:
        file.write((line + "\n") * samples)
    config = os.path.join(folder, "clips.yaml")
    with open(config, "w", encoding="utf-8") as file:
        file.write(CONFIG)
    program = arguments.ballast_server
    subprocess.run(
        [program, "index", "--rebuild", "--config", config],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    plan = json.loads(
        subprocess.check_output(
            [
                program,
                "inspect",
                "video",
                "--model",
                "qwen2_5_vl",
                "--fps",
                "2",
                "--plan-only",
                path,
            ]
        )
    )
    with subprocess.Popen(
        [program, "serve", "--config", config],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        address = server.stdout.readline().split()[1]
        # A server has built its first blocks when it says where it listens.
        subprocess.run(
            [arguments.ballast_rank, "--server", address, "--steps", str(samples)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        seconds = tree_seconds(server.pid)
        server.terminate()
    return samples * len(plan["sampled"]) / seconds, (plan["resized_h"], plan["resized_w"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="1280x720")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clips", metavar="DIR", help="keep the clips, or take those there")
    parser.add_argument("--server", action="store_true", help="the whole way, with resizing")
    parser.add_argument("--program", default="bazel-bin/tests/benchmarks/video_decode")
    parser.add_argument("--ballast-server", default="bazel-bin/server/ballast-server")
    parser.add_argument(
        "--ballast-rank", default="bazel-bin/trainer_shim/ballast_rank/ballast-rank"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as new:
        folder = arguments.clips or new
        for name, path in make(folder, arguments.size).items():
            rates = {"ballast": [], "torchcodec": [], "decord": []}
            resized = "-"
            for _ in range(arguments.rounds):
                if arguments.server:
                    rate, sides = through_server(arguments, folder, path)
                    resized = "%dx%d" % sides
                    rates["ballast"].append(rate)
                else:
                    rates["ballast"].append(ballast(arguments.program, path))
                for kind in ("torchcodec", "decord"):
                    rates[kind].append(peer(kind, path, resized))
            medians = {k: statistics.median(v) for k, v in rates.items()}
            print(
                json.dumps(
                    {
                        "clip": name,
                        "size": arguments.size,
                        "resized": resized,
                        **{k: round(v, 1) for k, v in medians.items()},
                        "to_torchcodec": round(medians["ballast"] / medians["torchcodec"], 2),
                        "to_decord": round(medians["ballast"] / medians["decord"], 2),
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
