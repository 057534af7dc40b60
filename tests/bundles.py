"""A real bundle in a moment and without torch: its classes are told by the mean colour."""

import io
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from scda.models.bundle import (
    CLUSTERS,
    MODEL,
    NEIGHBOUR_ROWS,
    NEIGHBOURS,
    PARITY,
    ClassInfo,
    write_bundle,
)
from scda.models.images import read_image
from scda.models.index import build_index, write_index
from scda.models.names import Names
from scda.models.parity import Reference
from scda.models.preprocess import Preprocessing
from scda.models.previous import Previous
from scda.models.session import Session
from scda.models.target_figures import TargetFigures
from scda.models.trust import ClassTrust, Trust

RGB = {
    "blue": (0, 0, 255),
    "green": (0, 255, 0),
    "red": (255, 0, 0),
    "yellow": (255, 255, 0),
    "cyan": (0, 255, 255),
}
KNOWN, DISCOVERED = ("blue", "green", "red"), ("yellow", "cyan")
_SHARPNESS = 4.0  # of the softmax; a pure colour gets a confidence of about 0.98


def make_bundle(
    folder: Path,
    *,
    labels: Sequence[str] = KNOWN,
    crop_px: int = 32,
    num_discovered: int = 2,
    targets: Mapping[str, str] | None = None,
    trust: Trust | None = None,
    class_trust: Mapping[str, ClassTrust] | None = None,
    on_target: TargetFigures | None = None,
    previous: Previous | None = None,
    names: Names | None = None,
) -> Path:
    """Write a bundle of 3 known and up to 2 discovered classes to `folder`, and return it.

    An image of one colour of `RGB` is its class; `labels` are the names of blue, green and red.
    `targets` are its neighbours, path → colour; without them it has none. `trust` is its estimated
    accuracy, `class_trust` that of discovered classes by id, `on_target` its figures on the
    target; without them the bundle is like one of an older version. `previous` is what changed
    since the model before, and `names` what it keeps of that one.
    """
    colours = [*KNOWN, *DISCOVERED[:num_discovered]]
    centres = np.array([RGB[name] for name in colours], np.float32) / np.float32(255)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        draft = Path(name)
        onnx.save(_model(centres, crop_px), draft / MODEL)
        preprocessing = _preprocessing(crop_px)
        _save_parity(draft, colours, preprocessing)
        write_index(build_index(centres - np.float32(0.5)), draft / CLUSTERS)
        if targets is not None:
            _save_neighbours(draft, targets)
        classes = _classes(labels, len(colours), class_trust or {})
        for info, colour in zip(classes, colours, strict=True):
            exemplar = draft / info.exemplars[0]
            exemplar.parent.mkdir(parents=True)
            exemplar.write_bytes(picture(colour))
        write_bundle(
            draft,
            folder,
            classes=classes,
            preprocessing=preprocessing,
            thresholds={},
            status=("ok",),
            trust=trust,
            on_target=on_target,
            previous=previous,
            names=names.to_json() if names else None,
            run={"made_by": "tests"},
        )
    return folder


def picture(colour: str, *, size: tuple[int, int] = (48, 40), kind: str = "JPEG") -> bytes:
    """Return an image file of one colour of `RGB`; `size` is width and height in pixels."""
    file = io.BytesIO()
    Image.new("RGB", size, RGB[colour]).save(file, kind)
    return file.getvalue()


def _preprocessing(crop_px: int) -> Preprocessing:
    # The graph below divides by 255 itself, so that this is what it says.
    return Preprocessing(
        resize_px=crop_px, crop_px=crop_px, mean=(127.5, 127.5, 127.5), std=(255.0, 255.0, 255.0)
    )


def _classes(
    labels: Sequence[str], count: int, trust: Mapping[str, ClassTrust]
) -> tuple[ClassInfo, ...]:
    known = [(f"known-{i:03d}", label, "known") for i, label in enumerate(labels)]
    found = [f"discovered-{i:03d}" for i in range(count - len(labels))]
    rows = [*known, *((class_id, class_id, "discovered") for class_id in found)]
    return tuple(
        ClassInfo(
            class_id=class_id,
            label=label,
            kind=kind,
            size=max(1, 10 - i),
            mean_confidence=0.9,
            radius={"q50": 0.05, "q90": 0.1, "q99": 0.2},
            nearest_known="known-002" if kind == "discovered" else None,
            exemplars=(f"exemplars/{class_id}/0.jpg",),
            trust=trust.get(class_id),
        )
        for i, (class_id, label, kind) in enumerate(rows)
    )


def _model(centres: NDArray[np.float32], crop_px: int) -> onnx.ModelProto:
    """Return features = mean colour - 0.5, probabilities = softmax(-sharpness * distance²)."""
    constants = {
        "axes": np.array([1, 2], np.int64),
        "scale": np.array(255, np.float32),
        "half": np.array(0.5, np.float32),
        "weight": 2 * _SHARPNESS * centres.T,
        "bias": -_SHARPNESS * (centres**2).sum(axis=1),
    }
    nodes = [
        helper.make_node("Cast", ["images"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["floats", "axes"], ["sums"], keepdims=0),
        helper.make_node("Div", ["sums", "scale"], ["means"]),
        helper.make_node("Sub", ["means", "half"], ["features"]),
        helper.make_node("MatMul", ["means", "weight"], ["products"]),
        helper.make_node("Add", ["products", "bias"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1),
    ]
    shape: list[str | int | None] = ["batch", crop_px, crop_px, 3]
    outputs = (("probabilities", len(centres)), ("features", 3))
    graph = helper.make_graph(
        nodes,
        "colours",
        [helper.make_tensor_value_info("images", TensorProto.UINT8, shape)],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", w]) for n, w in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opset = helper.make_opsetid("", 20)
    return helper.make_model(graph, opset_imports=[opset], ir_version=10)


def _save_neighbours(draft: Path, targets: Mapping[str, str]) -> None:
    colours = np.array([RGB[colour] for colour in targets.values()], np.float32).reshape(-1, 3)
    write_index(build_index(colours / np.float32(255) - np.float32(0.5)), draft / NEIGHBOURS)
    rows = {"path": list(targets), "class_id": ["known-000"] * len(targets)}
    table = pa.table({**rows, "confidence": [0.9] * len(targets)})
    pq.write_table(table, draft / NEIGHBOUR_ROWS)


def _save_parity(draft: Path, colours: Sequence[str], preprocessing: Preprocessing) -> None:
    images = [read_image(picture(colour)) for colour in colours]
    pixels = np.stack([preprocessing.apply(image) for image in images])
    probabilities, features = Session(draft / MODEL, provider="cpu", threads=1).run(pixels)
    Reference(pixels, probabilities, features).save(draft / PARITY)
