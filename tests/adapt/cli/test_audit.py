import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.adapt.audit.test_copies import picture
from tests.bundles import make_bundle
from tests.conftest import Scda, TinyData


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two classes; a copy in each way, a file that is no image, and a name that is no text."""
    source, target = tmp_path / "source", tmp_path / "target"
    for label, at in (("red", 0), ("grey", 100)):
        (source / label).mkdir(parents=True)
        for number in range(9):
            image = picture(at + number)
            image = image if label == "red" else image.convert("L").convert("RGB")
            image.save(source / label / f"{number}.png")
    target.mkdir()
    shutil.copy(source / "red" / "0.png", target / "labelled.png")
    Image.open(source / "red" / "3.png").save(target / "leak.jpg", "JPEG", quality=95)
    shutil.copy(source / "red" / "1.png", source / "red" / "again.png")
    Image.open(source / "red" / "2.png").save(source / "grey" / "small.jpg", "JPEG")
    Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(target / "line\nbreak.png")
    (target / "text.png").write_text("no image")
    return source, target


def test_an_audit_finds_what_is_wrong_and_training_leaves_it_out(
    folders: tuple[Path, Path], tiny: TinyData, tmp_path: Path, scda: Scda
) -> None:
    source, target = folders
    bundle = make_bundle(tmp_path / "bundle")
    out, fix, cache = tmp_path / "out", tmp_path / "fix.txt", tmp_path / "cache"
    words = ("--backbone", "conv4", "--weights", tiny.weights, "--cache", cache)
    both = ("--source", source, "--target", target)
    done = scda("audit", *both, "--out", out, "--fix-list", fix, "--json", *words)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert (counts["source"], counts["target"]) == (20, 3)
    named = {kind: counts[kind] for kind in ("leak", "copy", "two classes", "rejected", "name")}
    assert named == {"leak": 2, "copy": 1, "two classes": 2, "rejected": 1, "name": 1}

    rows = csv.DictReader((out / "audit.csv").read_text().splitlines())
    removed = {(row["domain"], row["path"]) for row in rows if row["remove"] == "true"}
    assert {("source", "red/again.png"), ("target", "leak.jpg")} <= removed
    assert ("target", "labelled.png") not in removed
    assert counts["fix_list_files"] == len(removed)
    page = (out / "audit.html").read_text()
    assert page.count("data:image/jpeg") >= 6
    assert "http" not in page.replace("http-equiv", "")

    plan = scda("train", *both, "--out", tmp_path / "run", "--dry-run", "--json", *words)
    left = scda(
        *("train", *both, "--out", tmp_path / "run", "--dry-run", "--json", *words),
        *("--exclude-from", fix),
    )
    assert (plan.returncode, left.returncode) == (0, 0), left.stderr
    assert [json.loads(one.stdout)["target"] for one in (plan, left)] == ["3 images", "2 images"]
    for listed, count in ((fix, 2), (out / "audit.csv", 2)):  # a leak, and what is no image
        done = scda("label", bundle, target, "--out", "-", "--exclude-from", listed)
        assert (done.returncode, len(list(csv.reader(done.stdout.splitlines())))) == (0, 3)
        assert f"{count}  left out by the list" in done.stderr

    again = scda("audit", "--source", source, "--out", out, "--quiet", *words)
    assert again.returncode == 0, again.stderr
    assert "page: " in again.stdout


def test_an_audit_writes_neither_among_images_nor_over_other_files(
    folders: tuple[Path, Path], tmp_path: Path, scda: Scda
) -> None:
    source, _ = folders
    mine = tmp_path / "notes.txt"
    mine.write_text("mine")
    for words, said in (
        (("--out", source / "audit"), "inside"),
        (("--out", mine), "is a file"),
        (("--out", tmp_path / "out", "--fix-list", mine), "not the output of an earlier call"),
        (("--out", tmp_path / "out", "--fix-list", tmp_path / "no" / "x"), "no folder"),
    ):
        done = scda("audit", "--source", source, *words)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert said in done.stderr
    assert mine.read_text() == "mine"
