import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import suite
from scda.models.errors import UsageError

NAMES = ("cup", "pen", "axe", "zip")


@pytest.fixture
def arguments(tmp_path: Path, no_backbone: list[int]) -> list[str]:
    """Two short tasks on a tree of four classes with ten files each, and where results go."""
    for domain in ("here", "there"):
        for name in NAMES:
            (tmp_path / domain / name).mkdir(parents=True)
            for number in range(10):
                (tmp_path / domain / name / f"{number}.jpg").write_bytes(b"no image")
    domains = "".join(f'[domain.{name}]\nfolder = "{name}"\n' for name in ("here", "there"))
    both = 'family = "shapes"\nsource = "here"\ntarget = "there"\nknown = ["cup", "pen"]\n'
    tasks = (
        f'[[task]]\nname = "shapes-half"\nkind = "half"\n{both}new = ["axe", "zip"]\n'
        f'[[task]]\nname = "shapes-none"\nkind = "none"\n{both}'
    )
    (tmp_path / "tiny.toml").write_text(domains + tasks)
    paths = {"data": "", "out": "out.jsonl", "list": "tiny.toml", "cache": "cache"}
    given = [part for name, path in paths.items() for part in (f"--{name}", str(tmp_path / path))]
    # Copies of one image per class are no evidence of new classes.
    return [*given, "--set", "novel=yes", "rounds=1", "round_steps=3", "pretrain_steps=30"]


def records(arguments: list[str]) -> list[dict[str, Any]]:
    lines = Path(arguments[3]).read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_every_task_has_a_record_and_is_not_run_again(
    arguments: list[str], no_backbone: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert suite.main(arguments) == 0
    half, none = records(arguments)
    assert (half["task"], half["family"], half["kind"]) == ("shapes-half", "shapes", "half")
    assert (none["kind"], none["k_true"], none["protocol"]) == ("none", 0, "tiny")
    assert half["k_true"] == 2
    assert half["variant"] == "novel=yes pretrain_steps=30 round_steps=3 rounds=1"
    wanted = {"method", "backbone", "preset", "seed", "status", "hos", "os_star", "k_star"}
    wanted |= {"nmi_implicit", "correspondence_5", "seconds", "expected_accuracy"}
    assert wanted <= half.keys()
    assert {"size", "stability", "leak", "purity", "known"} == half["classes"][0].keys()
    assert no_backbone == [20 + 40]  # each image once, though both tasks see it
    first = capsys.readouterr()
    assert "| shapes half | 1 | " in first.out
    assert "mean over 2 groups" in first.out

    assert suite.main([*arguments, "--seeds", "2", "--kinds", "none"]) == 0
    assert [(one["kind"], one["seed"]) for one in records(arguments)[2:]] == [("none", 1)]
    assert "2 runs, 1 already in" in capsys.readouterr().err


def test_a_thinned_target_is_another_variant(arguments: list[str]) -> None:
    assert suite.main([*arguments, "--kinds", "half", "--thin", "skewed"]) == 0
    (thin,) = records(arguments)
    assert thin["variant"].endswith("rounds=1 thin=skewed")
    assert suite.main([*arguments, "--kinds", "half"]) == 0
    assert "thin" not in records(arguments)[1]["variant"]


def test_methods_share_the_tasks_and_the_file(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    methods = ["--method", "source_only", "osbp"]
    assert suite.main([*arguments, *methods, "--kinds", "half"]) == 0
    assert suite.main([*arguments, *methods]) == 0
    done = [(one["task"], one["method"]) for one in records(arguments)]
    tasks = ("shapes-half", "shapes-none")
    assert done == [(task, method) for task in tasks for method in methods[1:]]
    out = capsys.readouterr().out
    assert "| group | tasks | source_only | osbp |" in out
    assert "expected accuracy" not in out  # the summary is about scda

    assert suite.main([*arguments, "--method", "scda", "osbp"]) == 0
    out = capsys.readouterr().out
    assert "Tasks on which a method is ahead of scda" in out
    assert "expected accuracy" in out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--tasks", "moon-*"], "no task matches moon-*; expected names such as shapes-half"),
        (["--tasks", "*-half", "--kinds", "none"], "no task matches *-half and is of kind none"),
        (["--seeds", "0"], "expected 1 or more seeds and jobs, found 0 and 1"),
        (["--set", "moon=1"], "OPTION=VALUE with an option of train, found 'moon=1'"),
        (["--set", "k=many"], "--set k=many: expected int, found 'many'"),
        (["--set", "finetune=last"], "the suite works on frozen features"),
        (["--data", "/nowhere"], "/nowhere/here/cup: cannot read the folder"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(
    arguments: list[str], more: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert suite.main([*arguments, *more]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_setting_has_the_type_of_its_option() -> None:
    given = ["k=3", "lr=0.01", "temperature=2", "novel=yes", "head_widths=[64, 32]"]
    assert suite.changed(given) == {
        "k": 3,
        "lr": 0.01,
        "temperature": 2.0,
        "novel": "yes",
        "head_widths": (64, 32),
    }
    with pytest.raises(UsageError, match="OPTION=VALUE"):
        suite.changed(["novel"])
