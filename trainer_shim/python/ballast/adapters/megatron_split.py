"""`balance.placement: split` in Megatron-Core's pipelines whose modules have ranks of their
own (`topology.colocated: false`): Megatron-Core 0.19's MultiModulePipelineCommunicator moves
embeddings by the batches' plans, between any numbers of ranks of encoders and language."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Tuple

from ..errors import FailedPrecondition
from ._encoder_inputs import media_tokens
from ._layout import Layout

if TYPE_CHECKING:
    from ..batch import Batch
    from ..loader import Loader

__all__ = ["Batches", "pipeline_communicator"]


class Batches(Iterator[Any]):
    """A loader's batches for Megatron's schedule, which the communicator may see before the
    forward step takes them: a language rank receives the embeddings of a batch first.

        batches = megatron_split.Batches(loader)
        communicator = megatron_split.pipeline_communicator(batches, grids, topology, config)
        to_mimo = megatron_bridge.Mimo(loader, model=model, batches=batches)
        ... forward_backward_func(data_iterator=batches, p2p_communicator=communicator, ...)

    To run over other batches, such as validation's, set `communicator.batches` to theirs.

    Raises FailedPrecondition unless the job has `balance.placement: split` and modules on
    separate ranks.
    """

    def __init__(self, loader: Loader) -> None:
        layout = Layout.of(loader.job)
        if not layout.apart:
            raise FailedPrecondition(
                "topology.colocated: found %s with balance.placement `%s`; wanted false with "
                "`split`: without embedding plans Megatron-Core's own communicator moves the rows"
                % (str(layout.colocated).lower(), "split" if layout.split else "paired")
            )
        #: `Loader.job`.
        self.job: Mapping[str, Any] = loader.job
        #: In a job with videos, the tokens of images and of videos.
        self.videos: Optional[Tuple[int, int]] = media_tokens(self.job["model"])
        self._loader = loader
        self._next: Optional[Batch] = None
        #: The batch that was taken last.
        self.taken: Optional[Batch] = None

    def peek(self) -> Batch:
        """The batch that `next` is going to return."""
        if self._next is None:
            self._next = next(self._loader)
        return self._next

    def __next__(self) -> Batch:
        self.taken, self._next = self.peek(), None
        return self.taken


def pipeline_communicator(
    batches: Batches,
    module_to_grid_map: Dict[str, Any],
    topology: Dict[str, List[str]],
    config: Any,
    dim_mapping: Optional[Dict[str, int]] = None,
    module_output_ndim: Optional[Dict[str, int]] = None,
    modules: Optional[Mapping[str, str]] = None,
) -> Any:
    """Megatron-Core's MultiModulePipelineCommunicator, made of the same arguments, in which
    the rows of each encoder go to the ranks that train on their text.

    All processes make it at the same place. Embeddings and gradients have groups of their
    own, sends are not waited for, and each receipt is checked for the micro-batch that it
    belongs to (`ballast.exchange_embeddings`). Of tensor ranks one exchanges, as in
    Megatron-Core, and gives the rows to the others. `config` is the language model's:
    `pipeline_dtype` and `hidden_size` are the rows'.

    Args:
        modules: with several encoders, the job's for each of the trainer's whose name is
            another: {"images": "vision", "audios": "audio"}.

    Raises FailedPrecondition for an encoder in a pipeline, and unless each encoder of the
    trainer feeds the language model and is one of the job's.
    """
    encoders = _encoders(topology, batches.job, modules)
    made = importlib.import_module("ballast.adapters._split_bridge")
    return made.SplitPipelineCommunicator(
        batches, encoders, module_to_grid_map, topology, config, dim_mapping, module_output_ndim
    )


def _encoders(
    topology: Mapping[str, List[str]], job: Mapping[str, Any], modules: Optional[Mapping[str, str]]
) -> Dict[str, str]:
    """The job's encoder of each of the trainer's."""
    sources = [source for source, to in topology.items() if to]
    if any(len(to) > 1 or topology[to[0]] for to in topology.values() if to):
        raise FailedPrecondition(
            "topology: found %s; wanted encoders that feed the language model alone: a batch has "
            "a plan of each encoder's rows" % (dict(topology),)
        )
    wanted = [entry["module"] for entry in job["modules"] if entry["module"] != "language"]
    given = dict(modules or {})
    found = {source: given.get(source, source) for source in sources}
    if len(sources) == len(wanted) == 1 and not given:
        return {sources[0]: wanted[0]}
    if sorted(found.values()) != sorted(wanted) or set(given) - set(sources):
        raise FailedPrecondition(
            "modules: found the trainer's encoders as %s; the job's are %s: say which is which, "
            'pipeline_communicator(..., modules={"images": "vision", "audios": "audio"})'
            % (found, ", ".join(wanted))
        )
    return found
