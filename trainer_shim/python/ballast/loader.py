"""The batches of one rank, in order."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from ctypes import byref, c_void_p
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Union

from . import _abi
from .batch import Batch, Part, Tensor, batch_of
from .communicator import Communicator
from .connection import Connection, Servers
from .errors import BallastError, FailedPrecondition, InvalidArgument, TensorsStillHeld

Rank = Union[int, Mapping[str, int]]
Ends = Union[None, Communicator, Mapping[str, Communicator]]
_NORMALISATIONS = {"torchvision": 0, "pil": 1}
_STATE = "ballast_checkpoint"


class Loader(Iterator[Batch]):
    """An iterator of dictionaries of tensors: what this rank trains on.

        with ballast.Loader("unix:/run/ballast/a.sock", dp_rank=rank) as loader:
            for batch in loader:
                loss = model(**ballast.adapters.huggingface.packed(batch)).loss

    The tensors lie where the trainer needs them and are not copied on the way:
    `Batch` says how long they may be used. The next batch is fetched, exchanged
    with the other ranks and packed while the trainer works on this one.

    A loader is for one thread; `cancel` is for any. It opens with `open`, `with`
    or the first batch, and must be made after fork(). A process that has several
    loaders on one GPU opens all before the first batch of any, and asks them in
    the same order as every other process; one loader of both modules does so by
    itself.

    Args:
        servers: `unix:/path` or `host:port`, several with commas or as a list, or
            a `Connection`.
        modules: "vision", "language" or both: what this process runs. A batch of
            both has the tensors of both; their samples are the same.
        dp_rank: data-parallel rank, or one for each module: {"vision": 0,
            "language": 3}. So are tp_rank, pp_rank and cp_rank.
        device: "cuda" (the current device), "cuda:N", or "cpu".
        array: "torch", "numpy" (`device="cpu"` only), or "dlpack" for `Tensor`
            objects. Default: torch where it has been imported or the device is a
            GPU, else NumPy.
        communicator: the end of the group of a module's dp ranks (of the same
            tensor, pipeline and context rank), or one for each module. Default:
            on a GPU they are met through the servers where delivery is
            `exchange` or `hybrid`.
        tensor: "pull": each tensor rank pulls its own batches. "broadcast": tensor
            rank 0 pulls, and sends to the others over NCCL.
        tensor_communicator: with "broadcast", the end of the group of tensor ranks,
            or one for each module. Default: met through the servers.
        needs_input_ids, needs_labels: give a language rank these at any pipeline
            stage, as multi-token prediction wants.
        pixel_type: "float32" or "bfloat16". Default: bfloat16 on a GPU.
        normalisation: "torchvision" or "pil", as Hugging Face's two image
            processors compute; they differ in the last bits.
        start_step, steps: where to begin, and how many steps (0: while there are
            data).
        state_dict: what `state_dict` answered, to go on from there.
        fingerprint: what the job's must be.
        max_bytes: of blocks that may be held or on their way, for each module.
            0: 256 MiB.
        overlap: make the next batch on the GPU beside the trainer's step.
        timeout: seconds after which work that the GPU has not done counts as
            hung. 0: 600.
        max_ctas: thread blocks that an exchange may take from the GPU. 0: as NCCL
            sees fit.
        strict: asking for a batch raises TensorsStillHeld where a tensor of the
            last one is still referred to. For debugging.
    """

    def __init__(
        self,
        servers: Servers,
        modules: Union[str, Sequence[str]] = ("vision", "language"),
        *,
        dp_rank: Rank = 0,
        tp_rank: Rank = 0,
        pp_rank: Rank = 0,
        cp_rank: Rank = 0,
        device: str = "cuda",
        array: Optional[str] = None,
        communicator: Ends = None,
        tensor: str = "pull",
        tensor_communicator: Ends = None,
        needs_input_ids: bool = False,
        needs_labels: bool = False,
        pixel_type: Optional[str] = None,
        normalisation: str = "torchvision",
        start_step: int = 0,
        steps: int = 0,
        state_dict: Optional[Mapping[str, Any]] = None,
        fingerprint: str = "",
        max_bytes: int = 0,
        overlap: bool = True,
        timeout: float = 0.0,
        max_ctas: int = 0,
        strict: bool = False,
    ) -> None:
        self._connection = Connection.of(servers)
        names = [modules] if isinstance(modules, str) else list(modules)
        for name in names:
            if name not in _abi.MODULES:
                raise InvalidArgument(
                    'modules: found %r; wanted "vision" or "language"' % (name,)
                )
        # The order of exchanges, the same in every process.
        self._modules = sorted(set(names), key=lambda name: _abi.MODULES[name])
        if not self._modules:
            raise InvalidArgument("modules: none is given")
        self._ranks = {
            "dp_rank": dp_rank, "tp_rank": tp_rank, "pp_rank": pp_rank, "cp_rank": cp_rank,
        }  # fmt: skip
        self._device = device_number(device)
        self._to_array = self._array(array)
        if tensor not in ("pull", "broadcast"):
            raise InvalidArgument('tensor: found %r; wanted "pull" or "broadcast"' % (tensor,))
        self._broadcast = tensor == "broadcast"
        self._communicators = self._ends("communicator", communicator)
        self._tensor_communicators = self._ends("tensor_communicator", tensor_communicator)
        self._options = _abi.sized(_abi.ShimOptions)
        self._options.backend = _abi.BACKEND_HOST if self._device is None else _abi.BACKEND_CUDA
        self._options.device = self._device or 0
        self._options.pixel_type = one_of("pixel_type", pixel_type, _PIXEL_TYPES)
        self._options.normalisation = one_of("normalisation", normalisation, _NORMALISATIONS)
        self._options.steps = steps
        self._options.fingerprint = fingerprint.encode()
        self._options.max_bytes = max_bytes
        self._options.no_overlap = 0 if overlap else 1
        self._options.timeout_s = timeout
        self._options.needs_input_ids = int(needs_input_ids)
        self._options.needs_labels = int(needs_labels)
        self._start_step = start_step
        self._checkpoint = b""
        self._max_ctas = max_ctas
        self._strict = strict
        self._shims: List[c_void_p] = []
        self._held: Dict[str, c_void_p] = {}  # one reference each
        self._current: Optional[Batch] = None
        self._job: Optional[Dict[str, Any]] = None
        self._closed = False
        self._process = 0
        if state_dict is not None:
            self.load_state_dict(state_dict)

    # ---- Opening and closing ----

    def open(self) -> Loader:
        """Attaches to the servers and begins to fetch. Blocks until they have
        answered, and where samples are exchanged until all ranks have met."""
        if self._closed:
            raise FailedPrecondition("the loader was closed")
        if self._shims:
            if self._process != os.getpid():
                raise FailedPrecondition(
                    "the loader was opened before fork(); open it in the process that uses it"
                )
            return self
        self._process = os.getpid()
        library = _abi.library()
        connection = self._connection.raw()
        try:
            for module in self._modules:
                communicator = self._communicator(module)
                peers = self._tensor_peers(module)
                options = _abi.ShimOptions.from_buffer_copy(self._options)
                options.module = _abi.MODULES[module]
                for key in self._ranks:
                    setattr(options, key, self._rank(key, module))
                options.connection = ctypes.pointer(connection)
                if self._checkpoint:
                    options.checkpoint = self._checkpoint
                    options.checkpoint_size = len(self._checkpoint)
                else:
                    options.start_step = self._start_step
                if communicator is not None:
                    options.communicator = communicator._take()
                if peers is not None:
                    options.tensor_communicator = peers._take()
                shim = c_void_p()
                _abi.check(library.ballast_shim_create(byref(options), byref(shim)))
                self._shims.append(shim)
        except BaseException:
            self._destroy()
            raise
        return self

    def close(self) -> None:
        """Ends fetching and lets go of the batch. Ranks that still exchange with
        this one end with an error unless all steps are done."""
        self._closed = True
        self._destroy()

    def __enter__(self) -> Loader:
        return self.open()

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_shims", None) and self._process == os.getpid():
            self._destroy()

    def cancel(self) -> None:
        """Ends a `next` that blocks, here and on the module's other ranks, and
        every later one, with Cancelled. From any thread."""
        for shim in self._shims:
            _abi.check(_abi.library().ballast_shim_cancel(shim))

    # ---- Batches ----

    def __iter__(self) -> Loader:
        return self

    def __next__(self) -> Batch:
        return self.next()

    def next(self, stream: Optional[int] = None) -> Batch:
        """The next micro-batch; StopIteration where steps or data are at their
        end, now and at every further call.

        Args:
            stream: address of the CUDA stream that waits for the batch. Default:
                torch's current one where torch has been imported, else the
                default stream.
        """
        self.open()
        self._release()
        raw_stream = self._stream() if stream is None else stream
        parts = []
        for module, shim in zip(self._modules, self._shims):
            part = self._part(module, shim, raw_stream or None)
            if part is None:
                raise StopIteration
            parts.append(part)
        self._current = batch_of(parts, self._to_array, self.schedule)
        return self._current

    @property
    def job(self) -> Dict[str, Any]:
        """What the servers say of the job: `modules`, `global_batch`, `model` with
        its token ids, `fingerprint` and so on."""
        if self._job is None:
            self.open()
            self._job = json.loads(
                _abi.take_bytes(_abi.library().ballast_shim_job, self._shims[-1])
            )
        return self._job

    def schedule(self) -> Dict[str, Any]:
        """The schedule of the last batch's step: every sample's cost, reader and
        owner, as `ballastctl schedule --json` prints it."""
        self.open()
        schedule: Dict[str, Any] = json.loads(
            _abi.take_bytes(_abi.library().ballast_shim_schedule, self._shims[-1])
        )
        return schedule

    def report_timing(self, batch: Batch, milliseconds: float, module: str = "") -> bool:
        """Tells the servers what forward and backward of a batch took, for
        `ballastctl fit-cost`, and, for their metrics, what the shim knows of how
        long waiting for it, copying, exchanging and packing it took. `module` may
        be left out where there is one.

        Whether a server took it. A timing is advice: that no server does, within a
        second each, raises nothing, and none need be told again."""
        if not module and len(self._modules) != 1:
            raise InvalidArgument("module: whose time it is must be given")
        module = module or self._modules[0]
        if module not in self._modules:
            raise InvalidArgument(f"module: {module!r} is none of {self._modules}")
        self.open()
        shim = self._shims[self._modules.index(module)]
        try:
            _abi.check(
                _abi.library().ballast_shim_report_timing(
                    shim, batch.step, batch.micro_batch, milliseconds
                )
            )
        except InvalidArgument:
            raise
        except BallastError:
            return False
        return True

    # ---- Checkpoints ----

    def state_dict(self, next_step: Optional[int] = None) -> Dict[str, Any]:
        """Where the data stand, for a checkpoint: the same on every rank.

        A run that loads it goes on at exactly the next position, also with other
        dp sizes, micro-batches or servers, as long as the data are the same.

        Args:
            next_step: the step to go on with. Default: the one after the last
                whose micro-batches have all been given out.
        """
        self.open()
        number = _abi.AFTER_LAST_STEP if next_step is None else next_step
        data = _abi.take_bytes(
            _abi.library().ballast_shim_checkpoint, self._shims[-1], number
        )
        return {_STATE: data, "next_step": checkpoint_step(data)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Goes on where a `state_dict` says. A loader that is open attaches anew,
        for which it must have no communicators of its caller's making."""
        data = state_dict.get(_STATE)
        if not isinstance(data, (bytes, bytearray)):
            raise InvalidArgument(
                "state_dict: found keys %s; wanted %r with bytes, as Loader.state_dict "
                "answers" % (sorted(map(str, state_dict)), _STATE)
            )
        checkpoint_step(bytes(data))  # raises for what is none
        if self._shims and (self._communicators or self._tensor_communicators):
            raise FailedPrecondition(
                "the loader is open and has taken over its communicators: make "
                "another with state_dict=..."
            )
        self._destroy()
        self._checkpoint = bytes(data)

    # ---- Within ----

    def _array(self, array: Optional[str]) -> Callable[[Tensor], Any]:
        if array is None:
            wants_torch = self._device is not None or "torch" in sys.modules
            array = "torch" if wants_torch else "numpy"
        kinds: Dict[str, Callable[[Tensor], Any]] = {
            "torch": Tensor.torch,
            "numpy": Tensor.numpy,
            "dlpack": lambda tensor: tensor,
        }
        if array not in kinds:
            raise InvalidArgument(
                'array: found %r; wanted "torch", "numpy" or "dlpack"' % (array,)
            )
        if array == "numpy" and self._device is not None:
            raise InvalidArgument('array: "numpy" wants device="cpu"')
        self._torch = array == "torch"
        return kinds[array]

    def _rank(self, key: str, module: str) -> int:
        rank = self._ranks[key]
        if isinstance(rank, int):
            return rank
        if module not in rank:
            raise InvalidArgument("%s: there is none for %s" % (key, module))
        return rank[module]

    def _ends(self, key: str, ends: Ends) -> Dict[str, Communicator]:
        if isinstance(ends, Communicator):
            if len(self._modules) != 1:
                raise InvalidArgument("%s: one is wanted for each module" % key)
            return {self._modules[0]: ends}
        return dict(ends or {})

    def _part(self, module: str, shim: c_void_p, stream: Optional[int]) -> Optional[Part]:
        """A module's next batch, to or from its tensor peers; None at the end."""
        library = _abi.library()
        receives = self._broadcast and self._rank("tp_rank", module) != 0
        call = library.ballast_shim_receive_from_tensor_peer if receives else library.ballast_shim_next
        handle = c_void_p()
        library.ballast_batch_release(self._held.pop(module, None))
        code = call(shim, stream, byref(handle))
        if code == _abi.OUT_OF_RANGE:
            return None
        _abi.check(code)
        self._held[module] = handle
        if self._broadcast and not receives:
            _abi.check(library.ballast_shim_send_to_tensor_peers(shim, stream))
        assert handle.value is not None
        return Part(handle.value)

    def _communicator(self, module: str) -> Optional[Communicator]:
        if self._broadcast and self._rank("tp_rank", module) != 0:
            return None
        if self._communicators or self._device is None:
            return self._communicators.get(module)
        job = self._connection.job()
        if job["delivery"] not in ("exchange", "hybrid"):
            return None
        # Only a vision module's first stage gets anything.
        if module == "vision" and self._rank("pp_rank", module) != 0:
            return None
        return self._meet(job, module, "dp", ("tp_rank", "pp_rank", "cp_rank"))

    def _tensor_peers(self, module: str) -> Optional[Communicator]:
        if not self._broadcast or self._tensor_communicators or self._device is None:
            return self._tensor_communicators.get(module)
        return self._meet(self._connection.job(), module, "tp", ("dp_rank", "pp_rank", "cp_rank"))

    def _meet(
        self, job: Mapping[str, Any], module: str, kind: str, lane: Sequence[str]
    ) -> Optional[Communicator]:
        """The group of a module's `kind` ranks at one place of the others."""
        assert self._device is not None
        size = next((m[kind] for m in job["modules"] if m["module"] == module), 1)
        if size <= 1:
            return None
        place = "/".join("%s%d" % (key[:2], self._rank(key, module)) for key in lane)
        return Communicator.meet(
            self._connection,
            "python/%s/%s/%s" % (module, kind, place),
            self._rank(kind + "_rank", module),
            size,
            device=self._device,
            max_ctas=self._max_ctas,
        )

    def _stream(self) -> int:
        torch = sys.modules.get("torch")
        if self._device is None or torch is None:
            return 0
        return int(torch.cuda.current_stream(self._device).cuda_stream)

    def _release(self) -> None:
        batch, self._current = self._current, None
        if batch is None:
            return
        held = batch._release()
        if held and self._strict:
            raise TensorsStillHeld(
                "step %d, micro-batch %d: still referred to: %s; drop them or clone() "
                "the batch before asking for the next"
                % (batch.step, batch.micro_batch, ", ".join(sorted(set(held))))
            )

    def _destroy(self) -> None:
        if self._current is not None:
            self._current._release()
            self._current = None
        held, self._held = self._held, {}
        for handle in held.values():
            _abi.library().ballast_batch_release(handle)
        shims, self._shims = self._shims, []
        for shim in reversed(shims):
            _abi.library().ballast_shim_destroy(shim)


_PIXEL_TYPES = {name: _abi.DTYPE_NUMBERS[name] for name in ("float32", "bfloat16")}


def one_of(key: str, value: Optional[str], numbers: Mapping[str, int]) -> int:
    """The number of a name; 0, which is the library's default, for None."""
    if value is None:
        return 0
    if value not in numbers:
        raise InvalidArgument("%s: found %r; wanted one of %s" % (key, value, list(numbers)))
    return numbers[value]


def device_number(device: str) -> Optional[int]:
    """Number of the GPU that "cuda", "cuda:N" or a torch.device names; None for
    "cpu"."""
    kind, _, number = str(device).partition(":")
    if kind == "cpu" and not number:
        return None
    if kind != "cuda" or not (number.isdigit() or not number):
        raise InvalidArgument('device: found %r; wanted "cuda", "cuda:N" or "cpu"' % (device,))
    if number:
        return int(number)
    torch = sys.modules.get("torch")
    return torch.cuda.current_device() if torch is not None else 0


def checkpoint_step(data: bytes) -> int:
    """The step that a checkpoint goes on with."""
    info = _abi.sized(_abi.CheckpointInfo)
    _abi.check(_abi.library().ballast_checkpoint_read(data, len(data), byref(info)))
    return int(info.next_step)
