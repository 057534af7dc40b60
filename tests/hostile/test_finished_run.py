"""--resume on a finished run checks what else is asked, as on an unfinished one."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from scda.adapt.pipeline.run import TrainResult, train
from scda.adapt.runtime.progress import Reporter
from scda.models.bundle import checksums, read_manifest
from scda.models.errors import GateError, UsageError
from tests.conftest import TinyData

pytestmark = pytest.mark.usefixtures("no_figures")


def resume(tiny: TinyData, out: Path, **changes: Any) -> TrainResult:
    with Reporter(quiet=True) as reporter:
        result = train(tiny.job(out, resume=True, **changes), reporter)
    assert result
    return result


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 7}, "k was 0, is 7"),
        ({"seed": 5}, "seed was 0, is 5"),
        ({"rounds": 9, "lr": 0.01}, "lr was 0.001, is 0.01; rounds was 2, is 9"),
        ({"source": Path("nope")}, "nope: the source folder does not exist"),
        ({"target": Path("nope")}, "nope: the target folder does not exist"),
    ],
)
def test_what_differs_is_refused(
    tiny: TinyData, tiny_run: Path, changes: dict[str, Any], message: str
) -> None:
    before = checksums(tiny_run)
    with pytest.raises(UsageError) as refused:
        resume(tiny, tiny_run, **changes)
    assert message in str(refused.value)
    assert checksums(tiny_run) == before


@pytest.mark.parametrize("domain", ["source", "target"])
def test_other_images_are_refused(
    tiny: TinyData, tiny_run: Path, tmp_path: Path, domain: str
) -> None:
    other = tmp_path / domain
    shutil.copytree(getattr(tiny, domain), other)
    next(path for path in other.rglob("*.png")).unlink()
    with pytest.raises(UsageError, match=f"cannot resume: {domain} was"):
        resume(tiny, tiny_run, **{domain: other})


def test_a_run_that_ended_with_rejected_files_says_so_again(tiny: TinyData, tmp_path: Path) -> None:
    target = tmp_path / "target"
    shutil.copytree(tiny.target, target)
    for name in ("a.png", "b.txt"):
        (target / name).write_text("no image")
    out = tmp_path / "run"
    with Reporter(quiet=True) as reporter:
        first = train(tiny.job(out, target=target, rounds=0), reporter)
    assert first
    assert first.rejected == 2
    before = checksums(out)
    assert resume(tiny, out, target=target, rounds=0).rejected == 2
    (target / "b.txt").unlink()  # its row in rejected.csv stays: the run is left as it is
    assert resume(tiny, out, target=target, rounds=0).rejected == 2
    assert checksums(out) == before


def test_a_finished_run_that_is_damaged_is_not_called_finished(
    tiny: TinyData, tiny_run: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    shutil.copytree(tiny_run, out)
    assert resume(tiny, out).manifest.id == read_manifest(out / "bundle").id
    (out / "bundle" / "clusters.faiss").write_bytes(b"")
    with pytest.raises(GateError, match=r"clusters\.faiss is damaged"):
        resume(tiny, out)
