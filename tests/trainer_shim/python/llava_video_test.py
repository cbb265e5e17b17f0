"""LLaVA-Video's videos from files to a batch: a server and a loader beside a second
writing of its training code, on the same files.

transformers has no such model. Frames are sampled, told and counted by
make_llava_video_vectors.py and make_llava_video_chats.py, and resized with Pillow, from all
frames that `ffmpeg` decodes. Ids and pixels must be equal.
"""

import json
import os
import shutil
import sys
import unittest

import ballast
from tests.harness import tools
from tests.trainer_shim.python import intern_videos_test as base

TESTS = os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"], "tests/server")
#: The video of each, and the conversation.
SAMPLES = [
    ("a.mp4", [("human", "<image>\nWhat moves?"), ("gpt", "A fox.")]),
    ("", [("human", "Hello"), ("gpt", "Hello, world!")]),
    ("b.webm", [("human", "Look:  <image>  \n"), ("gpt", "Yes."), ("human", " Sure? "),
                ("gpt", "Yes, too.")]),
    ("image", [("human", "<image>\nAn image?"), ("gpt", "One.")]),
]  # fmt: skip
CONFIG = """
sources: [{name: chat, format: jsonl, path: chat.jsonl, media_root: .}]
order: {shuffle: false}
model:
  profile: llava_video
  tokenizer: tokenizer.json
  resample: %s
  video: %s
  token_ids: {end_of_text: 0}  # of plain texts, which there are none of here
batch: {global: 4, micro: 4, max_tokens: 32768}
topology: {modules: {vision: {dp: 1}, language: {dp: 1}}}
balance: {equal_count: true}
serve: {listen: ["127.0.0.1:0"], threads: 1}
"""


def second_writing():
    for folder in ("media/video", "text"):
        sys.path.insert(0, os.path.join(TESTS, folder))
    import make_llava_video_chats
    import make_llava_video_vectors

    return make_llava_video_vectors, make_llava_video_chats


