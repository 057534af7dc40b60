"""How far two runs on the same images lie apart."""

import json
from dataclasses import dataclass
from pathlib import Path

from sklearn.metrics import adjusted_rand_score

from scda.adapt.evaluation.evaluate import evaluate, score
from scda.adapt.runs.folder import RunFolder
from scda.adapt.runs.tables import read_discovery
from scda.models.predictor import load_predictor


@dataclass(frozen=True)
class Difference:
    """What two runs differ in; the first of them is measured against the second."""

    losses: float  # largest relative difference of a loss of pre-training, at its fiftieth step
    agreement: float  # adjusted Rand index of the classes of all target images; 1 is the same
    hos: float  # harmonic mean of the accuracies, the first less the second, in points
    k_star: int  # number of discovered classes, the first less the second

    def within(self, other: "Difference") -> bool:
        """Return whether nothing differs more than in `other`."""
        return (
            self.losses <= other.losses
            and self.agreement >= other.agreement
            and abs(self.hos) <= other.hos
            and abs(self.k_star) <= other.k_star
        )


def difference(run: Path, reference: Path, labelled: Path) -> Difference:
    """Compare a run with another one, on labelled images of its target."""
    here, there = _losses(run), _losses(reference)
    assert here.keys() == there.keys()
    hos, k_star = zip(*(_figures(one, labelled) for one in (run, reference)), strict=True)
    rows = [read_discovery(RunFolder(one).discovery) for one in (run, reference)]
    assert [row.path for row in rows[0]] == [row.path for row in rows[1]]
    clusters = [[row.cluster for row in of_run] for of_run in rows]
    return Difference(
        max(abs(here[name] / there[name] - 1) for name in there),
        float(adjusted_rand_score(*clusters)),
        hos[0] - hos[1],
        k_star[0] - k_star[1],
    )


def _losses(run: Path) -> dict[str, float]:
    lines = map(json.loads, RunFolder(run).metrics.read_text().splitlines())
    losses: dict[str, float] = next(line["losses"] for line in lines if line.get("during") == 0)
    return losses


def _figures(run: Path, labelled: Path) -> tuple[float, int]:
    predictor = load_predictor(run / "bundle", provider="cpu", threads=1)
    found = evaluate(score(predictor, labelled, on_progress=lambda done, total: None), predictor)
    return found["hos"], found["k_star"]
