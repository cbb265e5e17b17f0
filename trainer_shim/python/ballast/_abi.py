"""The C interface of libballast_shim.so, as trainer_shim/c_api/c_api.h declares it."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import sys
from ctypes import POINTER, Structure, c_char, c_char_p, c_double, c_int, c_int32
from ctypes import c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, List, Optional, Type, TypeVar

from .errors import BallastError, Unimplemented, error_of

ABI_VERSION = 1
OK = 0
OUT_OF_RANGE = 11
MODULES = {"vision": 1, "language": 2}
MODULE_NAMES = {number: name for name, number in MODULES.items()}
BACKEND_HOST = 1
BACKEND_CUDA = 2
NCCL_ID_BYTES = 128
AFTER_LAST_STEP = 2**64 - 1
DTYPES = {1: "uint8", 2: "int32", 3: "int64", 4: "float32", 5: "bfloat16", 6: "bool"}
DTYPE_NUMBERS = {name: number for number, name in DTYPES.items()}
DEVICE_CPU = 1
DEVICE_CUDA = 2


class Connection(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("num_servers", c_uint32),
        ("servers", POINTER(c_char_p)),
        ("tls_ca", c_char_p),
        ("tls_cert", c_char_p),
        ("tls_key", c_char_p),
        ("tls_server_name", c_char_p),
        ("token_file", c_char_p),
        ("wait_for_server_s", c_double),
        ("hang_after_s", c_double),
        ("give_up_after_s", c_double),
        ("streams", c_uint32),
        ("reserved", c_uint32),
        ("run", c_char_p),
    ]


class NcclOptions(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("device", c_int32),
        ("max_ctas", c_uint32),
        ("reserved", c_uint32),
    ]


class ShimOptions(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("module", c_int32),
        ("dp_rank", c_uint32),
        ("tp_rank", c_uint32),
        ("pp_rank", c_uint32),
        ("cp_rank", c_uint32),
        ("backend", c_int32),
        ("device", c_int32),
        ("connection", POINTER(Connection)),
        ("communicator", c_void_p),
        ("pixel_type", c_int32),
        ("normalisation", c_int32),
        ("start_step", c_uint64),
        ("steps", c_uint64),
        ("checkpoint", c_char_p),
        ("checkpoint_size", c_uint64),
        ("fingerprint", c_char_p),
        ("max_bytes", c_uint64),
        ("no_overlap", c_uint32),
        ("reserved", c_uint32),
        ("timeout_s", c_double),
        ("tensor_communicator", c_void_p),
        ("needs_input_ids", c_uint32),
        ("needs_labels", c_uint32),
    ]


class CheckpointInfo(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("next_step", c_uint64),
        ("fingerprint", c_char * 40),
        ("data_fingerprint", c_char * 40),
    ]


class BatchInfo(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("module", c_int32),
        ("dp_rank", c_uint32),
        ("tp_rank", c_uint32),
        ("pp_rank", c_uint32),
        ("cp_rank", c_uint32),
        ("step", c_uint64),
        ("micro_batch", c_uint32),
        ("num_micro_batches", c_uint32),
        ("num_tensors", c_uint32),
        ("num_samples", c_uint32),
        ("max_seqlen", c_int32),
        ("vision_max_seqlen", c_int32),
        ("dummy_image", c_uint32),
        ("reserved", c_uint32),
        ("bytes_read", c_uint64),
        ("bytes_moved", c_uint64),
        ("pack_ms", c_double),
    ]


class Tensor(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("dtype", c_int32),
        ("name", c_char_p),
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_uint32),
        ("reserved", c_uint32),
        ("shape", c_int64 * 4),
    ]


class Sample(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("source", c_uint32),
        ("position", c_uint64),
        ("ordinal", c_uint64),
        ("name", c_char_p),
        ("placeholder", c_uint32),
        ("reserved", c_uint32),
    ]


class Totals(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("samples", c_uint64),
        ("tokens", c_uint64),
        ("tokens_squared", c_uint64),
        ("padded_tokens", c_uint64),
        ("padded_tokens_squared", c_uint64),
        ("label_tokens", c_uint64),
        ("patches", c_uint64),
        ("images", c_uint64),
    ]


S = TypeVar("S", bound=Structure)


def sized(kind: Type[S]) -> S:
    """A struct of zeros that says its size."""
    value = kind()
    value.struct_size = ctypes.sizeof(kind)  # type: ignore[attr-defined]
    return value


_SIGNATURES = {
    "ballast_abi_version": (c_uint32, []),
    "ballast_version": (c_char_p, []),
    "ballast_last_error": (c_char_p, []),
    "ballast_has_backend": (c_int, [c_int]),
    "ballast_bytes_data": (c_void_p, [c_void_p]),
    "ballast_bytes_size": (c_size_t, [c_void_p]),
    "ballast_bytes_free": (None, [c_void_p]),
    "ballast_query_job": (c_int, [POINTER(Connection), POINTER(c_void_p)]),
    "ballast_communicator_destroy": (None, [c_void_p]),
    "ballast_communicator_in_process": (c_int, [c_int, c_uint32, POINTER(c_void_p)]),
    "ballast_nccl_id": (c_int, [c_void_p]),
    "ballast_communicator_nccl": (
        c_int,
        [c_void_p, c_uint32, c_uint32, POINTER(NcclOptions), POINTER(c_void_p)],
    ),
    "ballast_communicator_nccl_meet": (
        c_int,
        [
            POINTER(Connection), c_char_p, c_uint32, c_uint32, c_double,
            POINTER(NcclOptions), POINTER(c_void_p),
        ],
    ),
    "ballast_communicator_nccl_borrow": (
        c_int,
        [c_void_p, POINTER(NcclOptions), POINTER(c_void_p)],
    ),
    "ballast_shim_create": (c_int, [POINTER(ShimOptions), POINTER(c_void_p)]),
    "ballast_shim_destroy": (None, [c_void_p]),
    "ballast_shim_next": (c_int, [c_void_p, c_void_p, POINTER(c_void_p)]),
    "ballast_shim_send_to_tensor_peers": (c_int, [c_void_p, c_void_p]),
    "ballast_shim_receive_from_tensor_peer": (
        c_int,
        [c_void_p, c_void_p, POINTER(c_void_p)],
    ),
    "ballast_shim_cancel": (c_int, [c_void_p]),
    "ballast_shim_report_timing": (c_int, [c_void_p, c_uint64, c_uint32, c_double]),
    "ballast_shim_job": (c_int, [c_void_p, POINTER(c_void_p)]),
    "ballast_shim_schedule": (c_int, [c_void_p, POINTER(c_void_p)]),
    "ballast_shim_checkpoint": (c_int, [c_void_p, c_uint64, POINTER(c_void_p)]),
    "ballast_checkpoint_read": (c_int, [c_char_p, c_size_t, POINTER(CheckpointInfo)]),
    "ballast_batch_get_info": (c_int, [c_void_p, POINTER(BatchInfo)]),
    "ballast_batch_get_tensor": (c_int, [c_void_p, c_uint32, POINTER(Tensor)]),
    "ballast_batch_get_sample": (c_int, [c_void_p, c_uint32, POINTER(Sample)]),
    "ballast_batch_get_totals": (c_int, [c_void_p, c_int, POINTER(Totals)]),
    "ballast_batch_digest": (c_int, [c_void_p, c_void_p, c_char_p]),
}  # fmt: skip

_library: Optional[Any] = None


def _places() -> List[str]:
    """Where the library may be, in the order in which it is looked for."""
    named = os.environ.get("BALLAST_LIBRARY")
    if named:
        return [named]
    here = os.path.dirname(os.path.abspath(__file__))
    return [
        os.path.join(here, "lib", "libballast_shim.so"),
        "libballast_shim.so.%d" % ABI_VERSION,
    ]


def _open() -> Any:
    failures = []
    for place in _places():
        try:
            return ctypes.CDLL(place)
        except OSError as error:
            failures.append("%s: %s" % (place, error))
    raise BallastError(
        "cannot load libballast_shim.so (BALLAST_LIBRARY names it where it is "
        "not part of this package): " + "; ".join(failures)
    )


def load_nccl() -> None:
    """Loads the NCCL of pip's nvidia packages, where the library would not look.
    Nothing happens where torch has been imported, which has loaded its own, or
    there is none: then the library takes the system's."""
    if "torch" in sys.modules:
        return
    for folder in sys.path:
        for path in glob.glob(os.path.join(folder, "nvidia", "*", "lib", "libnccl.so.2")):
            with contextlib.suppress(OSError):
                ctypes.CDLL(path)
                return


