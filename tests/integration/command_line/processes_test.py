"""Ranks as processes of their own that exchange samples over Gloo."""

import time
import unittest

from tests.harness import tools

# Far below the 60 s and more that a rank would wait for a peer that is silent.
SOON_S = 20


class ProcessesTest(tools.TwoServersTest):
    def rank(self, module, number, *arguments, steps=tools.STEPS):
        rank = tools.Rank(
            [self.address], "--world", "one", "--module", module, "--dp-rank", number,
            "--steps", steps, *arguments,
            log=self.path(f"{self._testMethodName}.{module}{number}.log"),
        )  # fmt: skip
        self.addCleanup(rank.kill)
        return rank

    def by_place(self, batches):
        found = {}
        for batch in batches:
            key = tuple(batch[k] for k in ("step", "micro_batch", "module", "dp_rank"))
            self.assertNotIn(key, found)
            found[key] = batch
        return found

    def in_one_process(self, address):
        lines = self.json_lines(
            "ballast-rank", "--server", address, "--steps", tools.STEPS, "--json"
        )
        return self.by_place(map(tools.without_ms, lines))

    def test_batches_equal_those_of_one_process_and_of_direct(self):
        ranks = [self.rank(m, r) for m, dp in tools.DP.items() for r in range(dp)]
        tools.advance(ranks)
        for rank in ranks:
            self.assertEqual(rank.status, 0, rank.said())
        got = self.by_place(batch for rank in ranks for batch in rank.batches)
        self.assertEqual(got, self.in_one_process(self.address))
        moved = ("bytes_read", "bytes_moved")
        self.assertGreater(sum(batch["bytes_moved"] for batch in got.values()), 0)
        for batches in (got, direct := self.in_one_process(self.direct_address)):
            for batch in batches.values():
                for key in moved:
                    del batch[key]
        self.assertEqual(got, direct)

    def test_a_rank_that_is_killed_ends_the_others(self):
        ranks = [self.rank("language", r, steps=10**9) for r in range(tools.DP["language"])]
        tools.advance(ranks, 1)
        self.assertTrue(all(rank.taken for rank in ranks))
        begin = time.monotonic()
        ranks[2].process.kill()
        tools.advance(ranks)
        self.assertLess(time.monotonic() - begin, SOON_S)
        errors = [rank.said() for rank in ranks]
        for number in (0, 1, 3):
            self.assertEqual(ranks[number].status, 1, errors[number])
            self.assertRegex(
                errors[number], f"language rank {number}: .*rank . left the exchange"
            )
        # Those that waited for it name it; they then leave, which ends the rest.
        self.assertIn("rank 2 left the exchange", "".join(errors))

    def test_ranks_of_different_runs_do_not_meet(self):
        old = self.rank("vision", 0, "--run", "job.1")
        new = [self.rank("vision", r, "--run", "job.2") for r in range(2)]
        tools.advance(new)
        for rank in new:
            self.assertEqual(rank.status, 0, rank.said())
        self.assertIsNone(old.process.poll())

    def test_an_interface_that_does_not_exist_is_named(self):
        rank = self.rank("vision", 0, "--exchange-interface", "nowhere0")
        tools.advance([rank])
        self.assertEqual(rank.status, 1)
        self.assertIn('"nowhere0"', rank.said())


if __name__ == "__main__":
    unittest.main()
