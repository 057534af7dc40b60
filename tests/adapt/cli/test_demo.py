"""The demo's command, around a run that is already there."""

from pathlib import Path

import pytest

from scda.adapt.demo.demo import Demo
from tests.conftest import Scda, TinyData


def test_what_was_measured_is_printed(
    scda: Scda, tiny: TinyData, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bins = [{"kind": "known", "low": 0.0, "high": 0.1}]
    metrics = {"os_star": 98.9, "k_star": 5, "reliability": bins}
    made = Demo(tiny_run / "bundle", tiny_run / "report.html", tiny.target, metrics)
    monkeypatch.setattr("scda.adapt.demo.demo.run_demo", lambda *_, **__: made)
    (tmp_path / "demo").mkdir()
    done = scda("demo", "--out", tmp_path / "demo", "--overwrite", "--quiet")
    assert done.stdout.split()[:4] == ["os_star", "98.9", "k_star", "5"]
    assert f"report: {made.report}" in done.stdout
    assert (tmp_path / "demo" / "labels.csv").is_file()
