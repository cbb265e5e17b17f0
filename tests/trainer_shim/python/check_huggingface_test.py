"""examples/check_huggingface.py names the library and the setting where pixels differ."""

import importlib.util
import json
import os
import subprocess
import sys
import unittest

from tests.harness import tools

EXAMPLES = "trainer_shim/python/examples"
TOKENIZER = "tests/server/text/testdata/family_chats.tokenizer.json"
SPECIAL = (
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|vision_start|>", "<|vision_end|>",
    "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
LACKS = [
    name
    for name in ("torch", "torchvision", "transformers", "PIL")
    if importlib.util.find_spec(name) is None
]
if LACKS:
    print("SKIPPED: the runs of check_huggingface_test: no %s" % ", ".join(LACKS))


def load(name):
    spec = importlib.util.spec_from_file_location(name, "%s/%s.py" % (EXAMPLES, name))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class PixelsTest(unittest.TestCase):
    def test_the_value_of_a_version(self):
        # As the table of docs/families.md.
        for backend, version, wanted in (
            ("pil", "9.5.0", "pillow12"),
            ("pil", "12.3.0", "pillow12"),
            ("pil", "13.0.0", "pillow13"),
            ("torchvision", "0.29.2", "torchvision"),
        ):
            self.assertEqual(load("pixels").resample_of(backend, version), wanted)

    def test_what_differs_is_named(self):
        said = load("pixels").difference
        self.assertRegex(
            said(15, 56, "pillow12", "pil", "13.0.0"),
            r"15 of 56 .* pillow12 .* Pillow up to 12.3.*pillow 13.0.0: set .*resample: pillow13",
        )
        self.assertRegex(
            said(1, 2, "pillow13", "torchvision", "0.29.2"), r"by torchvision 0.29.2: set .*torchv"
        )
        self.assertRegex(said(1, 2, "pillow13", "pil", "13.1"), r"no other value is known")


@unittest.skipIf(LACKS, "see above")
class CheckTest(tools.ToolTest):
    def tokenizer(self):
        """A tokenizer with Qwen's special tokens."""
        with open(TOKENIZER, encoding="utf-8") as file:
            given = json.load(file)
        added = given["added_tokens"]
        names = {token["content"] for token in added}
        number = 1 + max(*given["model"]["vocab"].values(), *(token["id"] for token in added))
        for name in SPECIAL:
            if name not in names:
                added.append(dict(added[0], content=name, id=number, special=True))
                number += 1
        return self.write("tokenizer.json", json.dumps(given))

    def check(self, resample):
        """(exit status, output) of the program in this environment."""
        done = subprocess.run(
            [sys.executable, EXAMPLES + "/check_huggingface.py", "--device", "cpu",
             "--ballast-server", tools.program("ballast-server"), "--tokenizer", self.tokenizer(),
             "--models", "qwen2_5_vl", "--dtypes", "float32", "--samples", "8", "--steps", "1",
             "--max-pixels", "200704", "--resample", resample],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=tools.TIMEOUT_S, check=False,
            env=dict(os.environ, PYTHONWARNINGS="ignore"),
        )  # fmt: skip
        self.assertTrue(done.stdout, done.stderr.decode())
        return done.returncode, json.loads(done.stdout)

    def test_each_setting(self):
        import PIL

        major = int(PIL.__version__.split(".")[0])
        own, other = ("pillow12", "pillow13") if major <= 12 else ("pillow13", "pillow12")
        status, found = self.check(own)
        self.assertEqual((status, found["faults"]), (0, []))
        self.assertEqual(found["versions"]["pillow"], PIL.__version__)
        self.assertEqual(found["resample_of_environment"], own)
        status, found = self.check(other)
        self.assertEqual(status, 1)
        self.assertIn("pillow " + PIL.__version__, found["faults"][0])
        self.assertIn("set model.resample: " + own, found["faults"][0])


if __name__ == "__main__":
    unittest.main()
