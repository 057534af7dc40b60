"""Rows of a labelling that never took place."""

import os
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from scda.models.errors import ImageError
from scda.models.predictor import ActiveClass, Prediction
from scda.serve.labelling.formats.labelstudio import LOCAL_FILES
from scda.serve.labelling.formats.rows import LabellingInfo, Row

PREDICTION = Prediction(
    label='red, "bright"',
    kind="known",
    class_id="known-002",
    confidence=0.75,
    outlier=False,
    entropy=0.5,
    margin=0.25,
    nearest=({"class_id": "known-002", "label": 'red, "bright"', "distance": 0.125},),
    top=({"class_id": "known-002", "label": 'red, "bright"', "confidence": 0.75},),
    model_id="0123456789abcdef",
    names_version=3,
)
GOOD = Row("a/b.jpg", PREDICTION, True, np.array([0.5, -1.0], np.float32))
BAD = Row("c.jpg", ImageError("cannot_decode", "damaged JPEG"))
ABOUT = LabellingInfo(
    model_id="0123456789abcdef",
    names_version=3,
    classes=(
        ActiveClass("known-001", "green", "known"),
        ActiveClass("known-002", 'red, "bright"', "known"),
        ActiveClass("unknown", "unknown", "unknown"),
    ),
    width=2,
    root=Path("/photos"),
    image_root=LOCAL_FILES,
)
# Every name that a Linux file system allows, as `os.fsdecode` gives it.
file_names = (
    st.binary(min_size=1, max_size=20)
    .filter(lambda raw: raw not in (b".", b".."))
    .map(lambda raw: os.fsdecode(raw.replace(b"\0", b"x")))
)
