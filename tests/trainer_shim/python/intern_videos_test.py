"""InternVL's videos from files to a loss: a server, a loader and the adapter beside the
processor and a small random model of transformers, on the same files.

Frames are sampled, ids and pixels made by transformers' own code, from all frames that
`ffmpeg` decodes. Ids and pixels must be equal, and so must be the losses.
"""

import importlib.util
import json
import shutil
import subprocess
import unittest

import ballast
from tests.harness import tools

MISSING = [name for name in ("transformers", "torch", "torchvision", "PIL", "jinja2")
           if importlib.util.find_spec(name) is None]  # fmt: skip
if shutil.which("ffmpeg") is None:
    MISSING.append("the program ffmpeg")
#: Name -> sides, seconds and how it is encoded; 30 frames a second.
VIDEOS = {
    "a.mp4": ((160, 120), 3, ["-c:v", "libx264", "-g", "30", "-pix_fmt", "yuv420p"]),
    "b.webm": ((96, 128), 2, ["-c:v", "libvpx-vp9", "-pix_fmt", "yuv420p"]),
}
#: A part is a text, the name of a video or an image's (width, height).
CONVERSATIONS = [
    [("user", ["a.mp4", "What moves?"]), ("assistant", ["A fox."])],
    [("user", ["Hello"]), ("assistant", ["Hello, world!"])],
    [("user", [(448, 448), " and ", "b.webm", "Which?"]), ("assistant", ["The second."])],
    [("user", ["b.webm", "b.webm", "Same?"]), ("assistant", ["Yes.\n"])],
    [("user", ["b.webm", "before ", (448, 448), " and ", (448, 448), "?"]), ("assistant", ["Yes."])],
]  # fmt: skip
CONFIG = """
sources: [{name: chat, format: jsonl, path: chat.jsonl, media_root: .}]
order: {shuffle: false}
model:
  profile: %s
  rules: transformers
  tokenizer: tokenizer.json
  resample: torchvision
  video: {sampling: transformers, fps: 2}
  token_ids: {end_of_text: 0}  # of plain texts, which there are none of here
batch: {global: %d, micro: %d, max_tokens: 32768}
topology: {modules: {vision: {dp: 1}, language: {dp: 1}}}
balance: {equal_count: true}
packing: {mode: %s, align: 4}
serve: {listen: ["127.0.0.1:0"], threads: 1}
"""


def is_video(part):
    return isinstance(part, str) and part in VIDEOS


class VideosTest(tools.ToolTest):
    """A family, its conversations and the processor, whose videos are sampled here."""

    family = ""
    conversations = []

    def make_videos(self):
        for name, (sides, seconds, how) in VIDEOS.items():
            source = "testsrc2=size=%dx%d:rate=30:duration=%d" % (*sides, seconds)
            subprocess.run(["ffmpeg", "-nostdin", "-loglevel", "error", "-y", "-f", "lavfi",
                            "-i", source, *how, self.path(name)], check=True)  # fmt: skip

    def frames(self, name):
        """All frames, [n, 3, height, width]."""
        import torch

        raw = subprocess.run(
            ["ffmpeg", "-nostdin", "-loglevel", "error", "-i", self.path(name), "-vf",
             "scale=flags=bilinear", "-pix_fmt", "rgb24", "-f", "rawvideo", "-"],
            check=True, stdout=subprocess.PIPE).stdout  # fmt: skip
        width, height = VIDEOS[name][0]
        frames = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
        return frames.reshape(-1, height, width, 3).permute(0, 3, 1, 2)

    def processor(self, family_models):
        raise NotImplementedError

    def prepare(self):
        import torch

        from tests.trainer_shim.python import family_models  # first: it finds the others
        from check_family_chats import save_tokenizer
        from image_processors import drawn

        torch.set_num_threads(1)
        processor = self.processor(family_models)
        save_tokenizer(processor, self.path("tokenizer.json"))
        self.make_videos()
        lines = []
        for turns in self.conversations:
            images = [part for _, parts in turns for part in parts if isinstance(part, tuple)]
            for width, height in images:
                drawn(width, height).save(self.path("%dx%d.png" % (width, height)))
            content = [
                {"role": role, "content": "".join(
                    "<image>" if isinstance(p, tuple) else "<video>" if is_video(p) else p
                    for p in parts)} for role, parts in turns]  # fmt: skip
            lines.append(json.dumps({
                "messages": content, "images": ["%dx%d.png" % sides for sides in images],
                "videos": [p for _, parts in turns for p in parts if is_video(p)]}))  # fmt: skip
        self.write("chat.jsonl", "\n".join(lines) + "\n")
        return processor

    def inputs_of(self, processor, turns):
        """What transformers makes of a conversation, from all frames of its videos."""
        from image_processors import drawn
        from transformers.video_utils import VideoMetadata

        def part_of(part):
            if isinstance(part, tuple):
                return {"type": "image"}
            return {"type": "video"} if is_video(part) else {"type": "text", "text": part}

        text = processor.apply_chat_template(
            [{"role": role, "content": [part_of(p) for p in parts]} for role, parts in turns],
            tokenize=False)  # fmt: skip
        given = {"text": [text], "return_tensors": "pt"}
        images = [drawn(*p) for _, parts in turns for p in parts if isinstance(p, tuple)]
        if images:
            given["images"] = [images]
        videos = [self.frames(p) for _, parts in turns for p in parts if is_video(p)]
        sampled = [
            video[
                processor.video_processor.sample_frames(
                    VideoMetadata(total_num_frames=len(video), fps=30.0), fps=2
                )
            ]
            for video in videos
        ]
        if sampled:
            given["videos"] = sampled
            given["do_sample_frames"] = False
        return processor(**given)

    def tiles_of(self, turns):
        """For each tile, in the order of the text, whether it is a frame."""
        tiles = []
        for part in (part for _, parts in turns for part in parts):
            if isinstance(part, tuple):
                tiles.append(False)
            elif is_video(part):
                tiles += [True] * 2 * VIDEOS[part][1]
        return tiles

    def batch(self, mode):
        count = len(self.conversations)
        config = self.write(mode + ".yaml", CONFIG % (self.family, count, count, mode))
        self.ok("ballast-server", "index", "--config", config)
        with self.server(config, f"unix:{self.folder}/videos.sock") as (address,):
            with ballast.Loader(address, dp_rank=0, device="cpu", steps=1,
                                pixel_type="float32", normalisation="torchvision") as loader:  # fmt: skip
                batch = next(loader)
                batch.images_per_sample  # known while the loader is open
                return batch.clone()


