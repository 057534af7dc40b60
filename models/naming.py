"""Edit the names of classes: name, merge, drop, restore, undo; saved under a lock.

The methods of `Naming` return new `Names` and touch no file. `change_names` applies a change to
the current names.json, so that concurrent writers do not lose each other's work.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from scda.models.bundle import NAMES, ClassInfo, read_manifest
from scda.models.errors import GateError, UsageError
from scda.models.files import lock, remove_left_behind, write_atomically
from scda.models.names import (
    UNKNOWN,
    Change,
    ClassState,
    Names,
    as_seen,
    read_names,
    to_nfc,
    unshowable,
)

MAX_LABEL = 200  # characters
_LOCK_SECONDS = 10.0


class SaveError(UsageError):
    """The names could not be saved; the previous names.json is unchanged."""


class ConflictError(UsageError):
    """A class of an edit has changed since the person saw it; the edit was not carried out."""


@dataclasses.dataclass(frozen=True)
class Edit:
    """One edit of the names, as the review page and the command line send it.

    Attributes:
        action: What to do with the classes.
        class_ids: One class; at least two for `merge`, the one that remains first; none for `undo`.
        label: The new label, for `name` alone; an empty label removes the given one.
        version: The version of the names that the person saw; None if they saw none. An edit of
            a class that has changed since is refused, and an undo after any change.
    """

    action: Literal["name", "merge", "drop", "restore", "undo"]
    class_ids: Sequence[str] = ()
    label: str = ""
    version: int | None = None


@dataclasses.dataclass(frozen=True)
class Naming:
    """The edits that the classes of one bundle allow.

    Attributes:
        classes: The classes of the bundle, in the order of the model's outputs.
    """

    classes: Sequence[ClassInfo]

    def label(self, names: Names, class_id: str) -> str:
        """Return the current label of a class: the one it was given, or its own."""
        return names.label(self._own(class_id))

    def apply(self, names: Names, edit: Edit) -> Names:
        """Return the names after an edit.

        Raises:
            ConflictError: If its classes have changed since the version that the person saw.
            UsageError: If the edit is refused; see the method of each action.
        """
        after = self._carry_out(names, edit)
        if after is not names:
            self.check_seen(names, edit)
        return after

    def check_seen(self, names: Names, edit: Edit) -> None:
        """Check that the person who edits classes has seen their last change.

        Raises:
            ConflictError: If not; it says what was changed, and what is not saved.
        """
        if edit.version in (None, names.version):
            return
        if edit.action == "undo":
            raise ConflictError("the names have changed meanwhile; check the new state, then undo")
        changed = _last_change(names, edit)
        if changed is None:
            return
        wanted = f" {edit.label}" if edit.label else ""
        raise ConflictError(
            f"{changed} since you saw the class, so {edit.action}{wanted} was not saved; "
            "check the new state, then save again"
        )

    def _carry_out(self, names: Names, edit: Edit) -> Names:
        if edit.action == "undo":
            return self.undo(names)
        if edit.action == "merge":
            return self.merge(names, edit.class_ids)
        if len(edit.class_ids) != 1:
            raise UsageError(f"{edit.action}: got {len(edit.class_ids)} classes, expected one")
        (class_id,) = edit.class_ids
        if edit.action == "name":
            return self.name(names, class_id, edit.label)
        return (self.drop if edit.action == "drop" else self.restore)(names, class_id)

    def name(self, names: Names, class_id: str, label: str) -> Names:
        """Give a class a label; an empty label removes the given one.

        Raises:
            UsageError: If there is no such class, it is merged or dropped, or the label is invalid,
                taken, or the id of another class.
        """
        self._check_active(names, class_id)
        label, own = clean_label(label), self._own(class_id).label
        self._check_free(names, class_id, label or own)
        state = ClassState(label if label not in ("", own) else None)
        # The same name again is a decision, too, where an earlier model's was carried over.
        is_carried = class_id in names.labels and _undecided(names, [class_id])
        did = f"named {class_id} {label or own}"
        return _changed(names, {class_id: state}, did, always=is_carried)

    def merge(self, names: Names, class_ids: Sequence[str]) -> Names:
        """Merge classes, and the classes merged into them before, into the first of them.

        The same merge again confirms one that was carried over from an earlier model.

        Raises:
            UsageError: If there are fewer than two classes, one is merged or dropped already, or a
                known class would be merged into a discovered one.
        """
        if len(set(class_ids)) < 2:
            got = ", ".join(class_ids) or "none"
            raise UsageError(f"merge: got {got}; expected at least two different classes")
        into, *rest = dict.fromkeys(class_ids)
        is_carried = all(names.merges.get(i) == into for i in rest) and _undecided(names, rest)
        for class_id in () if is_carried else (into, *rest):
            self._check_active(names, class_id)
        if self._own(into).kind != "known":
            for class_id in rest:
                if self._own(class_id).kind == "known":
                    raise UsageError(
                        f"merge: {class_id} is a known class, which cannot be merged into a "
                        f"discovered one; put it first: {class_id},{into}"
                    )
        moved = [i for i in self.class_ids if i in rest or names.merges.get(i) in rest]
        states = {i: dataclasses.replace(names.state(i), merged_into=into) for i in moved}
        did = f"merged {', '.join(rest)} into {into}"
        return _changed(names, states, did, always=is_carried)

    def drop(self, names: Names, class_id: str) -> Names:
        """Turn a class, and the classes merged into it, into `unknown`.

        The same drop again confirms one that was carried over from an earlier model.

        Raises:
            UsageError: If there is no such class, or it is merged or dropped already.
        """
        is_carried = class_id in names.drops and _undecided(names, [class_id])
        if not is_carried:
            self._check_active(names, class_id)
        state = dataclasses.replace(names.state(class_id), dropped=True)
        return _changed(names, {class_id: state}, f"dropped {class_id}", always=is_carried)

    def restore(self, names: Names, class_id: str) -> Names:
        """Take a class back out of a merge or a drop, with its label if that is still free.

        Raises:
            UsageError: If there is no such class, or another one was given its label meanwhile.
        """
        label, own = names.state(class_id).label, self._own(class_id).label
        if label is None or self._holder(names, class_id, label):
            label = None
            self._check_free(names, class_id, own)
        state = ClassState(label)
        return _changed(names, {class_id: state}, f"restored {class_id}")

    def undo(self, names: Names) -> Names:
        """Undo the last change that has not been undone yet.

        Raises:
            UsageError: If there is no such change.
        """
        last = undoable(names)
        if last is None:
            raise UsageError("there is no change to undo")
        did = f"undid: {last.did}"
        return _changed(names, last.before, did, undoes=last.version, always=True)

    @property
    def class_ids(self) -> list[str]:
        """The class ids, in the order of the model's outputs."""
        return [info.class_id for info in self.classes]

    def _own(self, class_id: str) -> ClassInfo:
        for info in self.classes:
            if info.class_id == class_id:
                return info
        first, last = self.class_ids[0], self.class_ids[-1]
        raise UsageError(
            f"the bundle has no class {class_id}; expected one of its {len(self.classes)} ids, "
            f"such as {first} or {last}"
        )

    def _check_active(self, names: Names, class_id: str) -> None:
        self._own(class_id)
        if class_id in names.merges:
            raise UsageError(
                f"{class_id} is merged into {names.merges[class_id]}; restore it first"
            )
        if class_id in names.drops:
            raise UsageError(f"{class_id} is dropped; restore it first")

    def _check_free(self, names: Names, class_id: str, label: str) -> None:
        is_own, seen = label == self._own(class_id).label, as_seen(label)
        if seen == UNKNOWN and not is_own:
            raise UsageError(
                f"the label {UNKNOWN} is reserved for dropped classes; drop {class_id} instead"
            )
        if seen in self.class_ids and seen != class_id and not is_own:
            raise UsageError(
                f"{seen} is the id of another class; choose another label, or merge the two: "
                f"{seen},{class_id}"
            )
        taken = self._holder(names, class_id, label)
        if taken:
            raise UsageError(
                f"{taken} is called {label} already; choose another label for one of them, "
                f"or merge the two: {taken},{class_id}"
            )

    def _holder(self, names: Names, class_id: str, label: str) -> str | None:
        """Return the other active class that looks the same by its label, if any.

        Classes may keep the labels of the training, whatever these are: class folders may have the
        names of ids, and a class that nobody named has its id for a label.
        """
        is_own = label == self._own(class_id).label
        others = [i for i in self.class_ids if i != class_id and names.resolve(i) == i]
        rivals = [i for i in others if i in names.labels or not is_own]
        same = (i for i in rivals if as_seen(self.label(names, i)) == as_seen(label))
        return next(same, None)


