"""Writes Parquet files as other programs do, with pyarrow, and what they hold.

    write_files.py PYARROW_FOLDER OUT_FOLDER

expected.json and expected_rows.json list each file's samples: the turns and the images, as
base64, that follow from the values written here.
"""

import base64
import json
import os
import random
import struct
import sys

sys.path.insert(0, sys.argv[1])
# Debian's NumPy is older than pyarrow wants; it does without any.
sys.modules["numpy"] = None
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

out = sys.argv[2]
expected = {}


def image(width, height, before=0):
    """As FakeImage in corpus_testing.h."""
    return b"x" * before + b"#" + struct.pack("<II", width, height)


def write(name, table, samples, groups, **options):
    """`samples`: (row from 1, messages, images, and perhaps what is beside the messages),
    or None; a document has its text in place of messages. `groups`: ordinals."""
    pq.write_table(table, os.path.join(out, name), **options)
    if samples is None:
        return
    expected[name] = {
        "groups": groups,
        "samples": [
            {
                "row": row,
                "messages": messages,
                "images": [base64.b64encode(i).decode() for i in images],
                "beside": beside[0] if beside else {},
            }
            for row, messages, images, *beside in samples
        ],
    }


def pictures(row):
    return [image(10 * row + i + 1, 7, 5000 * i) for i in range(row % 3)]


IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
ROWS = range(7)


def finevision():
    texts = [
        [{"user": f"question {r}.{t}", "assistant": f'ä"\\\n{r}'} for t in range(1 + r % 2)]
        for r in ROWS
    ]
    ratings = [None if r == 5 else r % 4 for r in ROWS]
    table = pa.table(
        {
            "images": pa.array(
                [[{"bytes": b, "path": None} for b in pictures(r)] for r in ROWS], pa.list_(IMAGE)
            ),
            "texts": texts,
            "source": [f"set {r % 2}" for r in ROWS],
            "image_correspondence_min": pa.array(ratings, pa.int64()),
            "image_correspondence_ratings": [[r, r] for r in ROWS],
        }
    )

    def messages(r):
        turns = []
        for t, pair in enumerate(texts[r]):
            marks = "<image>" * len(pictures(r)) if t == 0 else ""
            turns += [
                {"role": "user", "content": marks + pair["user"]},
                {"role": "assistant", "content": pair["assistant"]},
            ]
        return turns

    samples = [(r + 1, messages(r), pictures(r)) for r in ROWS]
    write("finevision.parquet", table, samples, [0, 3, 6], row_group_size=3)
    # As `datasets` writes its cache and save_to_disk, and as Feather's second version.
    for name, open_writer in (
        ("stream.arrow", pa.ipc.new_stream),
        ("file.arrow", pa.ipc.new_file),
    ):
        path = os.path.join(out, name)
        with open_writer(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=3)
        expected[name] = expected["finevision.parquet"]
    # Rows 2 and 6 have a rating below 2 or none: 0-based 2, 3, 6 pass.
    passing = [s for s in samples if s[0] - 1 in (2, 3, 6)]
    write("filtered.parquet", table, passing, [0, 1, 2], row_group_size=3)


def cauldron():
    texts = [
        [{"user": f"u{r}", "assistant": "a<image>b" if r else "c", "source": "s"}] for r in ROWS
    ]
    bytes_of = [pictures(r) if r != 0 else [] for r in ROWS]
    write(
        "cauldron.parquet",
        pa.table(
            {
                "images": pa.array(
                    [[{"bytes": b, "path": "p"} for b in one] for one in bytes_of], pa.list_(IMAGE)
                ),
                "texts": texts,
            }
        ),
        # What an answer spells out is no mark.
        [
            (
                r + 1,
                [
                    {"role": "user", "content": "<image>" * len(bytes_of[r]) + f"u{r}"},
                    {"role": "assistant", "content": texts[r][0]["assistant"]},
                ],
                bytes_of[r],
            )
            for r in ROWS
        ],
        [0],
        compression="zstd",
    )


def llava():
    # Row 3 has no image.
    images = [None if r == 3 else {"bytes": image(r + 1, 2), "path": f"{r}.jpg"} for r in ROWS]
    turns = [
        [
            {"from": "human", "value": ("" if r == 3 else "<image>\n") + f"q{r}"},
            {"from": "gpt", "value": "same answer"},
        ]
        for r in ROWS
    ]
    write(
        "llava.parquet",
        pa.table(
            {"id": [str(r) for r in ROWS], "image": pa.array(images, IMAGE), "conversations": turns}
        ),
        [
            (
                r + 1,
                [{"role": t["from"], "content": t["value"]} for t in turns[r]],
                [] if r == 3 else [image(r + 1, 2)],
            )
            for r in ROWS
        ],
        [0, 2, 4, 6],
        row_group_size=2,
        compression="gzip",
        data_page_version="2.0",
    )


