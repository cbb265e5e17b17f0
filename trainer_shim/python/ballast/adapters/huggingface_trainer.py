"""The data of Hugging Face's `Trainer`: batches for its loop, and their position in its
checkpoints."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Mapping, Optional

from ..errors import FailedPrecondition
from .huggingface import packed

if TYPE_CHECKING:
    from ..batch import Batch
    from ..loader import Loader

#: The callback's key in the trainer's state; the class below has its name.
_NAME = "LoaderPosition"
_BYTES = "ballast_checkpoint"


class Batches:
    """A loader's batches as a model's arguments, for `Trainer.get_train_dataloader`.

        class Trainer(transformers.Trainer):
            def get_train_dataloader(self):
                return huggingface_trainer.Batches(loader, self.args)

    Raises FailedPrecondition with the first batch of a step that has another number of
    micro-batches than `gradient_accumulation_steps`: the Trainer's steps would not be the
    loader's.

    Args:
        args: the Trainer's `TrainingArguments`.
        inputs: a function of a batch, such as `huggingface_families.Family(config).packed`.
    """

    def __init__(
        self, loader: Loader, args: Any, inputs: Callable[[Batch], Mapping[str, Any]] = packed
    ) -> None:
        self._loader, self._args, self._inputs = loader, args, inputs

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        accumulation = self._args.gradient_accumulation_steps
        for batch in self._loader:
            if batch.num_micro_batches != accumulation:
                raise FailedPrecondition(
                    "step %d: found %d micro-batches, and gradient_accumulation_steps is %d; set "
                    "it to batch.global / batch.micro of the configuration. The Trainer cannot "
                    "take steps of several sizes, nor packing.mode: scheduled"
                    % (batch.step, batch.num_micro_batches, accumulation)
                )
            yield self._inputs(batch)


def checkpoints(loader: Loader) -> Any:
    """A callback for `Trainer(callbacks=[...])` that saves the loader's position in each
    checkpoint, and goes there where the Trainer resumes from one.

        trainer = Trainer(..., callbacks=[huggingface_trainer.checkpoints(loader)])
        trainer.train(resume_from_checkpoint=True)

    The position is in `trainer_state.json`, the same for all ranks, and is the step after the
    last one that was trained, whatever was fetched ahead. It sets `ignore_data_skip`, since a
    Trainer that resumes would otherwise pass over as many batches again. The end of the run
    stays where the loader's `steps` put it.

    Raises FailedPrecondition while training if the Trainer's steps are not the loader's, or if
    it resumes from a checkpoint that has no position. Wants transformers.
    """
    from transformers.trainer_callback import ExportableState, TrainerCallback

    class LoaderPosition(TrainerCallback, ExportableState):
        """One loader's: transformers makes another by `type(callback)()` where
        `restore_callback_states_from_checkpoint` is set."""

        position: Optional[Dict[str, Any]] = None
        _begin = _trained = 0  # the loader's step, and the Trainer's, where it began
        _training = False

        def state(self) -> Dict[str, Any]:
            position = self._position() if self._training else None
            return {"args": {}, "attributes": {"position": position}}

        def _position(self) -> Dict[str, Any]:
            step = self._begin + self._trained
            if loader.next_step not in (step, step + 1):
                raise FailedPrecondition(
                    "the Trainer has trained to before step %d, and its loader has returned "
                    "batches to before step %d; wanted as many: set gradient_accumulation_steps to "
                    "batch.global / batch.micro of the configuration, and take "
                    "huggingface_trainer.Batches" % (step, loader.next_step)
                )
            state = loader.state_dict(next_step=step)
            return {**state, _BYTES: base64.b64encode(state[_BYTES]).decode()}

        def on_init_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            args.ignore_data_skip = True

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step:
                _resume(loader, args, state)
            self._begin = loader.next_step - state.global_step
            self._trained = state.global_step
            self._training = True

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._trained = state.global_step

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._training = False

    assert LoaderPosition.__name__ == _NAME
    return LoaderPosition()


def _resume(loader: Loader, args: Any, state: Any) -> None:
    """Moves the loader to the position in the state that the Trainer has read."""
    if not args.ignore_data_skip:
        raise FailedPrecondition(
            "ignore_data_skip: found False; wanted True: the Trainer would pass over batches of a "
            "loader that continues behind them. Give the callback to the Trainer's constructor, "
            "which then sets it"
        )
    saved = state.stateful_callbacks.get(_NAME) or {}
    position = saved.get("attributes", {}).get("position") if isinstance(saved, dict) else None
    if not position:
        raise FailedPrecondition(
            "the checkpoint of step %d was saved without the loader's position (%s in "
            "trainer_state.json): resume without the callback, and with "
            "Loader(start_step=...), if its steps were the loader's" % (state.global_step, _NAME)
        )
    loader.load_state_dict({**position, _BYTES: base64.b64decode(position[_BYTES])})
