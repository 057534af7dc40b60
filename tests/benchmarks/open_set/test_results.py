from pathlib import Path

import pytest

from benchmarks.open_set import results
from scda.models.errors import UsageError


def test_records_come_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "new" / "out.jsonl"
    records = [{"task": "A-W", "os": 90.5, "status": ["ok"]}, {"task": "D-W", "os": 93.67}]
    for record in records:
        results.append(path, record)
    assert results.read(path) == records


def test_a_file_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert results.read(tmp_path / "out.jsonl") == []


def test_a_torn_last_line_is_no_record_and_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text('{"seed": 0}\n{"seed": 1, "ta')
    assert results.read(path) == [{"seed": 0}]
    results.append(path, {"seed": 2})
    assert path.read_text() == '{"seed": 0}\n{"seed": 2}\n'


def test_a_last_record_without_line_feed_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text('{"seed": 0}\n{"seed": 1}')
    assert results.read(path) == [{"seed": 0}, {"seed": 1}]
    results.append(path, {"seed": 2})
    assert results.read(path) == [{"seed": 0}, {"seed": 1}, {"seed": 2}]


def test_what_is_no_results_file_is_not_destroyed(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("remember the milk")
    with pytest.raises(UsageError, match="would overwrite it"):
        results.append(path, {"seed": 2})
    assert path.read_text() == "remember the milk"


@pytest.mark.parametrize("line", ["path,status", "[1, 2]"])
def test_another_file_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text(f'{{"seed": 0}}\n{line}\n{{"seed": 1}}\n')
    with pytest.raises(UsageError, match="line 2 is not a JSON object"):
        results.read(path)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the results"):
        results.read(tmp_path)


def test_figures_do_not_make_another_run_and_names_do() -> None:
    run = {"method": "scda", "task": "A-W", "variant": "main", "seed": 0}
    assert results.key({**run, "os": 90.0}) == results.key(run)
    assert results.key({**run, "variant": "k=1"}) != results.key(run)
    assert results.key({**run, "seed": 1}) != results.key(run)


def test_weights_tell_runs_apart() -> None:
    run = {"method": "scda", "backbone": "timm/net", "task": "A-W", "seed": 0}
    assert results.key({**run, "weights": "a"}) != results.key({**run, "weights": "b"})
