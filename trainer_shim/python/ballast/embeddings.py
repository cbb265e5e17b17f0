"""Moves the embeddings of images or audio from the ranks that made them to the ranks that
need them (`balance.placement: split`)."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .errors import FailedPrecondition, InvalidArgument
from .tensor import Tensor, check_same_samples


#: Of each encoder the prefix of its plan's keys, its medium and what says that its batch has
#: a dummy.
_MEDIA = {"vision": ("", "image", "dummy_image"), "audio": ("audio_", "audio", "dummy_clip")}
#: The `group` for each kind of batch: modules on separate ranks, on the same ranks with an
#: embedding plan, and without one.
_WANTED: Dict[Any, Tuple[str, str]] = {
    "apart": ("ballast.ModuleGroups", "has one side of an embedding plan, of modules on "
              "separate ranks"),
    True: ("the process group of the data-parallel ranks", "is of modules on the same ranks"),
    False: ("none", "has no embedding plan: its job has balance.placement `paired`"),
}  # fmt: skip


def exchange_embeddings(
    embeddings: Any,
    batch: Mapping[str, Any],
    group: Any = None,
    *,
    frozen: bool = False,
    module: str = "vision",
    videos: Optional[Tuple[int, int]] = None,
) -> Any:
    """The embeddings of an encoder's placeholders in this rank's text, in their order.

        rows = ballast.exchange_embeddings(tower(batch["pixel_values"], ...), batch, group)
        hidden = hidden.masked_scatter(is_image[..., None], rows)

    One all-to-all over torch.distributed. The sizes follow from the batch, so nothing
    is negotiated. The gradient goes back by the reverse all-to-all. With `balance.
    placement: paired` the rows are the tower's own, and nothing is sent.

    All ranks of the group must call this once for each micro-batch, in the same order,
    and the result must take part in the loss on each of them, also where it has no row:
    `masked_scatter` and `hidden + rows.sum() * 0` do. Otherwise the other ranks wait for
    its gradient. The tower's output for a dummy image (`Batch.dummy_image`) is its last
    row; for a dummy clip, its last rows. Both are multiplied by zero here.

    To look up the embeddings of the text meanwhile, use `EmbeddingExchange`.

    Ranks that share a pack (`packing.dynamic_cp`) each get the rows of all its samples, in
    the order of the placeholders in `pack_input_ids`, and the gradients of all of them are
    added up. `adapters.megatron_core.ContextImages` picks the rows of a rank's part.

    With modules on separate ranks (`topology.colocated: false`) vision ranks send and
    language ranks receive, over `ModuleGroups`:

        groups = ballast.ModuleGroups(vision=[0, 1], language=[2, 3])   # once

        sent = ballast.exchange_embeddings(tower(batch["pixel_values"], ...), batch, groups)
        sent.sum().backward()                                           # vision

        rows = torch.empty(0, width, dtype=torch.bfloat16, device=device)
        rows = ballast.exchange_embeddings(rows, batch, groups)         # language

    A vision rank gets an empty tensor, whose backward pass waits for the gradients of its
    rows. No call waits for a send, so the ranks of either module run any schedule, such as
    1F1B, in which forward passes are in the order of the micro-batches, and backward
    passes in the order of the forward passes. Every receipt is checked for the micro-batch that
    it belongs to; it waits as long as the groups' timeout.

    Args:
        embeddings: torch tensor [rows, ...] of the tower, one row for each image token of
            this rank's images in the order of the batch; [0, ...] without images, and on
            a rank of language alone. The other dimensions and the type are the same on all
            ranks.
        batch: this rank's batch, of vision, language or both.
        group: the process group of the data-parallel ranks, in which rank r is rank r of
            both modules; one for each tensor or context rank. None: the default group.
            With modules on separate ranks, their ModuleGroups.
        frozen: no rank needs a gradient of its tower. Otherwise all take part in the
            reverse exchange, whether or not their own rows need a gradient.
        module: the encoder, "vision" or "audio"; with separate ranks each has its
            ModuleGroups.
        videos: in a job with videos the tokens of images and of videos. Of a sample with both,
            the rows of its images are sent before the rows of its videos, since the encoder's
            rank does not know its text; they arrive in the order of the text.

    Raises InvalidArgument if the numbers of rows or ranks are not the plan's, and
    FailedPrecondition for images and text of different samples with `placement: paired`,
    for micro-batches out of order, and, on a CPU, for rows of another micro-batch; on a GPU
    an assertion on the device stops the process then.
    """
    return EmbeddingExchange(
        embeddings, batch, group, frozen=frozen, module=module, videos=videos
    ).wait()


class EmbeddingExchange:
    """An exchange of embeddings in progress. Takes the arguments of
    `exchange_embeddings`.

    exchange = ballast.EmbeddingExchange(rows, batch, group)
    hidden = model.embed_tokens(batch["input_ids"])
    rows = exchange.wait()
    """

    def __init__(
        self,
        embeddings: Any,
        batch: Mapping[str, Any],
        group: Any = None,
        *,
        frozen: bool = False,
        module: str = "vision",
        videos: Optional[Tuple[int, int]] = None,
    ) -> None:
        if module not in _MEDIA:
            raise InvalidArgument("module: found %r; wanted vision or audio" % (module,))
        prefix, medium, dummies = _MEDIA[module]
        dummy = bool(getattr(batch, dummies, False))
        send, receive = counts_of(batch, module)
        planned = len(send) + len(receive) > 0
        apart = bool(send) != bool(receive)
        if apart != isinstance(group, ModuleGroups):
            raise FailedPrecondition(
                "group: found %s; wanted %s: the batch %s"
                % (type(group).__name__, *_WANTED["apart" if apart else planned])
            )
        if apart and group.encoder != module:
            raise InvalidArgument(
                "group: found ModuleGroups of %s; wanted %s" % (group.encoder, module)
            )
        if dummy and module == "audio" and not planned:
            raise FailedPrecondition(
                "found a dummy clip with balance.placement `paired`, whose rows are not known; "
                "wanted balance.align_images: false, or placement: split"
            )
        # Where ranks share packs, a row is sent once for each rank of its pack.
        repeated = prefix + "embedding_send_order"
        repeats = batch.get(repeated) is not None
        rows = sum(send) if planned else len(embeddings) - dummy
        if repeats:
            rows = _count(batch, repeated + "_host")
        # An encoder makes one row of a dummy image, of a dummy clip one or more.
        more = len(embeddings) - rows
        if more != dummy and not (dummy and module == "audio" and more > 0):
            raise InvalidArgument(
                "embeddings: found %d rows; wanted %d, one for each %s token of this rank's "
                "media%s: pass the encoder's output whole and unpadded"
                % (len(embeddings), rows + dummy, medium,
                   " and the %s's" % dummies.replace("_", " ") if dummy else "")
            )  # fmt: skip
        self._plan: Any = None
        self._received: Any = None
        self._rows = embeddings
        if dummy:
            self._rows = embeddings[:rows] + (embeddings[rows:] * 0).sum()
        if repeats:
            self._rows = self._rows.index_select(0, _order(batch, repeated, embeddings))
        if planned:
            from . import _embedding_functions as functions

            order = order_of(batch, module, embeddings, videos) if receive else None
            if apart:
                self._plan = group.plan(batch, send, receive, order)
            else:
                functions.check_group(group, len(send), _rank_of(batch))
                self._plan = functions.Plan(send, receive, order, group)
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


class ModuleGroups:
    """The sending and receiving ranks of embeddings where modules have separate ranks.

        groups = ballast.ModuleGroups(vision=[0, 1], language=[2, 3, 4])
        heard = ballast.ModuleGroups(audio=[5], language=[2, 3, 4])

    Makes two process groups, one for embeddings and one for their gradients, so that
    neither waits for the other. Every process of the default group makes it, in the same
    order among its groups, also processes that are in neither list.

    Args:
        vision or audio, language: each module's data-parallel ranks in their order, by their
            ranks in the default group: with tensor or context ranks or pipeline stages, the
            ranks that have the tower's output, and those that put it into the text. Any
            two numbers go together.
        timeout: a datetime.timedelta, how long a receipt waits. None: torch's default.
    """

    def __init__(
        self,
        vision: Sequence[int] = (),
        language: Sequence[int] = (),
        timeout: Optional[Any] = None,
        *,
        audio: Sequence[int] = (),
    ) -> None:
        self.vision = [int(rank) for rank in vision]
        self.audio = [int(rank) for rank in audio]
        self.language = [int(rank) for rank in language]
        self.encoder = "audio" if self.audio else "vision"
        encoder = self.audio or self.vision
        everyone = encoder + self.language
        one = bool(self.vision) != bool(self.audio)
        if not one or not self.language or len(set(everyone)) < len(everyone):
            raise InvalidArgument(
                "ranks: found vision %s, audio %s and language %s; wanted at least one of language "
                "and of one encoder, and no rank twice: processes with both modules exchange over "
                "one process group" % (self.vision, self.audio, self.language)
            )
        from . import _embedding_functions as functions

        self._lanes = functions.Lanes(sorted(everyone), timeout)

    def forget(self) -> None:
        """Expects no gradients of the exchanges so far: for a forward pass without a backward
        pass."""
        self._lanes.forget()

    def plan(
        self, batch: Mapping[str, Any], send: List[int], receive: List[int], order: Any = None
    ) -> Any:
        """The exchange of a batch's rows, for `EmbeddingExchange` and adapters."""
        from . import _embedding_functions as functions

        encoder = self.audio or self.vision
        own, peers = (encoder, self.language) if send else (self.language, encoder)
        module = self.encoder if send else "language"
        if len(send or receive) != len(peers):
            raise InvalidArgument(
                "ranks: found %d of %s; wanted dp %d, as the batch has"
                % (len(peers), "language" if send else self.encoder, len(send or receive))
            )
        rank, number = self._lanes.rank, _rank_of(batch)
        if rank not in own or number not in (-1, own.index(rank)):
            raise InvalidArgument(
                "ranks: found %s %s, in which rank %d is not data-parallel rank %d, whose batch it "
                "has" % (module, own, rank, number)
            )
        step, micro_batch = (getattr(batch, key, None) for key in ("step", "micro_batch"))
        if step is None or micro_batch is None:
            raise InvalidArgument(
                "batch: found %s without its step and micro-batch; wanted the loader's Batch or a "
                "clone of it" % type(batch).__name__
            )
        return functions.ApartPlan(self._lanes, (step, micro_batch), peers, send, receive, order)


