"""MimoModel with encoders of each form of pixels, over batches of real servers: loss and
gradients against one process that runs encoder and language model on each sample alone.

Encoders are transformers' classes, small and random: CLIP and SigLIP (tiles), both together,
SigLIP 2 NaFlex (padded), C-RADIO with dynamic resolution (raster). Qwen's are in mimo_test and
split_test.
"""

import unittest

import torch
import transformers
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.models.mimo.config.base_configs import MimoModelConfig
from megatron.core.models.mimo.model.base import MimoModel
from megatron.core.models.mimo.submodules.vision import VisionModalitySubmodules
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.spec_utils import ModuleSpec

import ballast
import model as models
import single
from ballast.adapters import megatron_bridge
from ballast.errors import InvalidArgument
from tests.harness import tools

IMAGE, WIDTH, VOCABULARY, RANKS = 256, 64, 320, 2
CONFIG = """
sources:
  - name: mock
    format: mock
    lengths: {mode: lognormal, min: 150, max: 900, mean: 250, sigma: 0.4, count: 400}
    images: {min: 0, max: %d, pixels: {min: 4000, max: 30000, mean: 12000, sigma: 0.8}}
model:
  tokenizer: bytes
  chat_template: chatml
  mean: [0.5, 0.5, 0.5]
  std: [0.5, 0.5, 0.5]
  image_form: %s
  image_family: {%s, marks: {placeholder: "<image>"}}
  token_ids: {image: 256, video: 257, vision_start: 258, vision_end: 259, im_start: 260,
              im_end: 261, end_of_text: 262, pad: 262}
batch: {global: 12, micro: 4, max_tokens: 2048}
topology: {modules: {vision: {dp: 2}, language: {dp: 2}}}
packing: {align: 4}
serve: {listen: ["127.0.0.1:0"]}
"""
#: form, numbers of the family, and the adapter's encoders.
TILES = ("tiles", "rule: center_crop, patch: 14, tile: 56")
FORMS = {
    "clip": (*TILES, {"clip": None}),
    "siglip": (*TILES, {"siglip": {"pixel_values": "pixel_values"}}),
    "clip and siglip": (*TILES, ("clip", "siglip")),
    "siglip2": ("padded", "rule: fit_budget, filter: bilinear, layout: raster_pixels, patch: 16,"
                " max_patches: 40", {"siglip2": None}),
    "radio": ("raster", "rule: longest_edge, patch: 16, longest_edge: 96",
              {"radio": megatron_bridge.radio}),
}  # fmt: skip
SMALL = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2}


class Tiles(torch.nn.Module):
    def __init__(self, tower, skip):
        super().__init__()
        self.tower, self.skip = tower, skip

    def forward(self, pixel_values):
        return self.tower(pixel_values).last_hidden_state[:, self.skip :]


class Padded(torch.nn.Module):
    def __init__(self, tower):
        super().__init__()
        self.tower = tower

    def forward(self, pixel_values, pixel_attention_mask, spatial_shapes):
        rows = self.tower(
            pixel_values=pixel_values, spatial_shapes=spatial_shapes,
            pixel_attention_mask=pixel_attention_mask,
        ).last_hidden_state  # fmt: skip
        return rows[pixel_attention_mask]


class Radio(torch.nn.Module):
    """With the arguments of Megatron-LM's RADIO encoder."""

    def __init__(self, tower):
        super().__init__()
        self.tower = tower

    def forward(self, x, imgs_sizes, packed_seq_params):
        grids = imgs_sizes.long() // 16
        bounds = torch.nn.functional.pad(grids.prod(1).cumsum(0), (1, 0))
        assert bounds.tolist() == packed_seq_params.cu_seqlens_q.tolist()
        assert imgs_sizes.dtype == torch.int32
        return self.tower(x[0], image_grid_hw=grids).features.reshape(x.shape[1], -1)


