#!/usr/bin/env python3
"""Writes testdata/templates.json: conversations as transformers renders them.

    pip install transformers==5.23 jinja2==3.1.6
    python3 make_vectors.py

Templates are ours, with the features of public ones: tools, tool calls, reasoning
and its switches, parts, roles of their own, loop controls, generation marks,
strftime_now. Each case has the text and the spans, in characters, of
apply_chat_template; the pieces that are supervised where the template marks none
follow from renderings of prefixes, which are transformers' too. With `reasoning`
the switches are given to apply_chat_template, or the messages without what is
dropped; `refused` is a text without a thought that it should have.
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

# The user's last question, thoughts within the text or beside it, calls and answers of tools.
THINKS = """\
{%- set ns = namespace(last=messages | length - 1, searching=true) %}
{%- for m in messages[::-1] %}
    {%- set index = (messages | length - 1) - loop.index0 %}
    {%- if ns.searching and m.role == 'user' and m.content is string and not (m.content.startswith('<tool_response>') and m.content.endswith('</tool_response>')) %}
        {%- set ns.searching = false %}{% set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- if tools %}{{ '<|im_start|>system\\n' }}{% for tool in tools %}{{ tool | tojson + '\\n' }}{% endfor %}{{ '<|im_end|>\\n' }}{% endif %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'assistant' %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thought = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- set thought = thought | trim %}
        {%- if (KEEPS) or loop.index0 > ns.last %}
            {{- '<|im_start|>assistant\\n<think>\\n' + thought + '\\n</think>\\n\\n' + content }}
        {%- else %}
            {{- '<|im_start|>assistant\\n' + content }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n' + (call.function | tojson) + '\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + content + '\\n</tool_response><|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
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
    # Reasoning after the last question alone, as of Qwen 3, without a switch.
    "thinks_last": THINKS.replace("KEEPS", "false"),
    # As of Qwen 3.6, GLM 5, Nemotron 3 and DeepSeek: with one.
    "preserves": THINKS.replace(
        "KEEPS", "preserve_thinking is defined and preserve_thinking is true"
    ),
    "clears": THINKS.replace("KEEPS", "clear_thinking is defined and not clear_thinking"),
    "truncates": "{%- set truncate_history_thinking = truncate_history_thinking "
    "if truncate_history_thinking is defined else true %}\n"
    + THINKS.replace("KEEPS", "not truncate_history_thinking"),
    "keeps_all": "{%- set drop_thinking = drop_thinking | default(false) %}"
    + THINKS.replace("KEEPS", "not drop_thinking"),
    # As of LFM 2.5: reasoning within the text.
    "past": """\
{{- bos_token }}
{%- set keep_past_thinking = keep_past_thinking | default(false) %}
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'assistant' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
{%- set content = m.content if m.content is string else (m.content | tojson) %}
{%- if m.role == 'assistant' and not keep_past_thinking and loop.index0 != ns.last and '</think>' in content %}
{%- set content = content.split('</think>')[-1] | trim %}{% endif %}
{{- '<|im_start|>' + m.role + '\\n' + content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""",
    # As of Mistral: ids of calls, tools before the last question.
    "inst": """\
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{{- bos_token }}
{%- for m in messages %}
{%- if m.role == 'user' %}
{%- if tools is not none and loop.index0 == ns.last %}{{ '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{% endif %}
{{- '[INST]' + m.content + '[/INST]' }}
{%- elif m.tool_calls is defined and m.tool_calls %}
{{- '[TOOL_CALLS][' }}
{%- for call in m.tool_calls %}
{%- if call.id is not defined or call.id | length != 9 %}{{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}{% endif %}
{{- (call.function | tojson)[:-1] + ', "id": "' + call.id + '"}' }}{{ ', ' if not loop.last else ']' + eos_token }}
{%- endfor %}
{%- elif m.role == 'assistant' %}{{ ' ' + m.content | trim + eos_token }}
{%- elif m.role in ('tool', 'tool_results') %}{{ '[TOOL_RESULTS]{"content": ' + m.content | string + '}[/TOOL_RESULTS]' }}
{%- elif m.role == 'system' %}{{ '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}
{%- else %}{{ raise_exception('Only user, assistant, system and tool roles are supported!') }}{% endif %}
{%- endfor %}""",
    # As of Llama 3.1: one call a message, results of role ipython.
    "ipython": """\
{{- bos_token }}
{%- if not tools is defined %}{% set tools = none %}{% endif %}
{%- if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] | trim %}{% set messages = messages[1:] %}
{%- else %}{% set system_message = '' %}{% endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{%- if tools is not none %}{{ 'Environment: ipython\\n' }}{% for t in tools %}{{ t | tojson(indent=4) + '\\n\\n' }}{% endfor %}{% endif %}
{{- system_message + '<|eot_id|>' }}
{%- for message in messages %}
{%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
{%- elif 'tool_calls' in message %}
{%- if not message.tool_calls | length == 1 %}{{ raise_exception('This model only supports single tool-calls at once!') }}{% endif %}
{%- set call = message.tool_calls[0].function %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + call.name + '", "parameters": ' + (call.arguments | tojson) + '}<|eot_id|>' }}
{%- else %}
{{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
{%- if message.content is mapping or message.content is iterable %}{{ message.content | tojson }}{% else %}{{ message.content }}{% endif %}
{{- '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}""",
    # As of gpt-oss: channels, thinking of the last answer.
    "channels": """\
{%- macro typed(t) -%}{{ 'string' if t == 'string' else 'any' }}{%- endmacro %}
{%- if tools %}{{ '<|start|>developer<|message|># Tools\\nnamespace functions {\\n' }}
{%- for t in tools %}{{ 'type ' + t.function.name + ' = (_: {' }}
{%- for name, spec in t.function.parameters.properties.items() %}{{ name + ': ' + typed(spec.type) + ', ' }}{% endfor %}
{{- '}) => any;\\n' }}{% endfor %}{{ '}<|end|>' }}{% endif %}
{%- set last = namespace(name=none) %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}
{%- if 'tool_calls' in m %}
{%- if m.thinking %}{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{% endif %}
{%- set call = m.tool_calls[0].function %}{% set last.name = call.name %}
{{- '<|start|>assistant to=functions.' + call.name + '<|channel|>commentary json<|message|>' + (call.arguments | tojson) + '<|call|>' }}
{%- elif loop.last and not add_generation_prompt %}
{%- if m.thinking %}{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{% endif %}
{{- '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|return|>' }}
{%- else %}{{ '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}{% endif %}
{%- elif m.role == 'tool' %}
{%- if last.name is none %}{{ raise_exception('Message has tool role, but there was no previous assistant message with a tool call!') }}{% endif %}
{{- '<|start|>functions.' + last.name + ' to=assistant<|channel|>commentary<|message|>' + m.content | tojson + '<|end|>' }}
{%- else %}{{ '<|start|>' + ('developer' if m.role == 'system' else m.role) + '<|message|>' + m.content + '<|end|>' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}""",
    # As of SmolVLM: parts alone are written.
    "parts_alone": """\
{% for message in messages %}{{ message['role'] | capitalize }}:{% for line in message['content'] %}\
{% if line['type'] == 'text' %}{{ line['text'] }}{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end>
{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}""",
    # As of Gemma 3: the system turn within the user's first, parts, alternation.
    "system_within": """\
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
{%- set first = (messages[0]['content'] if messages[0]['content'] is string else messages[0]['content'][0]['text']) + '\\n\\n' %}
{%- set rest = messages[1:] %}
{%- else %}{% set first = '' %}{% set rest = messages %}{% endif %}
{%- for m in rest %}
{%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate') }}{% endif %}
{%- set role = 'model' if m['role'] == 'assistant' else m['role'] %}
{{- '<start_of_turn>' + role + '\\n' + (first if loop.first else '') }}
{%- if m['content'] is string %}{{ m['content'] | trim }}
{%- else %}{% for item in m['content'] %}{% if item['type'] == 'image' %}{{ '<start_of_image>' }}{% else %}{{ item['text'] | trim }}{% endif %}{% endfor %}{% endif %}
{{- '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}""",
    # As of Functionary: every key of a message is written.
    "whole": """\
{%- for m in messages %}{{ m.role ~ ':' ~ ((m.content or '') | string) }}
{%- for key, value in m.items() if key not in ('role', 'content') %}{{ ' ' ~ key ~ '=' ~ (value | tojson) }}{% endfor %}{{ '\\n' }}{% endfor %}
{%- if tools %}{{ tools | map(attribute='function') | map(attribute='name') | join(', ') }}{% endif %}""",
    "documents": """\
{%- for d in documents or [] %}{{ 'Document: ' + d.title + '\\n' + d.text + '\\n' }}{% endfor %}
{%- for m in messages %}{{ loop.index ~ '. ' ~ m.role ~ ': ' ~ m.content ~ '\\n' }}{% endfor %}""",
}

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The <b>weather</b> & more",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


