"""An earlier model of a few classes, for the tests of what a later one takes over."""

from collections.abc import Mapping

import numpy as np

from scda.adapt.continuity.earlier import Earlier
from scda.adapt.continuity.memory import Memory
from scda.models.bundle import ClassInfo, Manifest
from scda.models.names import Names
from scda.models.preprocess import Preprocessing
from scda.models.previous import Previous

PREPROCESSING = Preprocessing(
    resize_px=8, crop_px=8, mean=(0.0, 0.0, 0.0), std=(255.0, 255.0, 255.0)
)


def earlier_model(
    images: Mapping[str, str] | None = None,
    *,
    known: tuple[str, ...] = ("cup", "pen"),
    discovered: int = 3,
    names: Names | None = None,
    memory: Memory | None = None,
    previous: Previous | None = None,
) -> Earlier:
    """Return a model of known and discovered classes; `images` are digest → class id."""
    ids = [f"known-{i:03d}" for i in range(len(known))]
    found = [f"discovered-{i:03d}" for i in range(discovered)]
    classes = [
        ClassInfo(
            class_id=class_id,
            label=label,
            kind=class_id.partition("-")[0],
            size=1,
            mean_confidence=0.5,
            radius={"q99": 0.1},
            nearest_known=None,
            exemplars=(),
        )
        for class_id, label in zip([*ids, *found], [*known, *found], strict=True)
    ]
    manifest = Manifest(
        classes=tuple(classes),
        preprocessing=PREPROCESSING,
        thresholds={},
        status=("ok",),
        files={},
        run={},
        previous=previous,
    )
    return Earlier(manifest, names or Names(), images or {}, memory)


def centroids(*rows: tuple[float, ...]) -> Memory:
    """Return the memory of a model with these centroids."""
    return Memory("a backbone", np.array(rows, np.float32))
