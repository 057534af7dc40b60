import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from scda.models.errors import DataError, GateError, ImageError, UsageError
from scda.models.predictor import Predictor
from scda.serve.labelling.label import label
from scda.serve.model import Model, load
from tests.bundles import make_bundle, picture


@pytest.fixture(scope="module")
def model(bundle: Path) -> Model:
    return load(bundle, provider="cpu", threads=1)


def test_a_path_bytes_an_image_and_an_array_are_answered_alike(
    model: Model, tmp_path: Path
) -> None:
    data = picture("yellow", kind="PNG")
    (tmp_path / "x.png").write_bytes(data)
    image = Image.open(io.BytesIO(data))
    kinds: list[Any] = [tmp_path / "x.png", str(tmp_path / "x.png"), data, image, np.array(image)]
    answers = [model.predict(kind) for kind in kinds]
    assert answers[0].class_id == "discovered-000"
    assert answers[0].kind == "discovered"
    assert all(answer == answers[0] for answer in answers)


def test_an_image_object_is_turned_and_laid_on_white_as_its_file_is(model: Model) -> None:
    picture = Image.new("RGBA", (48, 40), (0, 0, 255, 255))
    picture.paste((255, 0, 0, 0), (0, 0, 48, 30))
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    picture.save(file, "PNG", exif=exif)
    assert model.predict(Image.open(file)) == model.predict(file.getvalue())


def test_an_image_is_left_as_it_was(model: Model) -> None:
    image = Image.new("L", (40, 40), 7)
    model.predict(image)
    assert (image.mode, image.size) == ("L", (40, 40))


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((8, 8, 3)),
        np.zeros((8, 8), np.uint8),
        np.zeros((3, 8, 8), np.uint8),
        np.zeros((0, 8, 3), np.uint8),
        [[0, 0, 0]],
        None,
    ],
    ids=repr,
)
def test_what_is_no_image_is_refused_with_what_was_expected(model: Model, image: Any) -> None:
    with pytest.raises(UsageError, match=r"^image (is|has the shape) .*; expected "):
        model.predict(image)


def test_a_bad_image_raises_the_code_of_the_contract(model: Model, tmp_path: Path) -> None:
    for bad, code in ((b"", "empty"), (b"text", "not_an_image"), (tmp_path / "no", "unreadable")):
        with pytest.raises(ImageError) as raised:
            model.predict(bad)
        assert raised.value.code == code


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    for name, colour in {"a/1.jpg": "red", "a/2.jpg": "cyan", "b.png": "green"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(picture(colour))
    (folder / "bad.jpg").write_bytes(b"no image")
    return folder


def test_rows_are_those_of_the_command(
    model: Model, predictor: Predictor, images: Path, tmp_path: Path
) -> None:
    out = tmp_path / "rows.csv"
    label(predictor, [images], [str(out)])
    rows = list(model.label(images))
    assert [row["path"] for row in rows] == ["a/1.jpg", "a/2.jpg", "b.png", "bad.jpg"]
    with out.open(newline="") as file:
        written = list(csv.DictReader(file))
    for row, of_command in zip(rows, written, strict=True):
        said = dict(row)
        assert of_command["status"] == said["status"]
        for column in ("path", "error_code", "label", "class_id", "names_version"):
            assert of_command[column] == ("" if said[column] is None else str(said[column]))
        if said["confidence"] is not None:
            assert float(of_command["confidence"]) == pytest.approx(said["confidence"], abs=1e-6)


def test_files_are_chosen_and_rows_are_shaped(model: Model, images: Path) -> None:
    (row,) = model.label([images / "a", images / "b.png"], include=["*.png"], top=2)
    assert row["path"] == (images / "b.png").as_posix()
    assert row["status"] == "ok"
    assert len(row["top"]) == 2
    assert [row["path"] for row in model.label(images, recursive=False)] == ["b.png", "bad.jpg"]
    assert all(row["review"] for row in model.label(images, exclude=["bad*"], min_confidence=1))


def test_rows_come_before_all_files_are_read(model: Model, images: Path) -> None:
    for number in range(100):
        (images / f"c{number:03d}.jpg").write_bytes(picture("blue"))
    rows = model.label(images, batch_size=1, workers=0)
    assert next(rows)["path"] == "a/1.jpg"
    (images / "c099.jpg").unlink()  # nobody has read it yet
    *_, last = rows
    assert last["status"] == "error"


def test_errors_of_a_labelling_come_at_once_and_not_with_the_first_row(
    model: Model, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="no such file or folder"):
        model.label(tmp_path / "nowhere")
    with pytest.raises(DataError, match="no file to label"):
        model.label(tmp_path)
    with pytest.raises(UsageError, match="top"):
        model.label(tmp_path, top=9)


def test_a_model_says_what_it_is(model: Model, bundle: Path) -> None:
    assert model.path == bundle
    assert model.id in (bundle / "bundle.json").read_text()
    assert [info.label for info in model.classes][:3] == ["blue", "green", "red"]
    assert repr(model) == f"<scda.Model {str(bundle)!r}: 5 classes>"


def test_a_run_is_loaded_by_its_bundle(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    make_bundle(tmp_path / "run" / "bundle")
    assert load(str(tmp_path / "run")).path == tmp_path / "run" / "bundle"
    with pytest.raises(UsageError, match="no such folder"):
        load(tmp_path / "nowhere")
    (tmp_path / "run" / "bundle" / "model.onnx").write_bytes(b"")
    with pytest.raises(GateError):
        load(tmp_path / "run")
