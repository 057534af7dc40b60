"""Chains of three models: a class vanishes, and is back with its id and name."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from scda.adapt.continuity import memory
from scda.adapt.continuity.continued import Continued, Found, continued
from scda.adapt.continuity.earlier import Earlier
from scda.adapt.continuity.memory import Memory
from scda.models.names import Names
from scda.models.previous import Became, Newcomer
from tests.adapt.continuity.earlier_models import centroids, earlier_model

D0, D1, D2, D3, D4 = (f"discovered-{i:03d}" for i in range(5))
KNOWN = ("cup", "pen")
# Centroids by kind of image, and others that are close to those.
AT = dict(zip(["cup", "pen", "stapler", "ruler", "tape"], np.eye(6), strict=False))
AT["like a ruler"] = 0.9 * AT["ruler"] + 0.44 * np.eye(6)[5]


def first(names: Names) -> Earlier:
    """Return a model whose discovered classes are staplers, a class of rulers, and tapes."""
    kinds = [*KNOWN, "stapler", "ruler", "tape"]
    images = {f"{kind}{number}": "" for kind in kinds for number in range(5)}
    ids = ["known-000", "known-001", D0, D1, D2]
    of_kind = dict(zip(kinds, ids, strict=True))
    return earlier_model({i: of_kind[i[:-1]] for i in images}, names=names, memory=at(kinds))


def at(kinds: Sequence[str]) -> Memory:
    return centroids(*(tuple(AT[kind]) for kind in kinds))


def after(earlier: Earlier, *kinds: str, known: Sequence[str] = KNOWN) -> Continued:
    """Return the continuation of a target with five images of each known class and these kinds."""
    every = [*known, *kinds]
    digests = [f"{kind}{number}" for kind in every for number in range(5)]
    memory = at([kind if kind in AT else "cup" for kind in every])
    return continued(earlier, Found(known, np.repeat(np.arange(len(every)), 5), digests, memory))


def then(done: Continued, *kinds: str, known: Sequence[str] = KNOWN) -> Earlier:
    """Return the model of a continuation as the earlier one of the next."""
    every = [*known, *kinds]
    model = earlier_model(known=tuple(known), discovered=len(kinds), previous=done.previous)
    infos = tuple(
        dataclasses.replace(info, class_id=class_id)
        for info, class_id in zip(model.manifest.classes, done.class_ids, strict=True)
    )
    images = {f"{kind}{i}": done.class_ids[n] for n, kind in enumerate(every) for i in range(5)}
    manifest = dataclasses.replace(model.manifest, classes=infos)
    return Earlier(manifest, done.names, images, done.memory)


NAMED = Names(version=1, labels={D0: "stapler", D1: "ruler"})


def test_a_class_that_vanished_returns_with_its_id_and_name() -> None:
    without = after(first(NAMED), "stapler", "tape")
    assert without.class_ids[2:] == [D0, D2]
    assert without.previous.retired == {D1: "ruler"}
    assert list(without.memory.vanished) == [D1]
    # Images that nobody has seen, beside a class that is new.
    back = after(then(without, "stapler", "tape"), "tape", "like a ruler", "stapler", "cup")
    assert back.class_ids[2:] == [D2, D1, D0, D3]
    assert back.names.labels == NAMED.labels
    assert [fate.class_id for fate in back.previous.classes if fate.became == "returned"] == [D1]
    assert [one.class_id for one in back.previous.new] == [D3]
    assert back.previous.retired == {}
    assert not back.memory.vanished
    told = f"{D1} (ruler): had vanished, and is back with its id and name"
    assert told in back.previous.lines
    assert "4 of 4 classes keep their ids" in back.previous.lines[1]


def test_a_class_is_remembered_over_several_trainings() -> None:
    gone = after(first(NAMED), "stapler")
    assert list(gone.memory.vanished) == [D1, D2]
    still = after(then(gone, "stapler"), "stapler")
    back = after(then(still, "stapler"), "stapler", "ruler")
    assert back.class_ids[2:] == [D0, D1]
    assert list(back.memory.vanished) == [D2]
    assert back.previous.retired == {D2: D2}


def test_a_returning_class_has_no_name_that_another_one_has_by_now() -> None:
    gone = after(first(NAMED), "stapler", "tape")
    earlier = then(gone, "stapler", "tape")
    names = dataclasses.replace(earlier.names, labels={**earlier.names.labels, D2: "ruler"})
    back = after(dataclasses.replace(earlier, names=names), "stapler", "tape", "ruler")
    assert back.class_ids[2:] == [D0, D2, D1]
    assert back.names.labels == {D0: "stapler", D2: "ruler"}


def test_what_is_more_like_a_class_that_is_there_does_not_return() -> None:
    gone = after(first(NAMED), "stapler", "tape")
    halves = Memory("a backbone", gone.memory.centroids, {D1: AT["tape"].astype(np.float32) * 0.9})
    earlier = dataclasses.replace(then(gone, "stapler", "tape"), memory=halves)
    found = after(earlier, "stapler", "tape", "tape")  # a second class of tapes
    assert D1 not in found.class_ids


def test_a_known_class_returns_by_its_folder() -> None:
    without = after(first(NAMED), "stapler", known=("cup",))
    back = after(then(without, "stapler", known=("cup",)), "stapler", known=("cup", "pen"))
    assert back.class_ids == ["known-000", "known-001", D0]
    assert {fate.class_id for fate in back.previous.classes if fate.became == "returned"} == {
        "known-001"
    }
    assert back.previous.new == ()


def test_a_class_that_was_promoted_does_not_return_as_a_discovered_one() -> None:
    known = (*KNOWN, "ruler")
    promoted = after(first(NAMED), "stapler", "tape", known=known)
    assert D1 not in promoted.memory.vanished
    assert D1 in promoted.previous.retired


def test_other_features_and_no_end_of_vanished_classes_are_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    earlier = first(NAMED)
    assert earlier.memory
    other = dataclasses.replace(earlier, memory=dataclasses.replace(earlier.memory, backbone="x"))
    assert not after(other, "stapler").memory.vanished
    monkeypatch.setattr(memory, "_MOST_VANISHED", 1)
    assert list(after(earlier, "stapler").memory.vanished) == [D2]


def test_one_vanishes_one_is_new_and_one_splits() -> None:
    digests = [f"cup{i}" for i in range(5)] + [f"pen{i}" for i in range(5)]
    digests += [f"stapler{i}" for i in range(5)] + list("uvw")
    digests += [f"tape{i}" for i in range(5)]
    predicted = np.repeat(np.arange(6), [5, 5, 3, 2, 3, 5])
    near = at([*KNOWN, "stapler", "cup", "pen", "tape"])
    done = continued(first(NAMED), Found(KNOWN, predicted, digests, near))
    fates = {fate.class_id: (fate.became, fate.into) for fate in done.previous.classes}
    assert fates[D0] == (Became.SPLIT, (D0, D3))
    assert fates[D1] == (Became.VANISHED, ())
    assert fates[D2] == (Became.KEPT, (D2,))
    assert done.previous.new == (
        Newcomer(class_id=D3, label=D3, of=(D0,)),
        Newcomer(class_id=D4, label=D4),
    )
    assert done.names.labels == {D0: "stapler"}
    # A part that looks like the whole has its name, by a merge that people can undo.
    near = at([*KNOWN, "stapler", "stapler", "pen", "tape"])
    alike = continued(first(NAMED), Found(KNOWN, predicted, digests, near))
    assert alike.names.merges == {D3: D0}
    assert alike.previous.new[0] == Newcomer(class_id=D3, label="stapler", of=(D0,))
    assert alike.previous.to_confirm == {D3: (D0,)}  # nobody has seen it
    assert alike.previous.lines[-1] == (
        f"{D3} (stapler): to confirm: it is a new class, and many of its images were {D0} "
        "(stapler) before"
    )
    # It is told however few of its images are in common.
    images = {i: of for i, of in first(NAMED).images.items() if i != "stapler4"}
    few = dataclasses.replace(first(NAMED), images=images)  # one image
    sure = continued(few, Found(KNOWN, predicted, digests, near))
    assert sure.names.merges == {D3: D0}
    assert sure.previous.to_confirm == {D3: (D0,)}
    # Of a class without a name, it is a class of its own.
    unnamed = continued(first(Names()), Found(KNOWN, predicted, digests, near))
    assert unnamed.names.version == 0
