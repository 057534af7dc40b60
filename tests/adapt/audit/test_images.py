import csv
from dataclasses import replace
from pathlib import Path

import numpy as np

from scda.adapt.audit.findings import (
    Finding,
    Kind,
    write_findings,
    write_fix_list,
)
from scda.adapt.audit.images import Audited, class_findings, copy_findings, label_findings
from scda.adapt.report.audit_pictures import copy_groups
from scda.models.excluded import NOTHING, read_excluded
from tests.adapt.audit.test_labels import blobs

FOUR = Audited(
    ["a/1", "a/2", "b/1", "t1", "t2"],
    ["a", "a", "b"],
    np.eye(5, dtype=np.float32),
    ["0", "1", "2", "3", "4"],
)


def kinds(found: list[Finding]) -> list[tuple[str, str, bool]]:
    return [(one.kind.value, one.path, one.remove) for one in found]


def test_a_wrong_label_names_the_class_and_an_image_that_shows_it() -> None:
    features, labels = blobs()
    labels[3] = 2
    names = [f"{label}/{row}" for row, label in enumerate(labels)]
    found, judged = label_findings(
        Audited(names, [f"c{label}" for label in labels], features, names)
    )
    assert judged
    assert kinds(found) == [("label", "2/3", True)]
    assert (found[0].label, found[0].suggested, found[0].other[:2]) == ("c2", "c0", "0/")


def test_one_class_has_no_wrong_label() -> None:
    one = Audited(["1", "2"], ["a", "a"], np.eye(2, dtype=np.float32), ["1", "2"])
    assert label_findings(one) == ([], None)


def test_the_first_of_copies_stays() -> None:
    assert kinds(copy_findings(FOUR, np.array([0, 0, 1, 2, 3]), None)) == [("copy", "a/2", True)]


def test_one_picture_in_two_classes_is_told_of_every_file() -> None:
    found = copy_findings(FOUR, np.array([0, 1, 0, 2, 3]), None)
    assert kinds(found) == [("two classes", "a/1", False), ("two classes", "b/1", True)]
    assert [picture[1] for picture in copy_groups(found)[0].pictures] == ["a/1", "b/1"]


def test_a_target_image_of_the_source_is_a_leak() -> None:
    found = copy_findings(FOUR, np.array([0, 1, 2, 2, 2]), None)
    assert kinds(found) == [("leak", "t1", True), ("leak", "t2", True)]
    assert copy_groups(found)[0].pictures[0] == ("source", "b/1", "b")


def test_a_target_image_that_is_a_file_of_the_source_is_labelled_and_stays() -> None:
    images = replace(FOUR, digests=["0", "1", "2", "2", "4"])
    found = copy_findings(images, np.array([0, 1, 2, 2, 2]), None)
    assert kinds(found) == [("leak", "t1", False), ("leak", "t2", True)]
    assert found[0].message == "the same file as source/b/1: a labelled image of the target"


def test_the_copy_whose_file_the_target_holds_is_the_one_that_stays() -> None:
    images = replace(FOUR, digests=["0", "1", "2", "1", "1"])
    found = copy_findings(images, np.array([0, 0, 2, 0, 0]), None)
    assert kinds(found) == [("copy", "a/1", True), ("leak", "t1", False), ("leak", "t2", True)]
    assert found[1].message == "the same file as source/a/2: a labelled image of the target"


def test_copies_within_the_target() -> None:
    assert kinds(copy_findings(FOUR, np.array([0, 1, 2, 3, 3]), None)) == [("copy", "t2", True)]


def test_classes_with_few_or_the_same_images() -> None:
    classes = ["many"] * 9 + ["same"] * 30 + ["few"] * 2
    images = Audited([""] * 41, classes, np.zeros((41, 2), np.float32), [""] * 41)
    groups = np.array([*range(9), *[9] * 22, *range(10, 18), 18, 19])
    found = [(one.kind, one.label) for one in class_findings(images, groups)]
    assert found == [(Kind.FEW, "few"), (Kind.ALIKE, "same")]


def test_a_table_holds_every_finding(tmp_path: Path) -> None:
    found = [
        Finding(kind=Kind.LABEL, domain="source", path="a/\udcff.jpg", score=-0.5, message="x"),
        Finding(kind=Kind.REJECTED, domain="target", path="b", remove=True, message="y, z"),
    ]
    write_findings(tmp_path / "audit.csv", found)
    with (tmp_path / "audit.csv").open(newline="", errors="surrogateescape") as table:
        rows = list(csv.DictReader(table))
    assert [row["path"] for row in rows] == ["a/\udcff.jpg", "b"]
    assert [row["finding"] for row in rows] == ["label", "rejected"]
    assert [row["score"] for row in rows] == ["-0.5000", ""]
    assert [row["remove"] for row in rows] == ["false", "true"]
    assert [row["message"] for row in rows] == ["x", "y, z"]


def test_the_fix_list_is_what_training_leaves_out(tmp_path: Path) -> None:
    root = tmp_path / "source"
    found = [
        Finding(kind=Kind.COPY, domain="source", path=path, remove=remove, message="")
        for path, remove in (("a/1.jpg", True), ("a/2.jpg", False), ("a/\udcff.jpg", True))
    ]
    listed = tmp_path / "fix.txt"
    assert write_fix_list(listed, found, {"source": root}) == 2
    paths = [root / one.path for one in found]
    assert list(read_excluded(listed, {}).others(paths, root)) == [paths[1]]
    assert list(NOTHING.others(paths, root)) == paths


def test_names_of_a_list_that_are_no_file_are_told(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for path in (source / "a" / "1.jpg", target / "2.jpg", tmp_path / "3.jpg"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    listed = tmp_path / "list.txt"
    listed.write_text(f"a/1.jpg\n{target / '2.jpg'}\n")
    assert read_excluded(listed, {}).hints([source, target]) == []
    # Relative to another folder, of another folder, not there, and longer than a name can be.
    strange = ["source/a/1.jpg", str(tmp_path / "3.jpg"), "b.jpg", "x" * 5000]
    listed.write_text("\n".join(["a/1.jpg", *strange]))
    (hint,) = read_excluded(listed, {}).hints([source, target])
    assert hint.startswith("4 of 5 names in the list of files to leave out are no file of ")
    assert NOTHING.hints([source, target]) == []


def test_relative_names_and_names_with_line_breaks(tmp_path: Path) -> None:
    listed = tmp_path / "list.txt"
    listed.write_bytes(b"\xef\xbb\xbfa/1.jpg\r\n./b/2.jpg\r\n")
    paths = [tmp_path / name for name in ("a/1.jpg", "b/2.jpg", "c.jpg")]
    assert list(read_excluded(listed, {}).others(paths, tmp_path)) == paths[2:]
    strange = Finding(kind=Kind.COPY, domain="source", path="a\nb", remove=True, message="")
    write_fix_list(listed, [strange], {"source": tmp_path})
    assert not list(read_excluded(listed, {}).others([tmp_path / "a\nb"], tmp_path))
