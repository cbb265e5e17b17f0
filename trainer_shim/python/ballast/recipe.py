"""Recipes: a user's own Python in a loader server (docs/recipes.md).

    import ballast.recipe as recipe

    @recipe.cook
    def cook(record):
        row = record.json()
        return recipe.Sample(messages=row["chat"], images=[record.media("image")])

    @recipe.image_plan
    def plan(facts):
        return recipe.ImagePlan(crops=[(448, 448)], tokens=256)

    @recipe.pixels
    def pixels(rgb, plan, rng):
        return [resize(rgb, crop.height, crop.width) for crop in plan.crops]

`sources[].recipe: my_recipe.py` names the file with `cook`, `model.recipe` the one with the other
two. The server runs it in separate processes, and holds this module's text itself: nothing need be
installed for it. All three must be pure: the same input gives the same answer, in any process, in
any order.
"""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

__all__ = [
    "Crop",
    "ImageFacts",
    "ImagePlan",
    "Media",
    "Random",
    "Record",
    "Sample",
    "cook",
    "image_plan",
    "pixels",
    "requires",
]


class Media:
    """An image, a video or another member of a record, by reference.

    Servers read its bytes straight from the data file to where they decode it. A recipe has the
    bytes of members that are no image, video or audio.

    Attributes:
      name: of the member, without the sample's key ("jpg", "0.json"), or of the column.
      size: bytes of the file.
    """

    __slots__ = ("name", "size", "_number", "_bytes")

    def __init__(self, name: str, size: int, number: int, bytes: Any = None):
        self.name = name
        self.size = size
        self._number = number
        self._bytes = bytes

    def bytes(self) -> bytes:
        """The bytes. Raises ValueError for an image, a video or audio."""
        if self._bytes is None:
            raise ValueError(
                f"{self.name}: the bytes of images, videos and audio do not come to `cook`"
            )
        return self._bytes.tobytes() if isinstance(self._bytes, memoryview) else self._bytes

    def text(self) -> str:
        """The bytes as UTF-8."""
        return self.bytes().decode()

    def json(self) -> Any:
        """The bytes as JSON."""
        return json.loads(self.bytes())

    def __repr__(self) -> str:
        return f"Media({self.name!r}, {self.size} bytes)"


class Random(random.Random):
    """Random numbers that follow from a key: texts and numbers, such as a seed and a name.

    The same key gives the same numbers in every process and on every server.
    """

    def __new__(cls, *key: Union[str, int, float]) -> "Random":
        return super().__new__(cls)

    def __init__(self, *key: Union[str, int, float]):
        digest = hashlib.blake2b(repr(key).encode(), digest_size=32).digest()
        self._key = int.from_bytes(digest, "little")
        self._numpy: Any = None
        super().__init__(self._key)

    def numpy(self) -> Any:
        """The numpy.random.Generator of the same key, which goes on where it stopped."""
        if self._numpy is None:
            import numpy

            self._numpy = numpy.random.Generator(numpy.random.PCG64(self._key))
        return self._numpy


