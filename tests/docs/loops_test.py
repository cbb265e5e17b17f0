"""Loops of trainers on the pages and in the examples: each steps its optimizer where a step of
the job ends, whatever number of micro-batches it has."""

import ast
import glob
import re
import textwrap
import unittest

PAGES = ["README.md", *sorted(glob.glob("docs/*.md"))]
EXAMPLES = sorted(glob.glob("trainer_shim/python/examples/**/*.py", recursive=True))
_BLOCK = re.compile(r"^```(python|diff)\n(.*?)^```", re.M | re.S)


def blocks(page):
    """Line and Python of each block of a page; of a diff, what it leads to."""
    with open(page, encoding="utf-8") as file:
        text = file.read()
    for match in _BLOCK.finditer(text):
        lines = match[2].splitlines()
        if match[1] == "diff":
            lines = [line[1:] for line in lines if not line.startswith(("-", "..."))]
        yield text.count("\n", 0, match.start()) + 1, textwrap.dedent("\n".join(lines))


def is_loop(node):
    """Whether a statement trains: a `for` over a loader, or Lightning's function of a batch."""
    if isinstance(node, ast.FunctionDef):
        return node.name == "training_step"
    if not isinstance(node, ast.For):
        return False
    names = {each.id for each in ast.walk(node.iter) if isinstance(each, ast.Name)}
    return any("loader" in name for name in names)


def asks(node):
    """Whether a condition asks for the step's micro-batches."""
    return any(getattr(each, "attr", None) == "num_micro_batches" for each in ast.walk(node))


def steps(node):
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "step"
        and not node.args
    )


def unguarded(body):
    """Calls of `step()` in a loop's body that no condition on micro-batches precedes."""
    for statement in body:
        if isinstance(statement, ast.If) and asks(statement.test):
            if any(isinstance(each, ast.Continue) for each in statement.body):
                return  # what follows is for the last micro-batch
            continue
        inner = [getattr(statement, key, []) for key in ("body", "orelse", "finalbody")]
        if any(inner):
            for part in inner:
                yield from unguarded(part)
        else:
            yield from (each for each in ast.walk(statement) if steps(each))


def faults(code):
    """Lines of `code` that step in the middle of a step, and the number of loops."""
    loops = [node for node in ast.walk(ast.parse(code)) if is_loop(node)]
    trains = [loop for loop in loops if any(map(steps, ast.walk(loop)))]
    return [call.lineno for loop in trains for call in unguarded(loop.body)], len(trains)


class LoopsTest(unittest.TestCase):
    def test_pages(self):
        loops = 0
        for page in PAGES:
            for line, code in blocks(page):
                if ".step()" not in code:
                    continue
                with self.subTest(page, line=line):
                    found, count = faults(code)
                    self.assertEqual(found, [], code)
                    loops += count
        self.assertGreaterEqual(loops, 2)  # README's and pytorch.md's

    def test_examples(self):
        loops = 0
        for path in EXAMPLES:
            with self.subTest(path), open(path, encoding="utf-8") as file:
                found, count = faults(file.read())
                self.assertEqual(found, [])
                loops += count
        self.assertGreaterEqual(loops, 5)  # of frameworks, and finetune_qwen.py

    def test_sees_a_loop_that_steps_too_often(self):
        every = "for batch in loader:\n    loss(batch).backward()\n    optimizer.step()\n"
        self.assertEqual(faults(every), ([3], 1))
        inside = (
            "with a as loader:\n  for b in tqdm(loader):\n    with c:\n      optimizer.step()\n"
        )
        self.assertEqual(faults(inside), ([4], 1))
        guarded = every.replace("    optimizer", "    if b.num_micro_batches: optimizer")
        self.assertEqual(faults(guarded), ([], 1))
        skipped = every.replace(
            "    opt", "    if b.num_micro_batches > 1:\n        continue\n    opt"
        )
        self.assertEqual(faults(skipped), ([], 1))


if __name__ == "__main__":
    unittest.main()
