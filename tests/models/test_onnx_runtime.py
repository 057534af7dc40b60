import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2]
DEVICE_ID = ".cache/Microsoft/DeveloperTools/.onnxruntime/deviceid"
OURS = """
import sys
from pathlib import Path
from scda.models.session import Session

Session(Path(sys.argv[1]), provider="cpu", threads=1)
"""


def home_after(code: str, bundle: Path, home: Path) -> list[str]:
    """Return the files in an empty home folder after a fresh process has run `code`."""
    unset = ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME")
    environment = {k: v for k, v in os.environ.items() if k not in unset} | {"HOME": str(home)}
    argv = [sys.executable, "-c", code, str(bundle / "model.onnx")]
    subprocess.run(argv, env=environment, check=True, timeout=120)
    return sorted(p.relative_to(home).as_posix() for p in home.rglob("*") if p.is_file())


def test_a_session_writes_nothing_into_the_home_folder(whole_bundle: Path, tmp_path: Path) -> None:
    assert home_after(OURS, whole_bundle, tmp_path) == []


@pytest.mark.slow  # shows what is prevented; a version of onnxruntime without telemetry fails here
def test_onnxruntime_by_itself_writes_a_device_id(whole_bundle: Path, tmp_path: Path) -> None:
    assert DEVICE_ID in home_after("import onnxruntime", whole_bundle, tmp_path)


def test_onnxruntime_is_imported_in_one_place() -> None:
    imports = re.compile(r"^\s*(import|from) onnxruntime\b", re.MULTILINE)
    folders = ("adapt", "benchmarks", "models", "scda", "serve", "tests")
    modules = [path for folder in folders for path in (FOLDER / folder).rglob("*.py")]
    found = [path for path in modules if imports.search(path.read_text("utf-8"))]
    assert [path.relative_to(FOLDER).as_posix() for path in found] == ["models/onnx_runtime.py"]


MISSING = """
import sys
sys.modules["onnxruntime"] = None  # importing it now fails
import scda
try:
    scda.load
except scda.UsageError as error:
    print(error)
"""


def test_without_it_one_line_names_both_extras() -> None:
    argv = [sys.executable, "-c", MISSING]
    line = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120).stdout
    assert line.startswith("ONNX Runtime is not installed; pip install 'scda[gpu]'")
    assert "'scda[cpu]'" in line
