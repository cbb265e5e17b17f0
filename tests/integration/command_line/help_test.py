"""Every command's --help: it exits with 0, has examples, and these are true."""

import functools
import re
import unittest

from tests.harness import tools

PROGRAMS = ("ballast-server", "ballastctl", "ballast-rank")

# Commands that must exist; those added later are found by --help.
PROMISED = {
    ("ballast-server",): {"index", "serve", "plan", "inspect", "make-corpus"},
    ("ballast-server", "inspect"): {
        "image", "text", "positions", "balance", "lengths", "sample",
    },
    ("ballastctl",): {
        "status", "schedule", "balance", "metrics", "top", "pull", "fit-cost",
    },
}  # fmt: skip


def part(text, title):
    """The lines below `title` up to an empty one."""
    found = re.search(rf"^{title}:\n((?:.+\n)+)", text, re.MULTILINE)
    return found[1] if found else ""


@functools.cache  # Every line of every example asks again.
def get_help(path):
    return tools.ok(path[0], *path[1:], "--help")


class HelpTest(tools.ToolTest):
    def commands(self, path):
        """Names of the commands below a command."""
        return re.findall(r"^  (\S+)", part(get_help(path), "Commands"), re.MULTILINE)

    def all_paths(self):
        paths = [(name,) for name in PROGRAMS]
        for path in paths:
            paths += [path + (name,) for name in self.commands(path)]
        return paths

    def test_promised_commands(self):
        for path, names in PROMISED.items():
            self.assertLessEqual(names, set(self.commands(path)))

    def test_every_help_fits_a_terminal_and_explains_every_option(self):
        for path in self.all_paths():
            text = get_help(path)
            for line in text.splitlines():
                self.assertLessEqual(len(line), 80, path)
            usage = re.search(r"^Usage: (.+?)\n\n", text, re.MULTILINE | re.DOTALL)[1]
            self.assertTrue(usage.startswith(" ".join(path)), usage)
            described = part(text, "Required") + part(text, "Options")
            for option in re.findall(r"--[a-z0-9-]+", usage):
                self.assertRegex(described, rf"(?m)^  {option}\b", path)
            # Only required options have no brackets.
            for option in re.findall(r"^  (--[a-z0-9-]+)", part(text, "Required"), re.M):
                self.assertNotRegex(usage, rf"\[{option}\b", path)
            for option in re.findall(r"^  (--[a-z0-9-]+)", part(text, "Options"), re.M):
                self.assertRegex(usage, rf"\[{option}\b", path)

    def test_examples_are_of_lines_that_exist(self):
        for path in self.all_paths():
            examples = part(get_help(path), "Examples")
            self.assertNotEqual(examples, "", path)
            self.assertIn(path[0], examples)
            joined = re.sub(r"\\\n\s*", "", examples)
            lines = re.findall(rf"\b{path[0]}\s+(.*)", joined)
            self.assertNotEqual(lines, [], path)
            for line in lines:
                self.check_line(path[0], line.split())

    def check_line(self, name, words):
        path = (name,)
        for word in words:
            if word in self.commands(path):
                path += (word,)
        self.assertEqual(self.commands(path), [], f"{words} runs no command")
        text = get_help(path)
        known = re.findall(r"--[a-z0-9-]+", part(text, "Required") + part(text, "Options"))
        given = [word for word in words if word.startswith("--")]
        self.assertLessEqual(set(given), set(known), words)
        for option in re.findall(r"^  (--[a-z0-9-]+)", part(text, "Required"), re.M):
            self.assertIn(option, given, words)

    def test_wrong_lines(self):
        for path in self.all_paths():
            message = self.error(path[0], *path[1:], "--no-such-option", status=2)
            self.assertIn("unknown option --no-such-option", message)
            self.assertIn(f"See `{' '.join(path)} --help`", message)


if __name__ == "__main__":
    unittest.main()
