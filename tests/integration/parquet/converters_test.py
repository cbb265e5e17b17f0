"""Runs the converters of docs/plans.md on files of the forms that they read, and trains the
plans that they write.

    bazel test //tests/integration/parquet:converters_test
"""

import glob
import importlib.util
import json
import os
import pickle
import re
import subprocess
import sys
import tarfile
import unittest

from tests.harness import tools

PER_STEP, GRID = 4, 2
CONFIG = """
sources: [SOURCE]
model: {profile: qwen2_5_vl, tokenizer: bytes, max_pixels: 12544}
batch: {global: 4, micro: 2, max_tokens: 8192}
topology: {modules: {vision: {dp: 2}, language: {dp: 2}}}
packing: {mode: scheduled, max_tokens_per_rank: 32768}
"""
DOCS = '{name: docs, format: webdataset, path: "docs-*.tar"}'
CHAT = "{name: chat, format: jsonl, path: chat.jsonl}"
# Packs by the numbers of their samples; the last one is no whole step.
PACKS = [[3, 0], [7], [1, 2, 4], [11, 5], [6], [8, 9], [10], [13, 12], [14, 15]]
# The folder of pyarrow, and what else its wheel needs where the system lacks it.
ARROW = os.environ.get("BALLAST_ARROW_ROOT", "")


def converters():
    """The Python blocks of the page."""
    with open("docs/plans.md", encoding="utf-8") as page:
        return re.findall(r"```python\n(.*?)```", page.read(), re.DOTALL)


class ConvertersTest(tools.ToolTest):
    def setUp(self):
        if not ARROW:
            self.skipTest("this build has no Arrow")

    def convert(self, source):
        """Runs a block in the folder, with the sizes of this job."""
        for written, here in (
            ('"rb")), 8,', f'"rb")), {GRID},'),
            ("per_step = 64", f"per_step = {PER_STEP}"),
            ("per_step, grid = 64, 8", f"per_step, grid = {PER_STEP}, {GRID}"),
        ):
            source = source.replace(written, here)
        path = [ARROW, *filter(None, [os.environ.get("PYTHONPATH")])]
        # An older NumPy of the system fails pyarrow's check, which is at its import.
        hide = (
            "import sys\nsys.modules['numpy'] = None\nimport pyarrow.parquet\n"
            "del sys.modules['numpy']\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", hide + source],
            cwd=self.folder,
            env=dict(os.environ, PYTHONPATH=os.pathsep.join(path)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout.decode())

    def trained(self, config):
        """The samples of each pack, in the order of packs."""
        path = self.write("plan.yaml", config + "order: {plan: plan.parquet}\n")
        packs = {}
        for step in self.json_lines(
            "ballast-server", "plan", "--config", path, "--step", 0, "--steps",
            len(PACKS) // PER_STEP, "--json",
        ):  # fmt: skip
            for micro_batch in step["micro_batches"]:
                for sample in micro_batch["samples"]:
                    pack = GRID * sample["slot"] + sample["owner"]["language"]
                    packs.setdefault(step["step"] * PER_STEP + pack, []).append(
                        (sample["position"], int(sample["sample"].split(":")[1]))
                    )
        return [[number for _, number in sorted(packs[p])] for p in sorted(packs)]

    def wanted(self, packs=PACKS):
        return packs[: len(packs) // PER_STEP * PER_STEP]

    def test_lists_of_names(self):
        """LLaVA-OneVision-1.5 and LoongForge: a list of packs, each of dicts with `name`."""
        config = CONFIG.replace("SOURCE", DOCS)
        tools.set_up(self.folder, config, 16)
        names = []
        for path in sorted(glob.glob(self.path("docs-*.tar"))):
            with tarfile.open(path) as tar:
                for member in tar.getnames():
                    name = member.split(".")[0]
                    if name not in names:
                        names.append(name)
        self.assertEqual(len(names), 16)
        for form in ("{}", "part-0/{}"):
            packs = [
                [{"name": form.format(names[n]), "len": 100 + n} for n in pack] for pack in PACKS
            ]
            with open(self.path("bins_boxs.pkl"), "wb") as file:
                pickle.dump(packs, file)
            self.convert(converters()[0])
            self.assertEqual(self.trained(config), self.wanted())

    @unittest.skipUnless(importlib.util.find_spec("numpy"), "NumPy is not installed")
    def test_preset_packs(self):
        """xtuner: boundaries.npy, samples.npy, paths.json and the sampler's order."""
        import numpy as np

        lines = [
            {"messages": [{"role": "user", "content": f"{n}?"},
                          {"role": "assistant", "content": "x" * (n + 1)}]}
            for n in range(16)
        ]  # fmt: skip
        self.write("chat.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        config = CONFIG.replace("SOURCE", CHAT)
        tools.set_up(self.folder, config)
        os.makedirs(self.path("packs"), exist_ok=True)
        slices = [[0, n, -1, -1, 0, 50 + n] for pack in PACKS for n in pack]
        bounds = np.cumsum([0] + [len(pack) for pack in PACKS])
        order = [5, 0, 8, 3, 1, 7, 2, 6, 4]
        np.save(self.path("packs/boundaries.npy"), bounds.astype(np.int64))
        np.save(self.path("packs/samples.npy"), np.array(slices, np.int64))
        np.save(self.path("order.npy"), np.array(order, np.int64))
        self.write("packs/paths.json", json.dumps(["/data/chat.jsonl"]))
        self.convert(converters()[1])
        self.assertEqual(self.trained(config), self.wanted([PACKS[p] for p in order]))


if __name__ == "__main__":
    unittest.main()
