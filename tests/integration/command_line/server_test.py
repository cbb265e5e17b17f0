"""serve, ballastctl and ballast-rank together."""

import collections
import json
import unittest

from tests.harness import tools

DP = {"vision": 2, "language": 4}
MICRO_BATCHES = 2


class ServerTest(tools.CorpusTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.socket = "unix:" + cls.folder + "/a.sock"
        # Sends SIGTERM and requires the server to exit with status 0.
        server = cls().server(cls.config, cls.socket, "127.0.0.1:0")
        cls.addresses = cls.until_class_ends(server)

    def ctl(self, *arguments, address=None):
        return self.ok("ballastctl", "--server", address or self.socket, *arguments)

    def plan(self, *arguments):
        return self.ok("ballast-server", "plan", "--config", self.config, *arguments)

    def test_addresses(self):
        self.assertEqual(self.addresses[0], self.socket)
        self.assertRegex(self.addresses[1], r"^127\.0\.0\.1:[1-9]\d*$")
        self.assertEqual(len(self.addresses), 2)

    def test_status(self):
        for address in self.addresses:
            status = json.loads(self.ctl("status", "--json", address=address))
            for key in ("step", "spread"):  # once a rank has got a block
                status.pop(key, None)
            self.keys(
                status,
                "server", "address", "health", "fingerprint", "data_fingerprint",
                "delivery",
                "modules", "batch", "model", "version", "costs", "uptime_seconds", "rates",
                "workers", "queue", "memory", "cache", "open_streams",
                "clients_total", "clients", "left_out", "problems", "max_bad_samples",
                "bad_samples", "stalls",
            )  # fmt: skip
            self.assertEqual(status["problems"], [])
            self.assertEqual(status["bad_samples"], [])
            self.assertEqual(status["stalls"], [])
            self.assertEqual(status["address"], address)
            self.assertEqual(status["server"], self.socket)
            self.assertEqual(status["health"], "serving")
            self.assertEqual(status["delivery"], "exchange")
            self.assertEqual({m: v["dp"] for m, v in status["modules"].items()}, DP)
            self.assertEqual(status["batch"], {"global": 16, "micro": 8})
        table = self.ctl("status")
        self.assertIn(status["fingerprint"], table)
        self.assertIn("16 samples a step, 8 a micro-batch", table)

    def test_a_server_is_called_by_its_port(self):
        with self.server(self.config, "127.0.0.1:0") as (address,):
            status = json.loads(self.ctl("status", "--json", address=address))
            self.assertEqual(status["server"], address)

    def test_health(self):
        self.assertEqual(self.ctl("health"), "serving\n")
        self.assertEqual(self.ctl("health", "--wait", 60), "serving\n")
        nobody = "unix:" + self.folder + "/nobody.sock"
        message = self.error("ballastctl", "--server", nobody, "health")
        self.assertIn(nobody, message)

    def test_the_server_may_stand_in_the_environment(self):
        done = tools.run("ballastctl", "status", env={"BALLAST_SERVER": self.socket})
        self.assertEqual(done.returncode, 0, done.stderr.decode())

    def test_schedule_is_the_plan(self):
        for line in (
            ("--step", 0, "--json"),
            ("--step", 7, "--steps", 3, "--json"),
            ("--step", 2),
        ):
            self.assertEqual(self.ctl("schedule", *line), self.plan(*line))

    def pull(self, module, rank):
        text = self.ctl(
            "pull", "--module", module, "--dp-rank", rank,
            "--step", 1, "--steps", 2, "--json",
        )  # fmt: skip
        return [json.loads(line) for line in text.splitlines()]

    def test_pull_is_the_same_on_every_run(self):
        plan = [json.loads(p) for p in self.plan("--step", 1, "--steps", 2, "--json").splitlines()]
        for module, dp in DP.items():
            for rank in (0, dp - 1):
                blocks = self.pull(module, rank)
                self.assertEqual(
                    [(b["step"], b["micro_batch"]) for b in blocks],
                    [(1, 0), (1, 1), (2, 0), (2, 1)],
                )
                again = self.pull(module, rank)
                self.assertEqual(tools.without_ms(blocks), tools.without_ms(again))
                for block in blocks:
                    self.keys(
                        block,
                        "step", "micro_batch", "samples", "images", "tokens",
                        "label_tokens", "bytes", "xxh3", "placeholders", "wait_ms",
                    )  # fmt: skip
                    samples = [
                        s
                        for s in plan[block["step"] - 1]["micro_batches"][block["micro_batch"]][
                            "samples"
                        ]
                        if s["reader"][module] == rank
                    ]
                    self.assertEqual(block["samples"], len(samples))
                    for key in ("tokens", "label_tokens"):
                        self.assertEqual(block[key], sum(s[key] for s in samples))
                    self.assertEqual(block["placeholders"], 0)

    def rank(self, *arguments):
        return self.ok(
            "ballast-rank", "--server", self.socket, "--backend", "host",
            "--world", "all", "--steps", 2, *arguments,
        )  # fmt: skip

    def test_every_rank_gets_what_it_owns(self):
        lines = [json.loads(line) for line in self.rank("--json").splitlines()]
        again = [json.loads(line) for line in self.rank("--json").splitlines()]
        self.assertEqual(tools.without_ms(lines), tools.without_ms(again))
        self.assertEqual(len(lines), 2 * MICRO_BATCHES * sum(DP.values()))
        got = collections.defaultdict(list)
        for line in lines:
            self.keys(
                line,
                "step", "micro_batch", "module", "dp_rank", "samples",
                "placeholders", "tokens", "padded_tokens", "images", "patches",
                "digest", "bytes_read", "bytes_moved", "next_ms",
            )  # fmt: skip
            place = (line["step"], line["micro_batch"], line["module"])
            self.assertEqual(line["dp_rank"], len(got[place]))
            got[place].append(line)
        for text in self.plan("--step", 0, "--steps", 2, "--json").splitlines():
            step = json.loads(text)
            for m, micro_batch in enumerate(step["micro_batches"]):
                for module, dp in DP.items():
                    for rank, line in enumerate(got.pop((step["step"], m, module))):
                        owned = sorted(
                            (s for s in micro_batch["samples"] if s["owner"][module] == rank),
                            key=lambda s: s["place"],
                        )
                        self.assertEqual(line["samples"], [s["sample"] for s in owned])
                        for key in ("tokens", "images", "patches"):
                            self.assertEqual(line[key], sum(s[key] for s in owned))
                    self.assertEqual(rank, dp - 1)
        self.assertEqual(got, {})

    def test_table_of_the_ranks(self):
        lines = self.rank().splitlines()
        loads = collections.Counter()
        for text in self.plan("--step", 0, "--steps", 2, "--json").splitlines():
            for micro_batch in json.loads(text)["micro_batches"]:
                for module, load in micro_batch["load"].items():
                    for rank, after in enumerate(load["after"]):
                        loads[module, str(rank)] += after
        rows = [line.split() for line in lines[2 : 2 + sum(DP.values())]]
        self.assertEqual([(r[0], r[1]) for r in rows], list(loads))
        for row in rows:
            self.assertEqual(row[3], str(int(loads[row[0], row[1]])))
        self.assertEqual(lines[-1], f"  ballastctl --server {self.socket} schedule --step 0")

    def test_errors(self):
        nobody = "unix:" + self.folder + "/nobody.sock"
        message = self.error("ballastctl", "--server", nobody, "status")
        self.assertIn(nobody, message)
        self.assertIn("ballast-server serve", message)
        message = self.error(
            "ballast-rank", "--server", nobody, "--steps", 1, "--wait-for-server", 0
        )
        self.assertIn(nobody, message)
        message = self.error("ballastctl", "--server", "nonsense", "status")
        self.assertIn('"nonsense"', message)
        message = self.error("ballastctl", "status", status=2)
        self.assertIn("missing --server ADDRESS", message)

        server = ("--server", self.socket)
        last = 2**64 - 1
        message = self.error("ballastctl", *server, "schedule", "--step", last)
        self.assertIn(f"step {last}", message)
        pull = ("pull", "--module", "vision", "--dp-rank")
        message = self.error("ballastctl", *server, *pull, 0, "--step", last)
        self.assertIn(f"step {last}", message)
        message = self.error("ballastctl", *server, *pull, 2, "--step", 0)
        self.assertIn("vision has 2 data-parallel ranks; rank 2", message)
        message = self.error("ballast-rank", *server, "--steps", 1, "--world", "one")
        self.assertIn("--module and --dp-rank", message)
        message = self.error(
            "ballast-rank", *server, "--steps", 1, "--world", "all",
            "--module", "vision", "--dp-rank", 0,
        )  # fmt: skip
        self.assertIn("--world all runs every rank", message)

    def test_an_address_that_cannot_be_had(self):
        message = self.error_of_serve(self.addresses[1])
        self.assertIn(f"serve.listen: cannot listen at {self.addresses[1]}", message)
        message = self.error_of_serve("nonsense")
        self.assertIn('serve.listen: found "nonsense"; wanted unix:', message)

    def error_of_serve(self, address):
        done = tools.run("ballast-server", "serve", "--config", self.config, "--listen", address)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout, b"")
        return done.stderr.decode()


if __name__ == "__main__":
    unittest.main()
