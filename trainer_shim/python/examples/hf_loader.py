"""The baseline: PyTorch's DataLoader over Hugging Face's image processor."""

import numpy
import torch

import corpus as corpora
import hf


class MicroBatches(torch.utils.data.Dataset):
    """Item `i` is the packed batch of this rank in step `i`.

    `reads[i]` are the ordinals of the samples that this rank reads and decodes,
    `keeps[i]` the ones among them that it trains on.
    """

    def __init__(self, folder, tokenizer, profile, min_pixels, max_pixels, reads, keeps):
        self._folder, self._tokenizer_path = folder, tokenizer
        self._profile, self._pixels = profile, (min_pixels, max_pixels)
        self._reads, self._keeps = reads, keeps
        self._corpus = None

    def __len__(self):
        return len(self._reads)

    def _open(self):
        # Opened in the worker: before the fork, all workers would share it.
        self._corpus = corpora.Corpus(self._folder)
        self._images = hf.image_processor_of(self._profile, *self._pixels, pil=False)
        self._tokenizer = hf.tokenizer_of(self._tokenizer_path)

    def _sample(self, ordinal):
        """(ids, labels, pixels, grid) of one sample; labels already shifted."""
        images = self._images(images=self._corpus.images(ordinal), return_tensors="pt")
        grid = images["image_grid_thw"]
        text = "".join(
            "<|im_start|>%s\n%s<|im_end|>\n" % turn for turn in self._corpus.turns(ordinal)
        )
        counts = iter((grid.prod(1) // 4).tolist())
        pieces = text.split("<image>")
        text = pieces[0] + "".join(
            "<|vision_start|>" + "<|image_pad|>" * next(counts) + "<|vision_end|>" + piece
            for piece in pieces[1:]
        )
        ids = torch.tensor([self._tokenizer.encode(text, add_special_tokens=False)])
        labels = hf.labels_of(ids, self._tokenizer)[0]
        labels = torch.cat([labels[1:], torch.tensor([-100])])
        return ids[0], labels, images["pixel_values"], grid

    def __getitem__(self, i):
        if self._corpus is None:
            self._open()
        samples = {ordinal: self._sample(ordinal) for ordinal in self._reads[i]}
        ids, labels, pixels, grids = zip(*(samples[ordinal] for ordinal in self._keeps[i]))
        lengths = [len(row) for row in ids]
        grid = torch.cat(grids)
        position_ids = torch.cat([torch.arange(n) for n in lengths])
        return {
            "input_ids": torch.cat(ids)[None],
            "labels": torch.cat(labels)[None],
            "position_ids": position_ids[None],
            # The model computes in bfloat16; sending it from the worker halves the bytes.
            "pixel_values": torch.cat(pixels).to(torch.bfloat16),
            "cu_seqlens_padded_host": numpy.cumsum([0, *lengths]).tolist(),
            "vision_cu_seqlens_host": numpy.cumsum([0, *grid.prod(1).tolist()]).tolist(),
        }


def batches(dataset, workers, device):
    """The dataset's batches on the device, in order, prepared by `workers`."""
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=None, shuffle=False, num_workers=workers,
        prefetch_factor=2, pin_memory=device.type == "cuda",
    )  # fmt: skip
    for batch in loader:
        yield {
            key: value.to(device, non_blocking=True) if torch.is_tensor(value) else value
            for key, value in batch.items()
        }
