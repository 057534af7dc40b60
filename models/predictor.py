"""Pixels to predictions: labels with names applied, distances and uncertainty."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from typing_extensions import TypedDict  # the standard one is not enough for pydantic before 3.12

from scda.models.bundle import (
    CLUSTERS,
    MANIFEST,
    MODEL,
    OUTLIER_QUANTILE,
    PARITY,
    Manifest,
    open_verified,
    read_manifest,
)
from scda.models.errors import GateError
from scda.models.index import nearest, read_index
from scda.models.names import UNKNOWN, Names, merge_matrix, read_names
from scda.models.parity import Reference, check_parity
from scda.models.preprocess import Pixels
from scda.models.session import Session

TOP = 5  # entries of `nearest`, and of `top` by default


class ClassDistance(TypedDict):
    """The distance of an image from the centroid of a class: 1 - cosine, 0 to 2."""

    class_id: str
    label: str
    distance: float


class ClassShare(TypedDict):
    """The probability of a class, 0 to 1."""

    class_id: str
    label: str
    confidence: float


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The answer for one image; the same fields over HTTP and in every row."""

    label: str
    kind: str  # known | discovered | unknown
    class_id: str
    confidence: float  # 0 to 1
    outlier: bool  # farther from every centroid than 99% of that class's own images
    entropy: float  # nats
    margin: float  # first minus second probability
    nearest: tuple[ClassDistance, ...]  # nearest first
    top: tuple[ClassShare, ...]  # most probable first
    model_id: str
    names_version: int

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain JSON values."""
        return {
            **{f.name: getattr(self, f.name) for f in dataclasses.fields(self)},
            "nearest": [dict(entry) for entry in self.nearest],
            "top": [dict(entry) for entry in self.top],
        }


FIELDS = tuple(f.name for f in dataclasses.fields(Prediction))


@dataclass(frozen=True)
class Outputs:
    """Outputs of the model for N images."""

    probabilities: NDArray[np.float32]  # (N, C), names not yet applied
    features: NDArray[np.float32]  # (N, D)


@dataclass(frozen=True)
class ActiveClass:
    """A class that predictions can have, with its current label; `unknown` if any is dropped."""

    class_id: str
    label: str
    kind: str  # known | discovered | unknown


class Predictor:
    """A loaded bundle: prepares images and predicts their classes."""

    def __init__(self, folder: Path, manifest: Manifest, session: Session, index: faiss.Index):
        """Combine the parts that `load_predictor` reads."""
        self.folder, self.manifest, self.session = folder, manifest, session
        self._index = index
        self._id = manifest.id
        quantiles = [info.radius[OUTLIER_QUANTILE] for info in manifest.classes]
        self._radii = np.array(quantiles, np.float32)
        self.rename(read_names(folder, manifest))

    def rename(self, names: Names) -> None:
        """Replace the names, merges and drops."""
        ids, matrix = merge_matrix(names, self.manifest.class_ids)
        known = {info.class_id: info for info in self.manifest.classes}
        labels = {i: names.label(known[i]) if i in known else UNKNOWN for i in ids}
        kinds = {i: known[i].kind if i in known else UNKNOWN for i in ids}
        # One assignment, so that a request in another thread never sees half of a renaming.
        self.active_names = ActiveNames(names, tuple(ids), matrix, labels, kinds)

    @property
    def names(self) -> Names:
        """The active names."""
        return self.active_names.names

    @property
    def active_classes(self) -> tuple[ActiveClass, ...]:
        """The classes that remain after merges and drops: known, discovered, unknown."""
        naming = self.active_names
        return tuple(ActiveClass(i, naming.labels[i], naming.kinds[i]) for i in naming.ids)

    def merged_probabilities(self, outputs: Outputs) -> NDArray[np.float32]:
        """Return the probabilities (N, C') of the C' classes of `active_classes`."""
        return self.active_names.merged_probabilities(outputs)

    def prepare(self, image: Image.Image) -> Pixels:
        """Return an image from `read_image` as the model's input, (H, W, 3) uint8."""
        return self.manifest.preprocessing.apply(image)

    def predict(self, pixels: Sequence[Pixels]) -> list[Prediction]:
        """Return one prediction per prepared image, in order."""
        return self.describe(self.run(pixels)) if len(pixels) else []

    def run(self, pixels: Sequence[Pixels]) -> Outputs:
        """Return the raw outputs of the model for prepared images."""
        return Outputs(*self.session.run(np.stack(pixels)))

    def describe(
        self, outputs: Outputs, *, top: int = TOP, naming: "ActiveNames | None" = None
    ) -> list[Prediction]:
        """Return the predictions for model outputs, under the active names.

        Args:
            outputs: From `run`.
            top: Number of entries in `top`; at most the number of classes.
            naming: Earlier value of `active_names`, to keep using its names.
        """
        naming = naming or self.active_names
        named = naming.merged_probabilities(outputs)  # (N, remaining)
        distances, ids = nearest(self._index, outputs.features, len(self._radii))
        outliers: NDArray[np.bool_] = np.all(distances > self._radii[ids], axis=1)
        return [
            self._prediction(naming, top, *row)
            for row in zip(named, distances, ids, outliers, strict=True)
        ]

    def _prediction(
        self,
        naming: "ActiveNames",
        top: int,
        probabilities: NDArray[np.float32],
        distances: NDArray[np.float32],
        ids: NDArray[np.int64],
        outlier: np.bool_,
    ) -> Prediction:
        order = np.argsort(-probabilities, kind="stable")
        best = naming.ids[order[0]]
        return Prediction(
            label=naming.labels[best],
            kind=naming.kinds[best],
            class_id=best,
            confidence=float(probabilities[order[0]]),
            outlier=bool(outlier),
            entropy=_entropy(probabilities),
            margin=float(probabilities[order[0]] - probabilities[order[1]])
            if len(order) > 1
            else 1.0,
            nearest=tuple(naming.nearest(self.manifest.class_ids, distances, ids)),
            top=tuple(naming.share(i, float(probabilities[i])) for i in order[:top]),
            model_id=self._id,
            names_version=naming.names.version,
        )


@dataclass(frozen=True)
class ActiveNames:
    """The active names, and what follows from them for this bundle."""

    names: Names
    ids: tuple[str, ...]  # the classes that remain after merges and drops
    matrix: NDArray[np.float32]  # (C, remaining)
    labels: dict[str, str]
    kinds: dict[str, str]

    def merged_probabilities(self, outputs: Outputs) -> NDArray[np.float32]:
        """Return the probabilities (N, remaining)."""
        # In float32 a sum of shares of 1 may end a little above it.
        summed: NDArray[np.float32] = outputs.probabilities @ self.matrix
        return summed.clip(max=1)

    def share(self, position: int, confidence: float) -> ClassShare:
        """Return the entry of `top` for the class at a position in `ids`."""
        class_id = self.ids[position]
        return {"class_id": class_id, "label": self.labels[class_id], "confidence": confidence}

    def nearest(
        self, class_ids: list[str], distances: NDArray[np.float32], ids: NDArray[np.int64]
    ) -> list[ClassDistance]:
        """Return `nearest` of one image, from centroid ids and their distances."""
        entries: dict[str, ClassDistance] = {}
        for distance, output in zip(distances, ids, strict=True):
            class_id = self.names.resolve(class_ids[output])
            if class_id not in entries:  # merged classes count with their closest centroid
                entry: ClassDistance = {
                    "class_id": class_id,
                    "label": self.labels[class_id],
                    "distance": float(distance),
                }
                entries[class_id] = entry
            if len(entries) == TOP:
                break
        return list(entries.values())


def _entropy(probabilities: NDArray[np.float32]) -> float:
    positive = probabilities[probabilities > 0]
    return float(max(0.0, -(positive * np.log(positive)).sum()))


def load_predictor(
    folder: Path, *, provider: str = "auto", threads: int = 0, spinning: bool = True
) -> Predictor:
    """Load a bundle after checking every checksum, shape and parity image.

    Args:
        folder: Folder of the bundle, from `bundle_folder`.
        provider: As in `Session`.
        threads: As in `Session`.
        spinning: As in `Session`.

    Raises:
        GateError: If the bundle is damaged, of another schema, or fails the parity check.
        UsageError: If the provider is not available.
    """
    manifest = read_manifest(folder)
    with open_verified(folder, manifest, MODEL) as file:
        session = Session(file, provider=provider, threads=threads, spinning=spinning)
    with open_verified(folder, manifest, CLUSTERS) as file:
        index = read_index(file, width=session.width)
    with open_verified(folder, manifest, PARITY) as file:
        reference = Reference.load(file)
    for what, found, expected in (
        (CLUSTERS, index.ntotal, len(manifest.classes)),
        (PARITY, reference.probabilities.shape[-1], len(manifest.classes)),
        (MODEL, session.shape, manifest.preprocessing.shape),
    ):
        if found != expected:
            message = f"{folder}: {what} does not match {MANIFEST}: {found}, expected {expected}"
            raise GateError(message)
    check_parity(session, reference, precision=manifest.precision)
    return Predictor(folder, manifest, session, index)
