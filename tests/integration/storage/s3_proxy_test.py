"""S3 and the cache behind a proxy that delays, cuts, repeats and lies about lengths:
every batch is that of local files, or the pull ends with a plain error.

    bazel test //tests/integration/storage:s3_proxy_test
    bazel run --test_sharding_strategy=disabled //tests/integration/storage:s3_proxy_test \\
        -- --rounds 20

Prints a line for each kind: pulls that were whole, pulls that ended with an error,
answers that the proxy falsified, and the store's errors that servers saw in spite of the
client's own attempts. Bytes that change on their way at the same length are not tried:
who fears that takes https.
"""

import collections
import concurrent.futures
import json
import shutil
import sys
import unittest

from tests.harness import tools
from tests.integration.storage import s3_server, s3_test

KINDS = {
    "delays": "delay 0.02",
    "resets": "reset 0.1",
    "cuts": "cut 0.2",
    "repeats": "repeat 0.5",
    "too short": "shorter 0.3",
    "too long": "longer 0.1",
}
RANKS = (("vision", 0), ("vision", 1), ("language", 0))
STEPS = s3_test.SAMPLES // 8
ROUNDS = 1


class S3ProxyTest(s3_test.S3Job):
    # Not parquet: a server reads the one row group of so few samples at its start.
    FORMS = ("webdataset",)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        self = cls()
        config = self.local_job("local")
        self.index(config)
        with self.server(config, "127.0.0.1:0") as (address,):
            cls.local = self.pull(address, STEPS)
            cls.wanted = {key: self.lines(self.pull_one(address, *key)) for key in RANKS}

    def pull_one(self, address, module, rank):
        return tools.run(
            "ballastctl", "--server", address, "pull", "--module", module, "--dp-rank", rank,
            "--step", 0, "--steps", STEPS, "--give-up-after", 20, "--json",
        )  # fmt: skip

    def lines(self, done):
        return [tools.without_ms(json.loads(line)) for line in done.stdout.decode().splitlines()]

    def no_batch_is_wrong(self, kind):
        for cached in (False, True):
            with self.subTest(cached=cached), self.proxy() as (endpoint, order):
                self.lies(kind, cached, endpoint, order)

    def lies(self, kind, cached, endpoint, order):
        more = ", ahead_steps: 0"
        if cached:
            more += ', cache: {dir: "%s", size: 64MiB}' % self.path("cache")
        config = self.s3_job("proxied", more=more, endpoint=endpoint, timeout=20)
        self.index(config)
        found = collections.Counter()
        for _ in range(ROUNDS):
            shutil.rmtree(self.path("cache"), ignore_errors=True)
            with self.server(config, "127.0.0.1:0") as (address,):
                order(KINDS[kind])
                # Together: most of the time goes into the attempts of the client.
                with concurrent.futures.ThreadPoolExecutor() as pool:
                    pulls = pool.map(lambda key: self.pull_one(address, *key), RANKS)
                for key, done in zip(RANKS, pulls):
                    lines, whole = self.lines(done), self.wanted[key]
                    self.assertEqual(lines, whole[: len(lines)], key)
                    if done.returncode == 0:
                        self.assertEqual(len(lines), len(whole), key)
                        found["whole"] += 1
                    else:
                        self.assertRegex(done.stderr.decode(), "(?m)^ballastctl: ")
                        found["ended with an error"] += 1
                order("none")
                status = json.loads(self.ok("ballastctl", "--server", address, "status", "--json"))
                # The store's faults are never a sample's.
                self.assertEqual(status["bad_samples"], [])
                found["errors of the store"] += status["storage"]["errors"]
                self.assertEqual(self.pull(address, STEPS), self.local)
        found["answers falsified"] = int(order("falsified").split()[-1])
        if kind in ("cuts", "too short"):
            self.assertGreater(found["answers falsified"], 0, "the proxy did not bite")
        print(f"{kind}, cached {cached}: {dict(found)}", flush=True)

    def test_delays(self):
        self.no_batch_is_wrong("delays")

    def test_resets(self):
        self.no_batch_is_wrong("resets")

    def test_cuts(self):
        self.no_batch_is_wrong("cuts")

    def test_repeats(self):
        self.no_batch_is_wrong("repeats")

    def test_too_short(self):
        self.no_batch_is_wrong("too short")

    def test_too_long(self):
        self.no_batch_is_wrong("too long")


if __name__ == "__main__":
    s3_server.skip_without_rclone()
    if "--rounds" in sys.argv:
        at = sys.argv.index("--rounds")
        ROUNDS = int(sys.argv[at + 1])
        del sys.argv[at : at + 2]
    unittest.main()
