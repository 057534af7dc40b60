import dataclasses
import json

import numpy as np

from scda.adapt.continuity.continued import Continued, Found, continued
from scda.adapt.continuity.earlier import Earlier
from scda.adapt.continuity.ids import fresh_ids
from scda.adapt.continuity.memory import Memory
from scda.models.names import Change, ClassState, Names
from scda.models.previous import Became, Previous
from tests.adapt.continuity.earlier_models import centroids, earlier_model

D0, D1, D2, D3, D4 = (f"discovered-{i:03d}" for i in range(5))


def images(**counts: int) -> dict[str, str]:
    """Return digest → class id; `D0=2` are two images of discovered-000."""
    ids = {"K0": "known-000", "K1": "known-001", "D0": D0, "D1": D1, "D2": D2}
    return {f"{name}{i}": ids[name] for name, count in counts.items() for i in range(count)}


def after(
    earlier: Earlier,
    *groups: list[str],
    known: tuple[str, ...] = ("cup", "pen"),
    source: dict[str, str] | None = None,
) -> Continued:
    """Return the continuation of a target whose known, then discovered classes have these images.

    `D0:3` are three of the earlier images D00, D01 ...; `new:3` are new ones.
    """
    digests, predicted = [], []
    for label, parts in enumerate(groups):
        for part in parts:
            name, _, count = part.partition(":")
            digests += [f"{name}{i}" if name != "new" else f"{label}new{i}" for i in _span(count)]
            predicted += [label] * len(_span(count))
    memory = centroids(*((0.0, 0.0) for _ in groups))
    return continued(earlier, Found(known, np.array(predicted), digests, memory, source or {}))


def _span(text: str) -> range:
    """Return a range from `3` or `2-5`."""
    first, dash, last = text.partition("-")
    return range(int(first), int(last)) if dash else range(int(first))


def fates(done: Continued) -> dict[str, Became]:
    return {fate.class_id: fate.became for fate in done.previous.classes}


ALL = images(K0=5, K1=5, D0=6, D1=6, D2=6)
NAMED = Names(version=3, labels={D0: "stapler", D2: "ruler"}, drops=frozenset([D1]))


def test_classes_keep_ids_names_and_drops_whatever_their_order() -> None:
    done = after(
        earlier_model(ALL, names=NAMED),
        ["K0:5"], ["K1:5"], ["D2:6", "new:2"], ["new:4"], ["D0:6"], ["D1:6"],
    )  # fmt: skip
    assert done.class_ids == ["known-000", "known-001", D2, D3, D0, D1]
    assert done.names.labels == NAMED.labels
    assert done.names.drops == NAMED.drops
    assert (done.names.version, done.names.history) == (1, ())
    assert set(fates(done).values()) == {Became.KEPT}
    assert [one.class_id for one in done.previous.new] == [D3]
    assert done.previous.in_common == len(ALL)
    assert done.previous.retired == {}


def test_a_vanished_class_is_retired_and_its_id_never_given_again() -> None:
    done = after(earlier_model(ALL, names=NAMED), ["K0:5"], ["K1:5"], ["D0:6"], ["D1:6"])
    assert fates(done)[D2] is Became.VANISHED
    assert done.previous.retired == {D2: "ruler"}
    # The next model has no class of the highest number any more; its id is still taken.
    chained = earlier_model(ALL, discovered=2, previous=done.previous)
    again = after(chained, ["K0:5"], ["K1:5"], ["new:9"])
    assert again.class_ids[2:] == [D3]
    assert again.previous.retired == {D2: "ruler", D0: D0, D1: D1}


def test_a_union_of_equals_is_a_new_class_and_both_are_told() -> None:
    done = after(earlier_model(ALL, names=NAMED), ["K0:5"], ["K1:5"], ["D0:6", "D2:6"], ["D1:6"])
    assert done.class_ids[2:] == [D3, D1]
    assert fates(done) | {} == {
        "known-000": Became.KEPT,
        "known-001": Became.KEPT,
        D0: Became.UNITED,
        D1: Became.KEPT,
        D2: Became.UNITED,
    }
    (new,) = done.previous.new
    assert set(new.of) == {D0, D2}
    assert done.names.labels == {}


def test_merges_carry_over_and_a_class_that_is_whole_again_has_the_id_that_answers() -> None:
    names = Names(version=1, labels={D0: "stapler"}, merges={D1: D0})
    apart = after(earlier_model(ALL, names=names), ["K0:5"], ["K1:5"], ["D0:6"], ["D1:6"])
    assert apart.names.merges == {D1: D0}
    whole = after(earlier_model(ALL, names=names), ["K0:5"], ["K1:5"], ["D0:2", "D1:6"], ["D2:6"])
    assert whole.class_ids[2:] == [D0, D2]
    assert (whole.names.labels, whole.names.merges) == ({D0: "stapler"}, {})
    assert fates(whole)[D1] is Became.UNITED
    assert whole.previous.retired == {D1: "stapler"}


