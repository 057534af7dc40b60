import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scda.adapt.report.groups import Groups, make_groups
from scda.adapt.report.sheets import Sheet, from_exemplars, make_sheets, outliers, short
from scda.adapt.runs.tables import TargetRow
from scda.models.bundle import read_manifest
from scda.models.files import printable
from scda.models.trust import ClassTrust, Doubt
from tests.bundles import make_bundle

BLUE, GREEN, RED = "known-000", "known-001", "known-002"
D0, D1 = "discovered-000", "discovered-001"


def row(number: int, cluster: str, **changes: Any) -> TargetRow:
    first = TargetRow(
        f"{cluster}-{number:02d}.jpg", "", 0.1, cluster, number / 100, 0.9, 0.8, RED, False
    )
    return replace(first, **changes)


ROWS = [row(number, cluster) for cluster in (BLUE, GREEN, D0, D1) for number in range(20)]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "bundle")


def groups(bundle: Path, rows: list[TargetRow] | None = None, **said: object) -> Groups:
    """The classes of a bundle after people said something of them."""
    if said:
        (bundle / "names.json").write_text(json.dumps({"version": 1, **said}))
    return make_groups(bundle, read_manifest(bundle), ROWS if rows is None else rows)


def sheet(bundle: Path, rows: list[TargetRow], class_id: str = D0) -> Sheet:
    return make_sheets(groups(bundle, rows))[class_id]


def test_typical_are_the_nearest_and_untypical_the_farthest(bundle: Path) -> None:
    found = sheet(bundle, [*ROWS[40:60][::-1], *ROWS])
    assert [p.name for p in found.typical[:3]] == [f"{D0}-00.jpg"] * 2 + [f"{D0}-01.jpg"]
    found = sheet(bundle, ROWS)
    assert [p.name for p in found.typical] == [f"{D0}-{n:02d}.jpg" for n in range(8)]
    assert [p.name for p in found.borderline] == [f"{D0}-{n:02d}.jpg" for n in range(8, 12)]
    assert [p.name for p in found.least] == [f"{D0}-{n:02d}.jpg" for n in (19, 18, 17, 16)]


def test_borderline_are_those_of_least_margin_with_the_other_class(bundle: Path) -> None:
    unsure = [row(14, D0, margin=0.02, second=D1), row(11, D0, margin=0.01, second=BLUE)]
    rows = [r for r in ROWS if r.path not in {one.path for one in unsure}] + unsure
    found = sheet(bundle, rows)
    assert [p.name for p in found.borderline[:2]] == [unsure[1].path, unsure[0].path]
    assert [p.other for p in found.borderline[:2]] == [BLUE, D1]
    assert found.borderline[0].alt == "image between discovered-000 and blue"


def test_no_image_is_twice_on_a_sheet(bundle: Path) -> None:
    names = [image.name for image in sheet(bundle, ROWS[40:50]).images]
    assert len(names) == len(set(names)) == 10


def test_the_more_classes_the_fewer_images(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scda.adapt.report.sheets._TOTAL_IMAGES", 40)
    found = make_sheets(groups(bundle))
    assert {len(found[class_id].images) for class_id in (BLUE, D0)} == {8}


def test_a_given_name_is_on_the_sheet_and_in_the_texts(bundle: Path) -> None:
    found = make_sheets(groups(bundle, labels={D0: "stapler"}))[D0]
    assert found.group.label == "stapler"
    assert found.typical[0].alt == "typical image 1 of stapler"


def test_a_merged_class_is_shown_under_the_one_that_answers(bundle: Path) -> None:
    found = groups(bundle, merges={D1: D0})
    (group,) = found.discovered
    assert len(group.rows) == 40
    assert [info.class_id for info in group.merged] == [D1]
    assert found.label_of(D1) == D0
    assert D1 not in make_sheets(found)
    # A doubt between the two is none any more.
    rows = [row(number, D0, second=D1, margin=0) for number in range(12)]
    assert make_sheets(groups(bundle, rows))[D0].borderline == []


def test_a_dropped_class_stands_apart(bundle: Path) -> None:
    found = groups(bundle, drops=[D0])
    assert [group.class_id for group in found.discovered] == [D1]
    assert [group.class_id for group in found.dropped] == [D0]
    assert found.label_of(D0) == "unknown"
    assert len(make_sheets(found)[D0].images) == 16
    assert all(D0 not in group.alike for group in found.active)


def test_what_looks_alike_has_the_nearest_centroid(bundle: Path) -> None:
    found = {group.class_id: group for group in groups(bundle).active}
    # Yellow is red and green, cyan is blue and green.
    assert set(found[D0].alike[:2]) == {GREEN, RED}
    assert set(found[D1].alike[:2]) == {BLUE, GREEN}


def test_largest_discovered_classes_come_first(bundle: Path) -> None:
    rows = [row(number, D1) for number in range(3)] + [row(0, D0)]
    assert [group.class_id for group in groups(bundle, rows).discovered] == [D1, D0]


def test_a_class_without_images_has_the_bundles_images(bundle: Path) -> None:
    bare = sheet(bundle, [])
    assert bare.images == []
    assert bare.group.confidence == 0
    (image,) = from_exemplars(bare).typical
    assert image.name == f"exemplars/{D0}/0.jpg"


def test_outliers_come_farthest_first(bundle: Path) -> None:
    rows = [row(3, D0, outlier=True), row(9, BLUE, outlier=True), row(15, D0)]
    found = outliers(rows, groups(bundle, rows))
    assert [image.name for image in found] == [f"{BLUE}-09.jpg", f"{D0}-03.jpg"]
    assert found[0].alt == "outlier 1, predicted as blue"


def test_a_new_class_without_a_name_is_briefly_its_number(bundle: Path) -> None:
    assert groups(bundle).brief(D1) == "new 1"
    assert groups(bundle, labels={D1: "mug"}).brief(D1) == "mug"
    assert groups(bundle).brief(BLUE) == "blue"


def test_texts_are_short_and_printable() -> None:
    assert short("a\nb  c") == "a b c"
    assert len(short("x" * 500)) == 60
    assert printable("9\udce9.png") == "9\\xe9.png"


def test_doubtful_classes_stand_last(tmp_path: Path) -> None:
    trust = ClassTrust(stability=0.4, leak=0.3, similarity=0.6, doubts=(Doubt.UNSTABLE,))
    folder = make_bundle(tmp_path / "doubted", class_trust={D0: trust})
    rows = [*ROWS, row(20, D0)]  # the largest class is the doubtful one
    found = groups(folder, rows)
    assert [group.class_id for group in found.discovered] == [D1, D0]
    assert [group.class_id for group in found.doubtful] == [D0]
    assert found.doubtful[0].trust == trust


def test_a_merge_ends_the_doubt_and_a_dropped_class_is_not_among_the_doubtful(
    tmp_path: Path,
) -> None:
    trust = ClassTrust(stability=0.4, leak=0.3, similarity=0.6, doubts=(Doubt.UNSTABLE,))
    folder = make_bundle(tmp_path / "doubted", class_trust={D0: trust})
    merged = groups(folder, merges={D1: D0})
    assert [(g.class_id, g.doubtful, g.trust) for g in merged.discovered] == [(D0, False, None)]
    assert groups(folder, drops=[D0]).doubtful == []
