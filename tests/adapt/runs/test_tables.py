import csv
from pathlib import Path

import pytest

from scda.adapt.runs.tables import (
    DISCOVERY,
    TargetRow,
    read_discovery,
    read_held_out,
    read_rejected,
)
from scda.models.bundle import bundle_folder
from scda.models.errors import GateError, UsageError
from scda.models.images import read_file
from scda.models.predictor import load_predictor
from tests.conftest import TinyData


def test_the_contracts_columns_come_first(tiny_run: Path) -> None:
    with (tiny_run / "discovery.csv").open() as file:
        header = next(csv.reader(file))
    assert header[:5] == ["path", "pseudo_label", "entropy", "cluster", "distance"]
    assert tuple(header) == DISCOVERY


def test_the_rows_agree_with_what_the_bundle_says(tiny: TinyData, tiny_run: Path) -> None:
    rows = read_discovery(tiny_run / "discovery.csv")
    assert len(rows) == 100
    predictor = load_predictor(bundle_folder(tiny_run), provider="cpu", threads=1)
    pixels = [predictor.prepare(read_file(tiny.target / row.path)) for row in rows]
    said = predictor.predict(pixels)
    for row, prediction in zip(rows, said, strict=True):
        assert row.cluster == prediction.class_id
        assert row.second == prediction.top[1]["class_id"]
        assert row.confidence == pytest.approx(prediction.confidence, abs=1e-3)
        assert row.margin == pytest.approx(prediction.margin, abs=1e-3)
    # At the very edge of a class the last digit decides.
    differing = [row for row, p in zip(rows, said, strict=True) if row.outlier != p.outlier]
    assert len(differing) <= 2
    assert any(row.outlier for row in rows)


def test_a_name_that_is_no_text_comes_back(tmp_path: Path) -> None:
    line = b"9\xe9\n.png,,0.5,known-000,0.1,0.9,0.8,known-001,true\n".replace(b"\n.", b".")
    (tmp_path / "discovery.csv").write_bytes(",".join(DISCOVERY).encode() + b"\n" + line)
    (row,) = read_discovery(tmp_path / "discovery.csv")
    assert row == TargetRow(
        "9\udce9.png", "", 0.5, "known-000", 0.1, 0.9, 0.8, "known-001", outlier=True
    )


def test_a_run_without_the_table_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="train it again"):
        read_discovery(tmp_path / "discovery.csv")


def test_a_table_of_an_older_version_is_told_what_to_do(tmp_path: Path) -> None:
    header = "path,pseudo_label,entropy,cluster,distance\n"
    (tmp_path / "discovery.csv").write_text(header)
    with pytest.raises(GateError, match="found no column confidence; train the run again"):
        read_discovery(tmp_path / "discovery.csv")


@pytest.mark.parametrize("line", ["a,,x,known-000,0,0,0,known-001,true", "a,,0,known-000"])
def test_a_damaged_table_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "discovery.csv").write_text(f"{','.join(DISCOVERY)}\n{line}\n")
    with pytest.raises(GateError, match="damaged"):
        read_discovery(tmp_path / "discovery.csv")


def test_no_table_of_rejected_files_is_an_empty_one(tmp_path: Path) -> None:
    assert read_rejected(tmp_path / "rejected.csv") == []


def test_a_run_without_a_second_training_has_no_held_out_images(tmp_path: Path) -> None:
    assert read_held_out(tmp_path / "held_out.csv") == []


@pytest.mark.parametrize(
    "text", ["path,x\na,b\n", "path,class_id,confidence,uncalibrated,agrees\na,b,x,0,true\n"]
)
def test_a_damaged_table_of_held_out_images_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "held_out.csv").write_text(text)
    with pytest.raises(GateError, match=r"held_out\.csv: damaged"):
        read_held_out(tmp_path / "held_out.csv")
