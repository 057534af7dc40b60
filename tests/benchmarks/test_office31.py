import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import office31 as benchmark
from scda.adapt.features import Extracted
from studies import ABLATIONS, Request, ablation_runs


@pytest.fixture
def arguments(office31: Path, tmp_path: Path) -> list[str]:
    """One run without rounds, for the results file out.jsonl."""
    out, cache = str(tmp_path / "out.jsonl"), str(tmp_path / "cache")
    row = ["--study", "ablation", "--rows", "pre-training only", "--tasks", "A-W", "--seeds", "1"]
    return ["--root", str(office31), "--out", out, "--cache", cache, *row]


@pytest.fixture
def no_backbone(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make up features by class; return the number of images of every call."""
    calls: list[int] = []

    def extract(paths: Sequence[Path], *unused: object, **options: Any) -> Extracted:
        calls.append(len(paths))
        names = sorted({path.parent.name for path in paths})
        rows = [np.eye(32, dtype=np.float32)[names.index(path.parent.name)] for path in paths]
        return Extracted(list(paths), np.stack(rows), [path.name for path in paths], [])

    monkeypatch.setattr(benchmark, "extract", extract)
    monkeypatch.setattr(benchmark, "job_backbone", lambda config: None)
    monkeypatch.setattr(benchmark, "one_thread", lambda: None)
    return calls


def test_a_run_is_written_shown_and_not_done_again(
    arguments: list[str],
    no_backbone: list[int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out.jsonl"
    assert benchmark.main(arguments) == 0
    (line,) = out.read_text().splitlines()
    record = json.loads(line)
    assert (record["variant"], record["task"], record["k_star"]) == ("pre-training only", "A-W", 1)
    assert no_backbone == [10 * 4 + 21 * 3]
    first = capsys.readouterr()
    assert "| pre-training only |" in first.out
    assert "1 of 1" in first.err

    out.write_text(f'{line}\n{{"method": "sc')  # killed while it wrote the next one
    assert benchmark.main(arguments) == 0
    assert len(no_backbone) == 1
    second = capsys.readouterr()
    assert second.out == first.out
    assert "1 runs, 1 of them" in second.err


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--root", "/nowhere"], "/nowhere/amazon/images: the amazon folder does not exist"),
        (["--protocol", "P3"], "protocol is 'P3', want P1 or P2"),
        (["--study", "all"], "study is 'all', want main or ablation or k or stress"),
        (["--preset", "best"], "preset is 'best', want robust or paper"),
        (["--method", "osbp"], "method is 'osbp', want scda"),
        (["--tasks", "A-B"], "task is 'A-B'"),
        (["--rows", "k=2"], "study ablation has no row k=2"),
        (["--rows", "restarts=1", "restart=1"], "study ablation has no row restart=1"),
        (["--tasks", "A-W", "A-W"], "tasks are A-W A-W, want each once"),
        (["--seeds", "0"], "0 seeds and 1 jobs; want 1 or more"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(
    arguments: list[str], option: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert benchmark.main([*arguments, *option]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_every_ablation_is_a_config_of_its_own(office31: Path, tmp_path: Path) -> None:
    runs = ablation_runs(Request(office31, "P1", "ablation", "robust", ("A-W",), 1, tmp_path))
    assert [run.name["variant"] for run in runs] == [name for name, _ in ABLATIONS]
    assert len({run.config for run in runs}) >= len(ABLATIONS)
