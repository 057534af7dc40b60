"""The public API: what it is, frozen; that it is lazy; and that type checkers know it."""

import dataclasses
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import scda
from scda.models.errors import UsageError
from tests.bundles import picture

SIGNATURES = (Path(__file__).parent / "signatures.txt").read_text("utf-8")


def run(code: str, *arguments: object) -> str:
    """Return what `code` prints in a fresh interpreter."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def described(name: str) -> list[str]:
    """Return the signature of a public name, and of every public member of a class."""
    value = getattr(scda, name)
    if isinstance(value, str):
        return [f"{name}: str"]
    if not inspect.isclass(value):
        return [f"{name}{inspect.signature(value)}"]
    bases = ", ".join(base.__name__ for base in value.__bases__)
    lines = [f"class {name}({bases})"]
    if dataclasses.is_dataclass(value):
        lines += [f"{name}.{f.name}: {written(f.type)}" for f in dataclasses.fields(value)]
    for member, defined in vars(value).items():
        if isinstance(defined, property):
            returned = inspect.get_annotations(defined.fget)["return"] if defined.fget else ""
            lines.append(f"{name}.{member} -> {written(returned)}")
        elif inspect.isfunction(defined) and not member.startswith("_"):
            lines.append(f"{name}.{member}{inspect.signature(defined)}")
    return lines


def written(annotation: object) -> str:
    return inspect.formatannotation(annotation)


def test_names_arguments_and_types_are_frozen() -> None:
    # TrainConfig's fields are the options of the command line, which have a test of their own.
    names = sorted(set(scda.__all__) - {"TrainConfig"})
    text = "\n".join(line for name in names for line in described(name))
    # How NumPy spells NDArray in full is its own matter.
    text = re.sub(r"numpy\.ndarray\[.*?, numpy\.dtype\[([\w.]+)\]\]", r"NDArray[\1]", text)
    assert text == SIGNATURES.rstrip()


def test_every_name_is_there_and_no_other() -> None:
    assert dir(scda) == sorted(scda.__all__)
    assert all(hasattr(scda, name) for name in scda.__all__)
    with pytest.raises(AttributeError, match=r"module 'scda' has no attribute 'nothing'"):
        scda.nothing  # type: ignore[attr-defined]  # noqa: B018 - what is tested


def test_every_public_function_is_documented_whole() -> None:
    for name in ("adapt", "load", "train"):
        value = getattr(scda, name)
        if name == "adapt":
            from scda.adapt.pipeline.arrays import adapt as value
        doc = inspect.getdoc(value) or ""
        assert all(part in doc for part in ("Args:", "Raises:", "Example:")), name
        assert all(f"{argument}:" in doc for argument in inspect.signature(value).parameters)


IMPORT = """
import sys, time
before = time.process_time()
import scda
seconds = time.process_time() - before
heavy = {"torch", "numpy", "onnxruntime", "faiss", "PIL", "scda.adapt", "scda.serve"}
print(seconds < 0.5, sorted(heavy & sys.modules.keys()), scda.__version__)
"""


def test_import_loads_nothing() -> None:
    assert run(IMPORT) == f"True [] {scda.__version__}"


WITHOUT_TORCH = """
import sys
from pathlib import Path
for name in ("torch", "torchvision", "timm", "onnx", "sklearn", "scipy", "matplotlib"):
    sys.modules[name] = None  # importing it now fails
import scda
model = scda.load(sys.argv[1], threads=1)
rows = list(model.label(sys.argv[2]))
print(model.predict(sys.argv[2] + "/x.jpg").label, [row['path'] for row in rows])
config = scda.TrainConfig(seed=1)
for function, arguments in ((scda.train, "abc"), (scda.adapt, ([[0.0]], [0], [[0.0]]))):
    try:
        function(*arguments, config=config)
    except scda.UsageError as error:
        print(error)
"""


def test_load_needs_no_torch_and_the_rest_says_what_to_install(
    bundle: Path, tmp_path: Path
) -> None:
    (tmp_path / "x.jpg").write_bytes(picture("red"))
    first, *errors = run(WITHOUT_TORCH, bundle, tmp_path).splitlines()
    assert first == "red ['x.jpg']"
    assert len(errors) == 2
    assert all(error.endswith(" is missing; pip install 'scda[train]'") for error in errors)


@pytest.mark.parametrize(
    "code",
    [
        "import scda; f = scda.adapt; from scda.adapt.config import TrainConfig",
        "from scda.adapt.config import TrainConfig; import scda; f = scda.adapt",
        "import scda.adapt.config; f = scda.adapt; TrainConfig = scda.adapt.config.TrainConfig",
        "from scda import adapt as f; from scda import TrainConfig",
        "from scda import *; f = adapt",
    ],
)
def test_adapt_is_function_and_package_in_any_order_of_imports(code: str) -> None:
    check = f"{code}\nimport scda\nprint(callable(f), scda.TrainConfig is TrainConfig)"
    assert run(check) == "True True"


def test_adapt_says_its_signature_and_calls_the_function_of_the_same() -> None:
    from scda.adapt.pipeline.arrays import adapt

    ours, called = inspect.signature(scda.adapt), inspect.signature(adapt)
    assert [(p.name, p.kind, p.default) for p in ours.parameters.values()] == [
        (p.name, p.kind, p.default) for p in called.parameters.values()
    ]
    with pytest.raises(UsageError, match="labels are"):
        scda.adapt([[0.0]], [0, 1], [[0.0]])


def test_train_refuses_several_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(os.environ, "WORLD_SIZE", "2")
    with pytest.raises(UsageError, match=r"torchrun -m scda\.adapt train"):
        scda.train(tmp_path, tmp_path, tmp_path / "run")
