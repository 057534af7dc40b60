from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from scda.adapt.config import TrainConfig
from scda.adapt.discovery.discover import Discovery
from scda.adapt.discovery.findings import Finding, Status
from scda.adapt.discovery.selection import Candidates, empty_ids
from scda.adapt.pipeline.events import Events
from scda.adapt.pipeline.run_reporter import RunReporter, steps_before
from scda.adapt.runs.folder import RunFolder
from scda.adapt.runtime.progress import Reporter
from scda.adapt.training.networks import Networks
from scda.adapt.training.state import RunState

CONFIG = TrainConfig(pretrain_steps=100, round_steps=60, rounds=3, lr=0.01)
NETWORKS = Networks(nn.Identity(), nn.Identity())
ONE_SIDED = Finding(Status.GAME_COLLAPSED, "for a whole round", "use another --lr")


def run_reporter(run: Path, **changes: Any) -> RunReporter:
    run.mkdir(exist_ok=True)
    fields: dict[str, Any] = {"reporter": Reporter(), "events": Events(), "config": CONFIG}
    fields |= {"num_known": 3, "num_target": 50, **changes}
    reporting = RunReporter(RunFolder(run), **fields)
    reporting.begin()
    return reporting


def stage(number: int, **fields: Any) -> RunState:
    found = Discovery(2, Candidates(empty_ids(), empty_ids(), empty_ids()), empty_ids(), None)
    usual: dict[str, Any] = {"unknown_share": 0.4, "losses": {"source": 0.5}, "seconds": 1.0}
    usual["discovery"] = found if number else None
    return RunState(number, NETWORKS, torch.empty(0), **{**usual, **fields})


def test_losses_are_written_every_fifty_steps_and_stages_at_their_end(tmp_path: Path) -> None:
    reporting = run_reporter(tmp_path)
    for step in range(1, 101):
        reporting.on_step(step, {"source": 1.0 / step})
    reporting.on_stage(stage(0))
    reporting.on_step(50, {"source": 0.25})
    first, second, pretrained, third = reporting.run.records()
    assert [(line["during"], line["step"]) for line in (first, second, third)] == [
        (0, 50),
        (0, 100),
        (1, 50),
    ]
    assert third["losses"] == {"source": 0.25}
    assert (pretrained["round"], pretrained["skipped"], pretrained["returns"]) == (0, 0, 0)


def test_a_skipped_step_has_no_losses_to_write(tmp_path: Path) -> None:
    reporting = run_reporter(tmp_path)
    reporting.on_step(50, {})
    assert not reporting.run.metrics.exists()


def test_a_warning_is_said_once_and_written_every_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reporting = run_reporter(tmp_path)
    for number in (1, 2):
        reporting.on_stage(stage(number, findings=(ONE_SIDED,)))
    assert capsys.readouterr().err.count(f"warning: {ONE_SIDED}") == 1
    assert [line["warnings"] for line in reporting.run.records()] == [[str(ONE_SIDED)]] * 2


def test_unsteady_training_is_told_with_what_to_try(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_reporter(tmp_path).on_stage(stage(1, skipped=4, restarts=1))
    said = capsys.readouterr().err
    assert "4 steps without a finite loss were skipped" in said
    assert "training returned to the last checkpoint 1 times" in said
    assert "a smaller --lr than 0.01" in said


def test_a_resumed_run_keeps_the_lines_of_what_it_does_not_do_again(tmp_path: Path) -> None:
    reporting = run_reporter(tmp_path)
    for number in range(2):
        reporting.on_step(50, {"source": 1.0})
        reporting.on_step(100, {"source": 1.0})
        reporting.on_stage(stage(number))
    (tmp_path / "checkpoints").mkdir()
    torch.save({}, tmp_path / "checkpoints" / "round-0000.pt")
    again = run_reporter(tmp_path)
    again.on_resume(0, 60)
    places = ("round", "during", "step")
    kept = [tuple(line.get(place) for place in places) for line in again.run.records()]
    assert kept == [(None, 0, 50), (None, 0, 100), (0, None, None), (None, 1, 50)]


@pytest.mark.parametrize(("number", "steps"), [(0, 0), (1, 100), (2, 160), (4, 280)])
def test_the_steps_before_a_stage(number: int, steps: int) -> None:
    assert steps_before(number, CONFIG, 3, 50) == steps
