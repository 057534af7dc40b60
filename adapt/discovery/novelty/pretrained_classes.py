"""A second view of the images: the classes that the backbone was pre-trained on.

The backbone's own classifier has learnt to look past pose, light and background, and past much of
what differs between two domains. Where its classes tell those of the source apart nearly as well
as the features do, images are compared by both. Where they do not, as with digits or aerial images,
which it never saw, they would only blur the features.
"""

import numpy as np
import torch
from torch import nn

from scda.adapt.discovery.communities import thinned_rows
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.large import blocks
from scda.adapt.discovery.neighbours import nearest_others
from scda.adapt.discovery.novelty.whitening import principal_axes
from scda.adapt.runtime.threads import in_parallel
from scda.models.index import Ids, normalised

_COMPONENTS = 128  # 64 to all 1,000 do about the same
_VOTERS = 5
_FEWER = 0.05  # of a source image's neighbours may have its class, at most


def with_pretrained_classes(
    points: tuple[Points, Points],
    features: tuple[Points, Points],
    labels: Ids,
    classifier: nn.Linear,
) -> tuple[Points, Points]:
    """Return the points of both domains with the view of the pre-trained classes beside them.

    Both views have length 1 and count the same. The points are returned as they are where the
    view does not tell the classes of the source apart.

    Args:
        points: Points of source and target, of length 1, (N, D) and (M, D).
        features: Backbone features of source and target, (N, D_backbone) and (M, D_backbone).
        labels: Labels of the source, (N,).
        classifier: The classifier of the backbone's pre-training, D_backbone to its classes.
    """
    views = pretrained_views(features, classifier)
    if not tells_apart(views[0], points[0], labels):
        return points
    of_source, of_target = (
        np.asarray(np.hstack(both) / np.sqrt(2), np.float32)
        for both in zip(points, views, strict=True)
    )
    return of_source, of_target


def pretrained_views(
    features: tuple[Points, Points], classifier: nn.Linear
) -> tuple[Points, Points]:
    """Return what the classifier sees in the images of both domains, of length 1, (N, D), (M, D).

    The product of two images' views, before the mean of each domain is subtracted and the
    principal axes are taken, is the Bhattacharyya coefficient of their probabilities.

    Args:
        features: Backbone features of source and target, (N, D_backbone) and (M, D_backbone).
        classifier: The classifier of the backbone's pre-training, D_backbone to its classes.
    """
    samples = [_roots(domain[thinned_rows(len(domain))], classifier) for domain in features]
    means = [sample.mean(axis=0) for sample in samples]
    axes = principal_axes(samples[0] - means[0], samples[1] - means[1], _COMPONENTS)
    of_source, of_target = (
        _viewed(domain, mean, axes, classifier)
        for domain, mean in zip(features, means, strict=True)
    )
    return of_source, of_target


def _viewed(features: Points, mean: Points, axes: Points, classifier: nn.Linear) -> Points:
    """Return the coordinates along the axes, of length 1, (N, D)."""
    parts = in_parallel(
        lambda rows: (_roots(features[rows], classifier) - mean) @ axes, blocks(len(features))
    )
    return normalised(np.concatenate(parts))


def tells_apart(view: Points, points: Points, labels: Ids) -> bool:
    """Return whether images of the source find their class nearly as often as among the points.

    Args:
        view: The view of the source, (N, D).
        points: Points of the source, (N, D).
        labels: Labels of the source, (N,).
    """
    rows = thinned_rows(len(labels))
    in_view, before = (
        (labels[rows][nearest_others(of[rows], _VOTERS)] == labels[rows][:, None]).mean()
        for of in (view, points)
    )
    return bool(in_view >= before - _FEWER)


def _roots(features: Points, classifier: nn.Linear) -> Points:
    """Return the square roots of the classifier's probabilities, (N, classes)."""
    with torch.inference_mode():
        logits = classifier(torch.from_numpy(np.asarray(features, np.float32)))
        return np.asarray(logits.softmax(dim=1).sqrt().numpy())
