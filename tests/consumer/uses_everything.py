"""A program that uses the whole public API; type checkers read it against the installed wheel."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import scda
from scda.adapt.config import TrainConfig


def predict(model: scda.Model) -> list[scda.Prediction]:
    pixels = np.zeros((32, 32, 3), np.uint8)
    images = ("photo.jpg", Path("photo.jpg"), b"\xff\xd8", Image.new("RGB", (8, 8)), pixels)
    return [model.predict(image) for image in images]


def serve(path: str) -> None:
    model = scda.load(path, provider="cpu", threads=1)
    answer = model.predict("photo.jpg")
    assert_type(answer.label, str)
    assert_type(answer.confidence, float)
    assert_type(answer.outlier, bool)
    assert_type(answer.nearest[0]["distance"], float)
    assert_type(model.id, str)
    assert_type([info.label for info in model.classes], list[str])
    rows = model.label(["a/", Path("b/")], include=["*.jpg"], top=3, min_confidence=0.5, workers=0)
    assert_type(rows, Iterator[dict[str, Any]])
    for row in rows:
        print(row["path"], row["label"], row["error_code"])


def train() -> scda.Model:
    config = scda.TrainConfig(seed=1)
    assert_type(config, TrainConfig)
    assert_type(scda.TrainConfig.from_preset("paper", rounds=2), TrainConfig)
    try:
        run = scda.train("labelled/", Path("new/"), "run", config=config, resume=True, quiet=True)
    except (scda.UsageError, scda.DataError, scda.GateError) as error:
        assert_type(error.exit_code, int)
        raise
    assert_type(run, scda.Run)
    assert_type(run.bundle, Path)
    assert_type(run.k_star, int)
    assert_type(run.findings, tuple[str, ...])
    print(scda.__version__, run.id, run.status, run.classes[0].kind, run.num_rejected)
    return run.load(provider="auto")


def adapt(features: NDArray[np.float64]) -> NDArray[np.int64]:
    result = scda.adapt(features, ["cat", "dog"], features.tolist(), config=TrainConfig())
    assert_type(result, scda.Adaptation)
    assert_type(result.k_star, int)
    assert_type(result.class_ids, tuple[str, ...])
    assert_type(result.unknown_probability, NDArray[np.float32])
    return result.predictions
