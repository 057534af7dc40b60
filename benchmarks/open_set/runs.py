"""One run: adapt with the functions of scda, then score the result with the true labels."""

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import faiss
import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from benchmarks.open_set.protocols import Lists
from benchmarks.open_set.results import Record
from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.adapt.data.shared import Shared
from scda.adapt.discovery.findings import Finding, statuses
from scda.adapt.evaluation import metrics
from scda.adapt.evaluation.evaluate import Scored, measured
from scda.adapt.evaluation.metrics import Labels
from scda.adapt.training.algorithm import adapt
from scda.adapt.training.networks import infer
from scda.adapt.training.runner import Callbacks
from scda.adapt.training.state import RunState
from scda.models.bundle import file_sha256
from scda.models.errors import UsageError
from scda.models.index import Features
from scda.models.networks.backbone_names import weights_files
from scda.models.trust import Trust

REJECTIONS = (-6, -4, -2, -1, 0, 1, 2, 4, 6)  # values of unknown_logit_bias, nats


@dataclass(frozen=True)
class Run:
    """One run to do; `name` has the fields that identify it."""

    name: Record
    lists: Lists
    config: TrainConfig


@dataclass(frozen=True)
class Inputs:
    """The inputs of training: features of both domains, labels of the source, the classifier."""

    source: Labelled
    target: Tensor  # (N, D_backbone)
    classifier: nn.Linear | None = None  # of the backbone's pre-training
    shared: Shared | None = None  # images that both domains hold


@dataclass(frozen=True)
class Trained:
    """The outputs of training."""

    probabilities: Features  # (N, C), target
    features: Features  # (N, D), outputs of F
    near: Labels  # (N, n), nearest target images of every one
    rounds: list[Labels]  # predictions (N,) after pre-training and after every round
    k_rounds: list[int]  # number of outputs besides the known ones; 1 after pre-training
    findings: list[Finding]
    trust: Trust
    seconds: float  # processor time, which excludes other programs


def one_thread() -> None:
    """Use one thread in this process, as `scda-adapt train` does."""
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)


def measure(run: Run, inputs: Inputs) -> Record:
    """Return the record of a run; the truth is read after training has ended."""
    with threadpool_limits(1):
        trained = train(inputs, run.config)
    return {**run.name, **scores(trained, np.array(run.lists.truth), run.lists.num_known)}


def train(inputs: Inputs, config: TrainConfig) -> Trained:
    """Adapt, and keep the predictions of every round."""
    started = time.process_time()
    rounds: list[Labels] = []
    k_rounds: list[int] = []

    def keep(state: RunState) -> None:
        assert state.predicted is not None
        rounds.append(state.predicted.numpy())
        k_rounds.append(state.discovery.k_star if state.discovery else 1)

    adapted = adapt(
        inputs.source,
        inputs.target,
        config,
        classifier=inputs.classifier,
        shared=inputs.shared,
        callbacks=Callbacks(on_stage=keep),
    )
    logits, features = infer(adapted.networks, inputs.target)
    probabilities = logits.softmax(dim=1).numpy()
    seconds = time.process_time() - started
    return Trained(
        probabilities,
        features.numpy(),
        adapted.outcome.near,
        rounds,
        k_rounds,
        adapted.findings,
        adapted.trust,
        seconds,
    )


def scores(trained: Trained, truth: Labels, num_known: int) -> Record:
    """Return all measured fields of a run, shares in percent."""
    predicted = trained.rounds[-1]
    implicit = np.unique(truth[truth >= num_known])
    scored = Scored(
        truth,
        predicted,
        trained.probabilities.max(axis=1),
        1 - trained.probabilities[:, :num_known].sum(axis=1),
        trained.features,
        [str(label) for label in implicit],
        0,
    )
    rounds = [metrics.open_set(truth, labels, num_known) for labels in trained.rounds]
    shares = {
        "accuracy": accuracy(truth, predicted, num_known),
        "known_share": known_share(truth, predicted, num_known),
        "known_accuracy": known_accuracy(truth, predicted, num_known),
    }
    return {
        **measured(scored, num_known=num_known, k_star=trained.k_rounds[-1]),
        **{name: percent(share) for name, share in shares.items()},
        "rejection": trade_off(trained.probabilities, truth, num_known),
        "hos_before": percent(rounds[0]["hos"]),
        "os_per_round": [percent(shares["os"]) for shares in rounds],
        "hos_per_round": [percent(shares["hos"]) for shares in rounds],
        "k_per_round": trained.k_rounds,
        "status": list(statuses(trained.findings)),
        "expected_accuracy": percent(trained.trust.expected_accuracy),
        "low": percent(trained.trust.low),
        "high": percent(trained.trust.high),
        "measures": trained.trust.measures,
        "seconds": round(trained.seconds, 2),
    }


def trade_off(probabilities: Features, truth: Labels, num_known: int) -> dict[str, list[float]]:
    """Return OS* and UNK, in percent, for every value of `unknown_logit_bias`."""
    logits = np.log(np.maximum(probabilities, np.finfo(np.float32).tiny))
    is_new = np.arange(logits.shape[1]) >= num_known
    curve = {}
    for nats in REJECTIONS:
        shares = metrics.open_set(truth, (logits + nats * is_new).argmax(axis=1), num_known)
        curve[str(nats)] = [percent(shares["os_star"]), percent(shares["unk_pooled"])]
    return curve


def accuracy(truth: Labels, predicted: Labels, num_known: int) -> float:
    """Return the accuracy, 0 to 1, where any discovered class is correct for an implicit image."""
    return float((np.minimum(truth, num_known) == np.minimum(predicted, num_known)).mean())


def known_share(truth: Labels, predicted: Labels, num_known: int) -> float:
    """Return the share of known images that are predicted as any known class; 0 without any."""
    known = truth < num_known
    return float((predicted[known] < num_known).mean()) if known.any() else 0.0


def known_accuracy(truth: Labels, predicted: Labels, num_known: int) -> float:
    """Return the share of known images that are predicted as their class; 0 without any."""
    known = truth < num_known
    return float((predicted == truth)[known].mean()) if known.any() else 0.0


def percent(share: float) -> float:
    """Return a share of 0 to 1 in percent, with two decimals."""
    return round(100 * share, 2)


def name(config: TrainConfig, **fields: str | int) -> Record:
    """Return the fields that identify a run."""
    of_config = {field: getattr(config, field) for field in ("backbone", "preset", "seed")}
    files = weights_files(config.backbone, Path(config.weights) if config.weights else None)
    digests = "+".join(_digest(file) if file else "" for file in files)
    weights = {"weights": digests} if config.weights else {}
    return {"method": "scda", **of_config, **weights, **fields}


@cache
def _digest(weights: Path) -> str:
    try:
        return file_sha256(weights)[:16]
    except OSError as error:
        raise UsageError(f"{weights}: cannot read the weights: {error}") from None


def inputs_of(lists: Lists, features: dict[Path, NDArray[np.float32]]) -> Inputs:
    """Return the features of the listed images in their order, without the truth."""
    source, target = (
        torch.from_numpy(np.stack([features[path] for path in paths]))
        for paths in (lists.source, lists.target)
    )
    return Inputs(Labelled(source, torch.tensor(lists.labels)), target)
