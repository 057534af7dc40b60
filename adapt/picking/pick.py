"""The images of a finished run whose label would help most."""

from pathlib import Path

import numpy as np

from scda.adapt.picking.selection import choose
from scda.adapt.runs.folder import RunFolder, check_finished
from scda.adapt.runs.images_table import read_images
from scda.adapt.runs.tables import read_discovery
from scda.models.bundle import NEIGHBOURS
from scda.models.errors import GateError, UsageError
from scda.models.index import read_index


def pick(root: Path, count: int, *, seed: int = 0) -> list[str]:
    """Return the paths of target images relative to the target folder, the most helpful first.

    Images that the source holds, too, have a label, and are not among them.

    Args:
        root: Folder of the run.
        count: Number of images; all different ones if there are fewer.
        seed: Seed of the choice.

    Raises:
        UsageError: If it is not a finished run, or one without the features of the target.
        GateError: If its files are damaged.
    """
    check_finished(root)
    run = RunFolder(root)
    features = run.bundle / NEIGHBOURS
    if not features.is_file():
        raise UsageError(f"{root}: trained with --no-neighbours; expected a run with features")
    rows, index = read_discovery(run.discovery), read_index(features)
    if index.ntotal != len(rows):
        raise GateError(
            f"{run.discovery}: {len(rows)} images, and {features} holds {index.ntotal}; "
            "train the run again"
        )
    labelled = _labelled(run)
    left = [row for row, image in enumerate(rows) if image.path not in labelled]
    if not left:
        return []
    vectors = np.stack([index.reconstruct(row) for row in left])
    entropies = np.array([rows[row].entropy for row in left], np.float32)
    chosen = choose(vectors, entropies, count, seed=seed)
    return [rows[left[number]].path for number in chosen.tolist()]


def _labelled(run: RunFolder) -> set[str]:
    """Return the paths of the target images whose content is in the source, too."""
    images = read_images(run.images)
    of_source = set(images.source.values())
    return {path for path, digest in images.target.items() if digest in of_source}
