import csv
import io
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from scda.models.cpus import usable_cpus
from scda.models.errors import DataError, UsageError
from scda.models.excluded import Excluded
from scda.models.images import read_file
from scda.models.predictor import FIELDS, Predictor
from scda.serve.labelling import label as label_module
from scda.serve.labelling.formats.registry import FORMATS
from scda.serve.labelling.label import label
from scda.serve.labelling.outputs import Options
from scda.serve.labelling.pipeline import in_order, running_batches
from scda.serve.labelling.sources import FileSelection
from tests.bundles import picture
from tests.nasty import nasty_files


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """One folder with everything that is met in one."""
    folder = tmp_path / "images"
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / ".git").mkdir()
    files = {
        "b.jpg": picture("blue"),
        "a": picture("yellow", kind="PNG"),
        "sub/deep/r.jpg": picture("red"),
        "text.jpg": b"no image",
        "zero.png": b"",
        "cut.jpg": picture("red", size=(200, 200))[:600],
        ".hidden.jpg": picture("red"),
        "._b.jpg": b"resource fork",
        ".git/x.jpg": picture("red"),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def read_csv(path: Path) -> list[dict[str, str]]:
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def labelled(predictor: Predictor, *inputs: Path, out: Path, **options: Any) -> dict[str, str]:
    """Label and return path → label, or error code."""
    label(predictor, inputs, [str(out)], **options)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len({row["path"] for row in rows}) == len(rows)
    return {row["path"]: row["label"] or row["error_code"] for row in rows}


def test_every_file_has_one_row_bad_ones_included(
    predictor: Predictor, images: Path, tmp_path: Path
) -> None:
    seen: list[tuple[int, int, int]] = []
    outs = [str(tmp_path / "rows.csv"), str(tmp_path / "rows.jsonl")]
    summary = label(
        predictor,
        [images],
        outs,
        batch_size=2,
        workers=2,
        on_progress=lambda *said: seen.append(said),
    )
    rows = {row["path"]: row for row in read_csv(tmp_path / "rows.csv")}
    assert {path: row["label"] or row["error_code"] for path, row in rows.items()} == {
        "a": "discovered-000",
        "b.jpg": "blue",
        "cut.jpg": "cannot_decode",
        "sub/deep/r.jpg": "red",
        "text.jpg": "not_an_image",
        "zero.png": "empty",
    }
    assert list(rows) == sorted(rows)
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 6
    assert seen == [(2, 6, 0), (4, 6, 1), (6, 6, 3)]
    assert summary.labels == {"discovered-000": 1, "blue": 1, "red": 1}
    assert summary.errors == {"cannot_decode": 1, "not_an_image": 1, "empty": 1}
    assert (summary.num_files, summary.num_failed, summary.hidden) == (6, 3, 3)
    assert summary.provider == "cpu"
    assert summary.images_per_second > 0
    assert summary.lines()[-1] == "       3  hidden, skipped"


@pytest.mark.parametrize("batch_size", [1, 2, 4, 100])
def test_the_batch_size_changes_nothing(
    predictor: Predictor, images: Path, tmp_path: Path, batch_size: int
) -> None:
    out = tmp_path / f"{batch_size}.jsonl"
    label(predictor, [images], [str(out)], batch_size=batch_size)
    by_one = tmp_path / "by-one.jsonl"
    label(predictor, [images], [str(by_one)], batch_size=1, workers=1)
    assert out.read_bytes() == by_one.read_bytes()


def test_sub_folders_can_be_left_out(predictor: Predictor, images: Path, tmp_path: Path) -> None:
    rows = labelled(
        predictor, images, out=tmp_path / "x.jsonl", selection=FileSelection(recursive=False)
    )
    assert "sub/deep/r.jpg" not in rows
    assert len(rows) == 5


def test_of_several_inputs_paths_start_as_they_were_given(
    predictor: Predictor, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(images.parent)
    inputs = (Path("images/sub"), Path("images/b.jpg"), Path("images/.hidden.jpg"))
    assert labelled(predictor, *inputs, out=Path("x.jsonl")) == {
        "images/sub/deep/r.jpg": "red",
        "images/b.jpg": "blue",
        "images/.hidden.jpg": "red",  # asked for by name
    }
    assert labelled(predictor, Path("images/b.jpg"), out=Path("y.jsonl")) == {
        "images/b.jpg": "blue"
    }


def test_overlapping_inputs_are_refused(predictor: Predictor, images: Path) -> None:
    for inputs in ([images, images / "sub"], [images / "b.jpg", images], [images, images]):
        with pytest.raises(UsageError, match="inside another input"):
            label(predictor, inputs, ["-"])


def test_a_folder_without_files_is_named(predictor: Predictor, tmp_path: Path) -> None:
    (tmp_path / ".hidden.jpg").write_bytes(picture("red"))
    with pytest.raises(DataError, match=f"no file to label found in {tmp_path}"):
        label(predictor, [tmp_path], ["-"])


def test_a_folder_that_is_not_there_is_named(predictor: Predictor, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere: no such file or folder"):
        label(predictor, [tmp_path / "nowhere"], ["-"])


def test_results_among_the_images_are_replaced_and_never_labelled(
    predictor: Predictor, images: Path
) -> None:
    first = labelled(predictor, images, out=images / "rows.jsonl")
    label(predictor, [images], [str(images / "rows.csv"), str(images / "rows.jsonl")])
    again = labelled(predictor, images, out=images / "rows.jsonl")
    assert again == {**first, "rows.csv": "not_an_image"}


def test_an_image_is_never_replaced_by_results(predictor: Predictor, images: Path) -> None:
    picture_file = images / "photo.csv"
    picture_file.write_bytes(picture("red"))
    for inputs in (images, picture_file):
        with pytest.raises(UsageError, match=r"photo\.csv: exists and is not the output"):
            label(predictor, [inputs], [str(picture_file)])
    assert picture_file.read_bytes() == picture("red")


def test_a_name_that_is_no_text_keeps_its_row(predictor: Predictor, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    name = os.fsdecode(b'caf\xe9 "1",\r\n.jpg')
    (folder / name).write_bytes(picture("red"))
    label(predictor, [folder], [str(tmp_path / "x.csv")])
    assert [row["path"] for row in read_csv(tmp_path / "x.csv")] == [name]
    assert labelled(predictor, folder, out=tmp_path / "x.jsonl") == {name: "red"}


@pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 1)])
def test_an_extreme_shape_is_labelled(
    predictor: Predictor, tmp_path: Path, size: tuple[int, int]
) -> None:
    (tmp_path / "x.png").write_bytes(picture("green", size=size, kind="PNG"))
    assert labelled(predictor, tmp_path, out=tmp_path / "x.jsonl") == {"x.png": "green"}


def test_a_bomb_is_a_row(predictor: Predictor, tmp_path: Path) -> None:
    Image.new("1", (8_000, 8_000)).save(tmp_path / "bomb.png")
    rows = labelled(predictor, tmp_path, out=tmp_path / "x.jsonl")
    assert rows == {"bomb.png": "too_many_pixels"}


def test_a_row_says_what_the_predictor_says(
    predictor: Predictor, images: Path, tmp_path: Path
) -> None:
    label(predictor, [images], [str(tmp_path / "x.jsonl")])
    rows = map(json.loads, (tmp_path / "x.jsonl").read_text().splitlines())
    good = {row["path"]: row for row in rows if row["status"] == "ok"}
    assert set(good) == {"a", "b.jpg", "sub/deep/r.jpg"}
    for path, row in good.items():
        (wanted,) = predictor.predict([predictor.prepare(read_file(images / path))])
        assert {name: row[name] for name in FIELDS} == wanted.to_json()


def test_a_file_that_vanishes_is_a_row(predictor: Predictor, tmp_path: Path) -> None:
    with running_batches(predictor, 0) as (start, ahead):
        files = [("gone.jpg", tmp_path / "gone.jpg")]
        ((row,),) = in_order(start, ahead, files, batch_size=4)
    assert row.to_json()["error_code"] == "unreadable"


def test_a_labelling_that_is_stopped_leaves_its_journal_alone(
    predictor: Predictor, images: Path, tmp_path: Path
) -> None:
    def stop(done: int, total: int, failed: int) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(KeyboardInterrupt):
        label(predictor, [images], [str(out / "x.csv")], batch_size=2, on_progress=stop)
    assert [path.name for path in out.iterdir()] == [".x.csv.journal"]


def test_no_more_batches_are_held_than_are_at_work(predictor: Predictor, images: Path) -> None:
    asked = 0

    def endless() -> Iterator[tuple[str, Path]]:
        nonlocal asked
        while True:
            asked += 1
            yield str(asked), images / "b.jpg"

    with running_batches(predictor, 2) as (start, ahead):
        batches = in_order(start, ahead, endless(), batch_size=4)
        for _ in range(5):
            next(batches)
        assert asked == (4 + ahead) * 4
        assert ahead == 2 * (2 + usable_cpus())


def test_features_are_those_of_each_row(predictor: Predictor, images: Path, tmp_path: Path) -> None:
    options = Options(embeddings=tmp_path / "x.npy")
    label(predictor, [images], [str(tmp_path / "x.csv")], options=options, batch_size=2)
    rows, features = read_csv(tmp_path / "x.csv"), np.load(tmp_path / "x.npy")
    assert features.shape == (len(rows), 3)
    for row, found in zip(rows, features, strict=True):
        if row["status"] == "error":
            assert np.isnan(found).all()
        else:
            pixels = predictor.prepare(read_file(images / row["path"]))
            np.testing.assert_allclose(found, predictor.run([pixels]).features[0], atol=1e-6)


def test_doubtful_rows_are_for_review(predictor: Predictor, images: Path, tmp_path: Path) -> None:
    (images / "grey.png").write_bytes(grey())
    out = tmp_path / "x.jsonl"
    label(predictor, [images], [str(out)], options=Options(min_confidence=0.9))
    review = {row["path"]: row["review"] for row in map(json.loads, out.read_text().splitlines())}
    assert review == {
        "a": False,
        "b.jpg": False,
        "cut.jpg": None,
        "grey.png": True,
        "sub/deep/r.jpg": False,
        "text.jpg": None,
        "zero.png": None,
    }
    label(predictor, [images], [str(out)])
    assert not any(row["review"] for row in map(json.loads, out.read_text().splitlines()))


def grey() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (40, 40), (128, 128, 128)).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("top", [1, 2, 5])
def test_top_has_as_many_entries_as_asked_for(
    predictor: Predictor, images: Path, tmp_path: Path, top: int
) -> None:
    out = tmp_path / "x.jsonl"
    label(predictor, [images / "b.jpg"], [str(out)], options=Options(top=top))
    row = json.loads(out.read_text())
    assert [len(row["top"]), len(row["nearest"])] == [top, 5]
    assert row["top"][0]["label"] == "blue"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(top=6), "--top 6; expected 1 to 5, the number of classes"),
        (Options(top=0), "--top 0; expected 1 to 5"),
        (Options(min_confidence=1.5), r"--min-confidence 1\.5; expected 0 to 1"),
        (Options(min_confidence=float("nan")), "--min-confidence nan"),
        (Options(sort_into=Path("images/sorted")), "sorted: inside images"),
        (Options(sort_into=Path("images2"), mode="move"), "'move'; expected copy"),
        (Options(sort_into=Path("sorted")), "x.csv: inside the folder to sort into"),
        (
            Options(embeddings=Path("features.npz")),
            r"\.npz: unknown ending; expected \.npy",
        ),
    ],
)
def test_wrong_options_are_told_before_an_image_is_read(
    predictor: Predictor,
    images: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: Options,
    message: str,
) -> None:
    monkeypatch.chdir(images.parent)
    Path("sorted").mkdir()
    monkeypatch.setattr("scda.serve.labelling.label.in_order", None)  # a call would be a TypeError
    with pytest.raises(UsageError, match=message):
        label(predictor, [Path("images")], ["sorted/x.csv"], options=options)
    assert list(Path("sorted").iterdir()) == []


