"""The iterator over one rank's batches."""

from __future__ import annotations

import functools
import math
import sys
import weakref
from ctypes import pointer
from typing import Any, Dict, Iterator, List, Literal, Mapping, Optional, Sequence, Union

from . import _lightning, _one_pass, _rerun, _structs, _tried
from ._arguments import (
    NORMALISATIONS,
    PIXEL_TYPES,
    WAYS_TO_TENSOR_PEERS,
    Ends,
    Place,
    Rank,
    current_stream,
    device_number,
    ends_of,
    is_encoder,
    modules_of,
    number_of,
    to_array_of,
    whole,
)
from ._progress import Progress, data_of, state_of, step_of
from ._shims import Shims
from .batch import Batch, batch_of
from .communicator import Communicator
from .connection import Connection, Servers
from .errors import BallastError, FailedPrecondition, InvalidArgument


ModuleName = Literal["vision", "audio", "language"]
Split = Literal["train", "valid", "test"]


class Loader(Progress, Iterator[Batch]):
    """An iterator over this rank's batches, each a dictionary of tensors.

        with ballast.Loader("unix:/run/ballast/a.sock", dp_rank=rank) as loader:
            for batch in loader:
                loss = model(**ballast.adapters.huggingface.packed(batch)).loss

    The tensors are on the trainer's device; they are views of the loader's memory,
    without a copy. They stay valid as long as anything refers to them (see `Batch`).
    While the trainer works on one batch, the next is fetched, exchanged with the other
    ranks and packed.

    The loader opens at `open`, `with` or the first batch, and must be opened after
    fork(): a fork of a process that has opened any loader is refused. One thread uses it;
    `cancel` may be called from any.

    Ctrl-C and signal handlers that raise interrupt a waiting `next` or `open`. The
    loader stays usable: the following `next` returns the batch that was waited for,
    for all modules alike.

    A process with several loaders on one GPU must open all of them before the first
    batch of any, and must ask them in the same order as every other process. One loader
    for both modules does this automatically.

    Args:
        servers: `unix:/path` or `host:port`, several separated by commas or in a
            list, or a `Connection`.
        modules: "vision", "audio", "language" or several: the modules in this process. A batch
            of both has the tensors of both, made from the same samples unless
            `balance.placement` is `split`.
        dp_rank: data-parallel rank, or a rank for each module: {"vision": 0,
            "language": 3}. Default: this process's rank under torchrun, Slurm, MPI or
            torch.distributed, if the job is data parallel alone; 0 in a single process.
            tp_rank, pp_rank and cp_rank (tensor, pipeline and context parallel) likewise
            take a number or a dictionary. Several processes must name their cp_rank.
        device: "cuda" (the current device), "cuda:N", or "cpu".
        array: "torch", "numpy" (`device="cpu"` only), or "dlpack" for `Tensor`
            objects. Default: "torch" if it is imported or the device is a GPU, else
            "numpy".
        communicator: this rank's end of the group of its module's data-parallel ranks
            (with the same tensor, pipeline and context rank), or one for each module.
            Default: on a GPU, or with `exchange`, ranks meet through the servers where
            delivery is `exchange` or `hybrid`.
        exchange: on a CPU, exchange samples with the processes of the module's other
            ranks, over Gloo, where the job's delivery is `exchange` or `hybrid`. All
            ranks of the module must choose the same. Default: the servers deliver
            `direct`, which gives the same batches.
        tensor: "pull": each tensor rank pulls its own batches. "broadcast": tensor
            rank 0 pulls and sends to the others, over NCCL or Gloo.
        tensor_communicator: with "broadcast", this rank's end of the group of tensor
            ranks, or one for each module. Default: met through the servers.
        needs_input_ids, needs_labels: give a language rank these tensors at any
            pipeline stage. Multi-token prediction needs them.
        pixel_type: "float32" or "bfloat16". Default: bfloat16 on a GPU, else float32.
        normalisation: "torchvision" or "pil", after Hugging Face's two image
            processors, which differ in the last bits; "bfloat16" after Llama 4's, which
            computes in that type.
        split: "train", "valid" or "test": whose samples (`sources[].split`). Each split
            has its own steps, from 0 on. Loaders of several splits may be open at the
            same time; each holds up to its own `max_bytes`. A `for` over a loader of
            "valid" or "test" is a pass, and each `for` another one over the same batches,
            as of a DataLoader.
        start_step: first step. Not together with a state_dict, which contains it.
        steps: number of steps, from `start_step` or the step of `state_dict` on: a run of
            1,000 that continues at step 400 passes 600. `load_state_dict` does not move
            the end. Default: until the data end, as 0 of "train"; of "valid" and "test"
            until each sample has occurred. Where steps do not divide the samples, samples
            that have occurred before fill up the last one (`Sample.repeated`), and nothing
            of them is supervised, nor counts as `label_tokens`. `math.inf`: "valid" and
            "test" go on for ever, in another order each time, as one run.
        state_dict: the result of `state_dict`, to continue from there.
        fingerprint: the fingerprint that the job must have. "": any.
        max_bytes: bytes of blocks that each module may hold or have in flight.
            0: 256 MiB.
        overlap: make the next batch on the GPU while the trainer's step runs.
        timeout: seconds after which unfinished work of the GPU counts as hung.
            0: 600.
        max_ctas: limit of thread blocks that an exchange takes from the GPU. 0: from 1 to
            8, by the number of ranks, so that NCCL's buffers stay small (docs/gpu_shim.md).
        max_batches_held: batches that may be held at a time, by their tensors or by
            what autograd saved of them. 0: enough for 1F1B at the job's pipeline
            depth (stages + 2, at least 4), and also for all micro-batches of a step
            where Megatron's rerun state machine, which keeps them, is on when the loader
            opens.
    """

    def __init__(
        self,
        servers: Servers,
        modules: Union[ModuleName, Sequence[ModuleName]] = ("vision", "language"),
        *,
        dp_rank: Optional[Rank] = None,
        tp_rank: Rank = 0,
        pp_rank: Rank = 0,
        cp_rank: Optional[Rank] = None,
        device: str = "cuda",
        array: Optional[Literal["torch", "numpy", "dlpack"]] = None,
        communicator: Ends = None,
        exchange: bool = False,
        tensor: Literal["pull", "broadcast"] = "pull",
        tensor_communicator: Ends = None,
        needs_input_ids: bool = False,
        needs_labels: bool = False,
        pixel_type: Optional[Literal["float32", "bfloat16"]] = None,
        normalisation: Literal["torchvision", "pil", "bfloat16"] = "torchvision",
        split: Split = "train",
        start_step: int = 0,
        steps: Optional[float] = None,
        state_dict: Optional[Mapping[str, Any]] = None,
        fingerprint: str = "",
        max_bytes: int = 0,
        overlap: bool = True,
        timeout: float = 0.0,
        max_ctas: int = 0,
        max_batches_held: int = 0,
    ) -> None:
        super().__init__()
        self._connection = Connection.of(servers)
        self._modules = modules_of(modules)
        self._place = Place(
            {"dp_rank": dp_rank, "tp_rank": tp_rank, "pp_rank": pp_rank, "cp_rank": cp_rank},
            self._modules,
        )
        self._device = device_number(device)
        self._to_array = to_array_of(array, self._device)
        self._broadcast = bool(number_of("tensor", tensor, WAYS_TO_TENSOR_PEERS))
        self._communicators = ends_of("communicator", communicator, self._modules)
        self._tensor_communicators = ends_of(
            "tensor_communicator", tensor_communicator, self._modules
        )
        self._exchanges = exchange or self._device is not None
        self._meeting = _Meeting(self._connection, self._place, self._device, max_ctas, split)
        options = self._options = _structs.sized(_structs.ShimOptions)
        if self._device is None:
            options.backend = _structs.BACKEND_HOST
        else:
            options.backend = _structs.BACKEND_CUDA
            options.device = self._device
        if pixel_type is not None:
            options.pixel_type = number_of("pixel_type", pixel_type, PIXEL_TYPES)
        options.normalisation = number_of("normalisation", normalisation, NORMALISATIONS)
        options.split = number_of("split", split, _structs.SPLITS)
        if steps == 0 and split != "train":
            raise InvalidArgument(
                "steps: found 0; wanted 1 or more, none for one pass over all samples of split %s, "
                "or math.inf for no end" % split
            )
        self._in_passes = split != "train" and steps != math.inf
        self._one_pass = self._in_passes and steps is None
        options.steps = whole("steps", 0 if steps in (None, math.inf) else steps)
        options.fingerprint = fingerprint.encode()
        options.max_bytes = whole("max_bytes", max_bytes)
        options.no_overlap = int(not overlap)
        options.timeout_s = timeout
        options.needs_input_ids = int(needs_input_ids)
        options.needs_labels = int(needs_labels)
        options.max_batches_held = whole("max_batches_held", max_batches_held, 32)
        self._split: Split = split
        self._checkpoint = b""
        self._next_step = self._begin = whole("start_step", start_step)
        self._returned = 0  # batches of `next_step`
        self._ended = False
        self._restart(self._next_step)
        self._closed = False
        self._renew()
        if state_dict is not None:
            if start_step:
                raise InvalidArgument("start_step: found %d with a state_dict" % start_step)
            self.load_state_dict(state_dict)
        if options.steps:
            self._stop = self._next_step + options.steps
        # Where each pass begins, and how many have.
        self._begin_of_pass = self._begin if self._stop is None else self._next_step
        self._passes = 0

    def _renew(self) -> None:
        """Makes the shims, which are opened later."""
        self._job: Optional[Dict[str, Any]] = None
        passive: List[str] = []
        active: List[str] = []
        if self._broadcast:
            for module in self._modules:
                receives = self._place.rank("tp_rank", module) != 0
                (passive if receives else active).append(module)
        self._kept: Optional[Dict[str, Any]] = None  # the last schedule, if batches keep them
        self._shims = Shims(self._modules, receives=passive, sends=active)
        # Closes at exit, too, while threads still run.
        self._finalizer = weakref.finalize(self, self._shims.close)

    # ---- Opening and closing ----

    def open(self) -> Loader:
        """Attaches to the servers and begins to fetch.

        Blocks until the servers have answered and, where samples are exchanged, all
        ranks have met. Ends with Cancelled if `cancel` is called meanwhile.
        """
        if self._closed:
            raise FailedPrecondition("the loader was closed; make another")
        self._shims.open(self._shim_options)
        self._place.warn_if_alone(self._modules, self._shims.job)
        return self

    def close(self) -> None:
        """Ends fetching. Batches that are held stay valid.

        Ranks that still exchange with this one end with an error, unless all steps
        are done.
        """
        self._closed = True
        self._finalizer()

    def __enter__(self) -> Loader:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def cancel(self) -> None:
        """Ends a blocking `open` or `next` with Cancelled, and all later ones.

        The module's other ranks end, too. May be called from any thread and from a
        signal handler.
        """
        self._shims.cancel()

    def _shim_options(self, module: str) -> _structs.ShimOptions:
        """Options of the module's shim. Blocks until its groups have met."""
        self._place.settle(self._connection, self._modules)
        options = _structs.ShimOptions.from_buffer_copy(self._options)
        if not options.max_batches_held and _rerun.mode() is not None:
            options.max_batches_held = _rerun.batches_held(self._connection.job())
        options.module = _structs.MODULES[module]
        if self._stop is not None:
            options.steps = self._stop - self._next_step
        elif self._one_pass:
            options.steps = _structs.ONE_PASS
        for key in Place.KEYS:
            setattr(options, key, self._place.rank(key, module))
        options.connection = pointer(self._connection.raw())
        if self._checkpoint:
            options.checkpoint = self._checkpoint
            options.checkpoint_size = len(self._checkpoint)
        else:
            options.start_step = self._next_step
        data, tensor = self._data_group(module), self._tensor_group(module)
        if data is not None:
            options.communicator = data._take()
        if tensor is not None:
            options.tensor_communicator = tensor._take()
        return options

    def _data_group(self, module: str) -> Optional[Communicator]:
        if self._broadcast and self._place.rank("tp_rank", module) != 0:
            return None
        if self._communicators or not self._exchanges:
            return self._communicators.get(module)
        return self._meeting.data_group(module)

    def _tensor_group(self, module: str) -> Optional[Communicator]:
        if not self._broadcast or self._tensor_communicators:
            return self._tensor_communicators.get(module)
        return self._meeting.tensor_group(module)

    # ---- Batches ----

    def __iter__(self) -> Iterator[Batch]:
        """Of "train" the loader itself, which returns its batches once; of "valid" and "test"
        a pass from the first batch on, or from the `state_dict` that the loader was given.

        A pass after the first attaches to the servers again; all ranks begin it at the same
        place. FailedPrecondition if the caller made the loader's communicators, which are
        used up; and for "train" once it has returned StopIteration: another epoch would train
        on nothing, and Lightning would run epochs without batches for ever.
        """
        if self._in_passes:
            return _Pass(self)
        if self._ended:
            raise FailedPrecondition(
                "this loader has returned all its batches, and another pass would be over none: "
                "set order.epochs or Loader(steps=...) to all that are wanted, or make another "
                "loader for each pass"
            )
        return self

    def __next__(self) -> Batch:
        return self.next()

    def next(self, stream: Optional[int] = None) -> Batch:
        """The next micro-batch. Raises StopIteration at the end, at every call.

        Raises ResourceExhausted, which ends nothing, if `max_batches_held` batches are
        held.

        If a signal handler raises while this waits, nothing is lost: call it again,
        with the same stream, for the same micro-batch.

        Args:
            stream: address of the CUDA stream that waits for the batch. Default:
                torch's current stream if torch is imported, else the default stream.
        """
        if self._step is None:
            _lightning.restore(sys._getframe(1))
            _tried.warn_of_others()
        self.open()
        begin = self._waits()
        raw_stream = current_stream(self._device) if stream is None else stream
        parts = self._shims.next(raw_stream or None)
        if parts is None:
            self._ended = True
            raise StopIteration
        batch = batch_of(parts, self._to_array, self._shims.schedule)
        batch.image_family = self.job["model"].get("image_family") or {}
        model = self.job["model"]
        if batch.dummy_image:
            batch.image_token = int(model["token_ids"]["image"])
            batch.image_merge = int(model["merge"])
        if batch.dummy_clip:
            batch.audio_token = int(model["token_ids"]["audio"])
        step_is_done = batch.micro_batch + 1 == batch.num_micro_batches
        self._next_step = batch.step + int(step_is_done)
        self._returned = 0 if step_is_done else batch.micro_batch + 1
        self._shims.commit()
        if self._kept is not None:
            if self._kept.get("step") != batch.step:
                self._kept = self._shims.schedule()
            batch._schedule = functools.partial(dict, self._kept)
        if self._one_pass and _one_pass.may_repeat(batch, self.job):
            _one_pass.drop_repeated(batch, self.job)
        self._count(batch, begin)
        return batch

    @property
    def split(self) -> Split:
        """The split whose samples the batches hold."""
        return self._split

    @property
    def next_step(self) -> int:
        """The first step that still has batches to return."""
        return self._next_step

    def num_micro_batches(self, step: Optional[int] = None) -> int:
        """Number of micro-batches of a step, the same on every rank; 0 if the step is
        not before the end of the steps or of the data.

        A pipeline schedule needs it before the step's first batch: with
        `packing.mode: scheduled`, `batch.rampup`, `batch.changes`, `batch.tokens` or
        `order.plan` it differs from step to step. Takes no batch. Waits for a server only if
        the loader has not fetched the step's schedule yet. A change of the running job may
        still alter the number of a step beyond the next one.

        Args:
            step: any step. Default: `next_step`.
        """
        self.open()
        return self._shims.num_micro_batches(
            self._next_step if step is None else whole("step", step)
        )

    @property
    def job(self) -> Dict[str, Any]:
        """The job as the servers describe it: `modules`, `global_batch`, `step_ranges`
        (steps of other sizes), `model` with its token ids, `fingerprint`, `splits` and
        so on."""
        if self._job is None:
            self.open()
            self._job = self._shims.job()
        return self._job

    def schedule(self) -> Dict[str, Any]:
        """The schedule of the last batch's step: every sample's cost, reader and
        owner, as `ballastctl schedule --json` prints it."""
        self.open()
        return self._shims.schedule()

    def keep_schedules(self) -> None:
        """Lets each later batch keep its step's schedule, for one that is looked at after
        batches of the next step were taken. Reads the schedule of every step."""
        self._kept = {}

    def report_timing(self, batch: Batch, milliseconds: float, module: str = "") -> bool:
        """Reports to the servers how long forward and backward of a batch took.

        `ballastctl fit-cost` uses it, so only a loader of "train" may report. The
        servers' metrics also receive how long the shim waited for the batch, copied,
        exchanged and packed it. `module` may be omitted if the loader has one.

        Returns whether a server took it. If none does, within a second for each,
        nothing is raised: a timing is only advice and need not be sent again.
        """
        if not module and len(self._modules) != 1:
            raise InvalidArgument("module: found none; wanted one of %s" % self._modules)
        module = module or self._modules[0]
        if module not in self._modules:
            raise InvalidArgument("module: found %r; wanted one of %s" % (module, self._modules))
        self.open()
        try:
            self._shims.report_timing(module, batch.step, batch.micro_batch, milliseconds)
        except InvalidArgument:
            raise
        except BallastError:
            return False
        return True

    # ---- Checkpoints ----

    def state_dict(self, next_step: Optional[int] = None) -> Dict[str, Any]:
        """The data's position, for a checkpoint: the same on every rank.

        A run that loads it continues at exactly the next sample, also with other dp
        sizes, micro-batches or servers, as long as the data are the same.

        Args:
            next_step: the step to continue with. Default: the one after the last step
                whose micro-batches have all been returned.
        """
        self.open()
        self._check_asker(next_step, sys._getframe(1))
        number = self._next_step if next_step is None else whole("next_step", next_step)
        repeated = self._repeated + (self._returned if next_step is None else 0)
        return state_of(self._shims.checkpoint(number), repeated)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continues where a `state_dict` says, to the end that the loader had.

        An open loader attaches again. FailedPrecondition if it cannot, since the caller made
        its communicators, or if the state is not before the end that `steps` gave.
        """
        data = data_of(state_dict, self._split)
        if self._stop is not None and step_of(data) >= self._stop:
            raise FailedPrecondition(
                "load_state_dict: found a state at step %d, and this loader ends before step %d; "
                "make one with state_dict=... and steps=..., which counts from the state"
                % (step_of(data), self._stop)
            )
        self._go_to(step_of(data), data, int(state_dict.get("repeated", 0)))

    def _go_to(self, step: int, checkpoint: bytes, repeated: int) -> None:
        """Makes a step the next one; an open loader attaches again."""
        if self._shims.opened and (self._communicators or self._tensor_communicators):
            raise FailedPrecondition(
                "the loader is open and has used up its communicators: make another loader, for "
                "another pass or with state_dict=..."
            )
        self._finalizer()
        self._checkpoint = checkpoint
        self._next_step = step
        self._returned = 0
        self._repeated = repeated
        self._ended = False
        self._restart(step)
        self._renew()

    def _begin_pass(self) -> int:
        """Goes to the first batch, unless no batch was taken yet; returns the pass's number."""
        if self._ended or self._step is not None:
            self._go_to(self._begin_of_pass, b"", 0)
        self._passes += 1
        return self._passes


