#!/usr/bin/env python3
"""Compares `ballast-server inspect conversation` with transformers over templates of others.

    pip install transformers==5.23 jinja2==3.1.6
    python3 compare_templates.py --server ballast-server --tokenizer tokenizer.json FOLDER…

FOLDER has chat templates as files `*.jinja`; public ones stay out of this repository. Each
renders the conversations of make_vectors.py and some more. Text and token ids must equal
apply_chat_template, and a refusal must have the template's own words.

What is supervised is compared with what the conversations say, not with renderings. Each text
in them has a word that is in no other: words of the assistant that are in the rendered text
must be supervised wherever they are, and words of others nowhere. A token that ends the
assistant's turn must be supervised, too.

Prints what differs, a line for each case, and counts. The exit status is 1 if anything does.
"""

import argparse
import collections
import copy
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from transformers import PreTrainedTokenizerFast

from make_vectors import ROWS, VARIABLES

# A word of the conversations: who says it, the number of its message, and which text there.
WORD = re.compile(r"\b(quser|qsystem|qtool|qsays|qthinks|qcalls|qother)([a-z])([a-z])\b")
OF_ASSISTANT = ("qsays", "qthinks", "qcalls")
# A time of day, by strftime_now: it changes between two renderings.
CLOCK = re.compile(r"\b\d\d:\d\d(:\d\d)?\b")
# A token that ends a turn: <|im_end|>, </s>, [/X], <end_of_turn>.
END = re.compile(r"[\s\"}\])`']*(<[|/｜a-z_▁][^<>\s]*>|\[/[A-Z_]+\])")


def word(who, number, part=0):
    return f"q{who}{chr(97 + number)}{chr(97 + part)}"


def make_tool(name="weather"):
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": "Of the <day> & more",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "A city"}},
                "required": ["city"],
            },
        },
    }


def make(*turns, tools=None, **beside):
    """A conversation of turns such as "u", "a", "a:think:call:empty", with a word for each text."""
    messages = []
    called = []
    for number, turn in enumerate(turns):
        role, *what = turn.split(":")
        name = {"u": "user", "a": "assistant", "s": "system", "t": "tool"}.get(role, role)
        who = {"user": "user", "assistant": "says", "system": "system", "tool": "tool"}.get(
            name, "other"
        )
        said = "Well, " + word(who, number) + "."
        if "unicode" in what:
            said = "naïve 你好 😀 " + said
        message = {"role": name, "content": said}
        if "empty" in what:
            message["content"] = ""
        elif "null" in what:
            message["content"] = None
        elif "absent" in what:
            del message["content"]
        elif "parts" in what:
            message["content"] = [
                {"type": "text", "text": said},
                {"type": "text", "text": word(who, number, 1)},
            ]
        elif "within" in what:
            message["content"] = f"<think>\nHm, {word('thinks', number)}.\n</think>\n\n{said}"
        if "think" in what:
            message["reasoning_content"] = f"Hm, {word('thinks', number)}."
        if "thinking" in what:
            message["thinking"] = f"Hm, {word('thinks', number)}."
        count = sum(one in ("call", "text") for one in what) + 2 * ("two" in what)
        if count:
            called = []
            for part in range(count):
                arguments = {"city": word("calls", number, part)}
                called.append(f"call{number}{part}000"[:9])
                message.setdefault("tool_calls", []).append(
                    {
                        "type": "function",
                        "id": called[-1],
                        "function": {
                            "name": "weather",
                            "arguments": json.dumps(arguments) if "text" in what else arguments,
                        },
                    }
                )
        if name == "tool":
            message["tool_call_id"] = called.pop(0) if called else "call00000"
            message["name"] = "weather"
        messages.append(message)
    row = {"messages": messages, **beside}
    if tools:
        row["tools"] = [make_tool()]
    return row


MORE = [
    make("u", "a"),
    make("s", "u", "a"),
    make("u", "a", "u", "a", "u", "a"),
    make("s", "u:unicode", "a:unicode", "u:unicode", "a"),
    make("u", "a", "s", "u", "a"),
    make("developer", "u", "a"),
    make("u", "u", "a"),
    make("u", "a", "a"),
    make("a", "u", "a"),
    make("s", "a", "u", "a"),
    make("u", "a:empty"),
    make("u", "a", "u"),
    make("u:parts", "a"),
    make("s:parts", "u:parts", "a:parts"),
    make("u", "a:think"),
    make("u", "a:think", "u", "a:think"),
    make("u", "a:thinking", "u", "a"),
    make("u", "a:within", "u", "a:within"),
    make("u", "a", "u", "a", tools=True),
    make("s", "u", "a:call:null", "t", "a", tools=True),
    make("s", "u", "a:call:empty", "t", "a", tools=True),
    make("u", "a:call:absent", "t", "a", tools=True),
    make("u", "a:call", "t", "a", tools=True),
    make("u", "a:text:null", "t", "a", tools=True),
    make("u", "a:text:empty", "t", "a", "u", "a", tools=True),
    make("u", "a:two:null", "t", "t", "a", tools=True),
    make("u", "a:two", "t", "t", "a", "u", "a", tools=True),
    make("s", "u", "a:call:think:empty", "t", "a:call:think:empty", "t", "a:think", tools=True),
    make("u", "a:call:think", "t", "a:think", "u", "a:think", tools=True),
    make("u", "a:call:empty", "t", "a:call:empty", "t", "a", tools=True),
    make("u", "a:call:empty", tools=True),
    make("u", "a:call:empty", "t", "a"),
    make("u", "a", documents=[{"title": "T", "text": "t"}]),
]


