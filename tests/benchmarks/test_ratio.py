import io

import numpy as np
from PIL import Image

from ratio import ratio_png


def test_every_method_has_a_line_in_every_panel() -> None:
    records = [
        {"method": method, "variant": str(count), "task": task, "os_star": 90.0, "unk_pooled": unk}
        | {"k_star": k_star}
        for method, unk, k_star in (("scda", 80.0, 3), ("osbp", 20.0, 30))
        for count in (10, 2)
        for task in ("A-W", "A-D")
    ]
    image = Image.open(io.BytesIO(ratio_png(records))).convert("RGB")
    pixels = np.asarray(image).reshape(image.height, image.width, 3)
    for colour in ((31, 119, 180), (255, 127, 14)):  # the first two of tab10
        columns = np.flatnonzero((pixels == colour).all(axis=2).any(axis=0))
        thirds = {int(3 * column / image.width) for column in columns}
        # Both methods have the same OS*, where the second line hides the first.
        assert thirds >= {1, 2}
