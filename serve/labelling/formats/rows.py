"""One row per labelled file, and the facts that all rows of a labelling share.

Every output is a function of these two: a `LabellingInfo`, and rows in order, a batch at a time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scda.models.errors import ImageError
from scda.models.predictor import FIELDS, ActiveClass, Prediction

COLUMNS = ("path", "status", "error_code", "error", *FIELDS, "review")


@dataclass(frozen=True)
class Row:
    """The result of one file: a prediction or an error."""

    path: str  # with "/" between folders
    answer: Prediction | ImageError
    review: bool = False  # its confidence is below `min_confidence`
    features: NDArray[np.float32] | None = field(default=None, compare=False)  # (D,)

    def to_json(self) -> dict[str, Any]:
        """Return every column as a plain JSON value, None if it is empty."""
        columns: dict[str, Any]
        if isinstance(self.answer, ImageError):
            columns = {"status": "error", "error_code": self.answer.code, "error": str(self.answer)}
        else:
            columns = {"status": "ok", **self.answer.to_json(), "review": self.review}
        return {**dict.fromkeys(COLUMNS), "path": self.path, **columns}


@dataclass(frozen=True, kw_only=True)
class LabellingInfo:
    """Facts shared by all rows of one labelling."""

    model_id: str
    names_version: int
    classes: tuple[ActiveClass, ...]  # active classes, in order
    width: int  # length of the features of a row
    root: Path  # absolute; paths of rows are relative to it
    image_root: str  # prefix of paths for an annotation tool

    def file(self, row: Row) -> Path:
        """Return the file of a row."""
        return self.root / row.path


Write = Callable[[Sequence[Row]], None]
