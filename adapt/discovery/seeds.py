"""Labelled images of the target: they are certain, and name the clusters that they lie in."""

from dataclasses import replace

import numpy as np

from scda.adapt.discovery.discover import Discovery
from scda.adapt.discovery.findings import Finding, Status
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.selection import Candidates
from scda.models.index import Ids, normalised

_PASSES = 10
_SMALLEST = 1e-12  # probability of the outputs that a labelled image is not of
_ALL_LABELLED = Finding(
    Status.NOTHING_NEW,
    "all images that look new form classes of which some images are labelled",
    "inspect these classes: one of them may hold images of another new class",
)


def certain(logits: Points, given: Ids) -> Points:
    """Return logits by which labelled images are certainly of their output, (M, C).

    Args:
        logits: Logits of the target, (M, C).
        given: Output of every labelled image, -1 for other images, (M,); an output that is not
            among the C counts as -1.
    """
    rows = np.flatnonzero((given >= 0) & (given < logits.shape[1]))
    settled = logits.copy()
    settled[rows] = np.log(_SMALLEST)
    settled[rows, given[rows]] = 0
    return settled


def with_labelled(found: Discovery, labels: Ids) -> Discovery:
    """Return a discovery in which every labelled image is in T_kn, and none in T_im.

    Args:
        found: Discovery; where images stand in for new ones, labelled ones may be among them.
        labels: Class of every labelled image, -1 for other images, (M,).
    """
    known = found.candidates.known
    missing = np.setdiff1d(np.flatnonzero(labels >= 0), known)
    rows = np.concatenate([known, missing])
    of_rows = np.concatenate([found.candidates.known_labels, labels[missing]])
    order = np.argsort(rows)
    stays = labels[found.candidates.implicit] < 0
    remaining, numbered = np.unique(found.implicit_labels[stays], return_inverse=True)
    implicit = found.candidates.implicit[stays]
    return replace(
        found,
        k_star=found.k_star if stays.all() else len(remaining),
        candidates=Candidates(rows[order], of_rows[order], implicit),
        implicit_labels=found.implicit_labels if stays.all() else numbered.astype(np.int64),
    )


def named(found: Discovery, seeds: Ids, classes: Ids, points: Points) -> Discovery:
    """Return a discovery in which the clusters that hold labelled images have become their classes.

    A cluster with labelled images of several classes is divided. Then k-means goes on from there,
    in which labelled images stay in their class.

    Args:
        found: Discovery beside the classes that it took for known.
        seeds: Class of every labelled image of a discovered class, -1 for other images, (M,).
        classes: The classes that the discovery took for known, (K',).
        points: Points of the target, of length 1, (M, D).

    Source: Basu et al. 2002, "Semi-supervised Clustering by Seeding" (constrained k-means).
    """
    rows, clusters = found.candidates.implicit, found.implicit_labels
    of_rows = seeds[rows]
    seeded = np.unique(of_rows[of_rows >= 0])
    fixed = np.where(of_rows >= 0, np.searchsorted(seeded, of_rows), -1)
    groups = _continued(points[rows], _divided(points[rows], clusters, fixed), fixed)
    is_known = groups < len(seeded)
    known = np.concatenate([found.candidates.known, rows[is_known]])
    labels = np.concatenate([classes[found.candidates.known_labels], seeded[groups[is_known]]])
    order = np.argsort(known)
    remaining, numbered = np.unique(groups[~is_known], return_inverse=True)
    all_labelled = is_known.any() and not len(remaining)
    return replace(
        found,
        k_star=len(remaining),
        candidates=Candidates(known[order], labels[order], rows[~is_known]),
        implicit_labels=numbered.astype(np.int64),
        verdict=_ALL_LABELLED if all_labelled else found.verdict,
    )


def _divided(points: Points, clusters: Ids, fixed: Ids) -> Ids:
    """Return the group of every image, (n,): first one per labelled class, then one per cluster.

    In a cluster with labelled images, every image goes to the class that the mean of these is
    most similar to.
    """
    groups = int(fixed.max(initial=-1)) + 1 + clusters
    for cluster in np.unique(clusters[fixed >= 0]):
        members = np.flatnonzero(clusters == cluster)
        own = fixed[members]
        there = np.unique(own[own >= 0])
        means = np.stack([points[members[own == group]].mean(axis=0) for group in there])
        groups[members] = there[(points[members] @ means.T).argmax(axis=1)]
    return np.where(fixed >= 0, fixed, groups)


def _continued(points: Points, groups: Ids, fixed: Ids) -> Ids:
    """Return the group of every image after some passes of k-means, (n,)."""
    for _ in range(_PASSES):
        there, numbered = np.unique(groups, return_inverse=True)
        centres = normalised(np.eye(len(there), dtype=np.float32)[numbered].T @ points)
        moved = np.where(fixed >= 0, fixed, there[(points @ centres.T).argmax(axis=1)])
        if np.array_equal(moved, groups):
            break
        groups = moved
    return groups
