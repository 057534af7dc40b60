"""names.json: the labels, merges and drops that people gave to classes after training."""

import dataclasses
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scda.models.bundle import NAMES, ClassInfo, Manifest
from scda.models.errors import GateError
from scda.models.files import printable

UNKNOWN = "unknown"  # id, label and kind of the answer in place of a dropped class

_CURE = "restore the file from a copy, or delete it"
_JOINERS = "\u200c\u200d"  # written inside words and emoji; they hide and turn nothing

# Characters that are shown as nothing or as space, besides those of the category of formats (Cf).
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def to_nfc(label: str) -> str:
    """Return a label or file name in composed Unicode; macOS writes accents decomposed."""
    return unicodedata.normalize("NFC", label)


def unshowable(text: str) -> Iterable[str]:
    """Return the characters of a text that are not shown but change what is: controls and formats.

    Line breaks, terminal escapes, and marks that turn the direction of writing (U+202E) or hide.
    """
    categories = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return (c for c in text if unicodedata.category(c) in categories and c not in _JOINERS)


def folder_label(name: str) -> str:
    """Return the label of the class in a folder: composed Unicode, what is not text as escapes."""
    label = to_nfc(printable(name))
    for character in set(unshowable(label)):
        label = label.replace(character, character.encode("unicode_escape").decode())
    return label


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
    """The names that people gave to the classes of a model; `version` is 0 before a change."""

    model_id: str = ""  # of the bundle whose classes these are
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
        return dataclasses.replace(
            self,
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


def read_names(folder: Path, manifest: Manifest) -> Names:
    """Return the names in a bundle's names.json, or empty names if there is no file.

    A file of an earlier version does not say its model; it will with the next change.

    Raises:
        GateError: If it is damaged, of another model, or names a class that the bundle lacks.
    """
    path = folder / NAMES
    try:
        fields = json.loads(path.read_bytes())
    except FileNotFoundError:
        return Names(model_id=manifest.id)
    except OSError as error:
        raise GateError(f"{path}: cannot read: {error.strerror}; make it readable") from None
    except (ValueError, RecursionError) as error:
        raise GateError(f"{path}: damaged: {error}; {_CURE}") from None
    try:
        names = Names(
            model_id=str(fields.get("model_id", manifest.id)),
            version=int(fields["version"]),
            labels={str(k): _text(v) for k, v in fields.get("labels", {}).items()},
            merges={str(k): str(v) for k, v in fields.get("merges", {}).items()},
            drops=frozenset(map(str, fields.get("drops", []))),
            history=tuple(map(_change, fields.get("history", []))),
        )
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise GateError(f"{path}: not a names file: {error!r}; {_CURE}") from None
    _check(names, manifest, path)
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


def _check(names: Names, manifest: Manifest, path: Path) -> None:
    if names.model_id != manifest.id:
        raise GateError(
            f"{path}: names of the model {names.model_id[:40]!a}, expected those of {manifest.id}; "
            f"{_CURE}"
        )
    mentioned = {*names.labels, *names.merges, *names.merges.values(), *names.drops}
    missing = sorted(mentioned - set(manifest.class_ids))
    if missing:
        raise GateError(
            f"{path}: the bundle has no class {missing[0]}; the file may belong to another "
            f"bundle; {_CURE}"
        )
    chained = sorted(set(names.merges) & set(names.merges.values()))
    if chained:
        raise GateError(
            f"{path}: {chained[0]} is both merged away and the target of a merge; {_CURE}"
        )
