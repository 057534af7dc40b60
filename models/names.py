"""names.json: the names, merges and drops that people gave to classes after training."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scda.models.errors import GateError

UNKNOWN = "unknown"  # id, label and kind of what dropped classes become


@dataclass(frozen=True, kw_only=True)
class Names:
    """What people said of the classes; `version` 0 means nothing was said."""

    version: int = 0
    labels: dict[str, str] = field(default_factory=dict)  # class id → label
    merges: dict[str, str] = field(default_factory=dict)  # class id → the id it is merged into
    drops: frozenset[str] = frozenset()  # class ids

    def target(self, class_id: str) -> str:
        """Return the id that answers for `class_id`: its own, another's, or `unknown`."""
        merged = self.merges.get(class_id, class_id)
        return UNKNOWN if {class_id, merged} & self.drops else merged


def read_names(path: Path, class_ids: Sequence[str]) -> Names:
    """Return what a names.json says, or empty names where there is no file.

    Raises:
        GateError: If it is damaged or speaks of a class that the bundle lacks.
    """
    try:
        fields = json.loads(path.read_bytes())
    except FileNotFoundError:
        return Names()
    except (OSError, ValueError, RecursionError) as error:
        raise GateError(f"{path}: damaged: {error}") from None
    try:
        names = Names(
            version=int(fields["version"]),
            labels={str(k): str(v) for k, v in fields.get("labels", {}).items()},
            merges={str(k): str(v) for k, v in fields.get("merges", {}).items()},
            drops=frozenset(map(str, fields.get("drops", []))),
        )
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise GateError(f"{path}: not a names file: {error!r}") from None
    _check(names, class_ids, path)
    return names


def merge_matrix(names: Names, class_ids: Sequence[str]) -> tuple[list[str], NDArray[np.float32]]:
    """Return the ids that remain, and the 0/1 matrix (C, remaining) that sums probabilities.

    The order is the bundle's, `unknown` last.
    """
    targets = [names.target(class_id) for class_id in class_ids]
    remaining = [class_id for class_id in (*class_ids, UNKNOWN) if class_id in targets]
    matrix = np.zeros((len(class_ids), len(remaining)), np.float32)
    matrix[np.arange(len(class_ids)), [remaining.index(target) for target in targets]] = 1
    return remaining, matrix


def _check(names: Names, class_ids: Sequence[str], path: Path) -> None:
    spoken_of = {*names.labels, *names.merges, *names.merges.values(), *names.drops}
    strangers = sorted(spoken_of - set(class_ids))
    if strangers:
        raise GateError(f"{path}: no class {strangers[0]} in this bundle")
    chained = sorted(set(names.merges) & set(names.merges.values()))
    if chained:
        raise GateError(f"{path}: {chained[0]} is merged away and merged into")
