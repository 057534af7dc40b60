import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import pytest

from scda.models import naming as module
from scda.models.bundle import NAMES, read_manifest
from scda.models.errors import GateError, UsageError
from scda.models.files import lock
from scda.models.names import Names, read_names
from scda.models.naming import (
    MAX_LABEL,
    ConflictError,
    Edit,
    Naming,
    change_names,
    clean_label,
    decided_classes,
)
from tests.bundles import make_bundle

D0, D1 = "discovered-000", "discovered-001"
BLUE, GREEN, RED = "known-000", "known-001", "known-002"


@pytest.fixture(scope="module")
def naming(tmp_path_factory: pytest.TempPathFactory) -> Naming:
    folder = make_bundle(tmp_path_factory.mktemp("naming") / "bundle")
    return Naming(read_manifest(folder).classes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "bundle")


def saved(folder: Path) -> Names:
    return read_names(folder, read_manifest(folder))


def test_a_name_is_given_changed_and_taken_away(naming: Naming) -> None:
    names = naming.name(Names(), D0, "  stapler ")
    assert (names.version, names.labels) == (1, {D0: "stapler"})
    names = naming.name(names, D0, "tape")
    assert naming.label(names, D0) == "tape"
    names = naming.name(names, D0, "")
    assert (names.version, names.labels) == (3, {})
    assert naming.label(names, D0) == D0


def test_saying_again_what_holds_changes_nothing(naming: Naming) -> None:
    names = naming.name(Names(), D0, "stapler")
    assert naming.name(names, D0, "stapler") is names
    assert naming.name(Names(), D0, D0) == Names()
    assert naming.restore(names, D0) is names


def test_the_first_of_a_merge_answers_for_all(naming: Naming) -> None:
    names = naming.merge(Names(), [RED, D0, D1])
    assert names.merges == {D0: RED, D1: RED}


def test_what_was_merged_before_moves_along(naming: Naming) -> None:
    names = naming.merge(naming.merge(Names(), [D0, D1]), [RED, D0])
    assert names.merges == {D0: RED, D1: RED}


def test_a_drop_takes_what_was_merged_into_it_along(naming: Naming) -> None:
    names = naming.drop(naming.merge(Names(), [D0, D1]), D0)
    assert [names.resolve(i) for i in (D0, D1, RED)] == ["unknown", "unknown", RED]


def test_restoring_ends_a_merge_and_a_drop_and_keeps_the_name(naming: Naming) -> None:
    names = naming.name(Names(), D1, "tape")
    assert naming.restore(naming.merge(names, [D0, D1]), D1).labels == {D1: "tape"}
    assert naming.restore(naming.drop(names, D1), D1).resolve(D1) == D1


def test_a_name_given_to_another_meanwhile_is_not_given_twice(naming: Naming) -> None:
    names = naming.drop(naming.name(Names(), D1, "tape"), D1)
    names = naming.restore(naming.name(names, D0, "tape"), D1)
    assert names.labels == {D0: "tape"}


def test_two_that_stand_never_have_one_label(naming: Naming) -> None:
    given_away = naming.name(naming.name(Names(), RED, "rot"), D0, "red")
    with pytest.raises(UsageError, match=f"{D0} is called red already"):
        naming.name(given_away, RED, "")
    merged = naming.name(naming.merge(Names(), [BLUE, RED]), D0, "red")
    with pytest.raises(UsageError, match=f"{D0} is called red already"):
        naming.restore(merged, RED)


def test_a_label_is_the_same_however_its_accents_are_written(folder: Path) -> None:
    decomposed, composed = "cafe\u0301", "caf\u00e9"
    classes = [
        dataclasses.replace(i, label=decomposed) if i.class_id == RED else i
        for i in read_manifest(folder).classes
    ]
    with pytest.raises(UsageError, match="already"):
        Naming(classes).name(Names(), D0, composed)


