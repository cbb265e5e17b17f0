#!/usr/bin/env python3
"""Writes testdata/templates.json: conversations as transformers renders them.

    pip install transformers==5.23 jinja2==3.1.6
    python3 make_vectors.py

Templates are ours, with the features of public ones: tools, tool calls, reasoning,
parts, roles of their own, loop controls, generation marks, strftime_now. Each case
has the text and the spans, in characters, of apply_chat_template; the pieces that
are supervised where the template marks none follow from renderings of prefixes,
which are transformers' too.
"""

import json
import os
import re

from transformers.utils.chat_template_utils import render_jinja_template

HERE = os.path.dirname(os.path.abspath(__file__))

CHATML = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if message.reasoning_content %}
            {{- '<think>\\n' + message.reasoning_content.strip('\\n') + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- message.content }}
        {%- for call in message.tool_calls or [] %}
            {%- if call.function %}{% set call = call.function %}{% endif %}
            {{- '\\n<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
            {%- if call.arguments is string %}{{ call.arguments }}{% else %}{{ call.arguments | tojson }}{% endif %}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

TEMPLATES = {
    "tools": CHATML,
    # Blocks on lines of their own, which trim_blocks and lstrip_blocks take away.
    "blocks": """\
{{ bos_token }}
  {% for message in messages %}
    {% if message['role'] == 'assistant' %}
A: {% generation %}{{ message['content'] }}{{ eos_token }}{% endgeneration %}
    {% else %}
{{ message['role'] | upper }}: {{ message['content'] | trim }}
    {% endif %}
  {% endfor %}
""",
    "generation": """\
{% for m in messages %}<|{{ m.role }}|>
{% if m.role == 'assistant' %}{% generation %}
{{ m.content }}
{%- for call in m.tool_calls or [] %}[{{ call.function.name }}({{ call.function.arguments | tojson }})]{% endfor %}
<|end|>{% endgeneration %}
{% else %}
{{ m.content }}<|end|>
{% endif %}{% endfor %}""",
    "alternation": """\
{{- bos_token }}
{%- for message in messages %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- set role = 'model' if message.role == 'assistant' else message.role %}
    {{- '<start_of_turn>' + role + '\\n' + (message.content | trim) + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}""",
    "parts": """\
{%- for message in messages %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
{%- if message.content is string %}{{ message.content }}{% else %}
{%- for part in message.content %}
{%- if part.type == 'image' %}{{ '[IMG]' }}{% elif part.type == 'text' %}{{ part.text }}{% endif %}
{%- endfor %}{% endif %}
{{- '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}""",
    "loops": """\
{%- for message in messages %}
{%- if message.role == 'critic' %}{% continue %}{% endif %}
{%- if message.role == 'stop' %}{% break %}{% endif %}
{{- '[' + message.role + ']' + message.content + '\\n' }}
{%- endfor %}""",
    "date": """\
{%- if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}
{{- 'Today: ' + date_string + '\\n' }}
{%- for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}""",
    "namespace": """\
{%- set ns = namespace(count=0, last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% set ns.count = ns.count + 1 %}{% endif %}{% endfor %}
{{- 'questions=' ~ ns.count ~ '\\n' }}
{%- macro say(m) -%}{{ m.role ~ (' (' ~ m.name ~ ')' if m.name else '') ~ ': ' ~ m.content }}{%- endmacro %}
{%- for m in messages %}{{ say(m) ~ '\\n' }}{% endfor %}""",
    "json": """\
{%- for m in messages %}{{ m | tojson(indent=2) }}{{ tools | tojson(sort_keys=True, separators=(',', ':')) if tools else '' }}
{% endfor %}{{ dict(a='<b>', c="é") | tojson }}{{ dict(a=1) | tojson(ensure_ascii=True) }}""",
    "thoughts": """\
{%- for m in messages %}
{{- '<|' + m.role + '|>' }}
{%- if m.role == 'assistant' %}
{%- if m.reasoning_content and loop.last %}{{ '<think>' + m.reasoning_content + '</think>' }}{% else %}{{ '<think></think>' }}{% endif %}
{{- '\\n' + m.content.split('</think>')[-1] | trim }}
{%- else %}{{ '\\n' + m.content }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}""",
    "documents": """\
{%- for d in documents or [] %}{{ 'Document: ' + d.title + '\\n' + d.text + '\\n' }}{% endfor %}
{%- for m in messages %}{{ loop.index ~ '. ' ~ m.role ~ ': ' ~ m.content ~ '\\n' }}{% endfor %}""",
}

TOOL = {"type": "function", "function": {
    "name": "weather", "description": "The <b>weather</b> & more",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}


def calls(arguments):
    return [{"type": "function", "id": "c1", "function": {"name": "weather", "arguments": arguments}}]


ROWS = [
    {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi.\n"}]},
    {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "naïve 你好 😀"},
                  {"role": "assistant", "content": "안녕 <think>no</think> é"}, {"role": "user", "content": " again "},
                  {"role": "assistant", "content": "Yes & <b>"}]},
    {"messages": [{"role": "user", "content": "Rain?"},
                  {"role": "assistant", "content": "", "tool_calls": calls({"city": "Łódź"})},
                  {"role": "tool", "tool_call_id": "c1", "name": "weather", "content": "{\"rain\": true}"},
                  {"role": "tool", "tool_call_id": "c2", "name": "weather", "content": "42"},
                  {"role": "assistant", "content": "It rains."}], "tools": [TOOL]},
    {"messages": [{"role": "user", "content": "Again?"},
                  {"role": "assistant", "content": "Looking", "tool_calls": calls("{\"city\": \"Rome\"}")}],
     "tools": [TOOL, TOOL]},
    {"messages": [{"role": "user", "content": "Why?"},
                  {"role": "assistant", "content": "Because.", "reasoning_content": "\nI think.\n"},
                  {"role": "user", "content": "And?"},
                  {"role": "assistant", "content": "So.", "thinking": "Short."}]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "Look "}, {"type": "text", "text": "here"}]},
                  {"role": "assistant", "content": [{"type": "text", "text": "I see."}]}]},
    {"messages": [{"role": "user", "content": "a"}, {"role": "critic", "content": "b"},
                  {"role": "assistant", "content": "c"}, {"role": "stop", "content": "d"},
                  {"role": "user", "content": "e"}]},
    {"messages": [{"role": "developer", "content": "x"}, {"role": "user", "name": "ann", "content": "y"},
                  {"role": "ipython", "content": "z"}, {"role": "assistant", "content": "w"}],
     "documents": [{"title": "T", "text": "t"}]},
]