def counts_of(batch: Mapping[str, Any], module: str) -> Tuple[List[int], List[int]]:
    """The rows of an encoder that a rank sends to each language rank, and receives from each of
    the encoder's; empty where it does not."""
    prefix = _MEDIA[module][0] + "embedding_"
    return _numbers(batch, prefix + "send_host"), _numbers(batch, prefix + "receive_host")


def order_of(
    batch: Mapping[str, Any], module: str, like: Any, videos: Optional[Tuple[int, int]] = None
) -> Any:
    """The received row of each placeholder of the text, as a torch tensor on the device of
    `like`. `videos`: as `exchange_embeddings` takes it, for the rows of vision."""
    order = _order(batch, _MEDIA[module][0] + "embedding_order", like)
    return order if videos is None or module != "vision" else _in_text(order, batch, videos)


def _in_text(order: Any, batch: Mapping[str, Any], tokens: Tuple[int, int]) -> Any:
    """`order`, which has a sample's image rows before its video rows, in the order of the
    text. Nothing waits for a device."""
    import torch

    ids = _torch(batch["input_ids"]).to(order.device)
    bounds = batch.get("cu_seqlens_padded")
    places = torch.arange(ids.numel(), device=ids.device)
    if bounds is None:  # a sample a row
        samples = places // ids.shape[-1]
    else:
        samples = torch.searchsorted(_torch(bounds).to(places)[1:], places, right=True)
    ids = ids.reshape(-1)
    shown = ids == tokens[1]
    media = shown | (ids == tokens[0])
    last = 2 * ids.numel()
    sent = torch.where(media, 2 * samples + shown, last).argsort(stable=True)[: len(order)]
    found = torch.empty_like(order)
    found[(media.cumsum(0) - 1)[sent]] = order
    return found


