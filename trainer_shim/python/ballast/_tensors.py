"""The names of a batch's tensors, for type checkers."""

from __future__ import annotations

from typing import Literal

#: The keys of a `Batch`, as `tensor_table` has them: a type checker finds `batch["inptu_ids"]`.
#: A rank has those of its place; `tensor_table` says which, and of what type and shape.
TensorName = Literal[
    "input_ids",
    "labels",
    "loss_mask",
    "position_ids",
    "attention_mask",
    "cu_seqlens",
    "cu_seqlens_host",
    "cu_seqlens_padded",
    "cu_seqlens_padded_host",
    "pack_share_host",
    "pack_input_ids",
    "pack_position_ids",
    "pair",
    "pair_host",
    "pixel_values",
    "image_grid_thw",
    "image_grid_thw_host",
    "vision_cu_seqlens",
    "vision_cu_seqlens_host",
    "imgs_sizes",
    "imgs_sizes_host",
    "crops_per_image",
    "crops_per_image_host",
    "image_sizes",
    "image_sizes_host",
    "spatial_shapes",
    "spatial_shapes_host",
    "pixel_attention_mask",
    "pixel_values_videos",
    "video_grid_thw",
    "video_grid_thw_host",
    "second_per_grid_ts",
    "second_per_grid_ts_host",
    "video_cu_seqlens",
    "video_cu_seqlens_host",
    "input_features",
    "audio_feature_lengths",
    "audio_feature_lengths_host",
    "audio_cu_rows",
    "audio_cu_rows_host",
    "embedding_send_host",
    "embedding_send_order",
    "embedding_send_order_host",
    "embedding_receive_host",
    "embedding_order",
    "embedding_order_host",
    "audio_embedding_send_host",
    "audio_embedding_send_order",
    "audio_embedding_send_order_host",
    "audio_embedding_receive_host",
    "audio_embedding_order",
    "audio_embedding_order_host",
]

#: Keys whose values are numbers.
NumberName = Literal["max_seqlen", "vision_max_seqlen"]
