"""The names that a new model takes over from an earlier one."""

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from scda.adapt.continuity.earlier import Earlier
from scda.models.names import ClassState, Names, as_seen


@dataclass(frozen=True)
class Kept:
    """The classes of a new model that have names from earlier ones."""

    labels: Mapping[str, str]  # id of every class → its label without names
    ids: Collection[str]  # of classes of the earlier model
    returned: Mapping[str, str]  # id of a class that had vanished → what it was called
    parts: Mapping[str, str]  # id of a new class → id of the class that it is a part of


def carried_names(earlier: Earlier, kept: Kept) -> Names:
    """Return the labels, merges and drops of the classes that keep their ids.

    Where a class that others were merged into is gone, the first of them gets its label, and the
    rest is merged into that one. A part is merged into the class that it is a part of. A class
    that returns has the name that it had, unless another class has it now. The history stays with
    the earlier model: there is nothing to undo.

    Args:
        earlier: The earlier model.
        kept: The classes that have names from it.

    Returns:
        Names of no model yet; version 0 if there are none.
    """
    states = dict(_states(earlier, [i for i in earlier.manifest.class_ids if i in kept.ids]))
    states |= {part: ClassState(merged_into=whole) for part, whole in kept.parts.items()}
    given = {i: s.label for i, s in states.items() if s.label not in (None, kept.labels[i])}
    labels = {class_id: label for class_id, label in given.items() if label is not None}
    taken = {as_seen(label) for label in {**kept.labels, **labels}.values()}
    for class_id, label in kept.returned.items():
        if as_seen(label) not in taken:
            labels[class_id] = label
            taken.add(as_seen(label))
    names = Names(
        labels=labels,
        merges={i: s.merged_into for i, s in states.items() if s.merged_into is not None},
        drops=frozenset(class_id for class_id, state in states.items() if state.dropped),
    )
    has_any = names.labels or names.merges or names.drops
    return dataclasses.replace(names, version=1) if has_any else names


def _states(earlier: Earlier, kept: list[str]) -> Iterator[tuple[str, ClassState]]:
    heirs: dict[str, str] = {}  # of classes that are gone
    for class_id in kept:
        state = earlier.names.state(class_id)
        into = state.merged_into
        if into is None or into in kept:
            yield class_id, state
        elif into in heirs:
            yield class_id, dataclasses.replace(state, merged_into=heirs[into])
        else:
            heirs[into] = class_id
            gone = earlier.manifest.classes[earlier.row[into]]
            label = earlier.names.label(gone)
            dropped = state.dropped or into in earlier.names.drops
            yield class_id, ClassState(label if label != into else None, dropped=dropped)
