"""Every entry runs both ways that people type: as a module and as a script."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"
ENTRIES = sorted(
    path.stem for path in FOLDER.glob("*.py") if path.stem not in {"__init__", "benchmarks"}
)
NEEDS_EXTRA = {"serve", "startup"}  # the extra `bench`


def help_of(*words: str, cwd: Path) -> str:
    """Return what a command prints with --help."""
    done = subprocess.run(
        [sys.executable, *words, "--help"], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_is_an_entry() -> None:
    for name in ENTRIES:
        assert 'if __name__ == "__main__":' in (FOLDER / f"{name}.py").read_text(), name


@pytest.mark.parametrize("name", ["ksweep", "label_memory"])
def test_a_script_is_the_module(name: str, tmp_path: Path) -> None:
    as_script = help_of(str(FOLDER / f"{name}.py"), cwd=tmp_path)
    assert "usage" in as_script
    assert help_of("-m", f"benchmarks.{name}", cwd=ROOT) == as_script


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_runs_both_ways(name: str, tmp_path: Path) -> None:
    if name in NEEDS_EXTRA:
        pytest.importorskip("aiohttp")
        pytest.importorskip("psutil")
    assert "usage" in help_of(str(FOLDER / f"{name}.py"), cwd=tmp_path)
    assert "usage" in help_of("-m", f"benchmarks.{name}", cwd=ROOT)
