import io

import numpy as np
from PIL import Image

from benchmarks.open_set.ratio import ratio_png


def test_every_method_has_a_line_in_every_panel() -> None:
    records = [
        {"method": method, "variant": str(count), "task": task, "k_star": 3 + share}
        | dict.fromkeys(("os_star", "unk_pooled"), share)
        for method, share in (("scda", 80.0), ("osbp", 20.0))
        for count in (10, 2)
        for task in ("A-W", "A-D")
    ]
    image = Image.open(io.BytesIO(ratio_png(records))).convert("RGB")
    pixels = np.asarray(image).reshape(image.height, image.width, 3)
    for colour in ((31, 119, 180), (255, 127, 14)):  # the first two of tab10
        columns = (pixels == colour).all(axis=2).any(axis=0)
        for panel in np.array_split(columns, 3):
            assert panel.sum() > 0.5 * len(panel)  # more than a handle in the legend
