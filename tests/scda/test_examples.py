"""The examples of the documentation, run as they are written."""

import doctest
import re
from pathlib import Path

import numpy as np
import pytest

from scda.adapt.pipeline import arrays
from tests.conftest import TinyData

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture
def in_a_folder_with_images(
    tiny: TinyData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Make the folders and the photograph that examples name the working folder's."""
    (tmp_path / "labelled").symlink_to(tiny.source)
    (tmp_path / "new-camera").symlink_to(tiny.target)
    (tmp_path / "photo.jpg").symlink_to(next(tiny.target.iterdir()))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow  # trains with the default backbone
@pytest.mark.usefixtures("in_a_folder_with_images")
def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(
        r"(?:^    .*\n|^\n)*^    import scda\n(?:^    .*\n|^\n)*", README.read_text(), re.M
    )
    program = "\n".join(line.removeprefix("    ") for line in block.splitlines())
    exec(compile(program, "README.md", "exec"), {})
    first, *rows = capsys.readouterr().out.splitlines()
    assert first
    assert len(rows) == 100


def test_the_example_of_adapt_runs() -> None:
    example = doctest.DocTestFinder().find(arrays.adapt, globs={"np": np})[0]
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0
