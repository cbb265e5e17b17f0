"""The model's own forward takes the batches of each family that transformers has a class for:
images of 300 sizes, alone and several in a sample, under both rules, videos of 60 sizes where
the family has them, and clips of 300 lengths. A model refuses a sample whose placeholders are
not as many as its features.

transformers has no LLaVA-Video: its images go through LLaVA-OneVision, whose code it shares, and
its videos are counted by a second writing of its training code. SigLIP's encoders have no
placeholders.

    accepted_sizes_test.py [--every N] [--share I/N] [TEST...]

With --every, one of N of the sizes, but all borders of rules. With --share, one of N of the
families.

Towers and language models are narrow, and attention returns its values: only shapes matter
here.
"""

import functools
import importlib.util
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest
import wave

import ballast
from ballast.adapters import huggingface_audio
from tests.harness import tools
from tests.trainer_shim.python import audio_test

MISSING = [name for name in ("transformers", "torch", "torchvision", "PIL", "jinja2")
           if importlib.util.find_spec(name) is None]  # fmt: skip
#: Families whose images differ under the rules of transformers. SmolVLM's numbers there are
#: Idefics 3's.
DIFFERENT = ("gemma3_pan_and_scan", "internvl3", "llava1_5", "llava_next", "pixtral", "vipllava")
FAMILIES = ("aya_vision", "ernie4_5_vl", "gemma3", "gemma3_pan_and_scan", "gemma4", "glm46v", "glm4v",
            "hunyuan_vl", "idefics3", "internvl3", "kimi_k25", "llama4", "llava1_5", "llava1_5_pad", "llava_next",
            "llava_onevision", "llava_video", "minicpmv4_6", "pixtral", "qianfan_ocr", "smolvlm", "smolvlm_500m",
            "vipllava")  # fmt: skip
#: Models of Qwen's, which `huggingface.unpacked` feeds: class and the tower's configuration.
TOWER = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2,
         "out_hidden_size": 32}  # fmt: skip
