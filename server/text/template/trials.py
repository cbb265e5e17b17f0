"""Made-up conversations, which show what a template does with those of a user.

renderer.py has the template write them. A sign is a text that no template writes by itself.
"""

import json

SIGN = "xq7hv2"
REASONING = ("reasoning_content", "thinking", "reasoning")


def with_thought(message, said):
    return {"thinking": said, **message, "reasoning_content": said}


def is_response(text):
    text = text.strip()
    return text.startswith("<tool_response>") and text.endswith("</tool_response>")


def is_question(message):
    """Whether it is the user's, and no answer of a tool."""
    content = message.get("content")
    return message["role"] == "user" and not (isinstance(content, str) and is_response(content))


def split_thought(text):
    """The thought at the beginning of a text, None without one, and the rest."""
    head, mark, rest = text.partition("</think>")
    if not mark or ("<think>" in head and not head.lstrip().startswith("<think>")):
        return None, text
    return head.split("<think>")[-1].strip(), rest.lstrip("\n")


def split_parts(content):
    """The same of a list of parts."""
    thoughts, rest, is_first = [], [], True
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("thinking", "reasoning") and kind in part:
            said = part[kind]
            if isinstance(said, list):
                said = "".join(one.get("text", "") for one in said if isinstance(one, dict))
            thoughts.append(str(said).strip())
            continue
        if kind == "text" and is_first and isinstance(part.get("text"), str):
            is_first = False
            thought, left = split_thought(part["text"])
            if thought is not None:
                thoughts.append(thought)
                part = {**part, "text": left}
        rest.append(part)
    return ("".join(thoughts) if thoughts else None), rest


def split_content(message):
    content = message.get("content")
    if isinstance(content, str):
        return split_thought(content)
    return split_parts(content) if isinstance(content, list) else (None, content)


def first_text(message):
    content = message.get("content")
    if isinstance(content, list):
        content = next((part.get("text") for part in content if isinstance(part, dict)), None)
    return content if isinstance(content, str) else ""


# Keys of messages that hold what a model says or is told.
CONTENT_KEYS = frozenset(
    ("tool_calls", "reasoning_content", "function_call", "refusal", "audio", "tool_plan")
)


def make_trials(kind, name):
    """Conversations, with their other keys, that show whether a template writes such a thing."""
    ask = {"role": "user", "content": "Why?"}
    say = {"role": "assistant", "content": "So."}
    tool = {
        "type": "function",
        "function": {
            "name": SIGN if kind == "tools" else "f",
            "description": "d",
            "parameters": {"type": "object", "properties": {}, "required": []},
        },
    }
    if kind in ("role", "role of parts"):
        content = SIGN if kind == "role" else [{"type": "text", "text": SIGN}]
        said = {"role": name, "content": content, "name": "f", "tool_call_id": "call00001"}
        call = {"type": "function", "id": "call00001", "function": {"name": "f", "arguments": {}}}
        called = {**say, "tool_calls": [call]}
        return [
            ([said], {}),
            ([said, ask], {}),
            ([ask, said], {}),
            ([ask, called, said], {"tools": [tool]}),
        ]
    if kind == "tools":
        return [([ask], {"tools": [tool]}), ([ask, say], {"tools": [tool]})]
    if kind == "documents":
        return [([ask, say], {"documents": [{"title": SIGN, "text": SIGN, "contents": SIGN}]})]
    if kind in ("part", "part with text"):
        part = {"type": name, name: SIGN, **({"text": SIGN} if kind != "part" else {})}
        return [([{**ask, "content": [part]}, say], {}), ([ask, {**say, "content": [part]}], {})]
    if kind == "reasoning_content":
        return [([ask, with_thought(say, SIGN)], {})]
    if kind == "thought within":
        text = f"<think>\n{SIGN}\n</think>\n\nSo."
        return [
            ([ask, {**say, "content": content}], {})
            for content in (text, [{"type": "text", "text": text}])
        ]
    if kind == "tool_calls":
        call = [
            {"type": "function", "id": "call00001", "function": {"name": SIGN, "arguments": {}}}
        ]
        return [
            ([ask, {**one, "tool_calls": call}], {"tools": [tool]})
            for one in (say, {**say, "content": ""})
        ]
    if kind == "function_call":
        return [([ask, {**say, kind: {"name": SIGN, "arguments": "{}"}}], {})]
    return [([ask, {**say, kind: SIGN}], {})]


