import numpy as np

from scda.adapt.audit.labels import Scores, agreement
from scda.models.index import Features, Ids, normalised


def blobs(num_classes: int = 4, per_class: int = 12, width: int = 10) -> tuple[Features, Ids]:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(num_classes), per_class)
    centres = 3 * rng.standard_normal((num_classes, width))
    return (centres[labels] + rng.standard_normal((len(labels), width))).astype(np.float32), labels


def left_out(features: Features, labels: Ids, row: int, penalty: float) -> Scores:
    """The scores of one image by a ridge regression, with an intercept, on all others."""
    points = normalised(features).astype(np.float64)
    points -= points.mean(axis=0)
    others = np.arange(len(points)) != row
    mean, one_hot = points[others].mean(axis=0), np.eye(labels.max() + 1)[labels[others]]
    centred = points[others] - mean
    system = centred.T @ centred + penalty * np.eye(points.shape[1])
    weights = np.linalg.solve(system, centred.T @ (one_hot - one_hot.mean(axis=0)))
    return np.asarray((points[row] - mean) @ weights + one_hot.mean(axis=0))


def check_leaving_out(features: Features, labels: Ids) -> None:
    points = normalised(features).astype(np.float64)
    points -= points.mean(axis=0)
    penalty = 0.3 * (points**2).sum() / min(points.shape)
    scores = agreement(features, labels).scores
    for row in (0, 17, len(labels) - 1):
        np.testing.assert_allclose(scores[row], left_out(features, labels, row, penalty), atol=1e-9)


def test_scores_are_those_of_a_regression_without_the_image() -> None:
    check_leaving_out(*blobs())


def test_the_same_with_more_dimensions_than_images() -> None:
    check_leaving_out(*blobs(width=90))


def test_changed_labels_come_first_and_are_sure() -> None:
    features, labels = blobs()
    changed = labels.copy()
    changed[[3, 20, 40]] = [2, 0, 1]
    judged = agreement(features, changed)
    assert set(judged.order[:3]) == {3, 20, 40}
    assert set(judged.wrong()) == {3, 20, 40}
    assert judged.suggested[[3, 20, 40]].tolist() == labels[[3, 20, 40]].tolist()


def test_right_labels_are_left_in_peace() -> None:
    judged = agreement(*blobs())
    assert not len(judged.wrong())
    assert (judged.margin > 0).all()


def test_identical_images_of_two_classes_do_not_divide_by_zero() -> None:
    judged = agreement(np.ones((6, 3), np.float32), np.array([0, 0, 0, 1, 1, 1]))
    assert np.isfinite(judged.scores).all()
