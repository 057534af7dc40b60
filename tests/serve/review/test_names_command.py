from pathlib import Path

import pytest

from scda.models.bundle import read_manifest
from scda.models.errors import UsageError
from scda.models.names import Names
from scda.models.naming import ConflictError, Naming
from scda.serve.review.names_command import Orders, lines, listing

D0, D1, RED = "discovered-000", "discovered-001", "known-002"


@pytest.fixture(scope="module")
def naming(bundle: Path) -> Naming:
    return Naming(read_manifest(bundle).classes)


def test_nothing_asked_is_false_and_changes_nothing(naming: Naming) -> None:
    assert not Orders()
    assert Orders().apply(naming, Names()) == Names()
    assert Orders(undo=True)


def test_the_orders_of_one_call_fit_together(naming: Naming) -> None:
    names = Orders(merges=[f"{RED}, {D1}"], labels=[f"{D0} = a=b ", f"{RED}=rot"]).apply(
        naming, Names()
    )
    assert names.labels == {D0: "a=b", RED: "rot"}
    assert names.merges == {D1: RED}


def test_a_restored_class_can_be_merged_in_the_same_call(naming: Naming) -> None:
    dropped = Orders(drops=[D1]).apply(naming, Names())
    names = Orders(restores=[D1], merges=[f"{D0},{D1}"]).apply(naming, dropped)
    assert (names.merges, names.drops) == ({D1: D0}, frozenset())


def test_a_call_is_refused_if_a_class_has_changed_since_the_version_seen(naming: Naming) -> None:
    names = Orders(labels=[f"{D0}=stapler"]).apply(naming, Names())
    with pytest.raises(ConflictError, match=f"named {D0} stapler since"):
        Orders(labels=[f"{D1}=pen", f"{D0}=tape"], version=0).apply(naming, names)
    # The edits of one call do not conflict with each other.
    both = Orders(merges=[f"{D0},{D1}"], labels=[f"{D0}=tape"], version=1).apply(naming, names)
    assert (both.merges, both.labels) == ({D1: D0}, {D0: "tape"})


def test_a_label_needs_its_class(naming: Naming) -> None:
    with pytest.raises(UsageError, match="expected CLASS_ID=LABEL"):
        Orders(labels=["stapler"]).apply(naming, Names())


def test_the_listing_says_what_answers(bundle: Path, naming: Naming) -> None:
    names = Orders(labels=[f"{D0}=stapler"], merges=[f"{RED},{D1}"]).apply(naming, Names())
    rows = listing(read_manifest(bundle), names)
    assert [row["class_id"] for row in rows] == naming.class_ids
    assert rows[3] == {
        "class_id": D0,
        "kind": "discovered",
        "size": 7,
        "label": "stapler",
        "answers_as": D0,
        "doubts": [],
    }
    assert lines(rows)[-1] == f"{D1}         6 images  {D1}  -> {RED}"
