"""ballastctl fit-cost with times that ballast-rank reports."""

import json
import math
import unittest

from tests.harness import tools

DP = {"vision": 2, "language": 4}
MICRO_BATCHES = 2
STEPS = 4


class FitCostTest(tools.CorpusTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.reported, cls.silent = cls.addresses = [
            cls.until_class_ends(cls().server(cls.config, f"unix:{cls.folder}/{name}.sock"))[0]
            for name in ("reported", "silent")
        ]
        cls().ok(
            "ballast-rank", "--server", cls.reported, "--world", "all",
            "--step", 3, "--steps", STEPS, "--report",
        )  # fmt: skip

    def fit(self, *arguments):
        return self.ok("ballastctl", "--server", self.reported, "fit-cost", *arguments)

    def error_of_fit(self, *arguments, address=None, status=1):
        return self.error(
            "ballastctl", "--server", address or self.reported, "fit-cost",
            *arguments, status=status,
        )  # fmt: skip

    def test_json(self):
        fit = json.loads(self.fit("--json"))
        self.keys(fit, "address", "first_step", "last_step", "modules", "cost")
        self.assertEqual(fit["address"], self.reported)
        self.assertEqual((fit["first_step"], fit["last_step"]), (3, 2 + STEPS))
        self.keys(fit["modules"], *DP)
        for module, found in fit["modules"].items():
            self.keys(
                found,
                "n", "observations", "linear", "quadratic", "constant", "rms_ms",
                "r_squared", "left_out", "confounded",
            )  # fmt: skip
            self.assertEqual(found["observations"], STEPS * MICRO_BATCHES * DP[module])
            for term in ("linear", "quadratic", "constant"):
                self.assertTrue(math.isfinite(found[term]))
                self.assertGreaterEqual(found[term], 0)
                if term in found["left_out"]:
                    self.assertEqual(found[term], 0)
            cost = {term: found[term] for term in ("linear", "quadratic")}
            if any(cost.values()):
                self.assertEqual(fit["cost"][module], cost)
            else:  # the times of such short runs may be anything
                self.assertNotIn(module, fit["cost"])
        self.assertEqual(fit["modules"]["vision"]["n"], "patches")
        self.assertEqual(fit["modules"]["language"]["n"], "tokens")

    def test_only_what_is_asked_for(self):
        fit = json.loads(self.fit("--module", "language", "--from-step", 4, "--json"))
        self.assertEqual(fit["first_step"], 4)
        self.keys(fit["modules"], "language")
        self.assertEqual(
            fit["modules"]["language"]["observations"],
            (STEPS - 1) * MICRO_BATCHES * DP["language"],
        )

    def test_table(self):
        lines = self.fit().splitlines()
        self.assertIn(f"steps 3 to {2 + STEPS}", lines[0])
        rows = {line.split()[0]: line.split() for line in lines[4:6]}
        fit = json.loads(self.fit("--json"))
        for module, found in fit["modules"].items():
            self.assertEqual(rows[module][2], str(found["observations"]))
            self.assertAlmostEqual(
                float(rows[module][6]), found["rms_ms"], delta=1e-5 * found["rms_ms"]
            )
        if fit["cost"]:
            self.assertIn(f"    - step: {3 + STEPS}", lines)

    def test_errors(self):
        message = self.error_of_fit(address=self.silent)
        self.assertIn(f"server {self.silent} keeps no timing of any module", message)
        self.assertIn("TrainerShim::ReportTiming", message)
        message = self.error_of_fit("--from-step", 3 + STEPS, "--module", "vision")
        self.assertIn(f"no timing of vision from step {3 + STEPS} on", message)
        message = self.error_of_fit("--from-step", 2 + STEPS, "--module", "vision")
        self.assertIn("vision: found 4 timings, wanted at least 8", message)
        message = self.error_of_fit("--module", "sound", status=2)
        self.assertIn("--module: found sound; wanted vision", message)
        message = self.error_of_fit("--from-step", -1, status=2)
        self.assertIn("--from-step", message)
        nobody = f"unix:{self.folder}/nobody.sock"
        self.assertIn(nobody, self.error_of_fit(address=nobody))

    def test_help(self):
        text = self.ok("ballastctl", "fit-cost", "--help")
        for words in ("least squares", "--from-step", "JSON keys:", "r_squared"):
            self.assertIn(words, text)


if __name__ == "__main__":
    unittest.main()
