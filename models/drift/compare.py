"""Compare a stream of answers with a reference: what changed, by which classes, and what to do."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from scda.models.bundle import Manifest
from scda.models.drift.homogeneity import Counts, far_rise, holm, largest_change, p_value, rise
from scda.models.names import Names
from scda.models.target_figures import Distribution

ALPHA = 0.01  # share of false alarms, over all tests of a comparison
_LEAST_IMAGES = 50  # of a stream; fewer tell hardly anything
_ALIKE = ("confidence", "distance", "outliers")  # tests of how alike images are to the target


@dataclass
class Sample:
    """The answers for the images of a stream."""

    classes: Counter[str] = field(default_factory=Counter)  # class id → images
    outliers: int = 0
    confidence: list[float] = field(default_factory=list)
    distance: list[float] = field(default_factory=list)  # to the nearest centroid

    @property
    def images(self) -> int:
        """Number of images."""
        return self.classes.total()

    def add(self, class_id: str, *, outlier: bool, confidence: float, distance: float) -> None:
        """Add the answer for one image."""
        self.classes[class_id] += 1
        self.outliers += outlier
        self.confidence.append(confidence)
        self.distance.append(distance)


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What a stream is compared with; a part that is None is not compared."""

    classes: Mapping[str, int]  # class id → images, under the names of the stream
    outliers: tuple[int, int] | None = None  # outliers, and all images
    confidence: Distribution | None = None
    distance: Distribution | None = None

    @property
    def is_of_model(self) -> bool:
        """Whether the model itself answered; a training stores what a second one did."""
        return self.confidence is not None


@dataclass(frozen=True, kw_only=True)
class ClassChange:
    """A class whose share differs from the reference; shares are 0 to 1."""

    class_id: str
    expected: float
    found: float
    p_value: float  # adjusted over all classes


@dataclass(frozen=True, kw_only=True)
class Drift:
    """A stream against its reference."""

    images: int  # of the stream
    p_values: dict[str, float]  # by test, adjusted (Holm)
    classes: tuple[ClassChange, ...]  # those that changed, the largest change first
    alpha: float

    @property
    def changed(self) -> tuple[str, ...]:
        """The tests that tell a change: classes, confidence, distance, outliers."""
        return tuple(name for name, value in self.p_values.items() if value <= self.alpha)

    @property
    def training_due(self) -> bool:
        """Whether images are less like those of the training, which new labels do not mend."""
        return any(name in _ALIKE for name in self.changed)

    @property
    def verdict(self) -> str:
        """What the comparison says, in words."""
        if not self.p_values:
            return f"{self.images} images are too few to tell; expected {_LEAST_IMAGES} or more"
        if self.training_due:
            return (
                "the images are less like those of the training: look at them, and train again "
                "with --after"
            )
        if self.changed:
            return "other shares of the same classes; the model need not be trained again"
        return "no change found"


def reference_of(manifest: Manifest, names: Names) -> Reference:
    """Return what the training stored: the shares of the classes, and how far new images lie.

    The confidence of new images is not known from the training; an earlier stream has it.

    Args:
        manifest: The bundle's manifest.
        names: The names under which the stream was labelled.
    """
    classes: Counter[str] = Counter()
    for info in manifest.classes:
        classes[names.resolve(info.class_id)] += info.size
    held_out = manifest.on_target.held_out if manifest.on_target else None
    if held_out is None:
        return Reference(classes=classes)
    return Reference(
        classes=classes,
        outliers=(held_out.outliers, held_out.images),
        distance=held_out.distance,
    )


def reference_from(sample: Sample) -> Reference:
    """Return an earlier stream as the reference of a later one."""
    return Reference(
        classes=sample.classes,
        outliers=(sample.outliers, sample.images),
        confidence=Distribution.of(sample.confidence),
        distance=Distribution.of(sample.distance),
    )


def compare(reference: Reference, stream: Sample, *, alpha: float = ALPHA) -> Drift:
    """Return how a stream differs from its reference.

    All tests together raise a false alarm with at most the probability `alpha`, if the images of
    both were drawn independently from one population.

    Args:
        reference: Earlier images.
        stream: New images; with fewer than 50, nothing is tested.
        alpha: Probability of a false alarm, above 0 and below 1.
    """
    if stream.images < _LEAST_IMAGES:
        return Drift(images=stream.images, p_values={}, classes=(), alpha=alpha)
    ids = sorted({*reference.classes, *stream.classes})
    before, now = (
        np.array([of.get(i, 0) for i in ids], np.int64)
        for of in (reference.classes, stream.classes)
    )
    found = {"classes": p_value(before, now, largest_change)}
    # Images of a second model lie a little farther, so that its far end is not that of this one.
    rises = (rise, far_rise) if reference.is_of_model else (rise,)
    if known := reference.confidence:  # lower ones are an alarm
        counts = known.count(stream.confidence)
        found["confidence"] = p_value(np.array(known.counts)[::-1], counts[::-1], *rises)
    if known := reference.distance:
        found["distance"] = p_value(np.array(known.counts), known.count(stream.distance), *rises)
    if reference.outliers:
        pair = _pair(*reference.outliers, stream.outliers, stream.images)
        found["outliers"] = p_value(*pair, rise)
    adjusted = holm(found)
    changes = _changed_classes(ids, before, now, alpha) if adjusted["classes"] <= alpha else ()
    return Drift(images=stream.images, p_values=adjusted, classes=changes, alpha=alpha)


def _changed_classes(
    ids: list[str], before: Counts, now: Counts, alpha: float
) -> tuple[ClassChange, ...]:
    """Return the classes whose own share differs."""
    all_before, all_now = int(before.sum()), int(now.sum())
    of_each = {
        class_id: p_value(*_pair(int(a), all_before, int(b), all_now), largest_change)
        for class_id, a, b in zip(ids, before, now, strict=True)
    }
    adjusted = holm(of_each)
    changes = [
        ClassChange(
            class_id=class_id,
            expected=float(a / all_before),
            found=float(b / all_now),
            p_value=adjusted[class_id],
        )
        for class_id, a, b in zip(ids, before, now, strict=True)
        if adjusted[class_id] <= alpha
    ]
    return tuple(sorted(changes, key=lambda one: -abs(one.found - one.expected)))


def _pair(before: int, all_before: int, now: int, all_now: int) -> tuple[Counts, Counts]:
    """Return two samples of images as counts of those without and with a property."""
    return np.array([all_before - before, before]), np.array([all_now - now, now])
