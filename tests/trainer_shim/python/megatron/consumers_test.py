"""The adapters' keys beside the parameters of the real consumers, which must know each."""

import inspect
import types
import unittest

import torch
import transformers
from megatron.core.models.mimo.model.base import MimoModel
from megatron.core.models.multimodal.llava_model import LLaVAModel
from megatron.core.models.vision.radio import RADIOViTModel
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.multi_token_prediction import roll_tensor
from transformers.utils.generic import TransformersKwargs

import model as models
import single
from ballast.adapters import bridge_vlm, huggingface, megatron_bridge, megatron_core, megatron_llava
from ballast.adapters import megatron_lm, padded
from ballast.batch import Batch
from ballast.errors import InvalidArgument
from tests.trainer_shim.python import adapters_test as formulas
from tests.trainer_shim.python.megatron.mimo_test import GRIDS, IDS, batch


def parameters(function):
    return set(inspect.signature(function).parameters) - {"self"}


def in_rows(given):
    """The batch as the loader makes it with packing.mode padded."""
    rows = Batch()
    width = given["max_seqlen"] + 3
    rows.update(padded.rows(given, pad=0, length=width), max_seqlen=width,
                pixel_values=given["pixel_values"], image_grid_thw=given["image_grid_thw"])  # fmt: skip
    rows.dummy_image = given.dummy_image
    return rows


class LoaderOf:
    def __init__(self, image):
        modules = [{"module": name, "dp": 1} for name in ("vision", "language")]
        ids = {"image": image, "pad": 0}
        self.job = {"modules": modules, "colocated": True, "model": {"token_ids": ids, "merge": 2}}


