"""A job of real processes is changed at a step while servers die: ranks go over the step
with the batches of a job that had the change from its start.

    bazel test //tests/faults:changed_job_test
"""

import unittest

from tests.harness import tools

CONFIG = """
sources:
  - {name: docs, format: webdataset, path: "docs-*.tar", weight: 3}
  - {name: more, format: webdataset, path: "docs-*.tar", weight: 1}
model: {profile: qwen2_5_vl, tokenizer: bytes, max_pixels: 12544}
batch: {global: 4, micro: 2, max_tokens: 8192}
topology:
  modules: {vision: {dp: 2}, language: {dp: 2}}
  servers:
    - {address: "unix:FOLDER/a.sock", ranks: {vision: "0", language: "0"}}
    - {address: "unix:FOLDER/b.sock", ranks: {vision: "1", language: "1"}}
order: {}
balance: {delivery: direct}
serve: {threads: 2, memory: 64MiB, prefetch_steps: 1}
"""
# One block at a time, so that a rank needs its server at every batch.
FLAGS = ["--max-bytes", 1, "--give-up-after", 60]
FROM, STEPS = 90, 96


class ChangedJobTest(tools.JobTest):
    def setUp(self):
        super().setUp()
        self.text = CONFIG.replace("FOLDER", self.folder)
        self.set_up_job(self.text, samples=32)

    def changed(self):
        text = self.text
        for before, after in (("weight: 3", "weight: 1"), ("global: 4", "global: 8")):
            text = text.replace(before, after)
        return text

    def start_ranks(self, servers, *flags):
        return [
            self.start_rank(servers, "--module", module, "--dp-rank", rank, *FLAGS, *flags)
            for module in ("vision", "language")
            for rank in (0, 1)
        ]

    def digests(self, ranks):
        return [[(b["step"], b["micro_batch"], b["digest"]) for b in r.batches] for r in ranks]

    def finish(self, ranks):
        self.assertTrue(tools.advance(ranks))
        self.assertEqual([rank.error for rank in ranks], [None] * len(ranks))

    def change(self, server, *flags):
        offered = self.write("new.yaml", self.changed())
        return tools.run(
            "ballastctl",
            "--server",
            server.address,
            "change",
            "--config",
            offered,
            "--from-step",
            FROM,
            *flags,
        )

    def refusal(self, listen):
        done = tools.run("ballast-server", "serve", "--config", self.config, "--listen", listen)
        self.assertEqual(done.returncode, 1)
        return done.stderr.decode()

    def wanted(self):
        """The batches of a job whose configuration says all steps."""
        text = self.text.replace(
            "order: {}",
            f"order: {{mixture_changes: [{{step: {FROM}, weights: {{docs: 1}}}}]}}",
        ).replace("global: 4", f"global: 4, changes: [{{step: {FROM}, global: 8}}]")
        self.config = self.write("whole.yaml", text)
        servers = [self.start_server("a"), self.start_server("b")]
        ranks = self.start_ranks(servers, "--steps", STEPS)
        self.finish(ranks)
        for server in servers:
            server.kill()
        return self.digests(ranks)

    def test_ranks_go_over_the_step_while_servers_die(self):
        wanted = self.wanted()
        a, b = self.start_changeable("a"), self.start_changeable("b")
        ranks = self.start_ranks([a, b], "--steps", STEPS)
        for rank in ranks:
            rank.advance(4)
        self.assertEqual(self.change(b, "--dry-run").returncode, 0)
        # Without one server nothing changes.
        b.kill()
        done = self.change(a)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"nothing has changed: server", done.stderr)
        self.assertIn(b"b.sock", done.stderr)
        b = self.start_changeable("b")
        # Any server takes it to the one that decides.
        done = self.change(b)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"Change 1 holds from step {FROM} on".encode(), done.stdout)
        self.assertIn(b"2 servers agreed", done.stdout)
        # Neither server is the one that agreed, but both know.
        a.kill()
        b.kill()
        a, b = self.start_changeable("a"), self.start_changeable("b")
        self.finish(ranks)
        self.assertEqual(self.digests(ranks), wanted)
        status = tools.json_lines("ballastctl", "--server", a.address, "status", "--json")[0]
        self.assertEqual([c["first_step"] for c in status["changes"]], [FROM])
        # A second time it changes nothing.
        done = self.change(a)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"nothing has changed", done.stderr)

    def test_a_file_of_another_server_or_job_is_refused(self):
        self.start_changeable("a").kill()
        self.config = self.write(
            "b.yaml", self.text.replace("serve: {", "serve: {revisions: a.revisions, ")
        )
        listen = f"unix:{self.path('b')}.sock"
        self.assertIn("is the file of server unix:" + self.path("a.sock"), self.refusal(listen))
        self.config = self.write(
            "a.yaml",
            self.changed().replace("serve: {", "serve: {revisions: a.revisions, "),
        )
        listen = f"unix:{self.path('a')}.sock"
        self.assertIn("is of a job with fingerprint", self.refusal(listen))


if __name__ == "__main__":
    unittest.main()
