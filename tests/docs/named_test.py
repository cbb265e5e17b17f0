"""Every key of the configuration, every command and every flag stands in a page; every test
that docs/faults.md names is one, every message that a page quotes stands in the source, and
every link leads somewhere.

docs/reference is generated and lists keys and flags; a page says what they are for.
"""

import glob
import os
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
    for page in ["README.md", *glob.glob("docs/*.md"), *glob.glob("docs/measurements/*.md")]:
        text = read(page)
        code += BLOCK.findall(text)
        code += re.findall(r"`([^`\n]+)`", BLOCK.sub("", text))
        code += re.findall(r"(?m)^    (.+)$", text)
    return "\n".join(code)


# The checkout: Bazel's files are links into it.
ROOT = os.path.dirname(os.path.realpath("CONTRIBUTING.md"))
# Of messages that docs/troubleshooting.md quotes, what other programs say, and what is put
# together of more than one literal.
OTHERS = (
    "SIGTERM while draining",
    "cannot look at",
    "no schedule of step",
    "this build cannot read s",
    "wanted a loopback address and",
    "No such file or directory",
    "version `GLIBC_",
    "version `GLIBCXX_",
    "error while loading shared libraries",
    "Illegal instruction",
)


def sources(*folders):
    """Each source of these folders, its string literals joined as a compiler does."""
    for folder in folders:
        for at, _, names in os.walk(os.path.join(ROOT, folder)):
            for name in names:
                if name.endswith((".cc", ".h", ".py", ".sh", ".cu", ".proto", ".bzl")):
                    yield name, re.sub(r'"\s*\n\s*"', "", read(os.path.join(at, name)))


def messages():
    """The parts of the messages of docs/troubleshooting.md that do not vary."""
    for line in read("docs/troubleshooting.md").splitlines():
        if not line.startswith("| `"):
            continue
        for _, quoted in re.findall(r"(`+) ?(.+?) ?\1(?!`)", line[2:].split(" | ")[0]):
            for part_of in re.split(r"[…;:,]|\b(?:FILE|LINE|KEY|N)\b|\d+", quoted):
                if len(part_of.strip(" .")) >= 8:
                    yield part_of.strip(" .")


def anchors(path):
    """The anchors of a page: of each heading, as GitHub and the site name it."""
    titles = re.findall(r"(?m)^#+ (.*)$", BLOCK.sub("", read(path)))
    plain = [re.sub(r"[^\w -]", "", re.sub(r"\]\([^)]*\)", "", t)).lower() for t in titles]
    return {re.sub(" ", "-", title.strip()) for title in plain}


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

    def test_every_test_of_the_faults(self):
        tests = list(sources("tests"))
        names = {name.rpartition(".")[0] for name, _ in tests} | set(re.findall(
            r'name = "(\w+)"',
            "".join(read(path) for path in glob.glob(ROOT + "/tests/**/BUILD.bazel", recursive=True)),
        ))  # fmt: skip
        text, cases = "".join(code for _, code in tests), []
        named = re.findall(r"`(\w+_test)`(?: \(([^)]*)\))?", read("docs/faults.md"))
        self.assertGreater(len(named), 300)
        for name, listed in named:
            self.assertIn(name, names)
            cases += [c for c in re.split(r",\s*", listed) if re.fullmatch(r"\w+(\.\w+)?", c)]
        self.assertEqual([c for c in cases if c.rpartition(".")[2] not in text], [])

    def test_every_quoted_message(self):
        text = "".join(
            code
            for _, code in sources(
                "server", "client", "common", "proto", "trainer_shim", "deploy", "bazel"
            )
        ).replace('\\"', '"')
        found = set(messages()) - set(OTHERS)
        self.assertGreater(len(found), 100)
        self.assertEqual(sorted(m for m in found if m not in text), [])

    def test_every_page_is_in_the_list_of_the_site(self):
        listed = read(os.path.join(ROOT, "docs/mkdocs.yml"))
        pages = [p for kind in ("", "measurements/") for p in glob.glob("docs/%s*.md" % kind)]
        self.assertGreater(len(pages), 40)
        self.assertEqual(
            [page for page in pages if f": {page}" not in listed and f"- {page}" not in listed], []
        )

    def test_every_link(self):
        pages = [os.path.join(ROOT, page) for page in glob.glob("*.md")]
        pages += glob.glob(ROOT + "/docs/**/*.md", recursive=True)
        wrong, seen = [], 0
        for page in pages:
            for link in re.findall(r"\]\(([^()\s]+)\)", BLOCK.sub("", read(page))):
                if re.match(r"\w+:", link):
                    continue
                seen += 1
                path, _, anchor = link.partition("#")
                path = os.path.join(os.path.dirname(page), path) if path else page
                if not os.path.exists(path) or (anchor and anchor not in anchors(path)):
                    wrong.append((os.path.relpath(page, ROOT), link))
        self.assertGreater(seen, 500)
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
