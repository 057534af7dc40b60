import hashlib
import json
from pathlib import Path

import pytest

from benchmarks import office31 as benchmark
from benchmarks.open_set.protocols import PROTOCOLS
from benchmarks.open_set.studies import ABLATIONS, Request, ablation_runs, main_runs, ratio_runs


@pytest.fixture
def arguments(office31: Path, tmp_path: Path) -> list[str]:
    """One run without rounds, for the results file out.jsonl."""
    out, cache = str(tmp_path / "out.jsonl"), str(tmp_path / "cache")
    row = ["--study", "ablation", "--rows", "pre-training only", "--tasks", "A-W", "--seeds", "1"]
    return ["--root", str(office31), "--out", out, "--cache", cache, *row]


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
    assert "1 runs, 1 already in" in second.err


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--root", "/nowhere"], "/nowhere/amazon/images: the amazon folder does not exist"),
        (["--preset", "office-home"], "preset office-home trains the backbone; these studies are"),
        (["--weights", "nowhere.pt"], "nowhere.pt: cannot read the weights"),
        (["--protocol", "P3"], "protocol is 'P3'; expected P1 or P2"),
        (["--study", "all"], "study is 'all', expected main or ablation or k or stress or ratio"),
        (["--preset", "best"], "preset is 'best'"),
        (["--method", "osb"], "method is 'osb'; expected scda or scda_yes or source_only or osbp"),
        (["--method", "osbp"], "study ablation measures scda alone"),
        (["--study", "main", "--method", "osbp", "--method", "osbp"], "methods are osbp osbp"),
        (["--figure", "a.png"], "study ablation has no figure"),
        (["--tasks", "A-B"], "task is 'A-B'"),
        (["--rows", "k=2"], "study ablation has no row k=2"),
        (["--rows", "restarts=1", "restart=1"], "study ablation has no row restart=1"),
        (["--tasks", "A-W", "A-W"], "tasks are A-W A-W, expected each once"),
        (["--seeds", "0"], "0 seeds and 1 jobs; expected 1 or more"),
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


def test_methods_and_scda_stand_in_one_table(
    arguments: list[str], no_backbone: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    main = arguments.index("--study")
    given = [*arguments[:main], "--tasks", "A-W", "--seeds", "1", "--method", "source_only"]
    assert benchmark.main(given) == 0
    out = capsys.readouterr().out
    assert out.startswith("## Every method, means over tasks")
    assert "| source_only | " in out
    assert "per round" not in out


def test_the_study_of_ratios_takes_the_first_implicit_classes(
    office31: Path, tmp_path: Path
) -> None:
    request = Request(
        office31, "P1", "ratio", "robust", ("A-W",), 1, tmp_path, (), ("scda", "osbp")
    )
    runs = ratio_runs(request)
    assert [run.name["variant"] for run in runs[::2]] == [str(n) for n in range(2, 12)]
    assert {run.name["method"] for run in runs} == {"scda", "osbp"}
    for run in runs:
        count = int(run.name["variant"])
        names = {path.parent.name for path in run.lists.target}
        assert names == {*PROTOCOLS["P1"].known, *PROTOCOLS["P1"].implicit[:count]}


def test_scda_without_asking_is_a_row_of_its_own(office31: Path, tmp_path: Path) -> None:
    methods = ("scda", "scda_yes", "osbp")
    request = Request(office31, "P1", "ratio", "robust", ("A-W",), 1, tmp_path, ("2",), methods)
    runs = ratio_runs(request)
    assert [run.name["method"] for run in runs] == list(methods)
    assert [run.config.novel for run in runs] == ["auto", "yes", "auto"]


def test_a_backbone_reaches_every_config(office31: Path, tmp_path: Path) -> None:
    weights = tmp_path / "w.pt"
    weights.write_bytes(b"made up")
    options = {"backbone": "conv4", "weights": str(weights)}
    request = Request(office31, "P1", "main", "robust", ("A-W",), 1, tmp_path, options=options)
    (run,) = main_runs(request)
    assert (run.config.backbone, run.config.weights) == ("conv4", str(weights))
    assert run.name["backbone"] == "conv4"
    assert run.name["weights"] == hashlib.sha256(b"made up").hexdigest()[:16]
