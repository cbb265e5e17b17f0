"""Published forms of data by `init` alone: each is read as its authors read it, or refused by
the name of what is not read. Rows of Parquet are in init_test."""

import base64
import concurrent.futures as futures
import csv
import io
import json
import os
import re
import tarfile
import unittest

from tests.harness import tools

PNG = tools.picture()
TEXT = base64.b64encode(PNG).decode()
DATA = "data:image/png;base64," + TEXT
N = 3  # records of a set


def turns(question, answer, *keys):
    who, says, user, assistant = keys or ("role", "content", "user", "assistant")
    return [{who: user, says: question}, {who: assistant, says: answer}]


def share(question, answer="Red."):
    return turns(question, answer, "from", "value", "human", "gpt")


def part(**image):
    return {"messages": turns([image, {"type": "text", "text": "What?"}], "Red.")}


def table(*rows, separator=","):
    text = io.StringIO()
    csv.writer(text, delimiter=separator).writerows(rows)
    return text.getvalue()


def tar(**members):
    """The members of each sample by their endings, `__` for a dot."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for i in range(N):
            for ending, content in members.items():
                if not isinstance(content, (bytes, str)):
                    content = json.dumps(content)
                if isinstance(content, str):
                    content = content.encode()
                info = tarfile.TarInfo(f"{i:05}.{ending.replace('__', '.')}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


QA = {"question": "What?", "answer": "Red."}
VQA = {"image": "a.png", **QA}
SEE = share("<image>\nWhat?")
PAIRS = [{"user": "What?", "assistant": "Red.", "source": "x"}]
COCO = {
    "info": {},
    "images": [{"id": 1, "file_name": "a.png"}],
    "annotations": [{"image_id": 1, "caption": "A cat."}],
}

# A record, or files by their names. What is read: images a sample, and what is learnt.
READ = {
    # Parts of messages.
    "image": (part(type="image", image="a.png"), 1, "Red."),
    "path": (part(type="image", path="a.png"), 1, "Red."),
    "url": (part(type="image", url="a.png"), 1, "Red."),
    "image_url": (part(type="image_url", image_url={"url": "a.png", "detail": "low"}), 1, "Red."),
    "data": (part(type="image_url", image_url={"url": DATA}), 1, "Red."),
    "input_image": (part(type="input_image", image_url=DATA), 1, "Red."),
    "anthropic": (
        part(type="image", source={"type": "base64", "media_type": "image/png", "data": TEXT}),
        1,
        "Red.",
    ),
    "qwen": (part(image="a.png"), 1, "Red."),
    "beside": ({**part(type="image"), "images": ["a.png"]}, 1, "Red."),
    "swift_structs": (
        {"messages": turns("<image>What?", "Red."), "images": [{"path": "a.png", "bytes": None}]},
        1,
        "Red.",
    ),
    # Turns.
    "llava": ({"id": "1", "image": "a.png", "conversations": SEE}, 1, "Red."),
    "internvl": ({"image": "a.png", "width": 8, "height": 8, "conversations": SEE}, 1, "Red."),
    "m4": (
        {"image": ["a.png"] * 2, "choice_list": None, "conversations": share("<image><image>Q")},
        2,
        "Red.",
    ),
    "minicpm": (
        {
            "image": {"<image_00>": "a.png", "<image_01>": "a.png"},
            "conversations": turns("<image_00><image_01>What?", "Red."),
        },
        2,
        "Red.",
    ),
    "deepseek": (
        {
            "conversation": [
                {"role": "User", "content": "<image_placeholder>What?", "images": ["a.png"]},
                {"role": "Assistant", "content": "Red."},
            ]
        },
        1,
        "Red.",
    ),
    "deepseek_2": (
        {
            "conversations": [
                {"role": "<|User|>", "content": "<image>What?", "images": ["a.png"]},
                {"role": "<|Assistant|>", "content": "Red."},
            ]
        },
        1,
        "Red.",
    ),
    "qwen_vl": (
        {
            "conversations": turns(
                "Picture 1: <img>a.png</img>\nPicture 2: <img>a.png</img>\nBoth?",
                "Red.", "from", "value", "user", "assistant",
            )  # fmt: skip
        },
        2,
        "Red.",
    ),
    "cauldron": ({"images": ["a.png"], "texts": PAIRS}, 1, "Red."),
    "system": ({"system": "S", "query": "What?", "response": "Red.", "images": ["a.png"]}, 1, "Red."),
    "history": (
        {"query": "B?", "response": "Red.", "history": [["<image>A?", "One."]], "images": ["a.png"]},
        1,
        "One.Red.",
    ),
    # As ms-swift, LLaMA-Factory, axolotl, OpenAI, Anthropic and Google document them.
    "swift_pairs": (
        {"system": "S", "conversation": [{"human": "A?", "assistant": "One."}, {"human": "B?", "assistant": "Red."}]},
        0,
        "One.Red.",
    ),
    "swift_loss": (
        {"messages": [*turns("A?", "One."), {"role": "user", "content": "B?"}, {"role": "assistant", "content": "Red.", "loss": True}]},
        0,
        "One.Red.",
    ),
    "axolotl_base64": (part(type="image", base64=TEXT), 1, "Red."),
    "batch": ({"custom_id": "1", "method": "POST", "body": {"messages": turns("Q", "Red.")}}, 0, "Red."),
    "gemini": (
        {"contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": TEXT}}, {"text": "What?"}]}, {"role": "model", "parts": [{"text": "Red."}]}]},
        1,
        "Red.",
    ),
    "gemini_system": (
        {"systemInstruction": {"parts": [{"text": "S"}]}, "contents": [{"role": "user", "parts": [{"text": "Q"}]}, {"role": "model", "parts": [{"text": "Red."}]}]},
        0,
        "Red.",
    ),
    "pic": ({"pic": "a.png", "conversations": SEE}, 1, "Red."),
    "dialogs": ({"image": "a.png", "dialogs": SEE}, 1, "Red."),
    "bots": (
        {"image": "a.png", "conversations": turns("<image>Q", "Red.", "from", "value", "Human", "Bot")},
        1,
        "Red.",
    ),
    "mark_in_answer": ({"image": "a.png", "conversations": share("What?", "<image>Red.")}, 1, "Red."),
    "number": ({**VQA, "answer": 3}, 1, "3"),
    "docvqa_raw": (
        {"train_v1.0.json": json.dumps({"dataset_name": "docvqa", "dataset_version": "1.0", "dataset_split": "train", "data": [{"questionId": 1, "question": "What?", "image": "images/a.png", "docId": 1, "answers": ["Red.", "red"]}] * N})},
        1,
        "Red.",
    ),
    "textcaps_raw": (
        {"t.json": json.dumps({"dataset_name": "textcaps", "data": [{"image_id": "a", "flickr_original_url": "https://x/a.jpg", "image_path": "a.png", "caption_str": "Red."}] * N})},
        1,
        "Red.",
    ),
    "recap": ({"0.tar": tar(png=PNG, txt="Red.", json={"re_caption": "Longer.", "org_caption": "Red.", "url": "http://x/a.png"})}, 1, "Red."),
    # Questions, captions, documents.
    "vqa": (VQA, 1, "Red."),
    "vqa_list": ({**VQA, "answer": ["Red.", "Blue."]}, 1, "Red."),
    "vqa_structs": (
        {"image": "a.png", "question": "What?", "answers": [{"answer": "Red.", "answer_id": 1}]},
        1,
        "Red.",
    ),
    "chartqa": ({"image": "a.png", "query": "What?", "label": ["Red."]}, 1, "Red."),
    "in_question": ({**VQA, "question": "A. one\nB. two", "choices": ["one", "two"]}, 1, "Red."),
    "base64": ({**VQA, "image": TEXT}, 1, "Red."),
    "wrapped": (
        {"a.json": json.dumps({"version": 1, "info": {"year": 2014}, "data": [VQA] * N})},
        1,
        "Red.",
    ),
    "dolly": ({"instruction": "Do", "context": "it", "response": "Red."}, 0, "Red."),
    "coco_karpathy": ({"image": "a.png", "sentences": [{"raw": "Red."}]}, 1, "Red."),
    "file_names": (
        {"metadata.jsonl": [{"file_names": ["a.png", "a.png"], "text": "Red."}] * N},
        2,
        "Red.",
    ),
    "flickr8k": (
        {"captions.txt": table(["image", "caption"], *[["a.png", "Red, blue."]] * N)},
        1,
        "Red, blue.",
    ),
    "kohya": (
        {f"{i}.{e}": c for i in range(N) for e, c in (("png", PNG), ("caption", "Red."))},
        1,
        "Red.",
    ),
    "tsv": (
        {"a.tsv": table(["index", *QA, "image"], *[[1, *QA.values(), TEXT]] * N, separator="\t")},
        1,
        "Red.",
    ),
    # Tars.
    "tar_list": ({"0.tar": tar(png=PNG, json=SEE)}, 1, "Red."),
    "tar_vqa": ({"0.tar": tar(png=PNG, json=QA)}, 1, "Red."),
    "tar_cauldron": ({"0.tar": tar(png=PNG, json={"texts": PAIRS})}, 1, "Red."),
    "tar_caption": ({"0.tar": tar(png=PNG, caption="Red.")}, 1, "Red."),
    "img2dataset": (
        {"0.tar": tar(png=PNG, txt="Red.", json={"url": "http://x/a.png", "sha256": "x"})},
        1,
        "Red.",
    ),
}  # fmt: skip

# What init or index says of others, and of which nothing is learnt.
REFUSED = {
    # What the reading of turns by their format passed over.
    "weighed": ({"image": "a.png", "conversations": SEE, "weight": 0.5}, "`weight` seems to weigh"),
    "incorrect": ({"image": "a.png", "conversations": SEE, "is_correct": False}, "`is_correct` is false"),
    "cropped": ({"image": "a.png", "conversations": SEE, "crop": [0, 0, 5, 5]}, "form.ignore: crop"),
    "boxed": ({"image": "a.png", "conversations": SEE, "bbox": [1, 2, 3, 4]}, "form.ignore: bbox"),
    "objects_beside": ({"image": "a.png", "conversations": SEE, "objects": [{"x": 1}]}, "form.ignore: objects"),
    "masked": ({"conversations": share("Q"), "loss_mask": [0, 1]}, "`loss_mask` seems to mask"),
    "pixels": ({"image": "a.png", "conversations": SEE, "array": [[[1, 2, 3]]]}, "`array` seems to hold an array"),
    "second_base64": ({"image": "a.png", "conversations": SEE, "other": TEXT}, "`other` holds media as text"),
    "blob": ({"conversations": share("Q"), "blob": TEXT}, "`blob` holds media as text"),
    "tar_weighed": ({"0.tar": tar(png=PNG, json={"conversations": SEE, "weight": 0.5})}, "`json.weight` seems"),
    "tar_incorrect": ({"0.tar": tar(png=PNG, json={"conversations": SEE, "is_correct": False})}, "`json.is_correct` is false"),
    "tar_boxed": ({"0.tar": tar(png=PNG, json={"conversations": SEE, "bbox": [1, 2]})}, "`json.bbox` seems"),
    "tar_depth": ({"0.tar": tar(png=PNG, json={"conversations": SEE, "depth": "d.png"})}, "`json.depth` seems"),
    "tar_no_utf8": ({"0.tar": tar(png=PNG, json=b'{"caption": "R\xffed."}')}, "whose form is not known"),
    "tar_cut": ({"0.tar": tar(png=PNG, json=b'{"conversations": [')}, "json"),
    "rlhf_v": ({"image": "a.png", "text": json.dumps({"question": "What?", "chosen": "Red.", "rejected": "Bad."})}, "`text` is the text of a record with `"),
    "openai_url": (part(type="image_url", image_url={"url": "https://x/a.jpg"}), "URL"),
    "pdf": (part(type="document", source={"type": "base64", "data": "JVBE"}), "document"),
    "file_uri": (
        {"contents": [{"role": "user", "parts": [{"fileData": {"fileUri": "gs://b/a.png"}}, {"text": "Q"}]}, {"role": "model", "parts": [{"text": "Red."}]}]},
        "the keys are contents",
    ),
    "segments": ({"segments": [{"label": True, "text": "Hi"}]}, "segments"),
    "null_answer": ({**VQA, "answer": None}, "answer"),
    "yes": ({**VQA, "answer": True}, "answer"),
    "null_image": ({"image": None, "conversations": SEE}, "image"),
    "number_image": ({"image": 5, "conversations": SEE}, "image"),
    "gone": ({"image": "gone.png", "conversations": SEE}, "gone.png"),
    "two_marks": ({"image": "a.png", "conversations": share("<image><image>Q")}, "image"),
    "null_value": ({"image": "a.png", "conversations": share("<image>Q", None)}, "value"),
    "negative": ({"image": "a.png", "conversations": SEE, "negative_image": "b.png"}, "negative_image"),
    "wit": (
        {"w.tsv": table(["page_url", "image_url", "caption"], *[["http://p", "http://x/a.jpg", "x"]] * N, separator="\t")},
        "img2dataset .*--url_col image_url",
    ),
    "video_chat": ({"video": "a.mp4", "QA": [{"i": "Do", "q": "What?", "a": "Red."}]}, "QA"),
    "regions": ({"id": 1, "regions": [{"phrase": "Red.", "x": 1, "image_id": 1}]}, "the keys are id, regions"),
    "options": ({**VQA, "choices": ["one", "two"], "answer": 1}, "`choices` seems to hold the opt"),
    "letters": ({**VQA, "A": "one", "B": "two", "answer": "B"}, "`A` seems to hold the options"),
    "tsv_options": (
        {"a.tsv": table([*VQA, "A", "B"], *[[*VQA.values(), "x", "y"]] * N, separator="\t")},
        "`A` seems to hold the options",
    ),
    "box": ({**VQA, "bbox": [1, 2, 3, 4]}, "`bbox` seems to hold values of marks.*form.ignore: bb"),
    "second": ({**VQA, "image_b": "b.png"}, "form.images: image_b"),
    "depth": ({"image": "a.png", "depth": "b.png", "conversations": SEE}, "key `depth` seems"),
    "numbered": ({"image_id": 5, **QA}, "`image_id` names a picture by its number"),
    "textvqa": (
        {"a.json": json.dumps({"dataset": "x", "data": [{**QA, "image_url": "http://x/a"}] * N})},
        "no list of records|image_url",
    ),
    "undesired": ({"messages": turns("Q", "Bad."), "kto_tag": False}, "kto_tag"),
    "grounding": (
        {"messages": turns("<image>Where?", "<bbox>"), "images": ["a.png"], "objects": {"bbox": [1]}},
        "<bbox>|objects",
    ),
    "tools": (
        {"messages": [*turns("Q", None), {"role": "tool", "content": "x"}], "tools": [{}]},
        "tool",
    ),
    "no_text": ({"image": "a.png"}, "the keys are image"),
    "genome": ({"id": 1, "qas": [QA]}, "the keys are id, qas"),
    "addresses": (
        {"a.csv": table(["url", "caption"], *[["http://x/a.png", "x"]] * N)},
        "img2dataset .*--url_col url --caption_col caption",
    ),
    "laion": ({"URL": "http://x/a", "TEXT": "x", "HEIGHT": 8}, "--url_col URL --caption_col TEXT"),
    "no_names": ({"a.tsv": "A cat.\thttp://x/a.png\n" * N}, "the keys are A cat., http"),
    "coco": ({"c.json": json.dumps(COCO)}, "an object of annotations, images.*python3 -c"),
    "objects": ({"q.json": json.dumps({"1": QA})}, "and no list of records"),
    "a_json_each": ({"0.png": PNG, "0.json": '{"caption": "x"}'}, "images with a JSON each.*tar "),
    "tfrecord": ({"a.tfrecord": "x"}, "records of TensorFlow"),
    "tar_documents": ({"0.tar": tar(pdf="x", json={"pages": []})}, "the keys are pdf, json.pages"),
    "tar_questions": ({"0.tar": tar(png=PNG, q__txt="Q", a__txt="A")}, "q.txt|a.txt"),
}  # fmt: skip


class PublishedFormsTest(tools.ToolTest):
    def made(self, name, content):
        folder = self.path(name)
        os.makedirs(folder + "/images")
        with open(folder + "/images/a.png", "wb") as file:
            file.write(PNG)
        if not any("." in key for key in content):
            content = {"a.jsonl": [content] * N}
        for file_name, data in content.items():
            if isinstance(data, list):
                data = "".join(json.dumps(row) + "\n" for row in data)
            with open(f"{folder}/{file_name}", "wb") as file:
                file.write(data if isinstance(data, bytes) else data.encode())
        return folder

    def found(self, folder):
        """What init and index say, and samples and images of the index."""
        out = folder + "/own.yaml"
        said = tools.run("ballast-server", "init", folder, "--out", out)
        all_said = said.stdout + said.stderr
        if said.returncode:
            return all_said.decode(), [0, 0]
        indexed = tools.run("ballast-server", "index", "--config", out)
        all_said += indexed.stdout + indexed.stderr
        counts = re.search(rb"(\d+) samples, (\d+) images, 0 skipped", indexed.stdout)
        return all_said.decode(), [int(count) for count in counts.groups()]

    def learnt(self, folder):
        """Of the first sample; bytes are tokens."""
        sample = json.loads(
            self.ok(
                "ballast-server", "inspect", "sample", "--config", folder + "/own.yaml",
                "--position", 0,
            ).splitlines()[0]
        )  # fmt: skip
        return bytes(label for label in sample["labels"] if 0 <= label < 256).decode()

    def all_found(self, sets, prefix=""):
        with futures.ThreadPoolExecutor(4) as pool:
            return zip(
                sets.items(),
                pool.map(
                    lambda item: self.found(self.made(prefix + item[0], item[1][0])), sets.items()
                ),
            )

    def test_what_is_read(self):
        for (name, (_, images, learnt)), (said, counts) in self.all_found(READ):
            with self.subTest(name):
                self.assertEqual(counts, [N, N * images], said)
                self.assertEqual(self.learnt(self.path(name)).strip(), learnt)

    def test_what_is_refused_is_named(self):
        for (name, (_, words)), (said, counts) in self.all_found(REFUSED, "not_"):
            with self.subTest(name):
                self.assertEqual(counts[0], 0, said)
                self.assertRegex(said, words)

    def test_what_is_to_be_settled_is_written(self):
        folder = self.made("settled", REFUSED["box"][0])
        self.found(folder)
        with open(folder + "/own.yaml", encoding="utf-8") as file:
            text = file.read()
        self.assertIn('      images: "image"', text)
        line = "      # to be settled, here or by a key that reads it: ignore: [bbox]"
        self.assertIn(line, text)
        self.write("settled/own.yaml", text.replace(line, "      ignore: [bbox]"))
        self.assertIn(
            f"{N} samples, {N} images, 0 skipped, 0 bad",
            self.ok("ballast-server", "index", "--config", folder + "/own.yaml"),
        )


if __name__ == "__main__":
    unittest.main()
