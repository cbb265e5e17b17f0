"""Renders conversations with a chat template, as transformers does.

The server starts it; template_renderer.cc says what its frames hold (common/python_helper.py).
What it needs is imported before the box closes.
"""

import codecs
import gc
import hashlib
import json
import os
import re
import struct
import sys
from datetime import datetime

from ballast_helper import (
    DONE,
    REFUSED,
    TooLong,
    answer,
    read_request,
    start_timer,
    stop_timer,
    to_reason,
)
from trials import CONTENT_KEYS, REASONING, SIGN, Shape
from trials import first_text, is_question, make_trials, split_content, with_thought

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
HAS_IMAGES, BY_PREFIXES, HAS_VIDEOS = 1, 2, 4
# Of a message of the assistant in an answer: flags, number and weight.
HAS_OWN_THOUGHT = 1
ANSWER = struct.Struct("=IIf")
# A token that templates write where a turn ends or begins.
TURN_TOKEN = re.compile(r"\s*(<[^<>\s]{1,64}>|\[/?[A-Z_]{2,32}\])")
GENERATION = re.compile(r"\{\%-?\s*generation\s*-?\%\}")
# Marks of media, by what a sample has of them. With videos alone an image's
# mark is a video's.
MARKS = {
    HAS_IMAGES: re.compile(r"(<image>)"),
    HAS_VIDEOS: re.compile(r"(<image>|<video>)"),
    HAS_IMAGES | HAS_VIDEOS: re.compile(r"(<image>|<video>)"),
}
# model.reasoning.
KEEP, LAST, DROP = "keep", "last", "drop"
# The variables by which public templates keep the reasoning of earlier turns,
# with the value that keeps it (GLM, DeepSeek, LFM, Qwen and Kimi, Nemotron).
SWITCHES = {
    "clear_thinking": False,
    "drop_thinking": False,
    "keep_past_thinking": True,
    "preserve_reasoning": True,
    "preserve_thinking": True,
    "truncate_history_thinking": False,
}


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
    """A template and its inputs besides conversations."""

    def __init__(self, settings):
        self.variables = settings["variables"]
        self.system_prompt = settings["system_prompt"]
        self.reasoning = settings["reasoning"]
        self.seconds = settings["seconds"]
        self.bytes_a_second = settings["bytes_a_second"]
        self.most_bytes = settings["most_bytes"]
        self.date = settings["date"]
        self.written = {}  # what trials have shown

        def raise_exception(message):
            raise jinja2.exceptions.TemplateError(message)

        def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
            return json.dumps(
                x,
                ensure_ascii=ensure_ascii,
                indent=indent,
                separators=separators,
                sort_keys=sort_keys,
            )

        def strftime_now(format):
            if self.date == "":
                raise Refusal(
                    "it writes the date (strftime_now), so a sample's text would change from day to day; "
                    'give the date to write: model.template_date: "2026-01-31"'
                )
            now = datetime.now() if self.date == "now" else datetime.fromisoformat(self.date)
            return now.strftime(format)

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[AssistantTracker, jinja2.ext.loopcontrols],
        )
        environment.filters["tojson"] = tojson
        environment.globals["raise_exception"] = raise_exception
        environment.globals["strftime_now"] = strftime_now
        environment.globals["dict"] = TemplateDict()
        environment.globals["namespace"] = TemplateNamespace
        texts = [settings[key] for key in ("template", "tool_use") if settings[key]]
        self.template = environment.from_string(settings["template"])
        # As in transformers, the template for conversations with tools.
        self.tool_use = (
            environment.from_string(settings["tool_use"]) if settings["tool_use"] else self.template
        )
        marks = {GENERATION.search(text) is not None for text in texts}
        if len(marks) > 1:
            raise Refusal(
                "of the templates default and tool_use one marks what is learnt by {% generation %}"
            )
        self.has_generation = True in marks
        names = {
            name.name
            for text in texts
            for name in environment.parse(text).find_all(jinja2.nodes.Name)
        }
        self.switches = self.choose_switches(sorted(names & SWITCHES.keys()))
        self.written.clear()

    def choose_switches(self, known):
        """The variables that have the template do what model.reasoning says."""
        if self.reasoning not in (KEEP, LAST):
            return {}
        keeps = self.reasoning == KEEP
        self.switches = {name: SWITCHES[name] if keeps else not SWITCHES[name] for name in known}
        found = self.try_thoughts() if keeps or known else []
        if keeps and found and [True, True] not in found:
            raise Refusal(
                "model.reasoning is keep, and it writes "
                + (
                    "no reasoning of turns before the last one"
                    if [False, True] in found
                    else "no reasoning"
                )
                + ", by none of its variables (known are "
                + ", ".join(SWITCHES)
                + "); wanted template, last or drop, "
                "or a template that keeps it"
            )
        # With `last` it is given no reasoning to leave out, either.
        leaves_out = [False, True] in found and not any(first for first, _ in found)
        return self.switches if keeps or leaves_out else {}

    def try_thoughts(self):
        """Which of two thoughts a text has, next to the content and within it."""
        found = []
        for within in (False, True):
            messages = []
            for thought in (SIGN + "1", SIGN + "2"):
                said = {
                    "role": "assistant",
                    "content": f"<think>\n{thought}\n</think>\n\nSo." if within else "So.",
                }
                messages.append({"role": "user", "content": "Why?"})
                messages.append(said if within else with_thought(said, thought))
            self.give_parts(messages)
            text = self.try_out(messages)
            if text is not None:
                found.append([SIGN + "1" in text, SIGN + "2" in text])
        return found

    def render(self, messages, beside, weight, add_generation_prompt=False):
        """The text and its spans of `{% generation %}`, in characters."""
        start_timer(self.seconds + weight / self.bytes_a_second)
        pieces = []
        AssistantTracker.written = 0
        AssistantTracker.spans = []
        left = self.most_bytes
        template = self.tool_use if beside.get("tools") is not None else self.template
        for piece in template.generate(
            messages=messages,
            **beside,
            add_generation_prompt=add_generation_prompt,
            **{**self.variables, **self.switches},
        ):
            pieces.append(piece)
            AssistantTracker.written += len(piece)
            left -= len(piece)
            if left < 0:
                raise Refusal(
                    f"it writes over {self.most_bytes} bytes; wanted a text that a model can read"
                )
        return "".join(pieces), AssistantTracker.spans

    def try_out(self, messages, add_generation_prompt=False, **beside):
        """Renders a made-up conversation; None if it is refused."""
        date, self.date = self.date, self.date or "2000-01-01"
        beside = {"tools": None, "documents": None, **beside}
        try:
            return self.render(messages, beside, 0, add_generation_prompt)[0]
        except Exception:
            return None
        finally:
            self.date = date

    def writes(self, kind, name=""):
        """Whether a trial shows that the template writes such a thing; assumes so where no trial works."""
        key = (kind, name)
        if key in self.written:
            return self.written[key]
        if len(self.written) > 1000:
            self.written.clear()
        texts = [self.try_out(messages, **beside) for messages, beside in make_trials(kind, name)]
        texts = [text for text in texts if text is not None]
        self.written[key] = not texts or any(SIGN in text for text in texts)
        return self.written[key]

    def try_texts(self, *texts):
        """A conversation of these texts, the user's first, in turns."""
        roles = ("user", "assistant")
        messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
        self.give_parts(messages)
        return self.try_out(messages)

    def ends_turns(self):
        """Whether it writes anything after the assistant's text, if nothing follows."""
        if "end" not in self.written:
            text = self.try_texts("Why?", SIGN)
            self.written["end"] = text is None or text.partition(SIGN)[2].strip() != ""
        return self.written["end"]

    def begins_turns(self):
        """Whether it writes the beginning of a turn of the assistant after the last turn, unasked."""
        if "begin" not in self.written:
            self.written["begin"] = self.try_beginning()
        return self.written["begin"]

    def try_beginning(self):
        user, said, next_user = SIGN + "1", SIGN + "2", SIGN + "3"
        alone, two = self.try_texts(user, said), self.try_texts(user, said, next_user, "So.")
        if alone is None or two is None or not (said in alone and next_user in two):
            return False
        before = alone.partition(user)[2].partition(said)[0]
        after = alone.partition(said)[2]
        if two.partition(said)[2].startswith(after):
            return False
        ask = [{"role": "user", "content": user}]
        self.give_parts(ask)
        if self.try_out(ask) != self.try_out(ask, add_generation_prompt=True):
            return False
        starts = (match.start(1) for match in TURN_TOKEN.finditer(after))
        return any(after[start:].strip() in before for start in starts)

    def give_parts(self, messages):
        """Makes parts of texts, where the template writes no others."""
        for message in messages:
            role, content = message["role"], message.get("content")
            if not content or not isinstance(content, str) or not isinstance(role, str):
                continue
            if not self.writes("role", role) and self.writes("role of parts", role):
                message["content"] = [{"type": "text", "text": content}]

    def unwritten(self, conversation):
        """What of a conversation the template leaves out as it does of any; "" if nothing."""
        for name, value in conversation.beside.items():
            if value and not self.writes(name):
                return f"`{name}`"
        for index, message in enumerate(conversation.messages):
            left_out = self.unwritten_of(message)
            if left_out:
                return f"turn {conversation.number(index)}: {left_out}"
        left_out = self.unwritten_where_they_are(conversation)
        return f"turn {conversation.number(left_out[0])}: {left_out[1]}" if left_out else ""

    def unwritten_where_they_are(self, conversation):
        """What it writes elsewhere, and leaves out of this conversation: an index and what, or None."""
        shape = Shape(conversation.messages)
        # Tools and nested arguments are as long as they are given.
        key = hashlib.sha256(json.dumps([shape.messages, conversation.beside]).encode()).digest()
        if key not in self.written:
            if len(self.written) > 1000:
                self.written.clear()
            text = self.try_out(shape.messages, **conversation.beside)
            self.written[key] = None if text is None else shape.left_out(text)
        return self.written[key]

    def unwritten_of(self, message):
        content = message.get("content")
        role = message["role"]
        kind = "role of parts" if isinstance(content, list) else "role"
        if content and not (isinstance(role, str) and self.writes(kind, role)):
            return f"the turn, of role {role!r}"
        for key in sorted(CONTENT_KEYS & message.keys()):
            if message[key] and not self.writes(key):
                return f"`{key}`"
        if role == "assistant" and split_content(message)[0] and not self.writes("thought within"):
            return "the reasoning within its content"
        for part in content if isinstance(content, list) else ():
            kind = part.get("type") if isinstance(part, dict) else None
            if kind in ("text", "image", "video"):
                continue
            trial = "part with text" if isinstance(part, dict) and "text" in part else "part"
            if not (isinstance(kind, str) and self.writes(trial, kind)):
                return f"a part of type {kind!r}"
        return ""

    def choose_thoughts(self, conversation):
        """Leaves out the reasoning that model.reasoning says; gives the rest, by index."""
        if self.reasoning not in (KEEP, LAST, DROP):
            return {}
        messages = conversation.messages
        last = max((i for i, message in enumerate(messages) if is_question(message)), default=-1)
        thoughts = {}
        for index, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            if self.reasoning == DROP or (self.reasoning == LAST and index < last):
                messages[index] = without_thought(message)
            elif thought_of(message):
                thoughts[index] = thought_of(message)
        return thoughts

    def check_thoughts(self, conversation, thoughts, text):
        at = 0
        for index, thought in thoughts.items():
            at = text.find(thought, at)
            if at < 0:
                raise Refusal(
                    f"turn {conversation.number(index)}: it leaves out the reasoning, and model.reasoning is "
                    f"{self.reasoning}; wanted a template that writes it, or another value"
                )
            at += len(thought)


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