def tower_of(name):
    torch.manual_seed(5)
    if name == "clip":
        return Tiles(transformers.CLIPVisionModel(transformers.CLIPVisionConfig(
            **SMALL, intermediate_size=64, image_size=56, patch_size=14)), 1)  # fmt: skip
    if name == "siglip":
        return Tiles(transformers.SiglipVisionModel(transformers.SiglipVisionConfig(
            **SMALL, intermediate_size=64, image_size=56, patch_size=14)), 0)  # fmt: skip
    if name == "siglip2":
        return Padded(transformers.Siglip2VisionModel(transformers.Siglip2VisionConfig(
            **SMALL, intermediate_size=64, patch_size=16, num_patches=64)))  # fmt: skip
    return Radio(transformers.RadioModel(transformers.RadioConfig(
        **SMALL, mlp_ratio=2.0, image_size=64, max_img_size=128, num_cls_tokens=1,
        num_registers=1, summary_idxs=[0])))  # fmt: skip


class Given:
    """A module that exists already, for a ModuleSpec."""

    def __new__(cls, tower):
        return tower


class SideBySide(VisionModalitySubmodules):
    """The features of several encoders side by side, and a projection."""

    def combine_embeddings(self, embeddings):
        return torch.cat(embeddings, dim=-1)


class Projection(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, WIDTH)

    def forward(self, rows):
        return self.linear(rows)


def mimo_model(names, submodules=SideBySide):
    source = models.hugging_face(
        {"image": IMAGE, "video": 257, "vision_start": 258, "vision_end": 259}, VOCABULARY,
        hidden=WIDTH, layers=1,
    )  # fmt: skip
    layer = get_gpt_layer_local_spec(normalization="RMSNorm")
    layer.submodules.self_attention.submodules.core_attention = models.PackedAttention
    torch.manual_seed(6)
    return MimoModel(MimoModelConfig(
        language_model_spec=ModuleSpec(module=GPTModel, params=dict(
            config=models.transformer_config(source.config.text_config, torch.float32, 1, 1),
            transformer_layer_spec=layer, vocab_size=VOCABULARY, max_sequence_length=2048,
            position_embedding_type="rope", rotary_base=10000,
        )),
        modality_submodules_spec={"images": ModuleSpec(
            module=submodules, submodules={
                "encoders": {name: ModuleSpec(module=Given, params={"tower": tower_of(name)})
                             for name in names},
                "input_projections": [
                    ModuleSpec(module=Projection, params={"width": WIDTH * len(names)})
                ],
            })},
        special_token_ids={"images": IMAGE},
    ))  # fmt: skip


def alone(model, batch, names):
    """The sum of the losses of the samples, each computed alone; images one by one."""
    encoders = model.modality_submodules["images"].encoders
    (projection,) = model.modality_submodules["images"].input_projections
    real, places = batch["cu_seqlens"].tolist(), batch["cu_seqlens_padded"].tolist()
    grids = batch["image_grid_thw"].tolist()
    crop, patch, total = 0, 0, 0.0
    for i, count in enumerate(batch.images_per_sample):
        embeddings = []
        for _ in range(count):
            _, height, width = grids[crop]
            features = []
            for name in names:
                one = slice(crop, crop + 1)
                if name == "siglip2":
                    arguments = {
                        key: batch[key][one]
                        for key in ("pixel_values", "pixel_attention_mask", "spatial_shapes")
                    }
                elif name == "radio":
                    bounds = torch.tensor([0, height * width], dtype=torch.int32)
                    arguments = {
                        "x": batch["pixel_values"][None, patch : patch + height * width],
                        "imgs_sizes": batch["imgs_sizes"][one].int(),
                        "packed_seq_params": PackedSeqParams(cu_seqlens_q=bounds),
                    }
                else:
                    arguments = {"pixel_values": batch["pixel_values"][one]}
                rows = encoders[name](**arguments)
                features.append(rows.reshape(-1, rows.shape[-1]))
            embeddings.append(projection(torch.cat(features, -1)))
            crop, patch = crop + 1, patch + height * width
        begin, length = places[i], real[i + 1] - real[i]
        own = {key: batch[key][:, begin : begin + length]
               for key in ("input_ids", "labels", "loss_mask", "position_ids")}  # fmt: skip
        language = model.language_model
        hidden = language.embedding(
            input_ids=own["input_ids"], position_ids=own["position_ids"]
        ).clone()  # [T, 1, H]
        at = own["input_ids"][0] == IMAGE
        assert int(at.sum()) == sum(map(len, embeddings))
        if embeddings:
            hidden[at, 0] = torch.cat(embeddings)
        bounds = torch.tensor([0, length], dtype=torch.int32)
        losses = language(
            input_ids=None, position_ids=own["position_ids"], attention_mask=None,
            decoder_input=hidden, labels=own["labels"],
            packed_seq_params=PackedSeqParams(
                qkv_format="thd", cu_seqlens_q=bounds, cu_seqlens_kv=bounds,
                cu_seqlens_q_padded=bounds, cu_seqlens_kv_padded=bounds,
                max_seqlen_q=length, max_seqlen_kv=length,
            ),
        )  # fmt: skip
        total = total + (losses.float().reshape(-1) * own["loss_mask"].reshape(-1)).sum()
    return total


