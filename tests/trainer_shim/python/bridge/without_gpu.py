"""Megatron-Bridge without Transformer Engine: packages that only some GPUs have are empty,
and without a GPU CUDA's calls go to the CPU. An import does it, before anything of Bridge.

Megatron-Core is imported first, so it knows that it has no Transformer Engine. Of the empty
packages Bridge only names classes, which no test calls.
"""

import contextlib
import importlib.abc
import importlib.machinery
import sys
import types

import megatron.core.datasets.utils
import megatron.core.extensions.transformer_engine  # noqa: F401  finds no Transformer Engine
import torch
import torch._dynamo

import on_cpu

EMPTY = (
    "megatron.energon", "modelopt", "nvidia_resiliency_ext", "transformer_engine",
    "transformer_engine_torch",
)  # fmt: skip


class Names(type):
    """A class whose unknown attributes are classes."""

    def __getattr__(cls, name):
        return _class_of(cls, name)


class Empty(types.ModuleType):
    """A module in which every name is a class, or a function by its first word."""

    __path__ = []
    __version__ = "0"

    def __getattr__(self, name):
        return _class_of(self, name)


def _class_of(owner, name):
    if name.startswith("_"):
        raise AttributeError(name)
    if name.startswith(("get_", "has_", "restore_", "save_")):
        return lambda *_, **__: None
    made = Names(name, (torch.nn.Module,), {"__module__": owner.__name__})
    setattr(owner, name, made)
    return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if any(name == empty or name.startswith(empty + ".") for empty in EMPTY):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Empty(spec.name)

    def exec_module(self, module):
        pass


class OnCpu(torch.overrides.TorchFunctionMode):
    """Makes tensors on the CPU where a GPU is named."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        kwargs.pop("pin_memory", None)
        return function(*args, **kwargs)


class Idle:
    """A stream or an event of a device whose work is done at once."""

    def __init__(self, *_, **__):
        pass

    def __getattr__(self, name):
        return lambda *_, **__: None


def replace_cuda():
    """Sends CUDA's calls to the CPU."""
    cuda = torch.cuda
    cuda.is_available = lambda: True
    cuda.device_count = lambda: 1
    cuda.is_current_stream_capturing = lambda: False
    for name in ("empty_cache", "manual_seed", "reset_peak_memory_stats", "set_device"):
        setattr(cuda, name, lambda *_: None)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved"):
        setattr(cuda, name, lambda *_: 0)
    cuda.get_rng_state = cuda.random.get_rng_state = lambda *_, **__: torch.get_rng_state()
    cuda.set_rng_state = cuda.random.set_rng_state = lambda state, *_, **__: torch.set_rng_state(
        state
    )
    cuda.Stream = cuda.Event = Idle
    cuda.current_stream = cuda.default_stream = lambda *_: Idle()
    cuda.stream = contextlib.nullcontext
    cuda.nvtx.range_push = cuda.nvtx.range_pop = lambda *_: None
    for name in ("_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check"):
        setattr(torch.optim.Optimizer, name, lambda _: None)


sys.meta_path.append(Finder())
torch._dynamo.config.disable = True  # wants a compiler
# Made by a compiler, for datasets that no test has.
megatron.core.datasets.utils.compile_helpers = lambda: None
if not torch.cuda.is_available():
    on_cpu.install()
    OnCpu().__enter__()
    replace_cuda()
