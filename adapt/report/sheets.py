"""Contact sheets: the most typical, the borderline and the least typical images of each class."""

from collections.abc import Sequence
from dataclasses import dataclass

from scda.adapt.report.groups import Group, Groups
from scda.adapt.runs.tables import TargetRow
from scda.models.files import printable

_TOTAL_IMAGES = 480  # number of images on all sheets together, about 2.5 MB
_PER_SHEET = (4, 16)  # smallest and largest number of images on a sheet; half are typical ones
_MOST_OUTLIERS = 24  # largest number of outliers shown
_ALT_CHARACTERS = 60  # largest length of a class name in an alternative text


@dataclass(frozen=True)
class SheetImage:
    """One image on the page."""

    name: str  # path relative to the target or to the bundle
    alt: str
    other: str = ""  # id of the other class of a borderline image
    title: str = ""


@dataclass(frozen=True)
class Sheet:
    """The contact sheet of one class."""

    group: Group
    typical: list[SheetImage]
    borderline: list[SheetImage]  # images with a small margin to another class
    least: list[SheetImage]

    @property
    def images(self) -> list[SheetImage]:
        """All images on the sheet."""
        return self.typical + self.borderline + self.least


def make_sheets(groups: Groups) -> dict[str, Sheet]:
    """Return class id → contact sheet for every class, dropped ones included.

    With many classes each sheet has fewer images, so that the page stays small.
    """
    every = groups.active + groups.dropped
    least, most = _PER_SHEET
    count = max(least, min(most, _TOTAL_IMAGES // max(1, len(every))))
    return {group.class_id: _sheet(group, groups, count) for group in every}


def from_exemplars(sheet: Sheet, count: int = 8) -> Sheet:
    """Return the sheet with the exemplars of the bundle, for a target that cannot be read."""
    name = short(sheet.group.label)
    images = [
        SheetImage(path, f"typical image {number} of {name}")
        for number, path in enumerate(sheet.group.exemplars[:count], 1)
    ]
    return Sheet(sheet.group, images, [], [])


def outliers(rows: Sequence[TargetRow], groups: Groups) -> list[SheetImage]:
    """Return the images that are far from every class, the farthest first."""
    farthest = sorted((row for row in rows if row.outlier), key=lambda row: -row.distance)
    return [
        SheetImage(
            row.path,
            f"outlier {number}, predicted as {short(groups.label_of(row.cluster))}",
            groups.answers[row.cluster],
            describe(row),
        )
        for number, row in enumerate(farthest[:_MOST_OUTLIERS], 1)
    ]


def short(label: str) -> str:
    """Return a class name shortened for an alternative text."""
    label = " ".join(label.split())
    return label if len(label) <= _ALT_CHARACTERS else label[: _ALT_CHARACTERS - 1] + "…"


def describe(row: TargetRow) -> str:
    """Return the file name of an image with its confidence and distance."""
    return f"{printable(row.path)} · confidence {row.confidence:.2f} · distance {row.distance:.3f}"


def _sheet(group: Group, groups: Groups, count: int) -> Sheet:
    left = sorted(group.rows, key=lambda row: row.distance)
    typical, left = left[: count // 2], left[count // 2 :]
    # A small margin between two merged classes does not make an image borderline.
    unsure = [row for row in left if groups.answers[row.second] != group.class_id]
    borderline = sorted(unsure, key=lambda row: row.margin)[: count // 4]
    taken = {row.path for row in borderline}
    least = [row for row in reversed(left) if row.path not in taken][: count // 4]
    name = short(group.label)
    return Sheet(
        group,
        [_sheet_image(row, f"typical image {n} of {name}") for n, row in enumerate(typical, 1)],
        [
            _sheet_image(row, _between(name, row, groups), groups.answers[row.second])
            for row in borderline
        ],
        [_sheet_image(row, f"untypical image {n} of {name}") for n, row in enumerate(least, 1)],
    )


def _between(name: str, row: TargetRow, groups: Groups) -> str:
    return f"image between {name} and {short(groups.label_of(row.second))}"


def _sheet_image(row: TargetRow, alt: str, other: str = "") -> SheetImage:
    return SheetImage(row.path, alt, other, describe(row))
