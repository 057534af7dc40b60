from pathlib import Path

import pytest

pytest.importorskip("psutil", reason="the extra bench is not installed")

from benchmarks import startup


def test_medians_without_the_first_start_are_compared_with_their_bounds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    of_serve, of_label = iter([9.0, 1.5, 1.9, 2.5]), iter([9.0, 1, 2, 3])
    monkeypatch.setattr(startup, "until_ready", lambda bundle: next(of_serve))
    monkeypatch.setattr(startup, "until_first_row", lambda bundle, images: next(of_label))
    assert startup.main(["--bundle", "b", "--images", "i", "--starts", "3"]) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "PASS name=startup_serve ratio=1.9 bar=2",
        "FAIL name=startup_label ratio=2 bar=1.5",
    ]


def test_a_labelling_without_a_row_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startup, "sys", type("Python", (), {"executable": "true"}))
    with pytest.raises(SystemExit, match="no row"):
        startup.until_first_row(tmp_path, tmp_path)
