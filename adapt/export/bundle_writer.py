"""Write a final model as a bundle: ONNX, parity check, and the files of its classes."""

import json
import tempfile
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from scda.adapt.continuity.continued import Continued
from scda.adapt.continuity.memory import Memory
from scda.adapt.data.backbone_file import backbone_file
from scda.adapt.data.image_files import Images
from scda.adapt.export.class_files import figures_on_target, write_classes
from scda.adapt.export.final_model import FinalModel
from scda.models import bundle as names
from scda.models.bundle import Manifest, write_bundle
from scda.models.decoding.forms import Form
from scda.models.errors import DataError
from scda.models.files import write_errors
from scda.models.networks.backbones import Backbone
from scda.models.networks.export import check_export, export_model
from scda.models.networks.network import PixelClassifier
from scda.models.preprocess import Pixels
from scda.models.target_figures import HeldOut
from scda.models.trust import Trust

PARITY_IMAGES = 16
THRESHOLDS = {"outlier_quantile": 0.99}


def make_bundle(
    folder: Path,
    final: FinalModel,
    backbone: Backbone,
    *,
    cache: Path | None,
    source: Images,
    target: Images,
    status: tuple[str, ...],
    trust: Trust | None = None,
    held_out: HeldOut | None = None,
    run: dict[str, Any],
    neighbours: bool,
    memory: Memory,
    after: Continued | None = None,
) -> Manifest:
    """Write a bundle, or nothing if the exported model deviates from the trained one.

    Args:
        folder: Path of the bundle.
        final: The final model.
        backbone: Backbone in its final state, on the CPU.
        cache: Folder that keeps the exported backbone; None for one that no other run has.
        source: Source files in the order of the source features.
        target: Target files in the order of the target features.
        status: `ok`, or the statuses of the run's findings.
        trust: Estimate of the run's accuracy.
        held_out: What a model answers for images that it was not trained on.
        run: Facts about the run, kept in bundle.json outside the id.
        neighbours: Whether the bundle contains the target's features.
        memory: The centroids by which a later model finds the classes again.
        after: What the model takes over from an earlier one; None without one.

    Raises:
        GateError: If the parity check fails.
        DataError: If no image can be read any more.
        UsageError: If the bundle cannot be written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (
        write_errors(folder),
        tempfile.TemporaryDirectory(dir=folder.parent, prefix=".draft.") as name,
        tempfile.TemporaryDirectory(dir=folder.parent, prefix=".draft.") as scratch,
    ):
        draft = Path(name)
        exported = backbone_file(backbone, cache or Path(scratch))
        images = {"source": source, "target": target}
        _write_model(draft, final, exported, backbone, images)
        memory.save(draft / names.MEMORY)
        classes = write_classes(draft, final, images, neighbours=neighbours)
        return write_bundle(
            draft,
            folder,
            classes=classes,
            preprocessing=backbone.preprocessing,
            thresholds=THRESHOLDS,
            status=status,
            trust=trust,
            calibration=final.calibration,
            on_target=figures_on_target(final, held_out),
            previous=after and after.previous,
            names=after.names.to_json() if after and after.names.version else None,
            run=run,
        )


def _write_model(
    draft: Path, final: FinalModel, exported: Path, backbone: Backbone, images: dict[str, Images]
) -> None:
    module = PixelClassifier(backbone, final.networks.head, final.networks.classifier)
    metadata = {
        "scda_schema_version": str(names.SCHEMA_VERSION),
        "scda_classes": json.dumps(dict(zip(final.class_ids, final.labels, strict=True))),
        "scda_preprocessing": json.dumps(backbone.preprocessing.to_json()),
    }
    model = draft / names.MODEL
    export_model(exported, module.top, model, width=backbone.width, metadata=metadata)
    pixels = np.stack(_parity_images(images["source"], images["target"], backbone.preprocessing))
    check_export(module, model, pixels).save(draft / names.PARITY)


def _parity_images(source: Images, target: Images, form: Form) -> list[Pixels]:
    """Return images spread over the target, in a form; of the source if the target is lost.

    Raises:
        DataError: If no image can be read any more.
    """
    for domain in (target, source):
        rows = range(len(domain.paths))
        spread = rows[:: max(1, len(rows) // PARITY_IMAGES)][:PARITY_IMAGES]
        others = (row for row in rows if row not in spread)
        if images := list(domain.first_readable(chain(spread, others), PARITY_IMAGES, form)):
            return images
    raise DataError(
        f"{target.root}: no image can be read any more; bring the images back, and rerun with "
        "--resume to continue"
    )
