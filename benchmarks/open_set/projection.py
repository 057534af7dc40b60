"""The target in two dimensions before and after training, with implicit classes in colours.

Source: SCDA, supplement, "Visualization"; van der Maaten and Hinton 2008 (t-SNE).
"""

import io
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from benchmarks.open_set.results import Record
from benchmarks.open_set.runs import Inputs, Run
from scda.adapt.report.figures import GREY
from scda.adapt.training.algorithm import adapt
from scda.adapt.training.networks import infer
from scda.models.index import Features, normalised

_STAGES = {"before": "the backbone's features", "after": "F's features after training"}


def measure_projection(run: Run, inputs: Inputs) -> Record:
    """Return the coordinates of the target before and after training, with its true labels."""
    started = time.monotonic()
    with threadpool_limits(1):
        adapted = adapt(inputs.source, inputs.target, run.config, classifier=inputs.classifier)
        after = infer(adapted.networks, inputs.target)[1].numpy()
        places = {
            "before": flat(inputs.target.numpy(), run.config.seed),
            "after": flat(after, run.config.seed),
        }
    return {
        **run.name,
        "truth": list(run.lists.truth),
        "num_known": run.lists.num_known,
        **{stage: np.round(points, 2).tolist() for stage, points in places.items()},
        "seconds": round(time.monotonic() - started, 2),
    }


def flat(features: Features, seed: int) -> Features:
    """Return t-SNE coordinates (N, 2) of features (N, D) with rows of length 1."""
    few = min(30.0, (len(features) - 1) / 3)  # t-SNE needs fewer neighbours than images
    tsne = TSNE(2, perplexity=few, init="pca", random_state=seed)
    return np.asarray(tsne.fit_transform(normalised(features)), np.float32)


def summary(records: Sequence[Record]) -> str:
    """Return one line per run."""
    return "\n".join(
        f"{record['task']}, seed {record['seed']}: {len(record['truth'])} images in "
        f"{record['seconds']} s; --figure FILE.png draws them"
        for record in records
    )


def projection_png(records: Sequence[Record]) -> bytes:
    """Draw one row per run, with known classes in grey and each implicit class in a colour."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.2 * len(records)), layout="constrained")
    rows = figure.subplots(len(records), len(_STAGES), squeeze=False)
    for axes_of_row, record in zip(rows, records, strict=True):
        for axes, (stage, title) in zip(axes_of_row, _STAGES.items(), strict=True):
            axes.set_title(f"{record['task']}: {title}", fontsize=9)
            _draw(axes, np.array(record[stage]), record)
    return as_png(figure)


def as_png(figure: Any) -> bytes:
    """Return a matplotlib figure as the bytes of a PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def _draw(axes: Any, points: Features, record: Record) -> None:
    from matplotlib import colormaps

    truth, num_known = np.array(record["truth"]), record["num_known"]
    known = truth < num_known
    axes.scatter(*points[known].T, s=7, color=GREY, alpha=0.5, linewidths=0)
    colours = colormaps["tab20"](np.linspace(0, 1, 20))
    for number, label in enumerate(np.unique(truth[~known])):
        members = points[truth == label]
        axes.scatter(*members.T, s=9, color=colours[number % 20], linewidths=0)
    axes.set_xticks([])
    axes.set_yticks([])
