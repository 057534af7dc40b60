from xml.etree import ElementTree

import figures


def test_the_curve_of_rejection_is_an_svg_with_every_value() -> None:
    records = [
        {"task": task, "rejection": {"-1": [90.0, 80.0], "0": [88.0, 85.0], "1.5": [80.0, 95.0]}}
        for task in ("A-W", "D-W")
    ]
    svg = figures.rejection_svg(records)
    ElementTree.fromstring(svg)
    # matplotlib draws text as paths and leaves what it says in a comment.
    assert all(f"<!-- {value} -->" in svg for value in ("-1", "+0", "+1.5"))
