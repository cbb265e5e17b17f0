"""The versions of trainers that are named are those that tests start."""

import re
import unittest

from ballast import adapters


class VersionsTest(unittest.TestCase):
    def test_are_those_of_the_trainers_environment(self):
        with open("deploy/trainers.txt", encoding="utf-8") as file:
            installed = dict(re.findall(r"^([\w-]+)==(\S+)", file.read(), re.M))
        self.assertEqual(adapters.TRIED, {name: installed.get(name) for name in adapters.TRIED})

    def test_are_on_the_page(self):
        with open("docs/pytorch.md", encoding="utf-8") as file:
            listed = dict(re.findall(r"^\| ([a-z-]+) \| (\d+\.\d+\.\d+)", file.read(), re.M))
        self.assertEqual(listed, adapters.TRIED)


if __name__ == "__main__":
    unittest.main()
