import ast
import os
import subprocess
import sys
from pathlib import Path

from tests.bundles import make_bundle, picture

FOLDER = Path(__file__).parents[2]
FILES = [*(FOLDER / "models").glob("[!_]*.py"), *(FOLDER / "serve").rglob("[!_]*.py")]
MODULES = sorted("scda." + ".".join(p.relative_to(FOLDER).with_suffix("").parts) for p in FILES)


def run(code: str, *arguments: Path) -> str:
    """Return what `code` prints in a fresh interpreter without any setting of ours."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SCDA_")}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def imported_at_once(path: Path) -> list[str]:
    """What a module imports whatever the system: neither in a function nor on a condition."""
    names = []
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.Import):
            names += [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append((node.module or "").partition(".")[0])
    return names


def test_nothing_that_serves_imports_torch_or_adapt() -> None:
    code = f"""
import importlib, sys
for name in {MODULES}:
    importlib.import_module(name)
    print(name, sorted({{"torch", "torchvision", "scda.adapt"}} & sys.modules.keys()))
"""
    assert run(code).splitlines() == [f"{name} []" for name in MODULES]


def test_a_server_starts_without_what_it_does_not_need(tmp_path: Path) -> None:
    """The command starts its first worker before anything else, and a worker needs no pandas."""
    bundle = make_bundle(tmp_path / "bundle", targets={"a.jpg": "red"})
    code = """
import sys
import scda.serve.workers.command
print({"faiss", "fastapi", "onnxruntime", "prometheus_client", "pyarrow"} & sys.modules.keys())
from pathlib import Path
from scda.serve.http.application import load_app
from scda.serve.http.settings import Settings
assert load_app(Settings(bundle=Path(sys.argv[1]))).state.models.current.target_index
print({"pandas", "pyarrow.dataset"} & sys.modules.keys())
"""
    assert run(code, bundle).splitlines() == ["set()", "set()"]


def test_no_module_needs_one_that_windows_lacks() -> None:
    found = [
        (str(path.relative_to(FOLDER)), name)
        for folder in ("adapt", "models", "scda", "serve")
        for path in (FOLDER / folder).rglob("*.py")
        for name in imported_at_once(path)
    ]
    assert ("models/files.py", "os") in found
    missing = {"fcntl", "grp", "pwd", "resource", "termios"}
    assert [(path, name) for path, name in found if name in missing] == []


WITHOUT_TORCH = """
import asyncio, sys
from pathlib import Path
for name in ("torch", "torchvision", "timm", "onnx", "sklearn", "scipy", "matplotlib"):
    sys.modules[name] = None  # importing it now fails
import httpx
from scda.models.predictor import load_predictor
from scda.serve.http.application import create_app
from scda.serve.labelling.label import label
from scda.serve.http.settings import Settings

bundle, images, out = map(Path, sys.argv[1:])
predictor = load_predictor(bundle, threads=1)
print(label(predictor, [images], [str(out)]).labels)

async def ask():
    transport = httpx.ASGITransport(create_app(predictor, Settings(bundle=bundle)))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        data = (images / "x.jpg").read_bytes()
        return (await client.post("/v1/predict", content=data)).json()["label"]

print(asyncio.run(ask()))
"""


def test_label_and_predict_work_where_torch_is_not(bundle: Path, tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    (images / "x.jpg").write_bytes(picture("red"))
    printed = run(WITHOUT_TORCH, bundle, images, tmp_path / "rows.csv")
    assert printed.splitlines() == ["{'red': 1}", "red"]
