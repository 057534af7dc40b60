"""names.json: the labels, merges and drops that people gave to classes after training."""

import dataclasses
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scda.models.bundle import ClassInfo
from scda.models.errors import GateError
from scda.models.files import printable

UNKNOWN = "unknown"  # id, label and kind of the answer in place of a dropped class

_CURE = "restore the file from a copy, or delete it"


# Characters that are shown as nothing or as space, besides those of the category of formats (Cf).
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def to_nfc(label: str) -> str:
    """Return a label or file name in composed Unicode; macOS writes accents decomposed."""
    return unicodedata.normalize("NFC", label)


def folder_label(name: str) -> str:
    """Return the label of the class in a folder: composed Unicode, other bytes as escapes."""
    return to_nfc(printable(name))


def as_seen(label: str) -> str:
    """Return what a person sees of a label: composed, without what is shown as nothing."""
    shown = "".join(c for c in to_nfc(label) if unicodedata.category(c) != "Cf")
    return " ".join(_BLANK.sub(" ", shown).split())


@dataclass(frozen=True)
class ClassState:
    """The edits of one class; the defaults are those of an unedited class."""

    label: str | None = None
    merged_into: str | None = None  # a class id
    dropped: bool = False


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change in the history of names, with the states that undo it."""

    version: int  # version of the names after the change
    at: str  # UTC, ISO 8601
    did: str  # description for people
    before: dict[str, ClassState]  # class id → state before, of the changed classes
    undoes: int = 0  # the version of the change that this one undid; 0 if none


@dataclass(frozen=True, kw_only=True)
class Names:
    """The names that people gave to the classes; `version` is 0 before the first change."""

    version: int = 0
    labels: dict[str, str] = field(default_factory=dict)  # class id → label
    merges: dict[str, str] = field(default_factory=dict)  # class id → id of the remaining class
    drops: frozenset[str] = frozenset()  # class ids
    history: tuple[Change, ...] = ()  # oldest first

    def resolve(self, class_id: str) -> str:
        """Return the id that answers for a class: its own, its merge target's, or `unknown`."""
        merged = self.merges.get(class_id, class_id)
        return UNKNOWN if {class_id, merged} & self.drops else merged

    def label(self, info: ClassInfo) -> str:
        """Return the label of a class: the one it was given, or its own."""
        return self.labels.get(info.class_id, info.label)

    def state(self, class_id: str) -> ClassState:
        """Return the edits of one class."""
        dropped = class_id in self.drops
        return ClassState(self.labels.get(class_id), self.merges.get(class_id), dropped)

    def with_states(self, states: Mapping[str, ClassState], change: Change) -> "Names":
        """Return names with new states of some classes, and the change added to the history."""
        others = self.labels.keys() | self.merges.keys() | self.drops
        after = {i: self.state(i) for i in sorted(others)} | dict(states)
        return Names(
            version=change.version,
            labels={i: state.label for i, state in after.items() if state.label is not None},
            merges={i: state.merged_into for i, state in after.items() if state.merged_into},
            drops=frozenset(i for i, state in after.items() if state.dropped),
            history=(*self.history, change),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the contents of names.json."""
        fields = dataclasses.asdict(self)
        return {**fields, "drops": sorted(self.drops), "history": list(fields["history"])}


def read_names(path: Path, class_ids: Sequence[str]) -> Names:
    """Return the contents of a names.json, or empty names if there is no file.

    Raises:
        GateError: If it is damaged or names a class that the bundle lacks.
    """
    try:
        fields = json.loads(path.read_bytes())
    except FileNotFoundError:
        return Names()
    except (OSError, ValueError, RecursionError) as error:
        raise GateError(f"{path}: damaged: {error}; {_CURE}") from None
    try:
        names = Names(
            version=int(fields["version"]),
            labels={str(k): _text(v) for k, v in fields.get("labels", {}).items()},
            merges={str(k): str(v) for k, v in fields.get("merges", {}).items()},
            drops=frozenset(map(str, fields.get("drops", []))),
            history=tuple(map(_change, fields.get("history", []))),
        )
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise GateError(f"{path}: not a names file: {error!r}; {_CURE}") from None
    _check(names, class_ids, path)
    return names


def merge_matrix(names: Names, class_ids: Sequence[str]) -> tuple[list[str], NDArray[np.float32]]:
    """Return the remaining ids, and the 0/1 matrix (C, remaining) that sums their probabilities.

    The ids are in the order of the bundle, with `unknown` last.
    """
    targets = [names.resolve(class_id) for class_id in class_ids]
    remaining = [class_id for class_id in (*class_ids, UNKNOWN) if class_id in targets]
    matrix = np.zeros((len(class_ids), len(remaining)), np.float32)
    matrix[np.arange(len(class_ids)), [remaining.index(target) for target in targets]] = 1
    return remaining, matrix


def _text(label: Any) -> str:
    """Return a label; half a surrogate pair, which JSON can hold, is no text."""
    return str(label).encode().decode()


def _change(fields: dict[str, Any]) -> Change:
    before = {str(i): ClassState(**state) for i, state in fields["before"].items()}
    return Change(**{**fields, "before": before})


def _check(names: Names, class_ids: Sequence[str], path: Path) -> None:
    mentioned = {*names.labels, *names.merges, *names.merges.values(), *names.drops}
    missing = sorted(mentioned - set(class_ids))
    if missing:
        raise GateError(
            f"{path}: the bundle has no class {missing[0]}; the file may belong to another bundle"
        )
    chained = sorted(set(names.merges) & set(names.merges.values()))
    if chained:
        raise GateError(f"{path}: {chained[0]} is both merged away and the target of a merge")
