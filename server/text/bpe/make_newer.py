#!/usr/bin/env python3
"""Writes newer_characters.inc and newer_marks.inc: what other libraries do not know.

characters: the ones of Unicode 15, 15.1 and 16. The regular expressions of Hugging
Face tokenizers know Unicode 16, Debian 12's PCRE2 knows Unicode 14. Wants a Python
whose own unicodedata is of Unicode 14.

marks: characters that Hugging Face's NFC does not know. Its normalizers know Unicode
9: to them, marks of later versions have no combining class, and there are no later
compositions. Wants tokenizers 0.23.3 (PyPI).

Run where unicodedata2 16.0.0 is installed (PyPI):

    python3 make_newer.py characters > newer_characters.inc
    python3 make_newer.py marks > newer_marks.inc
"""

import sys
import unicodedata

import unicodedata2


def characters():
    """Code points and their categories, ascending."""
    assert unicodedata.unidata_version == "14.0.0", unicodedata.unidata_version
    assert unicodedata2.unidata_version == "16.0.0", unicodedata2.unidata_version
    for code in range(0x110000):
        category = unicodedata2.category(chr(code))
        if category != "Cn" and unicodedata.category(chr(code)) == "Cn":
            yield code, '"%s"' % category


def marks():
    """Code points, ascending."""
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
    return [(code,) for code in sorted(found)]


def write(found, columns):
    """Prints ranges of code points, with what they have in common."""
    ranges = []
    for code, *rest in found:
        if ranges and ranges[-1][1:] == [code - 1, *rest]:
            ranges[-1][1] = code
        else:
            ranges.append([code, code, *rest])
    print("// %s. Written by make_newer.py." % columns)
    for first, last, *rest in ranges:
        print("{%s}," % ", ".join(["0x%04X" % first, "0x%04X" % last, *rest]))


if sys.argv[1] == "characters":
    write(characters(), "First, last, general category")
else:
    write(marks(), "First, last")