def _torch(value: Any) -> Any:
    import torch

    if isinstance(value, Tensor):
        value = value.torch()
    return value if torch.is_tensor(value) else torch.as_tensor(value)


def _numbers(batch: Mapping[str, Any], key: str) -> List[int]:
    value = batch.get(key)
    if value is None:
        return []
    if isinstance(value, Tensor):
        value = value.numpy()
    return [int(number) for number in value.tolist()]


def _count(batch: Mapping[str, Any], key: str) -> int:
    """The number of rows that an order names, each at least once."""
    value: Any = batch[key]
    if isinstance(value, Tensor):
        value = value.numpy()
    return int(value.max()) + 1 if len(value) else 0


def _order(batch: Mapping[str, Any], key: str, like: Any) -> Any:
    """The permutation as a torch tensor on the device of `like`."""
    return _torch(batch[key]).to(like.device, non_blocking=True)


def _rank_of(batch: Any) -> int:
    """The batch's data-parallel rank; -1 for a copy that does not know it."""
    ranks = {int(part.info.dp_rank) for part in getattr(batch, "_parts", [])}
    if len(ranks) > 1:
        raise InvalidArgument(
            "dp_rank: found ranks %s of vision and language in one process; wanted one rank for "
            "both, whose plan the batch holds" % sorted(ranks)
        )
    return ranks.pop() if ranks else -1
