"""The names of a batch's tensors, for type checkers."""

from __future__ import annotations

from typing import Any, TypedDict


class Tensors(TypedDict, total=False):
    """The tensors of a `Batch`, by the names of `tensor_table`: `batch.tensors["labels"]`.

    A rank has those of its place; `tensor_table` says which these are, and of what type and
    shape. Values are torch tensors, NumPy arrays or `Tensor` objects, as Loader(array=...)
    says.
    """

    input_ids: Any
    labels: Any
    loss_mask: Any
    position_ids: Any
    attention_mask: Any
    cu_seqlens: Any
    cu_seqlens_host: Any
    cu_seqlens_padded: Any
    cu_seqlens_padded_host: Any
    pack_share_host: Any
    pack_input_ids: Any
    pack_position_ids: Any
    pair: Any
    pair_host: Any
    pixel_values: Any
    image_grid_thw: Any
    image_grid_thw_host: Any
    vision_cu_seqlens: Any
    vision_cu_seqlens_host: Any
    imgs_sizes: Any
    imgs_sizes_host: Any
    crops_per_image: Any
    crops_per_image_host: Any
    image_sizes: Any
    image_sizes_host: Any
    spatial_shapes: Any
    spatial_shapes_host: Any
    pixel_attention_mask: Any
    pixel_values_videos: Any
    video_grid_thw: Any
    video_grid_thw_host: Any
    second_per_grid_ts: Any
    second_per_grid_ts_host: Any
    video_cu_seqlens: Any
    video_cu_seqlens_host: Any
    input_features: Any
    audio_feature_lengths: Any
    audio_feature_lengths_host: Any
    audio_cu_rows: Any
    audio_cu_rows_host: Any
    embedding_send_host: Any
    embedding_send_order: Any
    embedding_send_order_host: Any
    embedding_receive_host: Any
    embedding_order: Any
    embedding_order_host: Any
    audio_embedding_send_host: Any
    audio_embedding_send_order: Any
    audio_embedding_send_order_host: Any
    audio_embedding_receive_host: Any
    audio_embedding_order: Any
    audio_embedding_order_host: Any
    max_seqlen: int
    vision_max_seqlen: int
