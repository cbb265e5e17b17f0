"""S3 and the cache behind a proxy that delays, cuts, repeats and lies about lengths:
every batch is that of local files, or the pull ends with a plain error.

    bazel test //tests/integration/storage:s3_proxy_test
    bazel run //tests/integration/storage:s3_proxy_test -- --rounds 20

Ends with a line for each kind: pulls that were whole, those that ended with an error,
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


class S3ProxyTest(s3_test.S3Test):
    def pull_one(self, address, module, rank):
        return tools.run(
            "ballastctl", "--server", address, "pull", "--module", module, "--dp-rank", rank,
            "--step", 0, "--steps", STEPS, "--give-up-after", 20, "--json",
        )  # fmt: skip

    def lines(self, done):
        return [
            tools.without_ms(json.loads(line)) for line in done.stdout.decode().splitlines()
        ]

    def lies(self, form, cached):
        name = form + ("_cached" if cached else "")
        more = ", ahead_steps: 0"
        if cached:
            more += ", cache: {dir: \"%s\", size: 64MiB}" % self.path("cache_" + name)
        config = self.local_job("local_" + name, form)
        self.index(config)
        wanted = {}
        with self.server(config, "127.0.0.1:0") as (address,):
            local = self.pull(address, STEPS)
            for key in RANKS:
                wanted[key] = self.lines(self.pull_one(address, *key))
        found = collections.defaultdict(collections.Counter)
        falsified = 0
        with self.proxy() as (endpoint, order):
            config = self.s3_job("proxied_" + name, form, more, endpoint=endpoint, timeout=20)
            self.index(config)
            for _ in range(ROUNDS):
                for kind, words in KINDS.items():
                    shutil.rmtree(self.path("cache_" + name), ignore_errors=True)
                    with self.server(config, "127.0.0.1:0") as (address,):
                        order(words)
                        # Together: most of the time goes into the attempts of the client.
                        with concurrent.futures.ThreadPoolExecutor() as pool:
                            pulls = pool.map(lambda key: self.pull_one(address, *key), wanted)
                        for (key, whole), done in zip(wanted.items(), pulls):
                            lines = self.lines(done)
                            self.assertEqual(lines, whole[: len(lines)], (kind, key))
                            if done.returncode == 0:
                                self.assertEqual(len(lines), len(whole), (kind, key))
                                found[kind]["whole"] += 1
                            else:
                                self.assertRegex(done.stderr.decode(), "(?m)^ballastctl: ")
                                found[kind]["ended with an error"] += 1
                        order("none")
                        total = int(order("falsified").split()[-1])
                        found[kind]["answers falsified"] += total - falsified
                        falsified = total
                        status = json.loads(
                            self.ok("ballastctl", "--server", address, "status", "--json"))
                        # The store's faults are never a sample's.
                        self.assertEqual(status["bad_samples"], [], kind)
                        found[kind]["errors of the store"] += status["storage"]["errors"]
                        self.assertEqual(self.pull(address, STEPS), local, kind)
        self.assertGreater(falsified, 0, "the proxy did not bite")
        for kind, counts in found.items():
            print(f"{name}, {kind}: {dict(counts)}", flush=True)

    def test_no_batch_is_wrong(self):
        # Not parquet: a server reads the one row group of so few samples at its start.
        for cached in (False, True):
            with self.subTest(cached=cached):
                self.lies("webdataset", cached)


def load_tests(loader, *_):
    return unittest.TestSuite([S3ProxyTest("test_no_batch_is_wrong")])


if __name__ == "__main__":
    s3_server.skip_without_rclone()
    if "--rounds" in sys.argv:
        at = sys.argv.index("--rounds")
        ROUNDS = int(sys.argv[at + 1])
        del sys.argv[at : at + 2]
    unittest.main()
