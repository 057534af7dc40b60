"""Ways to calibrate the confidence of a run without labels of its target, and how they do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import softmax

from scda.adapt.discovery.matching import contingency, match
from scda.adapt.discovery.trust.confidence import (
    Line,
    agreement,
    calibrate,
    expected_shares,
    log_odds,
    temperature_for,
)
from scda.adapt.evaluation.metrics import Labels
from scda.adapt.evaluation.reliability import calibration_error, reliability, right
from scda.models.index import Features
from scda.models.trust import Trust

_T = TypeVar("_T")
_TEMPERATURES = np.exp(np.linspace(np.log(0.25), np.log(16), 49))
_DOUBTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
_RIDGE = 1e-3  # penalty of a weight squared, beside a mean over images


@dataclass(frozen=True)
class Measured:
    """A finished run with the truth.

    Attributes:
        task: Name of the task.
        family: Family of its data, which is left out when its constants are fitted.
        group: Family and kind of the target.
        num_known: Number of known classes, K.
        truth: True classes of the target, (M,); K and above are new.
        logits: Logits of the target, (M, C).
        near: Nearest target images of every one, (M, n).
        expected: Expected accuracy of the run, 0 to 1.
        separation: The run's measure of this name, in nats.
        held_logits: Logits of held-out source images, by a run without them, (H, C').
        held_labels: Their labels, (H,).
        other_logits: Logits of the target by that other run, (M, C').
    """

    task: str
    family: str
    group: str
    num_known: int
    truth: Labels
    logits: Features
    near: Labels
    expected: float
    separation: float
    held_logits: Features
    held_labels: Labels
    other_logits: Features

    @cached_property
    def predicted(self) -> Labels:
        """Predicted classes of the target, (M,)."""
        return np.asarray(self.logits.argmax(axis=1), np.int64)

    @property
    def new(self) -> NDArray[np.bool_]:
        """Whether an image is predicted as new, (M,)."""
        return self.predicted >= self.num_known

    @cached_property
    def correct(self) -> NDArray[np.bool_]:
        """Whether a prediction is right, (M,)."""
        return right(self.truth, self.predicted, self.num_known, self.logits.shape[1])


Temperatures = NDArray[np.float64]  # of every class, (C,)
Method = Callable[[Measured], Temperatures]


def same(run: Measured, known: float, new: float) -> Temperatures:
    """Return one temperature for known classes and one for discovered ones."""
    return np.where(np.arange(run.logits.shape[1]) < run.num_known, known, new)


def probabilities(run: Measured, temperatures: Temperatures) -> Features:
    """Return the calibrated probabilities as the graph of a bundle gives them, (M, C)."""
    scale = softmax(run.logits, axis=1) @ (1 / temperatures)
    return np.asarray(softmax(run.logits * scale[:, None], axis=1), np.float32)


def mean_temperature(logits: Features, confidence: float) -> float:
    """Return the temperature, 0.25 to 16, whose mean confidence comes closest to the one given."""
    if not len(logits):
        return 1.0
    found = [softmax(logits / t, axis=1).max(axis=1).mean() for t in _TEMPERATURES]
    return float(_TEMPERATURES[np.abs(np.array(found) - confidence).argmin()])


def uncalibrated(run: Measured) -> Temperatures:
    """Return temperatures that change nothing."""
    return same(run, 1.0, 1.0)


def held_out_source(run: Measured) -> Temperatures:
    """Return the temperature of the highest likelihood of source images held out of training."""
    rows = np.arange(len(run.held_labels))
    likelihoods = [
        softmax(run.held_logits / t, axis=1)[rows, run.held_labels] for t in _TEMPERATURES
    ]
    best = int(np.argmax([np.log(np.maximum(p, 1e-12)).mean() for p in likelihoods]))
    return same(run, _TEMPERATURES[best], _TEMPERATURES[best])


def expected_accuracy(run: Measured) -> Temperatures:
    """Return the temperature at which the mean confidence in known classes is as trust expects."""
    found = mean_temperature(run.logits[~run.new], run.expected)
    return same(run, found, found)


def other_run(run: Measured) -> Temperatures:
    """Return temperatures at which confidence is the agreement with the run without the held-out.

    Source: Jiang et al. 2022, "Assessing Generalization of SGD via Disagreement".
    """
    others, k = run.other_logits.argmax(axis=1), run.num_known
    table = contingency(others, run.predicted, (run.other_logits.shape[1], run.logits.shape[1]))
    pairs = {label: label for label in range(k)}
    pairs |= {k + row: k + column for row, column in match(table[k:, k:]).items()}
    agrees = np.array([pairs.get(label, -1) for label in others.tolist()]) == run.predicted
    return by_kind(run, agrees)


def neighbours(run: Measured) -> Temperatures:
    """Return temperatures at which confidence is the share of neighbours with the same class."""
    return by_kind(run, (run.predicted[run.near] == run.predicted[:, None]).mean(axis=1))


def by_kind(run: Measured, shares: NDArray[np.generic]) -> Temperatures:
    """Return the temperatures of known and discovered classes whose mean confidence is a share."""
    known, new = (
        mean_temperature(run.logits[of], float(shares[of].mean()) if of.any() else 1.0)
        for of in (~run.new, run.new)
    )
    return same(run, known, new)


def of_classes(run: Measured, line: Line, doubt: float) -> Temperatures:
    """Return the temperatures that a bundle gets."""
    ids = [str(label) for label in range(run.logits.shape[1])]
    trust = Trust(
        expected_accuracy=run.expected, low=0, high=1, measures={"separation": run.separation}
    )
    found = calibrate(run.logits, run.near, ids, run.num_known, trust=trust, line=line, doubt=doubt)
    return np.array([found.temperature[i] for i in ids])


def of_kind(run: Measured, line: Line) -> Temperatures:
    """Return one temperature for all discovered classes, for the mean of their expected shares."""
    shares = expected_shares(run.predicted, run.near, run.num_known, run.separation, line)
    if not shares:
        return uncalibrated(run)
    share = float(np.mean([shares[label] for label in run.predicted[run.new].tolist()]))
    return same(run, 1.0, temperature_for(run.logits[run.new], share))


def fit_line(runs: Sequence[Measured]) -> Line:
    """Return the line of the highest likelihood; groups count alike, and the images of each."""
    rows, shares, weights = [], [], []
    groups = {run.group: 0 for run in runs}
    for run in runs:
        groups[run.group] += int(run.new.sum())
    for run in runs:
        labels, counts = np.unique(run.predicted[run.new], return_counts=True)
        of_class = [agreement(run.predicted, run.near, label) for label in labels.tolist()]
        overall = np.average(of_class, weights=counts) if len(labels) else 0.0
        for label, count, own in zip(labels, counts, of_class, strict=True):
            rows.append((1.0, log_odds(own), log_odds(float(overall)), run.separation))
            shares.append(run.correct[run.predicted == label].mean())
            weights.append(count / groups[run.group])
    x, y, w = np.array(rows), np.array(shares), np.array(weights) / np.sum(weights)

    def loss(b: NDArray[np.float64]) -> float:
        odds = x @ b
        return float((w * (np.logaddexp(0, odds) - y * odds)).sum() + _RIDGE * (b[1:] ** 2).sum())

    return Line(*minimize(loss, np.zeros(x.shape[1])).x.tolist())


def fit_doubt(runs: Sequence[Measured]) -> float:
    """Return the doubt in known classes with the smallest ECE of these, mean over groups."""
    flat = Line(0, 0, 0, 0)

    def error(doubt: float) -> float:
        return mean_of(over_groups(runs, lambda run: of_classes(run, flat, doubt)))[1]

    return min(_DOUBTS, key=error)


def errors(run: Measured, temperatures: Temperatures) -> tuple[float, ...]:
    """Return the ECE in percent of all images, and of those predicted as known and as discovered.

    It is nan where nothing is predicted so. The last is the Brier score of all images, times 100.
    """
    confidence = probabilities(run, temperatures).max(axis=1)
    parts = (np.ones_like(run.new), ~run.new, run.new)
    all_of_them, known, new = (
        100 * calibration_error(reliability(confidence[of], run.correct[of]))
        if of.any()
        else float("nan")
        for of in parts
    )
    return all_of_them, known, new, 100 * float(((confidence - run.correct) ** 2).mean())


def over_groups(runs: Sequence[Measured], method: Method) -> dict[str, list[float]]:
    """Return the mean of `errors` of every group."""
    found: dict[str, list[tuple[float, ...]]] = {}
    for run in runs:
        found.setdefault(run.group, []).append(errors(run, method(run)))
    return {
        group: [_mean(column) for column in zip(*of, strict=True)] for group, of in found.items()
    }


def left_out(runs: Sequence[Measured], fit: Callable[[Sequence[Measured]], _T]) -> dict[str, _T]:
    """Return what all other families give for every family."""
    return {
        family: fit([run for run in runs if run.family != family])
        for family in dict.fromkeys(run.family for run in runs)
    }


def mean_of(found: dict[str, list[float]]) -> list[float]:
    """Return the means over groups; groups where nothing is predicted so are left out."""
    return [_mean(column) for column in zip(*found.values(), strict=True)]


def _mean(values: Sequence[float]) -> float:
    there = [value for value in values if not np.isnan(value)]
    return mean(there) if there else float("nan")