def test_undo_walks_back_to_the_start(naming: Naming) -> None:
    first = naming.name(Names(), D0, "stapler")
    second = naming.merge(first, [D0, D1])
    third = naming.drop(second, D0)
    states = []
    names = third
    for _ in range(3):
        names = naming.undo(names)
        states.append((names.version, names.labels, names.merges, names.drops))
    assert states == [
        (4, {D0: "stapler"}, {D1: D0}, frozenset()),
        (5, {D0: "stapler"}, {}, frozenset()),
        (6, {}, {}, frozenset()),
    ]
    with pytest.raises(UsageError, match="no change to undo"):
        naming.undo(names)


def test_the_same_name_again_confirms_one_that_was_carried_over(naming: Naming) -> None:
    carried = Names(version=1, labels={D0: "stapler"})
    confirmed = naming.name(carried, D0, "stapler")
    assert (confirmed.version, confirmed.labels) == (2, carried.labels)
    assert decided_classes(confirmed) == {D0}
    assert naming.name(confirmed, D0, "stapler") == confirmed
    undone = naming.undo(confirmed)
    assert (undone.version, undone.labels) == (3, carried.labels)
    assert decided_classes(undone) == set()
    with pytest.raises(UsageError, match="no change to undo"):
        naming.undo(undone)


def test_the_same_merge_or_drop_again_confirms_one_that_was_carried_over(naming: Naming) -> None:
    merged = Names(version=1, merges={D0: RED, D1: RED})
    confirmed = naming.merge(merged, [RED, D1])
    assert (confirmed.version, confirmed.merges) == (2, merged.merges)
    assert decided_classes(confirmed) == {D1}
    assert decided_classes(naming.undo(confirmed)) == set()
    assert naming.undo(confirmed).merges == merged.merges
    dropped = Names(version=1, drops=frozenset([D0]), merges={D1: D0})
    kept = naming.merge(naming.drop(dropped, D0), [D0, D1])
    assert (kept.drops, kept.merges) == (dropped.drops, dropped.merges)
    assert decided_classes(kept) == {D0, D1}
    for names, edit in (
        (confirmed, Edit("merge", [RED, D1])),
        (merged, Edit("merge", [BLUE, D1])),
        (kept, Edit("drop", [D0])),
    ):
        with pytest.raises(UsageError, match="restore it first"):
            naming.apply(names, edit)


