"""Holds what Ballast reads of Energon folders against what Energon itself reads.

Folders are made by `energon prepare`, read by Energon's own datasets, and written as tars
by `repack`; every sample must have the same text and the same image bytes, in the same
order. A folder of `make-corpus --format energon` must be one that Energon reads.
"""

import argparse
import io
import json
import os
import pathlib
import pickle
import random
import subprocess
import sys
import tarfile
import tempfile

from megatron.energon import WorkerConfig
from megatron.energon.dataset_config import get_dataset_from_config
from megatron.energon.flavors.webdataset.itar_reader import ShardInfosITarReader
from PIL import Image

MODEL = """
model: {profile: qwen2_5_vl, tokenizer: bytes, max_pixels: 802816}
batch: {global: 2, micro: 2, max_tokens: 8192}
topology: {modules: {vision: {dp: 2}, language: {dp: 2}}}
"""


class RawDecoder:
    """Decodes text and JSON, and leaves images as bytes."""

    def __call__(self, sample):
        result = {}
        for key, value in sample.items():
            if isinstance(value, bytes):
                extension = key.rsplit(".", 1)[-1].lower()
                if extension == "json":
                    value = json.loads(value)
                elif extension == "txt":
                    value = value.decode()
            result[key] = value
        return result

    def config(self):
        return {}


