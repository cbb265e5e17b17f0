"""inspect image, text, positions, balance, lengths and recipe: keys and known values."""

import hashlib
import json
import struct
import unittest
import zlib

from tests.harness import tools


def png(width, height, colour):
    """A PNG of one colour."""

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = (b"\0" + colour * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


class InspectTest(tools.ToolTest):
    def inspect(self, *arguments, stdin=""):
        return self.json_lines("ballast-server", "inspect", *arguments, stdin=stdin)

    def test_image(self):
        colour = bytes([200, 100, 50])
        path = self.path("drawn.png")
        with open(path, "wb") as file:
            file.write(png(70, 42, colour))
        (image,) = self.inspect("image", "--model", "qwen2_5_vl", path)
        # 42 and 70 are 1.5 and 2.5 times 28, and both round to 2: half to even.
        # One colour stays the same at every size.
        self.assertEqual(
            json.dumps(image),
            json.dumps(
                {
                    "file": path,
                    "width": 70,
                    "height": 42,
                    "resized_h": 56,
                    "resized_w": 56,
                    "grid_thw": [1, 4, 4],
                    "image_tokens": 4,
                    "rgb_sha256": hashlib.sha256(colour * (70 * 42)).hexdigest(),
                    "resized_sha256": hashlib.sha256(colour * (56 * 56)).hexdigest(),
                }
            ),
        )
        (large,) = self.inspect("image", "--model", "qwen3_vl", "--min-pixels", 65536, path)
        self.assertEqual((large["resized_h"], large["resized_w"]), (224, 352))
        self.assertEqual(large["image_tokens"], 77)

    def test_image_errors(self):
        good, bad = self.path("good.png"), self.write("bad.png", "no image")
        with open(good, "wb") as file:
            file.write(png(56, 56, b"abc"))
        done = tools.run(
            "ballast-server", "inspect", "image", "--model", "qwen2_vl",
            good, bad, self.path("gone.png"),
        )  # fmt: skip
        self.assertEqual(done.returncode, 1)
        lines = [json.loads(line) for line in done.stdout.decode().splitlines()]
        self.assertEqual(lines[0]["file"], good)
        self.assertNotIn("error", lines[0])
        for line in lines[1:]:
            self.keys(line, "file", "error")
        self.assertIn("No such file", lines[2]["error"])
        self.assertIn("2 of 3 files failed", done.stderr.decode())
        message = self.error("ballast-server", "inspect", "image", "--model", "x", good, status=2)
        self.assertIn("--model: found x; wanted aya_vision, ernie4_5_vl", message)

    def test_text(self):
        lines = ["Hi", "", "é 漢", '"\\']
        stdin = "".join(json.dumps({"text": t}) + "\n" for t in lines)
        got = self.inspect("text", "--tokenizer", "bytes", stdin=stdin)
        self.assertEqual(got, [{"ids": list(t.encode())} for t in lines])
        message = self.error(
            "ballast-server", "inspect", "text", "--tokenizer", "bytes",
            stdin='{"text": "a"}\n{"txet": "b"}\n',
        )  # fmt: skip
        self.assertIn("standard input line 2", message)
        self.assertIn("text", message)
        # Two bytes of "é" that merge, and an added token.
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [byte for byte in range(256) if byte not in printable]
        vocab = {chr(byte): byte for byte in printable}
        vocab.update({chr(256 + i): byte for i, byte in enumerate(others)})
        vocab["Ã©"] = 256
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        file = {
            "added_tokens": [{"id": 257, "content": "<x>", "special": True, **flags}],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
            "model": {"type": "BPE", "vocab": vocab, "merges": ["Ã ©"]},
        }
        small = self.write("small.json", json.dumps(file))
        got = self.inspect("text", "--tokenizer", small, stdin='{"text": "aé <x>"}\n')
        self.assertEqual(got, [{"ids": [97, 256, 32, 257]}])
        gone = self.path("tokenizer.json")
        message = self.error("ballast-server", "inspect", "text", "--tokenizer", gone)
        self.assertIn(gone, message)

    def test_positions(self):
        sample = {
            "input_ids": [11, 12, 151652] + [151655] * 4 + [13],
            "image_grid_thw": [[1, 4, 4]],
        }
        got = self.inspect("positions", "--model", "qwen2_5_vl", stdin=json.dumps(sample))
        self.assertEqual(
            got,
            [
                {
                    "position_ids": [
                        [0, 1, 2, 3, 3, 3, 3, 5],
                        [0, 1, 2, 3, 3, 4, 4, 5],
                        [0, 1, 2, 3, 4, 3, 4, 5],
                    ]
                }
            ],
        )

    def balance(self, *arguments, costs):
        (got,) = self.inspect("balance", *arguments, stdin=json.dumps({"costs": costs}))
        self.keys(got, "groups", "load", "lower_bound")
        return got

    def test_balance(self):
        costs = [12, 1, 11, 2, 10, 3, 9, 4, 8, 5, 7, 6]
        lpt = self.balance("--groups", 4, "--algorithm", "lpt", costs=costs)
        self.assertEqual(lpt["groups"], [[0, 9, 7], [2, 11, 5], [4, 10, 3], [6, 8, 1]])
        self.assertEqual(lpt["load"], [21, 20, 19, 18])
        self.assertEqual(lpt["lower_bound"], 19.5)
        for flags in ([], ["--equal-count"]):
            refined = self.balance("--groups", 4, *flags, costs=costs)
            self.assertLessEqual(max(refined["load"]), 21)
            self.assertEqual(
                sorted(i for group in refined["groups"] for i in group),
                list(range(12)),
            )
            for group, load in zip(refined["groups"], refined["load"]):
                self.assertEqual(sum(costs[i] for i in group), load)
                if flags:
                    self.assertEqual(len(group), 3)
        message = self.error(
            "ballast-server", "inspect", "balance", "--groups", 2,
            stdin='{"costs": [1, -2]}',
        )  # fmt: skip
        self.assertIn("standard input line 1: cost 1 is -2", message)

    def test_context(self):
        lengths = [1000, 4000, 1000, 1000, 1000]
        shared = [[[1]] * 4, [[0], [2], [3], [4]]]
        work = 4000**2 / 4 + 1000**2
        for algorithm, wanted in (("refined", shared), ("static", None)):
            (got,) = self.inspect(
                "context", "--ranks", 4, "--most-ranks", 4, "--tokens", 1000,
                "--algorithm", algorithm, stdin=json.dumps({"lengths": lengths}),
            )  # fmt: skip
            self.keys(got, "ranks", "busiest", "mean", "keys_moved", "most_tokens")
            if wanted is not None:
                self.assertEqual(got["ranks"], wanted)
                self.assertEqual((got["busiest"], got["keys_moved"]), (work, 3 * 4000))
            else:
                self.assertEqual(got["keys_moved"], 3 * sum(lengths))
            self.assertEqual((got["mean"], got["most_tokens"]), (work, 1000))
        message = self.error(
            "ballast-server", "inspect", "context", "--ranks", 4, "--most-ranks", 2,
            "--tokens", 1000, stdin=json.dumps({"lengths": [5, 2001]}),
        )  # fmt: skip
        self.assertIn("standard input line 1: sample 1 has 2001 tokens", message)

    def test_recipe(self):
        self.write("chat.jsonl", '{"q": "One?"}\n{"q": "Two?", "pics": ["a.jpg"]}\n{}\n')
        self.write(
            "my_recipe.py",
            "import ballast.recipe as recipe\n"
            "@recipe.cook\n"
            "def cook(record):\n"
            "    if record.name.endswith(':1'): return None\n"
            "    row = record.json()\n"
            "    return recipe.Sample(text=row['q'], images=row['pics'])\n",
        )
        config = self.write(
            "ballast.yaml",
            "sources: [{name: chat, format: jsonl, path: chat.jsonl, recipe: my_recipe.py}]\n"
            "model: {profile: qwen2_5_vl}\nbatch: {global: 1, micro: 1}\n"
            "topology: {modules: {language: {dp: 1}}}\n",
        )
        (first,) = self.inspect("recipe", "--config", config)
        self.assertIsNone(first["sample"])
        (second,) = self.inspect("recipe", "--config", config, "--source", "chat", "--sample", 1)
        self.assertEqual(
            second["record"],
            {"name": "chat.jsonl:2", "line": {"q": "Two?", "pics": ["a.jpg"]}},
        )
        self.assertEqual(second["sample"], {"document": "Two?", "images": ["a.jpg"]})
        self.assertTrue(second["same_in_another_process"])
        self.assertGreater(second["microseconds"], 0)
        self.assertRegex(second["recipe"], r"^[0-9a-f]{32}\+python-3\.")
        message = self.error(
            "ballast-server", "inspect", "recipe", "--config", config, "--sample", 2
        )
        self.assertIn("my_recipe.py, line 6, in cook", message)
        self.assertIn("KeyError: 'q'", message)

    def test_lengths(self):
        (got,) = self.inspect(
            "lengths", "--mode", "lognormal", "--min", 1024, "--max", 8192,
            "--mean", 4096, "--sigma", 1.1, "--count", 8,
        )  # fmt: skip
        self.assertEqual(got, [8192, 3473, 6564, 8192, 8192, 1024, 6360, 1893])


if __name__ == "__main__":
    unittest.main()