def openai():
    part = pa.struct([("type", pa.string()), ("text", pa.string())])
    message = pa.struct([("role", pa.string()), ("content", pa.list_(part))])
    rows = [
        [
            {"role": "system", "content": [{"type": "text", "text": "be kind"}]},
            {
                "role": "user",
                "content": [{"type": "image", "text": None}] * len(pictures(r))
                + [{"type": "text", "text": f"q{r}"}],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
        ]
        for r in ROWS
    ]

    def plain(messages):
        return [
            {
                "role": m["role"],
                "content": [{k: v for k, v in p.items() if v is not None} for p in m["content"]],
            }
            for m in messages
        ]

    write(
        "openai.parquet",
        pa.table(
            {
                "images": pa.array([pictures(r) for r in ROWS], pa.list_(pa.binary())),
                "messages": pa.array(rows, pa.list_(message)),
            }
        ),
        [(r + 1, plain(rows[r]), pictures(r)) for r in ROWS],
        [0],
        compression="brotli",
    )


def other_types():
    """64-bit offsets, dictionaries and a page for every row."""
    word = pa.dictionary(pa.int32(), pa.string())
    turn = pa.struct([("from", word), ("value", pa.large_string())])
    turns = [
        [{"from": "human", "value": f"<image>{r}"}, {"from": "gpt", "value": "a"}] for r in ROWS
    ]
    write(
        "other_types.parquet",
        pa.table(
            {
                "image": pa.array([image(r + 1, 3, 9000) for r in ROWS], pa.large_binary()),
                "conversations": pa.array(turns, pa.large_list(turn)),
            }
        ),
        [
            (
                r + 1,
                [{"role": t["from"], "content": t["value"]} for t in turns[r]],
                [image(r + 1, 3, 9000)],
            )
            for r in ROWS
        ],
        [0, 5],
        row_group_size=5,
        data_page_size=1,
        write_page_index=True,
        write_page_checksum=True,
        compression="lz4",
    )


def bad_rows():
    ok = [{"user": "u", "assistant": "a"}]
    rows = [
        ([{"bytes": image(1, 1), "path": None}], ok),
        ([None], ok),
        ([{"bytes": None, "path": "a/b.jpg"}], ok),
        ([{"bytes": b"xx", "path": None}], ok),
        ([{"bytes": b"none", "path": None}], ok),
        ([{"bytes": image(0, 4), "path": None}], ok),
        ([], None),
        ([], []),
        ([], [{"user": None, "assistant": "a"}]),
        ([], [None]),
        ([], [{"user": "<video>", "assistant": "a"}]),
        ([], [{"user": "unmeasurable", "assistant": "a"}]),
        (None, ok),
    ]
    pair = pa.struct([("user", pa.string()), ("assistant", pa.string())])
    good = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]
    write(
        "bad_rows.parquet",
        pa.table(
            {
                "images": pa.array([r[0] for r in rows], pa.list_(IMAGE)),
                "texts": pa.array([r[1] for r in rows], pa.list_(pair)),
            }
        ),
        [(1, [{"role": "user", "content": "<image>u"}, good[1]], [image(1, 1)]), (13, good, [])],
        [0],
    )


def invalid_utf8():
    said = pa.array([b"a", b"\xffb"]).view(pa.string())
    pair = pa.StructArray.from_arrays([said, said], ["user", "assistant"])
    write(
        "invalid_utf8.parquet",
        pa.table({"texts": pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pair)}),
        [],
        [],
    )


def turn_weights():
    """Turns that are not to be learnt as they stand."""
    turn = pa.struct(
        [
            ("from", pa.string()),
            ("value", pa.string()),
            ("weight", pa.int64()),
            ("loss", pa.string()),
            ("train", pa.string()),
            ("reasoning_content", pa.string()),
        ]
    )

    def answered(**keys):
        return [
            {"from": "human", "value": "q"},
            {"from": "gpt", "value": "a", "loss": "low", **keys},
        ]

    write(
        "turn_weights.parquet",
        pa.table(
            {
                "conversations": pa.array(
                    [
                        answered(weight=0, train="false"),
                        answered(weight=1, reasoning_content=""),
                        answered(reasoning_content="so"),
                    ],
                    pa.list_(turn),
                )
            }
        ),
        [],
        [],
    )


def fields():
    """Numbers of rows, of turns and of tokens."""
    turn = pa.struct([("role", pa.string()), ("content", pa.string()), ("part", pa.int8())])
    write(
        "fields.parquet",
        pa.table(
            {
                "messages": pa.array(
                    [
                        [
                            {"role": "user", "content": "q", "part": r},
                            {"role": "assistant", "content": "a", "part": None},
                        ]
                        for r in range(3)
                    ],
                    pa.list_(turn),
                ),
                "advantage": pa.array([0.1, None, -2.0], pa.float32()),
                "logprob": pa.array([[0.5, 0.25], [], None], pa.list_(pa.float64())),
            }
        ),
        [],
        [],
    )
    write(
        "fields_text.parquet",
        pa.table(
            {"text": ["a", "b"], "advantage": pa.array([1, 2], pa.int64()), "name": ["x", "y"]}
        ),
        [],
        [],
    )
    write(
        "fields_not_finite.parquet",
        pa.table(
            {
                "text": ["a", "b", "c"],
                "advantage": pa.array([float("nan"), float("inf"), float("-inf")], pa.float32()),
            }
        ),
        [],
        [],
    )


