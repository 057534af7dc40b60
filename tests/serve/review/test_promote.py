import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scda.models.errors import DataError, GateError, UsageError
from scda.serve.files.class_folders import ClassFolders
from scda.serve.files.target_images import TargetImage
from scda.serve.review.promote import Promotion, promote
from tests.bundles import make_bundle, picture

ROWS = [
    ("sub/a.jpg", "known-000", 0.9, "blue"),
    ("b.jpg", "discovered-000", 0.95, "yellow"),
    ("sub/b.jpg", "discovered-000", 0.85, "yellow"),
    ("c.jpg", "discovered-000", 0.45, "yellow"),
    ("d.jpg", "discovered-001", 0.9, "cyan"),
]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    for name, _, _, colour in ROWS:
        path = tmp_path / "target" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(colour))
    return tmp_path / "target"


@pytest.fixture
def bundle(tmp_path: Path, target: Path) -> Path:
    folder = make_bundle(tmp_path / "bundle")
    write_rows(folder, ROWS)
    fields = json.loads((folder / "bundle.json").read_text())
    fields["run"]["target"] = str(target)
    (folder / "bundle.json").write_text(json.dumps(fields))
    return folder


def write_rows(folder: Path, rows: list[tuple[str, str, float, str]]) -> None:
    names = ("path", "class_id", "confidence")
    table = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    pq.write_table(pa.table(table), folder / "neighbours.parquet")


def say(bundle: Path, **fields: Any) -> None:
    (bundle / "names.json").write_text(json.dumps({"version": 1, **fields}))


def placed(out: Path) -> list[str]:
    return sorted(path.relative_to(out).as_posix() for path in out.rglob("*.jpg"))


def test_named_and_known_classes_become_folders(bundle: Path, tmp_path: Path) -> None:
    say(bundle, labels={"discovered-000": "lemon/yellow"})
    out = tmp_path / "out"
    promotion = promote(bundle, out)
    assert placed(out) == ["blue/a.jpg", "lemon_yellow/b-2.jpg", "lemon_yellow/b.jpg"]
    assert promotion == Promotion(
        counts={"lemon/yellow": 2, "blue": 1}, unnamed=1, unsure=1, missing=0, changed=0
    )
    assert (out / "blue/a.jpg").read_bytes() == picture("blue")
    rows = list(csv.DictReader((out / "manifest.csv").read_text().splitlines()))
    assert rows[1] == {
        "placed_at": "lemon_yellow/b.jpg",
        "origin": "target",
        "path": "b.jpg",
        "class_id": "discovered-000",
        "label": "lemon/yellow",
        "confidence": "0.950000",
    }
    assert {row["placed_at"] for row in rows} == set(placed(out))


def test_what_was_merged_into_a_class_goes_along(bundle: Path, tmp_path: Path) -> None:
    say(bundle, merges={"discovered-000": "known-002", "discovered-001": "known-002"})
    promotion = promote(bundle, tmp_path / "out")
    assert promotion.counts == {"red": 3, "blue": 1}


def test_a_dropped_class_stays_out(bundle: Path, tmp_path: Path) -> None:
    say(bundle, labels={"discovered-000": "x", "discovered-001": "y"}, drops=["discovered-000"])
    assert promote(bundle, tmp_path / "out").counts == {"blue": 1, "y": 1}


def test_the_bar_is_the_callers(bundle: Path, tmp_path: Path) -> None:
    say(bundle, labels={"discovered-000": "x"})
    assert promote(bundle, tmp_path / "low", min_confidence=0).counts["x"] == 3
    with pytest.raises(DataError, match=r"4 have a known or named class, 0 of these .* at least 1"):
        promote(bundle, tmp_path / "high", min_confidence=1)
    assert not (tmp_path / "high").exists()


def test_source_images_come_along_under_the_new_names(bundle: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in ("blue/s.jpg", "green/s.jpg", "red/s.jpg", "beside.jpg"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(picture("red"))
    labels = {"discovered-000": "x", "known-000": "ocean"}
    say(bundle, labels=labels, merges={"known-001": "known-000"})
    promote(bundle, tmp_path / "out", source=source)
    assert placed(tmp_path / "out") == [
        "ocean/a.jpg",
        "ocean/s-2.jpg",
        "ocean/s.jpg",
        "red/s.jpg",
        "x/b-2.jpg",
        "x/b.jpg",
    ]


def test_a_linked_class_folder_of_the_source_is_followed(bundle: Path, tmp_path: Path) -> None:
    say(bundle, labels={"discovered-000": "x"})
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "s.jpg").write_bytes(picture("blue"))
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "blue").symlink_to(tmp_path / "elsewhere")
    promote(bundle, tmp_path / "out", source=tmp_path / "source")
    assert "blue/s.jpg" in placed(tmp_path / "out")
    with pytest.raises(UsageError, match="expected the labelled images"):
        promote(bundle, tmp_path / "other", source=tmp_path / "none")


