"""Reads a WebDataset of conversations with tarfile, Pillow and JSON."""

import glob
import io
import json
import os
import re
import tarfile


class Corpus:
    """Samples by their number in the index: in order of tar name, then of place in the
    tar."""

    def __init__(self, folder):
        self._tars = sorted(glob.glob(os.path.join(folder, "*.tar")))
        self._entries = []  # (tar, json member, image members)
        for number, path in enumerate(self._tars):
            keys = {}
            with tarfile.open(path) as tar:
                for member in tar:
                    key, _, suffix = member.name.partition(".")
                    keys.setdefault(key, []).append((suffix, member))
            for members in keys.values():
                text = next(m for suffix, m in members if suffix == "json")
                images = [m for suffix, m in members if suffix != "json"]
                self._entries.append((number, text, images))
        self._open = {}

    def __len__(self):
        return len(self._entries)

    def _read(self, number, member):
        # One descriptor per process: a DataLoader forks its workers.
        key = (os.getpid(), number)
        if key not in self._open:
            self._open[key] = os.open(self._tars[number], os.O_RDONLY)
        return os.pread(self._open[key], member.size, member.offset_data)

    def turns(self, i):
        """[(role, text)], with `<image>` in place of an image."""
        number, text, _ = self._entries[i]
        conversation = json.loads(self._read(number, text))["conversations"]
        roles = {"human": "user", "gpt": "assistant", "system": "system"}
        return [(roles[turn["from"]], turn["value"]) for turn in conversation]

    def images(self, i):
        """The sample's images in RGB, decoded by Pillow."""
        from PIL import Image

        number, _, members = self._entries[i]
        return [Image.open(io.BytesIO(self._read(number, m))).convert("RGB") for m in members]

    def messages(self, i):
        """The conversation in the form that apply_chat_template takes."""
        result = []
        for role, text in self.turns(i):
            parts = []
            for j, piece in enumerate(re.split("(<image>)", text)):
                if j % 2:
                    parts.append({"type": "image"})
                elif piece:
                    parts.append({"type": "text", "text": piece})
            result.append({"role": role, "content": parts})
        return result
