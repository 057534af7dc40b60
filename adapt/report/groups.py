"""The classes of a run and their target images, with names, merges and drops applied."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scda.adapt.runs.tables import TargetRow
from scda.models.bundle import CLUSTERS, ClassInfo, Manifest
from scda.models.index import Features, read_index
from scda.models.names import UNKNOWN, Names, read_names
from scda.models.trust import ClassTrust

_ALIKE = 3  # number of similar classes listed per class


@dataclass(frozen=True)
class Group:
    """A class, the classes merged into it, and the target images predicted as one of them."""

    info: ClassInfo  # the class that the others were merged into
    label: str
    kind: str  # known | discovered | unknown
    merged: tuple[ClassInfo, ...]  # the classes merged into it
    rows: tuple[TargetRow, ...]
    nearest_known: str | None  # label of the nearest known class; None for a known class
    alike: tuple[str, ...]  # ids of the most similar classes, nearest first

    @property
    def class_id(self) -> str:
        """Id of the class that stands for the group."""
        return self.info.class_id

    @property
    def trust(self) -> ClassTrust | None:
        """How far to trust a discovered class; None where it was not measured, as after a merge."""
        return None if self.merged else self.info.trust

    @property
    def doubtful(self) -> bool:
        """Whether it is a discovered class that may be false or mixed."""
        return self.info.doubtful and not self.merged

    @property
    def confidence(self) -> float:
        """Mean confidence of its images, 0 to 1; 0 if there are none."""
        return float(np.mean([row.confidence for row in self.rows])) if self.rows else 0.0

    @property
    def exemplars(self) -> list[str]:
        """Paths of its exemplars in the bundle, most typical first."""
        return [path for info in (self.info, *self.merged) for path in info.exemplars]


@dataclass(frozen=True)
class Groups:
    """All classes of a run."""

    discovered: list[Group]  # largest first, doubtful ones last
    known: list[Group]  # in the order of the bundle
    dropped: list[Group]
    answers: dict[str, str]  # class id → id of the class it was merged into, or `unknown`
    labels: dict[str, str]  # class id, or `unknown` → current label

    @property
    def trusted(self) -> list[Group]:
        """The discovered classes that are not doubtful."""
        return [group for group in self.discovered if not group.doubtful]

    @property
    def doubtful(self) -> list[Group]:
        """The discovered classes that may be false or mixed."""
        return [group for group in self.discovered if group.doubtful]

    @property
    def active(self) -> list[Group]:
        """All classes that are not dropped: the discovered ones, then the known ones."""
        return self.discovered + self.known

    def label_of(self, class_id: str) -> str:
        """Return the label under which a class is predicted after merges and drops."""
        return self.labels[self.answers[class_id]]

    def anchor(self, class_id: str) -> str:
        """Return the id of the part of the page that shows a class."""
        answer = self.answers[class_id]
        return class_id if answer == UNKNOWN else answer

    def brief(self, class_id: str) -> str:
        """Return a short label of a class, such as `new 3` for one without a name."""
        label, (kind, _, number) = self.labels[class_id], class_id.rpartition("-")
        unnamed = label == class_id and kind == "discovered"  # a folder may be called known-001
        return f"new {int(number)}" if unnamed else label


def make_groups(bundle: Path, manifest: Manifest, rows: list[TargetRow]) -> Groups:
    """Return the classes of a run under their current names.

    Raises:
        GateError: If names.json or the index of centroids is damaged.
    """
    names = read_names(bundle, manifest)
    answers = {class_id: names.resolve(class_id) for class_id in manifest.class_ids}
    labels = {info.class_id: names.label(info) for info in manifest.classes} | {UNKNOWN: UNKNOWN}
    alike = _alike(centroids(bundle / CLUSTERS), manifest.class_ids, answers)
    made = [
        _group(info, manifest, names, labels, rows, alike[info.class_id])
        for info in manifest.classes
        if answers[info.class_id] in (info.class_id, UNKNOWN)
    ]
    found = [group for group in made if group.kind == "discovered"]
    return Groups(
        sorted(found, key=lambda group: (group.doubtful, -len(group.rows))),
        [group for group in made if group.kind == "known"],
        [group for group in made if group.kind == UNKNOWN],
        answers,
        labels,
    )


def centroids(path: Path) -> Features:
    """Return the centroids in an index, (C, D), in output order.

    Raises:
        GateError: If the file is not an index.
    """
    index = read_index(path)
    return np.stack([index.reconstruct(number) for number in range(index.ntotal)])


def _group(
    info: ClassInfo,
    manifest: Manifest,
    names: Names,
    labels: dict[str, str],
    rows: list[TargetRow],
    alike: tuple[str, ...],
) -> Group:
    dropped = names.resolve(info.class_id) == UNKNOWN
    merged = () if dropped else _merged_into(info, manifest, names)
    members = {info.class_id, *(one.class_id for one in merged)}
    nearest = None
    if info.nearest_known:
        nearest = labels[names.merges.get(info.nearest_known, info.nearest_known)]
    return Group(
        info,
        labels[info.class_id],
        UNKNOWN if dropped else info.kind,
        merged,
        tuple(row for row in rows if row.cluster in members),
        nearest,
        alike,
    )


def _merged_into(info: ClassInfo, manifest: Manifest, names: Names) -> tuple[ClassInfo, ...]:
    return tuple(one for one in manifest.classes if names.merges.get(one.class_id) == info.class_id)


def _alike(
    vectors: Features, class_ids: list[str], answers: dict[str, str]
) -> dict[str, tuple[str, ...]]:
    """Return for each class the ids of the other active classes with the closest centroids."""
    cosines = vectors @ vectors.T
    found = {}
    for number, class_id in enumerate(class_ids):
        order = np.argsort(-cosines[number], kind="stable")
        others = dict.fromkeys(answers[class_ids[other]] for other in order)
        left = [other for other in others if other not in (answers[class_id], class_id, UNKNOWN)]
        found[class_id] = tuple(left[:_ALIKE])
    return found
