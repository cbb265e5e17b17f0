"""The image files of testdata/, drawn: make_vectors.py writes them.

PNGs are written here, since Pillow cannot write every kind; some kinds of JPEG
are made by changing a header so that the coded data still fits.
"""

import io
import random
import struct
import zlib

from PIL import Image, ImageDraw

RANDOM = random.Random(20)


# ---- pictures ----------------------------------------------------------------


def picture(width, height, mode="RGB"):
    """Gradients, edges and a little noise, in every channel of `mode`."""
    bands = []
    for band in range(len(Image.new(mode, (1, 1)).getbands())):
        image = Image.new("L", (width, height))
        image.putdata(
            [
                (x * (3 + band) + y * (5 - band) + RANDOM.randrange(12)) & 255
                for y in range(height)
                for x in range(width)
            ]
        )
        draw = ImageDraw.Draw(image)
        draw.ellipse(
            (width // 4, height // 5, width * 3 // 4, height * 4 // 5),
            fill=230 - 60 * band,
        )
        bands.append(image)
    return bands[0] if len(bands) == 1 else Image.merge(mode, bands)


def save(image, **options):
    out = io.BytesIO()
    image.save(out, **options)
    return out.getvalue()


# ---- JPEG --------------------------------------------------------------------


def jpeg(width, height, mode="RGB", **options):
    return save(picture(width, height, mode), format="JPEG", **options)


def segments(data):
    """(start, end, marker) of each segment up to the first scan."""
    at = 2
    while True:
        marker = data[at + 1]
        end = at + 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
        yield at, end, marker
        if marker == 0xDA:
            return
        at = end


def without(data, marker):
    for start, end, found in list(segments(data)):
        if found == marker:
            return data[:start] + data[end:]
    raise ValueError("no such segment")


def patched(data, marker, offset, value):
    """`offset` counts from the segment's payload."""
    for start, _, found in segments(data):
        if found == marker:
            at = start + 4 + offset
            return data[:at] + bytes(value) + data[at + len(value) :]
    raise ValueError("no such segment")


def jpegs():
    yield "grey", jpeg(37, 29, "L")
    yield "grey_progressive", jpeg(37, 29, "L", progressive=True)
    yield "444", jpeg(33, 31, subsampling="4:4:4", quality=90)
    yield "422", jpeg(35, 17, subsampling="4:2:2")
    yield "420", jpeg(47, 45, subsampling="4:2:0")
    yield "420_progressive", jpeg(45, 47, progressive=True)
    yield "420_optimised_low_quality", jpeg(64, 48, quality=5, optimize=True)
    yield "420_restarts", jpeg(50, 50, restart_marker_blocks=2)
    yield "rgb", jpeg(31, 33, keep_rgb=True)
    # The same number of luma blocks per unit and of units, arranged differently.
    square = jpeg(64, 64, subsampling="4:2:2")
    yield "440", patched(square, 0xC0, 7, [0x12])
    square = jpeg(64, 64, subsampling="4:2:0")
    yield "411", patched(square, 0xC0, 7, [0x41])
    yield "1x4", patched(square, 0xC0, 7, [0x14])
    yield "cmyk_adobe", jpeg(34, 30, "CMYK")
    yield "cmyk_progressive", jpeg(34, 30, "CMYK", progressive=True)
    yield "cmyk_without_adobe", without(jpeg(34, 30, "CMYK"), 0xEE)
    yield "ycck", patched(jpeg(34, 30, "CMYK"), 0xEE, 11, [2])
    yield "without_jfif", without(jpeg(24, 24), 0xE0)
    exif = Image.Exif()
    exif[0x0112] = 6
    yield "exif_orientation", jpeg(20, 12, exif=exif)
    data = jpeg(16, 16)
    first = next(segments(data))[1]
    yield "junk_between_segments", data[:first] + b"\0junk\xff\0" + data[first:]
    yield "junk_before_segments", data[:2] + b"\0junk" + data[2:]
    yield "trailing_junk", jpeg(16, 16) + b"\xff\xd8 trailing"
    yield "one_pixel", jpeg(1, 1)
    yield "width_1", jpeg(1, 40)
    yield "height_1", jpeg(40, 1)
    yield "wide", jpeg(300, 3)
    yield "early_end", jpeg(48, 48)[:700] + b"\xff\xd9"


# ---- PNG ---------------------------------------------------------------------

CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4),
          (1, 0, 2, 2), (0, 1, 1, 2)]  # fmt: skip


def chunk(name, payload):
    body = name + payload
    return struct.pack(">I", len(payload)) + body + struct.pack(">I", zlib.crc32(body))


