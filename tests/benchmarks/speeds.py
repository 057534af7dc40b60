"""A bundle that says that it is in int8."""

import dataclasses
import json
import shutil
from pathlib import Path

from scda.models.bundle import MANIFEST, read_manifest
from scda.models.quantisation import Quantisation


def as_int8(bundle: Path) -> Path:
    """Return a copy of a bundle, beside it, whose manifest says that it is its version in int8.

    Its model is the same: making one in int8 takes seconds.
    """
    folder = bundle.with_name("int8")
    if folder.exists():
        return folder
    shutil.copytree(bundle, folder)
    manifest = read_manifest(folder)
    gate = Quantisation(
        precision="int8",
        model_id=manifest.id,
        calibration_images=10,
        images=10,
        equal_labels=1.0,
        min_agreement=0.99,
        agreement={manifest.class_ids[0]: 1.0},
        largest_loss=0.0,
        largest_loss_in=manifest.class_ids[0],
        confidence_difference=0.0,
    )
    changed = dataclasses.replace(manifest, quantisation=gate)
    (folder / MANIFEST).write_text(json.dumps(changed.to_json()))
    return folder