def library() -> Any:
    """The loaded library. Raises BallastError where it cannot be loaded."""
    global _library
    if _library is None:
        opened = _open()
        for name, (result, arguments) in _SIGNATURES.items():
            try:
                function = getattr(opened, name)
            except AttributeError:
                raise Unimplemented(
                    "%s lacks %s: it is of another version" % (opened._name, name)
                ) from None
            function.restype = result
            function.argtypes = arguments
        found = opened.ballast_abi_version()
        if found != ABI_VERSION:
            raise Unimplemented(
                "%s has version %d of the C interface; this package wants %d"
                % (opened._name, found, ABI_VERSION)
            )
        _library = opened
    return _library


def check(code: int) -> None:
    """Raises what the last call of this thread answered, unless it was OK."""
    if code != OK:
        message = (library().ballast_last_error() or b"").decode("utf-8", "replace")
        raise error_of(code, message)


def take_bytes(function: Any, *arguments: Any) -> bytes:
    """Calls a function whose last parameter answers ballast_bytes."""
    handle = c_void_p()
    check(function(*arguments, ctypes.byref(handle)))
    try:
        size = library().ballast_bytes_size(handle)
        return ctypes.string_at(library().ballast_bytes_data(handle), size)
    finally:
        library().ballast_bytes_free(handle)
