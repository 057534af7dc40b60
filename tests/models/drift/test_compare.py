from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scda.models.bundle import read_manifest
from scda.models.drift.compare import Sample, compare, reference_from, reference_of
from scda.models.names import Names
from scda.models.target_figures import Distribution, HeldOut, TargetFigures
from tests.bundles import make_bundle

HELD_OUT = HeldOut(images=40, outliers=2, distance=Distribution.of(np.linspace(0, 0.4, 40)))
FIGURES = TargetFigures(images=40, outlier_share=0.025, mean_confidence=0.9, held_out=HELD_OUT)


def stream(*counts: int, farther: float = 0.0, less: float = 0.0, outliers: int = 0) -> Sample:
    """So many images of each class, whose distances are those of the others and more."""
    rng, found = np.random.default_rng(sum(counts)), Sample()
    for label, count in enumerate(counts):
        for number in range(count):
            found.add(
                f"class-{label}",
                outlier=number < outliers,
                confidence=float(rng.uniform(0.5, 1) - less),
                distance=float(rng.uniform(0, 0.4) + farther),
            )
    return found


BEFORE = reference_from(stream(100, 80, 60, 40))


def test_the_same_images_anew_are_no_change() -> None:
    found = compare(BEFORE, stream(50, 40, 30, 20))
    assert (found.changed, found.training_due, found.classes) == ((), False, ())
    assert set(found.p_values) == {"classes", "confidence", "distance", "outliers"}
    assert found.verdict == "no change found"


def test_other_shares_name_the_class_and_call_for_no_training() -> None:
    found = compare(BEFORE, stream(50, 40, 0, 20))
    assert (found.changed, found.training_due) == (("classes",), False)
    (change,) = found.classes
    assert (change.class_id, change.found) == ("class-2", 0)
    assert change.expected == pytest.approx(60 / 280)


def test_a_class_that_the_reference_lacks_is_a_change() -> None:
    (change, *_) = compare(BEFORE, stream(50, 40, 30, 20, 25)).classes
    assert (change.class_id, change.expected) == ("class-4", 0)


@pytest.mark.parametrize(
    ("changes", "test"),
    [({"farther": 0.1}, "distance"), ({"less": 0.2}, "confidence"), ({"outliers": 8}, "outliers")],
)
def test_images_unlike_those_of_the_reference_call_for_a_training(
    changes: dict[str, float], test: str
) -> None:
    found = compare(BEFORE, stream(50, 40, 30, 20, **changes))  # type: ignore[arg-type]
    assert found.changed == (test,)
    assert found.training_due
    assert "--after" in found.verdict


def test_a_tenth_of_images_that_lie_far_calls_for_a_training() -> None:
    now = stream(50, 40, 30, 20)
    now.distance[::10] = [0.397] * 14  # no farther than the farthest of the reference
    now.confidence[::10] = [0.503] * 14
    found = compare(BEFORE, now)
    assert found.changed == ("confidence", "distance")
    assert found.training_due
    # The far end of a second model, which the training stores, is not that of this one.
    assert compare(replace(BEFORE, confidence=None), now).changed == ()


def test_closer_images_are_no_alarm() -> None:
    assert compare(BEFORE, stream(50, 40, 30, 20, farther=-0.1, less=-0.2)).changed == ()


def test_a_few_images_are_not_tested() -> None:
    found = compare(BEFORE, stream(40, 0, 0, 0))
    assert (found.p_values, found.changed) == ({}, ())
    assert "too few" in found.verdict


def test_the_training_is_a_reference_under_the_names_in_use(tmp_path: Path) -> None:
    manifest = read_manifest(make_bundle(tmp_path / "bundle", on_target=FIGURES))
    names = Names(merges={"discovered-001": "discovered-000"}, drops=frozenset({"known-000"}))
    reference = reference_of(manifest, names)
    # The classes have 10, 9, 8, 7 and 6 images.
    assert reference.classes == {
        "unknown": 10,
        "known-001": 9,
        "known-002": 8,
        "discovered-000": 13,
    }
    assert (reference.outliers, reference.distance) == ((2, 40), HELD_OUT.distance)
    older = replace(manifest, on_target=replace(FIGURES, held_out=None))
    assert reference_of(older, names).distance is None
    assert set(compare(reference_of(older, names), stream(60)).p_values) == {"classes"}
