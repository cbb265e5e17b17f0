"""Runs every command in the pages, or checks it if a test cannot run it.

Commands stand in blocks marked `sh`. They are run in order, a page at a time, in a
folder with a drawn data set and the page's configuration (its first `yaml` block
that begins with `sources:`, or else the README's), where the address
127.0.0.1:7070, or unix:/tmp/docs.sock, stands for a socket of the test's own. A block after the line

    <!-- as written: WHY IT IS NOT RUN -->

is only checked: it must be valid shell, the scripts that it calls must exist, and the
    programs must know its commands and options.
"""

import glob
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import unittest

from tests.harness import tools

PROGRAMS = ("ballast-server", "ballastctl", "ballast-rank")
ADDRESS = "127.0.0.1:7070"
README_ADDRESS = "unix:/tmp/docs.sock"
# The start of a page that queries a server and starts none.
SERVER = f"""
ballast-server index --config ballast.yaml
ballast-server serve --config ballast.yaml &
ballastctl --server {ADDRESS} health --wait 60
"""
COMMAND = re.compile(
    r"^\s*(\$ )?([A-Z_]+=\S+ )*"
    r"(bazel |ballast-server |ballastctl |ballast-rank |deploy/|tests/\S+\.(sh|py)|"
    r"pip |docker |kubectl |sbatch |systemctl |apt-get )"
)
BLOCK = re.compile(
    r"^(?:<!-- (?P<why>as written: .+?) -->\n)?```(?P<language>\w*)\n"
    r"(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def page_names():
    names = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
    names += glob.glob("docs/**/*.md", recursive=True)
    return sorted(names)


def read(name):
    with open(name, encoding="utf-8") as file:
        return file.read()


def blocks(name):
    """(language, text, why it is not run or None) of each fenced block."""
    return [(b["language"], b["text"], b["why"]) for b in BLOCK.finditer(read(name))]


def simple_commands(script):
    """The words of each command, without assignments, redirections, comments."""
    script = re.sub(r"\\\n\s*", " ", script)
    for line in script.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = []
        for word in [*lexer, ";"]:
            if set(word) <= set("();<>|&"):
                if words:
                    yield words
                words = []
            elif words or not re.match(r"[A-Z_]+=", word):
                words.append(word)


class CommandsTest(unittest.TestCase):
    def test_commands_stand_in_blocks_of_shell(self):
        for name in page_names():
            rest = BLOCK.sub(lambda b: "" if b["language"] == "sh" else b["text"], read(name))
            for line in rest.splitlines():
                if name.startswith("docs/") or line.startswith("    "):
                    self.assertIsNone(COMMAND.match(line), f"{name}: `{line}` is in no sh block")

    def test_links_lead_somewhere(self):
        for name in page_names():
            text = BLOCK.sub("", read(name))
            for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
                target = os.path.normpath(os.path.join(os.path.dirname(name), link))
                # The test has copies of pages only.
                if target.endswith(".md"):
                    self.assertTrue(os.path.exists(target), f"{name}: {link}")

    def test_the_index_has_every_page(self):
        index = read("docs/README.md")
        for name in glob.glob("docs/**/*.md", recursive=True):
            if name != "docs/README.md":
                self.assertIn(f"({os.path.relpath(name, 'docs')})", index)

    def test_commands_that_are_not_run_are_valid(self):
        helps = {}

        def help_of(path):
            if path not in helps:
                done = tools.run(path[0], *path[1:], "--help")
                self.assertEqual(done.returncode, 0, path)
                helps[path] = done.stdout.decode()
            return helps[path]

        for name in page_names():
            for language, text, why in blocks(name):
                if language != "sh":
                    continue
                done = subprocess.run(["bash", "-n"], input=text.encode(), check=False)
                self.assertEqual(done.returncode, 0, f"{name}: {text}")
                if why is None:
                    continue
                for words in simple_commands(text):
                    if words[0] == "sudo":
                        words = words[1:]
                    first = os.path.basename(words[0])
                    if re.match(r"(deploy|tests)/", words[0]):
                        self.assertTrue(os.path.exists(words[0]), f"{name}: {words}")
                    if first not in PROGRAMS:
                        continue
                    path = (first,)
                    for word in words[1:]:
                        if re.search(rf"^  {re.escape(word)}\s", help_of(path), re.M):
                            if not word.startswith("-"):
                                path += (word,)
                    known = re.findall(r"--?[a-z][a-z0-9-]*", help_of(path))
                    for word in words[1:]:
                        if word.startswith("--"):
                            self.assertIn(word.split("=")[0], known, f"{name}: {words}")

    def test_commands_that_can_be_run_succeed(self):
        ran = 0
        for name in page_names():
            scripts = [t for language, t, why in blocks(name) if language == "sh" and why is None]
            if scripts:
                with self.subTest(page=name):
                    self.run_page(name, scripts)
                ran += len(scripts)
        self.assertGreaterEqual(ran, 3)

    def run_page(self, name, scripts):
        # A socket's path must be short; the test directory's is not.
        folder = tempfile.mkdtemp(prefix="ballast", dir="/tmp")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.draw(folder, name)
        programs = os.path.join(folder, "bin")
        os.mkdir(programs)
        for program in PROGRAMS:
            os.symlink(tools.program(program), os.path.join(programs, program))
        text = "".join(scripts)
        if ADDRESS in text and "ballast-server serve" not in text:
            scripts = [SERVER, *scripts]
        for i, script in enumerate(scripts):
            with open(os.path.join(folder, f"log{i}"), "w+b") as log:
                process = subprocess.Popen(
                    ["bash", "-euo", "pipefail", "-c", self.here(script, folder)],
                    cwd=folder,
                    env={**os.environ, "PATH": programs + ":" + os.environ["PATH"]},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                # Ends background processes too.
                self.addCleanup(self.end, process)
                status = process.wait(tools.TIMEOUT_S)
                log.seek(0)
                self.assertEqual(status, 0, f"{name}:\n{script}\n{log.read().decode()}")

    @staticmethod
    def end(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    @staticmethod
    def here(text, folder):
        for address in (ADDRESS, README_ADDRESS):
            text = text.replace(address, f"unix:{folder}/a.sock")
        return text

    def draw(self, folder, name):
        """Creates the data that the pages mention, and ballast.yaml."""
        data = os.path.join(folder, "data")
        os.mkdir(data)
        for i in range(8):
            part = os.path.join(folder, f"part{i}")
            done = tools.run(
                "ballast-server", "make-corpus", "--out", part, "--samples", 4,
                "--seed", i + 1, "--preset", "text" if i > 1 else "receipts",
            )  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            (tar,) = glob.glob(part + "/**/*.tar", recursive=True)
            os.rename(tar, f"{data}/docs-{i:03}.tar")
        with open(data + "/chat.jsonl", "w", encoding="utf-8") as chat:
            for i in range(16):
                chat.write(
                    '{"conversations": [{"from": "human", "value": "What is '
                    f'{i} + 1?"}}, {{"from": "gpt", "value": "{i + 1}"}}]}}\n'
                )
        configuration = next(
            text
            for page in (name, "README.md")
            for language, text, _ in blocks(page)
            # Others show only a section.
            if language == "yaml" and text.startswith("sources:") and "topology:" in text
        )
        with open(folder + "/ballast.yaml", "w", encoding="utf-8") as file:
            file.write(self.here(configuration, folder))


if __name__ == "__main__":
    unittest.main()
