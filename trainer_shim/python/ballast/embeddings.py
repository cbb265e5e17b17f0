"""Moves the embeddings of images from the ranks that made them to the ranks that need
them (`balance.placement: split`)."""

from __future__ import annotations

from typing import Any, List, Mapping

from .errors import InvalidArgument
from .tensor import Tensor, check_same_samples


def exchange_embeddings(
    embeddings: Any, batch: Mapping[str, Any], group: Any = None, *, frozen: bool = False
) -> Any:
    """The embeddings of the image placeholders in this rank's text, in their order.

        rows = ballast.exchange_embeddings(tower(batch["pixel_values"], ...), batch, group)
        hidden = hidden.masked_scatter(is_image[..., None], rows)

    One all-to-all over torch.distributed. The sizes follow from the batch, so nothing
    is negotiated. The gradient goes back by the reverse all-to-all. With `balance.
    placement: paired` the rows are the tower's own, and nothing is sent.

    All ranks of the group must call this once for each micro-batch, in the same order,
    and the result must take part in the loss on each of them, also where it has no row:
    `masked_scatter` and `hidden + rows.sum() * 0` do. Otherwise the other ranks wait for
    its gradient. The tower's output for a dummy image (`Batch.dummy_image`) is its last
    row; it is multiplied by zero here.

    To look up the embeddings of the text meanwhile, use `EmbeddingExchange`.

    Args:
        embeddings: torch tensor [rows, ...] of the tower, one row for each image token of
            this rank's images in the order of the batch; [0, ...] without images. The
            other dimensions and the type are the same on all ranks.
        batch: this rank's batch, of vision, language or both.
        group: the process group of the data-parallel ranks, in which rank r is rank r of
            both modules; one for each tensor or context rank. None: the default group.
        frozen: no rank needs a gradient of its tower. Otherwise all take part in the
            reverse exchange, whether or not their own rows need a gradient.

    Raises InvalidArgument if the numbers of rows or ranks are not the plan's, and
    FailedPrecondition for images and text of different samples with `placement: paired`.
    """
    return EmbeddingExchange(embeddings, batch, group, frozen=frozen).wait()


class EmbeddingExchange:
    """An exchange of embeddings in progress. Takes the arguments of
    `exchange_embeddings`.

    exchange = ballast.EmbeddingExchange(rows, batch, group)
    hidden = model.embed_tokens(batch["input_ids"])
    rows = exchange.wait()
    """

    def __init__(
        self, embeddings: Any, batch: Mapping[str, Any], group: Any = None, *, frozen: bool = False
    ) -> None:
        dummy = bool(getattr(batch, "dummy_image", False))
        send = _numbers(batch, "embedding_send_host")
        planned = len(send) > 0
        rows = sum(send) if planned else len(embeddings) - dummy
        if len(embeddings) != rows + dummy:
            raise InvalidArgument(
                "embeddings: found %d rows; wanted %d, one for each image token of this rank's "
                "images%s: pass the tower's output after its merger, whole and unpadded"
                % (len(embeddings), rows + dummy, " and the dummy image's" * dummy)
            )
        self._received: Any = None
        self._rows = embeddings
        if dummy:
            self._rows = embeddings[:rows] + (embeddings[rows:] * 0).sum()
        if planned:
            from . import _embedding_functions as functions

            receive = _numbers(batch, "embedding_receive_host")
            functions.check_group(group, len(send), _rank_of(batch))
            self._plan = functions.Plan(
                send, receive, _order(batch, "embedding_order", embeddings), group
            )
            self._received = functions.start(self._rows, self._plan, frozen)
        else:
            check_same_samples(getattr(batch, "_parts", []))

    def wait(self) -> Any:
        """The received rows in the order of this rank's image placeholders. Call it once.
        On a GPU the current stream waits, and the host does not."""
        if self._received is None:
            return self._rows
        from . import _embedding_functions as functions

        return functions.finish(self._received, self._plan)


def _numbers(batch: Mapping[str, Any], key: str) -> List[int]:
    value = batch.get(key)
    if value is None:
        return []
    if isinstance(value, Tensor):
        value = value.numpy()
    return [int(number) for number in value.tolist()]


def _order(batch: Mapping[str, Any], key: str, like: Any) -> Any:
    """The permutation as a torch tensor on the device of `like`."""
    import torch

    value: Any = batch[key]
    if isinstance(value, Tensor):
        value = value.torch()
    if not torch.is_tensor(value):
        value = torch.tensor(value)
    return value.to(like.device, non_blocking=True)


def _rank_of(batch: Any) -> int:
    """The batch's data-parallel rank; -1 for a copy that does not know it."""
    ranks = {int(part.info.dp_rank) for part in getattr(batch, "_parts", [])}
    if len(ranks) > 1:
        raise InvalidArgument(
            "dp_rank: found ranks %s of vision and language in one process; wanted one rank for "
            "both, whose plan the batch holds" % sorted(ranks)
        )
    return ranks.pop() if ranks else -1