QWEN = {
    "qwen2_vl": ("Qwen2VL", {"depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 2}),
    "qwen2_5_vl": ("Qwen2_5_VL", {**TOWER, "fullatt_block_indexes": [0]}),
    "qwen3_vl": ("Qwen3VL", {**TOWER, "deepstack_visual_indexes": [0]}),
    "qwen3_5_vl": ("Qwen3_5", TOWER),
    "qwen2_5_omni": ("Qwen2_5OmniThinker", {**TOWER, "fullatt_block_indexes": [0]}),
    "qwen3_omni_moe": ("Qwen3OmniMoeThinker", {**TOWER, "deepstack_visual_indexes": [0]}),
}  # fmt: skip
WITH_VIDEOS = ("internvl3", "llava_onevision", *QWEN)
SIZES, VIDEOS, CLIPS = 300, 60, 300
#: Profile of a model that hears -> what makes its model's case of audio_test. Clips of unequal
#: length are no reason to refuse a call: only numbers of tokens are tried.
HEARING = {
    "gemma3n": audio_test.Gemma3nCase,
    "gemma4": audio_test.Gemma4Case,
    "granite_speech": audio_test.GraniteCase,
    "phi4_multimodal": audio_test.Phi4Case,
    "qwen2_5_omni": audio_test.Qwen25OmniCase,
    "qwen2_audio": audio_test.Qwen2AudioCase,
    "qwen3_omni_moe": audio_test.Qwen3OmniCase,
    "voxtral": audio_test.VoxtralCase,
}
#: Samples at 16 kHz: borders of frames, of tokens, and of 30 s.
LENGTHS = [1600, 15999, 16000, 16001, 16159, 16161, 479840, 479999, 480000, 480001, 480161]
#: Borders of rules: squares whose tokens a ratio bounds, one canvas or another, tiles.
BORDERS = [
    (1800, 1800), (1537, 1537), (1920, 1920), (308, 124), (124, 308), (336, 336), (337, 336),
    (1001, 2000), (448, 448), (449, 448), (235, 1128), (1024, 1024), (30, 900),
]  # fmt: skip
CONFIG = """
sources: [{name: chat, format: jsonl, path: chat.jsonl, media_root: "%s"}]
order: {shuffle: false}
model: {profile: %s, rules: %s, chat_template: chatml, %s}
batch: {global: 4, micro: 4, max_tokens: 131072}
topology: {modules: {vision: {dp: 1}, language: {dp: 1}}}
balance: {equal_count: true}
packing: {mode: shard, align: 4}
serve: {listen: ["127.0.0.1:0"], threads: 2}
"""
TOKENIZER = "tokenizer: tokenizer.json, token_ids: {end_of_text: 0, im_start: 1, im_end: 2}"
#: Of Qwen's, which fit a small vocabulary.
BYTES = ("tokenizer: bytes, max_pixels: 1003520, token_ids: {pad: 300, end_of_text: 300, im_start: 301, im_end: 302, "
         "image: 303, video: 304, vision_start: 305, vision_end: 306}")  # fmt: skip
every = 1


def samples(with_videos):
    """Of each sample, the sizes of its images and what its videos are: width, height, frames
    and frames a second. The same in each run, and a multiple of 4."""
    drawn = random.Random(61)

    def side(most=1600):
        return int(math.exp(drawn.uniform(math.log(20), math.log(most))))

    sizes = [(side(), side()) for _ in range(SIZES - len(BORDERS))]
    alone = 2 * SIZES // 3 - len(BORDERS)
    found = [([size], []) for size in sizes[:alone]]
    while alone < len(sizes):
        count = drawn.choice((2, 2, 3, 4))
        found.append((sizes[alone : alone + count], []))
        alone += count
    videos = [(side(500), side(500), drawn.randint(2, 40), drawn.choice((2, 5, 15, 30)))
              for _ in range(VIDEOS if with_videos else 0)]  # fmt: skip
    while videos:
        count = drawn.choice((1, 1, 1, 2))
        images = [(side(), side())] if drawn.random() < 0.2 else []
        found.append((images, videos[:count]))
        videos = videos[count:]
    found = [([size], []) for size in BORDERS] + found[::every]
    return found + found[: -len(found) % 4]


def clips():
    """Of each sample, the lengths of its clips in samples. The same in each run, a multiple of
    4."""
    drawn = random.Random(62)
    lengths = [int(math.exp(drawn.uniform(math.log(1600), math.log(640000))))
               for _ in range(CLIPS - len(LENGTHS))]  # fmt: skip
    alone = 2 * CLIPS // 3
    found = [[length] for length in lengths[:alone]]
    while alone < len(lengths):
        found.append(lengths[alone : alone + 2])
        alone += 2
    found = [[length] for length in LENGTHS] + found[::every]
    return found + found[: -len(found) % 4]


def name_of(size):
    return "x".join(map(str, size)) + (".png" if len(size) == 2 else ".avi")


@unittest.skipIf(MISSING, "SKIPPED: Python lacks %s (BALLAST_PYTHON)" % ", ".join(MISSING))
class AcceptedSizesTest(tools.ToolTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        import torch

        from tests.trainer_shim.python import family_models

        from PIL import Image
        from transformers import AttentionInterface, AttentionMaskInterface

        torch.set_num_threads(1)
        family_models.VISION["num_hidden_layers"] = 1
        AttentionInterface.register(
            "values", lambda module, query, key, value, *_, **__: (value.transpose(1, 2), None)
        )
        AttentionMaskInterface.register("values", lambda *_, **__: None)
        cls.media = cls.until_class_ends(tempfile.TemporaryDirectory())
        for width, height in {size for images, _ in samples(True) for size in images}:
            picture = Image.new("RGB", (width, height), (9, 99, 199))
            picture.save(os.path.join(cls.media, name_of((width, height))), compress_level=1)

    def samples_of(self, family):
        """The samples of a family, whose videos are files."""
        with_videos = family in WITH_VIDEOS and shutil.which("ffmpeg") is not None
        found = samples(with_videos)
        self.make_videos({video for _, videos in found for video in videos})
        return found

    def make_videos(self, videos):
        for video in videos:
            path = os.path.join(self.media, name_of(video))
            if not os.path.exists(path):
                width, height, frames, rate = video
                source = "color=red:size=%dx%d:rate=%d" % (width, height, rate)
                subprocess.run(
                    ["ffmpeg", "-nostdin", "-loglevel", "error", "-f", "lavfi", "-i", source, "-frames:v",
                     str(frames), "-c:v", "mjpeg", "-pix_fmt", "yuvj444p", path],
                    check=True)  # fmt: skip

    def write_samples(self, family, found):
        lines = []
        for images, videos in found:
            text = "<image>" * len(images) + "<video>" * len(videos) + "What?"
            lines.append(json.dumps({
                "images": [name_of(size) for size in images],
                "videos": [name_of(size) for size in videos],
                "messages": [{"role": "user", "content": text},
                             {"role": "assistant", "content": "A."}]}))  # fmt: skip
        self.write(os.path.join(family, "chat.jsonl"), "\n".join(lines) + "\n")
        return len(lines)

    def models_of(self, family, attention="values"):
        """For each of the rules under which images differ, the lines of the configuration and
        what makes the model and its adapter, given the ids of the job's tokens."""
        os.makedirs(self.path(family), exist_ok=True)
        if family in QWEN:
            return [("authors", BYTES, self.qwen_of(family, attention))]
        from tests.trainer_shim.python import family_models  # first: it finds the others
        from check_family_chats import save_tokenizer

        kind = "llava_onevision" if family == "llava_video" else family
        processor = family_models.processor_of(kind)
        save_tokenizer(processor, self.path(family, "tokenizer.json"))

        def model_of(rules):
            def make(_):
                from ballast.adapters.huggingface_families import Family

                model = family_models.model_of(kind, processor, rules, attention)
                if family == "llava_onevision":
                    video = processor.tokenizer.convert_tokens_to_ids("<video>")
                    model.config.video_token_id = model.model.config.video_token_id = video
                return model, Family(model.config, profile=family)

            return make

        every_rule = ("authors", "transformers") if family in DIFFERENT else ("authors",)
        return [(rules, TOKENIZER, model_of(rules)) for rules in every_rule]

    @staticmethod
    def qwen_of(family, attention):
        import transformers

        from ballast.adapters import huggingface
        from tests.trainer_shim.python import family_models

        name, vision = QWEN[family]
        text = {**family_models.TEXT, "vocab_size": 320, "layer_types": ["full_attention"] * 2,
                "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                                    "mrope_section": [2, 3, 3]}}  # fmt: skip
        if name.endswith("MoeThinker"):
            text.update(moe_intermediate_size=32, num_experts=4, num_experts_per_tok=2)

        def make(token_ids):
            ids = {"image_token_id": token_ids["image"], "video_token_id": token_ids["video"]}
            if name.endswith("Thinker"):
                audio = {"d_model": 32, "encoder_layers": 1, "encoder_attention_heads": 2,
                         "encoder_ffn_dim": 32, "output_dim": 32}  # fmt: skip
                if name.startswith("Qwen2"):
                    ids = {key.replace("_id", "_index"): value for key, value in ids.items()}
                ids["audio_config"] = audio
            config = getattr(transformers, name + "Config")(
                text_config=text, vision_config=vision, **ids
            )
            config._attn_implementation = attention
            model = getattr(transformers, name + "ForConditionalGeneration")(config)
            return model.float().eval(), huggingface

        return make

    def check(self, family):
        import torch

        for rules, tokenizer, model_of in self.models_of(family):
            count = self.write_samples(family, self.samples_of(family))
            config = CONFIG % (self.media, family, rules, tokenizer)
            config = self.write(os.path.join(family, rules + ".yaml"), config)
            self.assertIn("0 bad", self.ok("ballast-server", "index", "--config", config))
            seen = 0
            with self.server(config, f"unix:{self.folder}/{family[:16]}{rules[0]}.sock") as (
                address,
            ):
                with ballast.Loader(address, dp_rank=0, device="cpu", pixel_type="float32",
                                    steps=count // 4) as loader, torch.no_grad():  # fmt: skip
                    model, adapter = model_of(loader.job["model"]["token_ids"])
                    for batch in loader:
                        if family == "llava_next" and not seen:
                            self.refuses_other_canvases(model.config, batch)
                        for place, sample in zip(batch.samples, adapter.unpacked(batch)):
                            sample.pop("labels")
                            if isinstance(sample.get("pixel_values_videos"), list):
                                # Of several numbers of frames, which a call does not take.
                                sample = adapter.features(model, sample)
                            try:
                                model(**sample, logits_to_keep=1)
                            except Exception as error:
                                sizes = samples(family in WITH_VIDEOS)[place.ordinal]
                                raise AssertionError(
                                    f"{family}, {rules}, {sizes}: {error}"
                                ) from error
                            seen += 1
            self.assertEqual(seen, count)

    def check_heard(self, profile):
        """Clips alone and two in a sample: a call a sample, of which the model compares all
        tokens with all features."""
        import torch

        from tests.trainer_shim.python import audio_models

        kind = HEARING[profile]
        model = getattr(audio_models, profile)()
        whisper = issubclass(kind, audio_test.WhisperCase)
        adapter = getattr(huggingface_audio, "omni_padded" if "omni" in profile else profile)
        case = kind(model, adapter) if whisper else kind(model)
        if profile in ("gemma3n", "granite_speech", "phi4_multimodal"):
            adapter = functools.partial(adapter, mixed=True)
        samples = clips()
        lines = []
        for lengths in samples:
            names = ["%d.wav" % length for length in lengths]
            for name, length in zip(names, lengths):
                with wave.open(self.path(name), "wb") as file:
                    file.setparams((1, 2, 16000, 0, "NONE", ""))
                    file.writeframes(b"\1\0" * length)
            text = "<audio>" * len(names) + "What?"
            lines.append(json.dumps({"audios": names, "messages": [
                {"role": "user", "content": text}, {"role": "assistant", "content": "A."}]}))  # fmt: skip
        self.write("talk.jsonl", "\n".join(lines) + "\n")
        if case.tokenizer != "bytes":
            self.write(case.tokenizer, case.tokenizer_json())
        vision = "image" in case.ids
        ids = ", ".join("%s: %d" % each for each in case.ids.items())
        config = self.write("heard.yaml", audio_test.CONFIG % (
            profile, case.tokenizer, ids, "", 4, 1, "vision: {dp: 1}, " * vision, "padded"))  # fmt: skip
        self.assertIn("0 bad", self.ok("ballast-server", "index", "--config", config))
        modules = ("vision",) * vision + ("audio", "language")
        seen = 0
        with self.server(config, f"unix:{self.folder}/heard.sock") as (address,):
            with ballast.Loader(address, modules, dp_rank=0, device="cpu",
                                steps=len(samples) // 4) as loader, torch.no_grad():  # fmt: skip
                for batch in loader:
                    (sample,) = batch.samples
                    given = adapter(batch)
                    given.pop("labels")
                    try:
                        case.model(**given, logits_to_keep=1)
                    except Exception as error:
                        raise AssertionError(
                            f"{profile}, clips of {samples[sample.ordinal]} samples: {error}"
                        ) from error
                    seen += 1
        self.assertEqual(seen, len(samples))

    @unittest.skipIf(shutil.which("ffmpeg") is None, "SKIPPED: there is no program ffmpeg")
    def test_videos_of_llava_video(self):
        videos = os.path.join(os.path.dirname(tools.__file__), "../server/media/video")
        sys.path.insert(0, videos)
        import make_llava_video_vectors as plans

        own = {video for _, videos in samples(True) for video in videos}
        found = [([], [video]) for video in sorted(own)]
        found = (4 * found)[: -(-len(found) // 4) * 4]
        (_, tokenizer, _), = self.models_of("llava_video")  # fmt: skip
        self.make_videos(own)
        self.write_samples("llava_video", found)
        config = CONFIG % (self.media, "llava_video", "authors", tokenizer)
        config = self.write("llava_video/videos.yaml", config)
        self.assertIn("0 bad", self.ok("ballast-server", "index", "--config", config))
        seen = 0
        with self.server(config, f"unix:{self.folder}/videos.sock") as (address,):
            with ballast.Loader(address, dp_rank=0, device="cpu", steps=len(found) // 4) as loader:
                token = loader.job["model"]["token_ids"]["image"]
                for batch in loader:
                    places = batch["cu_seqlens_padded"].tolist()
                    frames = batch["video_grid_thw"][:, 0].tolist()
                    for i, sample in enumerate(batch.samples):
                        _, _, total, rate = found[sample.ordinal][1][0]
                        numbers, _ = plans.sampled(total, rate, 1, 0, False)
                        ids = batch["input_ids"][0, places[i] : places[i + 1]]
                        self.assertEqual(frames[i], len(numbers))
                        self.assertEqual(
                            int((ids == token).sum()), plans.rows(len(numbers), "bilinear", "grid")
                        )
                        seen += 1
        self.assertEqual(seen, len(found))

    def refuses_other_canvases(self, config, batch):
        from ballast.adapters.huggingface_families import Family
        from ballast.errors import InvalidArgument

        own = config.image_grid_pinpoints
        config.image_grid_pinpoints = [list(reversed(pair)) for pair in own]
        with self.assertRaisesRegex(
            InvalidArgument, "image_grid_pinpoints: found .* wanted the job's"
        ):
            Family(config).unpacked(batch)
        config.image_grid_pinpoints = own


def _add(name, check, family):
    setattr(AcceptedSizesTest, "test_" + name, lambda self: check(self, family))


def option(name, default):
    """Takes an option and its value from the command line."""
    if name not in sys.argv:
        return default
    at = sys.argv.index(name)
    value = sys.argv[at + 1]
    del sys.argv[at : at + 2]
    return value


share, shares = 0, 1
if __name__ == "__main__":
    every = int(option("--every", 1))
    share, shares = map(int, option("--share", "0/1").split("/"))
for _family in (*FAMILIES, *QWEN)[share::shares]:
    _add(_family, AcceptedSizesTest.check, _family)
for _family in (*HEARING,)[share::shares]:
    _add(_family + "_hears", AcceptedSizesTest.check_heard, _family)


if __name__ == "__main__":
    unittest.main()
