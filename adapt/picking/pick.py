"""The images of a finished run whose label would help most."""

from pathlib import Path

import numpy as np

from scda.adapt.picking.selection import choose
from scda.adapt.runs.folder import RunFolder, check_finished
from scda.adapt.runs.tables import read_discovery
from scda.models.bundle import NEIGHBOURS
from scda.models.errors import GateError, UsageError
from scda.models.index import read_index


def pick(root: Path, count: int, *, seed: int = 0) -> list[str]:
    """Return the paths of target images relative to the target folder, the most helpful first.

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
    vectors = np.stack([index.reconstruct(row) for row in range(index.ntotal)])
    entropies = np.array([row.entropy for row in rows], np.float32)
    return [rows[row].path for row in choose(vectors, entropies, count, seed=seed).tolist()]
