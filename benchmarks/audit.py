"""Measure how many wrong labels and copies `scda-adapt audit` finds.

    python -m benchmarks.audit --data DIR [--seeds N] [--logistic] [--cache DIR]

Per folder and seed: 5% of the labels are changed to another class, and counted in the first 8% of
the list; the same with copies of 5% of the images, saved anew (smaller, darker, mirrored, of lower
quality) in another class folder; and how many of these copies are found as such. Judges compared:
the ridge regression of `audit`, the 10 nearest neighbours, and a logistic regression by
cross-validation, as cleanlab does.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from threadpoolctl import threadpool_limits

from benchmarks.open_set.aggregate import markdown
from benchmarks.open_set.execute import say
from scda.adapt.audit.copies import copy_groups
from scda.adapt.audit.labels import Agreement, agreement
from scda.adapt.audit.signatures import read_signatures, resemblance
from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import job_backbone
from scda.adapt.data.features import Extracted, extract
from scda.adapt.data.scan import scan_source
from scda.adapt.discovery.neighbours import nearest_others
from scda.models.cache import user_cache
from scda.models.index import Features, Ids, normalised
from scda.models.networks.backbones import Backbone

FOLDERS = {
    "Office-31 A": "office31/amazon/images",
    "Office-31 D": "office31/dslr/images",
    "Office-31 W": "office31/webcam/images",
    "groceries": "grocery/train",
}
_CHANGED, _LIST = 0.05, 0.08  # shares of the images
_BARS = {"flips": 0.80, "copied": 0.99, "copies": 0.99}
Judge = Callable[[Features, Ids], NDArray[np.float64]]  # margins, low where a label looks wrong
_COPIES: tuple[tuple[Callable[[Image.Image], Image.Image], int], ...] = (
    (lambda image: image, 40),
    (lambda image: image.resize((max(1, image.width // 2), max(1, image.height // 2))), 85),
    (lambda image: ImageEnhance.Brightness(image).enhance(0.85), 90),
    (ImageOps.mirror, 90),
)  # change and JPEG quality


def by_regression(features: Features, labels: Ids) -> NDArray[np.float64]:
    """Return the margins that `audit` uses."""
    return agreement(features, labels).margin


def by_neighbours(features: Features, labels: Ids) -> NDArray[np.float64]:
    """Return the share of the 10 nearest neighbours that have the label of each image."""
    near = labels[nearest_others(features, 10)]
    return np.asarray((near == labels[:, None]).mean(axis=1))


def by_logistic(features: Features, labels: Ids) -> NDArray[np.float64]:
    """Return margins of probabilities out of sample: 5 folds of a logistic regression."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict

    points = normalised(features)
    points = normalised(points - points.mean(axis=0))
    head = LogisticRegression(C=10, max_iter=200)
    return Agreement(
        cross_val_predict(head, points, labels, cv=5, method="predict_proba"), labels
    ).margin


def found(margins: NDArray[np.float64], changed: Ids) -> float:
    """Return the share of the changed images in the first 8% of the list."""
    first = np.argsort(margins, kind="stable")[: int(_LIST * len(margins))]
    return float(np.isin(changed, first).mean())


def flipped(labels: Ids, seed: int) -> tuple[Ids, Ids]:
    """Return labels of which 5% are changed to another class, and the rows of these."""
    generator = np.random.default_rng(seed)
    rows = generator.choice(len(labels), round(_CHANGED * len(labels)), replace=False)
    num_classes = int(labels.max()) + 1
    changed = labels.copy()
    changed[rows] = (labels[rows] + generator.integers(1, num_classes, len(rows))) % num_classes
    return changed, rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every folder, print the tables and answers, and return the exit code."""
    options = _parser().parse_args(arguments)
    judges: dict[str, Judge] = {"ridge": by_regression, "10 neighbours": by_neighbours}
    judges |= {"logistic": by_logistic} if options.logistic else {}
    backbone = job_backbone(TrainConfig())
    rows, worst = [], dict.fromkeys(_BARS, 1.0)
    with threadpool_limits(1):
        for name, folder in FOLDERS.items():
            say(name)
            source, labels = _read(options.data / folder, backbone, options.cache)
            flips = {
                judge: [found(of(source.features, changed), rows) for changed, rows in cases]
                for cases in [[flipped(labels, seed) for seed in range(options.seeds)]]
                for judge, of in judges.items()
            }
            copied = [
                _copied(source, labels, backbone, options.cache, seed)
                for seed in range(options.seeds)
            ]
            wrong, same = (float(np.mean(values)) for values in zip(*copied, strict=True))
            rows.append(
                [name, str(len(labels)), *map(_spread, flips.values()), _cell(wrong), _cell(same)]
            )
            measured = {"flips": float(np.mean(flips["ridge"])), "copied": wrong, "copies": same}
            worst = {key: min(worst[key], value) for key, value in measured.items()}
    header = ["folder", "images", *judges, "copies in another class, ridge", "copies found"]
    print(markdown(header, rows))
    for key, bar in _BARS.items():
        verdict = "PASS" if worst[key] >= bar else "FAIL"
        print(f"{verdict} name=audit_{key} ratio={worst[key]:.3f} bar={bar}")
    return int(any(worst[key] < bar for key, bar in _BARS.items()))


def _read(folder: Path, backbone: Backbone, cache: Path) -> tuple[Extracted, Ids]:
    classes = scan_source(folder).classes
    number = {path: n for n, paths in enumerate(classes.values()) for path in paths}
    source = extract([*number], backbone, cache_folder=cache)
    return source, np.array([number[path] for path in source.paths])


def _copied(
    source: Extracted, labels: Ids, backbone: Backbone, cache: Path, seed: int
) -> tuple[float, float]:
    """Return the shares of wrongly labelled copies in the first 8%, and of copies found as such."""
    changed, rows = flipped(labels, seed)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{row}.jpg" for row in rows]
        for number, (row, path) in enumerate(zip(rows, paths, strict=True)):
            change, quality = _COPIES[number % len(_COPIES)]
            image = Image.open(source.paths[row]).convert("RGB")
            change(image).save(path, "JPEG", quality=quality)
        copies = extract(paths, backbone, cache_folder=cache)
        features = np.concatenate([source.features, copies.features])
        signatures = read_signatures([*source.paths, *paths])
    margins = by_regression(features, np.concatenate([labels, changed[rows]]))
    planted = np.arange(len(labels), len(features))
    started = time.monotonic()
    digests = source.digests + copies.digests
    groups = copy_groups(features, digests, partial(resemblance, signatures))
    say(f"  copies of {len(features)} images compared in {time.monotonic() - started:.1f} s")
    return found(margins, planted), float((groups[planted] == groups[rows]).mean())


def _spread(values: Sequence[float]) -> str:
    return f"{100 * np.mean(values):.1f} (lowest {100 * min(values):.1f})"


def _cell(value: float) -> str:
    return f"{100 * value:.1f}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder that holds office31 and grocery")
    add("--seeds", type=int, default=5, help="draws of wrong labels and copies (5)")
    add("--logistic", action="store_true", help="also measure the logistic regression; slow")
    add("--cache", type=Path, default=user_cache() / "features", help="folder of cached features")
    return parser


if __name__ == "__main__":
    sys.exit(main())
