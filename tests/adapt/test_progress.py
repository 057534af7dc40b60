import re
import time

import pytest

from scda.adapt import progress
from scda.adapt.progress import Reporter


def test_without_a_terminal_a_line_says_the_rate_and_the_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with Reporter() as reporter:
        reporter.begin("labelling", 0)
        now += 1
        reporter.done(5, 1000, note="0 failed")  # too early for another line
        now += 19
        reporter.done(100, 1000, note="3 failed")
        now += 30
        reporter.done(400, 1000, note="3 failed")
    assert capsys.readouterr().err.splitlines() == [
        "labelling: 100 of 1000, 3 failed, 5.0/s, 0:03:00 left",
        "labelling: 400 of 1000, 3 failed, 10.0/s, 0:01:00 left",
    ]


def test_a_terminal_has_a_bar_with_the_rate_and_the_errors(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # what makes a terminal of it
    monkeypatch.setenv("COLUMNS", "120")
    with Reporter() as reporter:
        reporter.begin("labelling", 0)
        for done in range(10, 100, 10):
            time.sleep(0.01)
            reporter.done(done, 1000, note="3 failed")
        reporter._progress.refresh()
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)
    assert re.search(r"labelling .* 90/1000 \d+\.\d/s 3 failed \d:\d\d:\d\d", shown)
    assert progress._LINE_EVERY_SECONDS > 1  # no line beside the bar
    assert "90 of" not in shown