def pairs():
    """Preference pairs, in two of their forms."""
    turns = [[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]]
    write("pair.parquet", pa.table({"messages": turns, "rejected": turns}), [], [])
    write(
        "pair_text.parquet", pa.table({"text": ["q"], "chosen": ["a"], "rejected": ["b"]}), [], []
    )
    write("pair_flag.parquet", pa.table({"messages": turns, "rejected": [False]}), [], [])
    # As TRL's sets have them: parts without an image, whose struct has every field.
    part = pa.struct([("type", pa.string()), ("text", pa.string())])
    turn = pa.struct([("role", pa.string()), ("content", pa.list_(part))])

    def said(role, *parts):
        return [
            {
                "role": role,
                "content": [
                    {"type": "text", "text": p} if p else {"type": "image", "text": None}
                    for p in parts
                ],
            }
        ]

    file = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    write(
        "pair_parts.parquet",
        pa.table(
            {
                "prompt": pa.array(
                    [said("user", "", "q"), said("user", "p"), None], pa.list_(turn)
                ),
                "chosen": pa.array(
                    [said("assistant", "a"), said("assistant", "c"), said("assistant", "e")],
                    pa.list_(turn),
                ),
                "rejected": pa.array(
                    [said("assistant", "b"), said("assistant", "d"), said("assistant", "f")],
                    pa.list_(turn),
                ),
                "images": pa.array([[{"bytes": image(10, 20)}], [], []], pa.list_(file)),
                "margin": pa.array([0.5, 1.5, 2.5]),
            }
        ),
        [],
        [],
    )
    write(
        "pair_prompt.parquet",
        pa.table(
            {
                "prompt": ["q", "q"],
                "chosen": ["a", None],
                "rejected": ["b", "c"],
                "image": pa.array([{"bytes": image(20, 20)}, None], file),
            }
        ),
        [],
        [],
    )
    write(
        "pair_pictures.parquet",
        pa.table(
            {
                "prompt": ["q"],
                "chosen": [
                    [
                        {
                            "role": "assistant",
                            "content": [
                                {"type": "text", "text": "a", "image": {"bytes": image(30, 20)}}
                            ],
                        }
                    ]
                ],
                "rejected": ["b"],
            }
        ),
        [],
        [],
    )


def unread():
    """Columns that nothing reads, and without which rows would teach something else."""
    turns = [[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]]
    write("unread_label.parquet", pa.table({"messages": turns, "label": [False]}), [], [])
    write("unread_tag.parquet", pa.table({"messages": turns, "kto_tag": [True]}), [], [])
    write(
        "unread_image_url.parquet",
        pa.table({"messages": turns, "image_url": ["https://a/b"]}),
        [],
        [],
    )
    write("unread_base64.parquet", pa.table({"text": ["q"], "image_base64": ["aGk="]}), [], [])
    write(
        "unread_coyo.parquet",
        pa.table(
            {
                "id": [1],
                "url": ["https://a/b"],
                "text": ["A cat"],
                "width": [4],
                "height": [5],
                "image_phash": ["f1"],
                "clip_similarity_vitb32": [0.3],
            }
        ),
        [],
        [],
    )
    write(
        "unread_datacomp.parquet",
        pa.table(
            {
                "uid": ["a"],
                "url": ["https://a/b"],
                "text": ["A cat"],
                "original_width": [4],
                "clip_b32_similarity_score": [0.3],
            }
        ),
        [],
        [],
    )
    # Nothing is lost: pages of text, classes, facts.
    write(
        "read_fineweb.parquet",
        pa.table(
            {
                "text": ["q"],
                "id": ["a"],
                "dump": ["CC"],
                "url": ["https://a/b"],
                "date": ["x"],
                "file_path": ["s3://a/b.warc.gz"],
                "language": ["en"],
                "language_score": [0.9],
                "token_count": [3],
            }
        ),
        [],
        [],
    )
    write(
        "read_class.parquet",
        pa.table({"messages": turns, "label": [3], "image_id": ["17"], "num_images": [0]}),
        [],
        [],
    )


def agents():
    """Conversations with tools, as `datasets` writes them: a struct has the fields of all rows."""
    city = pa.struct([("city", pa.string()), ("days", pa.int64())])
    call = pa.struct(
        [
            ("id", pa.string()),
            ("type", pa.string()),
            ("function", pa.struct([("name", pa.string()), ("arguments", city)])),
        ]
    )
    turn = pa.struct(
        [
            ("role", pa.string()),
            ("content", pa.string()),
            ("reasoning_content", pa.string()),
            ("tool_calls", pa.list_(call)),
            ("tool_call_id", pa.string()),
            ("name", pa.string()),
            ("weight", pa.float64()),
        ]
    )
    tool = pa.struct(
        [
            ("type", pa.string()),
            (
                "function",
                pa.struct(
                    [
                        ("name", pa.string()),
                        ("strict", pa.bool_()),
                        ("parameters", pa.map_(pa.string(), pa.list_(pa.float32()))),
                    ]
                ),
            ),
        ]
    )
    calls = [
        {
            "id": "1",
            "type": "function",
            "function": {"name": "f", "arguments": {"city": "Łódź", "days": 2**53 + 1}},
        },
        {"id": "2", "type": "function", "function": {"name": "g", "arguments": {"city": "R"}}},
    ]
    tools = [
        {"type": "function", "function": {"name": "f", "strict": False}},
        {"type": "function", "function": {"name": "g", "parameters": {"a": [0.5, 2.0], "b": []}}},
    ]
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "reasoning_content": "so", "tool_calls": calls},
        {"role": "tool", "content": "wet", "tool_call_id": "1", "name": "f"},
        {"role": "assistant", "content": 'It is "wet".', "weight": 0.0},
    ]

    def columns(tools):  # pyarrow takes maps as pairs
        return [
            {
                **t,
                "function": {
                    **t["function"],
                    "parameters": list(t["function"]["parameters"].items())
                    if "parameters" in t["function"]
                    else None,
                },
            }
            for t in tools
        ]

    write(
        "agents.parquet",
        pa.table(
            {
                "messages": pa.array(
                    [messages, messages[:1] + [{"role": "assistant"}]], pa.list_(turn)
                ),
                "tools": pa.array([columns(tools), None], pa.list_(tool)),
                "documents": pa.array([None, [{"title": "t"}]]),
            }
        ),
        [(1, messages, [], {"tools": tools})],
        [0],
    )
    text = json.dumps(messages, ensure_ascii=False)
    write(
        "json_turns.parquet",
        pa.table(
            {
                "messages": [text, "[", json.dumps(messages[:1])],
                "tools": [json.dumps(tools), None, None],
            }
        ),
        [(1, messages, [], {"tools": json.dumps(tools)}), (3, messages[:1], [])],
        [0],
    )
    # Thoughts that are parts.
    part = pa.struct([("type", pa.string()), ("text", pa.string()), ("thinking", pa.string())])
    message = pa.struct([("role", pa.string()), ("content", pa.list_(part))])
    said = [
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "so"}, {"type": "text", "text": "a"}],
        }
    ]
    write(
        "thinking_parts.parquet",
        pa.table({"messages": pa.array([said], pa.list_(message))}),
        [(1, said, [])],
        [0],
    )


