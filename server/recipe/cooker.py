"""Runs the function `cook` of a recipe (user_recipe.py)."""

import struct

import ballast.recipe as recipe
from recipe_user import DOCUMENT, GAVE, LEFT_OUT, TURNS, Refusal, serve

NONE = 0xFFFFFFFF
FORMATS = ("jsonl", "tar", "parquet")
COUNT, HEAD, PART, OUTCOME = (
    struct.Struct("=I"),
    struct.Struct("=4I"),
    struct.Struct("=QII"),
    struct.Struct("=3I"),
)


class Cooker:
    FUNCTION = "`cook`"
    THING = "a record"

    def __init__(self, user):
        self.user = user
        self.cook = recipe._cook
        if self.cook is None:
            raise Refusal("it has no function with @recipe.cook")

    def facts(self):
        return {}

    def run(self, record):
        """The outcome of a record: its kind, text and media."""
        sample = self.cook(record)
        if sample is None:
            return LEFT_OUT, b"", b""
        if not isinstance(sample, recipe.Sample):
            raise Refusal(f"cook gave a {type(sample).__name__}; wanted a recipe.Sample, or None")
        kind = DOCUMENT if sample.key == "text" else GAVE
        text, media = sample.encode_turns(), sample.encode_media()
        if text is None:
            text = sample.encode()
        else:
            kind = TURNS
        if len(text) + len(media) > self.user.most_bytes:
            raise Refusal(
                f"cook gave {len(text) + len(media)} bytes; wanted at most {self.user.most_bytes}"
            )
        return kind, text, media

    def handle(self, kind, request):
        pieces = []
        for record, weight in read_records(request):
            outcome, text, media = self.user.attempt(self.run, weight, record)
            pieces += (OUTCOME.pack(outcome, len(text), len(media)), text, media)
        return pieces


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


serve(Cooker)
