import re

import pytest

from scda.adapt.runtime import progress
from scda.adapt.runtime.progress import Reporter


@pytest.fixture(autouse=True)
def a_line_for_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_LINE_EVERY_SECONDS", -1.0)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    said = capsys.readouterr()
    assert said.out == ""
    return said.err.splitlines()


def test_each_piece_of_work_is_counted_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter() as reporter:
        reporter.begin("labelling", 0)
        reporter.done(3)
        reporter.done(4, 10)
        reporter.begin("pictures", 5)
        reporter.done(5)
    assert lines(capsys) == ["labelling: 3", "labelling: 4 of 10", "pictures: 5 of 5"]


def test_expected_pieces_share_one_bar_with_what_is_to_be_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Reporter() as reporter:
        reporter.expect(100)
        reporter.begin("images", 20)
        reporter.done(20)
        reporter.begin("round 1 of 2", 40)
        reporter.done(30, note="k* 4, source 0.25")
    first, second = lines(capsys)
    assert first.startswith("images: 20 of 20; 20% of the run")
    assert second.startswith("round 1 of 2: 30 of 40, k* 4, source 0.25; 50% of the run")


def test_time_left_is_told_once_there_is_a_speed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 10_000, 2))  # every look at the clock is two seconds later
    reporter = Reporter()
    monkeypatch.setattr(reporter._progress, "get_time", lambda: float(next(clock)))
    reporter.expect(100)
    reporter.begin("images", 100)
    for done in range(10, 60, 10):
        reporter.done(done)
    assert re.search(r"50% of the run, 0:\d\d:\d\d left$", lines(capsys)[-1])


def test_what_was_done_before_counts_in_place_of_what_was_just_begun(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Reporter() as reporter:
        reporter.expect(100)
        reporter.begin("pre-training", 40)
        reporter.skip(60)
        reporter.begin("round 1 of 1", 40)
        reporter.done(20)
    assert lines(capsys)[-1].startswith("round 1 of 1: 20 of 40; 80% of the run")


def test_a_finished_run_gives_the_bar_back(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter() as reporter:
        reporter.expect(100)
        reporter.begin("images", 100)
        reporter.done(100)
        reporter.expect(0)
        reporter.begin("labelling", 4)
        reporter.done(1)
    assert lines(capsys)[-1] == "labelling: 1 of 4"


def test_quiet_leaves_warnings_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter(quiet=True) as reporter:
        reporter.say("a message")
        reporter.begin("images", 2)
        reporter.done(1)
        reporter.warn("look at this")
    assert lines(capsys) == ["warning: look at this"]
