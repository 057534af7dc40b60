from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from scda.adapt.pipeline.events import check_tensorboard, open_events
from scda.models.errors import UsageError

RECORDS: list[tuple[dict[str, Any], int]] = [
    ({"during": 0, "step": 50, "losses": {"source": 0.5, "adversarial": 0.7}}, 50),
    ({"round": 0, "unknown_share": 0.25, "losses": {"source": 9.0}, "seconds": 1.5}, 60),
    ({"round": 1, "unknown_share": 0.5, "k_star": 3, "k_scda": None, "seconds": 2.0}, 100),
]


def test_numbers_can_be_read_by_tensorboard(tmp_path: Path) -> None:
    with open_events(tmp_path / "tensorboard") as events:
        for record, step in RECORDS:
            events.add(record, step)
        # While the run goes on: what was added is there.
        accumulator = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    read = {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }
    assert read == {
        "loss/source": [(50, 0.5)],
        "loss/adversarial": [(50, pytest.approx(0.7))],
        "round/unknown_share": [(60, 0.25), (100, 0.5)],
        "round/seconds": [(60, 1.5), (100, 2.0)],
        "round/k_star": [(100, 3.0)],
    }


def test_what_is_done_again_takes_the_place_of_what_was_done(tmp_path: Path) -> None:
    for share in (0.25, 0.75):
        with open_events(tmp_path) as events:
            if share < 0.5:
                events.add(*RECORDS[0])
            events.add({"round": 0, "unknown_share": share}, 60)
    accumulator = EventAccumulator(str(tmp_path)).Reload()
    assert [event.value for event in accumulator.Scalars("round/unknown_share")] == [0.75]
    assert [event.value for event in accumulator.Scalars("loss/source")] == [0.5]


def test_without_the_option_nothing_is_written(tmp_path: Path) -> None:
    with open_events(None) as events:
        events.add(*RECORDS[0])
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    check_tensorboard()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'scda\[tensorboard\]'"):
        check_tensorboard()
