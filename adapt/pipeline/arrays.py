"""Algorithm 2 on NumPy arrays, from features to classes: the function `scda.adapt`."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.adapt.export.final_model import final_model
from scda.adapt.runtime import rng
from scda.adapt.runtime.threads import one_thread
from scda.adapt.training import algorithm
from scda.models.errors import DataError, UsageError
from scda.models.trust import Trust


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Adaptation:
    """The target images, each assigned to a known or a discovered class.

    Attributes:
        known_classes: (K,), the distinct labels of the source in sorted order.
        class_ids: Stable names of all K + k* classes: `known-000`, ..., `discovered-000`, ...; the
            known ones in the order of `known_classes`, the discovered ones by falling size.
        predictions: (M,), the most probable class of each target image, 0 to K + k* - 1.
        probabilities: (M, K + k*), rows sum to 1.
        features: (M, D), the adapted features of the target.
        trust: The estimated accuracy, made without labels of the target.
        findings: Reasons to check the result before relying on it; empty if there are none.
    """

    known_classes: NDArray[Any]
    class_ids: tuple[str, ...]
    predictions: NDArray[np.int64]
    probabilities: NDArray[np.float32]
    features: NDArray[np.float32]
    trust: Trust
    findings: tuple[str, ...]

    def __repr__(self) -> str:
        """Return a short text with the counts instead of the arrays."""
        images, known = len(self.predictions), len(self.known_classes)
        return f"<scda.Adaptation: {images} images, {known} known classes, k_star={self.k_star}>"

    @property
    def k_star(self) -> int:
        """The number of discovered classes."""
        return len(self.class_ids) - len(self.known_classes)

    @property
    def unknown_probability(self) -> NDArray[np.float32]:
        """The probability that an image belongs to no known class, (M,)."""
        unknown: NDArray[np.float32] = self.probabilities[:, len(self.known_classes) :].sum(axis=1)
        return unknown.clip(max=1)  # rounding in float32 may exceed 1


def adapt(
    features: ArrayLike,
    labels: ArrayLike,
    target_features: ArrayLike,
    *,
    config: TrainConfig | None = None,
) -> Adaptation:
    """Adapt to an unlabelled target, and discover and count the classes that the source lacks.

    The features are those of a frozen backbone; no image is read. The result is the same on any
    number of CPU cores. Random generators and thread counts of the process are left as they were.

    Args:
        features: (N, D_backbone), backbone features of the labelled source images.
        labels: (N,), their classes: numbers or text, at least two distinct ones.
        target_features: (M, D_backbone), backbone features of the target images, M >= 2.
        config: Configuration of the run; None takes the defaults. Options of image reading, such
            as `backbone` or `image_size`, have no effect.

    Returns:
        The class of each target image, and how many classes were discovered.

    Raises:
        UsageError: If shapes do not match, or the configuration trains the backbone or names an
            earlier model.
        DataError: If a feature is not finite, or there are fewer than two classes or target images.
        GateError: If training diverges before the first round is finished.

    Example:
        >>> import numpy as np
        >>> import scda
        >>> blob = np.random.default_rng(0).normal(size=(3, 50, 8)) + 6 * np.eye(3, 8)[:, None]
        >>> source, labels = blob[:2].reshape(100, 8), np.repeat(["cat", "dog"], 50)
        >>> config = scda.TrainConfig(rounds=2, k_max=5, novel="yes")
        >>> result = scda.adapt(source, labels, blob.reshape(150, 8), config=config)
        >>> result.predictions.shape
        (150,)
    """
    config = config or TrainConfig()
    if config.finetune != "none":
        raise UsageError(
            f"finetune is {config.finetune!r}, which needs images; expected 'none', or scda.train"
        )
    if config.after:
        raise UsageError(
            f"after is {config.after!r}, which needs images; expected none, or scda.train"
        )
    source, target, classes = _checked(features, labels, target_features)
    with one_thread(), rng.kept():
        adapted = algorithm.adapt(source, target, config)
        final = final_model(adapted, [str(name) for name in classes])
    return Adaptation(
        known_classes=classes,
        class_ids=tuple(final.class_ids),
        predictions=final.predicted,
        probabilities=final.probabilities,
        features=final.features,
        trust=adapted.trust,
        findings=tuple(map(str, adapted.findings)),
    )


def _checked(
    features: ArrayLike, labels: ArrayLike, target_features: ArrayLike
) -> tuple[Labelled, torch.Tensor, NDArray[Any]]:
    """Return the source with labels 0 to K - 1, the target, and the original K labels."""
    source, target = _matrix("features", features), _matrix("target_features", target_features)
    names = np.asarray(labels)
    if names.shape != source.shape[:1]:
        raise UsageError(f"labels are {names.shape}; expected {source.shape[:1]}, one per feature")
    if source.shape[1] != target.shape[1]:
        raise UsageError(
            f"target_features are {target.shape[1]} wide; expected {source.shape[1]}, as features"
        )
    classes, numbers = np.unique(names, return_inverse=True)
    if len(classes) < 2 or len(target) < 2:
        raise DataError(
            f"{len(classes)} classes and {len(target)} target images; expected two or more of each"
        )
    of_source = Labelled(torch.from_numpy(source), torch.from_numpy(numbers.astype(np.int64)))
    return of_source, torch.from_numpy(target), classes


def _matrix(name: str, values: ArrayLike) -> NDArray[np.float32]:
    try:
        # torch expects a writable array; only other kinds of arrays are copied.
        matrix = np.require(np.asarray(values, np.float32), requirements=("C", "W"))
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name}: {error}; expected numbers in rows of one length") from None
    if matrix.ndim != 2 or not matrix.size:
        raise UsageError(f"{name} are {matrix.shape}; expected (images, width), none of them 0")
    if not np.isfinite(matrix).all():
        raise DataError(f"{name} hold a value that is not finite in float32")
    return matrix
