import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.bundles import make_bundle, picture

ROOT = Path(__file__).parent.parent


@pytest.mark.slow  # installs the base dependencies into a new environment
def test_the_built_bento_answers_from_another_folder_without_torch(
    distributions: Path, tmp_path: Path
) -> None:
    project, elsewhere, home = (tmp_path / name for name in ("project", "elsewhere", "home"))
    shutil.copytree(distributions, project / "wheels")
    shutil.copy(ROOT / "bentofile.yaml", project)
    python = Path(sys.executable)
    environment = {**os.environ, "BENTOML_HOME": str(home), "BENTOML_DO_NOT_TRACK": "True"}
    run(python, "-m", "bentoml", "build", cwd=project, env=environment)
    archive = tmp_path / "scda.bento"
    run(python, "-m", "bentoml", "export", "scda:latest", archive, env=environment)
    with tarfile.open(archive) as bento:
        bento.extractall(elsewhere, filter="data")
    shutil.rmtree(project)

    run(python, "-m", "venv", tmp_path / "venv")
    clean = tmp_path / "venv" / "bin" / "python"
    needs = ("-r", "../env/python/requirements.txt")
    run(clean, "-m", "pip", "install", "--quiet", *needs, cwd=elsewhere / "src")
    assert subprocess.run([clean, "-c", "import torch"], capture_output=True).returncode == 1

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    bundle = make_bundle(tmp_path / "bundle")
    words = [clean, "-m", "bentoml", "serve", elsewhere, "--host", "127.0.0.1", "--port", port]
    log = tmp_path / "log"
    with log.open("wb") as file:
        server = subprocess.Popen(
            [str(word) for word in words],
            env={**environment, "SCDA_BUNDLE": str(bundle)},
            cwd=tmp_path,
            stdout=file,
            stderr=file,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        answer = first_answer(f"{url}/v1/predict", server)
        assert httpx.get(f"{url}/v1/%1b%5b31mred").status_code == 404
        assert httpx.get(f"{url}/v1/%0aforged").status_code == 404
    finally:
        server.terminate()
        server.wait(timeout=60)
    assert answer["label"] == "red"
    text = log.read_text()
    assert "\x1b" not in text
    assert "\nforged" not in text
    assert "route=/v1/predict status=200" in text
    assert "route=other status=404 code=not_found" in text
    assert "may use it without a key" in text
    assert "Traceback" not in text
    assert not list((home / "prometheus_multiproc_dir").glob("*.db"))


def run(*words: object, **options: Any) -> None:
    subprocess.run([str(word) for word in words], check=True, **options)


def first_answer(url: str, server: "subprocess.Popen[bytes]") -> dict[str, object]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert server.poll() is None, "the server ended"
        try:
            answer: dict[str, object] = httpx.post(url, content=picture("red")).json()
            return answer
        except httpx.TransportError:
            time.sleep(0.2)
    raise AssertionError("the server never answered")
