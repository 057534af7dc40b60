import json
import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from scda.models.errors import UsageError
from scda.serve.labelling.formats.registry import FORMATS, HEADS
from scda.serve.labelling.outputs import DEFAULTS, Options, check_outputs, write_rows, written
from tests.rows import ABOUT, BAD, GOOD


def test_several_outputs_get_the_same_rows(tmp_path: Path) -> None:
    outs = [str(tmp_path / "rows.csv"), str(tmp_path / "rows.JSONL")]
    with write_rows(outs, ABOUT) as write:
        write([GOOD])
        write([BAD])
        assert not any(map(os.path.exists, outs))
    assert Path(outs[0]).read_bytes().count(b"\r\n") == 3
    assert len(Path(outs[1]).read_text().splitlines()) == 2
    assert len(list(tmp_path.iterdir())) == 2


def write_and_be_stopped(out: Path) -> None:
    with write_rows([str(out)], ABOUT) as write:
        write([GOOD])
        raise KeyboardInterrupt


def test_an_error_on_the_way_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    out.write_text("old")
    with pytest.raises(KeyboardInterrupt):
        write_and_be_stopped(out)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]
    assert out.read_text() == "old"


def test_a_dash_is_csv_on_standard_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with write_rows(["-"], ABOUT) as write:
        write([GOOD])
    lines = capfdbinary.readouterr().out.splitlines()
    assert lines[0].startswith(b"path,status,error_code,error,label,")
    assert lines[1].startswith(b"a/b.jpg,ok,")


@pytest.mark.parametrize(
    ("outs", "message"),
    [
        ([], r"no output; expected --out FILE ending in \.csv, \.jsonl, .*json, --out -, --emb"),
        (
            ["x.txt"],
            r"unknown ending; expected \.csv, .* or \.fiftyone\.json, or - for CSV",
        ),
        (["x.json"], r"x\.json: unknown ending"),
        (["x"], "x: unknown ending"),
        ([".csv"], r"\.csv: unknown ending"),
        (["x.csv", "./x.csv"], "the same output is given twice: .*x.csv"),
        (["-", "-"], "the same output is given twice: -"),
        (["nowhere/x.csv"], "no folder nowhere"),
        (["folder.csv"], r"folder\.csv: is a folder"),
        (["x.labelstudio.json"], r"x\.labelstudio\.xml: is a folder"),
    ],
)
def test_an_output_that_cannot_be_is_named(
    outs: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder.csv").mkdir()
    Path("x.labelstudio.xml").mkdir()
    with pytest.raises(UsageError, match=message):
        check_outputs(outs, DEFAULTS, [])


def test_a_summary_is_an_output_as_any_other(tmp_path: Path) -> None:
    options = Options(summary=tmp_path / "rows.jsonl")
    with pytest.raises(UsageError, match="the same output is given twice"):
        check_outputs([str(tmp_path / "rows.jsonl")], options, [])
    for place, found in ((tmp_path, "is a folder"), (tmp_path / "none" / "s", "no folder")):
        with pytest.raises(UsageError, match=found):
            check_outputs(["-"], Options(summary=place), [])


def test_features_go_to_npy_files_only(tmp_path: Path) -> None:
    check_outputs([], Options(embeddings=tmp_path / "x.npy"), [])
    with pytest.raises(UsageError, match=r"x\.csv: unknown ending; expected \.npy"):
        check_outputs([], Options(embeddings=tmp_path / "x.csv"), [])
    with pytest.raises(UsageError, match=r"x\.npy: unknown ending; expected \.csv"):
        check_outputs(["x.npy"], DEFAULTS, [])


def test_every_file_that_will_be_written_is_known() -> None:
    outs = ["a.csv", "-", "b.LabelStudio.json", "c.parquet"]
    names = [path.name for path in written(outs, Options(embeddings=Path("d.npy")))]
    assert names == ["a.csv", "b.LabelStudio.json", "c.parquet", "b.labelstudio.xml", "d.npy"]


def test_every_format_has_a_row_per_file(tmp_path: Path) -> None:
    outs = [tmp_path / f"rows{ending}" for ending in FORMATS]
    options = Options(embeddings=tmp_path / "rows.npy")
    with write_rows(list(map(str, outs)), ABOUT, options) as write:
        write([GOOD])
        write([BAD])
    csv, jsonl, parquet, tasks, labels = outs
    assert csv.read_bytes().count(b"\r\n") == 1 + 2
    assert jsonl.read_bytes().count(b"\n") == 2
    assert pq.read_metadata(parquet).num_rows == 2
    assert len(json.loads(tasks.read_bytes())) == 2
    assert len(json.loads(labels.read_bytes())["labels"]) == 2
    assert len(np.load(tmp_path / "rows.npy")) == 2
    for path in written(list(map(str, outs)), options):
        assert path.read_bytes().startswith(tuple(HEADS)), path


def sort_and_fail_at_the_end(folder: Path) -> None:
    options = Options(sort_into=folder / "sorted")
    with write_rows([str(folder / "rows.csv")], ABOUT, options) as write:
        write([BAD])
        (folder / "rows.csv").mkdir()  # what cannot be replaced


def test_an_error_at_the_end_takes_sorted_files_away(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"rows\.csv: cannot write: Is a directory"):
        sort_and_fail_at_the_end(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def write_much(out: Path) -> None:
    with write_rows([str(out)], ABOUT) as write:
        write([GOOD] * 1000)


@pytest.mark.parametrize("ending", FORMATS)
def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, ending: str) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(UsageError, match=f"rows{ending}: cannot write: .*File too large"):
            write_much(tmp_path / f"rows{ending}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
