"""Every key of the configuration, every command and every flag stands in a page.

docs/reference is generated and lists them all; a page says what they are for.
"""

import glob
import re
import unittest

from tests.harness import tools
from tests.integration.command_line.help_test import PROGRAMS, part

BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def written():
    """All code of the pages: blocks, and words between backticks."""
    code = []
    for page in ["README.md", *glob.glob("docs/*.md")]:
        text = read(page)
        code += BLOCK.findall(text)
        code += re.findall(r"`([^`\n]+)`", BLOCK.sub("", text))
        code += re.findall(r"(?m)^    (.+)$", text)
    return "\n".join(code)


def keys():
    """ "batch.global", "sources[].path", ..."""
    section = ""
    for line in read("docs/reference/configuration.md").splitlines():
        if found := re.match(r"## `(.+)`", line):
            section = found[1] + "."
        elif found := re.match(r"- \*\*`(\w+)`\*\*", line):
            yield section + found[1]


class NamedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.code = written()

    def lacking(self, names):
        return [n for n in names if not re.search(rf"(?<![\w-]){re.escape(n)}(?![\w-])", self.code)]

    def test_every_key(self):
        all_keys = list(keys())
        self.assertGreater(len(all_keys), 250)
        leaves = {key: key.rpartition(".")[2] for key in all_keys}
        lacking = set(self.lacking(leaves.values()))
        self.assertEqual([key for key, leaf in leaves.items() if leaf in lacking], [])

    def test_every_command_and_flag(self):
        paths = [(name,) for name in PROGRAMS]
        flags = set()
        for path in paths:
            text = tools.ok(*path, "--help")
            paths += [
                path + (name,)
                for name in re.findall(r"^  (\S+)", part(text, "Commands"), re.MULTILINE)
            ]
            described = part(text, "Required") + part(text, "Options")
            flags.update(re.findall(r"^  (--[a-z0-9-]+)", described, re.MULTILINE))
        self.assertGreater(len(flags), 80)
        self.assertEqual(self.lacking(sorted(flags)), [])
        # "inspect text" and not any text.
        commands = [
            " ".join(path[1:] if len(path) > 2 else path) for path in paths[len(PROGRAMS) :]
        ]
        lacking = [c for c in commands if c.partition(" ")[0] == "inspect" and self.lacking([c])]
        lacking += [c for c in commands if self.lacking([c.rpartition(" ")[2]])]
        self.assertEqual(lacking, [])


if __name__ == "__main__":
    unittest.main()
