"""docs/tutorial.ipynb: its cells run as they stand, and the loss falls."""

import csv
import json
import os
import unittest
from unittest import mock

from tests.harness import tools

NOTEBOOK = os.path.abspath("docs/tutorial.ipynb")
EXAMPLES = "trainer_shim/python/examples"


class TutorialTest(tools.ToolTest):
    def test_every_cell_runs(self):
        with open(NOTEBOOK, encoding="utf-8") as file:
            cells = json.load(file)["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        self.assertGreater(len(sources), 4)
        programs = os.path.dirname(tools.program("ballast-server"))
        environment = {
            "TUTORIAL_OUT": self.path("run"), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
            "PATH": programs + ":" + os.environ["PATH"],
        }  # fmt: skip
        folder = os.getcwd()
        self.addCleanup(os.chdir, folder)
        paths = os.environ.get("PYTHONPATH", "").split(":")
        environment["PYTHONPATH"] = ":".join(map(os.path.abspath, filter(None, paths)))
        os.chdir(EXAMPLES)
        scope = {"__name__": "__main__"}
        with mock.patch.dict(os.environ, environment):
            for source in sources:
                exec(compile(source, NOTEBOOK, "exec"), scope)
        with open(self.path("run/losses.csv"), encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([int(row["step"]) for row in rows], list(range(30)))
        self.assertLess(float(rows[-1]["loss"]), 0.8 * float(rows[0]["loss"]))
        for row in rows[:20]:  # one rank is its own mean
            self.assertAlmostEqual(float(row["heaviest_over_mean"]), 1)
        for row in rows[20:]:
            self.assertGreaterEqual(float(row["heaviest_over_mean"]), 1 - 1e-9)


if __name__ == "__main__":
    unittest.main()
