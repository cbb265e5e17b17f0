"""`[B, S]` rows for trainers without packed sequences."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from ..errors import InvalidArgument
from ._arrays import from_host, host_values, is_padded, where
from ._takes import check


def rows(
    batch: Mapping[str, Any], *, pad: int, length: Optional[int] = None, multiple: int = 1
) -> Dict[str, Any]:
    """Unpacks a batch into one sample per row, each padded at its end. Preference pairs
    are refused: `preferences.rows` takes them.

        inputs = ballast.adapters.padded.rows(batch, pad=loader.job["model"]["token_ids"]["pad"])

    Keys, if the batch has them: `input_ids` [B, S], padded with `pad`; `labels` [B, S],
    padded with -100; `loss_mask` [B, S], `position_ids` [3, B, S] or [B, S], padded
    with 0; and always `attention_mask` bool [B, S], true for tokens of a sample. Images
    stay unchanged, in the order of the rows.

    The number of rows is the rank's number of samples, which differs between ranks
    unless the configuration has `balance.equal_count: true`. S differs between ranks,
    too. With `packing.mode: padded` the loader makes the rows, equally long on all
    ranks, and this function passes its tensors on, without a copy.

    Args:
        length: S. Default: the longest sample's length, rounded up to `multiple`.
    """
    check(batch, "padded.rows")
    return rows_of(batch, pad=pad, length=length, multiple=multiple)


def rows_of(
    batch: Mapping[str, Any], *, pad: int, length: Optional[int] = None, multiple: int = 1
) -> Dict[str, Any]:
    """`rows`, with a row for each sequence of a preference pair."""
    import numpy

    check(batch, "padded.rows_of")
    if is_padded(batch):
        return _rows_of_the_loader(batch, length, multiple)
    places = host_values(batch, "cu_seqlens_padded")[:-1].astype(numpy.int64)
    lengths = numpy.diff(host_values(batch, "cu_seqlens")).astype(numpy.int64)
    longest = int(lengths.max(initial=1))
    width = -(-longest // multiple) * multiple if length is None else length
    if width < longest:
        raise InvalidArgument(
            "length: found %d; the longest sample has %d tokens, and image tokens must not be "
            "cut: raise it, or lower batch.max_tokens" % (width, longest)
        )
    counted = numpy.arange(width)[None]
    real = counted < lengths[:, None]
    index = numpy.where(real, places[:, None] + counted, 0)
    like = next((batch[key] for key in _FILL if batch.get(key) is not None), batch["cu_seqlens"])
    kept, taken = from_host(real, like), from_host(index, like)
    result: Dict[str, Any] = {"attention_mask": kept}
    for key, fill in dict(_FILL, input_ids=pad).items():
        value = batch.get(key)
        if value is None:
            continue
        row = value[:, 0][:, taken] if len(value.shape) == 3 else value[0][taken]
        result[key] = where(kept, row, fill)
    return result


def _rows_of_the_loader(
    batch: Mapping[str, Any], length: Optional[int], multiple: int
) -> Dict[str, Any]:
    width = int(batch["max_seqlen"])
    if width % multiple or length not in (None, width):
        raise InvalidArgument(
            "length: found %s, multiple %d; the loader made rows of %d tokens: set "
            "packing.row_length instead" % (length, multiple, width)
        )
    keys = ("attention_mask", *_FILL)
    return {key: batch[key] for key in keys if batch.get(key) is not None}


_FILL = {"input_ids": 0, "labels": -100, "loss_mask": 0, "position_ids": 0}
