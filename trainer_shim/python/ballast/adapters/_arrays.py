"""The few operations that NumPy and torch name differently."""

from __future__ import annotations

import sys
from typing import Any, Mapping, Sequence


def is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def concatenate(arrays: Sequence[Any], axis: int) -> Any:
    if is_torch(arrays[0]):
        import torch

        return torch.cat(list(arrays), dim=axis)
    import numpy

    return numpy.concatenate(list(arrays), axis=axis)


def full(like: Any, shape: Sequence[int], value: int) -> Any:
    """An array of the same library and on the same device as `like`."""
    if is_torch(like):
        return like.new_full(tuple(shape), value)
    import numpy

    return numpy.full(tuple(shape), value, like.dtype)


def where(condition: Any, array: Any, other: int) -> Any:
    """`array` where the condition holds, else `other`."""
    if is_torch(array):
        return array.masked_fill(~condition, other)
    import numpy

    return numpy.where(condition, array, numpy.asarray(other, array.dtype))


def transposed(array: Any, axes: Sequence[int]) -> Any:
    """The array with its axes in this order."""
    return array.permute(*axes) if is_torch(array) else array.transpose(axes)


def from_host(host: Any, like: Any) -> Any:
    """Converts a NumPy array to the library and device of `like`. A copy to a GPU goes
    through pinned memory and does not wait."""
    if is_torch(like):
        import torch

        tensor = torch.from_numpy(host)
        if like.is_cuda:
            return tensor.pin_memory().to(like.device, non_blocking=True)
        return tensor
    return host


def host_values(batch: Mapping[str, Any], key: str) -> Any:
    """The values of a small tensor as a NumPy array, from `KEY_host` if present.
    Without it, a tensor on a GPU is waited for."""
    import numpy

    value = batch.get(key + "_host")
    if value is None:
        value = batch[key]
    if is_torch(value):
        value = value.cpu().numpy()
    return numpy.asarray(value)
