"""What trainers' own code takes, made of a `ballast.Batch`.

Pure functions of a dictionary: they work on torch tensors and NumPy arrays alike,
copy only what has to change, and neither wait for the device nor communicate.
Tensors that they pass through live as long as the batch (`ballast.Batch`).
"""

from . import huggingface, megatron_bridge, megatron_core

__all__ = ["huggingface", "megatron_bridge", "megatron_core"]
