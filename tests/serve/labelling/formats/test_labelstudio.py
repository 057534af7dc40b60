import dataclasses
import io
import json
import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scda.models.predictor import ActiveClass
from scda.serve.labelling.formats.labelstudio import (
    LOCAL_FILES,
    choice,
    image_reference,
    labelling_config,
    write_tasks,
)
from scda.serve.labelling.formats.rows import LabellingInfo, Row
from tests.rows import ABOUT, BAD, GOOD, PREDICTION, file_names


def tasks(*batches: Sequence[Row], about: LabellingInfo = ABOUT) -> list[dict[str, Any]]:
    file = io.BytesIO()
    with write_tasks(file, about) as write:
        for rows in batches:
            write(rows)
    read = json.loads(file.getvalue().decode("ascii"))
    assert isinstance(read, list)
    return read


def check(task: dict[str, Any], config: bytes) -> None:
    """What Label Studio checks of a task on import, with the configuration's own words."""
    view = ElementTree.fromstring(config)
    (image,), (choices,) = view.findall("Image"), view.findall("Choices")
    assert view.tag == "View"
    assert choices.get("toName") == image.get("name")
    assert image.get("value", "").removeprefix("$") in task["data"]
    for prediction in task["predictions"]:
        assert 0 <= prediction["score"] <= 1
        for region in prediction["result"]:
            assert region["from_name"] == choices.get("name")
            assert region["to_name"] == image.get("name")
            assert region["type"] == choices.tag.lower()
            assert len(region["value"]["choices"]) == 1
            assert set(region["value"]["choices"]) <= {one.get("value") for one in choices}


def with_labels(*labels: str) -> LabellingInfo:
    classes = [ActiveClass(f"known-{i:03d}", label, "known") for i, label in enumerate(labels)]
    return dataclasses.replace(ABOUT, classes=tuple(classes))


def test_a_task_fits_the_configuration() -> None:
    read = tasks([GOOD], [BAD])
    assert len(read) == 2
    for task in read:
        check(task, labelling_config(ABOUT))


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_a_task_fits_whatever_the_label_is(label: str) -> None:
    about = with_labels("other", label)
    row = Row("x.jpg", dataclasses.replace(PREDICTION, label=label, class_id="known-001"))
    (task,) = tasks([row], about=about)
    check(task, labelling_config(about))


def test_a_task_says_what_the_row_says() -> None:
    good, bad = tasks([GOOD, BAD])
    assert good == {
        "data": {
            "image": "/data/local-files/?d=a/b.jpg",
            "path": "a/b.jpg",
            "status": "ok",
            "error_code": "",
            "class_id": "known-002",
            "kind": "known",
            "outlier": False,
            "review": True,
        },
        "predictions": [
            {
                "model_version": "0123456789abcdef",
                "score": 0.75,
                "result": [
                    {
                        "from_name": "label",
                        "to_name": "image",
                        "type": "choices",
                        "value": {"choices": ['red, "bright"']},
                    }
                ],
            }
        ],
    }
    assert bad["predictions"] == []
    assert (bad["data"]["status"], bad["data"]["error_code"]) == ("error", "cannot_decode")
    assert bad["data"].keys() == good["data"].keys()


def test_the_configuration_has_a_choice_per_label() -> None:
    about = with_labels("red", "a<b&\"c'", "red", "\x01\n")
    choices = ElementTree.fromstring(labelling_config(about)).findall("Choices/Choice")
    assert [one.get("value") for one in choices] == ["red", "a<b&\"c'", "\\x01\n"]
    assert choice("\x01\n") == "\\x01\n"


@pytest.mark.parametrize(
    ("root", "path", "reference"),
    [
        (LOCAL_FILES, "a b/c&d#?.jpg", "/data/local-files/?d=a%20b/c%26d%23%3F.jpg"),
        (f"{LOCAL_FILES}photos", "x.jpg", "/data/local-files/?d=photos/x.jpg"),
        ("https://host/photos", "a b.jpg", "https://host/photos/a%20b.jpg"),
        ("https://host/photos/", "x.jpg", "https://host/photos/x.jpg"),
        ("s3://bucket/photos", "a b.jpg", "s3://bucket/photos/a b.jpg"),
        ("", "x.jpg", "/x.jpg"),
    ],
)
def test_the_image_stands_behind_its_root(root: str, path: str, reference: str) -> None:
    assert image_reference(path, root) == reference


@given(file_names)
def test_every_file_name_comes_back_from_its_reference(name: str) -> None:
    query = urlsplit(image_reference(name, LOCAL_FILES)).query
    (back,) = parse_qs(query, strict_parsing=True, encoding="utf-8", errors="surrogateescape")["d"]
    assert os.fsencode(back) == os.fsencode(name).lstrip(b"/")


def test_no_row_is_an_empty_list() -> None:
    assert tasks() == tasks([]) == []