def test_after_an_undo_the_next_change_is_undone_first(naming: Naming) -> None:
    names = naming.undo(naming.name(naming.name(Names(), D0, "a"), D0, "b"))
    names = naming.undo(naming.name(names, D1, "c"))
    assert names.labels == {D0: "a"}
    assert [change.did for change in names.history][-1] == f"undid: named {D1} c"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda n, x: n.name(x, "discovered-9", "a"), "has no class discovered-9"),
        (
            lambda n, x: n.name(x, D0, "red"),
            f"red already; .* merge the two: {RED},{D0}",
        ),
        (lambda n, x: n.name(x, D0, D1), f"{D1} is the id of another class"),
        (lambda n, x: n.name(x, D0, "unknown"), "drop discovered-000"),
        (lambda n, x: n.name(x, D0, "two\nlines"), "one line of text"),
        (lambda n, x: n.name(x, D0, "x" * 201), "201 characters; expected at most 200"),
        (lambda n, x: n.merge(x, [D0]), "at least two"),
        (lambda n, x: n.merge(x, [D0, D0]), "at least two"),
        (lambda n, x: n.merge(x, []), "at least two"),
        (lambda n, x: n.merge(x, [D0, RED]), f"{RED} is a known class.*put it first: {RED},{D0}"),
        (lambda n, x: n.merge(n.merge(x, [RED, D0]), [D1, D0]), f"{D0} is merged into {RED}"),
        (lambda n, x: n.name(n.merge(x, [RED, D0]), D0, "a"), f"{D0} is merged into {RED}"),
        (lambda n, x: n.merge(n.drop(x, D0), [D1, D0]), f"{D0} is dropped; restore it first"),
        (lambda n, x: n.restore(x, "nothing"), "no class nothing"),
    ],
)
def test_what_cannot_be_is_refused(naming: Naming, change: module.Apply, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        change(naming, Names())


@pytest.mark.parametrize(
    "label", ["<script>alert(1)</script>", "שלום", "🧷 pin", "می\u200cخ", "x" * MAX_LABEL, "a/../b"]
)
def test_any_line_of_text_is_a_label(folder: Path, label: str) -> None:
    change_names(folder, lambda naming, names: naming.name(names, D0, label))
    assert saved(folder).labels == {D0: label}


def test_a_label_is_composed() -> None:
    assert clean_label("e\u0301") == "é"


@pytest.mark.parametrize(
    "label", ["a\tb", "a\u2028b", "\udcff", "\x1b[31m", "\u202egnp", "a\u2066b", "\ufeffa"]
)
def test_a_label_cannot_hold_what_breaks_a_line_or_turns_it(label: str) -> None:
    with pytest.raises(UsageError, match="one line"):
        clean_label(label)


@pytest.fixture
def seen(naming: Naming) -> Names:
    """Names of version 2, whose change of `D0` a person of version 1 has not seen."""
    return naming.name(naming.name(Names(), D1, "tape"), D0, "stapler")


@pytest.mark.parametrize(
    "edit",
    [
        Edit("name", [D0], "pen", version=1),
        Edit("name", [D0], "", version=0),
        Edit("drop", [D0], version=1),
        Edit("merge", [D1, D0], version=1),
        Edit("merge", [RED, D0], version=1),
        Edit("undo", version=1),
        Edit("name", [RED], "rot", version=3),  # the names were deleted meanwhile
    ],
)
def test_an_edit_of_a_class_that_has_changed_since_is_refused(
    naming: Naming, seen: Names, edit: Edit
) -> None:
    with pytest.raises(ConflictError):
        naming.apply(seen, edit)
    assert naming.apply(seen, dataclasses.replace(edit, version=2)).version == 3
    assert naming.apply(seen, dataclasses.replace(edit, version=None)).version == 3


def test_a_conflict_names_both_changes(naming: Naming, seen: Names) -> None:
    with pytest.raises(ConflictError, match=f"named {D0} stapler since .* name pen was not saved"):
        naming.apply(seen, Edit("name", [D0], "pen", version=1))


def test_what_was_merged_into_a_class_meanwhile_is_not_dropped_with_it(naming: Naming) -> None:
    merged = naming.merge(Names(), [D0, D1])
    with pytest.raises(ConflictError, match=f"merged {D1} into {D0} since"):
        naming.apply(merged, Edit("drop", [D0], version=0))


def test_other_classes_and_the_same_name_are_no_conflict(naming: Naming, seen: Names) -> None:
    assert naming.apply(seen, Edit("name", [D1], "glue", version=1)).labels[D1] == "glue"
    assert naming.apply(seen, Edit("name", [D0], "stapler", version=1)) is seen


def test_a_change_that_was_meant_for_another_bundle_is_refused(folder: Path) -> None:
    def change(naming: Naming, names: Names) -> Names:
        return naming.name(names, D0, "stapler")

    with pytest.raises(GateError, match="expected 0123456789abcdef: the bundle has been replaced"):
        change_names(folder, change, model_id="0123456789abcdef")
    assert not (folder / NAMES).exists()
    assert change_names(folder, change, model_id=read_manifest(folder).id).version == 1


def test_a_file_of_an_earlier_version_gets_its_model_with_the_next_change(folder: Path) -> None:
    (folder / NAMES).write_text(json.dumps({"version": 4, "labels": {D1: "tape"}}))
    change_names(folder, lambda naming, names: naming.name(names, D0, "stapler"))
    fields = json.loads((folder / NAMES).read_text())
    assert fields["model_id"] == read_manifest(folder).id
    assert (fields["version"], fields["labels"]) == (5, {D0: "stapler", D1: "tape"})


def test_a_change_is_saved_with_its_history(folder: Path) -> None:
    change_names(folder, lambda naming, names: naming.name(names, D0, "stapler"))
    names = change_names(folder, lambda naming, names: naming.merge(names, [D0, D1]))
    assert saved(folder) == names
    fields = json.loads((folder / NAMES).read_text())
    assert fields["version"] == 2
    assert [change["did"] for change in fields["history"]] == [
        f"named {D0} stapler",
        f"merged {D1} into {D0}",
    ]


def test_nothing_is_written_where_nothing_changes(folder: Path) -> None:
    change_names(folder, lambda naming, names: names)
    assert not (folder / NAMES).exists()


def test_a_file_written_by_hand_is_gone_on_from(folder: Path) -> None:
    (folder / NAMES).write_text(json.dumps({"version": 7, "labels": {D0: "a"}}))
    change_names(folder, lambda naming, names: naming.name(names, D0, "b"))
    names = change_names(folder, lambda naming, names: naming.undo(names))
    assert (names.version, names.labels) == (9, {D0: "a"})


def test_a_damaged_file_is_not_written_over(folder: Path) -> None:
    (folder / NAMES).write_text('{"version": 1, "history": [{"version"')
    with pytest.raises(GateError, match="damaged"):
        change_names(folder, lambda naming, names: naming.name(names, D0, "a"))
    assert (folder / NAMES).read_text() == '{"version": 1, "history": [{"version"'


@pytest.mark.parametrize("history", [[{}], [3], [{"before": {D0: {"nonsense": 1}}}], 5])
def test_a_damaged_history_is_told(folder: Path, history: object) -> None:
    (folder / NAMES).write_text(json.dumps({"version": 1, "history": history}))
    with pytest.raises(GateError, match="not a names file"):
        saved(folder)


def test_writers_at_once_lose_nothing(folder: Path) -> None:
    def write(number: int) -> None:
        class_id = [BLUE, GREEN, RED, D0, D1][number % 5]
        change_names(folder, lambda naming, names: naming.name(names, class_id, f"name {number}"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(40)))
    names = saved(folder)
    assert names.version == 40
    assert sorted(change.did.split()[-1] for change in names.history) == sorted(map(str, range(40)))


WRITER = """
import sys
from pathlib import Path
from typing import IO, Any
from scda.models.naming import change_names
folder, class_id = Path(sys.argv[1]), sys.argv[2]
for number in range(10_000):
    change_names(folder, lambda naming, names: naming.name(names, class_id, f"n{number}"))
    print(number, flush=True)
"""


def test_a_killed_writer_loses_nothing_that_it_saved(folder: Path) -> None:
    for tries in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder), D0], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        last = [writer.stdout.readline() for _ in range(5 + tries)][-1]
        time.sleep(0.003 * tries)
        writer.send_signal(signal.SIGKILL)
        last = ([last, *writer.stdout.read().splitlines()])[-1]
        writer.wait()
        writer.stdout.close()
        saved_last = int(saved(folder).labels[D0].removeprefix("n"))
        assert saved_last in (int(last), int(last) + 1)
    change_names(folder, lambda naming, names: naming.name(names, D1, "after"))
    assert saved(folder).labels[D1] == "after"
    assert list(folder.glob(".*")) == []


def test_a_full_disk_keeps_the_names_that_were_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_names(folder, lambda naming, names: naming.name(names, D0, "before"))

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="cannot save: No space left"):
        change_names(folder, lambda naming, names: naming.name(names, D0, "after"))
    monkeypatch.undo()
    assert saved(folder).labels == {D0: "before"}
    assert list(folder.glob(".*")) == []


def test_a_bundle_that_cannot_be_written_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Path.open

    def refuse(path: Path, mode: str = "r", *options: Any, **more: Any) -> IO[Any]:
        if "x" in mode:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(path, mode, *options, **more)

    monkeypatch.setattr(Path, "open", refuse)  # root may write anywhere: asking is not enough
    with pytest.raises(UsageError, match="cannot save: Read-only file system"):
        change_names(folder, lambda naming, names: naming.name(names, D0, "a"))


def test_a_writer_that_hangs_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOCK_SECONDS", 0.05)
    with (
        lock(folder / NAMES),
        ThreadPoolExecutor(1) as pool,
        pytest.raises(UsageError, match="another process is writing"),
    ):
        pool.submit(change_names, folder, lambda naming, names: names).result()
