"""A rank's packed batch of one micro-batch."""

from __future__ import annotations

import copy
import difflib
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Union
from typing import overload

from . import _structs
from ._tensors import NumberName, TensorName
from .errors import FailedPrecondition, InvalidArgument
from .tensor import ClonedPart, Part, Sample, Tensor, Totals

if TYPE_CHECKING:
    _Base = Dict[str, Any]
else:
    _Base = dict


class Batch(_Base):
    """A dictionary of tensors, with numbers about the batch as attributes.

    A rank has the tensors of its place: with `language` the tensors of the text and
    `max_seqlen` (an int), with `vision` the tensors of images and videos and
    `vision_max_seqlen` (an int), with `audio` the tensors of audio, with several
    modules all of theirs. `tensor_table` lists every
    tensor with its type, its shape and the ranks that receive it; docs/thd_format.md
    explains each. Small tensors also exist in host memory, named `cu_seqlens_host` and
    so on.

    **Lifetime.** The tensors are views of the loader's memory, which stays unchanged
    as long as anything refers to it: this object, a tensor, or what autograd saved.
    Once nothing refers to it, it is reused after the work enqueued by then on the
    stream of `next` is done; `record_stream` adds other streams. A loader has memory
    for `max_batches_held` batches: a `next` beyond that raises ResourceExhausted and
    names the holders.

    `copy.copy` shares the tensors, `copy.deepcopy` is `clone`, and a pickle has its own
    tensors, as `clone` has, without the step's schedule. `to` is for trainers that send a
    batch to a device (Accelerate, Lightning). A batch that is made of the items of another,
    `Batch(items)`, as Hugging Face's Trainer makes one, has tensors alone.
    """

    step: int  #: optimizer step
    micro_batch: int  #: number within the step
    num_micro_batches: int  #: micro-batches of the step, the same on every rank
    max_seqlen: int  #: longest padded sample; 0 without text
    #: longest attention segment of an image or a video; 0 without both
    vision_max_seqlen: int
    #: The last image belongs to no sample. Multiply the vision tower's output for it
    #: by zero, so that gradients flow on every rank.
    dummy_image: bool
    #: Likewise the last clip of audio: its rows of `input_features` are zeros.
    dummy_clip: bool
    #: With a dummy image: the id of the token that stands for an image; else 0.
    image_token: int
    #: Likewise the patches of a side that become one token.
    image_merge: int
    #: With a dummy clip: the id of the token that stands for audio; else 0.
    audio_token: int
    #: The job's `model.image_family`, as the servers filled it in; empty for Qwen's models.
    image_family: Dict[str, Any]
    bytes_read: int  #: bytes of the blocks that were pulled
    bytes_moved: int  #: bytes sent to other ranks
    totals: Totals  #: this rank's samples
    micro_batch_totals: Totals  #: all ranks' samples of this micro-batch
    step_totals: Totals  #: all ranks' samples of the step
    #: The numbers of sources[].fields, by name: [sequences], one a sample and two a
    #: preference pair, or like `input_ids` for those
    #: of turns and tokens. Empty on a rank without text.
    fields: Dict[str, Any]

    def __init__(self, items: Mapping[str, Any] = {}) -> None:
        super().__init__(items)
        self._parts: Sequence[Union[Part, ClonedPart]] = []
        self._samples: Optional[List[Sample]] = None
        self._schedule: Optional[Callable[[], Any]] = None
        self._counts: Optional[Dict[str, List[int]]] = None
        self.fields = {}
        self.image_token = self.image_merge = self.audio_token = 0
        self.image_family = {}

    if TYPE_CHECKING:
        # A key that no batch has is found before it runs. A key in a variable of type
        # str is one for `get`.
        @overload  # type: ignore[override]
        def __getitem__(self, name: NumberName) -> int: ...
        @overload
        def __getitem__(self, name: TensorName) -> Any: ...
        def __getitem__(self, name: str) -> Any: ...

    def __missing__(self, name: str) -> Any:
        near = difflib.get_close_matches(str(name), self, 1)
        raise KeyError(
            "%r: found no such tensor; %swanted one of %s, as this rank's modules have"
            % (name, "did you mean %r? " % near[0] if near else "", ", ".join(self))
        )

    @property
    def samples(self) -> List[Sample]:
        """The samples, in the order in which they are packed."""
        if self._samples is None:
            self._samples = self._parts[-1].samples()  # type: ignore[union-attr]
        return self._samples

    @property
    def images_per_sample(self) -> List[int]:
        """The number of images of each of `samples`, from the step's schedule. Videos do
        not count."""
        return self._per_sample("images")

    @property
    def videos_per_sample(self) -> List[int]:
        """The number of videos of each of `samples`, from the step's schedule."""
        return self._per_sample("videos")

    @property
    def clips_per_sample(self) -> List[int]:
        """The number of clips of audio of each of `samples`, from the step's schedule."""
        return self._per_sample("clips")

    def _per_sample(self, kind: str) -> List[int]:
        if self._counts is None:
            found = {
                sample["position"]: sample
                for micro_batch in self.step_schedule()["micro_batches"]
                for sample in micro_batch["samples"]
            }
            self._counts = {
                key: [found[sample.position].get(key, 0) for sample in self.samples]
                for key in ("images", "videos", "clips")
            }
        return self._counts[kind]

    def step_schedule(self) -> Any:
        """The schedule of the batch's step, as `Loader.schedule` has it. Raises
        FailedPrecondition once the loader is at another step, unless it keeps them
        (`Loader.keep_schedules`)."""
        if self._schedule is None:
            raise FailedPrecondition(
                "the schedule of a batch that was pickled, or made of another's items: it has "
                "none; ask the loader's batch, before"
            )
        schedule = self._schedule()
        if schedule["step"] != self.step:
            raise FailedPrecondition(
                "the schedule of step %d: the loader is at step %d; read it, and numbers of "
                "images, videos or clips a sample, before the next batch is requested, or call "
                "keep_schedules() of the loader first" % (self.step, schedule["step"])
            )
        return schedule

    def clone(self) -> Batch:
        """A copy in its own memory, which does not count as held. On a GPU the copy is
        enqueued on the current stream."""
        return self._with(_clone)

    def to(self, device: Any, non_blocking: bool = False) -> Batch:
        """The batch with its tensors on a device of torch's; those that are there already are
        not copied, and those in host memory by their name (`_host`) stay there."""
        made = copy.copy(self)
        made.fields = {}
        for of, items in ((made, self), (made.fields, self.fields)):
            for key, value in items.items():
                if not key.endswith("_host"):
                    of[key] = _sent(value, device, non_blocking)
        return made

    def _with(self, of: Callable[[Any], Any]) -> Batch:
        """A copy whose tensors `of` makes, without the loader's memory."""
        made = copy.copy(self)
        if self._parts:
            made._samples = list(self.samples)
        made._parts = [ClonedPart(part) for part in self._parts]
        made.fields = {key: of(value) for key, value in self.fields.items()}
        for key, value in self.items():
            made[key] = of(value)
        return made

    def __copy__(self) -> Batch:
        return Batch(self)._filled(self.__dict__)

    def __deepcopy__(self, memo: Any) -> Batch:
        return self.clone()

    def __reduce__(self) -> Any:
        cloned = self.clone()
        return _unpickled, (dict(cloned.items()), {**cloned.__dict__, "_schedule": None})

    def _filled(self, attributes: Mapping[str, Any]) -> Batch:
        self.__dict__.update(attributes)
        return self

    def __getattr__(self, name: str) -> Any:
        if name in Batch.__annotations__:
            raise AttributeError(
                "%s: found a batch that was made of another's items, as trainers do on the way to "
                "a device; it has tensors alone: ask the loader's batch" % name
            )
        raise AttributeError(name)

    def digest(self, stream: int = 0) -> str:
        """A digest of all tensors, for tests: equal batches have equal digests.

        Waits for the device. With two modules, their digests are joined by "+".
        """
        return "+".join(part.digest(stream or None) for part in self._parts)

    def record_stream(self, stream: int) -> None:
        """Names another CUDA stream, by its address, whose work reads the tensors.

        That stream must wait for the stream of `next`. The memory is reused only after
        the work that is on the stream when the last tensor is dropped.
        """
        for part in self._parts:
            part.record_stream(stream or None)


