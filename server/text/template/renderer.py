"""Renders conversations with a chat template, as transformers does.

The server starts it (template_renderer.cc). protocol.h says what its frames hold
(common/python_helper.py). What it needs is imported before the box closes.
"""

import codecs
import gc
import json
import os
import re
import struct
import sys
from datetime import datetime

from ballast_helper import DONE, REFUSED, TooLong, answer, read_request, start_timer, stop_timer, to_reason

try:
    import jinja2
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    os._exit(127)

# Imported by jinja2 and Python only when they are needed.
import jinja2.constants  # noqa: F401
import jinja2.debug  # noqa: F401
import pprint  # noqa: F401
import random  # noqa: F401
import traceback  # noqa: F401
import unicodedata  # noqa: F401
import urllib.parse  # noqa: F401

for _name in ("unicode_escape", "raw_unicode_escape", "ascii", "latin_1", "utf_8"):
    codecs.lookup(_name)

TEMPLATE, RENDER = 2, 3
TOO_LONG = 2  # after DONE and REFUSED
TOO_LONG_REASON = "it takes more processor time than any valid template; does it end?"
# Of a conversation in a request.
MARKS_ARE_PARTS, BY_PREFIXES = 1, 2
# Of a message of the assistant in an answer.
IS_SUPERVISED, HAS_OWN_THOUGHT = 1, 2
GENERATION = re.compile(r"\{\%-?\s*generation\s*-?\%\}")
MARK = re.compile(r"(<image>|<video>)")


class Refusal(Exception):
    """A conversation that cannot be rendered, and why."""


class AssistantTracker(jinja2.ext.Extension):
    """`{% generation %}`: remembers where the text between it and its end is."""

    tags = {"generation"}
    written = 0  # characters before the block that is being rendered
    spans = None

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_generation_support")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _generation_support(self, context, caller):
        said = caller()
        if AssistantTracker.spans is not None:
            begin = AssistantTracker.written
            AssistantTracker.spans.append((begin, begin + len(said)))
        return said


class TemplateDict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


class TemplateNamespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        values = dict(*args, **kwargs)
        for name in values:
            TemplateNamespace._check_name(name)
        jinja2.utils.Namespace.__init__(self, values)

    def __setitem__(self, name, value):
        TemplateNamespace._check_name(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def _check_name(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(
                f"a template cannot store the attribute {name!r} on a namespace"
            )


class Renderer:
    """A template and what it is given beside conversations."""

    def __init__(self, settings):
        self.variables = settings["variables"]
        self.system_prompt = settings["system_prompt"]
        self.seconds = settings["seconds"]
        self.bytes_a_second = settings["bytes_a_second"]
        self.most_bytes = settings["most_bytes"]
        date = settings["date"]

        def raise_exception(message):
            raise jinja2.exceptions.TemplateError(message)

        def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
            return json.dumps(
                x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
            )

        def strftime_now(format):
            if date == "":
                raise Refusal(
                    "it writes the date (strftime_now), so a sample's text would change from day to day; "
                    'give the date to write: model.template_date: "2026-01-31"'
                )
            now = datetime.now() if date == "now" else datetime.fromisoformat(date)
            return now.strftime(format)

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[AssistantTracker, jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = tojson
        environment.globals["raise_exception"] = raise_exception
        environment.globals["strftime_now"] = strftime_now
        environment.globals["dict"] = TemplateDict()
        environment.globals["namespace"] = TemplateNamespace
        self.template = environment.from_string(settings["template"])
        self.has_generation = GENERATION.search(settings["template"]) is not None

    def render(self, messages, beside, weight, add_generation_prompt=False):
        """The text and its spans of `{% generation %}`, in characters."""
        start_timer(self.seconds + weight / self.bytes_a_second)
        pieces = []
        AssistantTracker.written = 0
        AssistantTracker.spans = []
        left = self.most_bytes
        for piece in self.template.generate(
            messages=messages, **beside, add_generation_prompt=add_generation_prompt, **self.variables
        ):
            pieces.append(piece)
            AssistantTracker.written += len(piece)
            left -= len(piece)
            if left < 0:
                raise Refusal(f"it writes over {self.most_bytes} bytes; wanted a text that a model can read")
        return "".join(pieces), AssistantTracker.spans


def parse_text(value, key):
    """`value`, or the JSON that it is the text of."""
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    try:
        return json.loads(value)
    except ValueError:
        raise Refusal(f"`{key}` is a text and no JSON: {value[:40]!r}") from None


def with_parts(text):
    """The parts of a text with marks of images and videos."""
    parts = []
    for piece in MARK.split(text):
        if piece in ("<image>", "<video>"):
            parts.append({"type": piece[1:-1]})
        elif piece:
            parts.append({"type": "text", "text": piece})
    return parts


def normalize_content(content, marks_are_parts):
    if isinstance(content, str):
        if marks_are_parts and MARK.search(content):
            return with_parts(content)
        return content
    if not isinstance(content, list):
        return content
    parts = []
    for part in content:
        if isinstance(part, dict) and part.get("type") in ("image_url", "video_url") and part["type"] in part:
            kind = part["type"]
            url = part[kind].get("url", "") if isinstance(part[kind], dict) else part[kind]
            parts.append({"type": kind[:5], "url": url})
        elif (
            marks_are_parts
            and isinstance(part, dict)
            and part.get("type") == "text"
            and isinstance(part.get("text"), str)
            and MARK.search(part["text"])
        ):
            parts.extend(with_parts(part["text"]))
        else:
            parts.append(part)
    return parts


REASONING = ("reasoning_content", "thinking", "reasoning")


def normalize_message(message, marks_are_parts):
    """A message of OpenAI's form, without keys that are null."""
    if not isinstance(message, dict):
        raise Refusal("not an object")
    message = {key: value for key, value in message.items() if value is not None}
    if "role" not in message:
        raise Refusal("`role` is missing")
    if "tool_calls" in message:
        calls = parse_text(message["tool_calls"], "tool_calls")
        if calls is None:
            del message["tool_calls"]
        else:
            message["tool_calls"] = calls
    if "content" in message:
        message["content"] = normalize_content(message["content"], marks_are_parts)
    said = next((message[key] for key in REASONING if message.get(key) is not None), None)
    if said is not None:
        message = {"thinking": said, **message, "reasoning_content": said}
    return message


SHAREGPT = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "observation": "tool",
    "tool": "tool",
}


def from_sharegpt(turn):
    if not isinstance(turn, dict):
        raise Refusal("not an object")
    name, value = turn.get("from"), turn.get("value")
    if not isinstance(value, str):
        raise Refusal("`value` is missing or not a string")
    rest = {key: item for key, item in turn.items() if key not in ("from", "value")}
    if name == "function_call":
        call = parse_text(value, "value")
        calls = call if isinstance(call, list) else [call]
        if not calls or not all(isinstance(one, dict) and "name" in one for one in calls):
            raise Refusal("`value` of a function_call is no object with `name` and `arguments`")
        return {**rest, "role": "assistant", "tool_calls": [{"type": "function", "function": one} for one in calls]}
    if name not in SHAREGPT:
        raise Refusal(
            f"unknown `from` {name!r}; wanted human or user, gpt or assistant, system or developer, "
            "function_call, observation or tool"
        )
    return {**rest, "role": SHAREGPT[name], "content": value}


def is_supervised(message):
    for key in ("weight", "loss", "train"):
        value = message.get(key)
        if value is None or (key != "weight" and value not in (False, True, 0)):
            continue
        if value not in (False, True, 0, 1):
            raise Refusal(f"`{key}` is {value!r}; wanted 0 or 1")
        if not value:
            return False
    return True


def has_own_thought(message):
    content = message.get("content")
    if isinstance(content, list):
        content = next((p.get("text") for p in content if isinstance(p, dict) and "text" in p), None)
    said = content if isinstance(content, str) else ""
    return bool(message.get("reasoning_content")) or said.lstrip().startswith("<think>")


class Conversation:
    """Messages and what is beside them, of a sample's JSON."""

    def __init__(self, text, marks_are_parts, system_prompt):
        root = json.loads(text)
        if not isinstance(root, dict):
            raise Refusal("the conversation is no object")
        messages = parse_text(root.get("messages"), "messages")
        turns = parse_text(root.get("conversations"), "conversations")
        if messages and turns:
            raise Refusal("both `conversations` and `messages` may be meant; wanted one of the two")
        given = turns or messages
        if not isinstance(given, list) or not given:
            raise Refusal("the conversation has no list of turns `messages` or `conversations`")
        self.messages = []
        self.weight = len(text)
        for number, turn in enumerate(given, 1):
            try:
                if isinstance(turn, dict) and "role" not in turn and "from" in turn:
                    turn = from_sharegpt(turn)
                self.messages.append(normalize_message(turn, marks_are_parts))
                is_supervised(self.messages[-1])
            except Refusal as refusal:
                raise Refusal(f"turn {number}: {refusal}") from None
        first = self.messages[0]["role"]
        system = root.get("system") or system_prompt
        if isinstance(system, str) and system and first not in ("system", "developer"):
            self.messages.insert(0, {"role": "system", "content": system})
        self.beside = {
            "tools": parse_text(root.get("tools"), "tools"),
            "documents": parse_text(root.get("documents"), "documents"),
        }

    def answers(self):
        """The indexes of the assistant's messages."""
        return [i for i, message in enumerate(self.messages) if message["role"] == "assistant"]


def common_length(one, other):
    """The number of characters with which both begin."""
    if other.startswith(one):
        return len(one)
    return next((i for i, pair in enumerate(zip(one, other)) if pair[0] != pair[1]), min(len(one), len(other)))


def prefix_spans(renderer, conversation, text):
    """For each message of the assistant, the text that it adds to the messages before it."""
    spans = []
    for index in conversation.answers():
        name = f"turn {index + 1}"
        whole = text
        if index + 1 < len(conversation.messages):
            whole, _ = renderer.render(conversation.messages[: index + 1], conversation.beside, conversation.weight)
        if not text.startswith(whole):
            raise Refusal(
                f"it writes the turns up to {index + 1}, of the assistant, otherwise when others follow, so what "
                "they learn cannot be told by renderings of prefixes; mark it in the template by {% generation %}, "
                "or name a model.profile whose chat has the assistant's boundaries"
            )
        before, asked = "", ""
        if index > 0:
            before, _ = renderer.render(conversation.messages[:index], conversation.beside, conversation.weight)
            asked, _ = renderer.render(
                conversation.messages[:index], conversation.beside, conversation.weight, add_generation_prompt=True
            )
        if not whole.startswith(before):
            raise Refusal(
                f"it writes the turns before {index + 1} otherwise when {name}, of the assistant, follows; mark what "
                "is learnt in the template by {% generation %}, or name a model.profile whose chat has the "
                "assistant's boundaries"
            )
        spans.append((max(common_length(asked, whole), len(before)), len(whole)))
    return spans


def to_bytes(text, spans):
    """Spans in characters as spans in bytes of UTF-8."""
    if text.isascii():
        return [(min(begin, len(text)), min(end, len(text))) for begin, end in spans]
    return [(len(text[:begin].encode()), len(text[:end].encode())) for begin, end in spans]


def render_one(renderer, text, flags):
    conversation = Conversation(text, flags & MARKS_ARE_PARTS, renderer.system_prompt)
    rendered, spans = renderer.render(conversation.messages, conversation.beside, conversation.weight)
    if flags & BY_PREFIXES:
        spans = prefix_spans(renderer, conversation, rendered)
    answers = [conversation.messages[index] for index in conversation.answers()]
    kinds = [
        (IS_SUPERVISED if is_supervised(one) else 0) | (HAS_OWN_THOUGHT if has_own_thought(one) else 0)
        for one in answers
    ]
    encoded = rendered.encode()
    spans = to_bytes(rendered, spans)
    numbers = [number for span in spans for number in span] + kinds
    return (
        struct.pack(f"={4 + len(numbers)}I", DONE, len(encoded), len(spans), len(kinds), *numbers),
        encoded,
    )


def guarded(work):
    """What `work` gives, and None; or None and why there is nothing."""
    try:
        return work(), None
    except TooLong:
        return None, TOO_LONG_REASON
    except MemoryError:
        return None, "it takes more memory than a text may"
    except Refusal as refusal:
        return None, str(refusal)
    except jinja2.TemplateSyntaxError as error:
        return None, f"line {error.lineno}: {error.message}"
    except jinja2.TemplateError as error:
        return None, str(error)
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
    finally:
        stop_timer()
        AssistantTracker.spans = None


def render_all(renderer, request):
    (count,) = struct.unpack_from("=I", request)
    heads = struct.unpack_from(f"={2 * count}I", request, 4)
    at = 4 + 8 * count
    pieces = [struct.pack("=I", count)]
    for i in range(count):
        flags, size = heads[2 * i], heads[2 * i + 1]
        text = request[at : at + size]
        at += size
        made, why = guarded(lambda: render_one(renderer, text, flags))
        if made is None:
            reason = to_reason(why)
            kind = TOO_LONG if why is TOO_LONG_REASON else REFUSED
            made = (struct.pack("=4I", kind, len(reason), 0, 0), reason)
        pieces.extend(made)
    answer(DONE, *pieces)


WARM_UP = """{% macro m(x) %}{{ x ~ '\\n' }}{% endmacro %}{% set n = namespace(a=1) %}
{%- for x in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m(x.content | trim) }}{% endfor %}
{%- generation %}{{ messages | map(attribute='role') | join(', ') | upper | tojson }}{% endgeneration %}
{{- strftime_now('%d %B %Y') }}{{ messages[-1].content[:1] | string | title }}{{ [3, 1] | sort | list | first }}
{{- messages | selectattr('role', 'equalto', 'user') | list | length }}{{ 'a' is string and 1 is number }}"""


def warm_up():
    """Has everything imported that rendering and its errors import."""
    settings = {
        "variables": {}, "system_prompt": "", "date": "now", "seconds": 60, "bytes_a_second": 1, "most_bytes": 1 << 20,
    }
    text = json.dumps({"messages": [{"role": "user", "content": "é"}, {"role": "assistant", "content": "x"}]}).encode()
    for template in (WARM_UP, WARM_UP + "{{ messages.__class__ }}", WARM_UP + "{{ raise_exception('x') }}", "{% if"):
        guarded(lambda: render_one(Renderer({**settings, "template": template}), text, BY_PREFIXES))


def main():
    versions = {"python": sys.version.split()[0], "jinja2": jinja2.__version__}
    answer(DONE, json.dumps(versions).encode())
    warm_up()
    renderer = None
    gc.freeze()
    while True:
        kind, request = read_request()
        if kind == TEMPLATE:
            settings = json.loads(request)
            start_timer(settings["seconds"])
            renderer, why = guarded(lambda: Renderer(settings))
            if renderer is None:
                answer(REFUSED, to_reason(why))
            else:
                answer(DONE, json.dumps({"generation": renderer.has_generation}).encode())
        else:
            render_all(renderer, request)


main()
