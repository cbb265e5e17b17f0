"""Megatron-Bridge's own `pretrain` with its `qwen3_omni_step` over a BallastDatasetProvider, on
samples of clips, images and videos: losses and gradients of Bridge's Qwen3-Omni against Hugging
Face's thinker. Two data-parallel processes over Gloo, without Transformer Engine."""

import copy
import json
import os
import types
import unittest
import wave

import numpy
import torch
import torch.multiprocessing as processes

import ballast
from tests.harness import tools
from tests.trainer_shim.python.audio_test import Qwen3OmniCase
from tests.trainer_shim.python.bridge import pretrain_test as pretrain  # before Bridge

from ballast import FailedPrecondition, InvalidArgument
from ballast.adapters import bridge_omni, huggingface_audio
from PIL import Image

SAMPLES, STEPS = 32, 2
CONFIG = """
sources: [{name: shown, format: jsonl, path: shown.jsonl, media_root: .}]
model: {profile: qwen3_omni_moe, tokenizer: tokenizer.json, chat_template: chatml,
        max_pixels: 16384, token_ids: {%s}, video: {min_pixels: 4096, max_pixels: 16384}}
batch: {global: 16, micro: 4}
topology: {colocated: true, modules: {vision: {dp: %d}, audio: {dp: %d}, language: {dp: %d}}}
packing: {mode: padded}
balance: {align_images: false, equal_count: true}
serve: {listen: ["127.0.0.1:0"], threads: 1}
"""


def thinker(ids):
    """Hugging Face's, small, dense and of random weights."""
    from transformers import Qwen3OmniMoeThinkerConfig, Qwen3OmniMoeThinkerForConditionalGeneration

    torch.manual_seed(7)
    rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}
    model = Qwen3OmniMoeThinkerForConditionalGeneration(Qwen3OmniMoeThinkerConfig(
        audio_config=dict(d_model=32, encoder_layers=2, encoder_attention_heads=2,
                          encoder_ffn_dim=64, output_dim=64, num_mel_bins=128,
                          downsample_hidden_size=8),
        vision_config=dict(depth=1, hidden_size=32, intermediate_size=64, num_heads=2,
                           out_hidden_size=64, deepstack_visual_indexes=[0],
                           num_position_embeddings=16),
        text_config=dict(vocab_size=pretrain.VOCABULARY, hidden_size=64, intermediate_size=128,
                         num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                         head_dim=16, mlp_only_layers=[0, 1], rope_parameters=rope,
                         tie_word_embeddings=False),
        audio_token_id=ids["audio"], image_token_id=ids["image"], video_token_id=ids["video"],
        audio_start_token_id=260, audio_end_token_id=262, vision_start_token_id=ids["vision_start"],
        vision_end_token_id=ids["vision_end"], position_id_per_seconds=13))  # fmt: skip
    with torch.no_grad():  # with the default deviation media would have almost no effect
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(0, weight[0].numel() ** -0.5)
    return model.eval()


def layer_weights(theirs, text):
    """The weights of a layer under Megatron-Core's names."""
    attention, mlp, groups = theirs.self_attn, theirs.mlp, text.num_key_value_heads
    parts = [each.weight for each in (attention.q_proj, attention.k_proj, attention.v_proj)]
    rows = [part.view(groups, part.shape[0] // groups, *part.shape[1:]) for part in parts]
    return {
        "input_layernorm.weight": theirs.input_layernorm.weight,
        "self_attention.linear_qkv.weight": torch.cat(rows, dim=1).flatten(0, 1),
        "self_attention.q_layernorm.weight": attention.q_norm.weight,
        "self_attention.k_layernorm.weight": attention.k_norm.weight,
        "self_attention.linear_proj.weight": attention.o_proj.weight,
        "pre_mlp_layernorm.weight": theirs.post_attention_layernorm.weight,
        "mlp.linear_fc1.weight": torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]),
        "mlp.linear_fc2.weight": mlp.down_proj.weight,
    }


def named_weights(source):
    """All weights under the names of Bridge's model."""
    whole, named = source.model, {}
    text = whole.language_model
    for ours, theirs in (("visual", whole.visual), ("audio_model", whole.audio_tower)):
        named.update({"%s.%s" % (ours, name): each for name, each in theirs.named_parameters()})
    named["language_model.embedding.word_embeddings.weight"] = text.embed_tokens.weight
    named["language_model.decoder.final_layernorm.weight"] = text.norm.weight
    named["language_model.output_layer.weight"] = source.lm_head.weight
    for i, layer in enumerate(text.layers):
        for name, value in layer_weights(layer, text.config).items():
            named["language_model.decoder.layers.%d.%s" % (i, name)] = value
    return {"thinker." + name: value.data for name, value in named.items()}


