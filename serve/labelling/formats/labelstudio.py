"""Rows as Label Studio tasks with predictions, and their labelling configuration.

Source: https://labelstud.io/guide/predictions and https://labelstud.io/tags/choices
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO
from urllib.parse import quote_from_bytes, urlsplit
from xml.etree import ElementTree

from scda.models.errors import ImageError
from scda.models.files import printable
from scda.models.predictor import Prediction
from scda.serve.labelling.formats.rows import LabellingInfo, Row, Write

HEAD = b'[\n{"data": '
CONFIG_HEAD = b"<View>"
LOCAL_FILES = "/data/local-files/?d="  # prefix of local files in Label Studio
_CONTROL, _OBJECT = "label", "image"  # names of the two tags of the configuration
_DATA = ("path", "status", "error_code", "class_id", "kind", "outlier", "review")
_NO_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


@contextmanager
def write_tasks(file: BinaryIO, about: LabellingInfo) -> Iterator[Write]:
    """Give a function that writes rows as a JSON array with a task on each line."""
    before = b"[\n"

    def write(rows: Sequence[Row]) -> None:
        nonlocal before
        for row in rows:
            file.write(before + json.dumps(_task(row, about)).encode())
            before = b",\n"

    yield write
    file.write(b"\n]\n" if before == b",\n" else b"[]\n")


def labelling_config(about: LabellingInfo) -> bytes:
    """Return the XML to paste into a project, with one choice per label."""
    view = ElementTree.Element("View")
    ElementTree.SubElement(view, "Image", name=_OBJECT, value="$image")
    choices = ElementTree.SubElement(
        view, "Choices", name=_CONTROL, toName=_OBJECT, choice="single"
    )
    # Classes with the same label share a choice: Label Studio identifies choices by text.
    for label in dict.fromkeys(choice(one.label) for one in about.classes):
        ElementTree.SubElement(choices, "Choice", value=label)
    ElementTree.indent(view)
    return f"{ElementTree.tostring(view, encoding='unicode')}\n".encode()


def choice(label: str) -> str:
    r"""Return a label as valid XML text: control characters become \x01."""
    return _NO_XML.sub(lambda found: f"\\x{ord(found[0]):02x}", printable(label))


def image_reference(path: str, image_root: str) -> str:
    """Return the reference of Label Studio to the image of a row.

    The path is quoted behind a URL or an absolute path. It is not behind `s3://` and similar
    prefixes, where Label Studio takes the text as the key of the object.
    """
    plain = urlsplit(image_root).scheme not in ("", "http", "https")
    end = printable(path) if plain else quote_from_bytes(os.fsencode(path), safe="/")
    return image_root + ("" if image_root.endswith(("/", "=")) else "/") + end.lstrip("/")


def _task(row: Row, about: LabellingInfo) -> dict[str, Any]:
    image = image_reference(row.path, about.image_root)
    # The same keys in every task: Label Studio shows a column only for keys of all tasks.
    values = {name: "" if value is None else value for name, value in row.to_json().items()}
    data = {name: values[name] for name in _DATA}
    predictions = [] if isinstance(row.answer, ImageError) else [_prediction(row.answer)]
    return {
        "data": {"image": image, **data, "path": printable(row.path)},
        "predictions": predictions,
    }


def _prediction(answer: Prediction) -> dict[str, Any]:
    result = {
        "from_name": _CONTROL,
        "to_name": _OBJECT,
        "type": "choices",
        "value": {"choices": [choice(answer.label)]},
    }
    return {"model_version": answer.model_id, "score": answer.confidence, "result": [result]}
