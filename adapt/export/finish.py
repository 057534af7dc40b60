"""From adapted networks to a bundle: final statistics, export, parity, exemplars."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import Tensor, nn

from scda.adapt.data.image_files import Images
from scda.adapt.discovery.discover import Discovery
from scda.adapt.discovery.kmeans import Points
from scda.adapt.training.algorithm import Adapted
from scda.adapt.training.networks import Networks, infer
from scda.models import bundle as names
from scda.models.backbones import Backbone
from scda.models.bundle import ClassInfo, Manifest, write_bundle
from scda.models.export import MODEL_OUTPUTS, check_export, export_onnx
from scda.models.files import printable
from scda.models.index import Ids, build_index, normalised, write_index
from scda.models.network import PixelClassifier

EXEMPLARS = 12  # images per class
THUMBNAIL_PX = 160
PARITY_IMAGES = 16
RADII = {"q50": 0.5, "q90": 0.9, "q99": 0.99}
THRESHOLDS = {"outlier_quantile": 0.99}
_DIGITS = 6  # of stored statistics


@dataclass(frozen=True)
class Final:
    """The finished model and what it says of the target; classes in output order."""

    networks: Networks
    class_names: list[str]  # of the known classes
    discovery: Discovery | None  # its labels numbered like the outputs
    probabilities: Points  # (N, C) of the target
    features: Points  # (N, D) of the target
    centroids: Points  # (C, D), normalised
    members: list[tuple[str, Ids]]  # per class: `target` or `source`, and rows
    distances: list[Points]  # per class: its members' distance to the centroid

    @property
    def predicted(self) -> Ids:
        """Return the output index of every target image."""
        return np.asarray(self.probabilities.argmax(axis=1), np.int64)

    @property
    def class_ids(self) -> list[str]:
        """Return the stable class ids in output order."""
        known = [f"known-{i:03d}" for i in range(len(self.class_names))]
        discovered = len(self.centroids) - len(known)
        return known + [f"discovered-{i:03d}" for i in range(discovered)]

    @property
    def labels(self) -> list[str]:
        """Return what the classes are called in output order."""
        known = [printable(name) for name in self.class_names]
        return known + self.class_ids[len(known) :]


def finalise(adapted: Adapted, class_names: list[str]) -> Final:
    """Number the discovered classes by falling size and gather each class's members."""
    source, target, num_known = adapted.source, adapted.target, len(class_names)
    networks, discovery = _by_size(adapted, target, num_known)
    logits, features = infer(networks, target)
    predicted = logits.argmax(dim=1).numpy()
    of_source = infer(networks, source.features)[1].numpy()
    features_of = {"target": features.numpy(), "source": of_source}
    members = [
        _members(label, predicted, source.labels.numpy(), discovery, num_known)
        for label in range(logits.shape[1])
    ]
    directions = [normalised(features_of[domain][rows]) for domain, rows in members]
    centroids = normalised(np.stack([rows.mean(axis=0) for rows in directions]))
    distances = [
        np.clip(1 - rows @ centroid, 0, 2)
        for rows, centroid in zip(directions, centroids, strict=True)
    ]
    probabilities = logits.softmax(dim=1).numpy()
    return Final(
        networks,
        class_names,
        discovery,
        probabilities,
        features.numpy(),
        centroids,
        members,
        distances,
    )


def make_bundle(
    folder: Path,
    final: Final,
    backbone: Backbone,
    *,
    source: Images,
    target: Images,
    status: tuple[str, ...],
    run: dict[str, Any],
    neighbours: bool,
) -> Manifest:
    """Write the bundle, or nothing where the exported model drifts from torch.

    Args:
        folder: Where the bundle shall stand.
        final: The finished model.
        backbone: As it is now, on the CPU.
        source: Source files in the order of the source features.
        target: Target files in the order of the target features.
        status: `ok`, or what the user should know.
        run: Kept in bundle.json, outside the id.
        neighbours: Whether the target's features go into the bundle.

    Raises:
        GateError: If parity fails.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".draft.") as name:
        draft = Path(name)
        _write_model(draft, final, backbone, target)
        write_index(build_index(final.centroids), draft / names.CLUSTERS)
        if neighbours:
            write_index(build_index(final.features), draft / names.NEIGHBOURS)
            _write_neighbour_rows(draft / names.NEIGHBOUR_ROWS, final, target)
        classes = tuple(
            _class_info(draft, final, label, {"source": source, "target": target})
            for label in range(len(final.centroids))
        )
        return write_bundle(
            draft,
            folder,
            classes=classes,
            preprocessing=backbone.preprocessing,
            thresholds=THRESHOLDS,
            status=status,
            run=run,
        )


def _by_size(adapted: Adapted, target: Tensor, num_known: int) -> tuple[Networks, Discovery | None]:
    """Reorder C's discovered outputs, and the pseudo-labels with them, by falling size."""
    networks, discovery = adapted.networks, adapted.discovery
    predicted = infer(networks, target)[0].argmax(dim=1)
    classifier = networks.classifier
    assert isinstance(classifier, nn.Linear)
    sizes = predicted.bincount(minlength=classifier.out_features)[num_known:].numpy()
    order = np.argsort(-sizes, kind="stable")
    rows = torch.from_numpy(np.concatenate([np.arange(num_known), num_known + order]))
    sorted_classifier = nn.Linear(classifier.in_features, classifier.out_features)
    state = {name: tensor[rows] for name, tensor in classifier.state_dict().items()}
    sorted_classifier.load_state_dict(state)
    if discovery and discovery.k_star:
        labels = np.argsort(order)[discovery.implicit_labels]
        discovery = Discovery(
            discovery.k_star, discovery.candidates, labels, discovery.curve, discovery.findings
        )
    return Networks(networks.head, sorted_classifier), discovery


