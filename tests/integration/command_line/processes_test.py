"""Ranks as processes of their own that exchange samples over Gloo."""

import json
import subprocess
import time
import unittest

from tests.integration.command_line import tools

DP = {"vision": 2, "language": 4}
STEPS = 3
# Far below the 60 s and more that a rank would wait for a peer that is silent.
SOON_S = 20


class ProcessesTest(tools.CorpusTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.address = "unix:" + cls.folder + "/a.sock"
        cls.direct_address = "unix:" + cls.folder + "/b.sock"
        with open(cls.config, encoding="utf-8") as file:
            direct = file.read().replace("balance:", "balance:\n  delivery: direct")
        cls.direct_config = cls.folder + "/direct.yaml"
        with open(cls.direct_config, "w", encoding="utf-8") as file:
            file.write(direct)
        for path, address in (
            (cls.config, cls.address), (cls.direct_config, cls.direct_address),
        ):  # fmt: skip
            context = cls().server(path, address)
            context.__enter__()
            cls.addClassCleanup(context.__exit__, None, None, None)

    def rank(self, module, number, *arguments, steps=STEPS):
        process = subprocess.Popen(
            [tools.program("ballast-rank"), "--server", self.address, "--json",
             "--world", "one", "--module", module, "--dp-rank", str(number),
             "--steps", str(steps), *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.addCleanup(process.kill)
        return process

    def lines(self, text):
        """Batches by place, without times."""
        found = {}
        for line in text.splitlines():
            batch = tools.without_ms(json.loads(line))
            key = tuple(batch[k] for k in ("step", "micro_batch", "module", "dp_rank"))
            self.assertNotIn(key, found)
            found[key] = batch
        return found

    def in_one_process(self, address):
        return self.lines(
            self.ok("ballast-rank", "--server", address, "--steps", STEPS, "--json")
        )

    def test_batches_equal_those_of_one_process_and_of_direct(self):
        ranks = [self.rank(m, r) for m, dp in DP.items() for r in range(dp)]
        got = {}
        for rank in ranks:
            out, errors = rank.communicate(timeout=tools.TIMEOUT_S)
            self.assertEqual(rank.returncode, 0, errors.decode())
            got.update(self.lines(out.decode()))
        self.assertEqual(got, self.in_one_process(self.address))
        moved = ("bytes_read", "bytes_moved")
        self.assertGreater(sum(batch["bytes_moved"] for batch in got.values()), 0)
        for batches in (got, direct := self.in_one_process(self.direct_address)):
            for batch in batches.values():
                for key in moved:
                    del batch[key]
        self.assertEqual(got, direct)

    def test_a_rank_that_is_killed_ends_the_others(self):
        ranks = [self.rank("language", r, steps=10**9) for r in range(DP["language"])]
        for rank in ranks:
            self.assertTrue(rank.stdout.readline())
        begin = time.monotonic()
        ranks[2].kill()
        errors = [r.communicate(timeout=tools.TIMEOUT_S)[1].decode() for r in ranks]
        self.assertLess(time.monotonic() - begin, SOON_S)
        for number in (0, 1, 3):
            self.assertEqual(ranks[number].returncode, 1, errors[number])
            self.assertRegex(
                errors[number], f"language rank {number}: .*rank . left the exchange"
            )
        # Those that waited for it name it; they then leave, which ends the rest.
        self.assertIn("rank 2 left the exchange", "".join(errors))

    def test_ranks_of_different_runs_do_not_meet(self):
        old = self.rank("vision", 0, "--run", "job.1")
        new = [self.rank("vision", r, "--run", "job.2") for r in range(2)]
        for rank in new:
            _, errors = rank.communicate(timeout=tools.TIMEOUT_S)
            self.assertEqual(rank.returncode, 0, errors.decode())
        self.assertIsNone(old.poll())

    def test_an_interface_that_does_not_exist_is_named(self):
        rank = self.rank("vision", 0, "--exchange-interface", "nowhere0")
        _, errors = rank.communicate(timeout=tools.TIMEOUT_S)
        self.assertEqual(rank.returncode, 1)
        self.assertIn('"nowhere0"', errors.decode())


if __name__ == "__main__":
    unittest.main()