def documents():
    """Plain text, and lists of texts and images with holes, as OBELICS has them."""
    write(
        "text.parquet",
        pa.table({"text": ["a\nb", "", None, "<video>"], "id": [1, 2, 3, 4]}),
        [(1, "a\nb", []), (2, "", [])],
        [0],
    )
    one = image(1, 2)
    write(
        "captions.parquet",
        pa.table({"image": pa.array([{"bytes": one, "path": None}], IMAGE), "text": ["a cat"]}),
        [(1, "a cat", [one])],
        [0],
    )
    pictures = [[None, one, None, image(3, 4)], [one], [one, None], None]
    texts = [["A ", None, " b", None], ["both"], [None], ["alone", None]]
    for stored in (IMAGE, pa.binary()):
        held = [
            None
            if row is None
            else [p if p is None or stored != IMAGE else {"bytes": p, "path": None} for p in row]
            for row in pictures
        ]
        write(
            "places.parquet" if stored == IMAGE else "places_bytes.parquet",
            pa.table(
                {"images": pa.array(held, pa.list_(stored)), "texts": texts, "metadata": ["{}"] * 4}
            ),
            [(1, "A <image> b<image>", [one, image(3, 4)])],
            [0],
        )
    write(
        "places_urls.parquet",
        pa.table({"images": [[None, "http://x/y.jpg"]], "texts": [["a", None]]}),
        [],
        [],
    )


