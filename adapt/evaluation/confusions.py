"""The metrics and the confusion matrix that a labelled target adds to the report."""

from dataclasses import dataclass
from typing import Any

from scda.adapt.discovery.matching import contingency, match
from scda.adapt.evaluation.evaluate import Scored
from scda.models.index import Ids
from scda.models.predictor import ActiveClass, Predictor

METRICS = {
    "hos": "harmonic mean of OS* and UNK",
    "os_star": "OS*: recall of the known classes, mean over classes",
    "unk_pooled": "UNK: share of implicit images that are predicted as new",
    "os": "OS: mean recall over the known classes and one class of all implicit images",
    "acc_novel": "accuracy on implicit images, discovered classes matched to implicit ones",
    "acc_joint": "accuracy on all images, every output matched to a class",
    "nmi_implicit": "NMI of implicit images: whether images of one class stay together",
    "ari_implicit": "ARI of implicit images",
    "auroc": "how often an implicit image has a higher novelty score than a known one",
    "ece": "ECE: how far confidence and the share of right images lie apart, mean over images",
    "ece_known": "ECE of images predicted as known",
    "ece_discovered": "ECE of images predicted as discovered, each class right for its match",
    "h3_model": "harmonic mean of OS*, UNK and NMI",
}


@dataclass(frozen=True)
class Matched:
    """A row of the confusion matrix: one true class."""

    label: str  # name of the class folder
    known: bool
    total: int  # number of images
    counts: list[int]  # number of images per column
    partner: int | None  # column of the matched output


@dataclass(frozen=True)
class Truth:
    """The evaluation of a bundle on a labelled target."""

    fields: dict[str, Any]  # the fields of `evaluate --json`
    columns: list[ActiveClass]  # outputs in the order of the rows they are matched to
    rows: list[Matched]
    images: int

    @property
    def metrics(self) -> list[tuple[str, float | None, str]]:
        """Name, value in percent (None if it is not defined) and meaning of each metric."""
        return [(name, self.fields[name], text) for name, text in METRICS.items()]

    @property
    def correspondence(self) -> list[tuple[int, int]]:
        """Pairs of n and the number of implicit classes among the n most confident images."""
        names = [name for name in self.fields if name.startswith("correspondence_")]
        return [(int(name.rpartition("_")[2]), self.fields[name]) for name in names]


def make_truth(scored: Scored, fields: dict[str, Any], predictor: Predictor) -> Truth:
    """Return the confusion matrix, with discovered classes matched to implicit ones."""
    active = list(predictor.active_classes)
    kinds = [one.kind for one in active]
    num_known, num_found = kinds.count("known"), kinds.count("discovered")
    known = [one.label for one in active[:num_known]]
    names = known + scored.implicit_names
    table = contingency(scored.true, scored.predicted, (len(names), len(active)))
    # The last column, `unknown`, which dropped classes give, is matched to no class.
    partners = _partners(table[:, : num_known + num_found], num_known)
    order = [label for label in range(len(names)) if label < num_known or table[label].any()]
    columns = _columns(order, partners, len(active))
    rows = [
        Matched(
            names[label],
            label < num_known,
            int(table[label].sum()),
            table[label, columns].tolist(),
            columns.index(partners[label]) if label in partners else None,
        )
        for label in order
    ]
    return Truth(fields, [active[number] for number in columns], rows, len(scored.true))


def _partners(table: Ids, num_known: int) -> dict[int, int]:
    """Return true class → output: known classes map to themselves, others by shared images."""
    itself = {label: label for label in range(num_known)}
    shared = table[num_known:, num_known:]
    matched = {
        num_known + row: num_known + column
        for row, column in match(shared).items()
        if shared[row, column]
    }
    return itself | matched


def _columns(order: list[int], partners: dict[int, int], count: int) -> list[int]:
    matched = [partners[label] for label in order if label in partners]
    return matched + [number for number in range(count) if number not in matched]
