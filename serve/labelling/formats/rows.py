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
    """What is said of one file: a prediction, or why there is none."""

    path: str  # with "/" between folders
    answer: Prediction | ImageError
    review: bool = False  # its confidence is below what was asked for
    features: NDArray[np.float32] | None = field(default=None, compare=False)  # (D,)

    def to_json(self) -> dict[str, Any]:
        """Return every column as a plain JSON value, `None` where it is empty."""
        said: dict[str, Any]
        if isinstance(self.answer, ImageError):
            said = {"status": "error", "error_code": self.answer.code, "error": str(self.answer)}
        else:
            said = {"status": "ok", **self.answer.to_json(), "review": self.review}
        return {**dict.fromkeys(COLUMNS), "path": self.path, **said}


@dataclass(frozen=True, kw_only=True)
class LabellingInfo:
    """What is true of every row of one labelling."""

    model_id: str
    names_version: int
    classes: tuple[ActiveClass, ...]  # that answer, in order
    width: int  # of a row's features
    root: Path  # absolute; a row's path is relative to it
    image_root: str  # what an annotation tool puts before a row's path

    def file(self, row: Row) -> Path:
        """Return where a row's file is."""
        return self.root / row.path


Write = Callable[[Sequence[Row]], None]