VARIABLES = {"bos_token": "<s>", "eos_token": "</s>"}


def render(template, row, messages, prompt=False):
    texts, spans = render_jinja_template(
        [messages], tools=row.get("tools"), documents=row.get("documents"), chat_template=template,
        return_assistant_tokens_mask="{% generation %}" in template, add_generation_prompt=prompt, **VARIABLES)
    return texts[0], spans[0] if spans else []


def by_prefixes(template, row, text):
    """The supervised pieces, or None where the template changes earlier turns."""
    pieces = []
    messages = row["messages"]
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        whole = render(template, row, messages[: i + 1])[0]
        before = render(template, row, messages[:i])[0]
        asked = render(template, row, messages[:i], prompt=True)[0]
        if not text.startswith(whole) or not whole.startswith(before):
            return None
        begin = len(before)
        while begin < min(len(asked), len(whole)) and asked[begin] == whole[begin]:
            begin += 1
        piece = whole[begin:]
        if not message.get("reasoning_content"):
            piece = re.sub(r"^<think>\s*</think>\s*", "", piece)
        pieces.append(piece)
    return pieces


def main():
    cases = []
    for name, template in TEMPLATES.items():
        for row, sample in enumerate(ROWS):
            case = {"template": name, "row": row}
            try:
                text, spans = render(template, sample, sample["messages"])
            except Exception as error:
                case["error"] = str(error)
                cases.append(case)
                continue
            if name == "date":
                text = None  # the clock's; the test gives a date of its own
            else:
                case["text"] = text
                if "{% generation %}" in template:
                    case["pieces"] = [text[begin:end] for begin, end in spans]
                else:
                    case["pieces"] = by_prefixes(template, sample, text)
                cases.append(case)
    out = {"templates": TEMPLATES, "rows": ROWS, "variables": VARIABLES, "cases": cases}
    os.makedirs(os.path.join(HERE, "testdata"), exist_ok=True)
    with open(os.path.join(HERE, "testdata", "templates.json"), "w", encoding="utf-8") as file:
        json.dump(out, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
