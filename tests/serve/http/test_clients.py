"""Clients that other people wrote predict an image, each in an environment of its own."""

import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path
from shutil import which

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

OPENAPI_PYTHON = """
import io, sys
from scda_client import AuthenticatedClient
from scda_client.api.model import exemplar, model
from scda_client.api.open_inference import infer
from scda_client.api.predictions import nearest, predict, predict_batch
from scda_client.models import ErrorBody, ErrorCode, ImageForm, ImageJson, ImagesForm, Kind
from scda_client.models import InferRequest, InputTensor, Prediction
from scda_client.types import File
import base64

url, path = sys.argv[1:]
data = open(path, "rb").read()
text = base64.b64encode(data).decode()
client = AuthenticatedClient(base_url=url, token="secret")

def file(data=data):
    return File(io.BytesIO(data), "photo.jpg", "image/jpeg")

for body in (file(), ImageForm(file()), ImageJson(text)):
    answer = predict.sync(client=client, body=body)
    assert (answer.label, answer.kind) == ("red", Kind.KNOWN), answer
    assert type(answer) is Prediction
asked = predict.sync_detailed(client=client, body=file(b"text"), x_request_id="trace-1")
assert asked.status_code == 415 and asked.headers["X-Request-Id"] == "trace-1"
assert asked.parsed.error.code is ErrorCode.NOT_AN_IMAGE
good, bad = predict_batch.sync(client=client, body=ImagesForm([file(), file(b"text")])).results
assert type(good) is Prediction and type(bad) is ErrorBody
near = nearest.sync(client=client, body=file()).classes[0]
address = near.exemplars[0]
picture = exemplar.sync(near.class_id, 0, client=client, model=address.partition("=")[2])
assert picture.payload.read() == data
assert model.sync(client=client).provider == "cpu"
tensor = InputTensor(name="image", shape=[1], datatype="BYTES", data=[text])
(label,) = [o.data for o in infer.sync(client=client, body=InferRequest([tensor])).outputs
            if o.name == "label"]
print(label)
"""

TYPESCRIPT = """
import { readFileSync } from "node:fs";
import createClient from "openapi-fetch";
import type { components, paths } from "./scda.js";

const [url, path] = process.argv.slice(2) as [string, string];
const headers = { Authorization: "Bearer secret" };
const client = createClient<paths>({ baseUrl: url, headers });
const image = readFileSync(path).toString("base64");
const asked = await client.POST("/v1/predict", { body: { image } });
const prediction: components["schemas"]["Prediction"] = asked.data!;
const kind: "known" | "discovered" | "unknown" = prediction.kind;
const refused = await client.POST("/v1/predict", { body: { image: "AAAA" } });
const code: components["schemas"]["ErrorCode"] = refused.error!.error.code;
const form = await client.POST("/v1/predict_batch", {
  body: { images: [image, "AAAA"] },
});
const results = form.data!.results.map((one) => ("error" in one ? one.error.code : one.label));
console.log(prediction.label, kind, code, results.join());
"""


def test_the_client_that_openapi_python_client_generates(
    server: Server, image: Path, tmp_path: Path
) -> None:
    python = python_with(tmp_path / "env", "openapi-python-client==0.29.1")
    settings = tmp_path / "settings.yaml"
    settings.write_text(  # the hooks would format the client
        "content_type_overrides: {image/jpeg: application/octet-stream}\npost_hooks: []\n"
    )
    document = server.client.get("/docs.json", headers={"Authorization": "Bearer secret"})
    (tmp_path / "docs.json").write_bytes(document.content)
    generate = ("generate", "--path", "docs.json", "--config", settings, "--meta", "none")
    module = ("-m", "openapi_python_client")
    run(python, *module, *generate, "--fail-on-warning", cwd=tmp_path)
    assert run(python, "-c", OPENAPI_PYTHON, server.url, image, cwd=tmp_path) == "['red']\n"


@pytest.mark.skipif(not which("npm"), reason="needs npm")
def test_the_types_that_openapi_typescript_generates(
    server: Server, image: Path, tmp_path: Path
) -> None:
    packages = ("openapi-typescript@7.13.0", "openapi-fetch", "typescript@5", "@types/node@20")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    run("npm", "install", "--no-audit", "--no-fund", *packages, cwd=tmp_path)
    document = server.client.get("/docs.json", headers={"Authorization": "Bearer secret"})
    (tmp_path / "docs.json").write_bytes(document.content)
    run("npx", "openapi-typescript", "docs.json", "--output", "scda.d.ts", cwd=tmp_path)
    (tmp_path / "ask.ts").write_text(TYPESCRIPT)
    modern = ("--strict", "--target", "es2022", "--module", "nodenext")
    run("npx", "tsc", *modern, "--types", "node", "ask.ts", cwd=tmp_path)
    said = run("node", "ask.js", server.url, image, cwd=tmp_path)
    assert said == "red known not_an_image red,not_an_image\n"


def test_the_triton_client(server: Server, image: Path, tmp_path: Path) -> None:
    python = python_with(tmp_path / "env", "tritonclient[http]")
    said = run(python, "-c", TRITON, server.url.removeprefix("http://"), image)
    assert "[415] not_an_image: element 0 of 'image': this looks like text" in said


def test_the_open_inference_client(server: Server, image: Path, tmp_path: Path) -> None:
    python = python_with(tmp_path / "env", "open-inference-openapi")
    said = run(python, "-c", OPEN_INFERENCE, server.url.removeprefix("http://"), image)
    assert said == "['red']\n"