class Shape:
    """A conversation with a sign in place of each text of another one.

    Roles, parts, calls, the keys of their arguments and thoughts are the other's.
    """

    def __init__(self, messages):
        self.signs = []  # the index of the message, what of it, and its sign
        self.ids = {}
        self.messages = [self.shorten(index, message) for index, message in enumerate(messages)]

    def left_out(self, text):
        """The index of the first message of which `text` lacks a sign, and what of it; None if it has all."""
        lower = text.lower()
        for index, what, sign in self.signs:
            if sign not in lower:
                return index, what
            if f"'text': '{sign}" in lower:
                return (
                    index,
                    "its parts as such, which it writes as a list of Python; give its content as a text",
                )
        return None

    def sign(self, index, what):
        self.signs.append((index, what, f"{SIGN}n{len(self.signs)}e"))
        return self.signs[-1][2]

    def shorten(self, index, message):
        message = dict(message)
        for key in REASONING:
            if isinstance(message.get(key), str) and message[key].strip():
                message[key] = "t"
        content = message.get("content")
        calls = message.get("tool_calls")
        if isinstance(content, str):
            what = "its text" + (" next to `tool_calls`" if calls else "")
            message["content"] = self.shorten_text(
                index, what, content, message["role"] == "assistant"
            )
        elif isinstance(content, list):
            message["content"] = [
                self.shorten_part(index, number, part) for number, part in enumerate(content, 1)
            ]
        if isinstance(calls, list):
            message["tool_calls"] = [
                self.shorten_call(index, number, call) for number, call in enumerate(calls, 1)
            ]
        if isinstance(message.get("tool_call_id"), str):
            message["tool_call_id"] = self.shorten_id(message["tool_call_id"])
        return message

    def shorten_id(self, given):
        return self.ids.setdefault(given, f"call{len(self.ids):05}")

    def shorten_text(self, index, what, text, is_answer):
        thought, rest = split_thought(text) if is_answer else (None, text)
        sign = self.sign(index, what) if rest.strip() else ""
        if thought is not None:
            return f"<think>\n{'t' if thought else ''}\n</think>\n\n{sign}"
        return f"<tool_response>\n{sign}\n</tool_response>" if is_response(text) else sign

    def shorten_part(self, index, number, part):
        text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
        if not isinstance(text, str) or not text.strip():
            return part
        return {**part, "text": self.sign(index, f"part {number} of its content")}

    def shorten_call(self, index, number, call):
        if not isinstance(call, dict):
            return call
        if isinstance(call.get("id"), str):
            call = {**call, "id": self.shorten_id(call["id"])}
        if isinstance(call.get("function"), dict):
            return {**call, "function": self.shorten_function(index, number, call["function"])}
        return self.shorten_function(index, number, call)

    def shorten_function(self, index, number, function):
        arguments = function.get("arguments")
        what = f"the arguments of call {number} of `tool_calls`"
        if isinstance(arguments, dict):
            return {**function, "arguments": self.shorten_arguments(index, what, arguments)}
        if not isinstance(arguments, str) or not arguments.strip():
            return function
        what += ", a text; give an object"
        try:
            parsed = json.loads(arguments)
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            return {**function, "arguments": self.sign(index, what)}
        return {**function, "arguments": json.dumps(self.shorten_arguments(index, what, parsed))}

    def shorten_arguments(self, index, what, arguments):
        shorts = {
            key
            for key, value in arguments.items()
            if isinstance(value, (str, float)) or type(value) is int
        }
        if not shorts:
            return arguments
        sign = self.sign(index, what)
        return {key: sign if key in shorts else value for key, value in arguments.items()}
