"""Sound from files to a loss: a server, a loader and the adapter, beside the feature
extractor and small random models of transformers, on the same samples.

bazel test --test_env=BALLAST_PYTHON=/path/to/python ..."""

import importlib.util
import json
import unittest
import wave

import numpy

import ballast
from tests.harness import tools

MISSING = [name for name in ("transformers", "torch") if importlib.util.find_spec(name) is None]
IDS = {"end_of_text": 300, "im_start": 301, "im_end": 302, "audio": 303}
#: Question, answer, and the seconds of each clip that an <audio> of the question stands for.
CONVERSATIONS = [
    ("<audio>What is heard?", "A hum.", [2.3]),
    ("Nothing to hear.", "No.", []),
    ("<audio> or <audio>?", "The second.", [0.7, 31.0]),
    ("Once more: <audio>", "Noise.", [1.0001]),
]
CONFIG = """
sources: [{name: talk, format: jsonl, path: talk.jsonl, media_root: .}]
order: {shuffle: false}
model: {profile: %s, tokenizer: bytes, chat_template: chatml, token_ids: {%s}}
batch: {global: 4, micro: 4}
topology: {modules: {audio: {dp: 1}, language: {dp: 1}}}
packing: {mode: %s}
balance: {equal_count: true}
serve: {listen: ["127.0.0.1:0"], threads: 1}
"""


def pcm(seconds, seed):
    """int16 noise that swells, 16 kHz."""
    count = int(seconds * 16000)
    noise = numpy.random.default_rng(seed).integers(-20000, 20000, count)
    return (noise * numpy.linspace(0.1, 1, count)).astype(numpy.int16)


