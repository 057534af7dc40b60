"""Contact sheets: of every class its most typical, its borderline and its least typical images."""

from collections.abc import Sequence
from dataclasses import dataclass

from scda.adapt.report.groups import Group, Groups
from scda.adapt.runs.tables import TargetRow
from scda.models.files import printable

_PICTURES = 480  # on all sheets together, about 2.5 MB
_PER_SHEET = (4, 16)  # least and most; half of them typical
_MOST_OUTLIERS = 24  # shown
_ALT_CHARACTERS = 60  # of a class's name, which may be of any length


@dataclass(frozen=True)
class Picture:
    """One image on the page."""

    name: str  # in the thumbnails: relative to the target, or in the bundle
    alt: str
    other: str = ""  # class id of another one that it could be
    title: str = ""


@dataclass(frozen=True)
class Sheet:
    """One class with its pictures."""

    group: Group
    typical: list[Picture]
    borderline: list[Picture]  # the model hesitates between this class and the one named
    least: list[Picture]

    @property
    def pictures(self) -> list[Picture]:
        """All pictures of the sheet."""
        return self.typical + self.borderline + self.least


def make_sheets(groups: Groups) -> dict[str, Sheet]:
    """Return class id → sheet for every class, dropped ones included.

    The more classes, the fewer pictures of each, so that the page stays small.
    """
    every = groups.standing + groups.dropped
    least, most = _PER_SHEET
    count = max(least, min(most, _PICTURES // max(1, len(every))))
    return {group.class_id: _sheet(group, groups, count) for group in every}


def from_exemplars(sheet: Sheet, count: int = 8) -> Sheet:
    """Return the sheet with the exemplars of the bundle, for a target that cannot be read."""
    name = short(sheet.group.label)
    pictures = [
        Picture(path, f"typical image {number} of {name}")
        for number, path in enumerate(sheet.group.exemplars[:count], 1)
    ]
    return Sheet(sheet.group, pictures, [], [])


def outliers(rows: Sequence[TargetRow], groups: Groups) -> list[Picture]:
    """Return the images that lie far from every class, farthest first."""
    farthest = sorted((row for row in rows if row.outlier), key=lambda row: -row.distance)
    return [
        Picture(
            row.path,
            f"outlier {number}, called {short(groups.label_of(row.cluster))}",
            groups.answers[row.cluster],
            describe(row),
        )
        for number, row in enumerate(farthest[:_MOST_OUTLIERS], 1)
    ]


def short(label: str) -> str:
    """Return a name for an alternative text."""
    label = " ".join(label.split())
    return label if len(label) <= _ALT_CHARACTERS else label[: _ALT_CHARACTERS - 1] + "…"


def describe(row: TargetRow) -> str:
    """Return an image's file name and what the model says of it."""
    return f"{printable(row.path)} · confidence {row.confidence:.2f} · distance {row.distance:.3f}"


def _sheet(group: Group, groups: Groups, count: int) -> Sheet:
    left = sorted(group.rows, key=lambda row: row.distance)
    typical, left = left[: count // 2], left[count // 2 :]
    # Of two classes that were merged, either will do: no hesitation worth a look.
    unsure = [row for row in left if groups.answers[row.second] != group.class_id]
    borderline = sorted(unsure, key=lambda row: row.margin)[: count // 4]
    taken = {row.path for row in borderline}
    least = [row for row in reversed(left) if row.path not in taken][: count // 4]
    name = short(group.label)
    return Sheet(
        group,
        [_picture(row, f"typical image {n} of {name}") for n, row in enumerate(typical, 1)],
        [
            _picture(row, _between(name, row, groups), groups.answers[row.second])
            for row in borderline
        ],
        [_picture(row, f"untypical image {n} of {name}") for n, row in enumerate(least, 1)],
    )


def _between(name: str, row: TargetRow, groups: Groups) -> str:
    return f"image between {name} and {short(groups.label_of(row.second))}"


def _picture(row: TargetRow, alt: str, other: str = "") -> Picture:
    return Picture(row.path, alt, other, describe(row))