class ConsumersTest(unittest.TestCase):
    def test_mimo_model_knows_every_key(self):
        for given in (batch(GRIDS), in_rows(batch(GRIDS))):
            self.assertEqual(
                set(megatron_bridge.forward_inputs(given)), parameters(MimoModel.forward)
            )

    def test_packed_seq_params_knows_every_field(self):
        given = batch(GRIDS)
        fields = megatron_core.packed_seq_params(given)
        self.assertLessEqual(set(fields), parameters(PackedSeqParams))
        params = megatron_core.packed_seq_params(given, PackedSeqParams)
        self.assertIs(params.cu_seqlens_q_padded, given["cu_seqlens_padded"])
        real = megatron_core.packed_seq_params(given, PackedSeqParams, padded_only=False)
        self.assertIs(real.pad_between_seqs, False)

    def test_multi_token_prediction_takes_the_second_token_ahead(self):
        """Of every sample, with padding between the samples, whatever makes the bounds."""
        given = {key: torch.from_numpy(value) if hasattr(value, "shape") else value
                 for key, value in formulas.batch().items()}  # fmt: skip
        text = {
            key: value for key, value in given.items() if not key.startswith(("pixel", "image"))
        }
        tokens, labels, mask, _, _, params, _ = megatron_core.get_batch(given, PackedSeqParams)
        of_lists = megatron_lm.batch_list(text)
        bounds = {
            "core": params,
            "mimo": PackedSeqParams(**megatron_bridge.forward_inputs(given)["packing_kwargs"]),
            "vlm_step": PackedSeqParams(**bridge_vlm.packing(given)),
            "pretrain_gpt": PackedSeqParams(cu_seqlens_q=of_lists[1][0]),
        }
        for name, packed in bounds.items():
            with self.subTest(name):
                # As multi_token_prediction.py shifts them, for its first layer.
                targets, _ = roll_tensor(labels, shifts=-1, dims=-1, packed_seq_params=packed)
                counted, _ = roll_tensor(mask, shifts=-1, dims=-1, packed_seq_params=packed)
                learnt = targets.masked_fill(counted == 0, -1)[0].tolist()
                place = 0
                for number, (length, room) in enumerate(zip(formulas.LENGTHS, formulas.PADDED)):
                    for i in range(room):
                        wanted = formulas.token(number, i + 2) if i + 2 < length else -1
                        self.assertEqual(learnt[place + i], wanted, (number, i))
                    place += room

    def test_hugging_face_knows_every_key(self):
        given = batch(GRIDS)
        known = parameters(transformers.Qwen2_5_VLForConditionalGeneration.forward)
        known |= set(TransformersKwargs.__annotations__)
        self.assertLessEqual(set(huggingface.packed(given)), known)
        self.assertLessEqual(set(huggingface.padded(given)), known)
        self.assertLessEqual(set(huggingface.unpacked(given, [2])[0]), known)

    def test_llava_has_the_arguments_of_the_seam(self):
        self.assertLessEqual(set(megatron_llava.ARGUMENTS), parameters(LLaVAModel.forward))
        self.assertIn("imgs_sizes", parameters(RADIOViTModel.forward))

    def test_llava_makes_the_batchs_row_again(self):
        given = Batch()
        ids = torch.tensor([[7, 50, 50, 50, 50, 8, 50, 50, 9, 1, 2, 3]])
        given.update(
            input_ids=ids, labels=torch.roll(ids, -1).masked_fill(ids == 3, -100),
            loss_mask=torch.ones(1, 12), position_ids=torch.arange(12)[None],
            cu_seqlens=torch.tensor([0, 9, 12], dtype=torch.int32),
            cu_seqlens_padded=torch.tensor([0, 9, 12], dtype=torch.int32), max_seqlen=9,
            pixel_values=torch.arange(3.0).reshape(3, 1, 1, 1).expand(3, 3, 2, 2),
        )  # fmt: skip
        given.dummy_image = False
        inputs = megatron_llava.forward_inputs(given, image_token=50, tokens_per_tile=2)
        # Two embeddings a tile, which name it.
        tiles = (100 + inputs["images"][None, :, 0, 0, :1]).expand(2, 3, 1)
        model = types.SimpleNamespace(
            add_decoder=True, pre_process=True, post_process=True, img_seq_len=2,
            _language_is_pipeline_parallel=False, _language_max_sequence_length=99,
            context_parallel_lm=1, vision_model=None,
        )  # fmt: skip
        embedding, labels, mask = LLaVAModel._preprocess_data(
            model, tiles, inputs["input_ids"][..., None].float(), inputs["input_ids"],
            inputs["loss_mask"], inputs["labels"], False, None, -200, inputs["num_image_tiles"],
        )  # fmt: skip
        self.assertEqual(
            embedding.flatten().tolist(), [7, 100, 100, 101, 101, 8, 102, 102, 9, 1, 2, 3]
        )
        supervised = labels.masked_fill(mask == 0, -100)
        # Not those of image tokens, nor the one before an image.
        self.assertEqual(
            supervised.tolist(), [[-100, -100, -100, -100, -100, -100, -100, -100, 1, 2, 3, -100]]
        )

    def test_names_that_the_model_would_ignore_are_refused(self):
        with single.process():
            source = models.hugging_face(IDS, 320, layers=1)
            model = models.mimo_model(source, IDS["image"])
            # Without the check no error tells that the images are missing.
            inputs = megatron_bridge.forward_inputs(batch(GRIDS), modality="pictures")
            self.assertTrue(torch.isfinite(single.loss_sum(model, inputs)))

            loader = LoaderOf(IDS["image"])
            wrapped = types.SimpleNamespace(module=model)
            megatron_bridge.Mimo(loader, model=wrapped)
            for names, said in (
                ({"modality": "pictures"}, "found 'pictures'; the model has .'images'.*ignore"),
                ({"encoders": "vit"}, "found .'vit'.; the model has .'qwen_visual'"),
            ):
                with self.assertRaisesRegex(InvalidArgument, said):
                    megatron_bridge.Mimo(loader, model=wrapped, **names)
            with self.assertRaisesRegex(InvalidArgument, "found 256; wanted .* 99"):
                megatron_bridge.Mimo(LoaderOf(99), model=model)


if __name__ == "__main__":
    unittest.main()