def test_files_are_sorted_as_their_rows_say(
    predictor: Predictor, images: Path, tmp_path: Path
) -> None:
    (images / "grey.png").write_bytes(grey())
    options = Options(sort_into=tmp_path / "sorted", min_confidence=0.9)
    label(predictor, [images], [], options=options)
    found = {str(path.relative_to(tmp_path / "sorted")) for path in tmp_path.glob("sorted/*/*")}
    assert found == {"blue/b.jpg", "discovered-000/a", "red/r.jpg", "review/grey.png"}
    lines = {row["path"]: row for row in read_csv(tmp_path / "sorted" / "manifest.csv")}
    assert len(lines) == 7
    assert lines["sub/deep/r.jpg"]["placed_at"] == "red/r.jpg"
    assert lines["zero.png"]["error_code"] == "empty"


def test_files_are_not_sorted_into_what_a_pattern_fits(predictor: Predictor, images: Path) -> None:
    (images / "sorted").mkdir()
    options = Options(sort_into=images / "sorted" / "new")
    with pytest.raises(UsageError, match=f"sorted/new: inside {images}/sorted; expected a folder"):
        label(predictor, [images / "*"], [], options=options)
    assert list((images / "sorted").iterdir()) == []


def test_files_of_several_inputs_are_found_again(
    predictor: Predictor, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(images)
    inputs = [Path("sub"), images / "b.jpg", Path("../images/a")]
    out = tmp_path / "x.fiftyone.json"
    label(predictor, inputs, [str(out)], options=Options(sort_into=tmp_path / "sorted"))
    sorted_files = {str(path.relative_to(tmp_path)) for path in tmp_path.glob("sorted/*/*")}
    assert sorted_files == {"sorted/red/r.jpg", "sorted/blue/b.jpg", "sorted/discovered-000/a"}
    labels = json.loads(out.read_text())["labels"]
    assert all(Path(path).is_file() and Path(path).is_absolute() for path in labels)
    assert len(labels) == 3


def test_earlier_results_of_every_format_are_replaced_and_never_labelled(
    predictor: Predictor, images: Path
) -> None:
    outs = [str(images / f"rows{ending}") for ending in FORMATS]
    options = Options(embeddings=images / "rows.npy")
    first = label(predictor, [images], outs, options=options)
    again = label(predictor, [images], outs, options=options)
    assert first.num_files == again.num_files == 6


def test_parquet_is_the_same_whatever_the_batch_size(
    predictor: Predictor, images: Path, tmp_path: Path
) -> None:
    outs = [tmp_path / "1.parquet", tmp_path / "4.parquet"]
    for out, batch_size in zip(outs, (1, 4), strict=True):
        label(predictor, [images], [str(out)], batch_size=batch_size)
    assert outs[0].read_bytes() == outs[1].read_bytes()


def test_too_many_bad_files_end_it_and_the_rest_can_be_resumed(
    predictor: Predictor, images: Path, tmp_path: Path
) -> None:
    out = tmp_path / "rows.csv"
    with pytest.raises(DataError, match=r"2 files failed, 1 of them .*; expected 1 at most"):
        label(predictor, [images], [str(out)], batch_size=1, max_errors=1)
    assert not out.exists()
    summary = label(predictor, [images], [str(out)], batch_size=1, max_errors=3, resume=True)
    assert summary.num_failed == 3
    assert len(read_csv(out)) == 6


@pytest.mark.parametrize(
    ("out", "advice"),
    [("-", "allow more to label them all"), ("rows.csv", "rerun with --resume to continue")],
)
def test_too_many_bad_files_advise_to_resume_where_that_is_possible(
    predictor: Predictor,
    images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    out: str,
    advice: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=rf"expected 0 at most \(--max-errors\); {advice}$"):
        label(predictor, [images], [out], max_errors=0)


def test_the_summary_adds_up(predictor: Predictor, images: Path, tmp_path: Path) -> None:
    summary = label(predictor, [images], [str(tmp_path / "rows.csv")]).to_json()
    assert summary["files"] == sum(summary["labels"].values()) + summary["failed"] == 6
    assert summary["failed"] == sum(summary["errors"].values()) == 3
    assert summary["hidden"] == 3
    assert summary["model_id"] == predictor.manifest.id
    assert json.loads(json.dumps(summary)) == summary


def test_a_summary_among_the_images_replaces_a_summary_only(
    predictor: Predictor, images: Path, tmp_path: Path
) -> None:
    outs = [str(tmp_path / "rows.csv")]
    options = Options(summary=images / "summary.json")
    first = label(predictor, [images], outs, options=options)
    again = label(predictor, [images], outs, options=options)
    assert first.num_files == again.num_files == 6
    assert json.loads((images / "summary.json").read_text()) == again.to_json()
    with pytest.raises(UsageError, match=r"b\.jpg: exists and is not the output"):
        label(predictor, [images], outs, options=Options(summary=images / "b.jpg"))
    assert (images / "b.jpg").read_bytes() == picture("blue")


def test_processes_give_the_same_rows(predictor: Predictor, images: Path, tmp_path: Path) -> None:
    def written(workers: int) -> bytes:
        out = tmp_path / f"{workers}.csv"
        options = Options(embeddings=tmp_path / f"{workers}.npy")
        label(predictor, [images], [str(out)], options=options, batch_size=2, workers=workers)
        return out.read_bytes() + (tmp_path / f"{workers}.npy").read_bytes()

    assert written(2) == written(0)


def test_a_few_files_start_no_process(
    predictor: Predictor, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def noted(predictor: Predictor, workers: int, options: Options) -> Any:
        asked.append(workers)
        return running_batches(predictor, 0, options)

    monkeypatch.setattr(label_module, "running_batches", noted)
    for few in (7, 6):  # there are six
        monkeypatch.setattr(label_module, "_FEW", few)
        label(predictor, [images], [str(tmp_path / "rows.csv")])
    assert asked == [0, usable_cpus()]


def test_five_of_a_hundred_bad_in_every_way_are_rows(predictor: Predictor, tmp_path: Path) -> None:
    folder, out = tmp_path / "images", tmp_path / "rows.csv"
    folder.mkdir()
    bad = {name: file for name, file in nasty_files().items() if file.code != "ok"}
    for name, file in bad.items():
        (folder / name).write_bytes(file.data)
    num_good = 19 * len(bad)
    for number in range(num_good):
        (folder / f"good-{number}.jpg").write_bytes(picture("red"))
    summary = label(predictor, [folder], [str(out)], batch_size=8, workers=2)
    rows = {row["path"]: row for row in read_csv(out)}
    assert len(rows) == 20 * len(bad)
    assert {name: rows[name]["error_code"] for name in bad} == {n: f.code for n, f in bad.items()}
    assert summary.labels == {"red": num_good}
    assert summary.errors == Counter(file.code for file in bad.values())
    assert set(summary.errors) == {"empty", "not_an_image", "cannot_decode", "too_many_pixels"}


def test_what_an_earlier_try_did_is_not_in_the_rate(
    predictor: Predictor, images: Path, tmp_path: Path
) -> None:
    out = [str(tmp_path / "rows.csv")]
    with pytest.raises(DataError):
        label(predictor, [images], out, batch_size=2, max_errors=0)
    summary = label(predictor, [images], out, batch_size=2, resume=True)
    assert (summary.num_files, summary.resumed) == (6, 4)
    assert summary.images_per_second == pytest.approx(2 / summary.seconds)
    assert "       4  resumed from an earlier labelling" in summary.lines()


def test_files_of_a_list_are_left_out_and_another_list_is_not_resumed(
    predictor: Predictor, images: Path, tmp_path: Path
) -> None:
    out, names = tmp_path / "rows.jsonl", frozenset(["a", str(images / "sub" / "deep" / "r.jpg")])
    selection = FileSelection(excluded=Excluded(names))
    with pytest.raises(DataError, match="resume to continue"):
        label(predictor, [images], [str(out)], selection=selection, batch_size=1, max_errors=0)
    for other in (FileSelection(), FileSelection(excluded=Excluded(frozenset(["a"])))):
        with pytest.raises(UsageError, match="cannot resume: exclude_from was ") as told:
            label(predictor, [images], [str(out)], selection=other, batch_size=1, resume=True)
        assert "\n" not in str(told.value)
    done = label(predictor, [images], [str(out)], selection=selection, batch_size=1, resume=True)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["path"] for row in rows] == ["b.jpg", "cut.jpg", "text.jpg", "zero.png"]
    assert done.to_json()["excluded"] == 2
    assert "       2  left out by the list of --exclude-from" in done.lines()


def test_a_list_that_names_no_file_or_every_file_is_told(
    predictor: Predictor, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list").write_text("images/a\nimages/b.jpg\n")
    elsewhere = FileSelection(excluded=Excluded(frozenset(["source/a"])))
    done = label(predictor, [], ["-"], selection=elsewhere, files_from="list")
    assert (done.num_files, done.excluded) == (2, 0)
    assert done.lines()[-1].endswith("--exclude-from; expected absolute paths, or those of rows")
    names = frozenset(["images/a", str(images / "b.jpg")])  # as listed, and absolute
    selection = FileSelection(excluded=Excluded(names))
    with pytest.raises(DataError, match="found in list besides those of --exclude-from"):
        label(predictor, [], ["-"], selection=selection, files_from="list")
