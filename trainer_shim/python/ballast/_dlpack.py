"""DLPack capsules by ctypes: the library's memory as arrays, without a copy."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Dict, Tuple

_KDL_INT = 0
_KDL_UINT = 1
_KDL_FLOAT = 2
_KDL_BFLOAT = 4
_KDL_BOOL = 6
_TYPES = {
    "uint8": (_KDL_UINT, 8),
    "int32": (_KDL_INT, 32),
    "int64": (_KDL_INT, 64),
    "float32": (_KDL_FLOAT, 32),
    "bfloat16": (_KDL_BFLOAT, 16),
    "bool": (_KDL_BOOL, 8),
}


class _Device(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _ManagedTensor(ctypes.Structure):
    _fields_ = [
        ("dl_tensor", _Tensor),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", _Deleter),
    ]


# For each address: the data that the consumer of a capsule may read until it calls the
# deleter. The last element is the function to call then.
_alive: Dict[int, Tuple[Any, ...]] = {}


def _delete(address: int) -> None:
    entry = _alive.pop(address, None)
    if entry is not None:
        entry[-1]()


_deleter = _Deleter(_delete)
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_api = ctypes.pythonapi
_new = _api.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, _Destructor]
# These take the bare pointer: in a destructor the capsule's reference count is 0,
# and must not be raised and lowered again.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api)
)
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
_NAME = b"dltensor"


def _destroy(capsule: int) -> None:
    # A consumer renames the capsule. If it still has the old name, there was no
    # consumer.
    if _is_valid(capsule, _NAME):
        _delete(_get_pointer(capsule, _NAME))


_destructor = _Destructor(_destroy)


def capsule_of(
    address: int,
    dtype: str,
    shape: Tuple[int, ...],
    device: Tuple[int, int],
    on_release: Callable[[], None],
) -> Any:
    """A capsule named "dltensor" over memory that `on_release` keeps alive.

    `on_release` is called once, on any thread, when nothing refers to the memory
    through the capsule any more.
    """
    code, bits = _TYPES[dtype]
    sizes = (ctypes.c_int64 * len(shape))(*shape)
    steps = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        steps[i] = steps[i + 1] * max(shape[i + 1], 1)
    strides = (ctypes.c_int64 * len(shape))(*steps)
    managed = _ManagedTensor()
    tensor = managed.dl_tensor
    tensor.data = address
    tensor.device = _Device(*device)
    tensor.ndim = len(shape)
    tensor.dtype = _DataType(code, bits, 1)
    tensor.shape = sizes
    tensor.strides = strides
    tensor.byte_offset = 0
    managed.deleter = _deleter
    key = ctypes.addressof(managed)
    _alive[key] = (managed, sizes, strides, on_release)
    return _new(key, _NAME, _destructor)
