"""The findings on images and classes, from arrays alone."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from scda.adapt.audit.copies import members
from scda.adapt.audit.findings import Finding, Kind
from scda.adapt.audit.labels import Agreement, agreement
from scda.models.index import Features, Ids, normalised

MOST_COMPARED = 10_000  # images of a run that its report compares with each other
FEW = 8  # different images of a class, below which it is learned badly
_ALIKE = 0.5  # share of a class's images that are not copies, below which they are too alike


@dataclass(frozen=True)
class Audited:
    """The images of an audit: those of the source first, then those of the target.

    Attributes:
        names: Path of each image relative to its folder.
        classes: Class of each source image; the target has none.
        features: Features of the backbone, (N, D).
        digests: SHA-256 of each file.
    """

    names: Sequence[str]
    classes: Sequence[str]
    features: Features
    digests: Sequence[str]

    def domain(self, row: int) -> str:
        """Return the domain of an image."""
        return "source" if row < len(self.classes) else "target"

    def label(self, row: int) -> str:
        """Return the class of an image; empty in the target."""
        return self.classes[row] if row < len(self.classes) else ""

    @cached_property
    def files_of_target(self) -> frozenset[str]:
        """The digests of the target's files."""
        return frozenset(self.digests[len(self.classes) :])


def label_findings(images: Audited) -> tuple[list[Finding], Agreement | None]:
    """Return the source images whose label looks wrong, most wrong first, and all scores."""
    names, labels = np.unique(np.asarray(images.classes), return_inverse=True)
    if len(names) < 2:
        return [], None
    features = images.features[: len(labels)]
    judged = agreement(features, labels)
    sure = set(judged.wrong().tolist())
    doubted = [row for row in judged.order.tolist() if judged.margin[row] < 0]
    points = normalised(features)
    found = []
    for row in doubted:
        rows = np.flatnonzero(labels == judged.suggested[row])
        like = int(rows[(points[rows] @ points[row]).argmax()])
        label, suggested = images.classes[row], str(names[judged.suggested[row]])
        found.append(
            Finding(
                kind=Kind.LABEL,
                domain="source",
                path=images.names[row],
                label=label,
                suggested=suggested,
                score=float(judged.margin[row]),
                other=images.names[like],
                remove=row in sure,
                message=f"labelled {label}, looks like {suggested}",
            )
        )
    return found, judged


def copy_findings(
    images: Audited, groups: NDArray[np.int64], judged: Agreement | None
) -> list[Finding]:
    """Return the copies within and between classes and folders.

    Args:
        images: Images.
        groups: Number of the group of copies of each image, (N,).
        judged: Scores of the source, which tell the better label of one picture in two classes.
    """
    found: list[Finding] = []
    for rows in members(groups):
        of_source, of_target = (part.tolist() for part in _split(rows, len(images.classes)))
        kept = _kept(images, of_source, judged) if of_source else of_target[0]
        found += _in_source(images, of_source, kept)
        found += _in_target(images, of_target, kept)
    return found


def _kept(images: Audited, rows: Sequence[int], judged: Agreement | None) -> int:
    """Return the image of copies in the source that stays.

    It is the one with the better label or, where they have the same, one whose file the target
    holds, too, if there is one.
    """
    if judged and len({images.label(row) for row in rows}) > 1:
        return max(rows, key=lambda row: judged.own[row])
    return next((row for row in rows if images.digests[row] in images.files_of_target), rows[0])


def _in_source(images: Audited, rows: Sequence[int], kept: int) -> Iterator[Finding]:
    labels = {images.label(row) for row in rows}
    for row in rows:
        label = images.label(row)
        if len(labels) == 1 and row == kept:
            continue
        is_other = label != images.label(kept)
        yield Finding(
            kind=Kind.TWO_CLASSES if len(labels) > 1 else Kind.COPY,
            domain="source",
            path=images.names[row],
            label=label,
            suggested=images.label(kept) if is_other else "",
            other=images.names[kept] if row != kept else "",
            remove=row != kept,
            message=f"the same picture is in {' and '.join(sorted(labels))}"
            if len(labels) > 1
            else f"a copy of {images.names[kept]}",
        )


def _in_target(images: Audited, rows: Sequence[int], kept: int) -> Iterator[Finding]:
    in_source = kept < len(images.classes)
    where = f"source/{images.names[kept]}" if in_source else images.names[kept]
    # Training takes an equal file for a labelled image of the target; of other copies it cannot
    # tell. Further equal files are copies within the target.
    equal = (row for row in rows if in_source and images.digests[row] == images.digests[kept])
    labelled = next(equal, None)
    for row in rows:
        if row == kept:
            continue
        is_labelled = row == labelled
        yield Finding(
            kind=Kind.LEAK if in_source else Kind.COPY,
            domain="target",
            path=images.names[row],
            label=images.label(kept),
            other=images.names[kept],
            remove=not is_labelled,
            message=f"the same file as {where}: a labelled image of the target"
            if is_labelled
            else f"a copy of {where}",
        )


def _split(rows: Ids, num_source: int) -> tuple[Ids, Ids]:
    return rows[rows < num_source], rows[rows >= num_source]


def class_findings(images: Audited, groups: NDArray[np.int64]) -> list[Finding]:
    """Return the classes with too few different images, or with mostly copies."""
    counts = Counter(images.classes)
    distinct = Counter(
        label for label, _ in set(zip(images.classes, groups.tolist(), strict=False))
    )
    found = []
    for label, count in sorted(counts.items()):
        different = distinct[label]
        if different < FEW:
            message = f"{different} different images; expected {FEW} or more"
            found.append((Kind.FEW, label, message))
        if different < _ALIKE * count:
            message = f"{count} images show {different} different pictures; add others"
            found.append((Kind.ALIKE, label, message))
    return [
        Finding(kind=kind, domain="source", path=label, label=label, message=message)
        for kind, label, message in found
    ]