class Oracle:
    """transformers with a tokenizer, which is also what the server gets."""

    def __init__(self, tokenizer, folder):
        self.file = os.path.join(folder, "tokenizer.json")
        pathlib.Path(self.file).write_bytes(pathlib.Path(tokenizer).read_bytes())
        pathlib.Path(folder, "tokenizer_config.json").write_text(json.dumps(VARIABLES))
        self.tokenizer = PreTrainedTokenizerFast(tokenizer_file=self.file, **VARIABLES)

    def render(self, template, row, messages):
        """The text and its ids, or the error."""
        given = {
            "tools": row.get("tools"),
            "documents": row.get("documents"),
            "chat_template": template,
        }
        try:
            text = self.tokenizer.apply_chat_template(messages, tokenize=False, **given)
            encoded = self.tokenizer.apply_chat_template(
                messages, tokenize=True, return_dict=True, **given
            )
            return text, encoded["input_ids"], None
        except Exception as error:  # whatever a template raises
            return None, None, str(error)


def as_parts(messages):
    """With each text as a part."""
    messages = copy.deepcopy(messages)
    for message in messages:
        if isinstance(message.get("content"), str) and message["content"]:
            message["content"] = [{"type": "text", "text": message["content"]}]
    return messages


def inspect(command, oracle, template, rows):
    """What the command says of each conversation."""
    done = subprocess.run(
        [*command, "--chat-template", template, "--tokenizer", oracle.file, "--text"],
        input="".join(json.dumps(row) + "\n" for row in rows),
        capture_output=True,
        text=True,
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return answers if len(answers) == len(rows) else [{"error": done.stderr.strip()}] * len(rows)


def check_supervised(row, got, has_marks):
    """What is wrong with the supervised pieces; words that the text lacks."""
    text, wrong, spans, at = got["text"], [], [], 0
    for piece in got["supervised"]:
        begin = text.index(piece, at)
        at = begin + len(piece)
        spans.append((begin, at))

    def is_learnt(begin, end):
        return any(first <= begin and end <= last for first, last in spans)

    lacks = []
    said = json.dumps(row["messages"])
    for match in WORD.finditer(said):
        if re.search(rf"\b{match[0]}\b", text, re.I) is None:
            lacks.append(match[0])
    found = [match for match in re.finditer(WORD.pattern, text, re.I)]
    for number, match in enumerate(found):
        learnt = is_learnt(match.start(), match.end())
        if learnt != (match[1].lower() in OF_ASSISTANT):
            wrong.append(f"{match[0]} is {'supervised' if learnt else 'not supervised'}")
        # The end of its turn, where the template does not mark what is learnt.
        if (
            has_marks
            or match[1].lower() not in OF_ASSISTANT
            or (number + 1 < len(found) and found[number + 1][2] == match[2])
        ):
            continue
        end = END.match(text, match.end() + (text[match.end() : match.end() + 1] == "."))
        if end and not is_learnt(end.start(1), end.end(1)):
            wrong.append(f"{end[1]} after {match[0]} is not supervised")
    return wrong, lacks


def is_equal(one, other):
    return other is not None and CLOCK.sub("", one) == CLOCK.sub("", other)


def compare(answer, row, template, oracle):
    """What a case is, and more about it."""
    text, ids, error = oracle.render(template, row, row["messages"])
    if "text" not in answer:
        if error is None:
            return "REFUSED", answer["error"]
        is_same = error in answer["error"]
        return (
            ("refused by both", "")
            if is_same
            else ("DIFFERS", f"{answer['error']}, wanted {error}")
        )
    if not is_equal(
        answer["text"], text
    ):  # a text became a part, where the template writes parts alone
        text, ids, error = oracle.render(template, row, as_parts(row["messages"]))
    if not is_equal(answer["text"], text):
        return "DIFFERS", f"{answer['text']!r}, wanted {text!r} {error or ''}"
    if answer["ids"] != ids and answer["text"] == text:
        return "DIFFERS", "the ids"
    if "error" in answer:
        return "equal, not to be learnt", answer["error"]
    wrong, lacks = check_supervised(row, answer, "endgeneration" in template)
    if answer.get("left_out"):
        return "equal, left out by name", answer["left_out"]
    if wrong:
        return "WRONG", "; ".join(wrong)
    if all(one.startswith("qthinks") for one in lacks):  # the template's rule
        return "equal and learnt", ""
    return "LACKS", " ".join(lacks)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--server", required=True)
    arguments.add_argument("--tokenizer", required=True)
    arguments.add_argument(
        "--model", help="of inspect conversation: the turns' boundaries are this model's"
    )
    arguments.add_argument(
        "--all", action="store_true", help="print also what is refused or left out by name"
    )
    arguments.add_argument("folders", nargs="+")
    given = arguments.parse_args()
    command = [given.server, "inspect", "conversation"] + (
        ["--model", given.model] if given.model else []
    )
    counts = collections.Counter()
    templates = sorted(
        path for folder in given.folders for path in pathlib.Path(folder).rglob("*.jinja")
    )
    rows = ROWS + MORE
    with tempfile.TemporaryDirectory() as folder:
        oracle = Oracle(given.tokenizer, folder)
        for path in templates:
            template = path.read_text(encoding="utf-8")
            for number, (row, answer) in enumerate(
                zip(rows, inspect(command, oracle, str(path), rows))
            ):
                kind, more = compare(answer, row, template, oracle)
                counts[kind] += 1
                if kind.isupper() or given.all and more:
                    print(f"{path.parent.name}/{path.stem} {number}: {kind}: {more}")
    print(f"{len(templates)} templates, {sum(counts.values())} cases: {dict(counts)}")
    return int(any(kind.isupper() for kind in counts))


if __name__ == "__main__":
    sys.exit(main())