class Record:
    """A record of a source, as its data file has it.

    Attributes:
      source: name of the source.
      name: the record's place, for messages: "chat.jsonl:17", "docs-000003.tar: 000123".
      format: "jsonl", "parquet", or "tar" for webdataset and energon.
      key: of a tar's sample, the names of its members up to their first dot; else "".
    """

    __slots__ = ("source", "name", "format", "key", "_text", "_parts", "_json", "_members")

    def __init__(self, source: str, name: str, format: str, text: Any, parts: Sequence[Media] = ()):
        self.source = source
        self.name = name
        self.format = format
        self.key = bytes(text).decode(errors="replace") if format == "tar" else ""
        self._text = text
        self._parts = parts
        self._json: Any = None
        self._members: Optional[Dict[str, Media]] = None

    def json(self) -> Any:
        """The object of a line, the member `json` of a tar's sample, or the columns of a row."""
        if self.format == "tar":
            return self._member("json").json()
        if self._json is None:
            if self._parts:
                self._json = json.loads(bytes(self._text), object_hook=self._to_media)
            else:
                self._json = json.loads(bytes(self._text))
        return self._json

    @property
    def columns(self) -> Dict[str, Any]:
        """The values of a row of Parquet, by column. Binary values are Media."""
        if self.format != "parquet":
            raise ValueError(
                f"a record of format {self.format} has no columns; wanted json() or members"
            )
        columns: Dict[str, Any] = self.json()
        return columns

    @property
    def members(self) -> Mapping[str, Media]:
        """The members of a tar's sample, by what follows the first dot of their names."""
        if self.format != "tar":
            raise ValueError(
                f"a record of format {self.format} has no members; wanted json() or columns"
            )
        if self._members is None:
            self._members = {part.name: part for part in self._parts}
        return self._members

    def text(self) -> str:
        """The text of a line, or the member `txt` of a tar's sample."""
        if self.format == "tar":
            return self._member("txt").text()
        return bytes(self._text).decode()

    def media(self, name: str) -> Any:
        """The image or video `name`, for Sample: a Media, or a path below media_root.

        A member of a tar's sample, the value of a column, or of a key of a line. A value that is
        a list gives a list; one that is null gives None. Raises KeyError if there is none.
        """
        if self.format == "tar":
            return self._member(name)
        row = self.json()
        if not isinstance(row, dict) or name not in row:
            has = ", ".join(sorted(row)) if isinstance(row, dict) else "no object"
            raise KeyError(f"{name!r}; the record has {has}")
        return _to_medium(row[name], name)

    def random(self, seed: int = 0) -> Random:
        """Random numbers of this record: they follow from `seed`, the source and `name`."""
        return Random(seed, self.source, self.name)

    def _member(self, name: str) -> Media:
        if name not in self.members:
            raise KeyError(f"{name!r}; the sample has {', '.join(self.members)}")
        return self.members[name]

    def _to_media(self, value: Dict[str, Any]) -> Any:
        number = value.get("$ballast.media")
        return value if number is None else self._parts[number]


def _to_medium(value: Any, name: str) -> Any:
    if value is None or isinstance(value, (str, Media)):
        return value
    if isinstance(value, (list, tuple)):
        return [_to_medium(each, name) for each in value]
    if isinstance(value, dict):
        for key in ("bytes", "path"):
            if isinstance(value.get(key), (str, Media)):
                return value[key]
    raise TypeError(
        f"{name!r} is a {type(value).__name__}; wanted a path, bytes, or a list of these"
    )


