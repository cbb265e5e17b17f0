"""Ranks as processes of their own that exchange samples over Gloo."""

import json
import os
import random
import time
import unittest
import wave

from tests.harness import tools

# Far below the 60 s and more that a rank would wait for a peer that is silent.
SOON_S = 20


class Processes:
    """Ranks of a test with self.address of a job that exchanges, and self.direct_address."""

    def rank(self, module, number, *arguments, steps=tools.STEPS, servers=None):
        rank = tools.Rank(
            servers or [self.address], "--world", "one", "--module", module, "--dp-rank", number,
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

    def ended(self, ranks):
        """The batches of ranks, by place, once all have ended well."""
        tools.advance(ranks)
        for rank in ranks:
            self.assertEqual(rank.status, 0, rank.said())
        return self.by_place(batch for rank in ranks for batch in rank.batches)

    def check_batches(self, sizes):
        """Batches of ranks as processes, those of one process, and of direct are equal."""
        got = self.ended([self.rank(m, r) for m, dp in sizes.items() for r in range(dp)])
        self.assertEqual(got, self.in_one_process(self.address))
        for module in sizes:
            moved = [b["bytes_moved"] for place, b in got.items() if place[2] == module]
            self.assertGreater(sum(moved), 0, module)
        moved = ("bytes_read", "bytes_moved")
        for batches in (got, direct := self.in_one_process(self.direct_address)):
            for batch in batches.values():
                for key in moved:
                    del batch[key]
        self.assertEqual(got, direct)


class ProcessesTest(Processes, tools.TwoServersTest):
    def test_batches_equal_those_of_one_process_and_of_direct(self):
        self.check_batches(tools.DP)

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
            self.assertRegex(errors[number], f"language rank {number}: .*rank . left the exchange")
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


# Each module has a dp size of its own; grid 12.
AUDIO_DP = {"vision": 2, "audio": 3, "language": 4}
AUDIO_CONFIG = """
sources: [{{name: talk, format: jsonl, path: talk.jsonl, media_root: .}}]
model: {{profile: qwen2_5_omni, tokenizer: bytes, max_pixels: 50176}}
batch: {{global: 48, micro: 24, max_tokens: 8192}}
topology: {{modules: {{vision: {{dp: 2}}, audio: {{dp: 3}}, language: {{dp: 4}}}}}}
balance: {{delivery: {delivery}}}
serve: {{threads: 1, memory: 64MiB, prefetch_steps: 1, listen: ["127.0.0.1:0"]}}
"""


class AudioProcessesTest(Processes, tools.ToolTest):
    """Jobs of vision, audio and language: two servers exchange, one delivers direct."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.draw(cls.folder)
        cls.config = tools.set_up(cls.folder, AUDIO_CONFIG.format(delivery="exchange"))
        direct = tools.write(cls.folder + "/direct.yaml", AUDIO_CONFIG.format(delivery="direct"))
        cls.address, cls.direct_address = (
            cls.until_class_ends(cls().server(config, f"unix:{cls.folder}/{name}.sock"))[0]
            for config, name in ((cls.config, "a"), (direct, "b"))
        )

    @classmethod
    def draw(cls, folder):
        """talk.jsonl: samples with up to two clips, and up to three images."""
        tools.ok("ballast-server", "make-corpus", "--out", folder, "--samples", 12,
                 "--preset", "receipts", "--format", "jsonl")  # fmt: skip
        images = sorted(os.listdir(folder + "/images"))
        choose = random.Random(7)
        lines = []
        for number in range(48):
            names = [f"{number}.{k}.wav" for k in range(number % 3)]
            for name in names:
                with wave.open(f"{folder}/{name}", "wb") as file:
                    file.setparams((1, 2, 16000, 0, "NONE", ""))
                    file.writeframes(choose.randbytes(2 * choose.randrange(4000, 30000)))
            record = {"audios": names} if names else {}
            question = "<audio>" * len(names)
            pictures = [images[(number + k) % len(images)] for k in range(number * 5 % 4)]
            if pictures:
                record["images"] = ["images/" + picture for picture in pictures]
                question += "<image>" * len(pictures)
            record["messages"] = [{"role": "user", "content": question + f"What, {number}?"},
                                  {"role": "assistant", "content": "A."}]  # fmt: skip
            lines.append(json.dumps(record))
        tools.write(folder + "/talk.jsonl", "\n".join(lines) + "\n")

    def test_batches_equal_those_of_one_process_and_of_direct(self):
        self.check_batches(AUDIO_DP)

    def test_a_server_that_is_killed_changes_no_batch(self):
        servers = [
            tools.Server(self.config, f"unix:{self.folder}/{name}.sock", log=self.path("log"))
            for name in ("doomed", "other")
        ]
        for server in servers:
            self.addCleanup(server.kill)
            server.up()
        # One block at a time, so that ranks need a server for each batch.
        addresses = [server.address for server in servers]
        ranks = [self.rank(module, number, "--max-bytes", 1, "--run", "killed", servers=addresses)
                 for module, dp in AUDIO_DP.items() for number in range(dp)]  # fmt: skip
        tools.advance(ranks, 1)
        servers[0].kill()
        got = self.ended(ranks)
        self.assertEqual(got, self.in_one_process(self.address))
        self.assertIn("doomed", "".join(rank.said() for rank in ranks))


if __name__ == "__main__":
    unittest.main()
