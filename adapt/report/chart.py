"""The data of the report's map: the points of every class, and what the page shows for each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scda.adapt.report.groups import Group, Groups
from scda.adapt.report.thumbnails import Sprite
from scda.adapt.runs.tables import TargetRow
from scda.models.files import printable
from scda.models.names import UNKNOWN

SIDE = 1000  # side of the drawing in SVG units
_MARGIN = 40
_TAG_LIFT = 28
_RADII = (5.0, 11.0)  # smallest and largest radius of a point
_GOLDEN_ANGLE = 137.508  # degrees between successive hues, which keeps them distinct
_GREY = "hsl(210 8% 55%)"


@dataclass(frozen=True)
class Series:
    """The points of one class."""

    class_id: str
    label: str
    kind: str  # known | discovered | unknown
    colour: str
    points: list[tuple[float, float]]
    tag: tuple[float, float] | None  # position of a discovered class's number


@dataclass(frozen=True)
class Chart:
    """The points and colours of the map, and the sprite of small images for the whole page."""

    series: list[Series]
    radius: float
    data: dict[str, Any]  # facts about each point, for the script
    sprite: Sprite | None
    cells: dict[str, tuple[int, int]]  # class id → column and row of its most typical image
    colours: dict[str, str]  # class id → CSS colour

    @property
    def legend(self) -> list[Series]:
        """The series, discovered classes first."""
        first = [series for series in self.series if series.kind == "discovered"]
        return first + [series for series in self.series if series.kind != "discovered"]

    @property
    def num_points(self) -> int:
        """Number of images on the map."""
        return sum(len(series.points) for series in self.series)


def make_chart(
    rows: Sequence[TargetRow],
    groups: Groups,
    sprite: Sprite | None,
    places: dict[str, tuple[float, float]],
) -> Chart:
    """Return the map of the target.

    Args:
        rows: Rows of discovery.csv.
        groups: Classes of the run under their current names.
        sprite: Small images, if the target can be read.
        places: Path → position on the unit square; other images are not on the map.
    """
    colours = _colours(groups)
    series, shown = [], []
    for class_id, label, kind in _classes(groups):
        of_class = [
            row
            for row in rows
            if groups.answers.get(row.cluster) == class_id and row.path in places
        ]
        points = [_place(*places[row.path]) for row in of_class]
        tag = _above(points) if kind == "discovered" and points else None
        series.append(Series(class_id, label, kind, colours[class_id], points, tag))
        shown += of_class
    least, most = _RADII
    radius = max(least, min(most, 200 / math.sqrt(max(1, len(shown)))))
    data = {
        "points": [_facts(row, sprite, places) for row in shown],
        "sizes": [len(one.points) for one in series],
        "labels": [one.label for one in series],
        "columns": sprite.columns if sprite else 0,
    }
    return Chart(series, radius, data, sprite, _typical_cells(groups, sprite), colours)


def _classes(groups: Groups) -> list[tuple[str, str, str]]:
    """Return id, label and kind of each class; discovered ones last, so that they are on top."""
    active = [(g.class_id, g.label, g.kind) for g in groups.known + groups.discovered]
    return ([(UNKNOWN, UNKNOWN, UNKNOWN)] if groups.dropped else []) + active


def _colours(groups: Groups) -> dict[str, str]:
    found = {
        group.class_id: f"hsl({round(25 + number * _GOLDEN_ANGLE) % 360} 70% 50%)"
        for number, group in enumerate(groups.discovered)
    }
    known = {
        group.class_id: f"hsl({round(200 + number * _GOLDEN_ANGLE) % 360} 30% 58%)"
        for number, group in enumerate(groups.known)
    }
    return {UNKNOWN: _GREY, **{g.class_id: _GREY for g in groups.dropped}, **known, **found}


def _place(x: float, y: float) -> tuple[float, float]:
    inner = SIDE - 2 * _MARGIN
    return round(_MARGIN + x * inner, 1), round(_MARGIN + y * inner, 1)


def _above(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Return a position above the middle half of the points, which outliers do not move."""
    xs, ys = np.array(points).T
    return round(float(np.median(xs)), 1), round(float(np.quantile(ys, 0.25)) - _TAG_LIFT, 1)


def _facts(
    row: TargetRow, sprite: Sprite | None, places: dict[str, tuple[float, float]]
) -> list[Any]:
    """Return position, cell (-1 for none), file name and confidence in percent."""
    cell = sprite.places.get(row.path, -1) if sprite else -1
    return [*_place(*places[row.path]), cell, printable(row.path), round(100 * row.confidence)]


def _typical_cells(groups: Groups, sprite: Sprite | None) -> dict[str, tuple[int, int]]:
    if sprite is None:
        return {}
    cells = {}
    for group in groups.active + groups.dropped:
        first = _first_in(group, sprite)
        if first is not None:
            row, column = divmod(first, sprite.columns)
            cells[group.class_id] = (column, row)
    return cells


def _first_in(group: Group, sprite: Sprite) -> int | None:
    typical = sorted(group.rows, key=lambda row: row.distance)[:1]
    return next((sprite.places[row.path] for row in typical if row.path in sprite.places), None)