class AudioTest(tools.ToolTest):
    def make(self):
        lines = []
        for i, (question, answer, clips) in enumerate(CONVERSATIONS):
            names = ["%d.%d.wav" % (i, k) for k in range(len(clips))]
            for k, (name, seconds) in enumerate(zip(names, clips)):
                with wave.open(self.path(name), "wb") as file:
                    file.setparams((1, 2, 16000, 0, "NONE", ""))
                    file.writeframes(pcm(seconds, 10 * i + k).tobytes())
            turns = [{"role": "user", "content": question},
                     {"role": "assistant", "content": answer}]  # fmt: skip
            lines.append(json.dumps({"messages": turns, "audios": names}))
        self.write("talk.jsonl", "\n".join(lines) + "\n")

    def batch(self, profile, mode, ids):
        config = self.write(
            profile + mode + ".yaml",
            CONFIG % (profile, ", ".join("%s: %d" % each for each in ids.items()), mode),
        )
        self.ok("ballast-server", "index", "--config", config)
        with self.server(config, f"unix:{self.folder}/audio.sock") as (address,):
            with ballast.Loader(address, ("audio", "language"), dp_rank=0, device="cpu",
                                steps=1) as loader:  # fmt: skip
                return next(iter(loader))

    def features(self, extractor, i):
        """What transformers' extractor makes of a conversation's clips."""
        clips = [pcm(seconds, 10 * i + k).astype(numpy.float32) / numpy.float32(32768)
                 for k, seconds in enumerate(CONVERSATIONS[i][2])]  # fmt: skip
        if not clips:
            return {}
        made = extractor(clips, sampling_rate=16000, return_attention_mask=True,
                         padding="max_length", return_tensors="pt")  # fmt: skip
        return {"input_features": made["input_features"],
                "feature_attention_mask": made["attention_mask"]}  # fmt: skip

    @staticmethod
    def ids_of(i, frames, ids):
        """Ids and labels of a conversation, as chatml writes it in bytes."""
        question, answer, _ = CONVERSATIONS[i]
        found, learnt = [ids["im_start"], *b"user\n"], []
        pieces = question.split("<audio>")
        for k, piece in enumerate(pieces):
            if k > 0:
                tokens = ((frames[k - 1] - 1) // 2 + 1 - 2) // 2 + 1
                found += [*b"<|audio_bos|>", *[ids["audio"]] * tokens, *b"<|audio_eos|>"]
            found += piece.encode()
        found += [ids["im_end"], *b"\n", ids["im_start"], *b"assistant\n"]
        learnt = [*answer.encode(), ids["im_end"]]
        labels = [-100] * len(found) + learnt + [-100]
        return found + learnt + [*b"\n"], labels

    def compare(self, model, batch, inputs, extractor, ids):
        import torch

        total, count = 0.0, 0
        with torch.no_grad():
            given = inputs(batch)
            found = model(**given).loss.item()
            rows = iter(given["input_features"])
            for i in range(len(CONVERSATIONS)):
                wanted = self.features(extractor, i)
                frames = wanted["feature_attention_mask"].sum(1).tolist() if wanted else []
                text, labels = self.ids_of(i, frames, ids)
                place = [s.position for s in batch.samples].index(i)
                self.assertEqual(given["input_ids"][place][: len(text)].tolist(), text)
                for clip, length in zip(wanted.get("input_features", []), frames):
                    self.assertLess(
                        (next(rows)[:, :length] - clip[:, :length]).abs().max().item(), 1e-4
                    )
                learnt = sum(label != -100 for label in labels)
                loss = model(input_ids=torch.tensor([text]), labels=torch.tensor([labels]),
                             attention_mask=torch.ones(1, len(text), dtype=torch.long),
                             use_cache=False, **wanted).loss.item()  # fmt: skip
                total, count = total + loss * learnt, count + learnt
        self.assertAlmostEqual(found, total / count, delta=1e-5)
        print("loss %.7f, by transformers' own inputs %.7f" % (found, total / count))

    def test_features_as_rows(self):
        """Without torch: rows, lengths and what the adapter makes of them."""
        self.make()
        config = self.write("numpy.yaml", CONFIG % (
            "qwen2_audio", ", ".join("%s: %d" % each for each in IDS.items()), "shard"))  # fmt: skip
        self.ok("ballast-server", "index", "--config", config)
        with self.server(config, f"unix:{self.folder}/numpy.sock") as (address,):
            with ballast.Loader(address, ("audio", "language"), dp_rank=0, device="cpu",
                                array="numpy", steps=1) as loader:  # fmt: skip
                batch = next(iter(loader))
        self.assertEqual(batch["audio_feature_lengths"].tolist(), [230, 70, 3000, 101])
        self.assertEqual(batch["audio_cu_rows"].tolist(), [0, 232, 304, 3304, 3407])
        self.assertEqual(batch["input_features"].shape, (3407, 128))
        self.assertFalse(batch.dummy_clip)
        made = ballast.adapters.huggingface_audio.qwen2_audio(batch)
        self.assertEqual(made["input_features"].shape, (4, 128, 3000))
        self.assertEqual(made["feature_attention_mask"].sum(1).tolist(), [230, 70, 3000, 101])
        numpy.testing.assert_array_equal(
            made["input_features"][1, :, :72].T, batch["input_features"][232:304]
        )

    @unittest.skipIf(MISSING, "SKIPPED: losses need " + ", ".join(MISSING))
    def test_qwen2_audio(self):
        import torch
        from transformers import (
            Qwen2AudioConfig,
            Qwen2AudioForConditionalGeneration,
            WhisperFeatureExtractor,
        )

        torch.set_num_threads(1)
        torch.manual_seed(3)
        self.make()
        model = Qwen2AudioForConditionalGeneration(Qwen2AudioConfig(
            audio_config=dict(model_type="qwen2_audio_encoder", encoder_layers=2, d_model=32,
                              encoder_attention_heads=2, encoder_ffn_dim=64),
            text_config=dict(model_type="qwen2", vocab_size=320, hidden_size=32,
                             intermediate_size=64, num_hidden_layers=2,
                             num_attention_heads=2, num_key_value_heads=2),
            audio_token_index=IDS["audio"])).eval()  # fmt: skip
        extractor = WhisperFeatureExtractor(feature_size=128)
        for mode in ("shard", "padded"):
            with self.subTest(mode):
                self.compare(model, self.batch("qwen2_audio", mode, IDS),
                             ballast.adapters.huggingface_audio.qwen2_audio, extractor,
                             IDS)  # fmt: skip


if __name__ == "__main__":
    unittest.main()
