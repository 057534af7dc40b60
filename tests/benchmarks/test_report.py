from pathlib import Path

import pytest

from benchmarks import report


def test_a_made_up_target_is_reported_within_its_bars(
    tiny_run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--run", str(tiny_run), "--images", "30", "--width", "96"]
    before = (tiny_run / "report.html").read_bytes()
    assert report.main(arguments) == 0
    said = capsys.readouterr().out
    assert "PASS name=report_seconds" in said
    assert "PASS name=report_mb" in said
    assert (tiny_run / "report.html").read_bytes() == before  # the run itself is left alone
    monkeypatch.setattr(report, "_MOST_MB", 0.0)
    assert report.main(arguments) == 1
    assert "FAIL name=report_mb" in capsys.readouterr().out
