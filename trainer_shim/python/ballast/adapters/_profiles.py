"""Models as files (models/*.textproto, proto/model_profile.proto), as adapters need them.

Protobuf's text format is read here, since the package depends on no protobuf. The server
checks the files.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import re
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ..errors import InvalidArgument

#: In the wheel and in packages; then in the source tree.
_FOLDERS = ("../models", "../../../../models")
_ENDING = ".textproto"
_TOKEN = re.compile(
    r"""#.*|("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[{}<>[\]:,;]|[^\s{}<>[\]:,;#"']+)"""
)

#: A message: each field with its values in order. A value is a message or a text.
_Message = Dict[str, List[Any]]


@dataclass(frozen=True)
class Profile:
    """What a file of models/ says of the inputs of a model."""

    layout: str  #: `images.layout`
    rule: str  #: `images.rule`
    cut_alone: bool  #: `images.cut_alone`
    position_axes: int
    videos: str  #: `videos.rule`; empty without videos
    has_token_ids: bool  #: Qwen's models have, and only these


def find_profile(config: Any) -> Optional[Profile]:
    """The released model whose checkpoints have this configuration."""
    found = [
        (len(checkpoint.get("config", [])), profile)
        for checkpoint, profile in _released().checkpoints
        if _is_of(config, checkpoint)
    ]
    # A checkpoint that is described more closely goes first.
    return max(found, key=lambda one: one[0])[1] if found else None


def read_profile(name: str) -> Profile:
    """As `model.profile` of a configuration: the name of a released model, or the path of
    a file. Raises InvalidArgument if the name is unknown or the file is not such a file."""
    messages = _released().messages
    if not name.endswith(_ENDING):
        if name not in messages:
            raise InvalidArgument(
                "profile: found %s, wanted one of %s, or the path of a file that ends in %s"
                % (name, ", ".join(sorted(messages)), _ENDING)
            )
        return _profile_with_images(messages[name], name)
    with open(name, encoding="utf-8") as file:
        text = file.read()
    try:
        return _profile_with_images(_with_base(parse(text), messages), name)
    except (ValueError, KeyError, StopIteration) as error:
        raise InvalidArgument(
            "profile: found %s with %r; wanted a file that ballast-server takes as "
            "model.profile" % (name, error)
        ) from None


def model_types() -> List[str]:
    """The model_type of each known checkpoint but Qwen's, in alphabetical order."""
    return sorted(
        {
            checkpoint["model_type"][0]
            for checkpoint, profile in _released().checkpoints
            if not profile.has_token_ids
        }
    )


@dataclass(frozen=True)
class _Released:
    messages: Dict[str, _Message]  #: by name, with what they take from their bases
    checkpoints: List[Tuple[_Message, Profile]]


@functools.lru_cache(maxsize=None)
def _released() -> _Released:
    messages = {}
    here = os.path.dirname(os.path.abspath(__file__))
    own, source = (os.path.join(here, folder) for folder in _FOLDERS)
    folder = own if os.path.isdir(own) else source
    for file_name in sorted(os.listdir(folder)):
        if file_name.endswith(_ENDING):
            with open(os.path.join(folder, file_name), encoding="utf-8") as file:
                messages[file_name[: -len(_ENDING)]] = parse(file.read())
    whole = {name: _with_base(message, messages) for name, message in messages.items()}
    return _Released(
        whole,
        [
            (checkpoint, _profile_of(message))
            for message in whole.values()
            if "images" in message  # others take audio alone
            for checkpoint in message.get("checkpoints", [])
            # Preprocessors are not known here, and change no form.
            if "model_type" in checkpoint and "preprocessor" not in checkpoint
        ],
    )


def _with_base(own: _Message, messages: Dict[str, _Message]) -> _Message:
    if "base" not in own:
        return own
    base = dict(_with_base(messages[own["base"][0]], messages))
    base.pop("checkpoints", None)
    return {**base, **own}


def _profile_with_images(message: _Message, name: str) -> Profile:
    if "images" not in message:
        raise InvalidArgument(
            "profile: %s takes audio alone; wanted one with a section `images`. For audio use "
            "adapters.huggingface_audio" % name
        )
    return _profile_of(message)


def _profile_of(message: _Message) -> Profile:
    images = message["images"][0]
    videos = message.get("videos", [{}])[0]
    return Profile(
        images.get("layout", ["LAYOUT_CROPS"])[0],
        images["rule"][0],
        images.get("cut_alone", ["false"])[0] == "true",
        int(message.get("position_axes", ["1"])[0]),
        videos.get("rule", [""])[0],
        "token_ids" in message,
    )


def _is_of(config: Any, checkpoint: _Message) -> bool:
    if checkpoint["model_type"][0] != config.model_type:
        return False
    for value in checkpoint.get("config", []):
        found = config
        for key in value["key"][0].split("."):
            found = getattr(found, key, None)
        if found != json.loads(value["json"][0]):
            return False
    return True


def parse(text: str) -> _Message:
    """A message in protobuf's text format."""
    tokens = [found[1] for found in _TOKEN.finditer(text) if found[1]]
    return _message(iter([*tokens, "}"]))


def _message(tokens: Iterator[str]) -> _Message:
    message: _Message = {}
    values: List[Any] = [""]
    for name in tokens:
        if name in "}>":
            return message
        if name in ",;":
            continue
        if name[0] in "\"'":  # goes on with the text before
            values[-1] += _value(name, tokens)
            continue
        token = next(tokens)
        if token == ":":
            token = next(tokens)
        values = message.setdefault(name, [])
        if token != "[":
            values.append(_value(token, tokens))
            continue
        for token in tokens:
            if token == "]":
                break
            if token != ",":
                values.append(_value(token, tokens))
    raise ValueError("the end of the file within a message")


def _value(token: str, tokens: Iterator[str]) -> Any:
    if token in "{<":
        return _message(tokens)
    return ast.literal_eval(token) if token[0] in "\"'" else token
