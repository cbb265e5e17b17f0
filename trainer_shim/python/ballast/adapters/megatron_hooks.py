"""The hooks that Megatron's training loops call: data iterators with a state."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, Iterator, List, Mapping, Optional

from ..errors import FailedPrecondition, InvalidArgument

if TYPE_CHECKING:
    from ..batch import Batch
    from ..loader import Loader
    from ..tensor import Totals

Adapter = Callable[[Any], Any]


class Batches(Iterator[Any]):
    """Wraps a loader for Megatron's schedules.

    `DataIterator` without the hooks of Bridge's checkpoint, for loops in which several
    modules would write the state into one folder: `state_dict` has the position.

    Like the loader, it must be used by one thread. With virtual pipeline stages
    `iterators` has one iterator for each model chunk. Every chunk gets every
    micro-batch, and a batch is held until the last chunk has had it, so
    `Loader(max_batches_held=...)` must allow for the number of micro-batches by which
    the first chunk is ahead of the last.

    Args:
        adapter: turns a batch into the trainer's inputs, separately for each chunk.
            None: batches unchanged.
        virtual_stages: model chunks of this rank.
        balance: whether `metrics` includes the balance of the ranks' loads. It reads
            the step's schedule, so set it on one rank only.
        splits: iterators over other splits of the job, by the split's name, whose
            positions `state_dict` and `load_state_dict` include.
        micro_batches: number that the trainer takes of every step, if it does not ask
            for it. FailedPrecondition at a step with another, which would shift all
            later steps. None: the trainer asks.
    """

    def __init__(
        self,
        loader: Loader,
        adapter: Optional[Adapter] = None,
        *,
        virtual_stages: int = 1,
        balance: bool = False,
        splits: Optional[Mapping[str, Batches]] = None,
        micro_batches: Optional[int] = None,
    ) -> None:
        if virtual_stages < 1:
            raise InvalidArgument("virtual_stages: found %d; wanted 1 or more" % virtual_stages)
        self._loader = loader
        self._adapter = adapter or (lambda batch: batch)
        self._balance = balance
        self._splits = dict(splits or {})
        self._micro_batches = micro_batches
        self.iterators: List[Chunk] = [Chunk(self, i) for i in range(virtual_stages)]
        self._metrics: Dict[str, float] = {}
        self._restart()

    def _restart(self) -> None:
        self._held: Deque[Batch] = deque()
        self._first = 0  # number of the first batch that is held
        self._taken = [0] * len(self.iterators)
        self._next_step: Optional[int] = None
        self._step: Dict[str, float] = {}

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        return self.iterators[0].__next__()

    @property
    def loader(self) -> Loader:
        return self._loader

    @property
    def iterable(self) -> Batches:
        """This object, where Megatron's RerunDataIterator has it."""
        return self

    def num_micro_batches(self, step: Optional[int] = None) -> int:
        """Number of micro-batches of the next step, the same on every rank; 0 if there
        is none. Takes no batch: see `Loader.num_micro_batches`.

        Args:
            step: the expected step. Raises FailedPrecondition for another.
        """
        waiting = self._waiting()
        following = self._loader.next_step if waiting is None else waiting.step
        if step is not None and step != following:
            raise FailedPrecondition(
                "step: found %d; the next batch is of step %d: ask before a step's first batch"
                % (step, following)
            )
        return self._loader.num_micro_batches(following)

    def step_totals(self) -> Totals:
        """Sums over all ranks' samples of the next step, the same on every rank, before its
        first batch is given out: for FLOPs and the loss. Takes that batch from the loader
        and holds it, so all ranks call this at the same place, as they call `next`.

        Raises StopIteration at the end of the data, and FailedPrecondition between the
        batches of a step.
        """
        if not self._fetch(max(self._taken)):
            raise StopIteration
        batch = self._waiting()
        assert batch is not None
        if batch.micro_batch != 0:
            raise FailedPrecondition(
                "step_totals: found micro-batch %d of step %d next; ask before a step's first batch"
                % (batch.micro_batch, batch.step)
            )
        return batch.step_totals

    def _waiting(self) -> Optional[Batch]:
        """The batch that is held and no chunk has had, if there is one."""
        number = max(self._taken) - self._first
        return self._held[number] if number < len(self._held) else None

    # ---- Checkpoints ----

    def state_dict(self) -> Dict[str, Any]:
        """The data's position: the step after the last one whose micro-batches every
        chunk has had. Equal on all ranks that are at the same step. Under the key
        `splits` the positions of the other splits, if there are any."""
        if self._next_step is None and self._held:
            self._next_step = self._held[0].step
        state = self._loader.state_dict(self._next_step)
        if self._splits:
            state["splits"] = {name: of.state_dict() for name, of in self._splits.items()}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues at the position of a `state_dict`, also with other dp sizes. A split
        that the state does not name stays where it is, and one that the job no longer
        has is ignored. Errors: as Loader.load_state_dict."""
        self._loader.load_state_dict(state)
        self._restart()
        for name, of_split in state.get("splits", {}).items():
            if name in self._splits:
                self._splits[name].load_state_dict(of_split)

    # ---- Logging ----

    def metrics(self) -> Dict[str, float]:
        """Numbers of the last complete step for TensorBoard or W&B, by name; empty
        before the first.

        `ballast/step`, `ballast/wait_ms` (this rank's time in the loader),
        `ballast/micro_batches`, `ballast/tokens`, `ballast/patches`, `ballast/images`,
        `ballast/label_tokens` (of all ranks), `ballast/read_bytes`,
        `ballast/moved_bytes` (this rank's). With `balance`, for each module M
        `ballast/M/imbalance` and `ballast/M/imbalance_before`: the largest rank's load
        over the mean, averaged over micro-batches, with and without reordering.
        """
        return dict(self._metrics)

    def shutdown(self) -> None:
        """Closes the loader and the loaders of other splits, as Bridge's trainer does when
        its loop is over."""
        self._held.clear()
        self._loader.close()
        for of_split in self._splits.values():
            of_split.shutdown()

    # ---- Within ----

    def take(self, chunk: int) -> Any:
        """The next batch of a chunk, through the adapter."""
        number = self._taken[chunk]
        if not self._fetch(number):
            raise StopIteration
        batch = self._held[number - self._first]
        self._taken[chunk] = number + 1
        while self._held and min(self._taken) > self._first:
            self._done(self._held.popleft())
            self._first += 1
        return self._adapter(batch)

    def _fetch(self, number: int) -> bool:
        """Whether batch `number` is held; takes it from the loader if need be."""
        while number >= self._first + len(self._held):
            begun = time.perf_counter()
            batch = next(self._loader, None)
            if batch is None:
                return False
            waited = (time.perf_counter() - begun) * 1e3
            self._check_count(batch)
            self._count(batch, waited)
            self._held.append(batch)
        return True

    def _check_count(self, batch: Batch) -> None:
        if self._micro_batches is None or self._micro_batches == batch.num_micro_batches:
            return
        raise FailedPrecondition(
            "step %d: found %d micro-batches; the trainer takes %d of every step, and would train "
            "on parts of two steps from here on: leave out batch.rampup, batch.changes, "
            "batch.tokens, batch.packs, order.plan and packing.mode: scheduled, or take a loop "
            "that asks num_micro_batches(step)"
            % (batch.step, batch.num_micro_batches, self._micro_batches)
        )

    def _count(self, batch: Batch, waited: float) -> None:
        if batch.micro_batch == 0:
            total = batch.step_totals
            self._step = {
                "step": batch.step, "micro_batches": batch.num_micro_batches,
                "tokens": total.tokens, "patches": total.patches, "images": total.images,
                "label_tokens": total.label_tokens, "wait_ms": 0.0,
                "read_bytes": 0.0, "moved_bytes": 0.0,
            }  # fmt: skip
            if self._balance:
                self._step.update(imbalance(self._loader.schedule()))
        if self._step:
            self._step["wait_ms"] += waited
            self._step["read_bytes"] += batch.bytes_read
            self._step["moved_bytes"] += batch.bytes_moved
        if batch.micro_batch + 1 == batch.num_micro_batches:
            self._metrics = {"ballast/" + key: value for key, value in self._step.items()}

    def _done(self, batch: Batch) -> None:
        last = batch.micro_batch + 1 == batch.num_micro_batches
        self._next_step = batch.step + 1 if last else batch.step


class DataIterator(Batches):
    """Wraps a loader for Megatron's schedules, and for the checkpoints of Bridge's loops
    with one model: not for its MIMO loop, in which each module would remove and write
    the same folder.

        iterator = DataIterator(loader, Mimo(loader))
        while training:
            schedule(data_iterator=iterator, num_microbatches=iterator.num_micro_batches())

    Bridge looks for `save_state` and `restore_state` on `iterable`; they are
    `state_dict` and `load_state_dict`.

    Args: as Batches.
    """

    save_state = Batches.state_dict
    restore_state = Batches.load_state_dict
    load_state = Batches.load_state_dict


class Chunk(Iterator[Any]):
    """The batches of one model chunk."""

    def __init__(self, iterable: Batches, number: int) -> None:
        self.iterable = iterable
        self._number = number

    def __next__(self) -> Any:
        return self.iterable.take(self._number)


def imbalance(schedule: Mapping[str, Any]) -> Dict[str, float]:
    """Largest load over mean load of a step's micro-batches, on average, by module."""
    ratios: Dict[str, List[float]] = {}
    for micro_batch in schedule["micro_batches"]:
        for module, loads in micro_batch["load"].items():
            for key, name in (("after", "/imbalance"), ("before", "/imbalance_before")):
                total = sum(loads[key])
                ratio = max(loads[key]) * len(loads[key]) / total if total else 1.0
                ratios.setdefault(module + name, []).append(ratio)
    return {name: sum(values) / len(values) for name, values in ratios.items()}
