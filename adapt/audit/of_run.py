"""The audit of a run, in its report: from features that it has, in a bounded time."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from scda.adapt.audit.copies import copy_groups
from scda.adapt.audit.findings import Finding, Kind
from scda.adapt.audit.images import (
    MOST_COMPARED,
    Audited,
    class_findings,
    copy_findings,
    label_findings,
)
from scda.adapt.audit.signatures import read_signatures, resemblance
from scda.adapt.data.dataset import Data
from scda.models.index import Features, Ids
from scda.models.limits import LIMITS, ImageLimits

_MOST_PAIRS = 1_000  # pairs of which both images are read, the most similar ones


def audit_run(data: Data) -> list[Finding]:
    """Return what an audit of the folders would find, but for copies that look less alike."""
    source, target = data.source_images, data.target_images
    images = Audited(
        [*source.names(), *target.names()],
        [data.class_names[label] for label in data.source.labels.tolist()],
        torch.cat([data.source.features, data.target]).numpy(),
        [*source.digests, *target.digests],
    )
    return audit_images(images, [*source.paths, *target.paths], limits=source.limits)


def audit_images(
    images: Audited,
    paths: Sequence[Path],
    *,
    limits: ImageLimits = LIMITS,
    most: int = MOST_COMPARED,
) -> list[Finding]:
    """Return labels that look wrong, copies and poor classes.

    Args:
        images: Images with their features, the source first.
        paths: File of each image.
        limits: The largest image that is read.
        most: Largest number of images that are compared with each other; of more, only equal
            files and poor classes are found.
    """
    is_small = len(paths) <= most

    def alike(first: Ids, second: Ids) -> Features:
        rows, places = np.unique(np.concatenate([first, second]), return_inverse=True)
        signatures = read_signatures([paths[row] for row in rows], limits)
        return resemblance(signatures, places[: len(first)], places[len(first) :])

    pairs = _MOST_PAIRS if is_small else 0
    groups = copy_groups(images.features, images.digests, alike, most=pairs)
    doubted, judged = label_findings(images) if is_small else ([], None)
    found = [*doubted, *copy_findings(images, groups, judged), *class_findings(images, groups)]
    kinds = list(Kind)
    return sorted(found, key=lambda one: kinds.index(one.kind))