def test_names_merges_and_drops_on_classes_that_mix_are_to_confirm() -> None:
    names = Names(
        version=1, labels={D0: "stapler"}, merges={D1: "known-001"}, drops=frozenset([D2])
    )
    same = after(earlier_model(ALL, names=names), ["K0:5"], ["K1:5"], ["D0:6"], ["D1:6"], ["D2:6"])
    assert same.previous.to_confirm == {}
    mixed = after(
        earlier_model(ALL, names=names),
        ["K0:3"], ["K1:3"], ["D0:6", "K0:3-5"], ["D1:6", "K1:3-5"], ["D2:5", "D1:5-6"],
    )  # fmt: skip
    # The images of known-001 had the name of discovered-001; one image of six is not worth telling.
    assert mixed.previous.to_confirm == {D0: ("known-000",)}
    assert mixed.names.labels == {D0: "stapler"}
    told = f"{D0} (stapler): to confirm: many of its images were known-000 (cup) before"
    assert told in mixed.previous.lines
    unnamed = after(earlier_model(ALL), ["K0:3"], ["K1:5"], ["D0:6", "K0:3-5"], ["D1:6"], ["D2:6"])
    assert unnamed.previous.to_confirm == {}


def test_a_merge_that_a_class_outgrows_is_to_confirm() -> None:
    names = Names(version=1, merges={D1: "known-001"})
    done = after(
        earlier_model(ALL, names=names), ["K0:2"], ["K1:5"], ["D0:6"], ["D1:6", "K0:2-5"], ["D2:6"]
    )
    assert done.names.merges == {D1: "known-001"}
    assert done.previous.to_confirm == {D1: ("known-000",)}
    assert done.previous.lines[-1].startswith(f"{D1} (pen): to confirm")


def test_a_name_on_a_class_that_half_of_its_images_have_left_is_to_confirm() -> None:
    def told(names: Names, *groups: list[str]) -> Previous:
        return after(earlier_model(ALL, names=names), ["K0:5"], ["K1:5"], *groups).previous

    tape, half = Names(version=1, labels={D0: "tape"}), (["D0:3"], ["D0:3-6"], ["D1:6"], ["D2:6"])
    assert told(tape, ["D0:4"], ["D0:4-6"], ["D1:6"], ["D2:6"]).to_confirm == {}
    previous = told(tape, *half)
    assert previous.to_confirm == {D0: ()}
    assert previous.lines[-1] == (
        f"{D0} (tape): to confirm: half or more of the images in common under its earlier name, or "
        "of its own, are in other classes now"
    )
    assert told(Names(version=1, labels={D1: "pin"}), *half).to_confirm == {}  # D0 has no name
    # Merged classes that stay are not told; one that loses half of its own images is, and so is one
    # with half of the images under the name.
    merged = Names(version=1, labels={D0: "tape"}, merges={D1: D0})
    assert told(merged, ["D0:6"], ["D1:6"], ["D2:6"]).to_confirm == {}
    assert told(merged, ["D0:3"], ["D1:6", "D0:3-6"], ["D2:6"]).to_confirm == {D0: ()}
    assert told(merged, ["D0:6"], ["new:6"], ["D2:6"], ["D1:6"]).to_confirm == {}
    assert told(merged, ["D0:6"], ["D2:6", "D1:3"], ["D1:3-6"]).to_confirm == {D1: ()}
    assert told(merged, ["D0:6"], ["D2:6", "D1:6"]).to_confirm == {D0: ()}


def test_one_image_that_has_left_is_not_told() -> None:
    tape = earlier_model(images(K0=5, K1=5, D0=1, D1=4, D2=6), names=Names(labels={D0: "tape"}))
    memory = Memory("a backbone", np.eye(5, dtype=np.float32))
    earlier = dataclasses.replace(tape, memory=memory)
    # The only image of D0 that is in common is in D1.
    digests = ["D00", "D10", "D11", "D12", "D13", "a", "b"]
    found = Found(("cup", "pen"), np.array([3, 3, 3, 3, 3, 2, 2]), digests, memory)
    done = continued(earlier, found)
    assert done.names.labels == {D0: "tape"}  # found by its centroid
    assert done.previous.to_confirm == {}
    two = dataclasses.replace(earlier, images={**earlier.images, "D10": D0})
    assert continued(two, found).previous.to_confirm == {D0: ()}