def pack_row(samples, depth):
    if depth == 16:
        return struct.pack(f">{len(samples)}H", *samples)
    bits = "".join(format(s, f"0{depth}b") for s in samples)
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


def filtered(row, previous, step, kind):
    out = bytearray([kind])
    for i, value in enumerate(row):
        a = row[i - step] if i >= step else 0
        b = previous[i]
        c = previous[i - step] if i >= step else 0
        p = a + b - c
        paeth = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
        out.append((value - (0, a, b, (a + b) // 2, paeth)[kind]) & 255)
    return bytes(out)


def png(width, height, depth, colour, interlace=False, extra=b"", limit=None,
        damage=lambda data: data, tail=b""):  # fmt: skip
    """`extra`: chunks before the data; `limit`: samples lie below it."""
    channels = CHANNELS[colour]
    top = limit or 1 << depth
    rows = [
        [
            ((x * (c + 2) + y * 3) * max(1, top // 40) + RANDOM.randrange(top) // 9) % top
            for x in range(width)
            for c in range(channels)
        ]
        for y in range(height)
    ]
    step = max(1, depth * channels // 8)
    raw = b""
    for x0, y0, dx, dy in PASSES if interlace else [(0, 0, 1, 1)]:
        if x0 >= width:
            continue
        previous = None
        for n, y in enumerate(range(y0, height, dy)):
            samples = [
                s for x in range(x0, width, dx) for s in rows[y][x * channels : (x + 1) * channels]
            ]
            row = pack_row(samples, depth)
            raw += filtered(row, previous or bytes(len(row)), step, n % 5)
            previous = row
    data = damage(zlib.compress(raw, 9))
    half = len(data) // 2
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + extra
        + chunk(b"IDAT", data[:half])
        + chunk(b"IDAT", b"")
        + chunk(b"IDAT", data[half:])
        + tail
        + chunk(b"IEND", b"")
    )


def palette(entries):
    colours = bytes(RANDOM.randrange(256) for _ in range(entries * 3))
    return chunk(b"PLTE", colours)


def pngs():
    for interlace in (False, True):
        suffix = "_interlaced" if interlace else ""
        for depth in (1, 2, 4, 8, 16):
            yield f"grey{depth}{suffix}", png(21, 19, depth, 0, interlace)
        for depth in (8, 16):
            yield f"rgb{depth}{suffix}", png(19, 21, depth, 2, interlace)
            yield f"grey_alpha{depth}{suffix}", png(17, 18, depth, 4, interlace)
            yield f"rgba{depth}{suffix}", png(18, 17, depth, 6, interlace)
        for depth in (1, 2, 4, 8):
            entries = min(200, 1 << depth)
            yield (
                f"palette{depth}{suffix}",
                png(23, 20, depth, 3, interlace, palette(entries), entries),
            )
        transparent = palette(16) + chunk(b"tRNS", bytes(range(0, 160, 10)))
        yield f"palette_alpha{suffix}", png(20, 20, 4, 3, interlace, transparent)
        yield f"one_pixel{suffix}", png(1, 1, 8, 2, interlace)
        yield f"width_1{suffix}", png(1, 40, 8, 2, interlace)
        yield f"height_1{suffix}", png(40, 1, 8, 6, interlace)
        yield f"3x2{suffix}", png(3, 2, 2, 0, interlace)
    yield "grey16_dark", png(20, 20, 16, 0, limit=300)
    one = palette(4) + chunk(b"tRNS", b"\xff\0")
    yield "palette_one_transparent", png(20, 20, 2, 3, extra=one)
    yield "palette_too_short", png(20, 20, 4, 3, extra=palette(5))
    one = chunk(b"tRNS", b"\0\x05")
    yield "grey_transparent", png(9, 9, 8, 0, extra=one)
    yield "grey16_transparent", png(9, 9, 16, 0, extra=one, limit=300)
    one = chunk(b"tRNS", b"\0\x05\0\x06\0\x07")
    yield "rgb_transparent", png(9, 9, 8, 2, extra=one)
    other = (
        chunk(b"gAMA", struct.pack(">I", 100000))
        + chunk(b"sRGB", b"\1")
        + chunk(b"bKGD", b"\0\x01\0\x02\0\x03")
        + chunk(b"tEXt", b"Comment\0text")
        + chunk(b"prVt", b"private")
    )
    yield "other_chunks", png(12, 12, 8, 2, extra=other)
    yield "wrong_adler", png(12, 12, 8, 2, damage=lambda d: d[:-1] + b"\0")
    wrong_crc = bytearray(png(12, 12, 8, 2))
    wrong_crc[-16] ^= 1
    yield "wrong_idat_crc", bytes(wrong_crc)
    short = lambda d: zlib.compress(zlib.decompress(d)[:200])  # noqa: E731
    yield "early_end", png(12, 12, 8, 2, damage=short)
    whole = lambda d: zlib.compress(zlib.decompress(d)[: 5 * 37])  # noqa: E731
    yield "early_end_of_whole_rows", png(12, 12, 8, 2, damage=whole)
    yield "early_end_interlaced", png(12, 12, 8, 2, True, damage=short)
    longer = lambda d: zlib.compress(zlib.decompress(d) + bytes(99))  # noqa: E731
    yield "too_many_rows", png(12, 12, 8, 2, damage=longer)
    small_window = lambda d: b"\x18\x19" + d[2:]  # noqa: E731
    yield "declared_window_too_small", png(60, 60, 8, 2, damage=small_window)
    first, second = picture(16, 16), picture(16, 16)
    yield "animated", save(first, format="PNG", save_all=True, append_images=[second])


# ---- WebP --------------------------------------------------------------------


def webp(width, height, mode="RGB", **options):
    return save(picture(width, height, mode), format="WEBP", **options)


def riff(*chunks):
    body = b"WEBP"
    for name, payload in chunks:
        body += name + struct.pack("<I", len(payload)) + payload
        body += b"\0" * (len(payload) % 2)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def little24(*values):
    return b"".join(struct.pack("<I", v)[:3] for v in values)


def webps():
    yield "lossy", webp(45, 35)
    yield "lossy_low_quality", webp(50, 50, quality=3)
    yield "lossy_alpha", webp(33, 30, "RGBA")
    yield "lossless", webp(31, 37, lossless=True)
    yield "lossless_alpha", webp(30, 33, "RGBA", lossless=True, exact=True)
    flat = Image.new("RGB", (70, 50), (9, 200, 77))
    yield "lossless_flat", save(flat, format="WEBP", lossless=True)
    exif = Image.Exif()
    exif[0x0112] = 6
    yield "lossy_exif", webp(22, 14, exif=exif)
    first, *others = [picture(26, 22, "RGBA") for _ in range(3)]
    yield "animated", save(first, format="WEBP", save_all=True, append_images=others)
    inner = webp(14, 12, quality=70)
    assert inner[12:16] == b"VP8 "
    frame = (b"ANMF", little24(4 // 2, 6 // 2, 13, 11, 100) + b"\0" + inner[12:])
    yield (
        "animated_offset",
        riff(
            (b"VP8X", b"\x02\0\0\0" + little24(29, 27)),
            (b"ANIM", bytes(6)),
            frame,
            frame,
        ),
    )
    yield "trailing_junk", webp(16, 16) + b"trailing"
    yield "one_pixel", webp(1, 1)
    yield "one_pixel_lossless", webp(1, 1, lossless=True)
    yield "width_1", webp(1, 40)
    yield "height_1", webp(40, 1, lossless=True)
    yield "tall", webp(2, 200)


# ---- EXIF, and shapes at the edge of what the processors take ----------------


def oriented(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def big_endian_exif(orientation):
    entry = struct.pack(">HHIHH", 0x0112, 3, 1, orientation, 0)
    return b"MM\0*" + struct.pack(">IH", 8, 1) + entry + bytes(4)


def others():
    for orientation in range(1, 9):
        exif = oriented(orientation)
        yield f"orientation_{orientation}.jpg", jpeg(23, 13, exif=exif)
    for orientation in (3, 6, 7):
        exif = oriented(orientation)
        image = picture(14, 19)
        yield f"orientation_{orientation}.png", save(image, format="PNG", exif=exif)
        yield f"orientation_{orientation}.webp", webp(14, 19, exif=exif)
    exif = b"Exif\0\0" + big_endian_exif(8)
    yield "orientation_big_endian.jpg", jpeg(15, 22, exif=exif)
    yield "orientation_progressive.jpg", jpeg(40, 30, exif=oriented(5), progressive=True)
    yield "orientation_9.jpg", jpeg(9, 8, exif=oriented(9))
    yield "ratio_200.jpg", jpeg(800, 4)
    yield "ratio_200_tall.png", png(3, 600, 8, 2)
    yield "ratio_200_tall.webp", webp(2, 400)
    yield "large.jpg", jpeg(611, 457, quality=40)
    yield "large_progressive.jpg", jpeg(457, 611, quality=40, progressive=True)
    yield "large_grey.jpg", jpeg(700, 350, "L", quality=40)
    yield "large_cmyk.jpg", jpeg(250, 260, "CMYK", quality=30)
    yield "large_alpha.webp", webp(301, 280, "RGBA", quality=30)