def with_parts(text, media):
    """The parts of a text with marks of images and videos."""
    parts = []
    for piece in MARKS[media].split(text):
        if MARKS[media].fullmatch(piece):
            parts.append({"type": piece[1:-1] if media & HAS_IMAGES else "video"})
        elif piece:
            parts.append({"type": "text", "text": piece})
    return parts


def normalize_content(content, flags):
    media = flags & (HAS_IMAGES | HAS_VIDEOS)
    if isinstance(content, str):
        return with_parts(content, media) if media and MARKS[media].search(content) else content
    if not isinstance(content, list):
        return content
    parts = []
    for part in content:
        if not isinstance(part, dict):
            parts.append(part)
            continue
        kind = part.get("type")
        if kind in ("image_url", "video_url") and kind in part:
            url = part[kind].get("url", "") if isinstance(part[kind], dict) else part[kind]
            parts.append({"type": kind[:5], "url": url})
        elif (
            kind == "text"
            and media
            and isinstance(part.get("text"), str)
            and MARKS[media].search(part["text"])
        ):
            parts.extend(with_parts(part["text"], media))
        else:
            parts.append(part)
    return parts


def normalize_message(message, flags):
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
        message["content"] = normalize_content(message["content"], flags)
    said = next((message[key] for key in REASONING if message.get(key) is not None), None)
    if said is not None:
        message = with_thought(message, said)
    return message


