"""Recipes: a user's own Python in a loader server (docs/recipes.md).

    import ballast.recipe as recipe

    @recipe.cook
    def cook(record):
        row = record.json()
        return recipe.Sample(messages=row["chat"], images=[record.media("image")])

`sources[].recipe: my_recipe.py` names the file. The server runs it in separate processes, and
holds this module's text itself: nothing need be installed for it. `cook` must be pure: the same
record gives the same sample, in any process, in any order.
"""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

__all__ = ["Media", "Random", "Record", "Sample", "cook", "requires"]


class Media:
    """An image, a video or another member of a record, by reference.

    Servers read its bytes straight from the data file to where they decode it. A recipe has the
    bytes of members that are no image, video or sound.

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
        """The bytes. Raises ValueError for an image, a video or a sound."""
        if self._bytes is None:
            raise ValueError(f"{self.name}: the bytes of images, videos and sound do not come to `cook`")
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
        super().__init__(int.from_bytes(digest, "little"))


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
            raise ValueError(f"a record of format {self.format} has no columns; wanted json() or members")
        columns: Dict[str, Any] = self.json()
        return columns

    @property
    def members(self) -> Mapping[str, Media]:
        """The members of a tar's sample, by what follows the first dot of their names."""
        if self.format != "tar":
            raise ValueError(f"a record of format {self.format} has no members; wanted json() or columns")
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
    raise TypeError(f"{name!r} is a {type(value).__name__}; wanted a path, bytes, or a list of these")


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
      beside: further keys beside the turns, such as `system`.
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
            for key, turns in (("messages", messages), ("conversations", conversation), ("text", text))
            if turns is not None
        ]
        if len(given) != 1:
            raise TypeError(f"a Sample of {len(given)} of messages, conversation and text; wanted one of them")
        if text is not None and not isinstance(text, str):
            raise TypeError(f"text is a {type(text).__name__}; wanted a str")
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
                raise TypeError(f"field {name!r} beside another key of this name; wanted one of the two")
            root[name] = value
        return _DUMPS(root).encode()

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


_cook: Optional[Callable[[Record], Optional[Sample]]] = None
_required: List[Tuple[str, str]] = []


def cook(function: Callable[[Record], Optional[Sample]]) -> Callable[[Record], Optional[Sample]]:
    """Marks the function that makes a sample of a record, or None to leave the record out."""
    global _cook
    if _cook is not None and _cook.__module__ == function.__module__:
        raise TypeError("two functions with @recipe.cook; wanted one")
    _cook = function
    return function


def requires(*packages: str) -> None:
    """Names packages whose versions decide what `cook` gives.

    Indexes and servers compare the versions: with another one the source is indexed again. Raises
    importlib.metadata.PackageNotFoundError if one is not installed.
    """
    import importlib.metadata

    for package in packages:
        _required.append((package, importlib.metadata.version(package)))


def _iterate_required() -> Iterator[str]:
    for package, version in sorted(set(_required)):
        yield f"{package}-{version}"
