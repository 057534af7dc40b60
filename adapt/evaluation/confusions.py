"""What a labelled target adds to the report: metrics and a confusion matrix."""

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
    "h3_model": "harmonic mean of OS*, UNK and NMI",
}


@dataclass(frozen=True)
class Matched:
    """One true class beside the output that stands for it."""

    label: str  # the folder's name
    known: bool
    total: int  # images
    counts: list[int]  # per column of the table
    partner: int | None  # the column that stands for it


@dataclass(frozen=True)
class Truth:
    """A labelled target as the bundle sees it."""

    fields: dict[str, Any]  # as `evaluate --json` has them
    columns: list[ActiveClass]  # in the order of the rows they stand for
    rows: list[Matched]
    images: int

    @property
    def metrics(self) -> list[tuple[str, float, str]]:
        """Name, value in percent, and meaning."""
        return [(name, self.fields[name], text) for name, text in METRICS.items()]

    @property
    def correspondence(self) -> list[tuple[int, int]]:
        """Per n, how many implicit classes are among the n surest images of discovered ones."""
        names = [name for name in self.fields if name.startswith("correspondence_")]
        return [(int(name.rpartition("_")[2]), self.fields[name]) for name in names]


def make_truth(scored: Scored, fields: dict[str, Any], predictor: Predictor) -> Truth:
    """Return the table of confusions, discovered classes matched to the implicit ones."""
    standing = list(predictor.active_classes)
    kinds = [one.kind for one in standing]
    num_known, num_found = kinds.count("known"), kinds.count("discovered")
    known = [one.label for one in standing[:num_known]]
    names = known + scored.implicit_names
    table = contingency(scored.true, scored.predicted, (len(names), len(standing)))
    # What was dropped answers `unknown`, the last column, which stands for no class.
    partners = _partners(table[:, : num_known + num_found], num_known)
    order = [label for label in range(len(names)) if label < num_known or table[label].any()]
    columns = _columns(order, partners, len(standing))
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
    return Truth(fields, [standing[number] for number in columns], rows, len(scored.true))


def _partners(table: Ids, num_known: int) -> dict[int, int]:
    """Return true class to output: known classes to themselves, the others by shared images."""
    itself = {label: label for label in range(num_known)}
    shared = table[num_known:, num_known:]
    matched = {
        num_known + row: num_known + column
        for row, column in match(shared).items()
        if shared[row, column]
    }
    return itself | matched


def _columns(order: list[int], partners: dict[int, int], count: int) -> list[int]:
    first = [partners[label] for label in order if label in partners]
    return first + [number for number in range(count) if number not in first]
