"""The progress of a loader: its length, its step, its state for a checkpoint, and figures for a
trainer's log."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from types import FrameType
from typing import Any, Dict, Mapping, Optional, Union

from . import _abi, _structs
from ._lightning import is_lightning
from .batch import Batch
from .errors import FailedPrecondition, InvalidArgument

Figure = Union[int, float]
_KEY = "ballast_checkpoint"


def batches_between(job: Mapping[str, Any], first: int, end: int) -> int:
    """Micro-batches, as they are read, of the steps from `first` to before `end`.

    TypeError if only the schedules of these steps have the number.
    """
    ranges = job["step_ranges"] or [{"first_step": 0, "samples": job["global_batch"]}]
    total = 0
    for i, steps in enumerate(ranges):
        begin = max(first, steps["first_step"])
        stop = min(end, ranges[i + 1]["first_step"]) if i + 1 < len(ranges) else end
        if stop > begin and not steps["samples"]:
            raise TypeError(
                "steps from %d on differ in size (order.plan, batch.tokens, "
                "batch.packs), so this loader's length is known only at its end: ask "
                "num_micro_batches(step)" % steps["first_step"]
            )
        total += max(0, stop - begin) * (steps["samples"] // job["micro_batch"])
    return int(total)


class Progress(ABC):
    """The progress that `Loader` reports."""

    _begin: int = 0  # the run's first step, from which its length counts
    _first_step: int = 0  # where the loader began or continued
    _stop: Optional[int] = None  # the step after the last one that `steps` allows
    _one_pass: bool = False  # it ends when every sample of `valid` or `test` has occurred
    _repeated: int = 0  # batches of unfinished steps from which the run continued
    _step: Optional[int] = None

    def __init__(self) -> None:
        self._sums: Dict[str, int] = {}
        self._waited = 0.0
        self._last_wait = 0.0
        self._began: Optional[float] = None

    @property
    @abstractmethod
    def job(self) -> Dict[str, Any]:
        """The job as the servers describe it."""

    @property
    @abstractmethod
    def next_step(self) -> int:
        """The first step that still has batches to return."""

    @abstractmethod
    def num_micro_batches(self, step: Optional[int] = None) -> int:
        """Number of micro-batches of a step."""

    @abstractmethod
    def schedule(self) -> Dict[str, Any]:
        """The schedule of the last batch's step."""

    def __len__(self) -> int:
        """Batches from the run's start to its end, as Lightning and Hugging Face's Trainer
        count them: a loader that continues from a `state_dict` includes those before it.

        Starts at `start_step`, and with a `state_dict` at step 0. A state within a step adds
        the step's batches that were returned before, since they come again. TypeError, as for
        any iterator without a length, if neither `steps` nor the data end it, or if only the
        schedules have the number: if steps differ in size
        (`order.plan`, `batch.tokens`, `batch.packs`), are packed by `packing.mode: scheduled`,
        or have other sizes since a change of the running job. Waits for a server if the loader
        is not open yet.
        """
        one_pass = self.job.get("one_pass") if self._one_pass else None
        end = one_pass["end_step"] if one_pass else self.job["end_step"] or None
        if self._stop is not None:
            end = self._stop if end is None else min(end, self._stop)
        if end is None:
            raise TypeError(
                "this loader has no end, so no length: set Loader(steps=...) or, in the "
                "configuration, order.epochs or order.plan"
            )
        found = batches_between(self.job, self._begin, end)
        if self.job["counts_in_schedules"]:
            raise TypeError(
                "each step has its own number of batches (packing.mode: scheduled, or a change of "
                "the running job), so this loader's length is known only at its end: ask "
                "num_micro_batches(step)"
            )
        return found + self._repeated

    def _check_asker(self, next_step: Optional[int], frame: FrameType) -> None:
        """Refuses Lightning's functions the state after the last batch returned, if the
        loader has no length: Lightning then holds a batch that no step has trained on yet,
        and a run that continued from the state would skip that batch."""
        if next_step is not None or not is_lightning(frame):
            return
        try:
            len(self)
        except TypeError as error:
            raise FailedPrecondition(
                "state_dict: Lightning fetches a batch ahead of a loader without a length, and its "
                "checkpoint would leave that batch out (%s). Or give Lightning the batches alone, "
                "fit(model, iter(loader.next, None)), and keep loader.state_dict(next_step=...) in "
                "on_save_checkpoint, with the step after the last one trained" % error
            ) from None

    def __bool__(self) -> bool:
        return True  # not whether __len__ is 0, which asks a server

    @property
    def step(self) -> int:
        """The step of the last batch; before the first batch, the next step."""
        return self._first_step if self._step is None else self._step

    def report(self) -> Dict[str, Figure]:
        """Figures for a trainer's log, all numbers: `wandb.log(loader.report())`.

        About the last batch: `step`, `micro_batch`, `wait_ms` (how long `next` took:
        near 0 if data are ahead of the trainer). Since the loader was made, of this
        rank: `batches`, `samples`, `tokens`, `label_tokens`, `images`, `patches`,
        `bytes_read`, `bytes_moved` (sent to other ranks), `seconds` since the first
        `next`, `wait_seconds` in `next`, `samples_per_second`, `tokens_per_second`.
        About the last batch's step, for each module: `vision_load_before`,
        `vision_load_after`, …: the load of the heaviest rank over the mean, summed over
        its micro-batches, as read and as balanced. Waits for nothing.
        """
        figures: Dict[str, Figure] = {"step": self.step}
        figures.update(self._sums)
        seconds = 0.0 if self._began is None else time.perf_counter() - self._began
        figures["seconds"] = seconds
        figures["wait_seconds"] = self._waited
        figures["wait_ms"] = 1e3 * self._last_wait
        if self._step is None:
            return figures
        for key in ("samples", "tokens"):
            figures[key + "_per_second"] = self._sums[key] / seconds
        figures.update(_loads(self.schedule()))
        return figures

    def _restart(self, first_step: int) -> None:
        """The next batch is of `first_step`; the sums continue."""
        self._first_step = first_step
        self._step = None

    def _waits(self) -> float:
        """The time at which a `next` begins."""
        now = time.perf_counter()
        if self._began is None:
            self._began = now
        return now

    def _count(self, batch: Batch, begin: float) -> None:
        """Adds a batch whose `next` began at `begin`."""
        self._last_wait = time.perf_counter() - begin
        self._waited += self._last_wait
        self._step = batch.step
        sums = self._sums
        sums["micro_batch"] = batch.micro_batch
        sums["batches"] = sums.get("batches", 0) + 1
        for key in ("samples", "tokens", "label_tokens", "images", "patches"):
            sums[key] = sums.get(key, 0) + getattr(batch.totals, key)
        for key in ("bytes_read", "bytes_moved"):
            sums[key] = sums.get(key, 0) + getattr(batch, key)


