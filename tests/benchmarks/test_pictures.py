import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks import pictures, suite
from benchmarks.suites.contact_sheet import IMAGES_PER_ROW, Captioned, Row, contact_sheet

NAMES = ("cup", "pen", "axe", "zip")
SHORT = ["--set", "rounds=1", "round_steps=3", "pretrain_steps=30"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two domains of four classes with ten small images each, and a list of one task."""
    noise = np.random.default_rng(0)
    for domain in ("here", "there"):
        for name in NAMES:
            (tmp_path / domain / name).mkdir(parents=True)
            for number in range(10):
                pixels = noise.integers(0, 255, (24, 30, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / domain / name / f"{number}.jpg")
    (tmp_path / "tiny.toml").write_text(
        '[domain.here]\nfolder = "here"\n[domain.there]\nfolder = "there"\n'
        '[[task]]\nname = "shapes-half"\nkind = "half"\nfamily = "shapes"\nsource = "here"\n'
        'target = "there"\nknown = ["cup", "pen"]\nnew = ["axe", "zip"]\n'
    )
    return tmp_path


def given(folder: Path, records: str) -> list[str]:
    paths = {"--data": "", records: "out.jsonl", "--list": "tiny.toml", "--cache": "cache"}
    return [part for option, path in paths.items() for part in (option, str(folder / path))]


@pytest.mark.usefixtures("no_backbone")
def test_a_task_is_drawn_with_the_figures_of_its_record(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert suite.main([*given(folder, "--out"), *SHORT]) == 0
    record = json.loads((folder / "out.jsonl").read_text())
    capsys.readouterr()
    out = folder / "images"
    assert pictures.main([*given(folder, "--records"), "--out", str(out), *SHORT]) == 0
    shown = capsys.readouterr().out
    file = out / "shapes-half.jpg"
    heading = f"shapes-half: HOS {record['hos']:.1f}, k* {record['k_star']} of 2"
    assert f"![{heading}]({file.as_posix()})" in shown
    assert file.stat().st_size <= 100_000
    with Image.open(file) as sheet:
        assert sheet.format == "JPEG"


@pytest.mark.usefixtures("no_backbone")
def test_a_task_without_a_record_is_one_line_and_exit_code_2(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pictures.main([*given(folder, "--records"), "--out", str(folder / "images")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "found no run of shapes-half with seed 0" in line
    assert not (folder / "images").exists()


def test_the_best_and_the_worst_are_of_different_groups() -> None:
    figures = {"a-half": 90.0, "a-half-rev": 95.0, "b-half": 80.0, "c-half": 20.0, "c-rev": 10.0}
    records = [
        {"task": task, "family": task[0], "kind": "half", "hos": hos}
        for task, hos in figures.items()
    ]
    assert pictures.ends(records, best=2, worst=2) == ["a-half-rev", "b-half", "c-rev"]


def test_every_class_is_drawn_once_before_any_is_drawn_twice() -> None:
    classes = np.repeat([0, 1, 2], [50, 3, 2])
    rows = list(pictures.drawn(np.arange(len(classes)), classes))
    assert sorted(rows) == list(range(len(classes)))
    assert sorted(classes[rows[:6]]) == [0, 0, 1, 1, 2, 2]
    assert set(classes[rows[:3]]) == {0, 1, 2}


def test_a_sheet_grows_by_its_rows_and_keeps_to_its_size(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (90, 90, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "noise.png")
    image = Captioned(tmp_path / "noise.png", ("a name that is far too long to fit", "as it is"))
    row = Row("noise", (image,) * (IMAGES_PER_ROW + 5))
    sizes = []
    for rows in ([row], [row, Row("none", ())], [row, row]):
        file = contact_sheet(rows, 60_000)
        assert len(file) <= 60_000
        sizes.append(Image.open(io.BytesIO(file)).size)
    assert len({width for width, _ in sizes}) == 1
    heights = [height for _, height in sizes]
    assert heights == sorted(set(heights))
