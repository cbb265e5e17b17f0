"""The pictures of resize and plan vectors; the tests in C++ draw the same."""

import hashlib


def picture(width, height):
    """Bytes of a linear congruential generator, with stretches of extremes."""
    state = width * 65536 + height
    out = bytearray()
    for i in range(width * height * 3):
        state = (state * 1664525 + 1013904223) % (1 << 32)
        out.append((i // 17 % 2) * 255 if i // 97 % 3 == 0 else state >> 24)
    return bytes(out)


def sha256(data):
    return hashlib.sha256(data).hexdigest()
