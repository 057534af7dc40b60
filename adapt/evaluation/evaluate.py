"""The metrics of docs/method.md for a bundle, on a labelled target."""

import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scda.adapt.data.scan import scan_source
from scda.adapt.evaluation import metrics
from scda.adapt.evaluation.metrics import Labels
from scda.adapt.evaluation.reliability import calibration_error, reliability, right
from scda.models.cpus import usable_cpus
from scda.models.decoding.content import read_bytes
from scda.models.errors import DataError, ImageError
from scda.models.images import read_pixels
from scda.models.index import Features
from scda.models.limits import ImageLimits
from scda.models.names import to_nfc
from scda.models.predictor import Outputs, Predictor
from scda.models.preprocess import Pixels

_BATCH = 32
_CORRESPONDENCE = (1, 3, 5)
# Metrics that images of known, or of implicit classes, define.
_OF_KNOWN = ("os", "os_star", "hos", "auroc", "h3_oracle", "h3_model")
_OF_IMPLICIT = (
    *("os", "unk_pooled", "unk_macro", "hos", "auroc"),
    *("nmi_implicit", "ari_implicit", "acc_novel", "h3_oracle", "h3_model"),
)


@dataclass(frozen=True)
class Scored:
    """Predictions with true labels; known classes are 0 to K - 1, all others K and above."""

    true: Labels  # (N,)
    predicted: Labels  # (N,)
    confidence: Features  # (N,)
    novelty_score: Features  # (N,), 1 - the sum of the known classes' probabilities
    features: Features  # (N, D)
    implicit_names: list[str]  # names of the folders that are implicit classes
    rejected: int  # number of files that are not usable images


def score(predictor: Predictor, folder: Path, *, on_progress: Callable[[int, int], None]) -> Scored:
    """Return the predictions for all images in class folders, with merges and drops applied.

    A folder with the original or the current name of a known class is that class; every other
    folder is an implicit class. An image predicted as `unknown` counts as predicted new.

    Args:
        predictor: Model of the bundle.
        folder: Labelled target, one folder per class.
        on_progress: Called with the number of finished files and the number of all files.

    Raises:
        UsageError: If `folder` is not a folder.
        DataError: If it has no class folder or no usable image.
    """
    files = scan_source(folder, role="labelled").classes
    active = predictor.active_classes
    numbers = _numbers(predictor, [name for name, paths in files.items() if paths])
    paths = [(path, numbers[name]) for name, paths in files.items() for path in paths]
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
        raise DataError(f"{folder}: found no usable image in its class folders")
    num_known = sum(one.kind == "known" for one in active)
    probabilities = np.concatenate([predictor.merged_probabilities(part) for part in outputs])
    return Scored(
        np.array(true),
        probabilities.argmax(axis=1),
        probabilities.max(axis=1),
        1 - probabilities[:, :num_known].sum(axis=1),
        np.concatenate([part.features for part in outputs]),
        [name for name, number in numbers.items() if number >= num_known],
        len(paths) - len(true),
    )


def _numbers(predictor: Predictor, folders: list[str]) -> dict[str, int]:
    """Return folder name → true label: the output of a known class, or a number from K on.

    The current name of a class takes precedence over a name of the training. The id of a class
    that nobody named is not a name, nor is `unknown`: a class folder may be called so.
    """
    names, active = predictor.names, predictor.active_classes
    named = [one for one in active if one.kind == "known" or one.class_id in names.labels]
    ids = {to_nfc(one.label): one.class_id for one in named}
    for info in predictor.manifest.classes:
        if info.kind == "known":
            ids.setdefault(to_nfc(info.label), names.resolve(info.class_id))
    known = [one.class_id for one in active if one.kind == "known"]
    of_folder = {name: ids.get(to_nfc(name)) for name in folders}
    numbers = {name: known.index(i) for name, i in of_folder.items() if i in known}
    implicit = [name for name in folders if name not in numbers]
    return numbers | {name: len(known) + i for i, name in enumerate(implicit)}