class Sample:
    """A training sample that `cook` has made of a record.

    Args:
      messages: turns as OpenAI writes them: `role` and `content`.
      conversation: instead, turns as ShareGPT writes them: `from` and `value`.
      text: instead, a plain document.
      images: the sample's images, in the order of the marks `<image>` or of the parts of type
        image in the turns: Media of the record, or paths below media_root.
      videos: likewise; a list is a video by its pictures.
      tools: functions that the conversation may call, as OpenAI writes them.
      fields: numbers of `sources[].fields`, by name: one, or a list with one for each turn or
        token. The numbers of turns may also be keys of the turns.
      beside: further keys of the sample, such as `system`. A document has none.
    """

    __slots__ = ("turns", "key", "images", "videos", "tools", "fields", "beside")

    def __init__(
        self,
        messages: Any = None,
        *,
        conversation: Any = None,
        text: Any = None,
        images: Sequence[Any] = (),
        videos: Sequence[Any] = (),
        tools: Any = None,
        fields: Optional[Mapping[str, Any]] = None,
        **beside: Any,
    ):
        given = [
            (key, turns)
            for key, turns in (
                ("messages", messages),
                ("conversations", conversation),
                ("text", text),
            )
            if turns is not None
        ]
        if len(given) != 1:
            raise TypeError(
                f"a Sample of {len(given)} of messages, conversation and text; wanted one of them"
            )
        for name in ("image", "video", "audio", "audios"):
            if name in beside:
                raise TypeError(
                    f"{name!r} of a Sample would not be read; wanted images=[...] or videos=[...]: "
                    "recipes give no audio"
                )
        if text is not None and not isinstance(text, str):
            raise TypeError(f"text is a {type(text).__name__}; wanted a str")
        lost = [*beside, *(["tools"] if tools is not None else [])] if text is not None else []
        if lost:
            raise TypeError(
                f"{', '.join(map(repr, lost))} with text would not be read: a document has no keys; wanted "
                "numbers of sources[].fields as fields={...}, and all else in messages or in the text"
            )
        self.key, self.turns = given[0]
        self.images = images
        self.videos = videos
        self.tools = tools
        self.fields = fields
        self.beside = beside

    def encode(self) -> bytes:
        """The sample's text, as the server reads it."""
        if self.key == "text":
            return str(self.turns).encode()
        root = {self.key: self.turns}
        if self.tools is not None:
            root["tools"] = self.tools
        if self.beside:
            root.update(self.beside)
        for name, value in (self.fields or {}).items():
            if name in root:
                raise TypeError(
                    f"field {name!r} has the name of another key; wanted one of the two"
                )
            root[name] = value
        return _DUMPS(root).encode()

    def encode_turns(self) -> Optional[bytes]:
        """The texts of turns that are all of the same two keys with texts, between zeros: the key
        of the turns, their keys, then the texts of each. None of any other sample, whose text
        `encode` gives: escaping texts takes Python longer than the server."""
        if self.key == "text" or self.tools is not None or self.beside or self.fields:
            return None
        try:
            first, second = self.turns[0]
            texts = [self.key, first, second]
            for turn in self.turns:
                if len(turn) != 2:
                    return None
                texts.append(turn[first])
                texts.append(turn[second])
            joined = "\0".join(texts)
        except (IndexError, KeyError, TypeError, ValueError):
            return None
        if joined.count("\0") != len(texts) - 1:
            return None
        return joined.encode()

    def encode_media(self) -> bytes:
        """References to images and videos, and the fields of a document, as the server reads
        them; empty without any."""
        fields = self.fields if self.key == "text" else None
        if not self.images and not self.videos and not fields:
            return b""
        images = [_to_reference(image, "image") for image in self.images]
        videos = [
            f"[{','.join([_to_reference(picture, 'picture') for picture in video])}]"
            if isinstance(video, (list, tuple))
            else _to_reference(video, "video")
            for video in self.videos
        ]
        more = f',"fields":{_DUMPS(fields)}' if fields else ""
        return f'{{"images":[{",".join(images)}],"videos":[{",".join(videos)}]{more}}}'.encode()


_DUMPS = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False).encode


def _to_reference(medium: Any, kind: str) -> str:
    if isinstance(medium, Media):
        return str(medium._number)
    if isinstance(medium, str):
        return _DUMPS(medium)
    raise TypeError(f"{kind} {medium!r}: wanted what record.media(name) gives, or a path")


class ImageFacts:
    """An image as its plan sees it, before a byte is decoded.

    Attributes:
      width, height: sides in pixels.
      images: number of images of its sample.
      number: its place among them, from 0.
      source: name of the sample's source.
      split: "train", "valid" or "test".
    """

    __slots__ = ("width", "height", "images", "number", "source", "split")

    def __init__(
        self,
        width: int,
        height: int,
        images: int = 1,
        number: int = 0,
        source: str = "",
        split: str = "train",
    ):
        self.width = width
        self.height = height
        self.images = images
        self.number = number
        self.source = source
        self.split = split