def thought_of(message):
    """What a message of the assistant thinks, "" if nothing."""
    said = message.get("reasoning_content")
    if isinstance(said, str) and said.strip():
        return said.strip()
    return split_content(message)[0] or ""


def without_thought(message):
    thought, rest = split_content(message)
    kept = {key: value for key, value in message.items() if key not in REASONING}
    return kept if thought is None else {**kept, "content": rest}


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
        return {
            **rest,
            "role": "assistant",
            "tool_calls": [{"type": "function", "function": one} for one in calls],
        }
    if name not in SHAREGPT:
        raise Refusal(
            f"unknown `from` {name!r}; wanted human or user, gpt or assistant, system or developer, "
            "function_call, observation or tool"
        )
    return {**rest, "role": SHAREGPT[name], "content": value}


FLAGS = ("true", "t", "yes", "y", "1", "false", "f", "no", "n", "0")


def weight_of(message):
    """How much of a message of the assistant is learnt, from 0 to 1."""
    weight = 1
    for key in ("weight", "loss", "train"):
        value = message.get(key)
        # Elsewhere other numbers are figures, such as a loss that was measured.
        if isinstance(value, str):
            is_figure = key == "loss" and value.lower() not in FLAGS
        else:
            is_figure = (
                key != "weight"
                and isinstance(value, (int, float))
                and value not in (False, True, 0)
            )
        if value is None or value == "" or is_figure:
            continue
        if not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise Refusal(f"`{key}` is {value!r}; wanted 0 to 1")
        weight = min(weight, value)
    return weight


