"""Every metric of docs/method.md for a bundle, on a target whose labels are known."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scda.adapt import metrics
from scda.adapt.metrics import Labels
from scda.adapt.scan import scan_source
from scda.models.cpus import usable_cpus
from scda.models.errors import DataError, ImageError
from scda.models.images import read_file
from scda.models.index import Features
from scda.models.predictor import Outputs, Predictor
from scda.models.preprocess import Pixels

_BATCH = 32
_CORRESPONDENCE = (1, 3, 5)


@dataclass(frozen=True)
class Scored:
    """Predictions beside the truth; known labels 0 to K - 1, all others from K on."""

    true: Labels  # (N,)
    predicted: Labels  # (N,)
    confidence: Features  # (N,)
    newness: Features  # (N,), 1 - the sum of the known classes' probabilities
    features: Features  # (N, D)
    implicit_names: list[str]  # folders that are no known class
    rejected: int  # files that are no usable image


def score(predictor: Predictor, folder: Path, *, on_progress: Callable[[int, int], None]) -> Scored:
    """Return what the bundle says of every image in class folders.

    Folders named like a known class are known, every other one is an implicit class; names that
    people gave to discovered classes play no part.

    Raises:
        UsageError: If `folder` is no folder.
        DataError: If there is no class folder or no usable image.
    """
    files = scan_source(folder, role="labelled").classes
    known = [info.label for info in predictor.manifest.classes if info.kind == "known"]
    implicit = [name for name, paths in files.items() if paths and name not in known]
    order = known + implicit
    paths = [(path, order.index(name)) for name, paths in files.items() for path in paths]
    outputs: list[Outputs] = []
    true: list[int] = []
    for start in range(0, len(paths), _BATCH):
        batch = paths[start : start + _BATCH]
        pixels = _prepare(predictor, [path for path, _ in batch])
        usable = [(image, label) for image, (_, label) in zip(pixels, batch, strict=True)]
        good = [(image, label) for image, label in usable if image is not None]
        if good:
            outputs.append(predictor.run([image for image, _ in good]))
            true += [label for _, label in good]
        on_progress(min(start + _BATCH, len(paths)), len(paths))
    if not true:
        raise DataError(f"{folder}: no usable image in its class folders")
    probabilities = np.concatenate([part.probabilities for part in outputs])
    return Scored(
        np.array(true),
        probabilities.argmax(axis=1),
        probabilities.max(axis=1),
        1 - probabilities[:, : len(known)].sum(axis=1),
        np.concatenate([part.features for part in outputs]),
        implicit,
        len(paths) - len(true),
    )


def evaluate(scored: Scored, predictor: Predictor) -> dict[str, Any]:
    """Return one flat object with every metric, shares in percent."""
    manifest = predictor.manifest
    k_star = len(manifest.classes) - manifest.num_known
    config = manifest.run.get("config", {})
    return {
        "bundle_id": manifest.id,
        "method": "scda",
        **{name: config.get(name) for name in ("backbone", "preset", "seed")},
        **measured(scored, num_known=manifest.num_known, k_star=k_star),
        "images": len(scored.true),
        "rejected": scored.rejected,
        "seconds": manifest.run.get("seconds"),
    }


def measured(scored: Scored, *, num_known: int, k_star: int) -> dict[str, float]:
    """Return every metric of predictions beside the truth, shares in percent."""
    pair = (scored.true, scored.predicted)
    shares = {
        **metrics.open_set(*pair, num_known),
        "auroc": metrics.auroc(scored.true, scored.newness, num_known),
        **metrics.implicit_agreement(*pair, num_known),
        "acc_joint": metrics.acc_joint(*pair),
        "acc_novel": metrics.acc_novel(*pair, num_known),
        **metrics.h3(*pair, scored.features, num_known),
    }
    k_true = len(scored.implicit_names)
    counts = {
        f"correspondence_{n}": metrics.correspondence(*pair, scored.confidence, num_known, n)
        for n in _CORRESPONDENCE
    }
    return {
        **{name: round(100 * share, 2) for name, share in shares.items()},
        "k_star": k_star,
        "k_true": k_true,
        "k_signed": k_star - k_true,
        "k_abs": abs(k_star - k_true),
        **counts,
    }


def _prepare(predictor: Predictor, paths: list[Path]) -> list[Pixels | None]:
    def one(path: Path) -> Pixels | None:
        try:
            return predictor.prepare(read_file(path))
        except ImageError:
            return None

    with ThreadPoolExecutor(usable_cpus()) as pool:
        return list(pool.map(one, paths))
