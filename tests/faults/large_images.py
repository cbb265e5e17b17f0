"""Images that are small as files and large to decode, written without a library:
each is of one colour. And samples of them, in JSON lines."""

import json
import math
import struct
import zlib


def job_config(batch, serve):
    """A job over write_samples' lines, of `batch` samples a step; `serve`: its keys."""
    return f"""
sources: [{{name: chat, format: jsonl, path: chat.jsonl, media_root: ., max_bad: 1}}]
model: {{profile: qwen2_5_vl, tokenizer: bytes, max_pixels: 50176}}
batch: {{global: {batch}, micro: {batch}, max_tokens: 8192}}
topology: {{modules: {{vision: {{dp: 1}}, language: {{dp: 1}}}}}}
balance: {{delivery: direct}}
serve: {{{serve}}}
"""


def progressive_jpeg(width, height, factors=(0x22, 0x11, 0x11)):
    """One scan of DC coefficients, a bit a block. `factors`: of each component,
    x << 4 | y."""

    def segment(marker, body):
        return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body

    most_x = max(f >> 4 for f in factors)
    most_y = max(f & 15 for f in factors)
    units = math.ceil(width / (8 * most_x)) * math.ceil(height / (8 * most_y))
    blocks = units * sum((f >> 4) * (f & 15) for f in factors)
    frame = struct.pack(">BHHB", 8, height, width, 3)
    scan = bytes([3])
    for i, factor in enumerate(factors):
        frame += bytes([i + 1, factor, 0])
        scan += bytes([i + 1, 0])
    return (
        b"\xff\xd8"
        + segment(0xDB, b"\0" + b"\x01" * 64)
        + segment(0xC2, frame)
        # One code, of one bit: no difference.
        + segment(0xC4, b"\0\x01" + b"\0" * 15 + b"\0")
        + segment(0xDA, scan + b"\0\0\0")
        + b"\0" * math.ceil(blocks / 8)
        + b"\xff\xd9"
    )


def progressive_jpeg_bytes(width, height):
    """Coefficients of a progressive JPEG without subsampling."""
    return math.ceil(width / 8) * math.ceil(height / 8) * 64 * 3 * 2


def lossless_webp(width, height):
    bits = 0x2F | (width - 1) << 8 | (height - 1) << 22
    at = 8 + 14 + 14 + 1 + 3
    # No transform, cache or groups; five simple codes of one symbol, 0.
    bits |= 0b0001_0001_0001_0001_0001 << (at + 3)
    data = bits.to_bytes(math.ceil((at + 23) / 8) + 1, "little")
    data += b"\0" * (len(data) % 2)
    chunk = b"VP8L" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(chunk) + 4) + b"WEBP" + chunk


def png(width, height, interlaced):
    """Grey of one bit a pixel."""

    def chunk(name, body):
        return (
            struct.pack(">I", len(body)) + name + body
            + struct.pack(">I", zlib.crc32(name + body))
        )  # fmt: skip

    rows = [(height, width)]
    if interlaced:
        passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2),
                  (0, 1, 2, 2), (1, 0, 2, 1)]  # fmt: skip
        rows = [(len(range(y, height, dy)), len(range(x, width, dx))) for y, x, dy, dx in passes]
    packer = zlib.compressobj(1)
    data = b""
    for count, pixels in rows:
        if pixels == 0:
            continue
        row = b"\0" * (1 + math.ceil(pixels / 8))
        for _ in range(count):
            data += packer.compress(row)
    data += packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, int(interlaced))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data)
        + chunk(b"IEND", b"")
    )  # fmt: skip


def write_samples(folder, images):
    """Writes the images, {name: bytes}, and chat.jsonl with a sample of each."""
    with open(f"{folder}/chat.jsonl", "w", encoding="utf-8") as lines:
        for name, image in images.items():
            with open(f"{folder}/{name}", "wb") as file:
                file.write(image)
            turns = [
                {"from": "human", "value": "<image>\nWhich colour?"},
                {"from": "gpt", "value": f"One, in {name}."},
            ]
            lines.write(json.dumps({"image": name, "conversations": turns}) + "\n")