class Crop:
    """A picture that the model sees of an image.

    Attributes:
      height, width: sides in pixels.
      box: (left, top, right, bottom), the part of the image that it shows; None: the whole image.
        A server resizes that part to the sides; `pixels` may do anything else.
    """

    __slots__ = ("height", "width", "box")

    def __init__(self, height: int, width: int, box: Optional[Sequence[int]] = None):
        self.height = height
        self.width = width
        self.box = None if box is None else tuple(box)


class ImagePlan:
    """The crops of an image, and its text.

    `image_plan` may set further attributes: `pixels` is given the same plan.

    Args:
      crops: at least one Crop, or (height, width).
      tokens: placeholders of the image. Default: one for each merged patch of the crops, or the
        placeholders of `text`.
      text: the text in place of the image: texts, with special tokens spelled out, and numbers of
        placeholders. Default: the placeholders between marks.before and marks.after of the
        model's family.

    Attributes:
      crops: tuple of Crop.
      tokens, text: as given.
      facts: the image's ImageFacts; set by the server.
    """

    def __init__(
        self,
        crops: Sequence[Any],
        tokens: Optional[int] = None,
        text: Optional[Sequence[Any]] = None,
    ):
        self.crops = tuple([crop if isinstance(crop, Crop) else Crop(*crop) for crop in crops])
        self.tokens = tokens
        self.text = text
        self.facts: Any = None

    def encode(self) -> str:
        """The plan, as the server reads it."""
        crops = [
            (crop.height, crop.width) if crop.box is None else (crop.height, crop.width, *crop.box)
            for crop in self.crops
        ]
        return _DUMPS({"crops": crops, "tokens": self.tokens, "text": self.text})


_cook: Optional[Callable[[Record], Optional[Sample]]] = None
_image_plan: Optional[Callable[..., ImagePlan]] = None
_most_tokens: Optional[int] = None
_pixels: Optional[Callable[..., Any]] = None
_required: List[Tuple[str, str]] = []


def _mark(name: str, known: Any, function: Any) -> None:
    if known is not None and known.__module__ == function.__module__:
        raise TypeError(f"two functions with @recipe.{name}; wanted one")


def cook(function: Callable[[Record], Optional[Sample]]) -> Callable[[Record], Optional[Sample]]:
    """Marks the function that makes a sample of a record, or None to leave the record out."""
    global _cook
    _mark("cook", _cook, function)
    _cook = function
    return function


def image_plan(function: Any = None, *, most_tokens: Optional[int] = None) -> Any:
    """Marks the function that plans an image: plan(facts) or plan(facts, rng) gives an ImagePlan.

    One that takes `rng`, a Random, draws sizes anew in each epoch. It is marked with
    `@recipe.image_plan(most_tokens=N)`: the most placeholders that it gives an image, by which
    samples are refused as too long.
    """

    def mark(marked: Any) -> Any:
        global _image_plan, _most_tokens
        _mark("image_plan", _image_plan, marked)
        _image_plan, _most_tokens = marked, most_tokens
        return marked

    return mark if function is None else mark(function)


def pixels(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks the function that makes the crops of an image: pixels(rgb, plan, rng).

    `rgb` is the decoded image, a numpy array [height, width, 3] of uint8; `plan` the ImagePlan; `rng`
    a Random of the image in this epoch. It gives an array [height, width, 3] of uint8 for each crop
    of the plan, in its order.
    """
    global _pixels
    _mark("pixels", _pixels, function)
    _pixels = function
    return function


def requires(*packages: str) -> None:
    """Names packages whose versions decide what the recipe gives.

    Indexes and servers compare the versions: with another one the source is indexed again. Raises
    importlib.metadata.PackageNotFoundError if one is not installed.
    """
    import importlib.metadata

    for package in packages:
        _required.append((package, importlib.metadata.version(package)))


def _iterate_required() -> Iterator[str]:
    for package, version in sorted(set(_required)):
        yield f"{package}-{version}"
