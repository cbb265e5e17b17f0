"""Checks and readings of a loader's arguments."""

from __future__ import annotations

import importlib.util
import operator
import os
import sys
import warnings
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _structs
from .communicator import Communicator
from .connection import Connection
from .errors import FailedPrecondition, InvalidArgument
from .tensor import Tensor

Rank = Union[int, Mapping[str, int]]
Ends = Union[None, Communicator, Mapping[str, Communicator]]
ToArray = Callable[[Tensor], Any]

PIXEL_TYPES = {name: _structs.DTYPE_NUMBERS[name] for name in ("float32", "bfloat16")}
NORMALISATIONS = {"torchvision": 0, "pil": 1, "bfloat16": 2}
WAYS_TO_TENSOR_PEERS = {"pull": 0, "broadcast": 1}
_ARRAYS: Dict[str, ToArray] = {
    "torch": Tensor.torch,
    "numpy": Tensor.numpy,
    "dlpack": lambda tensor: tensor,
}


def number_of(key: str, value: str, numbers: Mapping[str, int]) -> int:
    """The number that a name means."""
    if value not in numbers:
        raise InvalidArgument("%s: found %r; wanted one of %s" % (key, value, list(numbers)))
    return numbers[value]


def is_encoder(module: str) -> bool:
    """Whether a module is an encoder: every module except the language model is."""
    return module != "language"


def modules_of(modules: Union[str, Sequence[str]]) -> List[str]:
    """Modules in the order of their exchanges, which is the same in every process."""
    names = {modules} if isinstance(modules, str) else set(modules)
    if not names:
        raise InvalidArgument(
            "modules: found none; wanted one or more of %s" % list(_structs.MODULES)
        )
    for name in names:
        number_of("modules", name, _structs.MODULES)
    return sorted(names, key=list(_structs.MODULES).index)


def device_number(device: str) -> Optional[int]:
    """The GPU that "cuda", "cuda:N" or a torch.device names; None for "cpu"."""
    kind, _, number = str(device).partition(":")
    if kind == "cpu" and not number:
        return None
    if kind != "cuda" or not (number.isdigit() or not number):
        hint = ""
        if kind in ("mps", "xpu", "tpu", "xla"):
            hint = '; take device="cpu" and move the tensors: batch["input_ids"].to(%r)' % device
        raise InvalidArgument(
            'device: found %r; wanted "cuda", "cuda:N" or "cpu"%s' % (device, hint)
        )
    if number:
        return int(number)
    torch = sys.modules.get("torch")
    return int(torch.cuda.current_device()) if torch is not None else 0


def current_stream(device: Optional[int]) -> int:
    """The address of torch's current CUDA stream; 0 without torch or a GPU."""
    torch = sys.modules.get("torch")
    if device is None or torch is None:
        return 0
    return int(torch.cuda.current_stream(device).cuda_stream)


def to_array_of(array: Optional[str], device: Optional[int]) -> ToArray:
    """The conversion of a batch's tensors to arrays of the kind `array`."""
    if array is None:
        array = "torch" if device is not None or "torch" in sys.modules else "numpy"
    if array not in _ARRAYS:
        raise InvalidArgument("array: found %r; wanted one of %s" % (array, list(_ARRAYS)))
    if array == "numpy" and device is not None:
        raise InvalidArgument('array: found "numpy" with a GPU; wanted device="cpu"')
    if array != "dlpack" and array not in sys.modules and importlib.util.find_spec(array) is None:
        raise InvalidArgument(
            'array: %s is not installed; pip install %s, or take array="dlpack"%s'
            % (array, array, "" if device is None else '; without a GPU take device="cpu"')
        )
    return _ARRAYS[array]


def ends_of(key: str, ends: Ends, modules: Sequence[str]) -> Dict[str, Communicator]:
    """The communicator that the caller gave for each module."""
    if isinstance(ends, Communicator):
        if len(modules) != 1:
            raise InvalidArgument(
                '%s: found one for %s; wanted a dictionary with one for each: {"vision": ..., '
                '"language": ...}' % (key, " and ".join(modules))
            )
        return {modules[0]: ends}
    return dict(ends or {})


def whole(key: str, value: Any, bits: int = 64) -> int:
    """A number from 0 on, which ctypes would cut to so many bits without a word; NumPy's and
    torch's integers are accepted, too."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if number < 0 or number >> bits or isinstance(value, bool):
        wanted = "to %d" % (2**bits - 1) if number > 0 else "on"
        raise InvalidArgument(
            "%s: found %r; wanted a whole number from 0 %s" % (key, value, wanted)
        )
    return number


def check_worker(made_in: int) -> None:
    """Raises FailedPrecondition in a worker process of torch's DataLoader that is one of
    several, each of which would deliver all of this rank's batches, or whose loader was
    made by process `made_in`, where its state would stay at the first step."""
    data = sys.modules.get("torch.utils.data")
    worker = data.get_worker_info() if data is not None else None
    if worker is not None and worker.num_workers > 1:
        raise FailedPrecondition(
            "found a DataLoader's worker %d of %d; each of them would deliver every batch, and "
            "the trainer take each %d times: iterate over the loader itself, which fetches "
            "ahead, or set num_workers to 0" % (worker.id, worker.num_workers, worker.num_workers)
        )
    if worker is not None and made_in != os.getpid():
        raise FailedPrecondition(
            "found a DataLoader's worker with the trainer's loader, whose state_dict in the "
            "trainer would stay at the first step: iterate over the loader itself, which fetches "
            "ahead, or set num_workers to 0"
        )


#: Rank and number of processes, as launchers name them: torchrun; Slurm's srun; Open MPI's
#: mpirun; others that speak PMI.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def world() -> Optional[Tuple[int, int]]:
    """(rank, size) of this process among the trainer's: torch.distributed's, else the
    values that torchrun and other launchers set. None if there is neither."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    for names in _LAUNCHERS:
        rank, size = (os.environ.get(name, "") for name in names)
        if rank.isdigit() and size.isdigit():
            return int(rank), int(size)
    return None