@unittest.skipIf(shutil.which("ffmpeg") is None, "SKIPPED: there is no program ffmpeg")
class LlavaVideoTest(base.VideosTest):
    def prepare(self):
        from PIL import Image

        source = os.path.join(TESTS, "text/testdata/family_chats.tokenizer.json")
        shutil.copyfile(source, self.path("tokenizer.json"))
        self.make_videos()
        Image.new("RGB", (384, 384), (40, 90, 160)).save(self.path("image.png"))
        lines = []
        for video, turns in SAMPLES:
            line = {"conversations": [{"from": who, "value": text} for who, text in turns]}
            if video:
                line.update({"image": "image.png"} if video == "image" else {"video": video})
            lines.append(json.dumps(line))
        self.write("chat.jsonl", "\n".join(lines) + "\n")

    def tiles(self, video, numbers):
        """The frames as SigLIP's processor makes them, before they are scaled."""
        import numpy
        from PIL import Image

        frames = self.frames(video).permute(0, 2, 3, 1).numpy()
        return numpy.stack([
            numpy.asarray(Image.fromarray(frames[i]).resize((384, 384), Image.Resampling.BICUBIC))
            for i in numbers])  # fmt: skip

    def check(self, name, options, fps, most, force, tells, pool, newline):
        import PIL
        import torch
        from tokenizers import Tokenizer

        plans, chats = second_writing()
        tokenizer = Tokenizer.from_file(self.path("tokenizer.json"))
        library = "pillow13" if int(PIL.__version__.split(".")[0]) >= 13 else "pillow12"
        config = self.write(name + ".yaml", CONFIG % (library, options))
        self.ok("ballast-server", "index", "--rebuild", "--config", config)
        with self.server(config, f"unix:{self.folder}/{name}.sock") as (address,):
            with ballast.Loader(address, dp_rank=0, device="cpu", steps=1,
                                pixel_type="float32") as loader:  # fmt: skip
                batch = next(loader)
                batch.images_per_sample  # known while the loader is open
                batch = batch.clone()
        begins = batch["cu_seqlens_padded"].tolist()
        lengths = batch["cu_seqlens"].diff().tolist()
        grids = batch["video_grid_thw"].tolist()
        pixels = batch["pixel_values_videos"]
        self.assertEqual(len(batch["pixel_values"]), 2)  # the image: a thumbnail and a tile
        seen = 0
        for i, sample in enumerate(batch.samples):
            video, turns = SAMPLES[sample.ordinal]
            run = 0
            if video == "image":
                run = 27 * 27 + 27 * (27 + 1)
            elif video:
                total = len(self.frames(video))
                numbers, times = plans.sampled(total, 30.0, fps, most, force)
                if tells:
                    turns = chats.with_times(turns, total / 30.0, times)
                run = plans.rows(len(numbers), pool, newline)
                self.assertEqual(grids.pop(0), [len(numbers), 27, 27])
                tiles = pixels[seen : seen + len(numbers)]
                seen += len(numbers)
                made = torch.from_numpy(self.tiles(video, numbers)).permute(0, 3, 1, 2)
                levels = (tiles * 0.5 + 0.5) * 255
                self.assertEqual(float((levels.round() - made).abs().max()), 0)
                wanted = (made.to(torch.float32) / 255 - 0.5) / 0.5
                self.assertLess(float((tiles - wanted).abs().max()), 1e-6)
            turns = [(who, chats.moved(text)) for who, text in turns]
            ids = []
            for item in chats.ids_of(turns, tokenizer, run):
                ids += [item[0]] * item[1] if isinstance(item, list) else [item]
            ours = batch["input_ids"][0, begins[i] : begins[i] + lengths[i]].tolist()
            self.assertEqual(ours, ids)
            self.assertEqual(batch.videos_per_sample[i], int(video not in ("", "image")))
        self.assertEqual(seen, len(pixels))
        self.assertEqual(grids, [])

    def test_batches_are_those_of_the_training_code(self):
        self.prepare()
        self.check("plain", "{}", 1, 0, False, False, "bilinear", "grid")
        self.check("rates", "{fps: 4, max_frames: 9, pool: average, newline: frame}",
                   4, 9, False, False, "average", "frame")  # fmt: skip
        # The line of the released checkpoint.
        self.check("released", "{max_frames: 64, force_sample: true, time_instruction: true}",
                   1, 64, True, True, "bilinear", "grid")  # fmt: skip

    def test_samples_that_it_does_not_take_are_bad(self):
        self.prepare()
        turns = [{"from": "human", "value": "<video>"}, {"from": "gpt", "value": "A."}]
        bad = [
            ({"videos": ["a.mp4", "b.webm"]}, "2 videos; LLaVA-Video's training code"),
            ({"video": "a.mp4", "image": "image.png"}, "a video with 1 images"),
            ({"video": ["image.png", "image.png"]}, "a list of pictures, which LLaVA-Video"),
        ]
        with open(self.path("chat.jsonl"), "a", encoding="utf-8") as file:
            for media, _ in bad:
                own = list(turns)
                if len(media.get("videos", [])) > 1:
                    own[0] = {"from": "human", "value": "<video><video>"}
                if "image" in media:
                    own[0] = {"from": "human", "value": "<video><image>"}
                file.write(json.dumps({**media, "conversations": own}) + "\n")
        config = self.write("bad.yaml", CONFIG % ("pillow12", "{}"))
        done = tools.run("ballast-server", "index", "--rebuild", "--config", config)
        said = done.stdout.decode() + done.stderr.decode()
        for _, reason in bad:
            self.assertIn(reason, said)

    def test_inspect_shows_the_frames(self):
        self.make_videos()
        plans, _ = second_writing()
        arguments = ["inspect", "video", "--plan-only", "--model", "llava_video"]
        forced = ["--max-frames", "64", "--force-sample"]
        for options, most in (([], 0), (forced, 64)):
            (shown,) = self.json_lines(
                "ballast-server", *arguments, *options, self.path("a.mp4"))  # fmt: skip
            numbers, _ = plans.sampled(shown["frames"], 30.0, 1, most, most > 0)
            self.assertEqual(shown["sampled"], numbers)
            self.assertEqual(shown["video_tokens"], 210 * len(numbers))
        for wrong in ([*arguments, "--force-sample"], [*arguments[:-1], "qwen2_vl", *forced]):
            message = self.error("ballast-server", *wrong, self.path("a.mp4"))
            self.assertIn("--force-sample goes with --model llava_video", message)


if __name__ == "__main__":
    unittest.main()
