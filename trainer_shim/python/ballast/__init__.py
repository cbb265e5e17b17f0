"""Ballast: packed, balanced batches for training vision-language models.

`Loader` is the iterator that a training loop uses. `ballast.adapters` turns a batch
into the arguments of Megatron-Bridge, Megatron-Core and Hugging Face's models. The
package itself imports only the standard library; a loader imports torch or NumPy to
make their arrays.
"""

import os as _os
import warnings as _warnings

from . import _other, adapters
from ._serving import Server, serve
from ._tensors import TensorName
from .batch import Batch
from .communicator import Communicator
from .connection import Connection
from .embeddings import EmbeddingExchange, ModuleGroups, exchange_embeddings
from .errors import (
    Aborted,
    AlreadyExists,
    BallastError,
    Cancelled,
    DataLoss,
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from .loader import Loader
from .tensor import Sample, Tensor, TensorRow, Totals, tensor_table

#: The package's version, that of the library (`library_version`), too.
__version__ = "1.0.0"

_advice = _other.advice(_os.path.dirname(_os.path.abspath(__file__)))
if _advice:
    _warnings.warn(_advice, stacklevel=2)


def library_version() -> str:
    """Version of the loaded library, such as "1.2.3"."""
    from . import _abi

    return str(_abi.library().ballast_version().decode())


__all__ = [
    "Aborted", "AlreadyExists", "BallastError", "Batch", "Cancelled",
    "Communicator", "Connection", "DataLoss", "DeadlineExceeded", "EmbeddingExchange",
    "FailedPrecondition", "Internal", "InvalidArgument", "Loader", "ModuleGroups", "NotFound",
    "OutOfRange",
    "PermissionDenied", "ResourceExhausted", "Sample", "Server", "Tensor", "TensorRow",
    "TensorName", "Totals", "Unauthenticated", "Unavailable", "Unimplemented", "adapters",
    "__version__", "exchange_embeddings", "library_version", "serve", "tensor_table",
]  # fmt: skip
