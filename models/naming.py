"""What people may say of the classes: name, merge, drop, restore, undo; saved under a lock.

Each function of `Names` returns what would be in force and touches no file; `change_names` applies
one to names.json as it stands at that moment, so that two writers cannot lose each other's work.
"""

import dataclasses
import json
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from scda.models.bundle import NAMES, ClassInfo, read_manifest
from scda.models.errors import UsageError
from scda.models.files import write_atomically
from scda.models.names import UNKNOWN, Change, ClassState, Names, read_names, to_nfc

MAX_LABEL = 200  # characters
LOCK = ".names.lock"
_LOCK_SECONDS = 10.0


class SaveError(UsageError):
    """The names could not be saved; those that were there before still are."""


@dataclasses.dataclass(frozen=True)
class Naming:
    """The classes of one bundle, and what may be said of them."""

    classes: Sequence[ClassInfo]

    def label(self, names: Names, class_id: str) -> str:
        """Return the label of a class, given or its own."""
        return names.label(self._own(class_id))

    def name(self, names: Names, class_id: str, label: str) -> Names:
        """Give a class a label; an empty one takes the given label away.

        Raises:
            UsageError: If the class is not there or does not stand, or the label will not do.
        """
        self._check_stands(names, class_id)
        label, own = clean_label(label), self._own(class_id).label
        self._check_free(names, class_id, label or own)
        state = ClassState(label if label not in ("", own) else None)
        return _changed(names, {class_id: state}, f"named {class_id} {label or own}")

    def merge(self, names: Names, class_ids: Sequence[str]) -> Names:
        """Let the first class answer for all of them, and for what was merged into them.

        Raises:
            UsageError: If there are fewer than two, one is merged or dropped, or a known class
                would end in a discovered one.
        """
        if len(set(class_ids)) < 2:
            raise UsageError(f"merge: got {', '.join(class_ids)}; want at least two classes")
        into, *rest = dict.fromkeys(class_ids)
        for class_id in (into, *rest):
            self._check_stands(names, class_id)
        if self._own(into).kind != "known":
            for class_id in rest:
                if self._own(class_id).kind == "known":
                    raise UsageError(
                        f"merge: {class_id} is known; name it first: {class_id},{into}"
                    )
        moved = [i for i in self.class_ids if i in rest or names.merges.get(i) in rest]
        states = {i: dataclasses.replace(names.state(i), merged_into=into) for i in moved}
        return _changed(names, states, f"merged {', '.join(rest)} into {into}")

    def drop(self, names: Names, class_id: str) -> Names:
        """Let a class, and what was merged into it, become `unknown`.

        Raises:
            UsageError: If there is no such class, or it is merged into another.
        """
        self._check_stands(names, class_id)
        state = dataclasses.replace(names.state(class_id), dropped=True)
        return _changed(names, {class_id: state}, f"dropped {class_id}")

    def restore(self, names: Names, class_id: str) -> Names:
        """Take a class back out of a merge or a drop, with its label where it is still free.

        Raises:
            UsageError: If there is no such class, or its label and its own are both taken.
        """
        label, own = names.state(class_id).label, self._own(class_id).label
        if label is None or self._holder(names, class_id, label):
            label = None
            self._check_free(names, class_id, own)
        state = ClassState(label)
        return _changed(names, {class_id: state}, f"restored {class_id}")

    def undo(self, names: Names) -> Names:
        """Take back the last change that was not taken back yet.

        Raises:
            UsageError: If there is none.
        """
        last = undoable(names)
        if last is None:
            raise UsageError("nothing to undo")
        return _changed(names, last.before, f"undid: {last.did}", undoes=last.version)

    @property
    def class_ids(self) -> list[str]:
        """The class ids in output order."""
        return [info.class_id for info in self.classes]

    def _own(self, class_id: str) -> ClassInfo:
        for info in self.classes:
            if info.class_id == class_id:
                return info
        last = self.classes[-1].class_id
        raise UsageError(f"no class {class_id} in this bundle; want known-000 to {last}")

    def _check_stands(self, names: Names, class_id: str) -> None:
        self._own(class_id)
        if class_id in names.merges:
            raise UsageError(
                f"{class_id} is merged into {names.merges[class_id]}; restore it first"
            )
        if class_id in names.drops:
            raise UsageError(f"{class_id} is dropped; restore it first")

    def _check_free(self, names: Names, class_id: str, label: str) -> None:
        if label == UNKNOWN != self._own(class_id).label:
            raise UsageError(f"{UNKNOWN} is what dropped classes are called; drop {class_id}")
        taken = self._holder(names, class_id, label)
        if taken:
            raise UsageError(f"{taken} is {label} already; merge them: {taken},{class_id}")

    def _holder(self, names: Names, class_id: str, label: str) -> str | None:
        """Return the other class that has this label, if one that stands has."""
        others = [i for i in self.class_ids if i != class_id and names.resolve(i) == i]
        return next((i for i in others if to_nfc(self.label(names, i)) == to_nfc(label)), None)


def undoable(names: Names) -> Change | None:
    """Return the last change that was not taken back yet, if there is one."""
    undone = {change.undoes for change in names.history}
    still = [c for c in names.history if not c.undoes and c.version not in undone]
    return still[-1] if still else None


def clean_label(text: str) -> str:
    """Return a label as it is kept: to_nfc Unicode without space around it.

    Raises:
        UsageError: If it is longer than `MAX_LABEL`, or holds what cannot stand in one line.
    """
    label = to_nfc(text).strip()
    if len(label) > MAX_LABEL:
        raise UsageError(f"a label of {len(label)} characters; want at most {MAX_LABEL}")
    bad = next((c for c in label if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")), None)
    if bad is not None:
        raise UsageError(f"a label with the character {bad!a}; want one line of text")
    return label


Apply = Callable[[Naming, Names], Names]


def change_names(folder: Path, change: Apply) -> Names:
    """Apply a change to the names of a bundle, save them, and return them.

    Args:
        folder: The bundle.
        change: Called once with the names in force, while no other writer can change them.

    Raises:
        UsageError: If the change is refused.
        SaveError: If the bundle cannot be written.
        GateError: If the bundle or its names.json is damaged.
    """
    naming = Naming(read_manifest(folder, checked=False).classes)
    path = folder / NAMES
    try:
        with FileLock(folder / LOCK, timeout=_LOCK_SECONDS):
            before = read_names(path, naming.class_ids)
            after = change(naming, before)
            if after is not before:
                write_atomically(path, json.dumps(after.to_json(), indent=1))
    except Timeout:
        raise SaveError(f"{path}: somebody else is writing it; try again") from None
    except OSError as error:
        raise SaveError(f"{path}: cannot save: {error.strerror or error}") from None
    return after


def _changed(names: Names, states: Mapping[str, ClassState], did: str, *, undoes: int = 0) -> Names:
    """Return names with classes in other states, one version on; the same where none differs."""
    before = {i: names.state(i) for i, state in states.items() if state != names.state(i)}
    if not before:
        return names
    now = datetime.now(UTC).isoformat(timespec="seconds")
    change = Change(version=names.version + 1, at=now, did=did, before=before, undoes=undoes)
    return names.with_states(states, change)