class Checker:
    def __init__(self, server, folder):
        self.server = os.path.abspath(server)
        self.folder = folder
        self.compared = 0
        self.repacks = 0
        self.random = random.Random(7)

    def run(self, *arguments, wanted=0):
        done = subprocess.run([self.server, *map(str, arguments)], capture_output=True, text=True)
        if (done.returncode == 0) != (wanted == 0):
            sys.exit(f"{arguments}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def image(self, form):
        size = (self.random.randint(20, 90), self.random.randint(20, 90))
        pixels = self.random.randbytes(size[0] * size[1] * 3)
        bytes_ = io.BytesIO()
        Image.frombytes("RGB", size, pixels).save(bytes_, form)
        return bytes_.getvalue()

    def write_tars(self, folder, members_of, tars=8, samples=7):
        """Tars with ustar, pax and GNU headers, folders and files of no sample."""
        for number in range(tars):
            path = folder / f"part{number % 2}" / f"docs-{number}.tar"
            path.parent.mkdir(parents=True, exist_ok=True)
            form = [tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT, tarfile.GNU_FORMAT][number % 3]
            with tarfile.open(path, "w", format=form) as tar:
                directory = tarfile.TarInfo(f"d.{number}")
                directory.type = tarfile.DIRTYPE
                tar.addfile(directory)
                for i in range(samples):
                    long = "x" * 120 if number % 3 and i % 4 == 0 else ""
                    key = f"d.{number}/{long}{number:03d}{i:03d}"
                    for part, data in members_of(number * samples + i):
                        info = tarfile.TarInfo(f"{key}.{part}")
                        info.size = len(data)
                        tar.addfile(info, io.BytesIO(data))
                    if i % 3 == 0:
                        tar.addfile(tarfile.TarInfo("README"), io.BytesIO(b""))
        return folder

    def prepare(self, folder, *arguments):
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "from megatron.energon.cli.main import main; main()",
                "prepare",
                str(folder),
                "--non-interactive",
                "--split-ratio",
                "2,1,1",
                "--num-workers",
                "2",
                "--no-progress",
                *arguments,
            ],
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            sys.exit(f"energon prepare: {done.stdout}{done.stderr}")

    def energon(self, folder, split, decoder=RawDecoder()):
        """Samples as Energon's own dataset loads them, in the order of its shards."""
        factory = get_dataset_from_config(
            folder,
            split_part=split,
            training=False,
            worker_config=WorkerConfig(rank=0, world_size=1, num_workers=0),
            decoder=decoder,
        )
        reader = ShardInfosITarReader(
            factory.path,
            factory.shards,
            part_filter=factory.part_filter,
            sample_filter=factory.sample_filter,
        )
        samples = [reader[i] for i in range(len(reader))]
        return [factory.load_sample(sample) for sample in samples if sample is not None]

    def ballast(self, folder, split, extra=""):
        """(text, images) of every sample, out of the tars that `repack` writes."""
        name = f"nv-{folder.name}-{split}"
        config = self.folder / f"{name}.yaml"
        ours = {"train": "train", "val": "valid", "test": "test"}[split]
        other = (
            ""
            if ours == "train"
            else f"  - {{name: t-{name}, format: energon, path: {folder}{extra}}}\n"
        )
        config.write_text(
            "sources:\n"
            f"  - {{name: {name}, format: energon, path: {folder}, split: {ours}{extra}}}\n"
            + other
            + MODEL
        )
        report = self.run("index", "--config", config)
        if f"{name}: " not in report or ", 0 bad" not in report:
            sys.exit(report)
        self.repacks += 1
        out = self.folder / f"tars-{self.repacks}-{name}"
        self.run(
            "repack", "--config", config, "--source", name, "--out", out, "--samples-per-tar", 5
        )
        samples = {}
        for path in sorted(out.glob("*.tar")):
            with tarfile.open(path) as tar:
                for member in tar:
                    key, part = member.name.split(".", 1)
                    samples.setdefault(key, []).append((part, tar.extractfile(member).read()))
        found = []
        for key in sorted(samples):
            texts = [data for part, data in samples[key] if part in ("json", "txt")]
            images = [data for part, data in samples[key] if part not in ("json", "txt")]
            found.append((texts[0].decode(), images))
        return found

    def same(self, folder, split, theirs, extra=""):
        ours = self.ballast(folder, split, extra)
        if len(ours) != len(theirs):
            sys.exit(f"{folder} {split}: {len(ours)} samples, Energon has {len(theirs)}")
        for number, (mine, other) in enumerate(zip(ours, theirs)):
            if json.loads(mine[0]) != json.loads(other[0]) or mine[1] != other[1]:
                sys.exit(
                    f"{folder} {split}: sample {number} is {mine[0]!r}, "
                    f"Energon has {other[0]!r}; images {len(mine[1])}, {len(other[1])}"
                )
        self.compared += len(ours)

    @staticmethod
    def conversation(question, answer):
        return json.dumps(
            {
                "messages": [
                    {"role": "user", "content": "<image>" + question},
                    {"role": "assistant", "content": answer},
                ]
            },
            separators=(",", ":"),
            ensure_ascii=False,
        )

    def check_vqa(self):
        def members(number):
            turns = [{"value": f'Frage {number} \u00fc"\\\n?'}, {"value": [f"Antwort {number}"]}]
            text = json.dumps(turns).encode()
            image = ("jpg", self.image("JPEG")) if number % 2 else ("v.png", self.image("PNG"))
            parts = [("json", text), image, ("unused.npy", b"1234")]
            return parts if number % 3 else parts[::-1]

        folder = self.write_tars(self.folder / "vqa", members)
        self.prepare(
            folder,
            "--sample-type",
            "VQASample",
            "--media-metadata-by-extension",
            "--field-map",
            json.dumps(
                {"image": "jpg,v.png", "context": "json[0][value]", "answers": "json[1][value]"}
            ),
        )
        if not any((folder / ".nv-meta").glob("index.sqlite")):
            sys.exit("energon prepare wrote no index.sqlite")
        for split in ("train", "val", "test"):
            theirs = [
                (self.conversation(s.context, s.answers[0]), [s.image])
                for s in self.energon(folder, split)
            ]
            self.same(folder, split, theirs)
        # What the split excludes.
        split = folder / ".nv-meta" / "split.yaml"
        every = self.energon(folder, "train")
        first = f"{every[0].__sources__[0].shard_name}/{every[0].__key__}"
        split.write_text(split.read_text().replace("exclude: []", f"exclude: ['{first}']"))
        left = self.energon(folder, "train")
        if len(left) != len(every) - 1:
            sys.exit(f"Energon does not exclude {first}")
        self.same(
            folder, "train", [(self.conversation(s.context, s.answers[0]), [s.image]) for s in left]
        )

    def check_captions(self):
        folder = self.write_tars(
            self.folder / "captions",
            lambda number: [("txt", f"Bild {number}".encode()), ("jpeg", self.image("JPEG"))],
        )
        self.prepare(
            folder,
            "--sample-type",
            "CaptioningSample",
            "--field-map",
            json.dumps({"image": "jpeg", "caption": "txt"}),
        )
        for split in ("train", "val"):
            self.same(
                folder,
                split,
                [
                    (self.conversation("", s.caption), [s.image])
                    for s in self.energon(folder, split)
                ],
            )

    def check_crude(self):
        def members(number):
            turns = {
                "conversations": [
                    {"from": "human", "value": "<image>" * (number % 3) + "?"},
                    {"from": "gpt", "value": f"{number}"},
                ]
            }
            images = [(f"{i}.png", self.image("PNG")) for i in range(number % 3)]
            return [("json", json.dumps(turns).encode())] + images[::-1]

        folder = self.write_tars(self.folder / "crude", members)
        self.prepare(folder, "--sample-type", "CrudeWebdataset")
        for split in ("train", "val"):
            self.same(folder, split, self.crude(folder, split), ", energon: {crude: webdataset}")
        config = self.folder / "refused.yaml"
        config.write_text(f"sources:\n  - {{name: nv, format: energon, path: {folder}}}\n" + MODEL)
        if "made by a cooker" not in self.run("index", "--config", config, wanted=1):
            sys.exit("a crude folder was not refused by name")

    def check_chatml(self):
        """As Megatron-Bridge's converters write folders: pickled lists, lists of turns."""

        def members(number):
            images = [self.image("JPEG") for _ in range(number % 4)]
            turns = [
                {"from": "human", "value": "<image>" * len(images) + f"{number} \u00fc?"},
                {"from": "gpt", "value": "So."},
            ]
            text = turns if number % 2 else {"conversations": turns, "tools": []}
            parts = [("json", json.dumps(text).encode())]
            if images or number % 3:
                parts.append(("jpgs", pickle.dumps(images, protocol=3 + number % 3)))
            return parts[::-1] if number % 5 == 0 else parts

        folder = self.write_tars(self.folder / "chatml", members)
        self.prepare(folder, "--sample-type", "CrudeWebdataset")
        theirs = {}
        for split in ("train", "val"):
            theirs[split] = []
            for sample in self.energon(folder, split, decoder=None):
                turns = json.loads(sample["json"])
                theirs[split].append(
                    (
                        json.dumps(turns if isinstance(turns, dict) else {"messages": turns}),
                        pickle.loads(sample["jpgs"]) if "jpgs" in sample else [],
                    )
                )
        (folder / ".nv-meta" / "dataset.yaml").write_text(
            "__module__: megatron.bridge.data.energon.task_encoder_utils\n"
            "__class__: ChatMLWebdataset\n"
            "field_map:\n  imgs: jpgs\n  conversation: json\nsubflavors: {}\n"
        )
        for split, samples in theirs.items():
            self.same(folder, split, samples)

    def crude(self, folder, split):
        """Samples of a crude folder as Energon gives them to a cooker."""
        result = []
        for sample in self.energon(folder, split, decoder=None):
            images = sorted(
                (key, value)
                for key, value in sample.items()
                if key.split(".")[-1] in ("jpg", "png", "webp")
            )
            result.append((sample["json"].decode(), [value for _, value in images]))
        return result

    def check_make_corpus(self):
        folder = self.folder / "made"
        self.run(
            "make-corpus",
            "--out",
            folder,
            "--samples",
            600,
            "--preset",
            "text",
            "--format",
            "energon",
        )
        for split, count in (("train", 512), ("val", 88)):
            samples = self.crude(folder, split)
            if len(samples) != count:
                sys.exit(f"make-corpus: {len(samples)} samples of {split}, wanted {count}")
            self.same(folder, split, samples, ", energon: {crude: webdataset}")
        mixed = self.folder / "mixed"
        self.run(
            "make-corpus",
            "--out",
            mixed,
            "--samples",
            20,
            "--preset",
            "mixed",
            "--format",
            "energon",
        )
        self.same(mixed, "train", self.crude(mixed, "train"), ", energon: {crude: webdataset}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ballast-server", required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        checker = Checker(arguments.ballast_server, pathlib.Path(folder).resolve())
        checker.check_vqa()
        checker.check_captions()
        checker.check_crude()
        checker.check_chatml()
        checker.check_make_corpus()
        print(f"{checker.compared} samples are Energon's own")


if __name__ == "__main__":
    main()
