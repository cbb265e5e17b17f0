"""A server's state: /metrics, the page, ballastctl."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

from tests.harness import tools

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf'^({NAME})(?:\{{((?:{NAME}="(?:[^"\\\n]|\\["\\n])*",?)*)\}})? (\S+)$')


def parse(text):
    """Parses the exposition format strictly: {family: (type, {labels: value})}."""
    families = {}
    current = None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current = line.split(" ", 3)[2]
            assert current not in families, line
            families[current] = [None, {}]
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current and families[name][0] is None, line
            assert kind in ("counter", "gauge", "histogram"), line
            families[name][0] = kind
        else:
            found = SAMPLE.match(line)
            assert found, line
            name, labels, value = found.groups()
            suffixes = ("", "_bucket", "_sum", "_count")
            assert name in [current + s for s in suffixes], line
            key = (name, labels or "")
            assert key not in families[current][1], line
            families[current][1][key] = float(value)
    return families


def repository(*path):
    return os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"], *path)


def has(*programs):
    missing = [p for p in programs if shutil.which(p) is None]
    return unittest.skipIf(missing, "not installed: " + ", ".join(missing))


class MetricsTest(tools.CorpusTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        listen = '["127.0.0.1:0"]'
        tools.write(cls.config, tools.CONFIG.replace(listen, listen + ', http: "127.0.0.1:0"'))
        _, (cls.address,), cls.http = cls.until_class_ends(cls().page_server(cls.config))
        cls.ok("ballast-rank", "--server", cls.address, "--steps", 2, "--report")

    def get(self, path):
        with urllib.request.urlopen(self.http + path, timeout=60) as answer:
            return answer.read().decode()

    def ctl(self, *arguments):
        return self.ok("ballastctl", "--server", self.address, *arguments)

    def test_metrics_are_of_the_format_and_its_conventions(self):
        families = parse(self.get("/metrics"))
        self.assertGreater(len(families), 30)
        for name, (kind, samples) in families.items():
            self.assertTrue(samples, name)
            self.assertEqual(kind == "counter", name.endswith("_total"), name)
            if kind == "histogram":
                self.assertTrue(name.endswith("_seconds"), name)
        images = families["ballast_images_total"][1]
        self.assertGreater(images[("ballast_images_total", 'use="vision"')], 0)
        decode = families["ballast_stage_seconds"][1]
        count = decode[("ballast_stage_seconds_count", 'stage="decode"')]
        last = ("ballast_stage_seconds_bucket", 'stage="decode",le="+Inf"')
        self.assertEqual(decode[last], count)
        phases = "".join(labels for _, labels in families["ballast_rank_seconds"][1])
        for phase in ("train", "wait", "pack"):
            self.assertIn(f'phase="{phase}"', phases)

    def test_the_page_of_the_docs_lists_every_metric_in_order(self):
        with open(repository("docs/metrics.md"), encoding="utf-8") as file:
            rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ", file.read(), re.MULTILINE)
        found = [(n, k) for n, (k, _) in parse(self.get("/metrics")).items()]
        # The page may name metrics that are absent now.
        self.assertEqual(found, [row for row in rows if row in found])
        stores = re.compile("ballast_(store|cache)_")  # absent without one
        self.assertLessEqual(
            {n for n, _ in rows if not stores.match(n)} - {n for n, _ in found},
            {"ballast_certificate_end_seconds", "ballast_client_lag_steps", "ballast_clients"},
        )

    def test_dashboard_and_alerts_name_metrics_that_there_are(self):
        with open(repository("docs/metrics.md"), encoding="utf-8") as file:
            known = set(re.findall(r"^\| `(\w+)` \| ", file.read(), re.MULTILINE))
        with open(repository("deploy/grafana/ballast.json"), encoding="utf-8") as file:
            board = json.load(file)
        text = "\n".join(t["expr"] for p in board["panels"] for t in p["targets"])
        with open(repository("deploy/prometheus/alerts.yaml"), encoding="utf-8") as file:
            text += "".join(re.findall(r"^ +expr: (.+)$", file.read(), re.MULTILINE))
        used = set(re.findall(r"\b(?:ballast|process)_\w+", text))
        used = {re.sub("_(bucket|sum|count)$", "", name) for name in used}
        self.assertGreater(len(used), 15)
        self.assertLessEqual(used, known)

    def test_page_and_its_json(self):
        self.assertTrue(self.get("/").startswith("<!doctype html>"))
        page = json.loads(self.get("/api/status"))
        self.assertEqual(page["step"], 1)
        self.assertEqual(page["balance"]["step"], 1)
        vision = page["balance"]["modules"][0]
        self.assertEqual(len(vision["before"]), 2)
        with self.assertRaises(urllib.error.HTTPError) as missing:
            self.get("/other")
        self.assertEqual(missing.exception.code, 404)
        missing.exception.close()

    def test_history(self):
        past = json.loads(self.get("/api/history?seconds=3600"))
        self.assertEqual(past["ballast_history"], 1)
        status = json.loads(self.get("/api/status"))
        self.assertEqual(past["server"], status["server"])
        rows = [dict(zip(past["columns"], point)) for point in past["points"]]
        self.assertGreater(len(rows), 0)
        self.assertAlmostEqual(rows[0]["seconds"], past["start"], delta=5)
        for before, after in zip(rows, rows[1:]):
            self.assertGreaterEqual(after["seconds"] - before["seconds"], 5)
            self.assertGreaterEqual(after["images"], before["images"])
        for wrong in ("", "?seconds=0", "?seconds=1e9"):
            with self.assertRaises(urllib.error.HTTPError) as refused:
                self.get("/api/history" + wrong)
            self.assertEqual(refused.exception.code, 400)
            refused.exception.close()

    def test_balance_is_that_of_the_plan(self):
        plan = self.json_lines(
            "ballast-server", "plan", "--config", self.config, "--step", 3, "--json"
        )[0]
        balance = json.loads(self.ctl("balance", "--step", 3, "--ranks", "--json"))
        for module, told in balance["modules"].items():
            for when in ("before", "after"):
                loads = [m["load"][module][when] for m in plan["micro_batches"]]
                self.assertEqual(told["load"][when], [sum(r) for r in zip(*loads)])
                spread = sum(map(max, loads)) / sum(sum(load) / len(load) for load in loads)
                self.assertAlmostEqual(told["spread"][when], spread)
            moved = sum(
                s["reader"][module] != s["owner"][module]
                for m in plan["micro_batches"]
                for s in m["samples"]
            )
            self.assertEqual(told["within_servers"]["samples"], moved)
            self.assertEqual(sum(told["bytes_out"]), told["within_servers"]["bytes"])
            self.assertEqual(sum(told["bytes_in"]), told["within_servers"]["bytes"])
        self.assertIn("heaviest/mean read", self.ctl("balance", "--step", 3))
        self.assertEqual(json.loads(self.ctl("balance", "--json"))["step"], 1)
        self.assertEqual(len(self.ctl("balance", "--steps", 20, "--json").splitlines()), 20)

    def test_watch_gives_the_steps_that_have_been(self):
        text = self.ctl("balance", "--watch", "--step", 0, "--steps", 2, "--json")
        self.assertEqual([json.loads(line)["step"] for line in text.splitlines()], [0, 1])

    def test_metrics_and_top(self):
        metrics = json.loads(self.ctl("metrics", "--json"))
        self.assertGreater(metrics["ballast_stage_seconds stage=decode"]["count"], 0)
        self.assertIn("ballast_workers", self.ctl("metrics", "--prefix", "ballast_w"))
        status = json.loads(self.ctl("status", "--interval", 0, "--json"))
        self.assertEqual(status["step"], 1)
        self.assertNotIn("rates", status)
        self.assertGreater(status["spread"]["vision"]["before"], 0)
        self.assertGreater(status["workers"]["all"], 0)
        self.assertGreater(status["cache"]["schedules_computed"], 0)
        version = tools.run("ballast-server", "--version").stdout.decode().split()[1]
        self.assertTrue(status["version"].startswith(version))
        for view in ("status", "metrics", "balance"):
            for line in self.ctl(view).splitlines():
                self.assertLessEqual(len(line), 80, line)
        top = self.ctl("top", "--once")
        self.assertNotIn("\x1b", top)
        self.assertIn("vision: heaviest rank over mean", top)
        for line in top.splitlines():
            self.assertLessEqual(len(line), 80)
        message = self.error("ballastctl", "--server", self.address, "metrics", "--prefix", "a-b")
        self.assertIn("GetStatsRequest.prefix", message)

    @has("promtool")
    def test_promtool_finds_no_fault(self):
        done = subprocess.run(
            ["promtool", "check", "metrics"],
            input=self.get("/metrics").encode(),
            capture_output=True,
            timeout=60,
            check=False,
        )
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))
        for kind, name in (("rules", "alerts.yaml"), ("config", "prometheus.yaml")):
            done = subprocess.run(
                ["promtool", "check", kind, repository("deploy/prometheus", name)],
                capture_output=True,
                timeout=60,
                check=False,
            )
            self.assertEqual(done.returncode, 0, done.stderr.decode())

    @contextlib.contextmanager
    def prometheus(self):
        """Runs a Prometheus that scrapes the server; yields its port."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        config = self.write(
            "prometheus.yaml",
            "global: {scrape_interval: 1s}\nscrape_configs:\n  - job_name: ballast\n"
            f'    static_configs: [{{targets: ["{self.http[7:]}"]}}]\n',
        )
        with subprocess.Popen(
            [
                "prometheus",
                "--config.file=" + config,
                "--storage.tsdb.path=" + self.path("prometheus"),
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                yield port
            finally:
                process.terminate()

    def queries(self):
        """The Prometheus queries of the dashboard and the alerts."""
        with open(repository("deploy/grafana/ballast.json"), encoding="utf-8") as file:
            board = json.load(file)
        found = [t["expr"] for p in board["panels"] for t in p["targets"]]
        # Grafana's values for its variables.
        for name, value in (("$server", ".*"), ("$__rate_interval", "1m")):
            found = [query.replace(name, value) for query in found]
        with open(repository("deploy/prometheus/alerts.yaml"), encoding="utf-8") as file:
            found += re.findall(r"^ +expr: (.+)$", file.read(), re.MULTILINE)
        return found

    @has("prometheus")
    def test_prometheus_scrapes_it(self):
        deadline = time.monotonic() + 90
        with self.prometheus() as port:

            def ask(query):
                url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode(
                    {"query": query}
                )
                with contextlib.suppress(urllib.error.HTTPError):
                    with urllib.request.urlopen(url, timeout=10) as answer:
                        return json.load(answer)["data"]["result"]
                self.fail(query)

            # Until it is ready it refuses connections, then queries.
            ready = False
            while not ready and time.monotonic() < deadline:
                with contextlib.suppress(OSError):
                    url = f"http://127.0.0.1:{port}/-/ready"
                    with urllib.request.urlopen(url, timeout=10) as answer:
                        ready = answer.status == 200
                time.sleep(0.2)
            scrapes = 0
            while scrapes < 2 and time.monotonic() < deadline:
                found = ask("count_over_time(ballast_workers[5m])")
                scrapes = float(found[0]["value"][1]) if found else 0
                time.sleep(0.2)
            self.assertGreaterEqual(scrapes, 2)
            found = ask("ballast_workers")
            # A metric or a label that no server has would return nothing. There
            # are no clients, no stores and no warnings now.
            for query in self.queries():
                compared = re.split(r" (?:[<>]|==|unless) ", query)[0]
                if not re.search("ballast_client|ballast_(store|cache)_|^up", query):
                    self.assertTrue(ask(compared), compared)
                ask(query)
        self.assertEqual(found[0]["metric"]["job"], "ballast")
        workers = parse(self.get("/metrics"))["ballast_workers"][1]
        self.assertEqual(float(found[0]["value"][1]), workers[("ballast_workers", "")])

    def shown(self, url, folder):
        done = subprocess.run(
            [
                "chromium", "--headless=new", "--no-sandbox", "--disable-gpu",
                "--user-data-dir=" + self.path(folder),
                "--virtual-time-budget=8000", "--dump-dom", url + "/",
            ],  # fmt: skip
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=180,
            check=False,
        )  # fmt: skip
        self.assertNotIn("Refused to", done.stderr.decode())
        return done.stdout.decode()

    @has("chromium")
    def test_a_browser_shows_all_modules_of_a_rank(self):
        config = tools.write(
            self.path("equal.yaml"),
            tools.CONFIG.replace("vision: {dp: 2}", "vision: {dp: 4}").replace(
                '["127.0.0.1:0"]', '["127.0.0.1:0"], http: "127.0.0.1:0"'
            ),
        )
        with self.page_server(config) as (_, (address,), http):
            self.ok("ballast-rank", "--server", address, "--steps", 1)
            step = json.loads(
                self.ok("ballastctl", "--server", address, "schedule", "--step", 0, "--json")
            )
            shown = self.shown(http, "chromium-equal")
        # Each micro-batch waits for its own heaviest rank.
        ranks = [
            [sum(of) for of in zip(*(load["after"] for load in columns["load"].values()))]
            for columns in step["micro_batches"]
        ]
        self.assertGreater(len(ranks), 1)
        self.assertIn("All modules: load of each rank in step 0", shown)
        heaviest = sum(map(max, ranks)) * len(ranks[0]) / sum(map(sum, ranks))
        self.assertIn("<b>%.3f</b> as trained" % heaviest, shown)

    @has("chromium")
    def test_a_browser_shows_it(self):
        shown = self.shown(self.http, "chromium")
        self.assertNotIn("All modules: load of each rank in step 1", shown)  # 2 and 4 ranks
        self.assertIn("Vision: load of each rank in step 1", shown)
        self.assertIn("tokenise", shown)
        self.assertIn(">live<", shown)
        self.assertIn(">Over time<", shown)
        self.assertIn("workers busy", shown)


if __name__ == "__main__":
    unittest.main()
