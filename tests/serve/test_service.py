import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import platformdirs
import pytest

from scda.models.errors import UsageError
from scda.models.predictor import Predictor
from scda.serve.http.command import serve_command
from tests.bundles import picture
from tests.serve.http.test_application import code_of, expected
from tests.serving import Server, free_port, serving


@pytest.fixture(scope="module")
def server(bundle: Path) -> Iterator[Server]:
    """The real thing, started once for this module as `scda-adapt serve` starts it."""
    with serving(bundle, SCDA_MAX_BYTES="100000") as server:
        yield server


def test_it_answers_over_the_network(server: Server, predictor: Predictor) -> None:
    wanted = expected(predictor, picture("red"))
    form = server.client.post("/v1/predict", files={"image": picture("red")})
    raw = server.client.post("/v1/predict", content=picture("red"))
    assert form.json() == raw.json() == wanted
    near = server.client.post("/v1/nearest", content=picture("red")).json()
    assert near["prediction"] == wanted
    (address,) = near["classes"][0]["exemplars"]
    assert server.client.get(address).content == picture("red")


def test_health_is_bentomls_and_the_rest_is_ours(server: Server) -> None:
    assert server.client.get("/livez").status_code == 200
    assert "scda_request_seconds" in server.client.get("/metrics").text
    assert server.client.get("/docs.json").json()["info"]["title"] == "scda"
    assert "Classify an image" in server.client.get("/").text
    assert server.client.get("/page.js").headers["content-type"].startswith("text/javascript")
    assert code_of(server.client.get("/nowhere")) == "not_found"
    assert code_of(server.client.put("/v1/model")) == "method_not_allowed"


def test_bad_input_has_our_shape_behind_bentoml_too(server: Server) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 10_000

    post = server.client.post
    assert code_of(post("/v1/predict", content=b"hello")) == "not_an_image"
    assert code_of(post("/v1/predict", content=picture("red")[:300])) == "cannot_decode"
    assert code_of(post("/v1/predict", files={"image": b"x" * 200_000})) == "too_many_bytes"
    assert code_of(post("/v1/predict", content=chunks())) == "too_many_bytes"
    headers = [(b"Content-Type", b"image/\xff")]  # BentoML's access log cannot print it
    assert code_of(post("/v1/predict", content=b"hello", headers=headers)) == "not_an_image"


def test_a_signal_stops_it_although_a_client_stays_connected(server: Server) -> None:
    assert server.client.get("/v1/model").status_code == 200
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(30) == 0
    with pytest.raises(httpx.TransportError):
        server.client.get("/livez")


def test_a_damaged_bundle_ends_the_start_with_one_line(bundle: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "bundle"
    shutil.copytree(bundle, damaged)
    (damaged / "model.onnx").write_bytes(b"x")
    argv, environment = serve_command(damaged, port=free_port())
    environment |= {"BENTOML_HOME": str(tmp_path)}
    ended = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 5
    assert ended.stderr.splitlines() == [
        f"scda: {damaged}: model.onnx is damaged (checksum differs)"
    ]


def test_a_gpu_that_is_not_there_ends_the_start_with_one_line(bundle: Path) -> None:
    code = """
import ctypes.util
ctypes.util.find_library = lambda name: None
from scda.serve.service import load
load()
"""
    environment = os.environ | {"SCDA_BUNDLE": str(bundle), "SCDA_PROVIDER": "cuda"}
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert ended.stderr.splitlines() == [
        "scda: provider cuda is not available on this machine or in this onnxruntime; "
        "use --provider cpu"
    ]


def test_the_command_divides_the_cpus_and_keeps_what_the_user_set(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scda.serve.http.command.usable_cpus", lambda: 8)
    monkeypatch.delenv("SCDA_THREADS", raising=False)
    port = free_port()
    argv, environment = serve_command(bundle, host="localhost", port=port, workers=3)
    assert argv[:4] == [sys.executable, "-m", "bentoml", "serve"]
    assert argv[argv.index("--host") + 1] == "127.0.0.1"
    assert environment["SCDA_BUNDLE"] == str(bundle)
    assert environment["SCDA_THREADS"] == "2"
    assert environment["BENTOML_CONFIG_OPTIONS"].startswith("services.scda.workers=3")
    assert environment["BENTOML_DO_NOT_TRACK"] == "True"
    assert environment["PATH"] == os.environ["PATH"]
    monkeypatch.setenv("SCDA_THREADS", "7")
    assert serve_command(bundle, port=port, workers=3)[1]["SCDA_THREADS"] == "7"


@pytest.mark.parametrize(
    ("host", "port", "workers", "message"),
    [
        ("example.org", 3000, 1, r"host 'example\.org': expected an IP address or localhost"),
        ("192.0.2.1", 3000, 1, r"cannot listen on 192\.0\.2\.1:3000"),
        ("127.0.0.1", 70000, 1, "port 70000: expected a number from 1 to 65535"),
        ("127.0.0.1", 3000, 0, "0 workers: expected 1 or more"),
    ],
)
def test_a_command_that_cannot_work_is_refused(
    bundle: Path, host: str, port: int, workers: int, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        serve_command(bundle, host=host, port=port, workers=workers)


def test_without_a_home_folder_bentoml_needs_a_place(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home(*names: str, appauthor: bool) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(platformdirs, "user_cache_path", no_home)
    monkeypatch.delenv("BENTOML_HOME", raising=False)
    with pytest.raises(UsageError, match="no home folder for the cache"):
        serve_command(bundle, port=free_port())
    monkeypatch.setenv("BENTOML_HOME", "/place")
    assert serve_command(bundle, port=free_port())[1]["BENTOML_HOME"] == "/place"


UNTRACKED = """
from bentoml._internal.utils.analytics import usage_stats

print(usage_stats.do_not_track())  # as `bentoml serve` asks before it imports the service
import scda.serve.service
print(usage_stats.do_not_track())
"""


def test_bentoml_does_not_report_usage_however_it_is_started() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "BENTOML_DO_NOT_TRACK"}
    argv = [sys.executable, "-c", UNTRACKED]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


FROZEN = """
import gc

from scda.serve.service import Classifier

Classifier.inner()
print(gc.get_freeze_count())
"""


def test_what_a_worker_loaded_is_not_looked_through_for_garbage(bundle: Path) -> None:
    environment = {**os.environ, "SCDA_BUNDLE": str(bundle)}
    argv = [sys.executable, "-c", FROZEN]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) > 10_000


def test_a_port_that_is_taken_is_named(bundle: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port}: .*in use"):
            serve_command(bundle, port=port)
