"""Exceptions of Ballast: one class for each status of the C interface."""

from __future__ import annotations

from typing import Dict, Type


class BallastError(Exception):
    """Base of all errors. The message names the rank, file, key or sample.

    An error of a loader's `next`, other than ResourceExhausted, is final: every
    further call raises it again, and the module's other ranks have ended, too.
    """

    #: Name of the status, such as "DATA_LOSS".
    status: str = "UNKNOWN"


class Cancelled(BallastError):
    """`Loader.cancel` was called."""

    status = "CANCELLED"


class InvalidArgument(BallastError, ValueError):
    """An argument is invalid; the message names it."""

    status = "INVALID_ARGUMENT"


class DeadlineExceeded(BallastError, TimeoutError):
    """A server or a peer did not answer in time."""

    status = "DEADLINE_EXCEEDED"


class NotFound(BallastError, LookupError):
    """A named thing does not exist."""

    status = "NOT_FOUND"


class AlreadyExists(BallastError):
    """The thing to be created exists already."""

    status = "ALREADY_EXISTS"


class PermissionDenied(BallastError):
    """The server refuses this client."""

    status = "PERMISSION_DENIED"


class ResourceExhausted(BallastError):
    """A bounded resource, such as memory, is used up.

    From a loader's `next`: `max_batches_held` batches are held. This ends nothing;
    drop some and call again.
    """

    status = "RESOURCE_EXHAUSTED"


class FailedPrecondition(BallastError):
    """The call does not fit the state of the job or of the loader.

    For example, fingerprints differ because a server or a checkpoint belongs to
    other data or another configuration (the message names the first differing
    key), or there is no GPU.
    """

    status = "FAILED_PRECONDITION"


class Aborted(BallastError):
    """The operation was abandoned."""

    status = "ABORTED"


class OutOfRange(BallastError):
    """The steps or the data have ended. A loader raises StopIteration instead."""

    status = "OUT_OF_RANGE"


class Unimplemented(BallastError, NotImplementedError):
    """This version or build of the library cannot do that."""

    status = "UNIMPLEMENTED"


class Internal(BallastError):
    """A fault in Ballast, CUDA or NCCL; the message quotes it."""

    status = "INTERNAL"


class Unavailable(BallastError, ConnectionError):
    """No server answers, or a peer left. Restart from the last checkpoint."""

    status = "UNAVAILABLE"


class DataLoss(BallastError):
    """A block, schedule or sample is damaged or unexpected."""

    status = "DATA_LOSS"


class Unauthenticated(BallastError):
    """The server does not accept this client's certificate or token."""

    status = "UNAUTHENTICATED"


_BY_CODE: Dict[int, Type[BallastError]] = {
    1: Cancelled,
    3: InvalidArgument,
    4: DeadlineExceeded,
    5: NotFound,
    6: AlreadyExists,
    7: PermissionDenied,
    8: ResourceExhausted,
    9: FailedPrecondition,
    10: Aborted,
    11: OutOfRange,
    12: Unimplemented,
    13: Internal,
    14: Unavailable,
    15: DataLoss,
    16: Unauthenticated,
}


def error_of(code: int, message: str) -> BallastError:
    """The exception for a status of the C interface."""
    return _BY_CODE.get(code, BallastError)(message)
