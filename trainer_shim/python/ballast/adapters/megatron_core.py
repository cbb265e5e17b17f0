"""Arguments for Megatron-Core's path for packed sequences (THD)."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from ..errors import FailedPrecondition, InvalidArgument
from ._arrays import from_host, host_values, is_padded, pack_share, sequence_bounds, where
from ._takes import check

Inputs = Tuple[Any, Any, Any, None, Any, Any, Any]
_KEYS = ("input_ids", "labels", "loss_mask", "position_ids")


def packed_seq_params(
    batch: Mapping[str, Any],
    cls: Optional[Callable[..., Any]] = None,
    *,
    padded_only: bool = True,
) -> Any:
    """PackedSeqParams of a batch.

        from megatron.core.packed_seq_params import PackedSeqParams
        params = ballast.adapters.megatron_core.packed_seq_params(batch, PackedSeqParams)

    Args:
        cls: megatron.core's PackedSeqParams; fields that this version of it lacks
            are left out, and one without padded arrays gets them as the real ones, as
            with `padded_only`. None: a dictionary of the fields.
        padded_only: all four arrays are the places of the samples, padding included, as
            Megatron-LM's releases give them. False: `cu_seqlens_q` and `_kv` are the real
            lengths, and `pad_between_seqs` says whether there is padding. Not for a model
            with multi-token prediction, which takes its targets at the bounds of
            `cu_seqlens_q` (Megatron-Core 0.19.2): with padding they are other tokens.
    """
    check(batch, "megatron_core.packed_seq_params")
    return _params(_packed_fields(batch, cls, padded_only), cls)


def _packed_fields(
    batch: Mapping[str, Any], cls: Optional[Callable[..., Any]], padded_only: bool
) -> Dict[str, Any]:
    known = None if cls is None else inspect.signature(cls).parameters
    # Without the padded arrays, the others say where samples begin, too.
    padded_only = padded_only or (known is not None and "cu_seqlens_q_padded" not in known)
    fields = {"qkv_format": "thd", **sequence_bounds(batch, padded_only=padded_only)}
    if not padded_only:
        gaps = host_values(batch, "cu_seqlens") != host_values(batch, "cu_seqlens_padded")
        fields["pad_between_seqs"] = bool(gaps.any())
    return fields


def _params(fields: Dict[str, Any], cls: Optional[Callable[..., Any]]) -> Any:
    """An object of the class, without fields that it lacks."""
    if cls is None:
        return fields
    known = inspect.signature(cls).parameters
    return cls(**{key: value for key, value in fields.items() if key in known})


def padding_mask(batch: Mapping[str, Any], like: Any = None) -> Any:
    """bool [1, T], true in alignment padding; computed on the host from the lengths.

    `like`: an array whose library and device the result gets. Default: the batch's
    input ids, or another tensor of length T.
    """
    import numpy

    real = host_values(batch, "cu_seqlens").astype(numpy.int64)
    padded = host_values(batch, "cu_seqlens_padded").astype(numpy.int64)
    ends = padded[:-1] + (real[1:] - real[:-1])
    mask = numpy.arange(padded[-1]) >= numpy.repeat(ends, padded[1:] - padded[:-1])
    if like is None:
        for key in ("input_ids", "labels", "position_ids", "cu_seqlens"):
            like = batch.get(key)
            if like is not None:
                break
    return from_host(mask[None, :], like)


def get_batch(
    batch: Mapping[str, Any],
    cls: Optional[Callable[..., Any]] = None,
    *,
    padded_only: bool = True,
) -> Inputs:
    """The result of `get_batch_on_this_rank_for_sequence_packing`: (tokens, labels,
    loss_mask, None, position_ids, PackedSeqParams, padding_mask).

    Tensors that this rank's stage does not have are None. As in Megatron-Core, tokens,
    labels, loss mask and positions are 0 in padding; without padding the batch's own
    tensors are passed through. If the batch is sliced for context parallelism, its
    lengths stay the whole sequence's, padding stays as Ballast writes it (label
    -100, loss mask 0), and the mask is None.
    """
    return _inputs(batch, packed_seq_params(batch, cls, padded_only=padded_only))


def _inputs(batch: Mapping[str, Any], params: Any) -> Inputs:
    fields = [batch.get(key) for key in _KEYS]
    total = int(host_values(batch, "cu_seqlens_padded")[-1])
    mask = None
    if all(field is None or field.shape[-1] == total for field in fields):
        mask = padding_mask(batch)
        real = int(host_values(batch, "cu_seqlens")[-1])
        if real != total:
            kept = ~mask
            fields = [None if f is None else where(kept, f, 0) for f in fields]
    tokens, labels, loss_mask, positions = fields
    return tokens, labels, loss_mask, None, positions, params, mask


def context_batches(
    batch: Mapping[str, Any],
    cls: Optional[Callable[..., Any]] = None,
    *,
    group_of: Callable[[int], Any],
    padded_only: bool = True,
    images: Optional[ContextImages] = None,
) -> Iterator[Inputs]:
    """The forward passes of a batch of `packing.dynamic_cp`, each as `get_batch` returns one,
    with the PackedSeqParams that Megatron-Core's hybrid context parallelism takes.

        groups = parallel_state.get_hybrid_data_context_parallel_groups
        for inputs in megatron_core.context_batches(
            batch, PackedSeqParams, group_of=lambda size: groups(group_size=size)
        ):
            loss = loss + forward(*inputs)

    A pack that this rank has alone is one pass over packed sequences, with `local_cp_size` 1.
    A pack that several ranks share is one pass a sample, in the order of the samples, with
    `qkv_format` "sbhd", `local_cp_size` and `cp_group`: Megatron-Core 0.19.2 turns the
    positions of packed sequences by the model's own group, not by the pack's. Each rank has
    its zig-zag part of the sample, padding at its end included (label -100, loss mask 0);
    lengths are the whole sample's. All ranks of the group have the same passes.

    The model is built with context_parallel_size 1. Losses are sums over tokens
    (`calculate_per_token_loss`), divided by `batch.step_totals.label_tokens`: a rank's share
    of a sample says nothing of its mean.

    With images (`ContextImages`) the passes of a shared pack have the positions of the
    whole sample: Megatron-Core cuts rotary embeddings of several axes by `cp_group` itself.

    Raises FailedPrecondition as `get_batch` does, and also if the batch is not of
    `packing.dynamic_cp`, if its job has images and `images` is not given, or if the group has
    another size or gives this rank another number.

    Args:
        group_of: called with a number of ranks, 2 or more; returns this rank's process group
            of so many, of those that begin at multiples of it among the ranks of data and
            context parallelism.
        cls, padded_only: as of `packed_seq_params`; padded_only is of packs that the rank
            has alone.
        images: of this batch; its `put` is for the pass that was given last.
    """
    consumer = "megatron_core.context_batches"
    check(batch, consumer)
    share = pack_share(batch)
    if share is None or is_padded(batch):
        raise FailedPrecondition(
            "found a batch whose packs have one context-parallel size; %s takes batches of "
            "packing.dynamic_cp: take megatron_core.get_batch" % consumer
        )
    if cls is not None and not {"local_cp_size", "cp_group"} <= set(
        inspect.signature(cls).parameters
    ):
        raise FailedPrecondition(
            "%s: found a PackedSeqParams without local_cp_size and cp_group; wanted one of "
            "Megatron-Core with hybrid context parallelism (0.19.2 has it)" % consumer
        )
    if images is None and batch.get("embedding_receive_host") is not None:
        raise FailedPrecondition(
            "found a batch of a job with images; %s would train without them: give it images="
            "megatron_core.ContextImages(batch, ballast.exchange_embeddings(...), image_token)"
            % consumer
        )
    ranks, rank = share
    if ranks == 1:
        if images is not None:
            images.begin(0)
        fields = dict(_packed_fields(batch, cls, padded_only), local_cp_size=1)
        yield _inputs(batch, _params(fields, cls))
        return
    group = group_of(ranks)
    if (group.size(), group.rank()) != (ranks, rank):
        raise FailedPrecondition(
            "group_of(%d): found a group of %d ranks in which this one is number %d; wanted %d "
            "ranks and number %d: the loader's dp_rank is the rank in data and context "
            "parallelism together" % (ranks, group.size(), group.rank(), ranks, rank)
        )
    places = host_values(batch, "cu_seqlens_padded").tolist()
    for number, (begin, end) in enumerate(zip(places, places[1:])):
        whole = _whole_sample(end - begin, batch["cu_seqlens"])
        fields = {
            "qkv_format": "sbhd",
            "cu_seqlens_q": whole,
            "cu_seqlens_kv": whole,
            "cu_seqlens_q_padded": whole,
            "cu_seqlens_kv_padded": whole,
            "max_seqlen_q": end - begin,
            "max_seqlen_kv": end - begin,
            "local_cp_size": ranks,
            "cp_group": group,
        }
        part = slice(begin // ranks, end // ranks)
        tokens, labels, loss_mask, positions = (
            None if batch.get(key) is None else batch[key][..., part] for key in _KEYS
        )
        if images is not None:
            images.begin(number)
            positions = batch["pack_position_ids"][..., begin:end]
        yield tokens, labels, loss_mask, None, positions, _params(fields, cls), None


class ContextImages:
    """The images of a batch of `packing.dynamic_cp`, for the passes of `context_batches`.

        rows = ballast.exchange_embeddings(tower(batch["pixel_values"], ...), batch, group)
        images = megatron_core.ContextImages(batch, rows, image_token)
        for tokens, labels, loss_mask, _, positions, params, _ in megatron_core.context_batches(
            batch, PackedSeqParams, group_of=group_of, images=images
        ):
            hidden = images.put(model.embedding(input_ids=tokens, position_ids=positions))
            losses = model(tokens, positions, None, decoder_input=hidden, labels=labels,
                           packed_seq_params=params)
            (losses * loss_mask).sum().backward()
        images.backward()

    Every image is encoded once. Each rank that shares a pack has the rows of whole samples,
    of which a pass takes those whose placeholders are in the rank's part. The gradients of
    all passes are added up and go back to the towers in one exchange: each rank calls
    `backward` once a micro-batch, whether or not its pack has an image.

    A model whose text layers take features of the tower, too (Qwen3-VL's deepstack), gets
    them in the same rows, and by `deepstack` in each pass:

        output = tower(batch["pixel_values"], ...)
        rows = torch.stack([output.pooler_output, *output.deepstack_features], 1)
        images = ContextImages(batch, ballast.exchange_embeddings(rows, batch, group), image_token)
        ...
            hidden = images.put(model.embedding(input_ids=tokens, position_ids=positions))
            is_image, features = images.deepstack()

    Raises FailedPrecondition for a batch without `pack_input_ids`; InvalidArgument for rows of
    other dimensions, and, on a CPU, if the rows are not as many as the pack's placeholders; on
    a GPU an assertion on the device stops the process then.

    Args:
        rows: torch tensor [placeholders, width], or with features of layers
            [placeholders, 1 + layers, width], what `exchange_embeddings` returned.
        image_token: the id of a placeholder, `loader.job["model"]["token_ids"]["image"]`.
    """

    def __init__(self, batch: Mapping[str, Any], rows: Any, image_token: int) -> None:
        import torch

        share, ids = pack_share(batch), batch.get("pack_input_ids")
        if share is None or ids is None:
            raise FailedPrecondition(
                "found a batch without pack_input_ids; ContextImages takes batches of language "
                "with packing.dynamic_cp and an encoder"
            )
        if rows.dim() not in (2, 3):
            raise InvalidArgument(
                "rows: found %s; wanted [placeholders, width], or with a model's deepstack "
                "features [placeholders, 1 + layers, width]" % list(rows.shape)
            )
        ranks, rank = share
        is_image = ids[0] == int(image_token)
        if is_image.is_cuda:
            torch._assert_async(is_image.sum() == len(rows))
        elif int(is_image.sum()) != len(rows):
            raise InvalidArgument(
                "rows: found %d; wanted %d, one for each token %d of the pack: pass the result of "
                "exchange_embeddings whole" % (len(rows), int(is_image.sum()), image_token)
            )
        # The row of each token; -1 of text.
        row_of = (is_image.cumsum(0) - 1).masked_fill(~is_image, -1)
        self._passes = [row_of]
        if ranks > 1:
            places = host_values(batch, "cu_seqlens_padded").tolist()
            pieces = [row_of[a:b].chunk(2 * ranks) for a, b in zip(places, places[1:])]
            self._passes = [torch.cat((each[rank], each[-1 - rank])) for each in pieces]
        self._sent = rows
        self._rows = rows.detach().requires_grad_(rows.requires_grad)
        self._row_of = self._passes[0]
        self._lacks_features = False  # of the pass

    def begin(self, number: int) -> None:
        """Makes pass `number` the one of `put` and `deepstack`. `context_batches` calls it."""
        self._end_pass()
        self._row_of = self._passes[number]

    def put(self, hidden: Any) -> Any:
        """The embeddings of a pass's tokens, [tokens, 1, width], with image embeddings in
        place of placeholders. Raises InvalidArgument for other shapes, such as tensors
        that are cut for sequence parallelism."""
        import torch

        wanted = (len(self._row_of), 1, self._rows.shape[-1])
        if tuple(hidden.shape) != wanted:
            raise InvalidArgument(
                "hidden: found %s; wanted %s, the embeddings of the pass's tokens: with sequence "
                "parallelism, before they are cut" % (list(hidden.shape), list(wanted))
            )
        self._lacks_features = self._rows.dim() == 3
        if not len(self._rows):
            return hidden
        images = self._take(self._row_of.clamp(min=0))[:, :1]
        is_image = (self._row_of >= 0)[:, None, None]
        return torch.where(is_image, images.to(hidden.dtype), hidden)

    def deepstack(self) -> Tuple[Any, List[Any]]:
        """What a pass's text layers add at the images' tokens: bool [1, tokens], and for each
        layer [image tokens, width] in the order of the tokens, as Qwen3-VL's models take
        `visual_pos_masks` and `deepstack_visual_embeds`. A pass with such rows wants this call
        as well as `put`: without it `begin` and `backward` raise FailedPrecondition."""
        self._lacks_features = False
        is_image = self._row_of >= 0
        return is_image[None], list(self._take(self._row_of[is_image]).unbind(1)[1:])

    def _take(self, places: Any) -> Any:
        """[places, 1 + layers, width]: the rows at these places."""
        rows = self._rows.index_select(0, places)
        return rows if rows.dim() == 3 else rows[:, None]

    def _end_pass(self) -> None:
        if self._lacks_features:
            raise FailedPrecondition(
                "found a pass without the %d deepstack features of the rows; its layers would "
                "train without them: call images.deepstack() in each pass and give the model its "
                "result" % (self._rows.shape[1] - 1)
            )

    def backward(self) -> None:
        """Gives the gradients of all passes back to the towers. Call it once, after them."""
        import torch

        self._end_pass()
        if self._sent.requires_grad:
            grad = self._rows.grad
            self._sent.backward(torch.zeros_like(self._sent) if grad is None else grad)


def _whole_sample(length: int, like: Any) -> Any:
    """[0, length], int32, in the library and on the device of `like`."""
    import numpy

    return from_host(numpy.array([0, length], numpy.int32), like)