def has_own_thought(message):
    """Whether it spells out an empty thought, so that the template does not add it."""
    return split_content(message)[0] == ""


class Conversation:
    """Messages and the other keys of a sample's JSON."""

    def __init__(self, text, flags, system_prompt):
        root = json.loads(text)
        if not isinstance(root, dict):
            raise Refusal("the conversation is no object")
        lists = [
            parse_text(root.get(key), key) for key in ("messages", "conversations", "conversation")
        ]
        given = next((one for one in lists if one), None)
        if sum(bool(one) for one in lists) > 1:
            raise Refusal("both `conversations` and `messages` may be meant; wanted one of the two")
        if not isinstance(given, list) or not given:
            raise Refusal("the conversation has no list of turns `messages` or `conversations`")
        self.messages = []
        self.weight = len(text)
        for number, turn in enumerate(given, 1):
            try:
                if isinstance(turn, dict) and "role" not in turn and "from" in turn:
                    turn = from_sharegpt(turn)
                self.messages.append(normalize_message(turn, flags))
                weight_of(self.messages[-1])
            except Refusal as refusal:
                raise Refusal(f"turn {number}: {refusal}") from None
        first = self.messages[0]
        beside = root.get("system")
        if beside and (
            not isinstance(beside, str) or is_system(first) and first.get("content") != beside
        ):
            raise Refusal(
                "`system` next to the turns is no text, or another than the first turn; wanted one of the two"
            )
        system = beside or system_prompt
        self.inserted = bool(system) and not is_system(first)
        if self.inserted:
            self.messages.insert(0, {"role": "system", "content": system})
        if root.get("functions"):
            raise Refusal("`functions` next to the turns is read by no template; wanted `tools`")
        self.beside = {key: parse_text(root.get(key), key) for key in ("tools", "documents")}

    def number(self, index):
        """Of a message in the sample, from 1."""
        return index + (0 if self.inserted else 1)

    def answers(self):
        """The indexes of the assistant's messages."""
        return [i for i, message in enumerate(self.messages) if is_assistant(message)]


def is_assistant(message):
    return message["role"] == "assistant"


def is_system(message):
    return message["role"] in ("system", "developer")


def common_length(one, other):
    """The number of characters with which both begin."""
    if other.startswith(one):
        return len(one)
    return next(
        (i for i, pair in enumerate(zip(one, other)) if pair[0] != pair[1]),
        min(len(one), len(other)),
    )