def undoable(names: Names) -> Change | None:
    """Return the last change that has not been undone yet, if any."""
    undone = {change.undoes for change in names.history}
    changes = (c for c in reversed(names.history) if not c.undoes)
    return next((c for c in changes if c.version not in undone), None)


def clean_label(text: str) -> str:
    """Return a label as it is saved: in composed Unicode, without surrounding space.

    Raises:
        UsageError: If it is longer than `MAX_LABEL`, has no visible character, or contains a
            control or format character: a line break, or a mark that turns the writing's direction.
    """
    label = to_nfc(text).strip()
    if len(label) > MAX_LABEL:
        raise UsageError(f"the label has {len(label)} characters; expected at most {MAX_LABEL}")
    if label and not as_seen(label):
        raise UsageError(f"the label {label!a} has no visible character; expected a name")
    bad = next(iter(unshowable(label)), None)
    if bad is not None:
        raise UsageError(
            f"the label contains the character {bad!a}, which is not shown itself; expected one "
            "line of text without control and format characters"
        )
    return label


Apply = Callable[[Naming, Names], Names]


def change_names(folder: Path, change: Apply, *, model_id: str | None = None) -> Names:
    """Apply a change to the names of a bundle, save them, and return them.

    Args:
        folder: Folder of the bundle.
        change: Called once with the current names, while the lock keeps other writers out.
        model_id: The model that the change is meant for; None accepts any.

    Raises:
        UsageError: If the change is refused.
        SaveError: If the bundle cannot be written.
        GateError: If the bundle or its names.json is damaged, or the bundle is of another model.
    """
    manifest = read_manifest(folder, checked=False)
    if model_id not in (None, manifest.id):
        raise GateError(
            f"{folder}: found the model {manifest.id}, expected {model_id}: the bundle has been "
            "replaced; start the review anew"
        )
    naming = Naming(manifest.classes)
    path = folder / NAMES
    try:
        with lock(path, seconds=_LOCK_SECONDS) as is_ours:
            if not is_ours:
                raise SaveError(f"{path}: another process is writing the file; try again")
            remove_left_behind(path)
            before = read_names(folder, manifest)
            after = change(naming, before)
            if after is not before:
                write_atomically(path, json.dumps(after.to_json(), indent=1))
    except OSError as error:
        raise SaveError(f"{path}: cannot save: {error.strerror or error}") from None
    return after


