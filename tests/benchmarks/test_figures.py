from xml.etree import ElementTree

import pytest

from benchmarks import figures
from scda.models.errors import UsageError


def test_the_curve_of_rejection_is_an_svg_with_every_value() -> None:
    records = [
        {"task": task, "rejection": {"-1": [90.0, 80.0], "0": [88.0, 85.0], "1.5": [80.0, 95.0]}}
        for task in ("A-W", "D-W")
    ]
    svg = figures.rejection_svg(records)
    ElementTree.fromstring(svg)
    assert all(f">{value}</text>" in svg for value in ("-1", "+0", "+1.5"))


def test_only_the_records_that_the_page_speaks_of_are_drawn() -> None:
    right = {"study": "main", "protocol": "P1", "preset": "robust"}
    others = [{**right, "protocol": "P2"}, {**right, "preset": "paper"}, {"study": "k"}]
    assert figures.main_records([*others, right]) == [right]
    with pytest.raises(UsageError, match="no record of the main study"):
        figures.main_records(others)