def beside():
    """What stands beside the turns and their texts."""
    ok = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
    tool = pa.struct([("name", pa.string())])
    write(
        "beside.parquet",
        pa.table(
            {
                "conversations": [ok] * 6,
                "system": ["", None, "Be kind.", "[]", None, None],
                "tools": pa.array(
                    [[], None, [], None, [{"name": "x"}], [{"name": None}]], pa.list_(tool)
                ),
            }
        ),
        [
            (r, [{"role": t["from"], "content": t["value"]} for t in ok], [], beside)
            for r, beside in enumerate(
                ({}, {}, {"system": "Be kind."}, {}, {"tools": [{"name": "x"}]}, {"tools": [{}]}), 1
            )
        ],
        [0],
    )

    call = pa.struct([("id", pa.string()), ("type", pa.string()), ("function", tool)])
    turn = pa.struct(
        [
            ("role", pa.string()),
            ("content", pa.string()),
            ("tool_calls", pa.list_(call)),
            ("function_call", tool),
        ]
    )
    answers = [
        {},
        {"tool_calls": []},
        {"function_call": {"name": None}},
        {"tool_calls": [{"id": "1"}]},
        {"function_call": {"name": "f"}},
    ]
    write(
        "tool_calls.parquet",
        pa.table(
            {
                "messages": pa.array(
                    [
                        [
                            {"role": "user", "content": "q"},
                            {"role": "assistant", "content": "a", **one},
                        ]
                        for one in answers
                    ],
                    pa.list_(turn),
                )
            }
        ),
        [
            (
                r,
                [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", **more}],
                [],
            )
            for r, more in enumerate(({}, {}, {}, answers[3], answers[4]), 1)
        ],
        [0],
    )

    # Files of pandas, which goes by the values, where no row has an image.
    texts = [[{"user": f"q{r}", "assistant": "a"}] for r in range(3)]
    messages = [
        [{"role": "user", "content": f"q{r}"}, {"role": "assistant", "content": "a"}]
        for r in range(3)
    ]
    write(
        "null_image.parquet",
        pa.table({"image": pa.nulls(3), "video": pa.nulls(3), "texts": texts}),
        [(r + 1, messages[r], []) for r in range(3)],
        [0],
    )
    write(
        "null_images.parquet",
        pa.table({"images": pa.array([[], None, [None]], pa.list_(pa.null())), "texts": texts}),
        [(r + 1, messages[r], []) for r in range(2)],
        [0],
    )


def heads():
    """Images long past their heads, stored in all ways of plain and other pages."""

    def long_image(row):
        return image(row + 1, 3, 5000 if row % 3 == 1 else 0) + bytes([65 + row]) * 60000

    rows = range(24)
    texts = [[{"user": f"q{r}", "assistant": "a"}] for r in rows]
    # Without, with one, with two; nulls in the list's place.
    lists = [None if r % 5 == 4 else [long_image(r)] * (1 + r % 2) for r in rows]
    structs = pa.array(
        [None if one is None else [{"bytes": b, "path": None} for b in one] for one in lists],
        pa.list_(IMAGE),
    )
    singles = pa.array([None if r % 5 == 4 else long_image(r) for r in rows], pa.large_binary())

    def write_lists(name, **options):
        write(name, pa.table({"images": structs, "texts": texts}), None, None, **options)

    write_lists(
        "heads_plain.parquet",
        row_group_size=10,
        compression={"images.list.element.bytes": "none", "texts.list.element.user": "zstd"},
        use_dictionary=False,
    )
    write_lists("heads_dictionary.parquet", compression="none")
    write_lists(
        "heads_pages.parquet",
        row_group_size=12,
        compression="none",
        use_dictionary=False,
        data_page_size=1,
        write_batch_size=2,
        data_page_version="2.0",
        write_page_checksum=True,
        write_page_index=True,
    )
    write_lists(
        "heads_delta.parquet",
        compression="none",
        use_dictionary=False,
        column_encoding={"images.list.element.bytes": "DELTA_LENGTH_BYTE_ARRAY"},
    )
    write_lists("heads_snappy.parquet", compression="snappy")
    write(
        "heads_single.parquet",
        pa.table({"image": singles, "texts": texts}),
        None,
        None,
        row_group_size=5,
        compression="none",
        dictionary_pagesize_limit=100000,
        write_batch_size=1,
    )

    def messages(r, count):
        return [
            {"role": "user", "content": "<image>" * count + f"q{r}"},
            {"role": "assistant", "content": "a"},
        ]

    # Small enough to start fuzzing from.
    write(
        "heads_small.parquet",
        pa.table(
            {
                "images": pa.array(
                    [[{"bytes": b, "path": None} for b in pictures(r)] for r in ROWS],
                    pa.list_(IMAGE),
                ),
                "texts": texts[: len(ROWS)],
            }
        ),
        [(r + 1, messages(r, len(pictures(r))), pictures(r)) for r in ROWS],
        [0, 4],
        row_group_size=4,
        compression="none",
        use_dictionary=False,
    )


def pages():
    """Images in pages of all codecs, versions and encodings; lists over several pages."""

    def picture(row, number):
        return image(row + 1, number + 1, 700) + bytes([65 + row + number]) * 700

    rows = range(40)
    # Null, empty, with one, two and three; some of them the same.
    counts = [None if r % 7 == 3 else r % 4 for r in rows]
    lists = [
        None if c is None else [picture(r % 10, i) for i in range(c)] for r, c in zip(rows, counts)
    ]
    texts = [[{"user": f"q{r}", "assistant": "a"}] for r in rows]

    def samples(lists):
        return [
            (
                r + 1,
                [
                    {"role": "user", "content": "<image>" * len(one or []) + f"q{r}"},
                    {"role": "assistant", "content": "a"},
                ],
                one or [],
            )
            for r, one in zip(rows, lists)
        ]

    def write_images(name, column, images, lists=lists, **options):
        write(
            name,
            pa.table({column: images, "texts": texts}),
            samples(lists),
            [0, 15, 30],
            row_group_size=15,
            **options,
        )

    structs = pa.array(
        [
            None if one is None else [{"bytes": b, "path": f"{i}.jpg"} for i, b in enumerate(one)]
            for one in lists
        ],
        pa.list_(IMAGE),
    )
    for codec in ("none", "snappy", "gzip", "brotli", "zstd", "lz4"):
        for version in ("1.0", "2.0"):
            write_images(
                f"pages_{codec}_{version[0]}.parquet",
                "images",
                structs,
                compression=codec,
                data_page_version=version,
                data_page_size=2000,
                write_batch_size=3,
                use_dictionary=codec in ("snappy", "zstd", "none"),
                dictionary_pagesize_limit=6000,
                write_page_checksum=codec in ("gzip", "none"),
            )
    # A dictionary alone: images that occur more than once are stored once.
    write_images("pages_coded.parquet", "images", structs, compression="snappy")
    for encoding in ("DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"):
        write_images(
            f"pages_{encoding.lower()}.parquet",
            "images",
            structs,
            compression="zstd",
            use_dictionary=False,
            column_encoding={"images.list.element.bytes": encoding},
        )
    # Nothing may be null; without `path`; 64-bit offsets.
    full = [[picture(r, 0)] * (1 + r % 2) for r in rows]
    item = pa.field("element", pa.struct([pa.field("bytes", pa.large_binary(), False)]), False)
    kind = pa.large_list(item)
    table = pa.table(
        [pa.array([[{"bytes": b} for b in one] for one in full], kind), pa.array(texts)],
        schema=pa.schema(
            [pa.field("images", kind, False), pa.field("texts", pa.array(texts).type)]
        ),
    )
    write(
        "pages_required.parquet",
        table,
        samples(full),
        [0, 15, 30],
        row_group_size=15,
        data_page_size=2000,
        write_batch_size=3,
        compression="snappy",
    )
    single = [None if r % 5 == 4 else picture(r, 0) for r in rows]
    of_single = [[] if b is None else [b] for b in single]
    write_images(
        "pages_single.parquet",
        "image",
        pa.array(single, pa.binary()),
        of_single,
        compression="snappy",
        data_page_size=2000,
        write_batch_size=3,
    )
    write_images(
        "pages_struct.parquet",
        "image",
        pa.array(
            [
                None
                if b is None
                else {"bytes": b, "path": None}
                if r % 2
                else {"bytes": b, "path": "p"}
                for r, b in zip(rows, single)
            ],
            IMAGE,
        ),
        of_single,
        data_page_version="2.0",
        compression="zstd",
    )
    write_images("pages_view.parquet", "image", pa.array(single, pa.binary_view()), of_single)
    write_images(
        "pages_fixed.parquet",
        "images",
        pa.array([[picture(r, 0)] * 2 for r in rows], pa.list_(pa.binary(), 2)),
        [[picture(r, 0)] * 2 for r in rows],
    )


def placed():
    """Images that no codec shrinks, with parts that Snappy does."""
    noise = random.Random(5)
    some = noise.randbytes(9000)

    def picture(row, number):
        # The same 40 bytes twice, as headers of JPEGs, and runs of one byte.
        return (
            image(row + 1, number + 1)
            + some[:40]
            + noise.randbytes(16000 + 900 * row)
            + some[:40]
            + b"z" * 50 * (row % 2)
            + some[: 50 * row]
        )

    rows = range(13)
    counts = [None if r % 7 == 3 else r % 3 for r in rows]
    lists = [None if c is None else [picture(r, i) for i in range(c)] for r, c in zip(rows, counts)]
    texts = [[{"user": f"q{r}", "assistant": "a"}] for r in rows]
    structs = pa.array(
        [None if one is None else [{"bytes": b, "path": "p"} for b in one] for one in lists],
        pa.list_(IMAGE),
    )

    def samples(lists):
        return [
            (
                r + 1,
                [
                    {"role": "user", "content": "<image>" * len(one or []) + f"q{r}"},
                    {"role": "assistant", "content": "a"},
                ],
                one or [],
            )
            for r, one in zip(rows, lists)
        ]

    def write_images(name, column, images, lists=lists, **options):
        write(
            name,
            pa.table({column: images, "texts": texts}),
            samples(lists),
            [0, 5, 10],
            row_group_size=5,
            **options,
        )

    for codec in ("none", "snappy"):
        for version in ("1.0", "2.0"):
            write_images(
                f"placed_{codec}_{version[0]}.parquet",
                "images",
                structs,
                compression=codec,
                data_page_version=version,
                data_page_size=50000,
                write_batch_size=2,
                dictionary_pagesize_limit=30000,
                use_dictionary=version == "1.0",
            )
    write_images("placed_coded.parquet", "images", structs, compression="snappy")
    write_images(
        "placed_checksums.parquet",
        "images",
        structs,
        compression="snappy",
        write_page_checksum=True,
    )
    single = [None if r % 4 == 2 else picture(r, 0) for r in rows]
    write_images(
        "placed_single.parquet",
        "image",
        pa.array(single, pa.binary()),
        [[] if b is None else [b] for b in single],
        compression="snappy",
        use_dictionary=False,
    )
    # As small as may be, for the fuzzer: one image a row, with a copy in its middle.
    least = [
        [image(r + 1, 1) + noise.randbytes(2100) + some[:60] + noise.randbytes(2100) + some[:60]]
        for r in rows
    ]
    structs = pa.array(
        [[{"bytes": b, "path": "p"} for b in one] for one in least[:3]], pa.list_(IMAGE)
    )
    for version in ("1.0", "2.0"):
        name = f"placed_least_{version[0]}.parquet"
        write(
            name,
            pa.table({"images": structs, "texts": texts[:3]}),
            samples(least)[:3],
            [0, 2],
            row_group_size=2,
            compression="snappy",
            data_page_version=version,
            use_dictionary=version == "1.0",
        )


def image_parts():
    """Images in a column, which parts of messages name as well."""
    part = pa.struct(
        [
            ("type", pa.string()),
            ("text", pa.string()),
            ("image", pa.string()),
            ("path", pa.string()),
        ]
    )
    message = pa.struct([("role", pa.string()), ("content", pa.list_(part))])

    def row(images, *names, first=()):
        parts = [{"type": "text", "text": text} for text in first]
        parts += [{"type": "image", **name} for name in names]
        return (
            [{"bytes": image(1, i + 1), "path": p} for i, p in enumerate(images)],
            [
                {"role": "user", "content": parts + [{"type": "text", "text": "q"}]},
                {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
            ],
        )

    rows = [
        row(["a.jpg", "b.jpg"], {"image": "a.jpg"}, {"path": "set/b.jpg"}),
        row(["x/a.jpg"], {"image": "a.jpg"}),
        row([None], {"image": "a.jpg"}),
        row(["a.jpg", "b.jpg"], {}, {"image": ""}),
        row(["a.jpg", "b.jpg"], {"image": "b.jpg"}, {"image": "a.jpg"}),
        row(["aa.jpg"], {"image": "a.jpg"}),
        row([], {"path": "a.jpg"}),
        row(["a.jpg", "b.jpg"], {"image": "b.jpg"}, first=["<image>"]),
        row(["a.jpg", "b.jpg"], {"image": "a.jpg"}, first=["<image>"]),
    ]
    write(
        "image_parts.parquet",
        pa.table(
            {
                "images": pa.array([r[0] for r in rows], pa.list_(IMAGE)),
                "messages": pa.array([r[1] for r in rows], pa.list_(message)),
            }
        ),
        None,
        None,
    )
    numbered = pa.struct([("type", pa.string()), ("text", pa.string()), ("index", pa.int64())])
    message = pa.struct([("role", pa.string()), ("content", pa.list_(numbered))])
    indexed = [
        row(["a.jpg", "b.jpg"], *({"index": i} for i in places))
        for places in ((0, 1), (1, 0), (None, 1))
    ]
    write(
        "image_part_indexes.parquet",
        pa.table(
            {
                "images": pa.array([r[0] for r in indexed], pa.list_(IMAGE)),
                "messages": pa.array([r[1] for r in indexed], pa.list_(message)),
            }
        ),
        None,
        None,
    )
    rows = [rows[0], rows[4], rows[8]]
    write(
        "image_turns.parquet",
        pa.table(
            {
                "images": pa.array([r[0] for r in rows], pa.list_(IMAGE)),
                "messages": [json.dumps(r[1]) for r in rows],
            }
        ),
        None,
        None,
    )
    for name, type in (("struct", IMAGE), ("bytes", pa.binary())):
        part = pa.struct([("type", pa.string()), ("text", pa.string()), ("image", type)])
        message = pa.struct([("role", pa.string()), ("content", pa.list_(part))])
        held = image(1, 1) if name == "bytes" else {"bytes": image(1, 1), "path": None}
        write(
            f"image_in_part_{name}.parquet",
            pa.table(
                {"messages": pa.array([row([])[1], row([], {"image": held})[1]], pa.list_(message))}
            ),
            None,
            None,
        )


def unfit():
    texts = [[{"user": "u", "assistant": "a"}]]
    turns = [[{"from": "human", "value": "u"}]]
    write("urls.parquet", pa.table({"image": ["http://x/y.jpg"], "texts": texts}), [], [])
    write(
        "pictures.parquet",
        pa.table(
            {
                "picture": pa.array([[{"bytes": image(1, 1), "path": None}]], pa.list_(IMAGE)),
                "texts": texts,
            }
        ),
        [],
        [],
    )
    bytes_alone = pa.array([image(1, 1)], pa.binary())
    write("bytes.parquet", pa.table({"picture": bytes_alone, "texts": texts}), [], [])
    write(
        "names.parquet",
        pa.table({"file_name": ["a/1.JPG", "a/2.jpg"], "texts": texts + texts}),
        [],
        [],
    )
    write(
        "second.parquet",
        pa.table(
            {
                "image": bytes_alone,
                "hash": pa.array([b"x"]),
                "mask": pa.array([{"bytes": image(1, 1), "path": None}], IMAGE),
                "texts": texts,
            }
        ),
        [],
        [],
    )
    write(
        "addresses.parquet",
        pa.table({"images": pa.nulls(1), "image": ["http://x/y.jpg"], "texts": texts}),
        [],
        [],
    )
    write("two.parquet", pa.table({"texts": texts, "conversations": turns}), [], [])
    write("none.parquet", pa.table({"question": ["q"], "answer": ["a"]}), [], [])
    write("untyped.parquet", pa.table({"texts": pa.nulls(0), "image": pa.nulls(0)}), [], [])
    write(
        "empty.parquet",
        pa.table(
            {
                "texts": pa.array(
                    [], pa.list_(pa.struct([("user", pa.string()), ("assistant", pa.string())]))
                )
            }
        ),
        [],
        [],
    )
    write(
        "wide.parquet",
        pa.table({**{f"c{i}": [i] for i in range(3000)}, "texts": texts}),
        [(1, [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}], [])],
        [0],
    )


def video(frames, behind=0):
    """As FakeVideo in fake_videos.h."""
    return b"\0\0\0\x10ftypmp42" + struct.pack("<I", frames) + b"v" * behind


def videos():
    """Videos in columns of all shapes, and named by parts of messages."""

    def asks(text):
        return [{"from": "human", "value": text}, {"from": "gpt", "value": "a"}]

    conversations = [
        asks("<video>\nq"),
        asks("q"),
        asks("<image>q"),
        asks("q"),
        asks("<video>"),
        asks("<video>"),
    ]
    one = [
        {"bytes": video(5, 9000), "path": None},
        {"bytes": None, "path": "a.mp4"},
        {"bytes": video(6), "path": "in the row"},
        None,
        {"bytes": b"no video", "path": None},
        {"bytes": None, "path": "gone.mp4"},
    ]
    write(
        "video_structs.parquet",
        pa.table({"video": pa.array(one, IMAGE), "conversations": conversations}),
        [],
        [],
    )
    # As datasets writes its type Audio, and lists of it.
    write(
        "audio.parquet",
        pa.table(
            {
                "audio": pa.array(
                    [
                        {"bytes": video(5, 9000), "path": "x.wav"},
                        {"bytes": None, "path": "a.mp4"},
                        None,
                        {"bytes": b"no audio", "path": None},
                    ],
                    IMAGE,
                ),
                "image": pa.nulls(4),
                "conversations": [asks("q"), asks("<audio>\nq"), asks("q"), asks("q")],
            }
        ),
        [],
        [],
    )
    write(
        "audio_places.parquet",
        pa.table(
            {
                "audio": ["a.mp4"] * 3,
                "texts": [["a", "b"], ["a <audio>", " b"], ["a", None]],
                "images": pa.array(
                    [[None, None], [None, None], [None, image(3, 4)]], pa.list_(pa.binary())
                ),
            }
        ),
        [],
        [],
    )
    write(
        "audio_arrays.parquet",
        pa.table(
            {
                "audio": pa.array([{"array": [0.5], "sampling_rate": 16000}]),
                "conversations": [asks("q")],
            }
        ),
        [],
        [],
    )

    def turn(*media):
        return json.dumps(
            [
                {
                    "role": "user",
                    "content": [{"type": medium, medium: path} for medium, path in media],
                }
            ]
        )

    # Turns that are text, which name media of columns.
    seen = [{"bytes": video(5), "path": "a.mp4"}, {"bytes": video(6), "path": "b.mp4"}]
    write(
        "media_turns.parquet",
        pa.table(
            {
                "videos": pa.array([seen] * 3, pa.list_(IMAGE)),
                "audio": ["a.mp4"] * 3,
                "messages": [
                    turn(("audio", "x/a.mp4"), ("video", "a.mp4"), ("video", "b.mp4")),
                    turn(("audio", "a.mp4"), ("video", "b.mp4"), ("video", "a.mp4")),
                    turn(("audio", "b.mp4"), ("video", "a.mp4"), ("video", "b.mp4")),
                ],
            }
        ),
        [],
        [],
    )
    seen = [{"bytes": image(1, i), "path": f"{i}.jpg"} for i in (1, 2)]
    write(
        "pair_turns.parquet",
        pa.table(
            {
                "images": pa.array([seen] * 2, pa.list_(IMAGE)),
                "prompt": [
                    turn(("image", "1.jpg"), ("image", "2.jpg")),
                    turn(("image", "2.jpg"), ("image", "1.jpg")),
                ],
                "chosen": ["yes"] * 2,
                "rejected": ["no"] * 2,
            }
        ),
        [],
        [],
    )
    write(
        "video_lists.parquet",
        pa.table(
            {
                "images": pa.array([[], [image(3, 4)]], pa.list_(pa.binary())),
                "videos": pa.array([[video(5), video(6)], [video(7)]], pa.list_(pa.binary())),
                "conversations": [asks("q"), asks("q")],
            }
        ),
        [],
        [],
    )
    write(
        "video_paths.parquet",
        pa.table(
            {
                "video": pa.array(["a.mp4", None, "https://x/a.mp4", "../a.mp4"]),
                "conversations": [asks("q"), asks("q"), asks("q"), asks("q")],
            }
        ),
        [],
        [],
    )
    part = pa.struct([("type", pa.string()), ("text", pa.string()), ("path", pa.string())])
    message = pa.struct([("role", pa.string()), ("content", pa.list_(part))])
    write(
        "video_parts.parquet",
        pa.table(
            {
                "messages": pa.array(
                    [
                        [
                            {
                                "role": "user",
                                "content": [
                                    {"type": "video", "text": None, "path": "a.mp4"},
                                    {"type": "text", "text": "q", "path": None},
                                ],
                            },
                            {
                                "role": "assistant",
                                "content": [{"type": "text", "text": "a", "path": None}],
                            },
                        ]
                    ],
                    pa.list_(message),
                )
            }
        ),
        [],
        [],
    )
    clip = pa.struct(
        [
            ("type", pa.string()),
            ("text", pa.string()),
            ("video", pa.string()),
            ("video_start", pa.float64()),
            ("end", pa.int32()),
            ("fps", pa.float32()),
            ("max_pixels", pa.int64()),
        ]
    )
    message = pa.struct([("role", pa.string()), ("content", pa.list_(clip))])

    def asks_of(*parts):
        return [
            {"role": "user", "content": list(parts)},
            {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
        ]

    seen = {"type": "video", "video": "a.mp4"}
    write(
        "video_clips.parquet",
        pa.table(
            {
                "messages": pa.array(
                    [
                        asks_of({**seen, "video_start": 0.1, "end": 2, "fps": 0.5}, seen),
                        asks_of({**seen, "video_start": float("nan")}),
                        asks_of({**seen, "video_start": 3.5, "end": 2}),
                        asks_of({**seen, "max_pixels": 3136}),
                        asks_of({**seen, "video_start": float("inf")}),
                        asks_of({"type": "image", "max_pixels": 3136}),
                    ],
                    pa.list_(message),
                )
            }
        ),
        [],
        [],
    )
    write(
        "video_numbers.parquet",
        pa.table({"video": pa.array([3]), "conversations": [asks("q")]}),
        [],
        [],
    )


for make in (
    finevision,
    cauldron,
    llava,
    openai,
    other_types,
    bad_rows,
    invalid_utf8,
    turn_weights,
    fields,
    pairs,
    unread,
    agents,
    documents,
    beside,
    unfit,
    heads,
    pages,
    placed,
    image_parts,
    videos,
):
    make()
# Those that are compared row by row apart: they are long, and parsing takes time.
ROWS_ALONE = ("pages_", "placed_")
for name, alone in (("expected.json", False), ("expected_rows.json", True)):
    with open(os.path.join(out, name), "w", encoding="utf-8") as file:
        json.dump(
            {
                k: v
                for k, v in expected.items()
                if k.startswith(ROWS_ALONE) == alone or k == "placed_snappy_1.parquet"
            },
            file,
        )
