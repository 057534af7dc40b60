"""Small targets of far-apart groups, shared by the tests of discovery."""

from typing import Any

import numpy as np

from scda.adapt.config import TrainConfig
from scda.adapt.discovery.kmeans import Points


def config(**fields: Any) -> TrainConfig:
    return TrainConfig(**{"restarts": 2, "k_max": 8, **fields})


def blobs(count: int, *, each: int = 20, width: int = 8, spread: float = 0.3) -> Points:
    """Return `count` far-apart groups of images, one after the other."""
    rng = np.random.default_rng(0)
    centres = np.eye(width, dtype=np.float32)[:count] * 10
    noise = rng.normal(0, spread, (count * each, width)).astype(np.float32)
    return np.repeat(centres, each, axis=0) + noise


def logits_of(labels: list[int], outputs: int, *, certainty: float = 5.0) -> Points:
    """Return logits that predict `labels`, all but the first few of a class more certainly."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 0.1, (len(labels), outputs)).astype(np.float32)
    logits[np.arange(len(labels)), labels] += certainty
    return logits


def toy(known: int, new: int, *, each: int = 20) -> tuple[Points, Points]:
    """Return logits and features of a target with `known` known and `new` new classes."""
    labels = [min(group, known) for group in range(known + new) for _ in range(each)]
    return logits_of(labels, known + 1), blobs(known + new, each=each)
