"""Rows as the labels.json of a FiftyOneImageClassificationDataset.

Source: https://docs.voxel51.com/user_guide/import_datasets.html
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from scda.models.errors import ImageError
from scda.models.files import printable
from scda.serve.labelling.formats.rows import LabellingInfo, Row, Write

HEAD = b'{"classes": '


@contextmanager
def write_labels(file: BinaryIO, about: LabellingInfo) -> Iterator[Write]:
    """Give a function that writes rows as entries of one JSON object, a line each.

    The keys are absolute paths: relative ones have no ending, so that `a.jpg` and `a.png` would be
    one image.
    """
    places = {one.class_id: i for i, one in enumerate(about.classes)}
    classes = json.dumps([printable(one.label) for one in about.classes])
    file.write(HEAD + f'{classes}, "labels": {{'.encode())
    before = "\n"

    def write(rows: Sequence[Row]) -> None:
        nonlocal before
        for row in rows:
            key = json.dumps(printable(str(about.file(row))))
            file.write(f"{before}{key}: {json.dumps(_target(row, places))}".encode())
            before = ",\n"

    yield write
    file.write(b"\n}}\n")


def _target(row: Row, places: dict[str, int]) -> dict[str, Any] | None:
    answer = row.answer
    if isinstance(answer, ImageError):
        return None  # an unlabelled image
    class_fields = {"class_id": answer.class_id, "kind": answer.kind}
    return {
        "label": places[answer.class_id],  # with "classes", a label is an index
        "confidence": answer.confidence,
        "attributes": {**class_fields, "outlier": answer.outlier, "review": row.review},
    }
