"""Write what a bundle holds of its classes: centroids, neighbours, statistics and exemplars."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from scda.adapt.data.image_files import Images
from scda.adapt.export.class_figures import RADII, ClassFigures
from scda.models import bundle as names
from scda.models.bundle import ClassInfo
from scda.models.decoding.reading import thumbnail
from scda.models.files import printable
from scda.models.index import build_index, write_index
from scda.models.preprocess import Pixels
from scda.models.target_figures import HeldOut, TargetFigures

EXEMPLARS = 12  # number of images per class
THUMBNAIL_PX = 160
_EXEMPLAR = thumbnail(THUMBNAIL_PX)
_DIGITS = 6  # number of decimals of stored statistics


def write_classes(
    draft: Path, figures: ClassFigures, images: Mapping[str, Images], *, neighbours: bool
) -> tuple[ClassInfo, ...]:
    """Write the centroids, the neighbours and the exemplars, and return the classes.

    Args:
        draft: Folder of the bundle that is written.
        figures: The answers for the target, and the classes.
        images: Files by domain, in the order of the rows of `figures`.
        neighbours: Whether the bundle contains the target's features.

    Raises:
        UsageError: If a file cannot be written.
    """
    write_index(build_index(figures.centroids), draft / names.CLUSTERS)
    if neighbours:
        write_index(build_index(figures.features), draft / names.NEIGHBOURS)
        _write_neighbour_rows(draft / names.NEIGHBOUR_ROWS, figures, images["target"])
    return tuple(
        _class_info(draft, figures, label, images) for label in range(len(figures.centroids))
    )


def figures_on_target(figures: ClassFigures, held_out: HeldOut | None) -> TargetFigures:
    """Return what a model answers for its target, to compare a stream with."""
    return TargetFigures(
        images=len(figures.predicted),
        outlier_share=round(float(figures.outliers.mean()), _DIGITS),
        mean_confidence=round(float(figures.probabilities.max(axis=1).mean()), _DIGITS),
        held_out=held_out,
    )


def _write_neighbour_rows(path: Path, figures: ClassFigures, target: Images) -> None:
    predicted = figures.predicted
    table = pa.table(
        {
            # Parquet text is UTF-8; other bytes of a file name are written as escapes.
            "path": [printable(name) for name in target.names()],
            "class_id": [figures.class_ids[label] for label in predicted],
            "confidence": figures.probabilities.max(axis=1),
            "sha256": list(target.digests),
        }
    )
    pq.write_table(table, path)


def _class_info(
    draft: Path, figures: ClassFigures, label: int, images: Mapping[str, Images]
) -> ClassInfo:
    num_known, class_id = len(figures.class_names), figures.class_ids[label]
    known = label < num_known
    domain, rows = figures.members[label]
    typical = rows[np.argsort(figures.distances[label], kind="stable")]
    closest = int((figures.centroids[:num_known] @ figures.centroids[label]).argmax())
    trust = None if known or not figures.trust else figures.trust[label - num_known]
    of_class = figures.predicted == label
    confidence = figures.probabilities[of_class, label].mean() if of_class.any() else 0.0
    exemplars = images[domain].first_readable(typical.tolist(), EXEMPLARS, _EXEMPLAR)
    radius = {name: float(np.quantile(figures.distances[label], q)) for name, q in RADII.items()}
    return ClassInfo(
        class_id=class_id,
        label=figures.labels[label],
        kind="known" if known else "discovered",
        size=int(of_class.sum()),
        mean_confidence=round(float(confidence), _DIGITS),
        radius={name: round(value, _DIGITS) for name, value in radius.items()},
        nearest_known=None if known else figures.class_ids[closest],
        exemplars=tuple(
            _write_exemplar(draft, f"exemplars/{class_id}/{number}.jpg", pixels)
            for number, pixels in enumerate(exemplars)
        ),
        trust=trust,
    )


def _write_exemplar(draft: Path, name: str, pixels: Pixels) -> str:
    (draft / name).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(draft / name, quality=85)
    return name
