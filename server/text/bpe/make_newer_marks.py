#!/usr/bin/env python3
"""Writes newer_marks.inc: characters that Hugging Face's NFC does not know.

Its normalizers know Unicode 9: to them, marks of later versions have no
combining class, and there are no later compositions. Run where tokenizers
0.23.3 and unicodedata2 16.0.0 are installed (PyPI):

    python3 make_newer_marks.py > newer_marks.inc
"""

import unicodedata2
from tokenizers import normalizers

nfc = normalizers.NFC().normalize_str
found = set()
for code in range(0x110000):
    if 0xD800 <= code < 0xE000:
        continue
    text = chr(code)
    # Two marks in the wrong order.
    pair = text + "\u0323" if unicodedata2.combining(text) >= 230 else "\u0352" + text
    if unicodedata2.combining(text) and nfc(pair) != unicodedata2.normalize("NFC", pair):
        found.add(code)
    decomposition = unicodedata2.decomposition(text)
    if decomposition and not decomposition.startswith("<"):
        parts = unicodedata2.normalize("NFD", text)
        if nfc(parts) != unicodedata2.normalize("NFC", parts):
            found.add(code)
            # Marks such as U+0307 are also halves of compositions known to it.
            codes = [int(part, 16) for part in decomposition.split()]
            found.update(c for c in codes if not unicodedata2.combining(chr(c)))

ranges = []
for code in sorted(found):
    if ranges and ranges[-1][1] == code - 1:
        ranges[-1][1] = code
    else:
        ranges.append([code, code])
print("// First, last. Written by make_newer_marks.py.")
for first, last in ranges:
    print("{0x%04X, 0x%04X}," % (first, last))
