"""Loading libballast_shim.so and calling its functions by ctypes."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import sys
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_size_t, c_uint32
from ctypes import c_uint64, c_void_p
from typing import Any, Dict, List, Optional, Tuple, Type

from . import _machine, _structs
from .errors import BallastError, Unimplemented, error_of

_SIGNATURES: Dict[str, Tuple[Any, List[Any]]] = {
    "ballast_abi_version": (c_uint32, []),
    "ballast_version": (c_char_p, []),
    "ballast_last_error": (c_char_p, []),
    "ballast_has_backend": (c_int, [c_int]),
    "ballast_bytes_data": (c_void_p, [c_void_p]),
    "ballast_bytes_size": (c_size_t, [c_void_p]),
    "ballast_bytes_free": (None, [c_void_p]),
    "ballast_query_job": (c_int, [POINTER(_structs.Connection), POINTER(c_void_p)]),
    "ballast_communicator_destroy": (None, [c_void_p]),
    "ballast_communicator_in_process": (c_int, [c_int, c_uint32, POINTER(c_void_p)]),
    "ballast_communicator_gloo_meet": (
        c_int,
        [
            POINTER(_structs.Connection), c_char_p, c_uint32, c_uint32, c_double,
            POINTER(c_void_p),
        ],
    ),
    "ballast_nccl_id": (c_int, [c_void_p]),
    "ballast_communicator_nccl": (
        c_int,
        [c_void_p, c_uint32, c_uint32, POINTER(_structs.NcclOptions), POINTER(c_void_p)],
    ),
    "ballast_communicator_nccl_meet": (
        c_int,
        [
            POINTER(_structs.Connection), c_char_p, c_uint32, c_uint32, c_double,
            POINTER(_structs.NcclOptions), POINTER(c_void_p),
        ],
    ),
    "ballast_communicator_nccl_borrow": (
        c_int,
        [c_void_p, POINTER(_structs.NcclOptions), POINTER(c_void_p)],
    ),
    "ballast_shim_create": (c_int, [POINTER(_structs.ShimOptions), POINTER(c_void_p)]),
    "ballast_shim_destroy": (None, [c_void_p]),
    "ballast_shim_next": (c_int, [c_void_p, c_void_p, POINTER(c_void_p)]),
    "ballast_shim_send_to_tensor_peers": (c_int, [c_void_p, c_void_p]),
    "ballast_shim_receive_from_tensor_peer": (
        c_int,
        [c_void_p, c_void_p, POINTER(c_void_p)],
    ),
    "ballast_shim_num_micro_batches": (c_int, [c_void_p, c_uint64, POINTER(c_uint32)]),
    "ballast_shim_cancel": (c_int, [c_void_p]),
    "ballast_shim_report_timing": (c_int, [c_void_p, c_uint64, c_uint32, c_double]),
    "ballast_shim_job": (c_int, [c_void_p, POINTER(c_void_p)]),
    "ballast_shim_schedule": (c_int, [c_void_p, POINTER(c_void_p)]),
    "ballast_shim_checkpoint": (c_int, [c_void_p, c_uint64, POINTER(c_void_p)]),
    "ballast_checkpoint_read": (c_int, [c_char_p, c_size_t, POINTER(_structs.CheckpointInfo)]),
    "ballast_batch_release": (None, [c_void_p]),
    "ballast_batch_record_stream": (c_int, [c_void_p, c_void_p]),
    "ballast_batch_get_info": (c_int, [c_void_p, POINTER(_structs.BatchInfo)]),
    "ballast_batch_get_tensor": (c_int, [c_void_p, c_uint32, POINTER(_structs.Tensor)]),
    "ballast_tensor_table": (c_int, [POINTER(c_void_p)]),
    "ballast_batch_get_sample": (c_int, [c_void_p, c_uint32, POINTER(_structs.Sample)]),
    "ballast_batch_get_totals": (c_int, [c_void_p, c_int, POINTER(_structs.Totals)]),
    "ballast_batch_digest": (c_int, [c_void_p, c_void_p, c_char_p]),
}  # fmt: skip

_library: Optional[Any] = None


def _places() -> List[str]:
    """Paths of the library, in the order in which they are tried."""
    named = os.environ.get("BALLAST_LIBRARY")
    if named:
        return [named]
    here = os.path.dirname(os.path.abspath(__file__))
    return [
        os.path.join(here, "lib", "libballast_shim.so"),
        "libballast_shim.so.%d" % _structs.ABI_VERSION,
    ]


def _open() -> Any:
    failures = []
    for place in _places():
        try:
            return ctypes.CDLL(place)
        except OSError as error:
            failures.append("%s: %s" % (place, _machine.explained(error)))
            if os.path.exists(place):
                break  # the reason; a system's library would be another version
    raise BallastError(
        "cannot load libballast_shim.so; install the wheel, which contains it, or set "
        "BALLAST_LIBRARY to its path. Tried " + "; ".join(failures)
    )


def load_nccl() -> None:
    """Loads NCCL from pip's nvidia packages, where the library does not look.

    Does nothing if torch is imported, which has loaded its own NCCL, or if no such
    package is installed: the library then takes the system's.
    """
    if "torch" in sys.modules:
        return
    for folder in sys.path:
        for path in glob.glob(os.path.join(folder, "nvidia", "*", "lib", "libnccl.so.2")):
            with contextlib.suppress(OSError):
                ctypes.CDLL(path)
                return


def library() -> Any:
    """The library, loaded at the first call. Raises BallastError if that fails."""
    global _library
    if _library is None:
        opened = _open()
        for name, (result, arguments) in _SIGNATURES.items():
            try:
                function = getattr(opened, name)
            except AttributeError:
                raise Unimplemented(
                    "%s lacks %s: its version differs from this package's. Install both "
                    "from one wheel" % (opened._name, name)
                ) from None
            function.restype = result
            function.argtypes = arguments
        found = opened.ballast_abi_version()
        if found != _structs.ABI_VERSION:
            raise Unimplemented(
                "%s has version %d of the C interface; this package wants %d. Install "
                "both from one wheel" % (opened._name, found, _structs.ABI_VERSION)
            )
        _library = opened
    return _library


def check(code: int) -> None:
    """Raises the error of this thread's last call, unless `code` is OK."""
    if code != _structs.OK:
        message = (library().ballast_last_error() or b"").decode("utf-8", "replace")
        raise error_of(code, message)


def make(name: str, *arguments: Any) -> c_void_p:
    """Calls a function whose last parameter receives a handle; returns the handle."""
    handle = c_void_p()
    check(getattr(library(), name)(*arguments, byref(handle)))
    return handle


def fill(kind: Type[_structs.S], name: str, *arguments: Any) -> _structs.S:
    """Calls a function whose last parameter is a struct to fill; returns the struct."""
    value = _structs.sized(kind)
    check(getattr(library(), name)(*arguments, byref(value)))
    return value


def take_bytes(name: str, *arguments: Any) -> bytes:
    """Calls a function whose last parameter receives ballast_bytes; returns a copy."""
    handle = make(name, *arguments)
    try:
        size = library().ballast_bytes_size(handle)
        return ctypes.string_at(library().ballast_bytes_data(handle), size)
    finally:
        library().ballast_bytes_free(handle)