def _unpickled(items: Mapping[str, Any], attributes: Mapping[str, Any]) -> Batch:
    return Batch(items)._filled(attributes)


def _sent(value: Any, device: Any, non_blocking: bool) -> Any:
    if isinstance(value, Tensor):
        raise InvalidArgument(
            'to: a loader with array="dlpack" has no tensors of torch: take array="torch"'
        )
    send = getattr(value, "to", None)
    return value if send is None else send(device, non_blocking=non_blocking)


def _clone(value: Any) -> Any:
    if isinstance(value, Tensor):
        raise InvalidArgument(
            'clone: a loader with array="dlpack" cannot copy; copy the arrays that you make of '
            "its tensors"
        )
    copy_of = getattr(value, "clone", None) or getattr(value, "copy", None)
    return copy_of() if copy_of else value


_FIELD = "fields."
_INFO_ONE = ("step", "micro_batch", "num_micro_batches")
_INFO_LARGEST = ("max_seqlen", "vision_max_seqlen")
_INFO_SUM = ("bytes_read", "bytes_moved")


def batch_of(
    parts: List[Part], to_array: Callable[[Tensor], Any], schedule: Callable[[], Any]
) -> Batch:
    """One dictionary of all modules' parts of a micro-batch, vision first."""
    batch = Batch()
    batch._parts = parts
    batch._schedule = schedule
    for key in _INFO_ONE:
        setattr(batch, key, getattr(parts[-1].info, key))
    for key in _INFO_LARGEST:
        setattr(batch, key, max(getattr(part.info, key) for part in parts))
    for key in _INFO_SUM:
        setattr(batch, key, sum(getattr(part.info, key) for part in parts))
    audio = [part for part in parts if part.info.module == _structs.MODULES["audio"]]
    batch.dummy_image = any(part.info.dummy_image for part in parts if part not in audio)
    batch.dummy_clip = any(part.info.dummy_image for part in audio)
    batch.totals, batch.micro_batch_totals, batch.step_totals = (
        parts[-1].totals(of) for of in range(3)
    )
    for part in parts:
        for raw in part.tensors():
            tensor = Tensor(raw, part)
            if tensor.name.startswith(_FIELD):
                batch.fields[tensor.name[len(_FIELD) :]] = to_array(tensor)
            else:
                batch[tensor.name] = to_array(tensor)
        if part.info.module == _structs.MODULES["language"]:
            batch["max_seqlen"] = batch.max_seqlen
        elif part not in audio:
            batch["vision_max_seqlen"] = batch.vision_max_seqlen
    return batch
