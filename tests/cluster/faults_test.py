"""The faults that seeds draw."""

import unittest

from tests.cluster import faults

STEPS = 16


class FaultsTest(unittest.TestCase):
    def test_a_seed_always_draws_the_same(self):
        for seed in range(20):
            self.assertEqual(faults.draw(seed, STEPS), faults.draw(seed, STEPS))
        self.assertNotEqual(faults.draw(1, STEPS), faults.draw(2, STEPS))

    def test_faults_lie_within_the_run_one_after_the_other(self):
        for seed in range(200):
            drawn = faults.draw(seed, STEPS)
            steps = [fault.at for fault in drawn]
            self.assertEqual(steps, sorted(set(steps)))
            for fault in drawn:
                self.assertTrue(0 < fault.at < STEPS - 1)
                self.assertNotEqual(fault.node, fault.other)
                self.assertTrue({fault.node, fault.other} <= {0, 1, 2})

    def test_twenty_seeds_draw_every_kind(self):
        drawn = {fault.kind for seed in range(20) for fault in faults.draw(seed, STEPS)}
        self.assertEqual(drawn, set(faults.KINDS))


if __name__ == "__main__":
    unittest.main()