class Place:
    """The ranks of this process in each module's layout."""

    KEYS = ("dp_rank", "tp_rank", "pp_rank", "cp_rank")

    def __init__(self, ranks: Mapping[str, Optional[Rank]], modules: Sequence[str]) -> None:
        self._ranks = dict(ranks)
        self._settled = False
        self._may_be_alone = ranks["dp_rank"] is None
        for key in self.KEYS:
            for module in modules if ranks[key] is not None else ():
                self.rank(key, module)

    def settle(self, connection: Connection, modules: Sequence[str]) -> None:
        """Finds a data-parallel rank that the caller left out, and checks that the
        trainer has a process for each rank and that each process has a part. May ask a
        server."""
        processes = world()
        if self._settled or processes is None:
            self._settled = True
            return
        self._may_be_alone = False
        rank, size = processes
        every = connection.job()["modules"]
        shapes = [m for m in every if m["module"] in modules]
        most = max((m["dp"] for m in shapes), default=1)
        one_each = all((m["dp"], m["tp"], m["pp"], m["cp"]) == (size, 1, 1, 1) for m in shapes)
        if self._ranks["dp_rank"] is None and size > 1:
            if not one_each and (most > 1 or size > _places(every, modules)):
                raise InvalidArgument(
                    "dp_rank: found none in process %d of %d, and the job has %s; set "
                    "topology.modules to the trainer's sizes, or name this process's "
                    "data-parallel rank, or all would train on the same samples"
                    % (rank, size, _sizes(shapes))
                )
            if one_each:
                self._ranks["dp_rank"] = rank
        named = [self.rank("dp_rank", m["module"]) for m in shapes]
        if one_each and any(each != rank for each in named):
            warnings.warn(
                "dp_rank: found %d in process %d of %d, one for each data-parallel rank: if it is "
                "the process's number on its node, processes of several nodes train on the same "
                "samples. Leave it out, or name a rank for each"
                % (next(each for each in named if each != rank), rank, size),
                RuntimeWarning,
                stacklevel=2,
            )
        if self._ranks["cp_rank"] is None and size > 1 and any(m["cp"] > 1 for m in shapes):
            raise InvalidArgument(
                "cp_rank: found none in process %d of %d, and the job has context ranks; name "
                "this process's, or all would train on the same part of each sample" % (rank, size)
            )
        if size < most:
            _warn_of_few(shapes, size)
        self._settled = True

    def warn_if_alone(self, modules: Sequence[str], job_of: Callable[[], Dict[str, Any]]) -> None:
        """Warns once if a process knows of no others and has, by default, the first of
        several ranks."""
        if self._may_be_alone:
            self._may_be_alone = False
            shapes = [m for m in job_of()["modules"] if m["module"] in modules]
            if max((m["dp"] for m in shapes), default=1) > 1:
                _warn_of_few(shapes, 1)

    def rank(self, key: str, module: str) -> int:
        rank = self._ranks[key]
        if rank is None:
            return 0
        if isinstance(rank, Mapping):
            if module not in rank:
                raise InvalidArgument(
                    "%s: found ranks for %s; wanted one for %s" % (key, sorted(rank), module)
                )
            rank = rank[module]
        return whole(key, rank, 32)


def _places(every: Sequence[Mapping[str, Any]], modules: Sequence[str]) -> int:
    """Processes of a trainer with one for each rank of the job, each with all of `modules`
    or with another module."""
    ranks = {m["module"]: m["dp"] * m["tp"] * m["pp"] * m["cp"] for m in every}
    own = max((ranks.pop(module, 1) for module in modules), default=1)
    return int(own + sum(ranks.values()))


def _warn_of_few(shapes: Sequence[Mapping[str, Any]], size: int) -> None:
    warnings.warn(
        "the job has %s, and this trainer has %d %s: nobody trains on the samples of the other "
        "ranks. Set topology.modules to the trainer's sizes, or name each process's dp_rank"
        % (_sizes(shapes), size, "process" if size == 1 else "processes"),
        RuntimeWarning,
        stacklevel=4,
    )


def _sizes(shapes: Sequence[Mapping[str, Any]]) -> str:
    return " and ".join(
        "%d data-parallel rank%s of %s" % (m["dp"], "" if m["dp"] == 1 else "s", m["module"])
        for m in shapes
    )
