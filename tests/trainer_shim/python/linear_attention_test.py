"""Qwen3.5's linear attention on packed batches: a layer's state and its convolution run on
through a row unless both are told the samples.

The packages that can keep samples apart need a GPU. Stand-ins take their places and do the
same sample by sample."""

import concurrent.futures
import importlib.machinery
import multiprocessing
import sys
import types
import unittest

from ballast.adapters import huggingface
from tests.harness import tools

LENGTHS, ALIGN = (7, 9), 4


def stand_ins(with_convolution):
    """flash-linear-attention, and causal-conv1d or its absence, as entries of sys.modules."""
    import torch

    def chunk_gated_delta_rule(
        q, k, v, g=None, beta=None, initial_state=None, output_final_state=False,
        use_qk_l2norm_in_kernel=False, cu_seqlens=None,
    ):  # fmt: skip
        from transformers.models.qwen3_5 import modeling_qwen3_5

        plain = modeling_qwen3_5.torch_chunk_gated_delta_rule
        while hasattr(plain, "__wrapped__"):
            plain = plain.__wrapped__
        bounds = cu_seqlens.tolist() if cu_seqlens is not None else [0, q.shape[1]]
        parts = [
            plain(*(x[:, begin:end] for x in (q, k, v)), g=g[:, begin:end],
                  beta=beta[:, begin:end], use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel)[0]
            for begin, end in zip(bounds, bounds[1:])
        ]  # fmt: skip
        return torch.cat(parts, 1), None

    def causal_conv1d_fn(x, weight, bias=None, seq_idx=None, activation=None):
        def alone(part):
            out = torch.nn.functional.conv1d(
                part, weight[:, None], bias, padding=weight.shape[-1] - 1, groups=x.shape[1]
            )
            return torch.nn.functional.silu(out[..., : part.shape[-1]])

        if seq_idx is None:
            return alone(x)
        assert seq_idx.dtype == torch.int32 and seq_idx.shape == (x.shape[0], x.shape[2])
        _, counts = torch.unique_consecutive(seq_idx[0], return_counts=True)
        return torch.cat([alone(part) for part in x.split(counts.tolist(), 2)], 2)

    def module(name, **members):
        found = types.ModuleType(name)
        found.__spec__ = importlib.machinery.ModuleSpec(name, None)
        found.__path__ = []
        vars(found).update(members)
        return found

    rules = module("fla.ops.gated_delta_rule", chunk_gated_delta_rule=chunk_gated_delta_rule)
    ops = module("fla.ops", gated_delta_rule=rules)
    convolution = module("causal_conv1d", causal_conv1d_fn=causal_conv1d_fn)
    return {
        "fla": module("fla", ops=ops), "fla.ops": ops, "fla.ops.gated_delta_rule": rules,
        "causal_conv1d": convolution if with_convolution else None,
    }  # fmt: skip


def small_model():
    """A random Qwen3.5 of three layers with linear attention and one without."""
    import torch
    import transformers

    torch.manual_seed(1)
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 0],
            "partial_rotary_factor": 0.25}  # fmt: skip
    linear = {"linear_num_key_heads": 2, "linear_num_value_heads": 4,
              "linear_key_head_dim": 16, "linear_value_head_dim": 16}  # fmt: skip
    text = dict(linear, hidden_size=64, intermediate_size=64, num_hidden_layers=4,
                num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=512,
                rope_parameters=rope, layer_types=["linear_attention"] * 3 + ["full_attention"],
                bos_token_id=0, eos_token_id=0, pad_token_id=0)  # fmt: skip
    vision = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2,
              "out_hidden_size": 64}  # fmt: skip
    return transformers.Qwen3_5ForConditionalGeneration(
        transformers.Qwen3_5Config(text_config=text, vision_config=vision)
    ).eval()


def batch():
    """Two samples of LENGTHS in one row, each padded to ALIGN."""
    import torch

    rooms = [-(-length // ALIGN) * ALIGN for length in LENGTHS]
    pads = [room - length for room, length in zip(rooms, LENGTHS)]
    ids = [torch.cat([torch.randint(1, 400, (n,)), torch.zeros(pad, dtype=torch.int64)])
           for n, pad in zip(LENGTHS, pads)]  # fmt: skip
    places = [torch.cat([torch.arange(n), torch.zeros(pad, dtype=torch.int64)])
              for n, pad in zip(LENGTHS, pads)]  # fmt: skip
    row = torch.cat(ids)[None]
    return {
        "input_ids": row, "labels": torch.full_like(row, -100), "max_seqlen": max(rooms),
        "position_ids": torch.cat(places).expand(3, 1, -1),
        "cu_seqlens": torch.tensor([0, *LENGTHS], dtype=torch.int32).cumsum(0, dtype=torch.int32),
        "cu_seqlens_padded": torch.tensor([0, *rooms], dtype=torch.int32).cumsum(0, dtype=torch.int32),
    }  # fmt: skip


class Batch(dict):
    dummy_image = False


def farthest(with_convolution):
    """The largest difference of a packed row's logits from those of its samples alone."""
    import torch

    sys.modules.update(stand_ins(with_convolution))
    model = small_model()
    given = Batch(batch())
    with torch.no_grad():
        alone = [model(**one).logits[0] for one in huggingface.unpacked(given, [0, 0])]
        row = model(**huggingface.packed(given)).logits[0]
    begins = given["cu_seqlens_padded"].tolist()
    return max(
        float((row[begin : begin + len(wanted)] - wanted).abs().max())
        for begin, wanted in zip(begins, alone)
    )


class LinearAttentionTest(unittest.TestCase):
    def forked(self, with_convolution):
        """`farthest` in a fork, since transformers looks for packages once."""
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
            return pool.submit(farthest, with_convolution).result(tools.TIMEOUT_S)

    def test_a_sample_does_not_see_the_one_before(self):
        self.assertLess(self.forked(True), 1e-5)

    def test_a_missing_package_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "can't keep packed sequences apart"):
            self.forked(False)


if __name__ == "__main__":
    unittest.main()
