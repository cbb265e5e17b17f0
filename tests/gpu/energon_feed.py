"""What feeds Megatron-Bridge's `vlm_step` without Ballast: Megatron-Energon, alone or with the
reordering buffer of Megatron-Bridge's pull request #4608 (docs/gpu_tests.md)."""

import importlib.util
import json
import os
import sys

import torch

from ballast.adapters import bridge_vlm

import hf

SOURCE = "NVIDIA-NeMo/Megatron-Bridge"
COMMIT = "30e303cd68311ea30a4bb4e613f7238de8222fea"
FILES = {  # modules of #4608's branch, which no release has with the buffer
    "data/datasets/packing_utils": "megatron.bridge.data.datasets.packing_utils",
    "data/megatron_mimo/dp_utils": "megatron.bridge.data.megatron_mimo.dp_utils",
    "data/megatron_mimo/reorder_buffer": "megatron.bridge.data.megatron_mimo.reorder_buffer",
}
ROLES = {"human": "user", "gpt": "assistant", "system": "system"}


def reordering(folder):
    """The module of the buffer, from a copy of FILES in `folder`; no module of the installed
    Bridge is replaced for longer than the import."""
    kept = {name: sys.modules.pop(name, None) for name in FILES.values()}
    try:
        for path, name in FILES.items():
            file = os.path.join(folder, path.replace("/", ".") + ".py")
            spec = importlib.util.spec_from_file_location(name, file)
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
        return sys.modules[FILES["data/megatron_mimo/reorder_buffer"]]
    finally:
        for name, module in kept.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module


class Samples:
    """Turns a document of the corpus into the tensors of its sample, in a worker."""

    def __init__(self, ids, max_pixels, row_length, pixel_type):
        self.ids, self.row_length, self.pixel_type = ids, row_length, pixel_type
        self.images = hf.image_processor_of("qwen2_5_vl", 3136, max_pixels, pil=False)

    def of(self, parts):
        from PIL import Image

        names = sorted(name for name in parts if name.endswith("jpg"))
        images = self.images(
            images=[Image.open(parts[name]).convert("RGB") for name in names], return_tensors="pt"
        )
        grid, ids, labels = images["image_grid_thw"], [], []
        counts = iter((grid.prod(1) // 4).tolist())
        for turn in parts["json"]["conversations"]:
            role = ROLES[turn["from"]]
            ids += [self.ids["im_start"], *(role + "\n").encode()]
            labels += [-100] * (len(ids) - len(labels))
            for i, piece in enumerate(turn["value"].split("<image>")):
                if i:
                    ids += [self.ids["vision_start"], *[self.ids["image"]] * next(counts),
                            self.ids["vision_end"]]  # fmt: skip
                ids += piece.encode()
            ids.append(self.ids["im_end"])
            labels += (
                ids[len(labels) :] if role == "assistant" else [-100] * (len(ids) - len(labels))
            )
            ids.append(ord("\n"))
            labels.append(-100)
        row = torch.full((2, self.row_length), self.ids["pad"])
        row[1] = -100
        row[0, : len(ids)] = torch.tensor(ids)
        row[1, : len(ids) - 1] = torch.tensor(labels[1:])
        return {
            "row": row, "length": len(ids), "grid": grid,
            "pixels": images["pixel_values"].to(self.pixel_type),
        }  # fmt: skip


def batch_of(samples):
    """Rows of one length, as the buffer wants them, and all images in one piece."""
    rows = torch.stack([sample["row"] for sample in samples])
    return {
        "input_ids": rows[:, 0], "labels": rows[:, 1], "loss_mask": (rows[:, 1] != -100).float(),
        "lengths": torch.tensor([sample["length"] for sample in samples]),
        "images": torch.tensor([len(sample["grid"]) for sample in samples]),
        "modality_inputs": {"vision": {
            "hidden_states": torch.cat([sample["pixels"] for sample in samples]),
            "grid_thw": torch.cat([sample["grid"] for sample in samples]),
        }},
    }  # fmt: skip


def loader(folder, samples, *, rank, world, batch, workers):
    """Energon's batches of a rank, without end, shuffled as Bridge's data module does by default."""
    import io

    from megatron.energon import (
        Cooker, DefaultTaskEncoder, WorkerConfig, get_savable_loader, get_train_dataset,
    )  # fmt: skip
    from megatron.energon.edataclass import edataclass
    from megatron.energon.flavors.base_dataset import Sample
    from megatron.energon.task_encoder.base import stateless

    @edataclass
    class Document(Sample):
        parts: dict

    @stateless
    def cook(crude):
        parts = {name: value if name == "json" else io.BytesIO(value)
                 for name, value in crude.items() if not name.startswith("__")}  # fmt: skip
        if isinstance(parts["json"], bytes):
            parts["json"] = json.loads(parts["json"])
        keys = {key: crude[key] for key in ("__key__", "__restore_key__", "__subflavors__")}
        return Document(parts=parts, **keys)

    class Encoder(DefaultTaskEncoder):
        cookers = [Cooker(cook)]
        decoder = None

        @stateless
        def encode_sample(self, sample):
            return samples.of(sample.parts)

        def batch(self, encoded):
            return batch_of(encoded)

        def encode_batch(self, collated):
            return collated

    config = WorkerConfig(rank=rank, world_size=world, num_workers=workers)
    return get_savable_loader(get_train_dataset(
        folder, worker_config=config, batch_size=batch, shuffle_buffer_size=100,
        max_samples_per_sequence=None, task_encoder=Encoder(),
    ))  # fmt: skip


def reordered(module, batches, groups, costs, ids):
    """The buffer around a rank's batches, with costs of patches and of tokens."""
    rank, world, gloo, exchange = groups

    def cost(flat):
        return module.sample_cost(
            flat, linear_vit=costs[0], linear_lm=costs[1], pad_token_id=ids["pad"],
            image_token_id=ids["image"], square_merge_size=4,
        )  # fmt: skip

    return module.ReorderingBuffer(
        iter(batches), dp_rank=rank, dp_size=world, n_groups=world, cost_of=cost,
        dp_group_gloo=gloo, dp_group_nccl=exchange, image_count_of=lambda batch: batch["images"],
    )  # fmt: skip


def for_vlm_step(batch, device):
    """The packed batch that `vlm_step` reads, as `bridge_vlm.Vlm` makes it of Ballast's."""
    lengths = batch["lengths"].tolist()
    packed = {
        key: torch.cat([row[:length] for row, length in zip(batch[key], lengths)])[None].to(
            device, non_blocking=True
        )
        for key in ("input_ids", "labels", "loss_mask")
    }
    bounds = torch.nn.functional.pad(torch.tensor(lengths).cumsum(0), (1, 0)).to(torch.int32)
    images = batch["modality_inputs"]["vision"]
    for key in ("cu_seqlens_q", "cu_seqlens_kv", "cu_seqlens_q_padded", "cu_seqlens_kv_padded"):
        packed[key] = bounds.to(device, non_blocking=True)
    longest = torch.tensor([max(lengths)], dtype=torch.int32)
    return {
        **packed, "position_ids": None, "attention_mask": None, "max_seqlen_q": longest,
        "max_seqlen_kv": longest, "visual_inputs": bridge_vlm.VisualInputs(
            images["hidden_states"].to(device, non_blocking=True),
            images["grid_thw"].to(device, non_blocking=True),
        ),
    }  # fmt: skip