def prefix_spans(renderer, conversation, text):
    """For each message of the assistant, the text that it adds to the messages before it."""
    spans = []
    if is_assistant(conversation.messages[-1]) and renderer.begins_turns():
        raise Refusal(
            "it writes the beginning of another turn of the assistant after the last one, so where that ends cannot "
            "be told; mark what is learnt in the template by {% generation %}"
        )
    for index in conversation.answers():
        number = conversation.number(index)
        whole = text
        if index + 1 < len(conversation.messages):
            whole, _ = renderer.render(
                conversation.messages[: index + 1], conversation.beside, conversation.weight
            )
        if not text.startswith(whole):
            raise Refusal(
                f"it writes the turns up to {number}, of the assistant, otherwise when others follow, so what "
                "they learn cannot be told by renderings of prefixes; mark it in the template by {% generation %}, "
                "or name a model.profile whose chat has the assistant's boundaries"
            )
        if index == 0:
            spans.append((first_begin(renderer, conversation, whole), len(whole)))
            continue
        before, _ = renderer.render(
            conversation.messages[:index], conversation.beside, conversation.weight
        )
        asked, _ = renderer.render(
            conversation.messages[:index],
            conversation.beside,
            conversation.weight,
            add_generation_prompt=True,
        )
        if not whole.startswith(before):
            raise Refusal(
                f"it writes the turns before {number} otherwise when that, of the assistant, follows; mark what "
                "is learnt in the template by {% generation %}, or name a model.profile whose chat has the "
                "assistant's boundaries"
            )
        spans.append((max(common_length(asked, whole), len(before)), len(whole)))
    if not renderer.ends_turns():
        after = [conversation.messages[index + 1 : index + 2] for index in conversation.answers()]
        spans = [with_next_token(text, span, following) for span, following in zip(spans, after)]
    return spans


def first_begin(renderer, conversation, whole):
    """Where the assistant's text begins in a conversation of it alone: where others begin, too."""
    others = []
    for text in (SIGN, "0" + SIGN):
        messages = [{"role": "assistant", "content": text}]
        renderer.give_parts(messages)
        others.append(renderer.try_out(messages, **conversation.beside))
    if None in others:
        raise Refusal(
            "the first turn is the assistant's, and where the template writes that cannot be tried out; give it "
            "a turn of the user before, or mark what is learnt in the template by {% generation %}"
        )
    return min(common_length(other, whole) for other in others)


def with_next_token(text, span, following):
    """The span with the token after it, which ends the turn in the text as in the model's answers."""
    token = TURN_TOKEN.match(text, span[1])
    if token is None or any(
        first_text(message).lstrip().startswith(token[1]) for message in following
    ):
        return span
    return span[0], token.end(1)


def to_bytes(text, spans):
    """Spans in characters as spans in bytes of UTF-8."""
    if text.isascii():
        return [(min(begin, len(text)), min(end, len(text))) for begin, end in spans]
    return [(len(text[:begin].encode()), len(text[:end].encode())) for begin, end in spans]


def render_one(renderer, text, flags):
    conversation = Conversation(text, flags, renderer.system_prompt)
    renderer.give_parts(conversation.messages)
    thoughts = renderer.choose_thoughts(conversation)
    rendered, spans = renderer.render(
        conversation.messages, conversation.beside, conversation.weight
    )
    renderer.check_thoughts(conversation, thoughts, rendered)
    if flags & BY_PREFIXES:
        spans = prefix_spans(renderer, conversation, rendered)
    answers = []
    for index in conversation.answers():
        message = conversation.messages[index]
        flags = HAS_OWN_THOUGHT if has_own_thought(message) else 0
        answers.append(ANSWER.pack(flags, conversation.number(index), weight_of(message)))
    encoded = rendered.encode()
    spans = to_bytes(rendered, spans)
    unwritten = to_reason(renderer.unwritten(conversation))
    numbers = [number for span in spans for number in span]
    return (
        struct.pack(
            f"={5 + len(numbers)}I",
            DONE,
            len(encoded),
            len(spans),
            len(answers),
            len(unwritten),
            *numbers,
        ),
        *answers,
        encoded,
        unwritten,
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
            made = (struct.pack("=5I", kind, len(reason), 0, 0, 0), reason)
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
        "variables": {},
        "system_prompt": "",
        "date": "now",
        "seconds": 60,
        "bytes_a_second": 1,
        "most_bytes": 1 << 20,
        "reasoning": LAST,
        "tool_use": "",
    }
    text = json.dumps(
        {"messages": [{"role": "user", "content": "é"}, {"role": "assistant", "content": "x"}]}
    ).encode()
    for template in (
        WARM_UP,
        WARM_UP + "{{ messages.__class__ }}",
        WARM_UP + "{{ raise_exception('x') }}",
        "{% if",
    ):
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
