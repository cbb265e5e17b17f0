"""Order and batch that change by step, on real servers: what loaders get, which
checkpoints go on, and what ballastctl says about it."""

import collections
import json
import signal
import threading
import unittest

import ballast
from tests.harness import tools

# 64 samples of `docs` and 40 of `new`, which joins at step 3. Step 5 is larger, and
# the data of two steps are left out before step 6.
SIZES = {"docs": tools.SAMPLES, "new": 40}
NEW = """
  - {name: new, format: webdataset, path: "new/docs-*.tar", weight: 0}
"""
ORDER = """
order:
  mixture_changes: [{step: 3, weights: {new: 1}}]
  skips: [{step: 6, steps: 2}]
"""
CHANGES = ", changes: [{step: 5, global: 24}]"
GLOBAL, LARGE, STEPS = 16, 24, 9


class OrderChangesTest(tools.CorpusTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(cls.config, encoding="utf-8") as file:
            cls.plain = file.read()
        text = cls.plain.replace("\nmodel:", NEW + "model:")
        cls.text = text.replace("max_tokens: 8192", "max_tokens: 8192" + CHANGES) + ORDER
        tool = cls()
        tool.write("changed.yaml", cls.text)
        cls.changed = cls.folder + "/changed.yaml"
        tool.ok(
            "ballast-server", "make-corpus", "--out", cls.folder + "/new",
            "--samples", SIZES["new"], "--seed", 7,
        )  # fmt: skip
        tool.ok("ballast-server", "index", "--config", cls.changed)
        cls.address = "unix:" + cls.folder + "/changed.sock"
        cls.until_class_ends(tool.server(cls.changed, cls.address))

    def loader(self, address=None, rank=0, **options):
        options = dict({"steps": STEPS}, **options)
        loader = ballast.Loader(
            address or self.address, "language", dp_rank=rank, device="cpu", array="numpy",
            **options,
        )  # fmt: skip
        self.addCleanup(loader.close)
        return loader

    def pull(self, address=None, start=None, steps=None):
        """The names of the samples of each step, over all ranks; and the loaders."""
        found = collections.defaultdict(list)
        options = {} if start is None else {"state_dict": start}
        loaders = [self.loader(address, rank, steps=steps or STEPS, **options) for rank in range(4)]

        def run(loader):
            for batch in loader:
                found[batch.step].extend(s.name for s in batch.samples)

        threads = [threading.Thread(target=run, args=(loader,)) for loader in loaders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {step: sorted(names) for step, names in found.items()}, loaders

    def plan(self, config, steps):
        lines = self.json_lines(
            "ballast-server", "plan", "--config", config, "--step", 0, "--steps", steps, "--json"
        )
        return {
            line["step"]: sorted(s["sample"] for m in line["micro_batches"] for s in m["samples"])
            for line in lines
        }

    def test_ranks_get_steps_of_their_sizes(self):
        found, _ = self.pull()
        self.assertEqual(found, self.plan(self.changed, STEPS))
        self.assertEqual(
            [len(found[step]) for step in range(STEPS)], [GLOBAL] * 5 + [LARGE] * (STEPS - 5)
        )
        self.assertFalse(any(n.startswith("new") for s in range(3) for n in found[s]))
        self.assertEqual(sum(n.startswith("new") for n in found[3]), GLOBAL // 2)
        loader = self.loader()
        self.assertEqual(
            [loader.num_micro_batches(step) for step in (0, 4, 5, 8, 9)], [2, 2, 3, 3, 0]
        )
        self.assertEqual(
            [tuple(r.values()) for r in loader.job["step_ranges"]],
            # Steps 6 and 7, of 24 samples each, are left out.
            [(0, 0, GLOBAL), (5, 80, LARGE), (6, 80 + 3 * LARGE, LARGE)],
        )

    def test_every_sample_once_an_epoch(self):
        """Of the steps without the skip: what was drawn of each source, in epochs."""
        text = self.text.replace("  skips: [{step: 6, steps: 2}]\n", "")
        found = self.plan(self.write("whole.yaml", text), 12)
        drawn = collections.defaultdict(list)
        for step in sorted(found):
            for source in SIZES:
                names = [n for n in found[step] if n.startswith(source + ":")]
                drawn[source].append(names)
        for source, size in SIZES.items():
            names = [name for step in drawn[source] for name in step]
            counts = collections.Counter(names)
            whole, rest = divmod(len(names), size)
            self.assertGreaterEqual(whole, 1)
            self.assertEqual(
                sorted(counts.values()),
                [whole] * (size - rest) + [whole + 1] * rest,
            )

    def test_a_checkpoint_from_before_goes_on(self):
        plain = self.plan(self.config, STEPS)
        address = "unix:" + self.folder + "/plain.sock"
        with self.server(self.config, address):
            before, loaders = self.pull(address, steps=3)
            state = loaders[0].state_dict()
            later = self.pull(address, steps=4)[1][0].state_dict()
        self.assertEqual(before, {step: plain[step] for step in range(3)})
        after, _ = self.pull(start=state, steps=STEPS - 3)
        wanted = self.plan(self.changed, STEPS)
        self.assertEqual({**before, **after}, wanted)
        # Step 3 was trained without the new source.
        with self.assertRaisesRegex(ballast.FailedPrecondition, "begin at step 4 or later"):
            self.loader(state_dict=later).open()
        # The way back is the same: three steps have no change yet.
        changed = self.pull(steps=3)[1][0].state_dict()
        with self.server(self.config, address):
            back, _ = self.pull(address, start=changed, steps=2)
        self.assertEqual(back, {step: plain[step] for step in (3, 4)})

    def test_resuming_at_any_step_is_the_run_without(self):
        whole, _ = self.pull()
        for step in range(1, STEPS):
            state = dict(self.loader().open().state_dict(step))
            rest, _ = self.pull(start=state, steps=STEPS - step)
            self.assertEqual(rest, {s: whole[s] for s in range(step, STEPS)})

    def test_servers_with_other_changes_refuse_each_other(self):
        sockets = ["unix:" + self.path(name + ".sock") for name in "ab"]
        modules = "  modules: {vision: {dp: 2}, language: {dp: 4}}\n"
        self.assertIn(modules, self.text)
        text = self.text.replace(
            modules,
            modules + "  servers:\n"
            '    - {address: "%s", ranks: {vision: "0", language: "0-1"}}\n'
            '    - {address: "%s", ranks: {vision: "1", language: "2-3"}}\n' % tuple(sockets),
        )
        other = text.replace("step: 6, steps: 2", "step: 6, steps: 3")
        with self.server(self.write("a.yaml", text), sockets[0]):
            with self.server_process(self.write("b.yaml", other), sockets[1]) as (process, _):
                line = ""
                while "order.skips" not in line:
                    line = process.stderr.readline().decode()
                    self.assertTrue(line, "the server ended")
        self.assertRegex(line, "from_step.0000000006.order.skips is 3 steps .* and 2 steps ")

    def test_a_running_server_refuses_a_change(self):
        config = self.write("reload.yaml", self.text)
        with self.server_process(config, "127.0.0.1:0") as (process, (address,)):
            before = self.ok("ballastctl", "--server", address, "mixture", "--step", 9)
            self.write("reload.yaml", self.text.replace("step: 6,", "step: 8,"))
            process.send_signal(signal.SIGHUP)
            line = ""
            while "order.skips" not in line:
                line = process.stderr.readline().decode()
                self.assertTrue(line, "the server ended")
            self.assertIn("from step 6 on", line)
            self.assertIn("from a checkpoint at step 6 or before", line)
            self.assertEqual(
                self.ok("ballastctl", "--server", address, "mixture", "--step", 9), before
            )

    def ctl(self, *arguments):
        return self.ok("ballastctl", "--server", self.address, *arguments)

    def test_mixture(self):
        plan = self.plan(self.changed, STEPS)
        mixture = json.loads(self.ctl("mixture", "--step", STEPS, "--json"))
        self.keys(mixture, "step", "samples", "sources")
        names = [name for step in plan.values() for name in step]
        self.assertEqual(mixture["samples"], len(names))
        skipped = 0
        for source in mixture["sources"]:
            drawn = sum(name.startswith(source["name"] + ":") for name in names)
            self.assertEqual(source["size"], SIZES[source["name"]])
            self.assertEqual(source["samples"], drawn)
            self.assertAlmostEqual(source["share"], drawn / len(names))
            self.assertAlmostEqual(source["epochs"], (drawn + source["skipped"]) / source["size"])
            self.assertEqual(source["weight"], 0.5)
            skipped += source["skipped"]
        self.assertEqual(skipped, 2 * LARGE)
        # 3 steps of docs alone, then halves.
        self.assertAlmostEqual(
            mixture["sources"][1]["wanted_share"], (len(names) - 3 * GLOBAL) / 2 / len(names)
        )
        self.assertIn("before step 0: 0 samples", self.ctl("mixture", "--step", 0))
        self.assertRegex(self.ctl("mixture"), r"^before step \d+: .*\nsource +size +samples")

    def test_samples(self):
        plan = self.plan(self.changed, STEPS)
        lines = [json.loads(x) for x in self.ctl(
            "samples", "--step", 5, "--steps", 2, "--json").splitlines()]  # fmt: skip
        for step in (5, 6):
            found = [line for line in lines if line["step"] == step]
            self.assertEqual(
                sorted("%s:%d" % (line["source"], line["ordinal"]) for line in found), plan[step]
            )
            first = {5: 80, 6: 80 + 3 * LARGE}[step]
            self.assertEqual(
                [line["position"] for line in found], list(range(first, first + LARGE))
            )
        for line in lines[:6]:
            folder = "new/" if line["source"] == "new" else ""
            with open(self.path(folder + line["file"].rsplit("/", 1)[-1]), "rb") as file:
                file.seek(line["offset"])
                header = file.read(512)
            self.assertEqual(header[257:262], b"ustar", line)
        self.assertRegex(
            self.ctl("samples", "--step", 5).splitlines()[0],
            r"^step 5  position 80  (docs|new):\d+  \S+\.tar at byte \d+$",
        )

    def test_plan_lists_the_changes(self):
        lines = self.json_lines(
            "ballast-server", "plan", "--config", self.changed, "--changes", "--json"
        )
        keys = ("step", "position", "samples", "left_out", "weights")
        self.assertEqual(
            [tuple(line[key] for key in keys) for line in lines],
            [
                (0, 0, GLOBAL, 0, {"docs": 1, "new": 0}),
                (3, 48, GLOBAL, 0, {"docs": 1, "new": 1}),
                (5, 80, LARGE, 0, {"docs": 1, "new": 1}),
                (6, 80 + 3 * LARGE, LARGE, 2 * LARGE, {"docs": 1, "new": 1}),
            ],
        )
        text = self.ok("ballast-server", "plan", "--config", self.changed, "--changes")
        self.assertRegex(text, r"^from step +position +samples a step +left out before +weights\n")

    def test_positions_that_are_left_out(self):
        inspect = ["ballast-server", "inspect", "sample", "--config", self.changed, "--position"]
        message = self.error(*inspect, 80 + LARGE)
        self.assertIn("position 104 belongs to no step: order.skips leaves it out", message)
        sample = json.loads(self.ok(*inspect, 80 + 3 * LARGE))
        self.assertEqual(sample["position"], 80 + 3 * LARGE)

    def test_status(self):
        status = json.loads(self.ctl("status", "--json", "--interval", 0))
        self.assertEqual(
            status["batch"]["changes"],
            [
                {"step": 0, "position": 0, "global": GLOBAL},
                {"step": 5, "position": 80, "global": LARGE},
                {"step": 6, "position": 80 + 3 * LARGE, "global": LARGE},
            ],
        )
        self.assertRegex(self.ctl("status", "--interval", 0), r"batch +.*16 to 24 samples a step")


if __name__ == "__main__":
    unittest.main()