def calls(arguments):
    return [
        {"type": "function", "id": "c1", "function": {"name": "weather", "arguments": arguments}}
    ]


ROWS = [
    {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi.\n"}]},
    {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "naïve 你好 😀"},
            {"role": "assistant", "content": "안녕 <think>no</think> é"},
            {"role": "user", "content": " again "},
            {"role": "assistant", "content": "Yes & <b>"},
        ]
    },
    {
        "messages": [
            {"role": "user", "content": "Rain?"},
            {"role": "assistant", "content": "", "tool_calls": calls({"city": "Łódź"})},
            {"role": "tool", "tool_call_id": "c1", "name": "weather", "content": '{"rain": true}'},
            {"role": "tool", "tool_call_id": "c2", "name": "weather", "content": "42"},
            {"role": "assistant", "content": "It rains."},
        ],
        "tools": [TOOL],
    },
    {
        "messages": [
            {"role": "user", "content": "Again?"},
            {"role": "assistant", "content": "Looking", "tool_calls": calls('{"city": "Rome"}')},
        ],
        "tools": [TOOL, TOOL],
    },
    {
        "messages": [
            {"role": "user", "content": "Why?"},
            {"role": "assistant", "content": "Because.", "reasoning_content": "\nI think.\n"},
            {"role": "user", "content": "And?"},
            {"role": "assistant", "content": "So.", "thinking": "Short."},
        ]
    },
    {
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "Look "}, {"type": "text", "text": "here"}],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "I see."}]},
        ]
    },
    {
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "critic", "content": "b"},
            {"role": "assistant", "content": "c"},
            {"role": "stop", "content": "d"},
            {"role": "user", "content": "e"},
        ]
    },
    {
        "messages": [
            {"role": "developer", "content": "x"},
            {"role": "user", "name": "ann", "content": "y"},
            {"role": "ipython", "content": "z"},
            {"role": "assistant", "content": "w"},
        ],
        "documents": [{"title": "T", "text": "t"}],
    },
    {
        "messages": [
            {"role": "system", "content": "Be fair."},
            {"role": "user", "content": "Who?"},
            {
                "role": "assistant",
                "content": "",
                "reasoning_content": "First thought.",
                "tool_calls": [
                    {
                        "type": "function",
                        "id": "abc123def",
                        "function": {"name": "weather", "arguments": {"city": "Oslo"}},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "abc123def", "name": "weather", "content": "wet"},
            {"role": "assistant", "content": "It is wet.", "reasoning_content": "Second thought."},
            {"role": "user", "content": "Sure?"},
            {"role": "assistant", "content": "Yes.", "reasoning_content": "Third thought."},
        ],
        "tools": [TOOL],
    },
    {
        "messages": [
            {"role": "user", "content": "Sum?"},
            {"role": "assistant", "content": "<think>\n2 and 2\n</think>\n\n4"},
            {"role": "user", "content": "Sure?"},
            {"role": "assistant", "content": "<think>\nagain\n</think>\n\nYes."},
        ]
    },
]

VARIABLES = {"bos_token": "<s>", "eos_token": "</s>"}
SWITCHES = {
    "preserves": {"keep": {"preserve_thinking": True}, "last": {"preserve_thinking": False}},
    "clears": {"keep": {"clear_thinking": False}, "last": {"clear_thinking": True}},
    "truncates": {
        "keep": {"truncate_history_thinking": False},
        "last": {"truncate_history_thinking": True},
    },
    "keeps_all": {"keep": {"drop_thinking": False}, "last": {"drop_thinking": True}},
    "past": {"keep": {"keep_past_thinking": True}},
}
# What keeps no thought of an earlier turn, beside the content or within it.
NEVER_KEEP = ["thoughts", "thinks_last"]


def render(template, row, messages, prompt=False, **switches):
    texts, spans = render_jinja_template(
        [messages],
        tools=row.get("tools"),
        documents=row.get("documents"),
        chat_template=template,
        return_assistant_tokens_mask="{% generation %}" in template,
        add_generation_prompt=prompt,
        **VARIABLES,
        **switches,
    )
    return texts[0], spans[0] if spans else []


def given(row, mode="template"):
    """The messages as the door gives them: a thought under both of its names."""
    messages = []
    questions = [i for i, m in enumerate(row["messages"]) if m["role"] == "user"]
    for i, message in enumerate(row["messages"]):
        said = message.get("reasoning_content") or message.get("thinking")
        if said is not None:
            message = {"thinking": said, **message, "reasoning_content": said}
        if message["role"] == "assistant" and (
            mode == "drop" or mode == "last" and i < max(questions)
        ):
            message = {
                key: value
                for key, value in message.items()
                if key not in ("reasoning_content", "thinking")
            }
            if isinstance(message["content"], str):
                message["content"] = re.sub(
                    r"^<think>.*?</think>\n*", "", message["content"], flags=re.S
                )
        messages.append(dict(message))
    return messages


def thoughts(row, mode="keep"):
    """The thoughts that a text of this mode has."""
    found = []
    last = max(i for i, m in enumerate(row["messages"]) if m["role"] == "user")
    for i, message in enumerate(row["messages"]):
        if message["role"] != "assistant" or mode == "drop" or mode == "last" and i < last:
            continue
        said = message.get("reasoning_content") or message.get("thinking") or ""
        if isinstance(message["content"], str) and message["content"].startswith("<think>"):
            said = message["content"].split("<think>")[1].split("</think>")[0]
        found.append(said.strip())
    return [one for one in found if one]


def by_prefixes(template, row, messages, text, **switches):
    """The supervised pieces, or None where the template changes earlier turns."""
    pieces = []
    alone = render(
        template, {}, [{"role": "user", "content": "q"}, {"role": "assistant", "content": "zz"}]
    )[0]
    is_open = alone.split("zz")[-1].strip() == ""  # the end of a turn comes with the next one
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        whole = render(template, row, messages[: i + 1], **switches)[0]
        before = render(template, row, messages[:i], **switches)[0]
        asked = render(template, row, messages[:i], prompt=True, **switches)[0]
        if not text.startswith(whole) or not whole.startswith(before):
            return None
        begin = len(before)
        while begin < min(len(asked), len(whole)) and asked[begin] == whole[begin]:
            begin += 1
        follows = re.match(r"\s*<[^<>\s]+>", text[len(whole) :]) if is_open else None
        pieces.append(
            re.sub(r"^\s*<think>\s*</think>\s*", "", whole[begin:])
            + (follows[0] if follows else "")
        )
    return pieces


def main():
    cases = []
    for name, template in TEMPLATES.items():
        for row, sample in enumerate(ROWS):
            for mode in ("template", "keep", "last", "drop"):
                switches = SWITCHES.get(name, {}).get(mode, {})
                if mode == "keep" and name in NEVER_KEEP:
                    continue  # refused at the start
                if mode != "template" and not thoughts(sample):
                    continue
                case = {"template": name, "row": row}
                if mode != "template":
                    case["reasoning"] = mode
                messages = given(sample, "template" if switches else mode)
                if name == "parts_alone":  # writes nothing of a text
                    for message in messages:
                        if isinstance(message["content"], str) and message["content"]:
                            message["content"] = [{"type": "text", "text": message["content"]}]
                try:
                    text, spans = render(template, sample, messages, **switches)
                    if "{% generation %}" in template:
                        case["pieces"] = [text[begin:end] for begin, end in spans]
                    else:
                        case["pieces"] = by_prefixes(template, sample, messages, text, **switches)
                    case["text"] = text
                    if mode != "template" and not all(
                        one in text for one in thoughts(sample, mode)
                    ):
                        case = {"template": name, "row": row, "reasoning": mode, "refused": True}
                except Exception as error:
                    case["error"] = str(error)
                if name == "date" and "error" not in case:
                    continue  # the clock's; the test gives a date of its own
                cases.append(case)
    out = {
        "templates": TEMPLATES,
        "rows": ROWS,
        "variables": VARIABLES,
        "never_keep": NEVER_KEEP,
        "cases": cases,
    }
    os.makedirs(os.path.join(HERE, "testdata"), exist_ok=True)
    with open(os.path.join(HERE, "testdata", "templates.json"), "w", encoding="utf-8") as file:
        json.dump(out, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