def _members(
    label: int, predicted: Ids, source_labels: Ids, discovery: Discovery | None, num_known: int
) -> tuple[str, Ids]:
    """Return the images that stand for a class: those predicted as it, or else its training's."""
    rows = np.flatnonzero(predicted == label)
    if len(rows):
        return "target", rows
    if label < num_known:
        return "source", np.flatnonzero(source_labels == label)
    if discovery is None:  # never retrained: all that may be new is one pool
        return "target", np.arange(len(predicted))
    return "target", discovery.candidates.implicit[discovery.implicit_labels == label - num_known]


def _write_model(draft: Path, final: Final, backbone: Backbone, target: Images) -> None:
    module = PixelClassifier(backbone, final.networks.head, final.networks.classifier)
    metadata = {
        "scda_schema_version": str(names.SCHEMA_VERSION),
        "scda_classes": json.dumps(dict(zip(final.class_ids, final.labels, strict=True))),
        "scda_preprocessing": json.dumps(backbone.preprocessing.to_json()),
    }
    crop_px = backbone.preprocessing.crop_px
    model = draft / names.MODEL
    export_onnx(module, model, crop_px=crop_px, outputs=MODEL_OUTPUTS, metadata=metadata)
    every = max(1, len(target.paths) // PARITY_IMAGES)
    images = [target.read(row) for row in range(0, len(target.paths), every)[:PARITY_IMAGES]]
    pixels = np.stack([backbone.preprocessing.apply(image) for image in images])
    check_export(module, model, pixels).save(draft / names.PARITY)


def _write_neighbour_rows(path: Path, final: Final, target: Images) -> None:
    predicted = final.predicted
    table = pa.table(
        {
            # Parquet text is UTF-8; a file name's other bytes are written as escapes.
            "path": [printable(name) for name in target.names()],
            "class_id": [final.class_ids[label] for label in predicted],
            "confidence": final.probabilities.max(axis=1),
        }
    )
    pq.write_table(table, path)


def _class_info(draft: Path, final: Final, label: int, images: dict[str, Images]) -> ClassInfo:
    num_known, class_id = len(final.class_names), final.class_ids[label]
    known = label < num_known
    domain, rows = final.members[label]
    typical = rows[np.argsort(final.distances[label], kind="stable")]
    closest = int((final.centroids[:num_known] @ final.centroids[label]).argmax())
    of_class = final.predicted == label
    confidence = final.probabilities[of_class, label].mean() if of_class.any() else 0.0
    radius = {name: float(np.quantile(final.distances[label], q)) for name, q in RADII.items()}
    return ClassInfo(
        class_id=class_id,
        label=final.labels[label],
        kind="known" if known else "discovered",
        size=int(of_class.sum()),
        mean_confidence=round(float(confidence), _DIGITS),
        radius={name: round(value, _DIGITS) for name, value in radius.items()},
        nearest_known=None if known else final.class_ids[closest],
        exemplars=tuple(
            _write_exemplar(draft, f"exemplars/{class_id}/{number}.jpg", images[domain].read(row))
            for number, row in enumerate(typical[:EXEMPLARS])
        ),
    )


def _write_exemplar(draft: Path, name: str, image: Image.Image) -> str:
    image.thumbnail((THUMBNAIL_PX, THUMBNAIL_PX), Image.Resampling.BICUBIC)
    (draft / name).parent.mkdir(parents=True, exist_ok=True)
    image.save(draft / name, quality=85)
    return name
