"""Clips from files to a loss: a server, a loader and the adapter, beside the feature
extractors and small random models of transformers, on the same samples.

bazel test --test_env=BALLAST_PYTHON=/path/to/python ..."""

import importlib.util
import json
import re
import shutil
import struct
import subprocess
import types
import unittest
import wave
import zlib

import numpy

import ballast
from ballast.adapters import huggingface, huggingface_audio, huggingface_families
from tests.harness import tools

IDS = {"end_of_text": 300, "im_start": 301, "im_end": 302, "audio": 303}
#: Question, answer, and the seconds of each clip that an <audio> of the question stands for.
CONVERSATIONS = [
    ("<audio>What is heard?", "A hum.", [2.3]),
    ("Nothing to hear.", "No.", []),
    ("<audio> or <audio>?", "The second.", [0.7, 31.0]),
    ("Once more: <audio>", "Noise.", [1.0001]),
]
#: For models whose clips are to be alone in a call.
SINGLE = [c for c in CONVERSATIONS if len(c[2]) < 2] + [("<audio>", "Much.", [31.0])]
SEEN = [("<image> or <audio>?", "Both.", [1.7]), *CONVERSATIONS]
#: 84 x 56 pixels: six tokens of Qwen2.5-Omni's.
PICTURE = numpy.random.default_rng(5).integers(0, 256, (56, 84, 3)).astype(numpy.uint8)
CONFIG = """
sources: [{name: talk, format: jsonl, path: talk.jsonl, media_root: .}]
order: {shuffle: false}
model: {profile: %s, tokenizer: %s, chat_template: chatml, token_ids: {%s}, %s}
batch: {global: %d, micro: %d}
topology: {modules: {%saudio: {dp: 1}, language: {dp: 1}}}
packing: {mode: %s}
balance: {equal_count: true}
serve: {listen: ["127.0.0.1:0"], threads: 1}
"""


def pcm(seconds, seed):
    """int16 noise that swells, 16 kHz."""
    count = int(seconds * 16000)
    noise = numpy.random.default_rng(seed).integers(-20000, 20000, count)
    return (noise * numpy.linspace(0.1, 1, count)).astype(numpy.int16)


def models():
    """audio_models, which imports torch."""
    from tests.trainer_shim.python import audio_models

    return audio_models


HEARD = 3.3  # seconds of a film's audio


def make_film(path, seed, frames, rate):
    """`rate` of the frames a second, with audio as AAC. Returns the samples that FFmpeg
    decodes."""
    with wave.open(path + ".wav", "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(pcm(HEARD, seed).tobytes())
    size = "%dx%d" % (frames.shape[2], frames.shape[1])
    shown = ("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", str(rate), "-i", "-")
    codecs = ("-c:v", "png", "-c:a", "aac", "-b:a", "128k")
    run = ("ffmpeg", "-loglevel", "error", "-y")
    subprocess.run((*run, *shown, "-i", path + ".wav", *codecs, path), check=True,
                   input=frames.tobytes())  # fmt: skip
    heard = subprocess.run((*run, "-i", path, "-vn", "-f", "f32le", "-"), check=True,
                           stdout=subprocess.PIPE).stdout  # fmt: skip
    # FFmpeg's last frame is padded.
    return numpy.frombuffer(heard, numpy.float32)[: int(HEARD * 16000)]


def png(pixels):
    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    height, width, _ = pixels.shape
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + row.tobytes() for row in pixels))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def convolved(frames, *layers):
    """What convolutions (kernel, stride, padding) leave of the frames."""
    for kernel, stride, padding in layers:
        frames = (frames + 2 * padding - kernel) // stride + 1
    return frames


