"""Checks that docs/troubleshooting.md quotes the programs' messages word for word.

Each case makes a program fail as a user first would, and names the row of the page that
must match its message on standard error.
"""

import os
import re
import signal
import unittest

from tests.harness import tools

PAGE = os.path.join(
    os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"], "docs/troubleshooting.md"
)


def rows():
    """The messages of the page: {as written there: pattern that it matches}."""
    found = {}
    with open(PAGE, encoding="utf-8") as file:
        for line in file:
            if not line.startswith("| `"):
                continue
            cell = re.split(r" \| ", line[2:])[0]
            for message in re.findall(r"(`+) ?(.+?) ?\1(?!`)", cell):
                text = message[1]
                pattern = re.escape(text).replace("…", ".*")
                found[text] = re.sub(r"\b(FILE|LINE|KEY|N)\b", ".*", pattern)
    return found


class TroubleshootingTest(tools.CorpusTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.rows = rows()
        with open(cls.config, encoding="utf-8") as file:
            cls.text = file.read()

    def says(self, message, program, *arguments, status=1):
        """Checks that the run fails with `message`, which is a row of the page."""
        self.assertIn(message, self.rows)
        done = tools.run(program, *arguments)
        text = done.stderr.decode()
        self.assertEqual(done.returncode, status, text)
        self.assertTrue(
            any(re.search(self.rows[message], line) for line in text.splitlines()),
            f"{message}\nis not what it says:\n{text}",
        )

    def changed(self, *changes):
        text = self.text
        for old, new in changes:
            self.assertIn(old, text)
            text = text.replace(old, new)
        return self.write("changed.yaml", text)

    def index(self, message, *changes):
        with self.subTest(message):
            self.says(message, "ballast-server", "index", "--config", self.changed(*changes))

    def serve(self, message, *changes, listen=None):
        with self.subTest(message):
            more = ["--listen", listen] if listen else []
            config = self.changed(*changes)
            self.says(message, "ballast-server", "serve", "--config", config, *more)

    def test_configurations(self):
        self.index("FILE:LINE: KEY: unknown key; did you mean …?", ("micro:", "micor:"))
        self.index("FILE:LINE: KEY: missing; wanted …", ("micro: 8, ", ""))
        self.index("FILE:LINE: KEY: found …; wanted …", ("global: 16", "global: 15"))
        self.index("FILE:LINE: KEY: found …; wanted …", ("global: 16", "global: many"))
        self.index("FILE:LINE: KEY: found …; wanted …", ("qwen2_5_vl", "qwen9"))
        self.index("FILE:LINE: found broken YAML: …", ("batch: {", "batch: [{"))
        self.index("source …: no file matches …", ("docs-*", "none-*"))
        self.index("tokenizer …: cannot be opened: …", ("tokenizer: bytes", "tokenizer: a.json"))
        self.write("a.json", "{}")
        self.index("tokenizer …: …: missing; wanted …", ("tokenizer: bytes", "tokenizer: a.json"))
        self.index(
            "… samples have more than batch.max_tokens tokens, …",
            ("max_tokens: 8192", "max_tokens: 16"),
        )
        self.says("…: cannot be opened: …", "ballast-server", "index", "--config", self.path("no"))

    def test_init(self):
        empty = self.path("empty")
        os.mkdir(empty)
        out = self.path("init.yaml")
        self.says("…: found nothing that can be a source; …",
                  "ballast-server", "init", empty, "--out", out)  # fmt: skip
        self.says("… exists and was kept; …", "ballast-server", "init", empty, "--out", self.config)
        with open(empty + "/config.json", "w", encoding="utf-8") as file:
            file.write('{"model_type": "gpt2"}')
        self.says("…: model_type: found …; wanted one of …", "ballast-server", "init",
                  self.folder, "--out", out, "--model-dir", empty)  # fmt: skip

    def test_a_server_that_does_not_start(self):
        stale = "…; run `ballast-server index --config …` with this configuration"
        self.serve(stale, ("50176", "100352"))
        self.serve(stale, ("name: docs", "name: other"))
        exposed = "serve.listen: found …; wanted a Unix socket, a loopback address, or security.tls"
        self.serve(exposed, listen="0.0.0.0:0")
        self.serve("serve.listen: cannot listen at …: No such file or directory",
                   listen="unix:" + self.path("none", "a.sock"))  # fmt: skip
        self.serve(
            "serve.http: found …; wanted a loopback address and …",
            ('["127.0.0.1:0"]', '["127.0.0.1:0"], http: "0.0.0.0:0"'),
        )
        self.serve(
            "serve.arena: …: cannot look at …",
            ('["127.0.0.1:0"]', f'["127.0.0.1:0"], arena: {self.path("none")}'),
        )
        security = ("serve:", "security: {tokens_file: tokens}\nserve:")
        self.serve(
            "serve.listen…: found … with security.tokens_file and without security.tls, …",
            security,
        )
        socket = ("127.0.0.1:0", "unix:" + self.path("a.sock"))
        self.serve("security.tokens_file: …", security, socket)
        self.write("tokens", "short\n")
        self.serve("security.tokens_file: …", security, socket)
        self.serve("security.tls.…: …",
                   ("serve:", "security: {tls: {cert: a.pem, key: a.key}}\nserve:"))  # fmt: skip

    def test_beside_a_server(self):
        socket = "unix:" + self.path("a.sock")
        with self.server(self.config, socket, "127.0.0.1:0") as addresses:
            self.serve("serve.listen: another server answers at …", listen=socket)
            self.serve("serve.listen: cannot listen at …: Address already in use",
                       listen=addresses[1])  # fmt: skip
            at = ("--server", socket)
            no_rank = "… has … data-parallel ranks; rank … was asked for"
            self.says(no_rank, "ballastctl", *at, "pull", "--module", "vision",
                      "--dp-rank", 2, "--step", 0)  # fmt: skip
            self.says(
                "the checkpoint was made with other data: …",
                "ballast-rank", *at, "--steps", 1, "--data-fingerprint", "0" * 32,
            )  # fmt: skip
            self.says(
                "no network interface of this machine is called or has the address …; …",
                "ballast-rank", *at, "--steps", 1, "--module", "vision", "--dp-rank", 0,
                "--exchange-interface", "nowhere0",
            )  # fmt: skip
            other = self.changed(("global: 16", "global: 32"))
            with self.server(other, "127.0.0.1:0") as others:
                # A rank whose first server answers goes on without the others.
                servers = f"unix:{self.path('away.sock')},{socket},{others[0]}"
                self.says(
                    "fingerprint … of … differs from … of …; first differing key: …",
                    "ballast-rank", "--server", servers, "--steps", 1,
                )  # fmt: skip
        self.says("server …: … does `ballast-server serve` run there?",
                  "ballastctl", *at, "status")  # fmt: skip

    def test_tools_without_a_server(self):
        self.says("server address …: wanted unix:/path or host:port",
                  "ballastctl", "--server", "nowhere", "status")  # fmt: skip
        self.says("…: missing …", "ballastctl", "status", status=2)
        self.says("…: unknown option …", "ballast-server", "index", "--conf", "a", status=2)

    def test_the_end_of_the_data(self):
        end = "the data end before step …"
        self.assertIn(end, self.rows)
        config = self.changed(("serve:", "order: {epochs: 1}\nserve:"))
        with self.server(config, "127.0.0.1:0") as addresses:
            self.says(end, "ballastctl", "--server", addresses[0], "schedule", "--step", 99)

    def test_data_that_change_under_a_server(self):
        """Uses its own corpus, whose tar is changed."""
        folder = self.path("changing")
        self.ok("ballast-server", "make-corpus", "--out", folder, "--samples", 16,
                "--preset", "text")  # fmt: skip
        config = os.path.join(folder, "job.yaml")
        text = self.text.replace('"docs-*.tar"', "docs-*.tar").replace("global: 16", "global: 8")
        with open(config, "w", encoding="utf-8") as file:
            file.write(text.replace('["127.0.0.1:0"]', '["127.0.0.1:0"], max_bad_samples: 2'))
        self.ok("ballast-server", "index", "--config", config)
        with self.server_process(config) as (server, (address,)):
            # Every text changes and keeps its length, and the file its time.
            path = os.path.join(folder, "docs-000000.tar")
            times = os.stat(path)
            with open(path, "r+b") as tar:
                changed = tar.read().replace(b'{"', b"{x")
                tar.seek(0)
                tar.write(changed)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            # The file may have been open before it changed.
            self.says(
                "sample …: … (and … samples before it were bad, the most that "
                "serve.max_bad_samples allows…",
                "ballast-rank", "--server", address, "--steps", 2,
                "--give-up-after", 1,
            )  # fmt: skip
            server.send_signal(signal.SIGTERM)
            log = server.stderr.read().decode()
        for message in (
            "bad sample … (FILE at byte N): …",
            "the file has changed since it was indexed",
        ):
            self.assertIn(message, self.rows)
            self.assertRegex(log, self.rows[message])


if __name__ == "__main__":
    unittest.main()
