"""--config=quick leaves out of the precompiled header what has an -O of its own.

GCC may crash in a file that reads a header that was compiled with another -O.
"""

import re
import unittest

# Left out for another reason, which .bazelrc gives.
OTHERS = {"server/text/sentencepiece/helper.cc"}


def precompiled(bazelrc):
    """The inclusion and the exclusions of --per_file_copt, as Bazel reads them."""
    found = re.findall(r"^build:quick --per_file_copt=(\S+)@-include,\S+$", bazelrc, re.MULTILINE)
    if len(found) != 1:
        raise AssertionError("--config=quick includes %d headers; wanted one" % len(found))
    takes, leaves = [], []
    for pattern in found[0].split(","):
        (leaves if pattern.startswith("-") else takes).append(re.compile(pattern.lstrip("-")))
    return takes, leaves


class QuickConfigTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with open(".bazelrc", encoding="utf-8") as file:
            cls.takes, cls.leaves = precompiled(file.read())
        with open("tests/bazel/own_optimisation", encoding="utf-8") as file:
            labels = file.read().split()
        cls.own = {
            label[2:].replace(":", "/") for label in labels if label.endswith(".cc")
        }

    def test_the_query_finds_them(self):
        self.assertIn("server/image/quad_kernels.cc", self.own)
        self.assertIn("server/storage/span_checksum.cc", self.own)

    def test_every_file_with_an_O_of_its_own_is_left_out(self):
        for path in sorted(self.own):
            with self.subTest(path):
                self.assertTrue(any(p.search(path) for p in self.takes))
                self.assertTrue(
                    any(p.search(path) for p in self.leaves),
                    path + " has an -O in its copts: leave it out of the precompiled header, "
                    "in build:quick --per_file_copt of .bazelrc",
                )

    def test_nothing_else_is_left_out(self):
        for pattern in self.leaves:
            # Each name of "-(photo|planes)\.cc$" counts.
            names = re.fullmatch(r"\(([a-z0-9_|]+)\)(.*)", pattern.pattern)
            ends = [n + names[2] for n in names[1].split("|")] if names else [pattern.pattern]
            for end in ends:
                with self.subTest(end):
                    self.assertTrue(
                        any(re.search(end, path) for path in self.own | OTHERS),
                        ".bazelrc leaves out " + end + ", which has no -O of its own",
                    )

    def test_the_quickstart_builds_what_was_looked_at(self):
        with open("deploy/quickstart.sh", encoding="utf-8") as file:
            build = re.search(r'^bazel build "\$\{build\[@\]\}"(.*?)2>', file.read(), re.M | re.S)
        self.assertEqual(
            sorted(re.findall(r"//\S+", build[1])),
            ["//client/ballastctl", "//server:ballast-server",
             "//trainer_shim/ballast_rank:ballast-rank"],
        )  # fmt: skip


if __name__ == "__main__":
    unittest.main()
