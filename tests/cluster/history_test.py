"""The checker finds every fault that is planted in a history."""

import copy
import unittest

from tests.cluster import history

RANKS = 2
STEPS = 3
MICRO_BATCHES = 2


def schedule():
    """Micro-batch b of step s has four samples; rank r owns the (2r)th and (2r+1)th,
    in reverse order."""
    plan = []
    for step in range(STEPS):
        micro_batches = []
        for slot in range(MICRO_BATCHES):
            first = 4 * (MICRO_BATCHES * step + slot)
            micro_batches.append({
                "samples": [
                    {
                        "position": first + i, "sample": f"docs:{first + i}", "slot": slot,
                        "place": 3 - i, "owner": dict.fromkeys(("vision", "language"), i // 2),
                    }
                    for i in range(4)
                ]
            })  # fmt: skip
        plan.append({"step": step, "micro_batches": micro_batches})
    return plan


def entries_of(run, start, steps=STEPS):
    """What all ranks of a run train on."""
    found = []
    for (step, slot, module, rank), samples in sorted(
        history.expected_of(schedule()).items(), key=lambda item: (item[0][2:], item[0])
    ):
        if start <= step < steps:
            found.append({
                "run": run, "step": step, "micro_batch": slot, "module": module,
                "dp_rank": rank,
                "samples": [
                    {"sample": name, "position": at, "digest": f"{module}-{at}"}
                    for name, at in samples
                ],
            })  # fmt: skip
    return found


class HistoryTest(unittest.TestCase):
    def check(self, entries, starts):
        return history.check(schedule(), entries_of("reference", 0), starts, entries)

    def finds(self, change, pattern):
        """One run with `change` is refused, for the reason `pattern` alone or among
        what follows from it."""
        entries = copy.deepcopy(entries_of("a", 0))
        change(entries)
        self.assertRegex("\n".join(self.check(entries, {"a": 0})), pattern)

    def test_expected_order_is_by_place(self):
        expected = history.expected_of(schedule())
        self.assertEqual(expected[0, 0, "vision", 0], [("docs:1", 1), ("docs:0", 0)])
        self.assertEqual(len(expected), STEPS * MICRO_BATCHES * RANKS * 2)

    def test_a_whole_run_is_right(self):
        self.assertEqual(self.check(entries_of("a", 0), {"a": 0}), [])

    def test_a_run_that_broke_off_and_its_successor_are_right(self):
        first = entries_of("a", 0, steps=2)
        # One rank was a micro-batch ahead of its checkpoint, another had not begun.
        first = [e for e in first if (e["step"], e["micro_batch"]) != (1, 1)]
        first = [e for e in first if e["step"] == 0 or e["module"] == "vision"]
        entries = first + entries_of("b", 1)
        self.assertEqual(self.check(entries, {"a": 0, "b": 1}), [])
        # The same, had the second run started a step later.
        late = self.check(first + entries_of("b", 2), {"a": 0, "b": 2})
        self.assertRegex("\n".join(late), "never trained")

    def test_a_lost_batch(self):
        self.finds(lambda entries: entries.pop(3), "comes where|never trained")
        self.finds(lambda entries: entries.pop(), "never trained")

    def test_a_repeated_batch(self):
        self.finds(lambda entries: entries.insert(2, entries[1]), "comes where")
        self.finds(lambda entries: entries.append(entries[-1]), "the end should")

    def test_batches_out_of_order(self):
        def swap(entries):
            entries[0], entries[1] = entries[1], entries[0]

        self.finds(swap, "comes where")

    def test_a_lost_sample(self):
        self.finds(lambda entries: entries[0]["samples"].pop(), "instead of")

    def test_samples_in_another_order(self):
        self.finds(lambda entries: entries[0]["samples"].reverse(), "instead of")

    def test_samples_exchanged_between_ranks(self):
        def swap(entries):
            one = next(e for e in entries if e["dp_rank"] == 0)
            two = next(e for e in entries if e["dp_rank"] == 1 and e["module"] == one["module"])
            one["samples"], two["samples"] = two["samples"], one["samples"]

        self.finds(swap, "instead of")
        self.finds(swap, history.PEERS)

    def test_a_sample_silently_replaced(self):
        def replace(entries):
            entries[4]["samples"][1]["digest"] = "other"

        self.finds(replace, "'other', False.*instead of")

    def test_a_placeholder_that_the_reference_lacks(self):
        def replace(entries):
            entries[4]["samples"][1]["placeholder"] = True

        self.finds(replace, "True.*instead of")

    def test_a_batch_that_is_not_in_the_schedule(self):
        def move(entries):
            entries[0]["step"] = STEPS

        self.finds(move, "not in the schedule")

    def test_a_run_that_nobody_started(self):
        found = self.check(entries_of("a", 0) + entries_of("ghost", 0), {"a": 0})
        self.assertEqual(found, ["ghost: no such run"] * 2 * RANKS)


if __name__ == "__main__":
    unittest.main()
