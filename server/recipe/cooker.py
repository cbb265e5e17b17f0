"""Runs the function `cook` of a recipe.

The server starts it (recipe.cc). protocol.h says what its frames hold. The recipe's own imports
run before the box closes.
"""

import codecs
import gc
import json
import linecache
import os
import struct
import sys
import time
import traceback
import types

# Imported by Python only when they are needed.
import _strptime  # noqa: F401
import html.entities  # noqa: F401
import unicodedata  # noqa: F401

import ballast.recipe as recipe
from ballast_helper import DONE, REFUSED, TooLong, answer, read_request, start_timer, stop_timer, to_reason

for _name in ("ascii", "latin_1", "utf_8", "utf_8_sig", "utf_16", "utf_16_le", "cp1252", "unicode_escape"):
    codecs.lookup(_name)
time.localtime()

LOAD = 2
NO_PACKAGE = 2
CONVERSATION, DOCUMENT, LEFT_OUT, FAULT, TOO_LONG = range(5)
NONE = 0xFFFFFFFF
FORMATS = ("jsonl", "tar", "parquet")
MOST_FRAMES = 3
COUNT, HEAD, PART, OUTCOME = struct.Struct("=I"), struct.Struct("=4I"), struct.Struct("=QII"), struct.Struct("=3I")


class Refusal(Exception):
    """What `cook` gave cannot be taken, and why."""


class Cooker:
    """A recipe and its limits."""

    def __init__(self, settings):
        self.path = settings["path"]
        self.name = os.path.basename(self.path)
        self.seconds = settings["seconds"]
        self.bytes_a_second = settings["bytes_a_second"]
        self.most_bytes = settings["most_bytes"]
        text = settings["text"]
        # Tracebacks show lines from here: the box has no files.
        linecache.cache[self.path] = (len(text), None, text.splitlines(True), self.path)
        module = types.ModuleType("ballast_user_recipe")
        module.__file__ = self.path
        sys.modules[module.__name__] = module
        exec(compile(text, self.path, "exec"), module.__dict__)
        self.cook = recipe._cook
        if self.cook is None:
            raise Refusal("it has no function with @recipe.cook")

    def versions(self):
        return "+".join(["python-" + sys.version.split()[0], *recipe._iterate_required()])

    def explain(self, error):
        """What happened, by the last lines of the traceback that are the recipe's."""
        if isinstance(error, SyntaxError):
            return f"{self.name}, line {error.lineno}: {error.msg}"
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == self.path]
        where = "".join(
            f"{self.name}, line {frame.lineno}, in {frame.name}: `{frame.line}`: " for frame in frames[-MOST_FRAMES:]
        )
        if isinstance(error, TooLong):
            return where + "it takes more processor time than a record may; does it end?"
        if isinstance(error, MemoryError):
            return where + "it takes more memory than a record may"
        if isinstance(error, Refusal):
            return str(error)
        said = "".join(traceback.format_exception_only(type(error), error)).strip()
        if isinstance(error, ImportError):
            said += "; `cook` has no files: import it at the top of the recipe"
        elif isinstance(error, PermissionError):
            said += "; `cook` has no files, network or processes: read what it needs at the top of the recipe"
        return where + said

    def run(self, record, weight):
        """The outcome of a record: its kind, text and media."""
        try:
            start_timer(self.seconds + weight / self.bytes_a_second)
            sample = self.cook(record)
            if sample is None:
                return LEFT_OUT, b"", b""
            if not isinstance(sample, recipe.Sample):
                raise Refusal(f"cook gave a {type(sample).__name__}; wanted a recipe.Sample, or None")
            text, media = sample.encode(), sample.encode_media()
            if len(text) + len(media) > self.most_bytes:
                raise Refusal(f"cook gave {len(text) + len(media)} bytes; wanted at most {self.most_bytes}")
            return DOCUMENT if sample.key == "text" else CONVERSATION, text, media
        except (Exception, TooLong, SystemExit, KeyboardInterrupt, GeneratorExit) as error:
            kind = TOO_LONG if isinstance(error, TooLong) else FAULT
            return kind, to_reason(self.explain(error)), b""


def read_records(request):
    """Each record of a request, and its bytes."""
    view = memoryview(request)
    (count,) = COUNT.unpack_from(request)
    at = COUNT.size + HEAD.size * count
    for kind, name_size, text_size, part_count in HEAD.iter_unpack(view[COUNT.size : at]):
        begin = at
        source, _, name = str(view[at : at + name_size], "utf-8", "replace").partition("\0")
        at += name_size
        text = view[at : at + text_size]
        at += text_size
        parts = []
        for number in range(part_count):
            size, part_size, bytes_size = PART.unpack_from(request, at)
            at += PART.size
            part = str(view[at : at + part_size], "utf-8", "replace")
            at += part_size
            held = None
            if bytes_size != NONE:
                held = view[at : at + bytes_size]
                at += bytes_size
            parts.append(recipe.Media(part, size, number, held))
        yield recipe.Record(source, name, FORMATS[kind], text, parts), at - begin


def load(request):
    settings = json.loads(request)
    try:
        start_timer(settings["load_seconds"])
        cooker = Cooker(settings)
        return cooker, DONE, json.dumps({"versions": cooker.versions()}).encode()
    except ModuleNotFoundError as error:
        return None, NO_PACKAGE, to_reason(str(error))
    except (Exception, TooLong, SystemExit) as error:
        cooker = Cooker.__new__(Cooker)
        cooker.path = settings["path"]
        cooker.name = os.path.basename(cooker.path)
        return None, REFUSED, to_reason(cooker.explain(error))
    finally:
        stop_timer()


def main():
    cooker = None
    while True:
        kind, request = read_request()
        if kind == LOAD:
            cooker, outcome, said = load(request)
            gc.freeze()
            answer(outcome, said)
            continue
        pieces = []
        for record, weight in read_records(request):
            outcome, text, media = cooker.run(record, weight)
            pieces += (OUTCOME.pack(outcome, len(text), len(media)), text, media)
        stop_timer()
        answer(DONE, *pieces)


main()
