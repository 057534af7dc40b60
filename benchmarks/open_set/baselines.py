"""The methods of other papers, and the measurement of one run of them, scored like a run of scda.

These methods reject images but discover no classes. The rejected images are therefore clustered by
k-means, in the space that scda clusters, with the k of the largest silhouette. A long range of k is
searched on a grid, and silhouettes of many images are computed on a sample, because all pairs of
40,000 images would take 13 GB.
"""

import time
from functools import partial

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks.methods import dance, osbp, ovanet, pgl, shot, source_only, sta, tim, uniot
from benchmarks.methods.training import AUTHORS_RATE, UNKNOWN, Fit, Prediction
from benchmarks.open_set.estimators import distances, mean_silhouette
from benchmarks.open_set.results import Record
from benchmarks.open_set.runs import Inputs, Run, accuracy, known_share, percent
from scda.adapt.config import TrainConfig
from scda.adapt.discovery.kmeans import Points, sweep
from scda.adapt.discovery.space import cluster_space
from scda.adapt.evaluation.evaluate import Scored, measured
from scda.adapt.evaluation.metrics import Labels
from scda.models.index import Features

MOST_COUNTS = 48  # values of k that are tried
_MOST_POINTS = 5_000

METHODS: dict[str, Fit] = {
    "source_only": source_only.fit,
    "osbp": osbp.fit,
    "sta": sta.fit,
    "shot": shot.fit,
    "ovanet": ovanet.fit,
    "dance": dance.fit,
    "pgl": pgl.fit,
    "uniot": uniot.fit,
    "tim": tim.fit,
    # The same methods with their authors' rate, which was chosen for ten times as many steps.
    "shot_1e-2": partial(shot.fit, decay_from=AUTHORS_RATE),
    "ovanet_1e-2": partial(ovanet.fit, decay_from=AUTHORS_RATE),
    "dance_1e-2": partial(dance.fit, decay_from=AUTHORS_RATE),
    "uniot_1e-2": partial(uniot.fit, decay_from=AUTHORS_RATE),
}


def measure_other(run: Run, inputs: Inputs, *, counts: int = MOST_COUNTS) -> Record:
    """Return the record of a run; the truth is read after training has ended.

    Args:
        run: The run; its method is one of `METHODS`.
        inputs: Features of both domains and labels of the source.
        counts: Largest number of values of k that are tried.
    """
    started = time.process_time()
    num_known = run.lists.num_known
    with threadpool_limits(1):
        prediction = predict(run.name["method"], inputs, run.config)
        predicted, confidence = divided(
            prediction, inputs.target.numpy(), num_known, run.config, counts=counts
        )
    seconds = time.process_time() - started
    truth = np.array(run.lists.truth)
    scored = Scored(
        truth,
        predicted,
        confidence,
        prediction.novelty_score.numpy(),
        prediction.features.numpy(),
        [str(label) for label in np.unique(truth[truth >= num_known])],
        0,
    )
    k_star = len(np.unique(predicted[predicted >= num_known]))
    return {
        **run.name,
        **measured(scored, num_known=num_known, k_star=k_star),
        "accuracy": percent(accuracy(truth, predicted, num_known)),
        "known_share": percent(known_share(truth, predicted, num_known)),
        "status": ["k at its bound" if k_star == run.config.k_max else "ok"],
        "seconds": round(seconds, 2),
    }


def predict(method: str, inputs: Inputs, config: TrainConfig) -> Prediction:
    """Return the predictions of a method for the target."""
    torch.manual_seed(config.seed)
    generator = torch.Generator().manual_seed(config.seed)
    return METHODS[method](inputs.source, inputs.target, config, generator)


def divided(
    prediction: Prediction,
    backbone: Points,
    num_known: int,
    config: TrainConfig,
    *,
    counts: int = MOST_COUNTS,
) -> tuple[Labels, Features]:
    """Return labels (N,), with K and above for clusters of rejected images, and a confidence (N,).

    The confidence of a rejected image is minus its distance to the centre of its cluster.
    """
    labels = prediction.labels.numpy().copy()
    confidence = np.zeros(len(labels), np.float32)
    rejected = np.flatnonzero(labels == UNKNOWN)
    if len(rejected):
        points = cluster_space(prediction.features.numpy(), backbone, rejected, config)
        clusters = _by_silhouette(points, config, counts)
        labels[rejected] = num_known + clusters
        centres = np.stack([points[clusters == c].mean(axis=0) for c in range(clusters.max() + 1)])
        confidence[rejected] = -np.linalg.norm(points - centres[clusters], axis=1)
    return labels, confidence


def _by_silhouette(points: Points, config: TrainConfig, most_counts: int) -> Labels:
    """Return the k-means result with the largest mean silhouette; one cluster if none is defined.

    Source: Rousseeuw 1987.
    """
    counts = counts_of_k(min(config.k_max, len(np.unique(points, axis=0)) - 1), most_counts)
    rng = np.random.default_rng(config.seed)
    rows = np.sort(rng.permutation(len(points))[:_MOST_POINTS])
    between = distances(points[rows])
    best, labels = -1.0, np.zeros(len(points), np.int64)
    for runs in sweep(points, counts, restarts=config.restarts, seed=config.seed) if counts else ():
        tried = min(runs, key=lambda run: run.sse).labels
        score = mean_silhouette(between, tried[rows])
        if score > best:
            best, labels = score, tried
    return np.asarray(np.unique(labels, return_inverse=True)[1], np.int64)


def counts_of_k(most: int, counts: int = MOST_COUNTS) -> list[int]:
    """Return every k from 2 to `most`, or a grid of `counts` values that is finer for small k."""
    if most <= counts:
        return list(range(2, most + 1))
    return [int(k) for k in np.unique(np.geomspace(2, most, counts).round())]