def test_what_leaves_a_known_class_is_not_told_of_classes_merged_into_it() -> None:
    names = Names(version=1, merges={D0: "known-001"})
    earlier = earlier_model(ALL | images(K1=18), names=names)
    done = after(earlier, ["K0:5"], ["K1:3"], ["D0:6"], ["D1:6"], ["D2:6"], ["K1:3-18"])
    assert done.names.merges == {D0: "known-001"}
    assert done.previous.to_confirm == {}
    lost = after(earlier, ["K0:5"], ["K1:18"], ["D0:3"], ["D1:6", "D0:3-6"], ["D2:6"])
    assert lost.previous.to_confirm == {D0: ()}


def test_a_name_stays_to_confirm_until_somebody_decides_on_the_class_again() -> None:
    groups = ["K0:5"], ["K1:5"], ["D0:6"], ["D1:6"], ["D2:6"]
    names = Names(version=1, labels={D0: "stapler", D1: "ruler"})
    previous = after(earlier_model(ALL, names=names), *groups).previous
    previous = dataclasses.replace(previous, to_confirm={D0: ("known-000",), D2: ("known-001",)})
    again = after(earlier_model(ALL, names=names, previous=previous), *groups)
    assert again.previous.to_confirm == {D0: ("known-000",)}  # the other one has no name any more
    change = Change(version=2, at="", did="", before={D0: ClassState("stapler")})
    decided = dataclasses.replace(names, history=(change,))
    done = after(earlier_model(ALL, names=decided, previous=previous), *groups)
    assert done.previous.to_confirm == {}


def test_a_class_inherits_the_name_of_a_known_class_that_left_the_source() -> None:
    names = Names(version=1, merges={D0: "known-001", D1: "known-001"})
    done = after(
        earlier_model(ALL, names=names),
        ["K0:5"], ["new:5"], ["D0:6"], ["D1:6"], ["D2:6"],
        known=("cup", "spoon"),
    )  # fmt: skip
    assert done.class_ids == ["known-000", "known-002", D0, D1, D2]
    assert (done.names.labels, done.names.merges) == ({D0: "pen"}, {D1: D0})
    assert fates(done)["known-001"] is Became.VANISHED


def test_a_promoted_class_is_told_as_now_known() -> None:
    names = Names(version=1, labels={D0: "stapler"}, merges={D1: D0})
    done = after(
        earlier_model(ALL, names=names),
        ["K0:5"], ["K1:5"], ["D0:6", "D1:6"], ["D2:6"],
        known=("cup", "pen", "stapler"),
    )  # fmt: skip
    assert done.class_ids == ["known-000", "known-001", "known-002", D2]
    assert fates(done)[D0] is fates(done)[D1] is Became.NOW_KNOWN
    assert done.previous.classes[2].into == ("known-002",)
    assert done.previous.new == ()
    assert set(done.previous.retired) == {D0, D1}
    assert done.names.version == 0


def test_a_class_is_known_now_by_its_images_whatever_its_folder_is_called() -> None:
    source = {**dict.fromkeys(["D00", "D01", "D02"], "tacker"), "K00": "tacker", "x": "cup"}
    done = after(
        earlier_model(ALL), ["K0:5"], ["K1:5"], ["D0:6"], ["D1:6"], ["D2:6"],
        known=("cup", "pen", "tacker"), source=source,
    )  # fmt: skip
    assert fates(done)[D0] is Became.NOW_KNOWN


def test_known_classes_keep_their_ids_by_folder_or_by_the_name_people_gave() -> None:
    names = Names(version=1, labels={"known-000": "mug"})
    done = after(
        earlier_model(ALL, names=names), ["new:3"], ["K0:5"], ["K1:5"],
        known=("ant", "mug", "pen"),
    )  # fmt: skip
    assert done.class_ids == ["known-002", "known-000", "known-001"]
    assert done.names.labels == {}  # it is the name of the folder now
    assert [one.class_id for one in done.previous.new] == ["known-002"]


def test_ids_go_on_above_the_highest_that_was_ever_given() -> None:
    ids = fresh_ids("discovered", ["discovered-007", "known-012", "discovered-0x"])
    assert [next(ids), next(ids)] == ["discovered-008", "discovered-009"]
    assert next(fresh_ids("known")) == "known-000"


def test_what_changed_is_read_back_as_it_was_written() -> None:
    done = after(earlier_model(ALL, names=NAMED), ["K0:5"], ["K1:5"], ["D0:6", "D2:6"])
    text = json.dumps(dataclasses.asdict(done.previous))
    assert Previous.from_json(json.loads(text)) == done.previous
    first_version = {name: v for name, v in json.loads(text).items() if name != "to_confirm"}
    assert Previous.from_json(first_version) == dataclasses.replace(done.previous, to_confirm={})
    assert done.previous.lines[0].endswith("of the target's images were in its target")
    assert any(line.startswith(f"{D2} (ruler): united with") for line in done.previous.lines)