class TowersTest(tools.ToolTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        torch.set_num_threads(1)
        cls.enterClassContext(single.process())

    def gradients(self, model, loss):
        model.zero_grad(set_to_none=True)
        loss.backward()
        return {name: weight.grad for name, weight in model.named_parameters()}

    def compare(self, form, images):
        """Returns (whether there was a dummy image, the largest relative difference)."""
        kind, numbers, encoders = FORMS[form]
        names = list(encoders)
        name = form.replace(" ", "_") + str(images)
        config = self.write(name + ".yaml", CONFIG % (images, kind, numbers))
        model = mimo_model(names)
        megatron_bridge.accept_dummy_images(model)
        dummies, worst = 0, 0.0
        with self.server(config, "unix:%s/%s.sock" % (self.folder, name)) as (address,):
            for rank in range(RANKS):
                with ballast.Loader(address, dp_rank=rank, device="cpu", array="torch",
                                    steps=1) as loader:  # fmt: skip
                    adapters = [
                        megatron_bridge.Mimo(loader, model=model, encoders=encoders),
                        megatron_bridge.Mimo(loader, encoders=encoders, dummy_image="drop"),
                    ]
                    for batch in loader:
                        dummies += batch.dummy_image
                        wanted = alone(model, batch, names)
                        gradients = self.gradients(model, wanted)
                        for to_mimo in adapters:
                            loss = single.loss_sum(model, to_mimo(batch))
                            worst = max(worst, float((loss - wanted).abs() / wanted.abs()))
                            for key, got in self.gradients(model, loss).items():
                                expected = gradients[key]
                                if expected is None or got is None:
                                    # Only a dummy image reaches the weight, or nothing does.
                                    for each in (expected, got):
                                        self.assertFalse(each is not None and each.any(), key)
                                    continue
                                norm = float(expected.norm())
                                if norm > 1e-5:  # keys' biases have 0, but for rounding
                                    worst = max(worst, float((got - expected).norm()) / norm)
        print("%s, up to %d images: %d dummy images, largest difference %.1e"
              % (form, images, dummies, worst))  # fmt: skip
        self.assertLess(worst, 2e-5)
        return dummies

    def test_losses_and_gradients(self):
        for form in FORMS:
            with self.subTest(form):
                self.compare(form, 3)
                self.assertGreater(self.compare(form, 1), 0)

    def test_encoders_whose_rows_megatron_would_mix_up(self):
        loader = type("Loader", (), {"job": {
            "modules": [{"module": "vision", "dp": 1}, {"module": "language", "dp": 1}],
            "colocated": True, "model": {"token_ids": {"image": IMAGE}, "merge": 1},
        }})()  # fmt: skip
        model = mimo_model(["clip", "siglip"], VisionModalitySubmodules)
        megatron_bridge.accept_dummy_images(model)
        with self.assertRaisesRegex(InvalidArgument, "combine_embeddings"):
            megatron_bridge.Mimo(loader, model=model, encoders=("clip", "siglip"))
        with self.assertRaisesRegex(InvalidArgument, r"encoders: found \['clip'\]; .*siglip"):
            megatron_bridge.Mimo(loader, model=model, encoders="clip")


if __name__ == "__main__":
    unittest.main()
