"""`ballast-server preview`: its data are those that a trainer gets, and a browser shows
them."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import tarfile
import unittest
import urllib.error
import urllib.parse
import urllib.request
import zlib

from tests.harness import tools


def unfilter(kind, line, above):
    """A row of a PNG file with three bytes a pixel, without its filter."""
    row = bytearray(line)
    for i in range(len(row)):
        left = row[i - 3] if i >= 3 else 0
        up = above[i]
        corner = above[i - 3] if i >= 3 else 0
        if kind == 1:
            guess = left
        elif kind == 2:
            guess = up
        elif kind == 3:
            guess = (left + up) // 2
        elif kind == 4:
            base = left + up - corner
            guess = min((left, up, corner), key=lambda x: abs(base - x))
        else:
            guess = 0
        row[i] = (row[i] + guess) & 255
    return row


def rgb_of_png(file):
    """Width, height and RGB bytes of an 8-bit RGB file."""
    assert file[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed, size = 8, b"", None
    while at < len(file):
        length, kind = struct.unpack(">I4s", file[at : at + 8])
        body = file[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            size = struct.unpack(">IIBBBBB", body)
        elif kind == b"IDAT":
            packed += body
        at += length + 12
    width, height, *form = size
    assert form == [8, 2, 0, 0, 0], form
    rows = zlib.decompress(packed)
    stride = 3 * width
    pixels, above = bytearray(), bytes(stride)
    for y in range(height):
        start = y * (stride + 1)
        above = unfilter(rows[start], rows[start + 1 : start + 1 + stride], above)
        pixels += above
    return width, height, bytes(pixels)


def of_kind(media, kind):
    """Those of a view's media, or crops, of that kind."""
    return [one for one in media if one["kind"] == kind]


