"""How far two models agree on the same images, and whether that is enough."""

import numpy as np

from scda.adapt.discovery.kmeans import Points
from scda.models.bundle import Manifest
from scda.models.errors import GateError
from scda.models.quantisation import Quantisation

_DIGITS = 6  # number of decimals of stored shares


def check_agreement(
    exact: Points, int8: Points, manifest: Manifest, *, calibration_images: int, least: float
) -> Quantisation:
    """Return how far the answers of a model in int8 agree with those of the float32 one.

    Args:
        exact: Probabilities of the float32 model, (M, C).
        int8: Those of the model in int8 for the same images, (M, C).
        manifest: The float32 bundle.
        calibration_images: Number of images that activations were measured on.
        least: Share of the images that must have the same class, 0 to 1.

    Raises:
        GateError: If fewer have.
    """
    labels = exact.argmax(axis=1)
    same = labels == int8.argmax(axis=1)
    by_class = {
        class_id: round(float(same[labels == label].mean()), _DIGITS)
        for label, class_id in enumerate(manifest.class_ids)
        if (labels == label).any()
    }
    worst = min(by_class, key=lambda class_id: by_class[class_id])
    equal = float(same.mean())
    if not equal >= least:
        raise GateError(
            f"int8: {equal:.2%} of {len(same)} target images keep their class, "
            f"{by_class[worst]:.1%} in {worst}; expected {least:.2%} or more; keep the float32 "
            "bundle, or allow less with --min-agreement"
        )
    difference = np.abs(exact.max(axis=1) - int8.max(axis=1)).mean()
    return Quantisation(
        precision="int8",
        model_id=manifest.id,
        calibration_images=calibration_images,
        images=len(same),
        equal_labels=round(equal, _DIGITS),
        min_agreement=least,
        agreement=by_class,
        largest_loss=round(1 - by_class[worst], _DIGITS),
        largest_loss_in=worst,
        confidence_difference=round(float(difference), _DIGITS),
    )
