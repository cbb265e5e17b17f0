"""Structs and numbers of the C interface, as the headers in trainer_shim/c_api
declare them."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char, c_char_p, c_double, c_int32, c_int64
from ctypes import c_uint32, c_uint64, c_void_p
from typing import Type, TypeVar

ABI_VERSION = 1
OK = 0
OUT_OF_RANGE = 11
# In the order of their batches: encoders before language.
MODULES = {"vision": 1, "audio": 3, "language": 2}
SPLITS = {"train": 0, "valid": 1, "test": 2}
ONE_PASS = 2**64 - 1  # of ShimOptions.steps
BACKEND_HOST = 1
BACKEND_CUDA = 2
NCCL_ID_BYTES = 128
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
        ("exchange_interface", c_char_p),
        ("spread", c_uint32),
        ("reserved2", c_uint32),
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
        ("max_batches_held", c_uint32),
        ("reserved2", c_uint32),
        ("split", c_int32),
        ("reserved3", c_uint32),
    ]


class CheckpointInfo(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("split", c_int32),
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
        ("videos", c_uint64),
        ("clips", c_uint64),
        ("frames", c_uint64),
    ]


S = TypeVar("S", bound=Structure)


def sized(kind: Type[S]) -> S:
    """A struct of zeros with `struct_size` filled in."""
    value = kind()
    value.struct_size = ctypes.sizeof(kind)
    return value
