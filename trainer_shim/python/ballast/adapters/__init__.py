"""Adapters from a `ballast.Batch` to the inputs of trainers' own code.

Functions here are pure functions of a dictionary: they accept torch tensors and NumPy
arrays, copy only what has to change, and do not communicate. Only `bridge_vlm` on a
later pipeline stage waits for the device. Tensors that they pass through live as long
as the batch (`ballast.Batch`).

Classes also know the job: they are constructed from a loader, and their constructor
refuses layouts that the trainer cannot run.

`TRIED` names the versions of trainers with which they were tried.
"""

from . import (
    bridge_iterators,
    bridge_omni,
    bridge_qwen3_vl,
    bridge_vlm,
    huggingface,
    huggingface_audio,
    huggingface_encoders,
    huggingface_families,
    huggingface_split,
    huggingface_trainer,
    megatron_bridge,
    megatron_core,
    megatron_hooks,
    megatron_llava,
    megatron_lm,
    megatron_split,
    padded,
    preferences,
)
from .._tried import TRIED

__all__ = [
    "TRIED",
    "bridge_iterators", "bridge_omni", "bridge_qwen3_vl", "bridge_vlm", "huggingface",
    "huggingface_audio", "huggingface_encoders", "huggingface_families", "huggingface_split",
    "huggingface_trainer", "megatron_bridge", "megatron_core", "megatron_hooks", "megatron_llava",
    "megatron_lm", "megatron_split", "padded", "preferences",
]  # fmt: skip