def provider(source):
    """Bridge's, with the thinker's weights."""
    from megatron.bridge.models.qwen_omni.qwen3_omni_provider import Qwen3OmniModelProvider

    config, text = source.config, source.config.text_config
    model = Qwen3OmniModelProvider(
        num_layers=text.num_hidden_layers, hidden_size=text.hidden_size,
        ffn_hidden_size=text.intermediate_size, num_attention_heads=text.num_attention_heads,
        num_query_groups=text.num_key_value_heads, kv_channels=text.head_dim,
        layernorm_epsilon=text.rms_norm_eps, persist_layer_norm=False,
        attention_dropout=0.0, bias_dropout_fusion=False, apply_rope_fusion=False,
        gradient_accumulation_fusion=False, bias_activation_fusion=False,
        cross_entropy_loss_fusion=False, moe_grouped_gemm=False, moe_permute_fusion=False,
        mrope_section=text.rope_parameters["mrope_section"],
        rotary_base=text.rope_parameters["rope_theta"], calculate_per_token_loss=True,
        share_embeddings_and_output_weights=False, vocab_size=pretrain.VOCABULARY, seq_length=1024,
        thinker_config=config, position_id_per_seconds=config.position_id_per_seconds,
        image_token_id=config.image_token_id, video_token_id=config.video_token_id,
        audio_token_id=config.audio_token_id, audio_start_token_id=config.audio_start_token_id,
        audio_end_token_id=config.audio_end_token_id,
        vision_start_token_id=config.vision_start_token_id,
        vision_end_token_id=config.vision_end_token_id, use_cpu_initialization=True,
        params_dtype=torch.float32, make_vocab_size_divisible_by=1,
    )  # fmt: skip

    def copied(modules):
        (module,) = modules
        weights = named_weights(source)
        with torch.no_grad():
            for name, weight in module.named_parameters():
                weight.copy_(weights.pop(name))
        assert not weights, weights.keys()
        return modules

    model.register_pre_wrap_hook(copied)
    return model