def _last_change(names: Names, edit: Edit) -> str | None:
    """Return the last change of a class of an edit since the version that the edit saw, if any."""
    seen = edit.version or 0
    if seen > names.version:
        return "the names were reset"
    for change in reversed(names.history):
        touched = {*change.before, *(names.merges.get(i) for i in change.before)}
        if change.version > seen and touched & set(edit.class_ids):
            return change.did
    return None


def decided_classes(names: Names) -> set[str]:
    """Return the ids of the classes that somebody decided on, in a change that still stands."""
    undone = {change.undoes for change in names.history}
    standing = (c for c in names.history if not c.undoes and c.version not in undone)
    return {class_id for change in standing for class_id in change.before}


def _undecided(names: Names, class_ids: Sequence[str]) -> bool:
    return not decided_classes(names).issuperset(class_ids)


def _changed(
    names: Names,
    states: Mapping[str, ClassState],
    did: str,
    *,
    undoes: int = 0,
    always: bool = False,
) -> Names:
    """Return the next version of the names, or the same names if no state differs.

    Args:
        names: The names before.
        states: New states of some classes.
        did: What was done, in words.
        undoes: Version of the change that this one undoes; 0 for none.
        always: Whether it is a change even if no state differs.
    """
    before = {i: names.state(i) for i, state in states.items() if always or state != names.state(i)}
    if not before:
        return names
    now = datetime.now(UTC).isoformat(timespec="seconds")
    change = Change(version=names.version + 1, at=now, did=did, before=before, undoes=undoes)
    return names.with_states(states, change)