def evaluate(scored: Scored, predictor: Predictor) -> dict[str, Any]:
    """Return all metrics and what was evaluated as one flat object, shares in percent.

    A metric is None where the labelled images do not define it: without images of a known class,
    for one, there is no recall of known classes, which is not a recall of 0.
    """
    manifest = predictor.manifest
    kinds = [one.kind for one in predictor.active_classes]
    num_known = kinds.count("known")
    config = manifest.run.get("config", {})
    return {
        "bundle_id": manifest.id,
        "method": "scda",
        **{name: config.get(name) for name in ("backbone", "preset", "seed")},
        **measured(scored, num_known=num_known, k_star=kinds.count("discovered")),
        **_undefined(scored.true, num_known),
        **calibration(scored, num_known, num_known + kinds.count("discovered")),
        "acc_named": _acc_named(scored, predictor),
        "names_version": predictor.names.version,
        "images": len(scored.true),
        "rejected": scored.rejected,
        "seconds": manifest.run.get("seconds"),
    }


def calibration(scored: Scored, num_known: int, num_outputs: int) -> dict[str, Any]:
    """Return ece, ece_known, ece_discovered in percent, and `reliability`: what was counted.

    Images are told apart by what is predicted; an ECE is None where nothing is predicted so. Images
    predicted as a dropped class are left out.
    """
    correct = right(scored.true, scored.predicted, num_known, num_outputs)
    rows = {
        "known": scored.predicted < num_known,
        "discovered": (scored.predicted >= num_known) & (scored.predicted < num_outputs),
    }
    bins = {kind: reliability(scored.confidence[of], correct[of]) for kind, of in rows.items()}
    either = rows["known"] | rows["discovered"]
    bins_of = {
        "ece": reliability(scored.confidence[either], correct[either]),
        **{f"ece_{kind}": found for kind, found in bins.items()},
    }
    return {
        **{
            name: round(100 * calibration_error(found), 2) if found else None
            for name, found in bins_of.items()
        },
        "reliability": [
            {"kind": kind, **dataclasses.asdict(one)}
            for kind, found in bins.items()
            for one in found
        ],
    }


def measured(scored: Scored, *, num_known: int, k_star: int) -> dict[str, float]:
    """Return all metrics of the predictions, shares in percent."""
    pair, num_outputs = (scored.true, scored.predicted), num_known + k_star
    shares = {
        **metrics.open_set(*pair, num_known),
        "auroc": metrics.auroc(scored.true, scored.novelty_score, num_known),
        **metrics.implicit_agreement(*pair, num_known),
        "acc_joint": metrics.acc_joint(*pair, num_outputs),
        "acc_novel": metrics.acc_novel(*pair, num_known, num_outputs),
        **metrics.h3(*pair, scored.features, num_known),
    }
    k_true = len(scored.implicit_names)
    discovered = range(num_known, num_outputs)
    counts = {
        f"correspondence_{n}": metrics.correspondence(*pair, scored.confidence, discovered, n)
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


def _undefined(true: Labels, num_known: int) -> dict[str, None]:
    without_known = () if (true < num_known).any() else _OF_KNOWN
    without_implicit = () if (true >= num_known).any() else _OF_IMPLICIT
    return dict.fromkeys((*without_known, *without_implicit))


def _acc_named(scored: Scored, predictor: Predictor) -> float | None:
    """Return the accuracy, in percent, over the folders that have the name of a class.

    None if there is no such folder.
    """
    active = predictor.active_classes
    known = [i for i, one in enumerate(active) if one.kind == "known"]
    named = {to_nfc(name): len(known) + i for i, name in enumerate(scored.implicit_names)}
    rest = [named.get(to_nfc(one.label), -1) for one in active[len(known) :]]
    labels = np.array([*known, *rest])  # true label of the folder with the output's name
    named_rows = np.isin(scored.true, labels)
    right = labels[scored.predicted[named_rows]] == scored.true[named_rows]
    return round(100 * float(right.mean()), 2) if len(right) else None


def _prepare(predictor: Predictor, paths: list[Path]) -> list[Pixels | None]:
    limits = ImageLimits.of_run(predictor.manifest.run)

    def one(path: Path) -> Pixels | None:
        try:
            data = read_bytes(path, max_bytes=limits.max_bytes)
            return read_pixels(data, predictor.manifest.preprocessing, limits)
        except ImageError:
            return None

    with ThreadPoolExecutor(usable_cpus()) as pool:
        return list(pool.map(one, paths))
