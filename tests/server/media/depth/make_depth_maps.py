"""Makes testdata/depth_maps.json: 16-bit PNGs that Pillow writes, and what it reads of them.

tests/server/media/depth/make_depth_maps.py > tests/server/media/depth/testdata/depth_maps.json
"""

import base64
import io
import json

import numpy as np
from PIL import Image

SIDES = [(4, 4), (8, 12), (16, 8), (20, 20), (12, 4)]  # height, width


def main():
    maps = []
    for number, (height, width) in enumerate(SIDES):
        pixels = np.random.default_rng(number).integers(
            0, 1 << 16, (height, width), dtype=np.uint16
        )
        pixels[0, :2] = 0, 65535
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG", compress_level=number)
        read = np.asarray(Image.open(io.BytesIO(file.getvalue())))
        maps.append(
            {
                "height": height,
                "width": width,
                "png": base64.b64encode(file.getvalue()).decode(),
                "pixels": read.astype(int).ravel().tolist(),
            }
        )
    print(json.dumps(maps))


if __name__ == "__main__":
    main()
