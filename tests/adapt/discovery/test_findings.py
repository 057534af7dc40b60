import pytest

from scda.adapt.discovery.findings import Finding, Status, statuses


def test_a_finding_is_shown_as_status_what_was_found_and_what_to_do() -> None:
    finding = Finding(Status.K_UNSURE, "two counts differ", "set --k")
    assert str(finding) == "k unsure: two counts differ; set --k"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([], ("ok",)),
        ([Status.COLLAPSED], ("collapsed",)),
        (
            [Status.K_UNSURE, Status.WEAK_TRANSFER, Status.K_UNSURE],
            ("k unsure", "weak transfer"),
        ),
    ],
)
def test_a_status_is_listed_once_and_ok_stands_for_none(
    found: list[Status], expected: tuple[str, ...]
) -> None:
    listed = statuses(Finding(status, "this", "do that") for status in found)
    assert listed == expected
    assert {type(status) for status in listed} == {str}


def test_statuses_stay_as_bundles_hold_them() -> None:
    assert list(Status) == [
        "ok",
        "nothing new found",
        "weak transfer",
        "doubtful",
        "collapsed",
        "k unsure",
        "unstable k",
        "k at its bound",
        "fewer than asked for",
        "game collapsed",
        "unsteady training",
        "diverged",
        "empty class",
    ]