class Preview:
    """Asks a preview, which `start` starts for the class."""

    @classmethod
    def start(cls, config, *options):
        cls.process = subprocess.Popen(
            [tools.program("ballast-server"), "preview", "--config", config, *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        cls.addClassCleanup(cls.stop)
        cls.address = cls.process.stdout.readline().decode().strip()
        assert cls.address, cls.process.stderr.read().decode()
        cls.http, cls.hash = cls.address.split("/#")

    @classmethod
    def stop(cls):
        cls.process.send_signal(signal.SIGINT)
        cls.process.wait(tools.TIMEOUT_S)
        cls.process.stdout.close()
        cls.process.stderr.close()

    def get(self, path, **query):
        url = f"{self.http}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.headers["Content-Type"], answer.read()

    def json(self, path, **query):
        kind, body = self.get(path, **query)
        self.assertEqual(kind, "application/json")
        return json.loads(body)

    def refused(self, path, **query):
        """Status and reason of a request that fails."""
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.get(path, **query)
        with contextlib.closing(refused.exception) as answer:
            return answer.code, json.load(answer)["error"]


class PreviewTest(Preview, tools.CorpusTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.start(cls.config, "--source", "docs", "--sample", "5")

    def image_positions(self, count):
        found = (self.json("/api/sample", position=p) for p in range(tools.SAMPLES))
        views = [view for view in found if of_kind(view["media"], "image")]
        self.assertGreaterEqual(len(views), count)
        return views[:count]

    def test_it_names_the_job(self):
        source = {"name": "docs", "samples": tools.SAMPLES}
        train = {"name": "train", "positions": None, "sources": [source]}
        expected = {"model": "qwen2_5_vl", "splits": [train]}
        self.assertEqual(self.json("/api/job"), expected)

    def test_the_sample_that_was_asked_for_is_found(self):
        split, position = self.hash.split("/")
        view = self.json("/api/sample", split=split, position=position)
        self.assertEqual((view["source"], view["ordinal"]), ("docs", 5))
        found = self.json("/api/find", source="docs", sample=5)
        self.assertEqual(found, {"position": int(position)})

    def test_samples_are_found_by_name(self):
        view = self.json("/api/sample", position=3)
        key = view["name"].rsplit(" ", 1)[1]
        found = self.json("/api/search", name=key)
        self.assertIn(
            {"source": "docs", "sample": view["ordinal"], "name": view["name"]},
            found["matches"],
        )
        nothing = self.json("/api/search", name="no such name")
        self.assertEqual(nothing, {"matches": [], "looked_at": tools.SAMPLES, "complete": True})
        # At most 20, and then it has not looked at all.
        many = self.json("/api/search", name="docs-")
        self.assertEqual(len(many["matches"]), 20)
        self.assertEqual([m["sample"] for m in many["matches"]], list(range(20)))
        self.assertEqual((many["looked_at"], many["complete"]), (20, False))
        self.assertEqual(self.refused("/api/search", name="")[0], 400)

    def test_the_samples_of_a_rank_are_those_of_the_plan(self):
        step = self.json_lines(
            "ballast-server", "plan", "--config", self.config, "--step", 1, "--json"
        )[0]
        for module, ranks in (("vision", 2), ("language", 4)):
            for rank in range(ranks):
                told = self.json("/api/rank", module=module, rank=rank, step=1, micro_batch=1)
                samples = step["micro_batches"][1]["samples"]
                for key, of in (("reads", "reader"), ("trains_on", "owner")):
                    expected = sorted(s["position"] for s in samples if s[of][module] == rank)
                    self.assertEqual(told[key], expected)
        place = {"module": "vision", "rank": 0, "step": 1}
        status, reason = self.refused("/api/rank", **place, micro_batch=2)
        self.assertEqual(status, 404)
        self.assertIn("step 1 has 2 micro-batches", reason)
        self.assertEqual(self.refused("/api/rank", **place)[0], 400)
        self.assertEqual(
            self.refused("/api/rank", **{**place, "module": "x"}, micro_batch=0)[0], 400
        )

    def test_place_and_tokens_are_those_of_the_plan(self):
        step = self.json_lines(
            "ballast-server", "plan", "--config", self.config, "--step", 1, "--json"
        )[0]
        for number, micro_batch in enumerate(step["micro_batches"]):
            for sample in micro_batch["samples"]:
                view = self.json("/api/sample", position=sample["position"])
                self.assertEqual((view["step"], view["micro_batch"]), (1, number))
                self.assertEqual(f"{view['source']}:{view['ordinal']}", sample["sample"])
                for key in ("tokens", "label_tokens", "patches"):
                    self.assertEqual(view[key], sample[key], key)
                for module in view["modules"]:
                    for key in ("cost", "reader", "owner"):
                        self.assertEqual(module[key], sample[key][module["module"]])
                self.assertEqual(sum(r["tokens"] for r in view["runs"]), view["tokens"])
                counted = sum(r["tokens"] for r in view["runs"] if r["supervised"])
                self.assertEqual(counted, view["label_tokens"])
                self.assertIsNone(view["fault"])

    def test_images_are_the_files_and_crops_their_resized_pixels(self):
        with tarfile.open(self.path("docs-000000.tar")) as tar:
            members = {m.name: tar.extractfile(m).read() for m in tar if m.isfile()}
        for view in self.image_positions(2):
            kind, file = self.get("/api/image", position=view["position"], image=0)
            self.assertEqual(kind, "image/" + of_kind(view["media"], "image")[0]["format"])
            self.assertIn(file, members.values())
            self.assertEqual(of_kind(view["media"], "image")[0]["bytes"], len(file))
            with open(self.path("image"), "wb") as copy:
                copy.write(file)
            told = self.json_lines(
                "ballast-server", "inspect", "image", "--model", "qwen2_5_vl",
                "--max-pixels", 50176, self.path("image"),
            )[0]  # fmt: skip
            kind, png = self.get("/api/crop", position=view["position"], crop=0)
            self.assertEqual(kind, "image/png")
            width, height, pixels = rgb_of_png(png)
            self.assertEqual((height, width), (told["resized_h"], told["resized_w"]))
            self.assertEqual(hashlib.sha256(pixels).hexdigest(), told["resized_sha256"])
            crop = view["crops"][0]
            self.assertEqual((crop["height"], crop["width"]), (height, width))
            self.assertEqual([1, crop["grid_h"], crop["grid_w"]], told["grid_thw"])

    def test_crops_are_drawn_on_the_stored_image(self):
        for view in self.image_positions(2):
            kind, png = self.get("/api/crops", position=view["position"], image=0)
            self.assertEqual(kind, "image/png")
            width, height, pixels = rgb_of_png(png)
            stored = of_kind(view["media"], "image")[0]
            self.assertEqual((width, height), (stored["width"], stored["height"]))
            # The edge of the one crop goes round the picture.
            row = 3 * width
            edge = pixels[:3]
            self.assertEqual(pixels[:row], edge * width)
            self.assertEqual(pixels[-row:], edge * width)
            self.assertNotEqual(pixels[10 * row : 11 * row], edge * width)

    def test_what_is_not_there_is_refused_with_the_reason(self):
        view = self.image_positions(1)[0]
        position, images = view["position"], len(of_kind(view["media"], "image"))
        status, reason = self.refused("/api/crop", position=position, crop=images)
        self.assertEqual(status, 404)
        self.assertIn(f"has {images} crops", reason)
        status, reason = self.refused("/api/image", position=position, image=images)
        self.assertEqual(status, 404)
        self.assertIn(f"has {images} images", reason)
        status, reason = self.refused("/api/crops", position=position, image=images)
        self.assertEqual(status, 404)
        status, reason = self.refused("/api/sample", position="-1")
        self.assertEqual(status, 400)
        self.assertIn('position is "-1"', reason)
        self.assertEqual(self.refused("/api/sample")[0], 400)
        self.assertEqual(self.refused("/api/sample", split="x", position=0)[0], 400)
        status, reason = self.refused("/api/find", source="none", sample=0)
        self.assertEqual(status, 404)
        self.assertIn("wanted one of: docs", reason)
        status, reason = self.refused("/api/find", source="docs", sample=tools.SAMPLES)
        self.assertEqual(status, 404)
        self.assertIn(f"has {tools.SAMPLES} samples", reason)

    def test_a_page_of_another_site_is_not_answered(self):
        request = urllib.request.Request(self.http + "/", headers={"Host": "example.com"})
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=60)
        self.assertEqual(refused.exception.code, 421)
        refused.exception.close()

    def test_a_damaged_sample_is_shown_with_its_fault(self):
        folder = self.path("damaged")
        os.mkdir(folder)
        for name in ("docs-000000.tar", "job.yaml"):
            shutil.copy(self.path(name), folder)
        config = f"{folder}/job.yaml"
        self.ok("ballast-server", "index", "--config", config)
        view = self.image_positions(1)[0]
        _, file = self.get("/api/image", position=view["position"], image=0)
        path = f"{folder}/docs-000000.tar"
        times = os.stat(path)
        with open(path, "r+b") as tar:
            at = tar.read().index(file)
            tar.seek(at)
            tar.write(b"\0" * 64)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        with subprocess.Popen(
            [tools.program("ballast-server"), "preview", "--config", config],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            try:
                http = process.stdout.readline().decode().split("/#")[0]
                url = f"{http}/api/sample?position={view['position']}"
                with urllib.request.urlopen(url, timeout=60) as answer:
                    shown = json.load(answer)
            finally:
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(tools.TIMEOUT_S), 0)
        self.assertEqual(shown["tokens"], view["tokens"])
        self.assertIn(f"docs:{view['ordinal']}", shown["fault"])
        self.assertIn("has changed since it was indexed", shown["fault"])

    def only_sample(self, name, line, source, recipe=""):
        """The sample of a job with one line."""
        os.mkdir(self.path(name))
        self.write(name + "/lines.jsonl", json.dumps(line) + "\n")
        self.write(name + "/own.py", recipe)
        config = self.write(
            name + "/job.yaml",
            "sources: [{name: own, format: jsonl, path: lines.jsonl, " + source + "}]\n"
            "model: {profile: qwen2_5_vl, tokenizer: bytes}\n"
            "batch: {global: 1, micro: 1, max_tokens: 512}\n"
            "topology: {modules: {vision: {dp: 1}, language: {dp: 1}}}\n",
        )
        self.ok("ballast-server", "index", "--config", config)
        process = subprocess.Popen(
            [tools.program("ballast-server"), "preview", "--config", config],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            address = process.stdout.readline().decode().strip().split("/#")[0]
            with urllib.request.urlopen(address + "/api/sample?position=0", timeout=60) as answer:
                return json.load(answer)
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=tools.TIMEOUT_S)

    def test_a_recipes_record_and_sample_are_shown(self):
        view = self.only_sample(
            "cooked", {"q": "Why?", "a": "So."}, "recipe: own.py",
            "import ballast.recipe as recipe\n"
            "@recipe.cook\n"
            "def cook(record):\n"
            "    row = record.json()\n"
            "    return recipe.Sample([{'role': 'user', 'content': row['q']},\n"
            "                          {'role': 'assistant', 'content': row['a']}])\n",
        )  # fmt: skip
        self.assertEqual(
            json.loads(view["record"]), {"name": "lines.jsonl:1", "line": {"q": "Why?", "a": "So."}}
        )
        turns = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]
        self.assertEqual(json.loads(view["cooked"]), {"messages": turns})
        other = self.json("/api/sample", position=0)
        self.assertEqual((other["record"], other["cooked"]), ("", ""))

    def test_a_pair_is_shown_as_two_texts(self):
        def learnt(view, rejected):
            return [
                r["text"] for r in view["runs"] if r["supervised"] and r["rejected"] is rejected
            ]

        line = {"prompt": "Why?", "chosen": "So.", "rejected": "No."}
        view = self.only_sample("pair", line, "pairs: true")
        self.assertEqual(learnt(view, False), ["So.<|im_end|>"])
        self.assertEqual(learnt(view, True), ["No.<|im_end|>"])
        firsts = [run["first"] for run in view["runs"]]
        self.assertEqual(firsts, sorted(firsts))
        last = view["runs"][-1]
        self.assertEqual(last["first"] + last["tokens"], view["tokens"])
        # A recipe's is shown as it gave it.
        cooked = self.only_sample(
            "cooked_pair", {"q": "Why?", "a": "So.", "b": "No."}, "pairs: true, recipe: own.py",
            "import ballast.recipe as recipe\n"
            "@recipe.cook\n"
            "def cook(record):\n"
            "    row = record.json()\n"
            "    ask = [{'role': 'user', 'content': row['q']}]\n"
            "    return recipe.Sample(ask + [{'role': 'assistant', 'content': row['a']}],\n"
            "        rejected_messages=ask + [{'role': 'assistant', 'content': row['b']}])\n",
        )  # fmt: skip
        self.assertEqual(cooked["runs"], view["runs"])
        ask = {"role": "user", "content": "Why?"}
        self.assertEqual(
            json.loads(cooked["cooked"]),
            {
                "messages": [ask, {"role": "assistant", "content": "So."}],
                "rejected_messages": [ask, {"role": "assistant", "content": "No."}],
            },
        )

    def test_the_gallery_has_what_each_samples_own_page_has(self):
        views = {}
        for position in range(tools.SAMPLES):
            view = self.json("/api/sample", position=position)
            views[view["ordinal"]] = view
        found = []
        while len(found) < tools.SAMPLES:
            page = self.json("/api/gallery", source="docs", **{"from": len(found)})
            self.assertEqual(page["samples"], tools.SAMPLES)
            self.assertEqual(page["matches"], tools.SAMPLES)
            found += page["shown"]
        self.assertEqual([s["ordinal"] for s in found], list(range(tools.SAMPLES)))
        for sample in found:
            view = views[sample["ordinal"]]
            for key in ("tokens", "label_tokens"):
                self.assertEqual(sample[key], view[key])
            images = of_kind(view["media"], "image")
            self.assertEqual(sample["images"], len(images))
            pixels = sum(image["width"] * image["height"] for image in images)
            self.assertEqual(sample["pixels"], pixels)
            self.assertAlmostEqual(sample["cost"], sum(m["cost"] for m in view["modules"]))
        for title, key in (("tokens", "tokens"), ("images", "images"), ("pixels", "pixels")):
            width, counts = page["histograms"][title].values()
            expected = [0] * len(counts)
            for sample in found:
                expected[sample[key] // width] += 1
            self.assertEqual(counts, expected)

        tokens = sorted(sample["tokens"] for sample in found)
        for only, passes in (
            ("images", lambda s: s["images"]), ("text", lambda s: not s["images"]),
            ("nothing_learnt", lambda s: not s["label_tokens"]),
        ):  # fmt: skip
            page = self.json("/api/gallery", source="docs", only=only, least=tokens[4],
                             most=tokens[-4], order="tokens")  # fmt: skip
            chosen = [s for s in found if passes(s) and tokens[4] <= s["tokens"] <= tokens[-4]]
            chosen.sort(key=lambda s: -s["tokens"])
            self.assertEqual(page["matches"], len(chosen))
            self.assertEqual(page["shown"], chosen[:24])
        self.assertEqual(self.refused("/api/gallery", source="x")[0], 404)
        self.assertEqual(self.refused("/api/gallery", source="docs", only="x")[0], 400)
        self.assertEqual(self.refused("/api/gallery", source="docs", order="x")[0], 400)

    def test_a_card_has_the_picture_and_its_name(self):
        view = self.image_positions(1)[0]
        place = {"source": "docs", "sample": view["ordinal"]}
        card = self.json("/api/card", **place)
        self.assertEqual((card["name"], card["fault"]), (view["name"], ""))
        self.assertEqual((card["turned"], card["transparent"]), (False, False))
        kind, picture = self.get("/api/thumbnail", **place)
        self.assertEqual(kind, "image/png")
        width, height = rgb_of_png(picture)[:2]
        self.assertEqual(max(width, height), 192)
        image = of_kind(view["media"], "image")[0]
        self.assertAlmostEqual(width / height, image["width"] / image["height"], delta=0.05)
        self.assertEqual(self.refused("/api/card", source="docs", sample=10**6)[0], 404)
        self.assertEqual(self.json("/api/bad"), {"sources": []})

    @unittest.skipIf(shutil.which("chromium") is None, "not installed: chromium")
    def test_a_browser_shows_the_gallery(self):
        done = subprocess.run(
            ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu",
             "--user-data-dir=" + self.path("chromium-gallery"),
             "--virtual-time-budget=8000", "--dump-dom", f"{self.http}/#gallery/docs"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=180, check=False,
        )  # fmt: skip
        shown = done.stdout.decode()
        self.assertIn(f"Samples 1 to 24 of {tools.SAMPLES}", shown)
        self.assertIn('href="#docs:5"', shown)
        self.assertIn("/api/thumbnail?source=docs", shown)
        self.assertIn('aria-label="samples by pixels"', shown)
        self.assertNotIn("Refused to", done.stderr.decode())

    @unittest.skipIf(shutil.which("chromium") is None, "not installed: chromium")
    def test_the_links_of_a_servers_page_lead_to_samples(self):
        for link, expected in (
            ("docs:5", "<b>docs:5</b>"),
            ("train/vision/1/0.0", ">vision rank 1, step 0, micro-batch 0<"),
        ):
            done = subprocess.run(
                ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu",
                 "--user-data-dir=" + self.path("chromium-links"),
                 "--virtual-time-budget=8000", "--dump-dom", f"{self.http}/#{link}"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=180, check=False,
            )  # fmt: skip
            self.assertIn(expected, done.stdout.decode())

    @unittest.skipIf(shutil.which("chromium") is None, "not installed: chromium")
    def test_a_browser_shows_it(self):
        view = self.image_positions(1)[0]
        done = subprocess.run(
            ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu",
             "--user-data-dir=" + self.path("chromium"),
             "--virtual-time-budget=8000", "--dump-dom",
             f"{self.http}/#train/{view['position']}"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=180, check=False,
        )  # fmt: skip
        shown = done.stdout.decode()
        crop = view["crops"][0]
        self.assertIn(f"{crop['width']} × {crop['height']} px", shown)
        self.assertIn("image tokens 1", shown)
        self.assertIn('class="supervised"', shown)
        self.assertNotIn("Refused to", done.stderr.decode())


class PreviewAudioTest(Preview, tools.ToolTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        tools.ok("ballast-server", "make-corpus", "--out", cls.folder, "--samples", 16,
                 "--preset", "speech", "--format", "jsonl")  # fmt: skip
        cls.config = cls.folder + "/ballast.yaml"
        tools.ok("ballast-server", "index", "--config", cls.config)
        cls.start(cls.config)
        with open(cls.folder + "/docs-000000.jsonl", encoding="utf-8") as lines:
            cls.samples = [json.loads(line) for line in lines]

    def files(self, sample):
        """The WAV files of a sample "docs:N", made of 16-bit samples at 16 kHz."""
        found = []
        for name in self.samples[int(sample.split(":")[1])].get("audio", []):
            with open(self.path(name), "rb") as file:
                found.append(file.read())
        return found

    def test_plays_each_clip(self):
        clips = 0
        for position in range(16):
            view = self.json("/api/sample", position=position)
            files = self.files("docs:%s" % view["ordinal"])
            self.assertEqual(len(of_kind(view["crops"], "audio")), len(files))
            for i, file in enumerate(files):
                self.assertEqual(self.get("/api/audio", position=position, clip=i),
                                 ("audio/wav", file))  # fmt: skip
            self.assertEqual(
                self.refused("/api/audio", position=position, clip=len(files)),
                (404, "position %d has %d clips of audio; wanted number %d, from 0"
                 % (position, len(files), len(files))),
            )  # fmt: skip
            clips += len(files)
        self.assertGreater(clips, 8)

    def test_inspect_sample_shows_clips(self):
        seen = 0
        for position in range(16):
            (sample,) = self.json_lines("ballast-server", "inspect", "sample", "--config",
                                        self.config, "--position", position)  # fmt: skip
            files = self.files(sample["sample"])
            clips = sample.get("clips", [])
            self.assertEqual(len(clips), len(files))
            for clip, file in zip(clips, files):
                samples = (len(file) - 44) // 2
                frames = -(-samples // 160)
                self.assertEqual(clip, {
                    "format": "wav", "rate": 16000, "channels": 1, "samples": samples,
                    "rows": frames, "frames": frames,
                    "audio_tokens": ((frames - 1) // 2 + 1 - 2) // 2 + 1})  # fmt: skip
                seen += 1
        self.assertGreater(seen, 8)


if __name__ == "__main__":
    unittest.main()
