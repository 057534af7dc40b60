from dataclasses import replace
from pathlib import Path

import pytest

from scda.models.bundle import read_manifest
from scda.models.errors import UsageError
from scda.models.names import Names
from scda.models.naming import ConflictError, Naming
from scda.models.trust import ClassTrust, Doubt
from scda.serve.review.names_command import Orders, lines, listing, progress

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


def test_progress_counts_images_under_names_and_finds_the_next_class(
    bundle: Path, naming: Naming
) -> None:
    manifest = read_manifest(bundle)  # 27 images of known classes, 7 and 6 of discovered ones
    before = progress(manifest, Names())
    assert (before.images, before.images_named, before.classes, before.next_id) == (40, 27, 2, D0)
    assert before.lines == [
        "0 of 2 discovered classes named; 68% of 40 target images under a name",
        f"next: {D0} covers 18% more (7 images)",
    ]
    merged = progress(manifest, Orders(merges=[f"{D1},{D0}"]).apply(naming, Names()))
    assert (merged.classes, merged.next_id, merged.next_images) == (1, D1, 13)
    into_known = Orders(merges=[f"{RED},{D0}"], drops=[D1]).apply(naming, Names())
    assert progress(manifest, into_known).lines == [
        "85% of 40 target images under a name, 15% dropped"
    ]


def test_a_doubtful_class_is_the_last_to_name_and_a_share_is_never_rounded_to_all(
    bundle: Path,
) -> None:
    manifest = read_manifest(bundle)
    doubt = ClassTrust(stability=0.4, leak=0.3, similarity=0.6, doubts=(Doubt.LEAKS,))
    *known, large, small = manifest.classes
    classes = (
        *known,
        replace(large, size=4000, trust=doubt),
        replace(small, size=1),
    )
    changed = replace(manifest, classes=classes)
    assert progress(changed, Names()).next_text == f"next: {D1} covers 1% more (1 image)"
    named = progress(changed, Names(labels={D0: "pen"}))
    assert named.text.startswith("1 of 2 discovered classes named; 99% of 4028")
    empty = replace(manifest, classes=tuple(replace(info, size=0) for info in manifest.classes))
    assert progress(empty, Names()).lines == []
