"""Clients that other people wrote predict an image, each in an environment of its own."""

import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bundles import picture
from tests.serving import Server, serving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(bundle: Path) -> Iterator[Server]:
    with serving(bundle, SCDA_API_KEY="secret") as server:
        yield server


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "photo.jpg"
    path.write_bytes(picture("red"))
    return path


def python_with(folder: Path, *packages: str) -> Path:
    """Return the interpreter of a new environment with these packages."""
    venv.create(folder, with_pip=True)
    interpreter = folder / "bin" / "python"
    run(interpreter, "-m", "pip", "install", "--quiet", *packages)
    return interpreter


def run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


TRITON = """
import sys
import numpy
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

host, path = sys.argv[1:]
key = {"Authorization": "Bearer secret"}
client = InferenceServerClient(host)
assert client.is_server_live() and client.is_server_ready()
assert client.is_model_ready("scda", headers=key)
assert client.get_model_metadata("scda", headers=key)["inputs"][0]["datatype"] == "BYTES"
image = numpy.array([open(path, "rb").read()] * 2, dtype=numpy.object_)
tensor = InferInput("image", [2], "BYTES")
tensor.set_data_from_numpy(image)
names = ("label", "confidence", "outlier")
for binary in (False, True):
    wanted = [InferRequestedOutput(name, binary_data=binary) for name in names]
    answer = client.infer("scda", [tensor], outputs=wanted, headers=key, request_id="7")
    labels = [x if isinstance(x, str) else x.decode() for x in answer.as_numpy("label")]
    assert labels == ["red", "red"], labels
    assert answer.as_numpy("confidence").dtype == numpy.float32
    assert (answer.as_numpy("confidence") > 0.9).all() and not answer.as_numpy("outlier").any()
    assert answer.get_response()["id"] == "7"
tensor.set_data_from_numpy(numpy.array([b"text", b"x"], dtype=numpy.object_))
try:
    client.infer("scda", [tensor], headers=key)
except InferenceServerException as error:
    print(error)
"""

OPEN_INFERENCE = """
import base64, sys
import httpx
from open_inference.openapi.client import OpenInferenceClient, InferenceRequest

host, path = sys.argv[1:]
client = OpenInferenceClient(
    base_url="http://" + host, httpx_client=httpx.Client(headers={"Authorization": "Bearer secret"})
)
client.check_server_liveness()
client.check_server_readiness()
client.check_model_readiness("scda")
assert client.read_server_metadata().name == "scda"
assert client.read_model_metadata("scda").inputs[0].datatype == "BYTES"
text = base64.b64encode(open(path, "rb").read()).decode()
image = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [text]}
answer = client.model_infer("scda", request=InferenceRequest(inputs=[image]))
print({output.name: output.data.dict()["__root__"] for output in answer.outputs}["label"])
"""


def test_the_triton_client(server: Server, image: Path, tmp_path: Path) -> None:
    python = python_with(tmp_path / "env", "tritonclient[http]")
    said = run(python, "-c", TRITON, server.url.removeprefix("http://"), image)
    assert "[415] not_an_image: element 0 of 'image': this looks like text" in said


def test_the_open_inference_client(server: Server, image: Path, tmp_path: Path) -> None:
    python = python_with(tmp_path / "env", "open-inference-openapi")
    said = run(python, "-c", OPEN_INFERENCE, server.url.removeprefix("http://"), image)
    assert said == "['red']\n"
