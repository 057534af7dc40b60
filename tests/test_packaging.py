import email
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.bundles import make_bundle, picture

ROOT = Path(__file__).parent.parent
FOLDERS = ("adapt", "models", "serve")
SHIPPED = (".py", ".html", ".css", ".js")


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> zipfile.ZipFile:
    (path,) = distributions.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return email.message_from_bytes(wheel.read(name))


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


def needs(metadata: Message, extra: str = "") -> list[str]:
    """Return what an extra, or the base, installs on Linux with an x86 processor."""
    here = {"sys_platform": "linux", "platform_machine": "x86_64", "extra": extra}
    requirements = map(Requirement, metadata.get_all("Requires-Dist") or [])
    return [
        requirement.name
        for requirement in requirements
        if ("extra" in str(requirement.marker)) == bool(extra)
        and (requirement.marker is None or requirement.marker.evaluate(here))
    ]


def test_base_dependencies_never_include_torch(metadata: Message) -> None:
    base = needs(metadata)
    assert base
    assert not [need for need in base if need.startswith(("torch", "timm", "scipy", "scikit"))]


def test_extras_choose_one_onnx_runtime_and_everything_else_leaves_the_choice(
    metadata: Message,
) -> None:
    chosen = {
        extra: [name for name in needs(metadata, extra) if name.startswith("onnxruntime")]
        for extra in ("", *(metadata.get_all("Provides-Extra") or []))
    }
    assert chosen.pop("gpu") == ["onnxruntime-gpu"]
    assert chosen.pop("cpu") == ["onnxruntime"]
    assert not any(chosen.values())


def test_distributions_pass_the_checks_of_the_package_index(distributions: Path) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict"]
    files = list(distributions.iterdir())
    done = subprocess.run([*command, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASSED") == 2


USE = """
import scda, sys
print(scda.load(sys.argv[1]).predict(sys.argv[2]).label, sorted({"torch", "onnx"} & {*sys.modules}))
"""


@pytest.mark.slow  # installs the base dependencies into a new environment
def test_wheel_and_sdist_answer_in_an_empty_environment(
    distributions: Path, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    (tmp_path / "photo.jpg").write_bytes(picture("red"))
    bundle = make_bundle(tmp_path / "bundle")
    (wheel,), (sdist,) = distributions.glob("*.whl"), distributions.glob("*.tar.gz")

    def install(*words: str | Path) -> None:
        command: list[str | Path] = [python, "-m", "pip", "install", "--quiet", *words]
        subprocess.run(command, check=True)

    def use() -> "subprocess.CompletedProcess[str]":
        command: list[str | Path] = [python, "-c", USE, bundle, tmp_path / "photo.jpg"]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    install(wheel)
    assert "ONNX Runtime is not installed; pip install 'scda[gpu]'" in use().stderr
    install(f"{wheel}[cpu]")
    answered = use()
    assert (answered.stdout.strip(), answered.stderr) == ("red []", "")
    assert not list((tmp_path / "venv").rglob("libonnxruntime_providers_cuda.so"))
    install("--force-reinstall", "--no-deps", sdist)
    assert use().stdout.strip() == "red []"
    subprocess.run([python.parent / "scda-adapt", "--help"], check=True, capture_output=True)


@pytest.mark.slow  # type checkers read NumPy's and Pillow's types anew
def test_a_program_that_uses_the_whole_api_passes_the_type_checkers(
    distributions: Path, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    (wheel,) = distributions.glob("*.whl")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", wheel], check=True)
    # All else is as it is here; an editable scda of this environment is not, being a .pth file.
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (site / "here.pth").write_text("\n".join(path for path in sys.path if "site-packages" in path))
    program = tmp_path / "uses_everything.py"
    shutil.copy(ROOT / "tests" / "consumer" / "uses_everything.py", program)
    mypy = ["mypy", "--strict", "--python-executable", str(python)]
    for checker in (mypy, ["pyright", "--pythonpath", str(python)]):
        command = [sys.executable, "-m", *checker, program.name]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stdout


def test_bento_ships_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"wheels/scda-{version}-py3-none-any.whl" in (ROOT / "bentofile.yaml").read_text()


def test_repository_holds_nothing_above_a_megabyte() -> None:
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=True
    )
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    assert not [path for path in files if path.is_file() and path.stat().st_size > 2**20]
