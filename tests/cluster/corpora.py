"""Draws data of texts alone, of which many samples take little time."""

import io
import json
import tarfile


def write_texts(path, samples):
    """Writes a tar file of this many conversations."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(samples):
            turns = [("human", f"What is {number}?"), ("gpt", "A number.")]
            text = json.dumps({"conversations": [{"from": f, "value": v} for f, v in turns]})
            member = tarfile.TarInfo(f"{number:06}.json")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
