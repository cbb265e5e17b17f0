#!/usr/bin/env python3
"""Writes newer_characters.inc: characters of Unicode 15, 15.1 and 16.

The regular expressions of Hugging Face tokenizers know Unicode 16, Debian 12's
PCRE2 knows Unicode 14. Run where unicodedata2 16.0.0 (PyPI) is installed under
a Python whose own unicodedata is of Unicode 14:

    python3 make_newer_characters.py > newer_characters.inc
"""

import unicodedata

import unicodedata2

assert unicodedata.unidata_version == "14.0.0", unicodedata.unidata_version
assert unicodedata2.unidata_version == "16.0.0", unicodedata2.unidata_version

ranges = []
for code in range(0x110000):
    category = unicodedata2.category(chr(code))
    if category == "Cn" or unicodedata.category(chr(code)) != "Cn":
        continue
    if ranges and ranges[-1][1:] == [code - 1, category]:
        ranges[-1][1] = code
    else:
        ranges.append([code, code, category])

print("// First, last, general category. Written by make_newer_characters.py.")
for first, last, category in ranges:
    print('{0x%04X, 0x%04X, "%s"},' % (first, last, category))