@unittest.skipIf(MISSING, "SKIPPED: this needs %s (BALLAST_PYTHON)" % ", ".join(MISSING))
class InternVideosTest(VideosTest):
    family = "internvl3"
    conversations = CONVERSATIONS

    def processor(self, family_models):
        from transformers.models.internvl.video_processing_internvl import InternVLVideoProcessor

        processor = family_models.processor_of("internvl3")
        processor.chat_template = processor.chat_template.replace(
            "{{ '<IMG_CONTEXT>\n' if",
            "{{ '<video>\n' if c['type'] == 'video' else '<IMG_CONTEXT>\n' if",
        )
        mean, std = family_models.CHECKPOINTS["internvl3"]
        processor.video_processor = InternVLVideoProcessor(
            size={"height": 448, "width": 448}, image_mean=mean, image_std=std
        )
        return processor

    def test_losses_are_those_of_transformers(self):
        import torch

        from ballast.adapters.huggingface_families import Family
        from tests.trainer_shim.python import family_models

        processor = self.prepare()
        batch = self.batch("shard")
        rows = self.batch("padded")
        self.assertEqual(sum(batch.videos_per_sample), 5)
        self.assertEqual(sum(batch.images_per_sample), 3)
        model = family_models.model_of("internvl3", processor)
        adapter = Family(model.config)
        wanted, counts = [], []
        with torch.no_grad():
            for sample, own in zip(batch.samples, adapter.unpacked(batch)):
                inputs = self.inputs_of(processor, CONVERSATIONS[sample.ordinal])
                self.assertEqual(own["input_ids"].tolist(), inputs["input_ids"].tolist())
                labels = own["labels"]
                if "pixel_values" in inputs:
                    self.assertEqual(own["pixel_values"].shape, inputs["pixel_values"].shape)
                    # The processor makes images, one tile here, with Pillow's formula.
                    tiles = self.tiles_of(CONVERSATIONS[sample.ordinal])
                    self.assertEqual(len(tiles), len(own["pixel_values"]))
                    differ = (own["pixel_values"] - inputs["pixel_values"]).abs()
                    for is_frame, tile in zip(tiles, differ):
                        self.assertLessEqual(float(tile.max()), 0 if is_frame else 1e-5)
                theirs = float(model(**inputs, labels=labels).loss)
                ours = float(model(**own).loss)
                self.assertAlmostEqual(ours, theirs, delta=abs(theirs) * 1e-6)
                wanted.append(theirs)
                counts.append(int((labels != -100).sum()))
            mean = sum(loss * n for loss, n in zip(wanted, counts)) / sum(counts)
            for arguments in (adapter.padded(rows), adapter.packed(batch)):
                loss = float(model(**arguments).loss)
                self.assertAlmostEqual(loss, mean, delta=abs(mean) * 2e-6)


if __name__ == "__main__":
    unittest.main()
