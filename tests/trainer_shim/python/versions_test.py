"""docs/pytorch.md names the versions that tests start, and what adapters refuse."""

import os
import re
import sys
import tempfile
import types
import unittest
import warnings

from ballast import _tried, adapters
from ballast.adapters import _takes


class RefusalsTest(unittest.TestCase):
    def test_are_on_the_page(self):
        with open("docs/pytorch.md", encoding="utf-8") as file:
            self.assertIn(_takes.page(), file.read())

    def test_name_columns(self):
        for name, row in _takes.TABLE.items():
            self.assertLessEqual({*row.refuses, *row.where}, set(_takes.COLUMNS), name)


class VersionsTest(unittest.TestCase):
    def test_are_those_of_the_trainers_environment(self):
        with open("deploy/trainers.txt", encoding="utf-8") as file:
            installed = dict(re.findall(r"^([\w-]+)==(\S+)", file.read(), re.M))
        self.assertEqual(adapters.TRIED, {name: installed.get(name) for name in adapters.TRIED})

    def test_are_on_the_page(self):
        with open("docs/pytorch.md", encoding="utf-8") as file:
            listed = dict(re.findall(r"^\| ([a-z-]+) \| (\d+\.\d+\.\d+)", file.read(), re.M))
        self.assertEqual(listed, adapters.TRIED)

    def test_another_release_is_named_and_a_patch_is_not(self):
        """By the metadata that pip writes; torch is not imported, and so not looked at."""
        installed = {"accelerate": "1.15.7", "megatron-core": "0.12.1", "torch": "1.0.0",
                     "transformers": "4.57.0+local"}  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            for name, version in installed.items():
                info = os.path.join(folder, "%s-%s.dist-info" % (name.replace("-", "_"), version))
                os.mkdir(info)
                with open(os.path.join(info, "METADATA"), "w", encoding="utf-8") as file:
                    file.write("Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (name, version))
            before = {name: sys.modules.get(name) for name in
                      ("accelerate", "megatron.core", "torch", "transformers", "trl")}  # fmt: skip
            sys.path.insert(0, folder)
            try:
                for name in before:
                    sys.modules.pop(name, None)
                for name in ("accelerate", "megatron.core", "transformers", "trl"):
                    sys.modules[name] = types.ModuleType(name)
                with self.assertWarns(UserWarning) as caught:
                    _tried.warn_of_others()
                for name in ("accelerate", "megatron.core"):
                    sys.modules.pop(name)
                sys.modules.pop("transformers")
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    _tried.warn_of_others()  # nothing is imported in another release
            finally:
                sys.path.remove(folder)
                for name, module in before.items():
                    sys.modules.pop(name, None)
                    if module is not None:
                        sys.modules[name] = module
        said = str(caught.warning)
        self.assertIn('"ballast-loader[tried]"', said)
        self.assertIn("megatron-core: found 0.12.1, tried with 0.19.2; ", said)
        self.assertIn("transformers: found 4.57.0+local, tried with 5.23.0. ", said)
        for name in ("accelerate", "torch", "trl"):
            self.assertNotIn(name + ":", said)


if __name__ == "__main__":
    unittest.main()
