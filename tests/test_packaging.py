import email
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("adapt", "models", "serve")
SHIPPED = (".py", ".html", ".css", ".js")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    out = tmp_path_factory.mktemp("dist")
    # sdist first, then the wheel from it: an old build/ folder cannot leak into the wheel.
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (path,) = out.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def names(wheel: zipfile.ZipFile) -> set[str]:
    return {name for name in wheel.namelist() if ".dist-info/" not in name}


def test_wheel_installs_only_scda(names: set[str]) -> None:
    assert {name.split("/")[0] for name in names} == {"scda"}


def test_wheel_holds_every_module_and_page(names: set[str]) -> None:
    ours = {
        f"scda/{path.relative_to(ROOT)}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in SHIPPED
    }
    ours |= {str(path.relative_to(ROOT)) for path in (ROOT / "scda").rglob("*.py")}
    assert ours == {name for name in names if name.endswith(SHIPPED)}


def test_base_dependencies_never_include_torch(wheel: zipfile.ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    needs = email.message_from_bytes(wheel.read(name)).get_all("Requires-Dist") or []
    base = [need for need in needs if "extra ==" not in need]
    assert base
    assert not [need for need in base if need.startswith(("torch", "timm", "scipy", "scikit"))]


def test_bento_ships_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"wheels/scda-{version}-py3-none-any.whl" in (ROOT / "bentofile.yaml").read_text()


def test_repository_holds_nothing_above_a_megabyte() -> None:
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=True
    )
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    assert not [path for path in files if path.is_file() and path.stat().st_size > 2**20]
