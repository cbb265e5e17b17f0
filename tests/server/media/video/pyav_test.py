"""Frames of `inspect video` are PyAV's, resized by Pillow, to the byte.

Needs the program ffmpeg, and a Python with av, numpy and Pillow:
bazel test --test_env=BALLAST_PYTHON=/path/to/python ..."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import av
    import numpy
    import PIL
    from PIL import Image
except ImportError as error:
    print("SKIPPED: %s: %s; BALLAST_PYTHON names another Python" % (sys.executable, error))
    sys.exit(0)
if shutil.which("ffmpeg") is None:
    print("SKIPPED: needs the program ffmpeg")
    sys.exit(0)

INSPECT = "tests/server/media/video/inspect_video_main"
PILLOW = "pillow13" if int(PIL.__version__.split(".")[0]) >= 13 else "pillow12"
# Name, size, arguments.
VIDEOS = [
    ("h264.mp4", "322x242", "-c:v libx264 -g 30 -bf 3 -pix_fmt yuv420p"),
    ("open.mp4", "320x240", "-c:v libx264 -x264-params open-gop=1:keyint=24 -pix_fmt yuv420p"),
    (
        "bt709.mp4",
        "320x240",
        "-vf scale=out_color_matrix=bt709 -c:v libx264 -pix_fmt yuv420p -colorspace bt709",
    ),
    ("full.mp4", "320x240", "-c:v libx264 -pix_fmt yuvj420p"),
    ("odd444.mp4", "162x122", "-vf crop=161:121 -c:v libx264 -pix_fmt yuv444p"),
    ("hevc.mp4", "320x240", "-c:v libx265 -x265-params log-level=none:keyint=30 -pix_fmt yuv420p"),
    ("av1.mp4", "320x240", "-c:v libsvtav1 -preset 12 -g 30 -pix_fmt yuv420p"),
    ("mpeg4.avi", "320x240", "-c:v mpeg4 -g 30 -bf 2 -q 5"),
    (
        "variable.mp4",
        "320x240",
        "-vf select='not(mod(n\\,3))+gt(n\\,40)' -vsync vfr -c:v libx264 -pix_fmt yuv420p",
    ),
]
# FFmpeg 5.1 and 8.1 place the chroma of these differently (docs/video.md): equal only
# where PyAV has our libswscale, as 18.1 has with --config=ffmpeg.
SCALED = [
    (
        "odd.webm",
        "162x122",
        "-vf crop=161:121:exact=1 -c:v libvpx-vp9 -deadline realtime -cpu-used 8 -pix_fmt yuv420p",
    ),
    (
        "hevc10.mp4",
        "320x240",
        "-c:v libx265 -x265-params log-level=none:keyint=30 -pix_fmt yuv420p10le",
    ),
]


def make(folder, name, size, arguments):
    path = os.path.join(folder, name)
    command = [
        "ffmpeg",
        "-nostdin",
        "-loglevel",
        "error",
        "-y",
        "-f",
        "lavfi",
        "-i",
        "testsrc2=size=%s:rate=30:duration=2" % size,
        *arguments.split(),
        path,
    ]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return path


def inspect(*arguments):
    out = subprocess.run(
        [INSPECT, "inspect", "video", *arguments], check=True, stdout=subprocess.PIPE
    ).stdout
    return [json.loads(line) for line in out.splitlines()]


def resized_hash(frame, width, height):
    picture = Image.fromarray(frame).resize((width, height), Image.Resampling.BICUBIC)
    return hashlib.sha256(picture.tobytes()).hexdigest()


class PyavTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))

    def check(self, path, quarter_turns, *arguments):
        (found,) = inspect("--resample", PILLOW, *arguments, path)
        self.assertNotIn("error", found)
        with av.open(path) as container:
            rate = container.streams.video[0].average_rate
            frames = [
                numpy.rot90(frame.to_ndarray(format="rgb24"), quarter_turns)
                for frame in container.decode(video=0)
            ]
        self.assertEqual(found["frames"], len(frames))
        self.assertEqual(found["fps"], float(rate))
        self.assertEqual(
            found["frames_sha256"],
            [
                resized_hash(frames[i], found["resized_w"], found["resized_h"])
                for i in found["sampled"]
            ],
        )
        return found

    def test_frames_are_pyavs(self):
        for name, size, arguments in VIDEOS:
            with self.subTest(name):
                path = make(self.folder, name, size, arguments)
                for model in ("qwen2_5_vl", "internvl3"):
                    self.check(path, 0, "--model", model)
                self.check(
                    path,
                    0,
                    "--model",
                    "qwen3_vl",
                    "--sampling",
                    "transformers",
                    "--fps",
                    "5",
                    "--min-frames",
                    "7",
                )

    def test_odd_sides_and_ten_bits(self):
        helpers = subprocess.run(
            [INSPECT, "inspect", "helpers"], check=True, stdout=subprocess.PIPE
        ).stdout
        ours = json.loads(helpers.splitlines()[0])["version"]
        theirs = "SwS%d." % av.library_versions["libswscale"][0]
        if theirs not in ours:
            print("SKIPPED: PyAV has %s, this build %s" % (theirs, ours))
            return
        for name, size, arguments in SCALED:
            with self.subTest(name):
                path = make(self.folder, name, size, arguments)
                self.check(path, 0, "--model", "qwen2_5_vl")

    def test_clips(self):
        path = make(self.folder, "clip.mp4", "320x240", "-c:v libx264 -pix_fmt yuv420p")
        found = self.check(path, 0, "--model", "qwen2_5_vl", "--start", "0.5", "--end", "1.5")
        self.assertEqual((found["sampled"][0], found["sampled"][-1]), (15, 45))

    def test_rotation(self):
        upright = make(self.folder, "upright.mp4", "322x242", "-c:v libx264 -pix_fmt yuv420p")
        path = os.path.join(self.folder, "turned.mp4")
        subprocess.run(
            [
                "ffmpeg",
                "-loglevel",
                "error",
                "-i",
                upright,
                "-c",
                "copy",
                "-metadata:s:v",
                "rotate=90",
                path,
            ],
            check=True,
        )
        (facts,) = inspect("--model", "qwen2_vl", "--plan-only", path)
        # Anticlockwise, as numpy turns.
        self.check(path, 3 if facts["rotation"] == 90 else 1, "--model", "qwen2_vl")
        self.check(path, 0, "--model", "qwen2_vl", "--ignore-rotation")

    def test_folder_of_pictures(self):
        folder = os.path.join(self.folder, "pictures")
        os.mkdir(folder)
        pictures = []
        for i in range(5):
            values = numpy.random.default_rng(i).integers(0, 256, (90, 130, 3), "uint8")
            pictures.append(values)
            Image.fromarray(values).save(os.path.join(folder, "%02d.png" % i))
        (found,) = inspect("--resample", PILLOW, "--model", "internvl3", folder)
        self.assertEqual(found["frames_sha256"], [resized_hash(p, 448, 448) for p in pictures])
        # qwen-vl-utils resizes twice, and repeats the last of an odd number.
        (found,) = inspect("--resample", PILLOW, "--model", "qwen2_5_vl", folder)
        self.assertEqual(found["sampled"], [0, 1, 2, 3, 4, 4])
        self.assertEqual(found["seconds"], [0.25, 1.25, 2.25])
        # 90x130 in multiples of 56 is 112x112, below 4 tokens of 56x56 pixels no more.
        once = [
            numpy.asarray(Image.fromarray(p).resize((112, 112), Image.BICUBIC)) for p in pictures
        ]
        self.assertEqual(
            found["frames_sha256"][:5],
            [resized_hash(p, found["resized_w"], found["resized_h"]) for p in once],
        )

    def test_errors(self):
        path = os.path.join(self.folder, "none.mp4")
        run = subprocess.run(
            [INSPECT, "inspect", "video", "--model", "qwen2_vl", path], capture_output=True
        )
        self.assertEqual(run.returncode, 1)
        self.assertIn("none.mp4", json.loads(run.stdout)["error"])


if __name__ == "__main__":
    unittest.main()