def lengths_of_clips(_, frames):
    """What Bridge 0.6.2 calls and transformers 5.23 took out of its encoder of audio: frames
    after the first convolution, and tokens."""
    halved = (frames % 100 - 1) // 2 + 1
    return halved, ((halved - 1) // 2 + 1 - 1) // 2 + 1 + frames // 100 * 13


def run(rank, address, folder):
    """One process of the job; writes what its steps gave."""
    from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeAudioEncoder

    name = "_get_feat_extract_output_lengths"
    if not hasattr(Qwen3OmniMoeAudioEncoder, name):
        setattr(Qwen3OmniMoeAudioEncoder, name, lengths_of_clips)
    pretrain.join(rank, folder + "/meeting")
    from megatron.bridge.models.qwen_omni.qwen3_omni_step import forward_step
    from megatron.bridge.training.config import ValidationConfig

    from ballast.adapters.bridge_provider import BallastDatasetProvider

    dataset = BallastDatasetProvider(
        servers=address, model="qwen3_omni", step="qwen3_omni_step",
        loader={"device": "cpu", "array": "torch"},
    )  # fmt: skip
    validation = ValidationConfig(eval_interval=STEPS, eval_iters=0)
    cfg = pretrain.container(provider(thinker(Qwen3OmniCase.ids)), dataset, validation, STEPS)
    seen = pretrain.pretrained(cfg, forward_step)
    if rank == 0:
        torch.save(seen, folder + "/seen.pt")


def reference(address):
    """(losses, gradients) of each step by Hugging Face's thinker, which takes our positions, over
    the batches of every rank: what its encoder makes of a clip's end depends on the other clips."""
    losses, gradients = [], []
    modules = ("vision", "audio", "language")
    for step in range(STEPS):
        source, total = thinker(Qwen3OmniCase.ids), 0.0
        kinds = set()
        for rank in range(pretrain.RANKS):
            with ballast.Loader(address, modules, dp_rank=rank, device="cpu", array="torch",
                                start_step=step, steps=1) as loader:  # fmt: skip
                for batch in loader:
                    kinds |= set(zip(batch.images_per_sample, batch.videos_per_sample))
                    given = huggingface_audio.omni_padded(batch)
                    count = int((given["labels"][:, 1:] != -100).sum())
                    loss = source(**given).loss * count / batch.step_totals.label_tokens
                    loss.backward()
                    total += float(loss.detach())
        assert len(kinds) == 4, kinds
        as_weights = copy.deepcopy(source)
        for weight, of in zip(as_weights.parameters(), source.parameters()):
            weight.data = of.grad
        losses.append(total)
        gradients.append(named_weights(as_weights))
    return losses, gradients


class OmniTest(tools.ToolTest):
    def test_clips_images_and_videos(self):
        self.write_data()
        folder = self.path("job")
        os.mkdir(folder)
        with self.served() as (address,):
            wanted, gradients = pretrain.apart(reference, address)
            processes.start_processes(run, (address, folder), pretrain.RANKS, start_method="fork")
        seen = torch.load(folder + "/seen.pt")
        losses = [found["lm loss"] for found in seen["losses"]]
        self.assertEqual(len(losses), STEPS)
        difference = max(abs(a - b) / b for a, b in zip(losses, wanted))
        for found, of in zip(seen["gradients"], gradients):
            # A softmax does not depend on the biases of keys: what is left of theirs is rounding.
            for name in [name for name in of if name.endswith("k_proj.bias")]:
                self.assertLess(float(found.pop(name).norm() + of.pop(name).norm()), 1e-6)
        worst = [pretrain.largest_difference(*each) for each in zip(seen["gradients"], gradients)]
        print("qwen3_omni_step: largest relative difference: loss %.1e, gradient %.1e"
              % (difference, max(worst)))  # fmt: skip
        self.assertLess(difference, 1e-5)
        self.assertLess(max(worst), 1e-3)

    def served(self):
        ids = ", ".join("%s: %d" % each for each in Qwen3OmniCase.ids.items())
        config = self.write("job.yaml", CONFIG % (ids, *[pretrain.RANKS] * 3))
        self.ok("ballast-server", "index", "--config", config)
        return self.server(config, "unix:%s/a.sock" % self.folder)

    def write_data(self):
        """Samples with a clip each, some with an image, a video of pictures, or both."""
        self.write("tokenizer.json", Qwen3OmniCase.tokenizer_json(Qwen3OmniCase))
        random = numpy.random.default_rng(3)

        def picture(name, height, width):
            pixels = random.integers(0, 255, (height, width, 3), dtype=numpy.uint8)
            Image.fromarray(pixels).save(self.path(name))
            return name

        lines = []
        for i in range(SAMPLES):
            with wave.open(self.path("%d.wav" % i), "wb") as file:
                file.setparams((1, 2, 16000, 0, "NONE", ""))
                heard = random.integers(-9000, 9000, 4800 + 2720 * (7 * i % 11))
                file.writeframes(heard.astype(numpy.int16).tobytes())
            parts = [{"type": "audio", "audio": "%d.wav" % i}]
            if i % 3 == 1:
                parts.append(
                    {"type": "image", "image": picture("%d.png" % i, 64, 64 + 32 * (i % 2))}
                )
            if i % 4 > 1:
                frames = [picture("%d.%d.png" % (i, k), 64, 64) for k in range(2 + 2 * (i % 2))]
                parts.insert(i % 3, {"type": "video", "video": frames})
            parts.append({"type": "text", "text": "What, %d?" % i})
            lines.append(json.dumps({"messages": [
                {"role": "user", "content": parts},
                {"role": "assistant", "content": "That." * (1 + i % 3)},
            ]}))  # fmt: skip
        self.write("shown.jsonl", "\n".join(lines) + "\n")


class RefusalsTest(unittest.TestCase):
    def test_what_would_train_on_something_else(self):
        def loader(video=None, **language):
            modules = [{"module": name, "dp": 1} for name in ("vision", "audio", "language")]
            modules[2].update(language)
            return types.SimpleNamespace(job={
                "modules": modules, "colocated": language.get("colocated", True),
                "model": {"token_ids": {"pad": 0}, "merge": 2, "video": video or {}},
            })  # fmt: skip

        step = bridge_omni.OmniStep
        step(loader(), "qwen2_5_omni")
        for given, said in (
            (loader(video={"use_audio_in_video": True}), "use_audio_in_video: found true"),
            (loader(pp=2), "later stages compute positions"),
            (loader(cp=2), "cuts whole batches itself"),
            (loader(dp=2), "vision.dp 1, language.dp 2"),
            (loader(colocated=False), "towers and language model in one process"),
        ):
            with self.assertRaisesRegex(FailedPrecondition, said):
                step(given)
        with self.assertRaisesRegex(InvalidArgument, "model: found 'qwen3_vl'"):
            step(loader(), "qwen3_vl")

    def test_a_row_of_several_clips(self):
        given = types.SimpleNamespace(clips_per_sample=[1, 2], step=3, micro_batch=1)
        check = bridge_omni.OmniStep._check_clips
        with self.assertRaisesRegex(FailedPrecondition, "samples with 1, 2 clips of audio"):
            check(types.SimpleNamespace(_one_clip=True), given)
        check(types.SimpleNamespace(_one_clip=False), given)


if __name__ == "__main__":
    unittest.main()
