"""Answers of a model on a GPU, against the CPU's: from Python, from `label` and over HTTP."""

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from scda.models.images import read_image
from scda.models.onnx_runtime import ort
from scda.models.parity import TOLERANCE
from scda.models.predictor import Predictor, load_predictor
from scda.models.preprocess import Pixels
from scda.serve.http.application import create_app
from scda.serve.http.settings import Settings
from tests.conftest import Scda, TinyData
from tests.gpu.conftest import CPU, CUDA, Figure, require, trained

SIZES = (1, 3, 8, 32, 33)  # batches that are padded to a power of two, and some that are not


@pytest.fixture(scope="module")
def run(provider: str, tiny: TinyData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the default backbone, whose convolutions are large enough for TF32 to matter."""
    out = tmp_path_factory.mktemp("lite0") / "run"
    trained(tiny, out, backbone="efficientnet_lite0", weights="", device="cpu")
    return out


@pytest.fixture(scope="module", params=[CPU, CUDA])
def provider(request: pytest.FixtureRequest) -> str:
    require(request.param)
    if request.param == "cuda" and "CUDAExecutionProvider" not in ort.get_available_providers():
        pytest.fail("this ONNX Runtime has no CUDA provider; expected onnxruntime-gpu, alone")
    return str(request.param)


@pytest.fixture(scope="module")
def predictors(provider: str, run: Path) -> tuple[Predictor, Predictor]:
    """The same bundle on the device and on the CPU."""
    here, there = (load_predictor(run / "bundle", provider=name) for name in (provider, "cpu"))
    assert (here.session.provider, there.session.provider) == (provider, "cpu")
    return here, there


@pytest.fixture(scope="module")
def paths(tiny: TinyData) -> list[Path]:
    return sorted(tiny.target.iterdir())


def prepared(predictor: Predictor, paths: Sequence[Path]) -> list[Pixels]:
    return [predictor.prepare(read_image(path.read_bytes())) for path in paths]


def expected(predictor: Predictor, paths: Sequence[Path]) -> dict[str, dict[str, Any]]:
    answers = predictor.predict(prepared(predictor, paths))
    return {path.name: answer.to_json() for path, answer in zip(paths, answers, strict=True)}


def largest(answers: dict[str, dict[str, Any]], others: dict[str, dict[str, Any]]) -> float:
    """Return the largest difference of a confidence; where classes differ, they must be close."""
    assert answers.keys() == others.keys()
    differences: list[float] = []
    for name, answer in answers.items():
        other = others[name]
        differences.append(abs(float(answer["confidence"]) - other["confidence"]))
        assert answer["class_id"] == other["class_id"] or other["margin"] < 0.02, name
    return max(differences)


@pytest.mark.parametrize("size", SIZES)
def test_batches_of_any_size_have_the_outputs_of_the_cpu(
    predictors: tuple[Predictor, Predictor], paths: list[Path], size: int, figure: Figure
) -> None:
    of_device, of_cpu = predictors
    provider, pixels = of_device.session.provider, prepared(of_device, paths[:size])
    here, there = of_device.run(pixels), of_cpu.run(pixels)
    started = time.perf_counter()
    of_device.run(pixels)
    rate = size / (time.perf_counter() - started)
    found = float(np.abs(here.probabilities - there.probabilities).max())
    figure(f"at most {TOLERANCE[provider]}", f"{found:.2g}, {rate:.0f} images/s")
    assert found <= TOLERANCE[provider]
    assert here.features.shape == there.features.shape == (size, here.features.shape[1])


def test_label_writes_the_answers_of_the_cpu(
    scda: Scda,
    run: Path,
    tiny: TinyData,
    predictors: tuple[Predictor, Predictor],
    paths: list[Path],
    tmp_path: Path,
    figure: Figure,
) -> None:
    here, there = predictors
    provider, summary = here.session.provider, tmp_path / "summary.json"
    words = ("label", run, tiny.target, "--out", tmp_path / "rows.jsonl", "--summary", summary)
    assert scda(*words, "--provider", provider).returncode == 0
    assert json.loads(summary.read_text())["provider"] == provider
    written = map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines())
    rows = {row["path"]: row for row in written}
    found = largest(rows, expected(there, paths))
    figure(f"at most {TOLERANCE[provider]}", f"{found:.2g}")
    assert found <= TOLERANCE[provider]


def test_the_server_gives_the_answers_of_the_cpu(
    run: Path, predictors: tuple[Predictor, Predictor], paths: list[Path], figure: Figure
) -> None:
    here, there = predictors
    app = create_app(here, Settings(bundle=run / "bundle", threads=2))

    async def ask() -> tuple[str, dict[str, dict[str, Any]]]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            card = (await client.get("/v1/model")).json()
            answers = {}
            for start in range(0, len(paths), 8):  # fewer at a time than the queue holds
                some = paths[start : start + 8]
                sent = [client.post("/v1/predict", content=path.read_bytes()) for path in some]
                for path, answer in zip(some, await asyncio.gather(*sent), strict=True):
                    assert answer.status_code == 200, answer.text
                    answers[path.name] = answer.json()
        return card["provider"], answers

    provider, answers = asyncio.run(ask())
    assert provider == here.session.provider
    found = largest(answers, expected(there, paths))
    figure(f"at most {TOLERANCE[provider]}", f"{found:.2g}")
    assert found <= TOLERANCE[provider]
