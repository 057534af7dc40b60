import io
import json
import os
from collections.abc import Sequence
from typing import Any

from hypothesis import given

from scda.serve.labelling.formats.fiftyone import write_labels
from scda.serve.labelling.formats.rows import Row
from tests.rows import ABOUT, BAD, GOOD, file_names


def labels(*batches: Sequence[Row]) -> dict[str, Any]:
    file = io.BytesIO()
    with write_labels(file, ABOUT) as write:
        for rows in batches:
            write(rows)
    read = json.loads(file.getvalue().decode("ascii"))
    assert isinstance(read, dict)
    return read


def test_a_label_is_a_place_among_the_classes() -> None:
    read = labels([GOOD], [BAD])
    assert read["classes"] == ["green", 'red, "bright"', "unknown"]
    assert read["labels"] == {
        "/photos/a/b.jpg": {
            "label": 1,
            "confidence": 0.75,
            "attributes": {
                "class_id": "known-002",
                "kind": "known",
                "outlier": False,
                "review": True,
            },
        },
        "/photos/c.jpg": None,
    }


def test_images_that_differ_by_their_ending_stay_two() -> None:
    read = labels([Row("a.jpg", GOOD.answer), Row("a.png", GOOD.answer)])
    assert list(read["labels"]) == ["/photos/a.jpg", "/photos/a.png"]


@given(file_names.filter(lambda name: "/" not in name))
def test_every_file_name_can_be_written(name: str) -> None:
    (key,) = labels([Row(name, BAD.answer)])["labels"]
    assert key == f"/photos/{os.fsencode(name).decode('utf-8', 'backslashreplace')}"


def test_no_row_is_no_label() -> None:
    assert labels()["labels"] == {}
