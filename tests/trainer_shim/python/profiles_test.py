"""The files of models/, and the user's, as the adapters read them."""

import glob
import os
import re
import tempfile
import types
import unittest

from ballast.adapters import _profiles
from ballast.adapters.huggingface_families import Family
from ballast.errors import InvalidArgument

MODELS = os.path.join(os.path.dirname(__file__), "../../../models/*.textproto")
EVERY_SPELLING = r"""
# A comment with { and "
a: 1, a: [2, 3];
b { c: "{\n" 'it"s' d < e: true > d { } }
f: [{ g: -1.5 }, { g: NAME }]
"""


def config(model_type, **more):
    return types.SimpleNamespace(model_type=model_type, image_token_id=5, **more)


class ProfilesTest(unittest.TestCase):
    def profile_of(self, text):
        with tempfile.NamedTemporaryFile("w", suffix=".textproto") as file:
            file.write(text)
            file.flush()
            return _profiles.read_profile(file.name)

    def test_text_format(self):
        self.assertEqual(
            _profiles.parse(EVERY_SPELLING),
            {
                "a": ["1", "2", "3"],
                "b": [{"c": ['{\nit"s'], "d": [{"e": ["true"]}, {}]}],
                "f": [{"g": ["-1.5"]}, {"g": ["NAME"]}],
            },
        )

    def test_every_model_type_is_known(self):
        written, of_audio = set(), set()
        for path in glob.glob(MODELS):
            with open(path, encoding="utf-8") as file:
                text = file.read()
            names = re.findall(r'^checkpoints.*model_type: "(\w+)"', text, re.M)
            (written if re.search("^(images|base)", text, re.M) else of_audio).update(names)
        self.assertGreater(len(written), 20)
        self.assertIn("voxtral", of_audio)
        for name in of_audio:
            self.assertIsNone(_profiles.find_profile(config(name)), name)
        with self.assertRaisesRegex(InvalidArgument, "voxtral takes audio alone"):
            _profiles.read_profile("voxtral")
        for name in written:
            self.assertIsNotNone(_profiles.find_profile(config(name)), name)
        self.assertEqual(
            sorted(name for name in written if not name.startswith("qwen")), _profiles.model_types()
        )
        self.assertIsNone(_profiles.find_profile(config("bert")))

    def test_a_base_gives_the_sections_that_a_file_lacks(self):
        self.assertEqual(self.profile_of('base: "llama4"'), _profiles.read_profile("llama4"))
        found = self.profile_of('base: "minicpmv4_6" images { rule: RULE_CENTER_CROP patch: 14 }')
        self.assertEqual((found.rule, found.layout), ("RULE_CENTER_CROP", "LAYOUT_CROPS"))
        # Two files deep: Qwen3.5's images are Qwen3-VL's.
        found = self.profile_of('base: "qwen3_5_vl"')
        self.assertEqual(found.layout, "LAYOUT_MERGE_ORDER")
        self.assertTrue(found.has_token_ids)

    def test_a_checkpoint_is_known_by_values_of_its_configuration(self):
        llava = _profiles.find_profile(config("llava"))
        clip = config("llava", vision_config=types.SimpleNamespace(model_type="clip"))
        pixtral = config("llava", vision_config=types.SimpleNamespace(model_type="pixtral"))
        self.assertEqual(llava.rule, "RULE_PAD_SQUARE")
        self.assertEqual(_profiles.find_profile(clip), llava)
        self.assertEqual(_profiles.find_profile(pixtral).rule, "RULE_LONGEST_EDGE")

    def test_a_users_file_serves_a_model_of_any_type(self):
        with tempfile.NamedTemporaryFile("w", suffix=".textproto") as file:
            file.write('base: "llava1_5"')
            file.flush()
            Family(config("mine"), profile=file.name)
        Family(config("mine"), profile="llava_video")
        with self.assertRaisesRegex(InvalidArgument, "found mine, wanted one of aya_vision"):
            Family(config("mine"))
        with self.assertRaisesRegex(InvalidArgument, "take huggingface.packed"):
            Family(config("mine"), profile="qwen3_vl")

    def test_faults(self):
        with self.assertRaisesRegex(InvalidArgument, "found mine, wanted one of aya_vision, ernie"):
            _profiles.read_profile("mine")
        for text in ('base: "mine"', "patch: 14", "images { rule: ", "images { patch: 14 }"):
            with self.assertRaisesRegex(InvalidArgument, "textproto with .* ballast-server takes"):
                self.profile_of(text)


if __name__ == "__main__":
    unittest.main()
