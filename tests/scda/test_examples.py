"""The examples of the documentation, run as they are written."""

import doctest
import re
from pathlib import Path

import numpy as np
import pytest

from scda.adapt.pipeline import arrays
from tests.conftest import TinyData

ROOT = Path(__file__).parents[2]


@pytest.fixture
def in_a_folder_with_images(
    tiny: TinyData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Make the folders and the photograph that examples name the working folder's."""
    (tmp_path / "labelled").symlink_to(tiny.source)
    (tmp_path / "new").symlink_to(tiny.target)
    (tmp_path / "photo.jpg").symlink_to(next(tiny.target.iterdir()))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def blocks(page: str) -> list[str]:
    """Return the Python programs of a page that use the public API."""
    text = (ROOT / page).read_text()
    found = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    return [block for block in found if "import scda\n" in block]


@pytest.mark.slow  # trains with the default backbone
@pytest.mark.usefixtures("in_a_folder_with_images")
def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks("README.md")
    exec(compile(block, "README.md", "exec"), {})
    first, *rows = capsys.readouterr().out.splitlines()
    assert first
    assert len(rows) == 100


@pytest.mark.parametrize("page", ["docs/index.md", "docs/python.md", "docs/bundle.md"])
@pytest.mark.usefixtures("in_a_folder_with_images")
def test_the_python_of_the_pages_runs(
    page: str, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").symlink_to(tiny_run)
    (tmp_path / "photos").symlink_to(tmp_path / "new")
    programs = [block for block in blocks(page) if "scda.train" not in block]  # takes minutes
    assert programs
    for program in programs:
        exec(compile(program, page, "exec"), {})
        assert capsys.readouterr().out


def test_the_example_of_adapt_runs() -> None:
    example = doctest.DocTestFinder().find(arrays.adapt, globs={"np": np})[0]
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0
