"""Alerts of deploy/prometheus over metrics that real servers give under real faults: what
fires, and that nothing else does. A minute of the recording is one look at the server.

    bazel test //tests/faults:recorded_alerts_test
"""

import glob
import json
import os
import re
import shutil
import signal
import subprocess
import unittest

from tests.harness import tools

CONFIG = """
sources:
  - {name: docs, format: webdataset, path: "docs-*.tar"}
model: {profile: qwen2_5_vl, tokenizer: bytes, max_pixels: 12544}
batch: {global: 4, micro: 2, max_tokens: 8192}
topology:
  modules: {vision: {dp: 1}, language: {dp: 1}}
balance: {delivery: direct}
serve: {threads: 2, memory: 64MiB, prefetch_steps: 1, read_attempts: 2}
"""
# As long as any alert looks back.
MINUTES = 27


def series(metrics):
    """{"name{label="value"}": number} of `ballastctl metrics --json`."""
    found = {}
    for key, value in metrics.items():
        name, *labels = key.split(" ")
        labels.append("instance=a")
        if name.startswith("process_"):
            labels.append("job=ballast")
        text = ", ".join('%s="%s"' % tuple(label.split("=", 1)) for label in labels)
        if isinstance(value, dict):
            found[f"{name}_count{{{text}}}"] = value["count"]
            found[f"{name}_sum{{{text}}}"] = value["sum"]
        else:
            found[f"{name}{{{text}}}"] = value
    return found


@unittest.skipIf(shutil.which("promtool") is None, "not installed: promtool")
class RecordedAlertsTest(tools.JobTest):
    def setUp(self):
        super().setUp()
        self.set_up_job(CONFIG, samples=32)
        self.server = self.start_server("a")
        self.minutes = []

    def ctl(self, *arguments):
        return self.ok("ballastctl", "--server", self.server.address, *arguments)

    def look(self):
        """Records a minute of the server; one that does not answer has no series but `up`."""
        done = tools.run("ballastctl", "--server", self.server.address, "metrics", "--json")
        up = {'up{job="ballast", instance="a"}': 0 if done.returncode else 1}
        self.minutes.append({**(series(json.loads(done.stdout)) if done.stdout else {}), **up})

    def take(self, *flags):
        """Ranks take steps, or give up after a second; records a minute."""
        done = tools.run(
            "ballast-rank",
            "--server",
            self.server.address,
            "--world",
            "all",
            "--steps",
            2,
            "--give-up-after",
            1,
            *flags,
        )
        self.look()
        return done

    def until(self, *kinds):
        """Waits until the server's status lists these problems alone; returns them."""
        while True:
            problems = json.loads(self.ctl("status", "--interval", 0, "--json"))["problems"]
            if sorted(p["kind"] for p in problems) == sorted(kinds):
                return problems

    def fired(self, minute=None):
        """The alerts that fire in a minute, by default the last."""
        names = sorted({name for minute in self.minutes for name in minute})
        minute = len(self.minutes) - 1 if minute is None else minute
        test = {
            "rule_files": [os.path.abspath("deploy/prometheus/alerts.yaml")],
            "evaluation_interval": "1m",
            "tests": [{
                "interval": "1m",
                "input_series": [
                    {"series": name, "values": " ".join(str(m.get(name, "_")) for m in self.minutes)}
                    for name in names
                ],
                # promtool names the alerts by refusing that none is expected.
                "promql_expr_test": [{
                    "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                    "eval_time": f"{minute}m",
                    "exp_samples": [],
                }],
            }],
        }  # fmt: skip
        path = self.write("recorded.yaml", json.dumps(test))
        done = subprocess.run(
            ["promtool", "test", "rules", path], capture_output=True, timeout=tools.TIMEOUT_S
        )
        said = (done.stdout + done.stderr).decode()
        if done.returncode == 0:
            return []
        self.assertIn("got:", said)
        return sorted(set(re.findall(r'alertname="(\w+)"', said[said.index("got:") :])))

    def test_a_job_that_runs_raises_none(self):
        for start in range(0, 2 * MINUTES, 2):
            self.assertEqual(self.take("--step", start).returncode, 0)
        self.until()
        self.assertEqual(self.fired(), [])

    def test_data_that_cannot_be_read(self):
        tars = sorted(name for name in os.listdir(self.folder) if name.endswith(".tar"))
        before = {name: os.stat(self.path(name)) for name in tars}
        for start in range(0, 6, 2):
            self.assertEqual(self.take("--step", start).returncode, 0)
        for name in tars:
            os.utime(self.path(name))  # as written anew
        done = self.take("--step", 6)
        self.assertNotEqual(done.returncode, 0)
        problem = self.until("reads_fail")[0]
        self.assertIn(os.path.basename(problem["subject"]), tars)
        self.assertIn("the file has changed since it was indexed", problem["text"])
        for command in ("status", "top"):
            flags = ["--once"] if command == "top" else []
            self.assertIn("reads_fail", self.ctl(command, *flags))
        told = self.error("ballastctl", "--server", self.server.address, "doctor")
        self.assertIn("fault", told)
        with open(self.log, encoding="utf-8") as log:
            lines = [line for line in log if "has changed since it was indexed" in line]
        self.assertGreater(len(lines), 0)
        # Health is SERVING, and no client waits: each comes, fails and goes.
        while len(self.minutes) < MINUTES + 3:
            self.take("--step", 6)
        self.assertEqual(self.fired(8), ["BallastReadsFail"])
        self.assertEqual(self.fired(), ["BallastNoProgress", "BallastReadsFail"])
        for name in tars:
            os.utime(self.path(name), ns=(before[name].st_atime_ns, before[name].st_mtime_ns))
        self.assertEqual(self.take("--step", 6).returncode, 0)
        self.until()
        self.take("--step", 8)
        self.assertEqual(self.fired(), [])

    def test_a_reload_that_is_refused(self):
        self.look()
        with open(self.config, encoding="utf-8") as file:
            text = file.read()
        self.write("job.yaml", text + "order: {seed: 5}\n")
        self.server.signal(signal.SIGHUP)
        self.assertIn("order.seed", self.until("reload")[0]["text"])
        for _ in range(3):
            self.look()
        self.assertEqual(self.fired(), ["BallastReloadFailed"])
        self.write("job.yaml", text)
        self.server.signal(signal.SIGHUP)
        self.until()

    def test_an_index_that_is_written_over(self):
        self.look()
        (index,) = glob.glob(self.path(".ballast", "*.index"))
        with open(index, "r+b") as file:
            first = file.read(1)
            file.seek(0)
            file.write(bytes([first[0] ^ 1]))
        self.assertIn("the index has changed", self.until("not_serving")[0]["text"])
        self.assertIn("not serving", self.ctl("status"))
        for _ in range(3):
            self.look()
        self.assertEqual(self.fired(), ["BallastNotServing"])

    def test_a_server_that_is_killed(self):
        self.take()
        self.server.kill()
        for _ in range(3):
            self.look()
        self.assertEqual(self.fired(), ["BallastServerDown"])


if __name__ == "__main__":
    unittest.main()
