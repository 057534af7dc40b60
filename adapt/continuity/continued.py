"""The classes of a new model under the ids and the names of an earlier one."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scda.adapt.continuity.carry import Kept, carried_names
from scda.adapt.continuity.changes import Change, changes, origins
from scda.adapt.continuity.confirm import to_confirm
from scda.adapt.continuity.earlier import Earlier
from scda.adapt.continuity.ids import fresh_ids
from scda.adapt.continuity.known import KnownClasses, known_classes
from scda.adapt.continuity.matching import Evidence, match_classes, match_parts
from scda.adapt.continuity.memory import Memory
from scda.adapt.continuity.vanished import remembered, returned
from scda.models.index import Ids
from scda.models.names import Names
from scda.models.previous import Became, Fate, Newcomer, Previous


@dataclass(frozen=True)
class Found:
    """The classes that a training found, before they have ids."""

    known: Sequence[str]  # labels of the known classes, in the order of their outputs
    predicted: Ids  # (M,), output of every target image
    digests: Sequence[str]  # (M,), SHA-256 of every target image
    memory: Memory  # centroids of all classes
    source: Mapping[str, str] = field(default_factory=dict)  # SHA-256 → label of source images


@dataclass(frozen=True)
class Continued:
    """Ids of all classes in output order, the names they keep, and what changed."""

    class_ids: list[str]
    names: Names  # of no model yet; version 0 if there are none
    previous: Previous
    memory: Memory  # with the classes that vanished


def continued(earlier: Earlier, found: Found) -> Continued:
    """Return the ids of the classes of a new model, and what became of those of an earlier one.

    Args:
        earlier: The earlier model.
        found: The classes of the new one.
    """
    num_known, num_new = len(found.known), len(found.memory.centroids)
    known = known_classes(earlier, found.known, found.source)
    evidence = _evidence(earlier, found)
    matched = match_classes(evidence, _discovered(earlier, known), np.arange(num_new) >= num_known)
    matched[:num_known] = known.rows
    parts = match_parts(evidence, matched, _named(earlier, matched))
    is_free = (matched < 0) & (parts < 0)
    is_free[list(known.promoted.values())] = False
    nearest = evidence.similarity.max(axis=0)
    back = returned(earlier, found.known, found.memory, nearest, is_free)
    old_ids, class_ids = earlier.manifest.class_ids, _ids(earlier, matched, back, num_known)
    kept = Kept(
        labels=dict(zip(class_ids, [*found.known, *class_ids[num_known:]], strict=True)),
        ids={class_ids[new] for new in np.flatnonzero(matched >= 0)},
        returned={i: earlier.retired[i] for new, i in back.items() if new >= num_known},
        parts={class_ids[new]: old_ids[parts[new]] for new in np.flatnonzero(parts >= 0)},
    )
    names = carried_names(earlier, kept)
    edited = {*names.labels, *names.merges, *names.drops} & {*class_ids[num_known:]}
    fates = _fates(earlier, changes(evidence, _successors(earlier, matched)), class_ids, known)
    gone = {f.class_id: f for f in fates if f.class_id not in kept.ids}
    fresh = [new for new in np.flatnonzero(matched < 0).tolist() if new not in back]
    previous = Previous(
        id=earlier.manifest.id,
        in_common=int(evidence.shared.sum()),
        classes=(*fates, *_returned(earlier, back.values())),
        new=tuple(
            Newcomer(
                class_id=class_ids[new],
                label=_called(names, kept.labels, class_ids[new]),
                of=tuple(old_ids[old] for old in origins(evidence, new)),
            )
            for new in fresh
            if new not in known.promoted.values()
        ),
        retired={i: label for i, label in earlier.retired.items() if i not in back.values()}
        | {class_id: fate.label for class_id, fate in gone.items()},
        to_confirm=to_confirm(
            earlier,
            evidence,
            matched,
            parts,
            {new: i for new, i in enumerate(class_ids) if i in edited},
        ),
    )
    may_return = [i for i, fate in gone.items() if fate.became is not Became.NOW_KNOWN]
    memory = remembered(earlier, found.memory, may_return, back.values())
    return Continued(class_ids, names, previous, memory)


def num_in_common(earlier: Earlier, digests: Sequence[str]) -> int:
    """Return how many images of a target the earlier target had, too."""
    return sum(digest in earlier.images for digest in digests)


def _evidence(earlier: Earlier, found: Found) -> Evidence:
    num_new, memory = len(found.memory.centroids), earlier.memory
    shared = np.zeros((len(earlier.row), num_new), np.int64)
    for digest, new in zip(found.digests, found.predicted.tolist(), strict=True):
        if digest in earlier.images:
            shared[earlier.row[earlier.images[digest]], new] += 1
    similarity = memory.similarity(found.memory) if memory else np.zeros(shared.shape, np.float32)
    sizes = np.bincount(found.predicted, minlength=num_new)
    return Evidence(shared, sizes, similarity, np.array(earlier.answers))


def _discovered(earlier: Earlier, known: KnownClasses) -> NDArray[np.bool_]:
    """Return which earlier classes a new discovered class can be."""
    kinds = [info.kind == "discovered" for info in earlier.manifest.classes]
    return np.array([is_one and row not in known.promoted for row, is_one in enumerate(kinds)])


def _named(earlier: Earlier, matched: Ids) -> NDArray[np.bool_]:
    """Return which earlier classes have a name that a part of them can carry, too."""
    names = earlier.names
    return np.array(
        [
            info.kind == "discovered"
            and info.class_id in names.labels
            and names.resolve(info.class_id) == info.class_id
            and row in matched
            for row, info in enumerate(earlier.manifest.classes)
        ]
    )


def _ids(earlier: Earlier, matched: Ids, back: Mapping[int, str], num_known: int) -> list[str]:
    taken = [*earlier.row, *earlier.retired]
    fresh = {kind: fresh_ids(kind, taken) for kind in ("known", "discovered")}
    old = {new: earlier.manifest.class_ids[row] for new, row in enumerate(matched) if row >= 0}
    old |= back
    return [
        old[new] if new in old else next(fresh["known" if new < num_known else "discovered"])
        for new in range(len(matched))
    ]


def _called(names: Names, labels: Mapping[str, str], class_id: str) -> str:
    """Return what a class is called: the label of the class that answers for it."""
    answer = names.merges.get(class_id, class_id)
    return names.labels.get(answer, labels[class_id])


def _returned(earlier: Earlier, class_ids: Iterable[str]) -> Iterator[Fate]:
    for i in class_ids:
        yield Fate(class_id=i, label=earlier.retired[i], became=Became.RETURNED, into=(i,))


def _successors(earlier: Earlier, matched: Ids) -> Ids:
    successors = np.full(len(earlier.row), -1, np.int64)
    new = np.flatnonzero(matched >= 0)
    successors[matched[new]] = new
    return successors


def _fates(
    earlier: Earlier, changed: Sequence[Change], class_ids: Sequence[str], known: KnownClasses
) -> tuple[Fate, ...]:
    fates = []
    for row, (info, change) in enumerate(zip(earlier.manifest.classes, changed, strict=True)):
        became, into = change.became, change.into
        if row in known.promoted:
            became, into = Became.NOW_KNOWN, (known.promoted[row],)
        if info.kind == "known" and row not in known.rows:  # no longer in the source
            became = Became.VANISHED
        fates.append(
            Fate(
                class_id=info.class_id,
                label=earlier.label(info),
                became=became,
                into=tuple(class_ids[new] for new in into),
            )
        )
    return tuple(fates)
