"""What Ballast raises: one class for each status of the C interface."""

from __future__ import annotations

from typing import Dict, Type


class BallastError(Exception):
    """Any failure of Ballast. `str(error)` names the rank, file, key or sample.

    Every error of a loader's `next` is final: it is raised again at every
    further call, and has ended the other ranks of the module too.
    """

    #: Name of the status, as "DATA_LOSS".
    status: str = "UNKNOWN"


class Cancelled(BallastError):
    """`Loader.cancel` was called."""

    status = "CANCELLED"


class InvalidArgument(BallastError, ValueError):
    """An argument is not what it must be; the message names it."""

    status = "INVALID_ARGUMENT"


class DeadlineExceeded(BallastError, TimeoutError):
    """A server or a peer did not answer in time."""

    status = "DEADLINE_EXCEEDED"


class NotFound(BallastError, LookupError):
    """Something that was named does not exist."""

    status = "NOT_FOUND"


class AlreadyExists(BallastError):
    """Something that was to be made exists."""

    status = "ALREADY_EXISTS"


class PermissionDenied(BallastError):
    """The server refuses this client."""

    status = "PERMISSION_DENIED"


class ResourceExhausted(BallastError):
    """Memory, or another resource with a bound, is used up."""

    status = "RESOURCE_EXHAUSTED"


class FailedPrecondition(BallastError):
    """The job is not in the state that the call wants.

    Fingerprints differ (a server or a checkpoint of other data or another
    configuration; the message names the first differing key), or there is no
    GPU.
    """

    status = "FAILED_PRECONDITION"


class Aborted(BallastError):
    """The operation was given up."""

    status = "ABORTED"


class OutOfRange(BallastError):
    """The steps or the data are at their end. A loader raises StopIteration."""

    status = "OUT_OF_RANGE"


class Unimplemented(BallastError, NotImplementedError):
    """This library, or this version of it, cannot do that."""

    status = "UNIMPLEMENTED"


class Internal(BallastError):
    """A fault of Ballast, CUDA or NCCL; the message has their words."""

    status = "INTERNAL"


class Unavailable(BallastError, ConnectionError):
    """No server answers, or a peer left. Go on from the last checkpoint."""

    status = "UNAVAILABLE"


class DataLoss(BallastError):
    """A block, schedule or sample is not what it should be."""

    status = "DATA_LOSS"


class Unauthenticated(BallastError):
    """The server does not accept this client's certificate or token."""

    status = "UNAUTHENTICATED"


class BatchReleased(BallastError, KeyError):
    """A batch was used after the loader's next one had been asked for."""

    status = "FAILED_PRECONDITION"

    def __str__(self) -> str:  # KeyError would quote it
        return str(self.args[0]) if self.args else ""


class TensorsStillHeld(BallastError):
    """`Loader(strict=True)`: tensors of the last batch are still referred to."""

    status = "FAILED_PRECONDITION"


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