class Case:
    """A model beside a job that feeds it. Subclasses: its processor, without the text."""

    conversations = CONVERSATIONS
    ids = IDS
    micro = 4
    tokenizer = "bytes"
    features = "input_features"
    time_axis = 0  # of a clip's features
    before, after = "<|audio_bos|>", "<|audio_eos|>"
    image_tokens = 6
    video = ""  # model.video
    given = {}  # more arguments of the model

    def __init__(self, model):
        self.model = model.eval()

    def clips(self, i):
        return [pcm(seconds, 10 * i + k).astype(numpy.float32) / numpy.float32(32768)
                for k, seconds in enumerate(self.conversations[i][2])]  # fmt: skip

    def text(self, i, tokens):
        """Ids and labels of a conversation, as chatml writes it in bytes."""
        ids, encode = self.ids, self.encode
        question, answer, _ = self.conversations[i]
        found = [ids["im_start"], *encode("user\n")]
        left, number = list(tokens), 0
        for piece in re.split("(<image>|<audio>|<video>)", question):
            if piece == "<image>":
                found += [ids["vision_start"], *[ids["image"]] * self.image_tokens,
                          ids["vision_end"]]  # fmt: skip
            elif piece == "<video>":
                found += self.film_ids(left.pop(0))
            elif piece == "<audio>":
                number += 1
                found += [*encode(self.before.replace("{n}", str(number))),
                          *[ids["audio"]] * left.pop(0), *encode(self.after)]  # fmt: skip
            else:
                found += encode(piece)
        found += [ids["im_end"], *encode("\n"), ids["im_start"], *encode("assistant\n")]
        learnt = [*encode(answer), ids["im_end"]]
        labels = [-100] * len(found) + learnt + [-100]
        return found + learnt + encode("\n"), labels

    def encode(self, text):
        return list(text.encode())

    def wanted(self, i):
        """The processor's inputs of a conversation's media, and the tokens of its clips and
        of its videos' audio, in order."""
        raise NotImplementedError


class TokenizerCase(Case):
    """With a tokenizer of bytes and the model's own tokens."""

    tokenizer = "tokenizer.json"
    specials = ()
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    bytes_in_order = [*plain, *(byte for byte in range(256) if not 33 <= byte < 127
                                and not 161 <= byte < 173 and byte < 174)]  # fmt: skip

    def encode(self, text):
        if text in self.specials:
            return [256 + self.specials.index(text)]
        return [self.bytes_in_order.index(byte) for byte in text.encode()]

    def tokenizer_json(self):
        letters = [*map(chr, self.plain), *(chr(256 + i) for i in range(256 - len(self.plain)))]
        added = [{"id": 256 + i, "content": name, "special": True, "normalized": False,
                  "lstrip": False, "rstrip": False, "single_word": False}
                 for i, name in enumerate(self.specials)]  # fmt: skip
        level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
        return json.dumps({
            "version": "1.0", "added_tokens": added, "pre_tokenizer": level, "decoder": level,
            "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(letters)}, "merges": []},
        })  # fmt: skip


class WhisperCase(Case):
    def __init__(self, model, adapter, longest=30):
        from transformers import WhisperFeatureExtractor

        super().__init__(model)
        self.adapter = adapter
        self.extractor = WhisperFeatureExtractor(feature_size=128, chunk_length=longest)

    def wanted(self, i):
        if not self.clips(i):
            return {}, []
        made = self.extractor(self.clips(i), sampling_rate=16000, return_attention_mask=True,
                              padding=self.padding, truncation=self.padding == "max_length",
                              return_tensors="pt")  # fmt: skip
        frames = made["attention_mask"].sum(1).tolist()
        return ({"input_features": made["input_features"],
                 "feature_attention_mask": made["attention_mask"]},
                [self.tokens(n) for n in frames])  # fmt: skip

    padding = "max_length"
    time_axis = 1  # of a clip's features

    @staticmethod
    def tokens(frames):
        return convolved(frames, (3, 2, 1), (2, 2, 0))


class Qwen2AudioCase(WhisperCase):
    before, after = "Audio {n}: <|audio_bos|>", "<|audio_eos|>\n"


