"""The names that a new model takes over from an earlier one."""

import dataclasses
from collections.abc import Collection, Iterator

from scda.adapt.continuity.earlier import Earlier
from scda.models.names import ClassState, Names


def carried_names(earlier: Earlier, kept: Collection[str], labels: dict[str, str]) -> Names:
    """Return the labels, merges and drops of the classes that keep their ids.

    Where a class that others were merged into is gone, the first of them gets its label, and the
    rest is merged into that one. The history stays with the earlier model: there is nothing to
    undo.

    Args:
        earlier: The earlier model.
        kept: The ids that classes of the new model have from it.
        labels: The labels of the new model's classes without names, by id.

    Returns:
        Names of no model yet; version 0 if there are none.
    """
    states = dict(_states(earlier, [i for i in earlier.manifest.class_ids if i in kept]))
    given = {i: s.label for i, s in states.items() if s.label not in (None, labels[i])}
    names = Names(
        labels={class_id: label for class_id, label in given.items() if label is not None},
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