def _loads(schedule: Mapping[str, Any]) -> Dict[str, Figure]:
    """{"vision_load_before": heaviest over mean, …} of a step."""
    figures: Dict[str, Figure] = {}
    micro_batches = schedule["micro_batches"]
    for module in micro_batches[0]["load"] if micro_batches else ():
        for when in ("before", "after"):
            loads = [micro_batch["load"][module][when] for micro_batch in micro_batches]
            heaviest = sum(max(ranks) for ranks in loads)
            mean = sum(sum(ranks) / len(ranks) for ranks in loads)
            figures["%s_load_%s" % (module, when)] = heaviest / mean if mean else 1.0
    return figures


def step_of(data: bytes) -> int:
    """The step that a run continues with. Raises if `data` is not a checkpoint."""
    return int(_info(data).next_step)


def _info(data: bytes) -> _structs.CheckpointInfo:
    return _abi.fill(_structs.CheckpointInfo, "ballast_checkpoint_read", data, len(data))


def state_of(data: bytes, repeated: int) -> Dict[str, Any]:
    """What `Loader.state_dict` returns."""
    return {_KEY: data, "next_step": step_of(data), "repeated": repeated}


def data_of(state: Mapping[str, Any], split: str) -> bytes:
    """The checkpoint in a result of `Loader.state_dict`. Raises if there is none, or if
    it is another split's."""
    data = state.get(_KEY)
    if not isinstance(data, (bytes, bytearray)):
        raise InvalidArgument(
            "state_dict: found keys %s; wanted %r with bytes, as Loader.state_dict returns"
            % (sorted(map(str, state)), _KEY)
        )
    number = _info(bytes(data)).split
    if number != _structs.SPLITS[split]:
        names = {value: name for name, value in _structs.SPLITS.items()}
        raise InvalidArgument(
            "state_dict: found a state of split %s; wanted %s, the loader's split: keep a state "
            "for each split's loader, and give each its own" % (names.get(number, number), split)
        )
    return bytes(data)