class Qwen25OmniCase(WhisperCase, TokenizerCase):
    pictures = {}  # numbers of the image processor
    specials = ("<|vision_bos|>", "<|IMAGE|>", "<|VIDEO|>", "<|vision_eos|>",
                "<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>")  # fmt: skip
    ids = {**IDS, "pad": 0, "vision_start": 256, "image": 257, "video": 258, "vision_end": 259,
           "audio": 261}  # fmt: skip
    conversations = SEEN
    micro = 5

    def wanted(self, i):
        from transformers import Qwen2VLImageProcessor

        inputs, tokens = super().wanted(i)
        if "<image>" in self.conversations[i][0]:
            processor = Qwen2VLImageProcessor(min_pixels=3136, max_pixels=12845056, **self.pictures)
            inputs.update(processor(images=[PICTURE], return_tensors="pt"))
        return inputs, tokens


class Qwen3OmniCase(Qwen25OmniCase):
    specials = ("<|vision_start|>", "<|image_pad|>", "<|video_pad|>", "<|vision_end|>",
                "<|audio_start|>", "<|audio_pad|>", "<|audio_end|>")  # fmt: skip
    before, after = "<|audio_start|>", "<|audio_end|>"
    pictures = {"patch_size": 16, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    padding = "longest"
    #: Its processor counts beside a longer clip what it does not count alone.
    conversations = [SEEN[0], *SINGLE]

    @staticmethod
    def tokens(frames):
        rest = convolved(frames % 100, *[(3, 2, 1)] * 3) if frames % 100 else 0
        return rest + 13 * (frames // 100)


class Film:
    """A case with videos whose audio is read with them: three patches of 2 x 3 tokens."""

    films = [("<video>What is it?", "A hum.", []), ("<image> or <video>?", "No.", []),
             ("<audio>, <video>?", "Both.", [1.1])]  # fmt: skip
    given = {"use_audio_in_video": True}

    def __init__(self, model, adapter, path, **options):
        super().__init__(model, adapter, **options)
        patch = self.pictures.get("patch_size", 14)
        frames = numpy.random.default_rng(6).integers(0, 256, (6, 4 * patch, 6 * patch, 3))
        self.heard = make_film(path, 70, frames.astype(numpy.uint8), self.rate)
        mean = self.pictures.get("image_mean", [0.48145466, 0.4578275, 0.40821073])
        std = self.pictures.get("image_std", [0.26862954, 0.26130258, 0.27577711])
        # Pairs of frames, as Qwen2VLVideoProcessor cuts them into patches.
        pixels = ((frames / 255 - mean) / std).astype(numpy.float32)
        patches = pixels.transpose(0, 3, 1, 2).reshape(3, 2, 3, 2, 2, patch, 3, 2, patch)
        self.patches = patches.transpose(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(3 * 24, -1)

    def wanted(self, i):
        import torch

        inputs, tokens = super().wanted(i)
        before, video, _ = self.conversations[i][0].partition("<video>")
        if not video:
            return inputs, tokens
        made = self.extractor([self.heard], sampling_rate=16000, return_attention_mask=True,
                              padding=self.padding, truncation=self.padding == "max_length",
                              return_tensors="pt")  # fmt: skip
        # Each clip alone, in the order of the text; zeros behind the shorter ones.
        for key, of in (("input_features", made["input_features"][0]),
                        ("feature_attention_mask", made["attention_mask"][0])):  # fmt: skip
            clips = list(inputs.get(key, ()))
            clips.insert(before.count("<audio>"), of)
            longest = max(clip.shape[-1] for clip in clips)
            inputs[key] = torch.stack([
                torch.nn.functional.pad(clip, (0, longest - clip.shape[-1])) for clip in clips
            ])  # fmt: skip
        tokens.insert(before.count("<audio>"), self.tokens(int(made["attention_mask"].sum())))
        inputs.update(
            pixel_values_videos=torch.from_numpy(self.patches),
            video_grid_thw=torch.tensor([[3, 4, 6]]),
            video_second_per_grid=torch.tensor([2 / self.rate]),
        )
        return inputs, tokens

    def film_ids(self, heard):
        """As transformers' processor orders them."""
        import transformers

        kind = getattr(transformers, self.processor)
        processor = types.SimpleNamespace(
            video_processor=types.SimpleNamespace(merge_size=2), audio_bos_token="b",
            audio_eos_token="e", video_token="v", audio_token="a",
            get_chunked_index=lambda *given: kind.get_chunked_index(None, *given))  # fmt: skip
        text = kind.replace_video_with_audio_token(
            processor, {"video_grid_thw": numpy.array([[3, 4, 6]]),
                        "video_second_per_grid": [2 / self.rate]},
            0, {"num_audio_tokens": [heard]}, 0, position_id_per_seconds=self.ids_per_second,
            seconds_per_chunk=2.0)  # fmt: skip
        runs = [len(run.group()) for run in re.finditer("v+|a+", text)]
        assert runs == [*self.runs, heard - sum(self.runs[1::2])], runs
        ids = {"b": 260, "v": 258, "a": 261, "e": 262}
        return [256, *map(ids.get, text), 259]


class Qwen25FilmCase(Film, Qwen25OmniCase):
    #: Patches 25 positions apart, so the third is of the second chunk of 2 s.
    processor, rate, ids_per_second, runs = "Qwen2_5OmniProcessor", 2, 25, [12, 50, 6]
    conversations = [*Film.films, *SEEN]
    micro = 8
    video = "video: {use_audio_in_video: true, min_pixels: 3136}"


class Qwen3FilmCase(Film, Qwen3OmniCase):
    #: Patches at fractions: 2/3 s, 8.67 positions apart.
    processor, rate, ids_per_second, runs = "Qwen3OmniMoeProcessor", 3, 13.0, [6, 9, 6, 9, 6]
    conversations = [*Film.films, *Qwen3OmniCase.conversations]
    micro = 8
    video = "video: {use_audio_in_video: true, min_pixels: 3136, fps: 3}"


class VoxtralCase(WhisperCase):
    before, after = "[BEGIN_AUDIO]", ""

    def wanted(self, i):
        import torch

        chunks, tokens = [], []
        for clip in self.clips(i):
            made = self.extractor(clip, sampling_rate=16000, padding=True, truncation=False,
                                  pad_to_multiple_of=480000, return_tensors="pt")  # fmt: skip
            rows = made["input_features"].reshape(128, -1, 3000).transpose(0, 1)
            chunks.append(rows)
            tokens.append(375 * len(rows))
        return ({"input_features": torch.cat(chunks)} if chunks else {}), tokens


class Phi4Case(Case):
    before = after = ""
    conversations = SINGLE
    micro = 1
    adapter = staticmethod(huggingface_audio.phi4_multimodal)
    features = "audio_input_features"

    def wanted(self, i):
        from transformers import Phi4MultimodalFeatureExtractor

        if not self.clips(i):
            return {}, []
        made = Phi4MultimodalFeatureExtractor()(self.clips(i), sampling_rate=16000)
        return dict(made), made["audio_embed_sizes"].tolist()


class GraniteCase(Case):
    before = after = ""
    conversations = SINGLE
    micro = 1
    adapter = staticmethod(huggingface_audio.granite_speech)

    def wanted(self, i):
        import torch
        from transformers import GraniteSpeechFeatureExtractor

        if not self.clips(i):
            return {}, []
        made = dict(GraniteSpeechFeatureExtractor()(torch.tensor(numpy.stack(self.clips(i)))))
        return made, made.pop("audio_embed_sizes")


class Gemma3nCase(Case):
    before, after = "\n\n<start_of_audio>", "<end_of_audio>\n\n"
    ids = {**IDS, "audio": 330}
    conversations = SINGLE
    micro = 1
    adapter = staticmethod(huggingface_audio.gemma3n)
    extractor = "Gemma3nAudioFeatureExtractor"

    def wanted(self, i):
        import torch
        import transformers

        extract = getattr(transformers, self.extractor)()
        made = [extract([clip], return_tensors="pt") for clip in self.clips(i)]
        if not made:
            return {}, []
        longest = max(one["input_features"].shape[1] for one in made)
        inputs = {
            key: torch.cat([torch.nn.functional.pad(
                one[key], (0,) * (2 * one[key].ndim - 3) + (longest - one[key].shape[1],))
                for one in made])
            for key in ("input_features", "input_features_mask")
        }  # fmt: skip
        return inputs, [self.tokens(n) for n in inputs["input_features_mask"].sum(1).tolist()]

    @staticmethod
    def tokens(frames):
        return 188


class Gemma4Case(Gemma3nCase, TokenizerCase):
    specials = ("<pad>", "<bos>", "<eos>", "<|turn>", "<turn|>", "<|image>", "<|image|>",
                "<image|>", "<|audio>", "<|audio|>", "<audio|>", "<|channel>", "<channel|>")  # fmt: skip
    before, after = "<|audio>", "<audio|>"
    ids = {**IDS, "audio": 256 + specials.index("<|audio|>")}
    conversations = CONVERSATIONS
    micro = 4
    adapter = staticmethod(huggingface_audio.gemma4)
    extractor = "Gemma4AudioFeatureExtractor"

    @staticmethod
    def tokens(frames):
        return min(750, convolved(frames, (3, 2, 1), (3, 2, 1)))


class Gemma4SeenCase(Gemma4Case):
    """With images, too."""

    ids = {**Gemma4Case.ids, "vision_start": 261, "image": 262, "vision_end": 263}
    conversations = SEEN
    micro = 5

    def __init__(self, model):
        from transformers import Gemma4ImageProcessor

        super().__init__(model)
        self.adapter = huggingface_families.Family(model.config).padded
        self.picture = dict(Gemma4ImageProcessor()(images=[PICTURE], return_tensors="pt"))
        self.image_tokens = int(self.picture.pop("num_soft_tokens_per_image"))

    def wanted(self, i):
        inputs, tokens = super().wanted(i)
        return {**inputs, **(self.picture if "<image>" in self.conversations[i][0] else {})}, tokens


class AudioTest(tools.ToolTest):
    def make(self, conversations=CONVERSATIONS):
        with open(self.path("x.png"), "wb") as file:
            file.write(png(PICTURE))
        lines = []
        for i, (question, answer, clips) in enumerate(conversations):
            names = ["%d.%d.wav" % (i, k) for k in range(len(clips))]
            for k, (name, seconds) in enumerate(zip(names, clips)):
                with wave.open(self.path(name), "wb") as file:
                    file.setparams((1, 2, 16000, 0, "NONE", ""))
                    file.writeframes(pcm(seconds, 10 * i + k).tobytes())
            turns = [{"role": "user", "content": question},
                     {"role": "assistant", "content": answer}]  # fmt: skip
            record = {"messages": turns, "audios": names}
            if "<image>" in question:
                record["image"] = "x.png"
            if "<video>" in question:
                record["video"] = "film.mov"
            lines.append(json.dumps(record))
        self.write("talk.jsonl", "\n".join(lines) + "\n")

    def batches(self, profile, mode, ids, count=4, micro=4, vision=False, tokenizer="bytes",
                video="", **options):  # fmt: skip
        """The micro-batches of a step."""
        config = self.write(
            profile + mode + ".yaml",
            CONFIG % (profile, tokenizer, ", ".join("%s: %d" % each for each in ids.items()),
                      video, count, micro, "vision: {dp: 1}, " * vision, mode),
        )  # fmt: skip
        self.ok("ballast-server", "index", "--config", config)
        modules = ("vision",) * vision + ("audio", "language")
        with self.server(config, f"unix:{self.folder}/audio.sock") as (address,):
            with ballast.Loader(address, modules, dp_rank=0, device="cpu", steps=1,
                                **options) as loader:  # fmt: skip
                return [batch.clone() for batch in loader]

    def compare(self, profile, case, modes=("shard", "padded"), adapters=None):
        """The loss of each way of packing is that of the samples one by one, with the
        processor's own inputs."""
        import torch

        self.make(case.conversations)
        if case.tokenizer != "bytes":
            self.write(case.tokenizer, case.tokenizer_json())
        count = len(case.conversations)
        total, learnt, texts, made = 0.0, 0, {}, {}
        with torch.no_grad():
            for i in range(count):
                wanted, tokens = case.wanted(i)
                text, labels = texts[i] = case.text(i, tokens)
                made[i] = wanted.get(case.features, [])
                loss = case.model(input_ids=torch.tensor([text]), labels=torch.tensor([labels]),
                                  attention_mask=torch.ones(1, len(text), dtype=torch.long),
                                  use_cache=False, **case.given, **wanted).loss.item()  # fmt: skip
                here = sum(label != -100 for label in labels)
                total, learnt = total + loss * here, learnt + here
            for mode in modes:
                adapter = (adapters or {}).get(mode, case.adapter)
                with self.subTest(mode):
                    found, seen = 0.0, 0
                    for batch in self.batches(profile, mode, case.ids, count, case.micro,
                                              vision="image" in case.ids, video=case.video,
                                              tokenizer=case.tokenizer):  # fmt: skip
                        given = adapter(batch)
                        here = int((given["labels"] != -100).sum())
                        found += case.model(**given).loss.item() * here
                        seen += here
                        self.check_features(
                            case.time_axis, given.get(case.features, []),
                            [clip for s in batch.samples for clip in made[s.position]],
                            batch.totals.frames,
                        )  # fmt: skip
                        if given["input_ids"].shape[0] != len(batch.samples):
                            continue
                        for place, sample in enumerate(batch.samples):
                            text = texts[sample.position][0]
                            self.assertEqual(given["input_ids"][place][: len(text)].tolist(), text)
                    self.assertEqual(seen, learnt)
                    self.assertAlmostEqual(found / learnt, total / learnt, delta=1e-5)
                    print("%s %s: loss %.7f, by transformers' own inputs %.7f"
                          % (profile, mode, found / learnt, total / learnt))  # fmt: skip

    def check_features(self, time_axis, given, wanted, frames):
        """The rows of each clip are its extractor's: at least as many as count. A small
        random model's loss hardly depends on them. Zeros follow."""
        self.assertEqual(len(given), len(wanted))
        compared = 0
        for row, clip in zip(given, wanted):
            row, clip = row.movedim(time_axis, 0), clip.movedim(time_axis, 0)
            kept = row.ne(0).any(1)[: len(clip)]
            row, clip = row[: len(kept)][kept], clip[: len(kept)][kept]
            self.assertLess((row - clip).abs().max().item(), 1e-4)
            compared += len(row)
        self.assertGreaterEqual(compared, frames)

    def setUp(self):
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(3)

    def test_features_as_rows(self):
        """Without torch: rows, lengths and what the adapter makes of them."""
        self.make()
        (batch,) = self.batches("qwen2_audio", "shard", IDS, array="numpy")
        self.assertEqual(batch["audio_feature_lengths"].tolist(), [230, 70, 3000, 101])
        self.assertEqual(batch["audio_cu_rows"].tolist(), [0, 232, 304, 3304, 3407])
        self.assertEqual(batch["input_features"].shape, (3407, 128))
        self.assertFalse(batch.dummy_clip)
        self.assertEqual((batch.totals.clips, batch.totals.frames), (4, 3401))
        made = huggingface_audio.qwen2_audio(batch)
        self.assertEqual(made["input_features"].shape, (4, 128, 3000))
        self.assertEqual(made["feature_attention_mask"].sum(1).tolist(), [230, 70, 3000, 101])
        numpy.testing.assert_array_equal(
            made["input_features"][1, :, :72].T, batch["input_features"][232:304]
        )

    def test_refuses_what_would_train_on_other_inputs(self):
        self.make()
        (batch,) = self.batches("qwen2_audio", "shard", IDS, array="numpy")
        with self.assertRaisesRegex(ballast.FailedPrecondition, "text of 4 clips of audio"):
            huggingface.padded(batch)
        with self.assertRaisesRegex(ballast.FailedPrecondition, "of 70 to 3000 frames"):
            huggingface_audio.phi4_multimodal(batch)
        with self.assertRaisesRegex(ballast.FailedPrecondition, "found 3407 rows; wanted chunks"):
            huggingface_audio.voxtral(batch)
        del batch["input_features"]
        with self.assertRaisesRegex(ballast.FailedPrecondition, "no input_features"):
            huggingface_audio.qwen2_audio(batch)

    def test_qwen2_audio(self):
        self.compare("qwen2_audio",
                     Qwen2AudioCase(models().qwen2_audio(), huggingface_audio.qwen2_audio))  # fmt: skip

    def test_qwen2_5_omni(self):
        self.compare("qwen2_5_omni",
                     Qwen25OmniCase(models().qwen2_5_omni(), huggingface_audio.omni_padded, longest=300),
                     adapters={"shard": huggingface_audio.omni_packed})  # fmt: skip

    @unittest.skipIf(
        shutil.which("ffmpeg") is None,
        "SKIPPED: losses need transformers, torch and a program ffmpeg",
    )
    def test_audio_in_video(self):
        for profile, kind, options in (
            ("qwen2_5_omni", Qwen25FilmCase, {"longest": 300}),
            ("qwen3_omni_moe", Qwen3FilmCase, {}),
        ):
            with self.subTest(profile):
                model = getattr(models(), profile)()
                case = kind(model, huggingface_audio.omni_padded, self.path("film.mov"), **options)
                self.compare(profile, case, adapters={"shard": huggingface_audio.omni_packed})
                self.compare_positions(profile, case)

    def compare_positions(self, profile, case):
        """A small model's loss hardly depends on them."""
        (batch,) = self.batches(profile, "padded", case.ids, len(case.conversations), case.micro,
                                vision=True, tokenizer=case.tokenizer, video=case.video)  # fmt: skip
        given = case.adapter(batch)
        seconds = given["video_grid_thw"].new_full((len(given["video_grid_thw"]),), 2).float()
        wanted, _ = case.model.get_rope_index(
            given["input_ids"], given["image_grid_thw"], given["video_grid_thw"],
            given["attention_mask"], True, given["feature_attention_mask"].sum(1),
            seconds / case.rate,
        )  # fmt: skip
        real = given["attention_mask"].bool()
        self.assertEqual(given["position_ids"].dtype, wanted.dtype)
        self.assertEqual(given["position_ids"][-3:, real].tolist(), wanted[:, real].tolist())

    def test_qwen3_omni(self):
        self.compare("qwen3_omni_moe", Qwen3OmniCase(models().qwen3_omni_moe(), huggingface_audio.omni_padded),
                     adapters={"shard": huggingface_audio.omni_packed})  # fmt: skip

    def test_voxtral(self):
        self.compare("voxtral", VoxtralCase(models().voxtral(), huggingface_audio.voxtral))

    def test_phi4_multimodal(self):
        self.compare("phi4_multimodal", Phi4Case(models().phi4_multimodal()))

    @unittest.skipIf(
        importlib.util.find_spec("torchaudio") is None,
        "SKIPPED: losses need transformers, torch and torchaudio",
    )
    def test_granite_speech(self):
        self.compare("granite_speech", GraniteCase(models().granite_speech()))

    def test_gemma3n(self):
        self.compare("gemma3n", Gemma3nCase(models().gemma3n()))

    def test_gemma4(self):
        self.compare("gemma4", Gemma4Case(models().gemma4()))

    @unittest.skipIf(
        importlib.util.find_spec("torchvision") is None,
        "SKIPPED: losses need transformers, torch and torchvision",
    )
    def test_gemma4_with_images(self):
        case = Gemma4SeenCase(models().gemma4())
        self.compare("gemma4", case)
        (batch,) = self.batches("gemma4", "padded", case.ids, len(SEEN), case.micro, vision=True,
                                tokenizer=case.tokenizer)  # fmt: skip
        with self.assertRaisesRegex(ballast.FailedPrecondition, "1 images, which this adapter"):
            huggingface_audio.gemma4(batch)


if __name__ == "__main__":
    unittest.main()
