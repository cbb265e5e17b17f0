"""A small vision-language model over packed batches: attention within segments."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

import ballast


@dataclass
class Shape:
    #: The model in `model.profile`, whose patches the tower takes.
    profile: str = "qwen2_5_vl"
    patch_values: int = 1176
    merge: int = 2
    vision_dim: int = 1280
    vision_depth: int = 12
    #: Patches per attention window, as in most layers of Qwen2.5-VL's vision tower.
    #: With windows, an image's cost is proportional to its patches.
    window: int = 256
    dim: int = 1024
    depth: int = 2
    head_dim: int = 64
    vocab: int = 704


SMALL = Shape(vision_dim=64, vision_depth=2, dim=64, depth=1, head_dim=32)
SHAPES = {
    "default": Shape(),
    #: Widths and the tower's depth of Qwen2.5-VL-3B, with 8 of its 36 language layers.
    "qwen2_5_vl_3b": Shape(vision_dim=1280, vision_depth=32, dim=2048, depth=8, head_dim=128),
    #: Widths and depths of Qwen3.5-0.8B, with softmax attention in all layers and a small
    #: vocabulary; its tower attends within whole images.
    "qwen3_5_0_8b": Shape(
        profile="qwen3_vl", patch_values=1536, vision_dim=768, vision_depth=12, window=1 << 16,
        dim=1024, depth=24, head_dim=128,
    ),
}  # fmt: skip


@dataclass
class Segments:
    """The bounds of the sequences in a row, on the device and on the host."""

    cu: torch.Tensor  # int32 [n+1], on the device
    host: list
    longest: int


def attend(q, k, v, segments, causal):
    """Attends within each segment. Shapes are [T, heads, head_dim]."""
    if not len(q):  # no rank has an image
        return v
    if q.is_cuda:
        from torch.nn.attention.varlen import varlen_attn

        window = (-1, 0) if causal else (-1, -1)
        cu, longest = segments.cu, segments.longest
        return varlen_attn(q, k, v, cu, cu, longest, longest, window_size=window)
    parts = []
    for begin, end in zip(segments.host, segments.host[1:]):
        piece = [x[begin:end].transpose(0, 1)[None] for x in (q, k, v)]
        parts.append(F.scaled_dot_product_attention(*piece, is_causal=causal)[0].transpose(0, 1))
    return torch.cat(parts)


def rotate(x, angles):
    """Rotary positions; angles [T, head_dim / 2]."""
    a, b = x.float().chunk(2, dim=-1)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, dim, head_dim, causal):
        super().__init__()
        self.head_dim, self.causal = head_dim, causal
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x, segments, angles=None):
        heads = x.shape[1] // self.head_dim
        q, k, v = self.qkv(self.norm1(x)).view(len(x), 3, heads, self.head_dim).unbind(1)
        if angles is not None:
            q, k = rotate(q, angles), rotate(k, angles)
        x = x + self.out(attend(q, k, v, segments, self.causal).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Tower(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.patches = nn.Linear(shape.patch_values, shape.vision_dim)
        self.blocks = nn.ModuleList(
            Block(shape.vision_dim, shape.head_dim, False) for _ in range(shape.vision_depth)
        )
        self.norm = nn.LayerNorm(shape.vision_dim)
        self.merger = nn.Linear(shape.vision_dim * shape.merge**2, shape.dim)

    def forward(self, batch):
        """A row for each image token of this rank's images."""
        x = self.patches(batch["pixel_values"].to(self.patches.weight.dtype))
        for block in self.blocks:
            x = block(x, batch["windows"])
        return self.merger(self.norm(x).view(-1, self.merger.in_features))


class Language(nn.Module):
    def __init__(self, shape, image_token):
        super().__init__()
        self.image_token = image_token
        self.tokens = nn.Embedding(shape.vocab, shape.dim)
        self.blocks = nn.ModuleList(
            Block(shape.dim, shape.head_dim, True) for _ in range(shape.depth)
        )
        self.norm = nn.LayerNorm(shape.dim)
        self.head = nn.Linear(shape.dim, shape.vocab, bias=False)
        half = shape.head_dim // 2
        self.register_buffer("frequencies", 1e4 ** -(torch.arange(half) / half), persistent=False)

    def forward(self, batch, exchange):
        """Sum of the losses of this rank's supervised tokens. `exchange`: of the rows of its
        image tokens, under way while the text's embeddings are looked up."""
        ids = batch["input_ids"][0]
        x = self.tokens(ids)
        seen = exchange.wait()
        # masked_scatter does not wait for the device; indexing with a mask would.
        x = x.masked_scatter((ids == self.image_token)[:, None], seen)
        angles = batch["position_ids"].view(-1, len(ids))[0][:, None] * self.frequencies.float()
        for block in self.blocks:
            x = block(x, batch["text"], angles)
        logits = self.head(self.norm(x)).float()
        return F.cross_entropy(logits, batch["labels"][0], ignore_index=-100, reduction="sum")


class Model(nn.Module):
    def __init__(self, shape, image_token):
        super().__init__()
        self.tower, self.language = Tower(shape), Language(shape, image_token)

    def forward(self, batch):
        """Sum of the losses of this rank's supervised tokens."""
        # With placement `split`, the rows of this rank's text; else its own.
        return self.language(batch, batch["exchange"](self.tower(batch)))


def segments_of(host, device):
    """Segments of a list 0, ..., T."""
    cu = torch.tensor(host, dtype=torch.int32)
    if device.type == "cuda":
        cu = cu.pin_memory().to(device, non_blocking=True)
    return Segments(cu, host, max((b - a for a, b in zip(host, host[1:])), default=0))


def prepare(batch, shape, device):
    """Model's input, made from a batch dictionary with `_host` lengths; without images or
    without text the input of the other half."""
    images = [int(x) for x in batch.get("vision_cu_seqlens_host", [])]
    windows = [0]
    for begin, end in zip(images, images[1:]):
        windows.extend(range(begin + shape.window, end, shape.window))
        windows.append(end)
    return {
        # A function, since DistributedDataParallel would take a dictionary apart.
        "exchange": lambda rows: ballast.EmbeddingExchange(rows, batch),
        **{key: batch[key] for key in ("pixel_values", "input_ids", "labels", "position_ids")
           if key in batch},
        "windows": segments_of(windows, device),
        "text": segments_of([int(x) for x in batch.get("cu_seqlens_padded_host", [0])], device),
    }  # fmt: skip