class _Pass(Iterator[Batch]):
    """The batches of one pass over a loader of "valid" or "test"."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._number = loader._begin_pass()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._number != self._loader._passes:
            raise FailedPrecondition(
                "found a pass that another `iter` of its loader has ended: a loader has one pass "
                "at a time; make another loader for another"
            )
        return self._loader.next()


class _Meeting:
    """Communicators that a loader makes itself: the groups of one rank, which meet through
    the job's servers, over NCCL on a GPU, else over Gloo."""

    def __init__(
        self, connection: Connection, place: Place, device: Optional[int], max_ctas: int, split: str
    ) -> None:
        # Loaders of two splits meet in separate groups.
        self._prefix = "python" if split == "train" else "python/" + split
        self._connection = connection
        self._place = place
        self._device = device
        self._max_ctas = max_ctas

    def data_group(self, module: str) -> Optional[Communicator]:
        """The module's data-parallel ranks. None if they exchange nothing."""
        job = self._connection.job()
        if job["delivery"] not in ("exchange", "hybrid"):
            return None
        # Only the first pipeline stage of an encoder receives any tensor.
        if is_encoder(module) and self._place.rank("pp_rank", module) != 0:
            return None
        return self._meet(job, module, "dp", ("tp_rank", "pp_rank", "cp_rank"))

    def tensor_group(self, module: str) -> Optional[Communicator]:
        """This rank's group of tensor ranks. None if there is no other tensor rank."""
        return self._meet(self._connection.job(), module, "tp", ("dp_rank", "pp_rank", "cp_rank"))

    def _meet(
        self, job: Mapping[str, Any], module: str, kind: str, lane: Sequence[str]
    ) -> Optional[Communicator]:
        """The group of the module's `kind` ranks that share this rank's numbers in
        `lane`."""
        size = next((m[kind] for m in job["modules"] if m["module"] == module), 1)
        if size <= 1:
            return None
        place = "/".join("%s%d" % (key[:2], self._place.rank(key, module)) for key in lane)
        return Communicator.meet(
            self._connection,
            "%s/%s/%s/%s" % (self._prefix, module, kind, place),
            self._place.rank(kind + "_rank", module),
            size,
            device=self._device,
            max_ctas=self._max_ctas,
        )