def test_a_class_named_like_the_manifest_has_a_folder_beside_it(
    bundle: Path, tmp_path: Path
) -> None:
    say(bundle, labels={"discovered-000": "manifest.csv"})
    promote(bundle, tmp_path / "out")
    assert (tmp_path / "out" / "manifest.csv").is_file()
    assert "manifest.csv-2/b.jpg" in placed(tmp_path / "out")


def test_a_strange_source_is_refused(bundle: Path, tmp_path: Path) -> None:
    say(bundle, labels={"discovered-000": "x"})
    (tmp_path / "source" / "violet").mkdir(parents=True)
    (tmp_path / "source" / "violet" / "a.jpg").write_bytes(b"")
    with pytest.raises(UsageError, match="violet is not a known class"):
        promote(bundle, tmp_path / "out", source=tmp_path / "source")
    assert not (tmp_path / "out").exists()


def test_images_that_went_away_are_counted(bundle: Path, target: Path, tmp_path: Path) -> None:
    say(bundle, labels={"discovered-000": "x"})
    (target / "b.jpg").unlink()
    promotion = promote(bundle, tmp_path / "out")
    assert (promotion.missing, promotion.counts["x"]) == (1, 1)
    assert "       1  left out: no longer in the target folder" in promotion.lines()


def test_the_target_may_have_moved(bundle: Path, target: Path, tmp_path: Path) -> None:
    say(bundle, labels={"discovered-000": "x"})
    moved = target.rename(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="--target DIR"):
        promote(bundle, tmp_path / "out")
    assert promote(bundle, tmp_path / "out", target=moved).counts["x"] == 2


def test_without_a_name_there_is_nothing_to_promote(bundle: Path, tmp_path: Path) -> None:
    say(bundle, labels={"known-000": "ocean"})
    with pytest.raises(UsageError, match="no discovered class has a name yet"):
        promote(bundle, tmp_path / "out")


def test_what_is_there_is_not_written_over(bundle: Path, tmp_path: Path) -> None:
    say(bundle, labels={"discovered-000": "x"})
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="exists already"):
        promote(bundle, tmp_path / "out")


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside.jpg"])
def test_a_bundle_cannot_reach_out_of_the_target(bundle: Path, tmp_path: Path, path: str) -> None:
    say(bundle, labels={"discovered-000": "x"})
    write_rows(bundle, [(path, "discovered-000", 0.9, "red")])
    with pytest.raises(GateError, match="expected paths inside the target folder"):
        promote(bundle, tmp_path / "out")


def test_a_bundle_without_neighbours_is_told(bundle: Path, tmp_path: Path) -> None:
    say(bundle, labels={"discovered-000": "x"})
    (bundle / "neighbours.parquet").unlink()
    with pytest.raises(GateError, match=r"no neighbours\.parquet"):
        promote(bundle, tmp_path / "out")


@pytest.mark.parametrize("mode", ["copy", "hardlink", "symlink"])
def test_what_changes_while_it_is_copied_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    target, out = tmp_path / "photos", tmp_path / "out"
    target.mkdir()
    for name in ("a.jpg", "b.jpg"):
        (target / name).write_bytes(picture("red"))
    folder = make_bundle(tmp_path / "whole", targets={"a.jpg": "red", "b.jpg": "red"})
    say(folder, labels={"discovered-000": "x"})
    digest = hashlib.sha256(picture("red")).hexdigest()
    images = [TargetImage(name, "discovered-000", 0.9, digest) for name in ("a.jpg", "b.jpg")]
    monkeypatch.setattr("scda.serve.review.promote.read_target_images", lambda bundle: images)
    whole = ClassFolders.place

    def place(self: ClassFolders, file: Path, folder: str) -> Path:
        if file.name in changing:
            file.write_bytes(picture("blue"))
        return whole(self, file, folder)

    monkeypatch.setattr(ClassFolders, "place", place)
    changing = {"b.jpg"}
    promotion = promote(folder, out, target=target, mode=mode)
    assert (promotion.counts, promotion.changed) == ({"x": 1}, 1)
    assert placed(out) == ["x/a.jpg"]
    assert "b.jpg" not in (out / "manifest.csv").read_text()
    changing = {"a.jpg", "b.jpg"}
    with pytest.raises(DataError, match=r"0 of these have the content"):
        promote(folder, tmp_path / "none", target=target, mode=mode)
    assert not (tmp_path / "none").exists()
