"""What trainers' own code takes, made of a `ballast.Batch`.

Pure functions of a dictionary: they work on torch tensors and NumPy arrays alike,
copy only what has to change, and do not communicate. None but
`bridge_vlm` on a later pipeline stage waits for the device.
Tensors that they pass through live as long as the batch (`ballast.Batch`).

A class instead of a function knows the job: it is made of a loader, and refuses
layouts that its consumer cannot run when it is made.
"""

from . import (
    bridge_iterators,
    bridge_qwen3_vl,
    bridge_vlm,
    huggingface,
    megatron_bridge,
    megatron_core,
    megatron_hooks,
    megatron_llava,
    megatron_lm,
    padded,
)

__all__ = [
    "bridge_iterators", "bridge_qwen3_vl", "bridge_vlm", "huggingface", "megatron_bridge",
    "megatron_core", "megatron_hooks", "megatron_llava", "megatron_lm", "padded",
]  # fmt: skip
