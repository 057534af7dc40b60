import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import second_chance
from benchmarks.open_set import runs
from benchmarks.open_set.runs import Inputs
from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.models.index import Features

QUICK = {"rounds": 1, "round_steps": 3, "pretrain_steps": 30}


@pytest.fixture
def arguments(tmp_path: Path, no_backbone: list[int], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One short task: two known and one new class with ten files each."""
    for domain in ("here", "there"):
        for name in ("cup", "pen", "axe"):
            (tmp_path / domain / name).mkdir(parents=True)
            for number in range(10):
                (tmp_path / domain / name / f"{number}.jpg").write_bytes(b"no image")
    (tmp_path / "tiny.toml").write_text(
        '[domain.here]\nfolder = "here"\n[domain.there]\nfolder = "there"\n'
        '[[task]]\nname = "shapes"\nfamily = "shapes"\nkind = "half"\nsource = "here"\n'
        'target = "there"\nknown = ["cup", "pen"]\nnew = ["axe"]\n'
    )
    changes = {"robust": QUICK, "lite2": {**QUICK, "backbone": "lite2"}}
    monkeypatch.setattr(second_chance, "_CHANGES", changes)
    paths = {"data": "", "out": "out.jsonl", "list": "tiny.toml", "cache": "cache"}
    given = [part for name, path in paths.items() for part in (f"--{name}", str(tmp_path / path))]
    return [*given, "--tasks", "shapes", "--labels", "4"]


def records(arguments: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(arguments[3]).read_text().splitlines()]


def test_every_variant_has_a_record_and_a_row_and_is_not_run_again(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert second_chance.main(arguments) == 0
    variants = ["robust", "robust, 4 labelled", "lite2"]
    assert [record["variant"] for record in records(arguments)] == variants
    printed = capsys.readouterr().out
    assert "| variant | shapes half | mean over tasks |" in printed
    assert all(f"| {variant} | " in printed for variant in variants)
    assert second_chance.main(arguments) == 0
    assert len(records(arguments)) == 3
    assert capsys.readouterr().out == printed


def test_a_person_who_sees_a_new_class_says_so(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, int]] = []
    train = runs.train

    def watched(inputs: Inputs, config: TrainConfig) -> runs.Trained:
        told.append((config.novel, len(inputs.source.labels)))
        return train(inputs, config)

    monkeypatch.setattr(runs, "train", watched)
    assert second_chance.main(arguments) == 0
    # One image of each of the two known classes joins the 20 of the source.
    assert told == [("auto", 20), ("yes", 22), ("auto", 20)]


def test_a_wrong_number_is_one_line_and_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert second_chance.main([*arguments, "--labels", "0"]) == 2
    assert "expected 1 or more seeds, jobs and labels" in capsys.readouterr().err


def blobs(count: int) -> Features:
    rng = np.random.default_rng(0)
    centres = 10 * np.eye(count, 8, dtype=np.float32)
    return np.asarray(np.repeat(centres, 6, axis=0) + rng.normal(size=(6 * count, 8)), np.float32)


def test_representatives_are_one_image_of_every_cluster() -> None:
    rows = second_chance.representatives(blobs(5), 5, seed=0)
    assert sorted(rows // 6) == [0, 1, 2, 3, 4]


def test_no_more_representatives_than_images() -> None:
    rows = second_chance.representatives(blobs(1), 20, seed=0)
    assert rows.tolist() == [0, 1, 2, 3, 4, 5]


def test_labelled_images_are_in_both_domains() -> None:
    target = torch.arange(12.0).reshape(4, 3)
    inputs = Inputs(Labelled(torch.zeros(2, 3), torch.tensor([0, 1])), target)
    joined = second_chance.with_labels(inputs, np.array([1, 3]), np.array([0, 1, 2, 0]))
    torch.testing.assert_close(joined.source.features[2:], target[[1, 3]])
    assert joined.source.labels.tolist() == [0, 1, 1, 0]
    assert joined.target is target
    assert joined.shared
    assert joined.shared.rows.tolist() == [2, 3]
    assert joined.shared.twins.tolist() == [1, 3]
    assert joined.shared.labels.tolist() == [-1, 1, -1, 0]
    none = second_chance.with_labels(inputs, np.array([], int), np.array([0, 1, 2, 0]))
    assert none.shared is None
