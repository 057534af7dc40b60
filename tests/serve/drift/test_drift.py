"""Outputs of `label` compared with the training, as files, page and command."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from scda.models.bundle import read_manifest
from scda.models.drift.compare import compare, reference_of
from scda.models.errors import DataError, ImageError, UsageError
from scda.models.names import Names
from scda.models.predictor import ClassDistance, Prediction
from scda.serve.drift.labels import Labels, read_labels
from scda.serve.drift.page import Compared, make_page
from scda.serve.labelling.formats.registry import FORMATS
from scda.serve.labelling.formats.rows import LabellingInfo, Row
from tests.bundles import make_bundle, picture
from tests.conftest import Scda
from tests.models.drift.test_compare import FIGURES

IDS = ("known-000", "known-001", "known-002", "discovered-000", "discovered-001")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("made") / "bundle", on_target=FIGURES)


def answer(model_id: str, class_id: str, distance: float) -> Prediction:
    near: ClassDistance = {"class_id": class_id, "label": class_id, "distance": distance}
    return Prediction(
        label=class_id,
        kind=class_id.partition("-")[0],
        class_id=class_id,
        confidence=0.75,
        outlier=distance > 0.5,
        entropy=0.1,
        margin=0.5,
        nearest=(near,),
        top=(),
        model_id=model_id,
        names_version=0,
    )


def labels(path: Path, bundle: Path, counts: list[int], *, distance: float = 0.2) -> Path:
    """Write so many answers of each class, and an error, as `label` does."""
    model_id = read_manifest(bundle).id
    about = LabellingInfo(
        model_id=model_id, names_version=0, classes=(), width=3, root=path.parent, image_root=""
    )
    rows = [
        Row(f"{class_id}-{number}.jpg", answer(model_id, class_id, distance + number / 1000))
        for class_id, count in zip(IDS, counts, strict=True)
        for number in range(count)
    ]
    with path.open("wb") as file, FORMATS[path.suffix].write(file, about) as write:
        write([*rows, Row("bad.jpg", ImageError("empty", "the file is empty"))])
    return path


def read(path: Path, bundle: Path, names: Names | None = None) -> Labels:
    return read_labels(path, read_manifest(bundle), names or Names())


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_every_format_gives_the_same_stream(tmp_path: Path, bundle: Path, ending: str) -> None:
    found = read(labels(tmp_path / f"week{ending}", bundle, [30, 20, 10, 5, 0]), bundle)
    assert found.sample.classes == dict(zip(IDS, [30, 20, 10, 5], strict=False))
    assert (found.sample.images, found.failed, found.sample.outliers) == (65, 1, 0)
    assert found.sample.distance[:2] == pytest.approx([0.2, 0.201])
    assert set(found.sample.confidence) == {0.75}
    assert [one.path for one in found.farthest[:2]] == ["known-000-29.jpg", "known-000-28.jpg"]
    assert len(found.farthest) == 24
    assert [one.class_id for one in found.of_class["discovered-000"]] == ["discovered-000"] * 5


def test_merges_and_drops_are_applied(tmp_path: Path, bundle: Path) -> None:
    names = Names(merges={"discovered-000": "known-001"}, drops=frozenset({"known-000"}))
    found = read(labels(tmp_path / "week.csv", bundle, [3, 2, 1, 5, 0]), bundle, names)
    assert found.sample.classes == {"unknown": 3, "known-001": 7, "known-002": 1}


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("week.csv", "a,b\n1,2\n", DataError),
        ("week.jsonl", '{"status": "ok"}\n', DataError),
        ("week.jsonl", "[]\n", DataError),
        ("week.jsonl", "[" * 100_000, DataError),
        ("week.parquet", "no", DataError),
        ("week.txt", "", UsageError),
        ("missing.csv", None, UsageError),
    ],
)
def test_what_is_no_output_of_label_is_refused(
    tmp_path: Path, bundle: Path, name: str, text: str | None, error: type[Exception]
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(error, match=name):
        read(tmp_path / name, bundle)


@pytest.mark.parametrize(
    "change", [{"nearest": []}, {"nearest": None}, {"confidence": 10**400}, {"confidence": "nan"}]
)
def test_an_answer_with_values_that_label_never_writes_is_refused(
    tmp_path: Path, bundle: Path, change: dict[str, Any]
) -> None:
    path = labels(tmp_path / "week.jsonl", bundle, [1, 0, 0, 0, 0])
    row = json.loads(path.read_text().splitlines()[0])
    path.write_text(json.dumps(row | change))
    with pytest.raises(DataError, match=r"week\.jsonl: not an output of scda-adapt label"):
        read(path, bundle)


@pytest.mark.parametrize("cell", [200_000, 2_000_000])
def test_long_cells_are_read_and_the_limit_of_other_readers_stays(
    tmp_path: Path, bundle: Path, cell: int
) -> None:
    path = labels(tmp_path / "week.csv", bundle, [1, 0, 0, 0, 0])
    path.write_text(path.read_text().replace("known-000-0.jpg", "x" * cell))
    limit = csv.field_size_limit(131_072)  # its default
    try:
        if cell < 1 << 20:
            assert read(path, bundle).farthest[0].path == "x" * cell
        else:
            with pytest.raises(DataError, match="field limit"):
                read(path, bundle)
        assert csv.field_size_limit() == 131_072
    finally:
        csv.field_size_limit(limit)


def test_labels_of_another_model_are_refused(tmp_path: Path, bundle: Path) -> None:
    path = labels(tmp_path / "week.jsonl", bundle, [2, 0, 0, 0, 0])
    path.write_text(path.read_text().replace(read_manifest(bundle).id, "f" * 16))
    with pytest.raises(DataError, match=f"labels of the model {'f' * 16}"):
        read(path, bundle)


def test_the_page_shows_what_changed_with_pictures(tmp_path: Path, bundle: Path) -> None:
    manifest = read_manifest(bundle)
    found = read(labels(tmp_path / "w<b>.csv", bundle, [60, 0, 0, 0, 0], distance=0.6), bundle)
    for one in found.farthest:
        (tmp_path / one.path).write_bytes(picture("red"))
    drift = compare(reference_of(manifest, Names()), found.sample)
    compared = [Compared(found, drift)]
    page = make_page(compared, bundle, manifest, Names(), reference="x<y", root=tmp_path)
    assert "A new training is due" in page
    assert "w&lt;b&gt;.csv" in page
    assert "<b>.csv" not in page
    assert "x&lt;y" in page
    assert 'title="known-000-59.jpg: blue, confidence 0.75, distance 0.659"' in page
    assert page.count("data:image/jpeg") > 24
    bare = make_page(compared, bundle, manifest, Names(), reference="x", root=None)
    assert 0 < bare.count("data:image/jpeg") < 12  # exemplars of the classes alone


def run(scda: Scda, *words: object) -> dict[str, Any]:
    done = scda("drift", *words, "--json")
    assert done.returncode == 0, done.stderr
    fields: dict[str, Any] = json.loads(done.stdout)
    return fields


def test_the_command_tells_what_changed_and_whether_a_training_is_due(
    scda: Scda, tmp_path: Path, bundle: Path
) -> None:
    same = labels(tmp_path / "same.csv", bundle, [20, 18, 16, 14, 12], distance=0.1)
    mix = labels(tmp_path / "mix.parquet", bundle, [0, 38, 16, 14, 12], distance=0.1)
    far = labels(tmp_path / "far.jsonl", bundle, [20, 18, 16, 14, 12], distance=0.7)
    fields = run(scda, bundle, same, mix, far)
    assert [one["changed"] for one in fields["files"]] == [
        [],
        ["classes"],
        ["distance", "outliers"],
    ]
    assert [one["training_due"] for one in fields["files"]] == [False, False, True]
    assert fields["training_due"]
    assert fields["files"][1]["classes"][0]["class_id"] == "known-000"
    assert fields["files"][1]["failed"] == 1
    again = run(scda, bundle, far, "--reference", far)
    assert set(again["files"][0]["p_values"]) == {"classes", "confidence", "distance", "outliers"}
    assert not again["training_due"]
    page = tmp_path / "drift.html"
    done = scda("drift", bundle, mix, far, "--page", page, "--fail-on-drift")
    assert done.returncode == 5
    assert "mix.parquet: 80 images: other shares of the same classes" in done.stdout
    assert "known-000  25.0% -> 0.0%  blue" in done.stdout
    assert "A new training is due" in page.read_text()


def test_a_bundle_without_held_out_figures_compares_classes_and_says_so(
    scda: Scda, tmp_path: Path
) -> None:
    bundle = make_bundle(tmp_path / "older")
    done = scda("drift", bundle, labels(tmp_path / "a.csv", bundle, [20, 18, 16, 14, 12]))
    assert done.returncode == 0
    assert "--reference" in done.stderr
    done = scda("drift", bundle, tmp_path / "a.csv", "--images", tmp_path / "nowhere")
    assert done.returncode == 2
