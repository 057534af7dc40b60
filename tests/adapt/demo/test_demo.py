from pathlib import Path

import pytest

from scda.adapt.demo.demo import run_demo
from scda.adapt.runtime.progress import Reporter
from scda.models.errors import UsageError


@pytest.mark.slow  # about a minute
def test_the_demo_reaches_its_accuracy(tmp_path: Path) -> None:
    with Reporter(quiet=True) as reporter:
        demo = run_demo(tmp_path / "demo", seed=0, overwrite=False, reporter=reporter)
    assert demo.metrics["os_star"] >= 95
    assert demo.metrics["hos"] >= 94
    assert demo.metrics["k_abs"] <= 1
    assert "Measured on labelled images" in demo.report.read_text()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_with_parts_named_like_the_demos_is_not_touched(
    tmp_path: Path, overwrite: bool
) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "mine.jpg").write_bytes(b"mine")
    with Reporter(quiet=True) as reporter, pytest.raises(UsageError, match="is not a demo"):
        run_demo(tmp_path, seed=0, overwrite=overwrite, reporter=reporter)
    assert (tmp_path / "source" / "mine.jpg").exists()


def test_a_demo_in_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with Reporter(quiet=True) as reporter, pytest.raises(UsageError, match="cannot use"):
        run_demo(tmp_path / "file" / "demo", seed=0, overwrite=True, reporter=reporter)
