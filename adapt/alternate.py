"""Algorithm 2: pre-train once, then discover, restructure C and retrain, round after round."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Generator, Tensor, nn

from scda.adapt import checkpoint, novelty, randomness, trust
from scda.adapt.config import TrainConfig
from scda.adapt.device import chosen_device
from scda.adapt.discover import Discovery, aligned, discover, divide
from scda.adapt.inputs import FeatureInputs, Inputs
from scda.adapt.kmeans import Points
from scda.adapt.propagate import propagated
from scda.adapt.stages import OnStage, Run, Seen
from scda.adapt.stop import Deferred
from scda.adapt.train import Diverged, Labelled, Networks, OnStep, infer
from scda.models.network import FeatureHead


@dataclass(frozen=True)
class Adapted:
    """The end of Algorithm 2."""

    networks: Networks
    discovery: Discovery | None  # of the last round; None without a round
    notes: list[str]  # `status: explanation`, what the user should know
    source: Labelled  # as the backbone sees it at the end
    target: Tensor  # (M, D_backbone), the same
    failure: str = ""  # why training ended before the last round


def adapt(
    source: Labelled,
    target: Tensor,
    config: TrainConfig,
    *,
    images: Inputs | None = None,
    checkpoints: Path | None = None,
    on_step: OnStep = lambda step, losses: None,
    on_discovery: Callable[[int, int], None] = lambda round_number, k_star: None,
    on_stage: OnStage = lambda stage, networks: None,
    on_resume: Callable[[int, int], None] = lambda round_number, step: None,
) -> Adapted:
    """Return F and C adapted to the target, and what was discovered in it.

    Args:
        source: Backbone features (N, D_backbone) with labels 0 to K - 1.
        target: (M, D_backbone), without labels.
        config: Of the run.
        images: What the rounds train on where the backbone learns; None takes the features.
        checkpoints: Folder to go on from, and to leave the state of every stage in.
        on_step: Called after every optimiser step with the losses by name.
        on_discovery: Called before a round is trained, with its number and k*.
        on_stage: Called after pre-training and after every round.
        on_resume: Called, where there was a checkpoint, with the last finished round, -1 for none,
            and the steps done of the one under way.

    Raises:
        Diverged: If training diverges time and again before a round is finished.

    Source: SCDA, Algorithm 2.
    """
    randomness.seed_all(config.seed)
    generator = Generator().manual_seed(config.seed)
    num_known = int(source.labels.max()) + 1
    head = FeatureHead(target.shape[1], config.head_widths)
    inputs = images or FeatureInputs(source.features, target)
    first = Networks(head, nn.Identity(), inputs.backbone)  # C comes with the first stage
    run = Run(
        inputs,
        source,
        Seen(target),
        num_known,
        config,
        generator,
        checkpoints,
        on_step,
        on_discovery,
        on_stage,
    )
    state = _finished(first, generator, checkpoints)
    pause = _paused(state, first, checkpoints)
    if state:
        run.look(state.round, state.networks)
    if state or pause:
        on_resume(state.round if state else -1, pause.progress.step if pause else 0)
    failure = ""
    try:
        while state is None or state.round < config.iterations:
            state, pause = _next_stage(state, pause, first, run), None
    except Diverged as error:
        if state is None or state.round == 0:
            raise Diverged(f"{error}; no round was finished, so there is no bundle") from None
        failure = f"round {state.round + 1}: {error}; the bundle is that of round {state.round}"
    _reject_more(state.networks.classifier, num_known, config.rejection)
    if state.round:
        run.source = Labelled(inputs.source(state.networks.backbone), source.labels)
    state.networks.modules.cpu()
    notes = ([f"diverged: {failure}"] if failure else []) + _notes(state, run)
    return Adapted(state.networks, state.discovery, notes, run.source, run.target, failure)


def _finished(
    first: Networks, generator: Generator, checkpoints: Path | None
) -> checkpoint.State | None:
    if checkpoints is None:
        return None
    head, backbone = copy.deepcopy(first.head), copy.deepcopy(first.backbone)
    return checkpoint.load(checkpoints, head, generator, backbone=backbone)


def _paused(
    state: checkpoint.State | None, first: Networks, checkpoints: Path | None
) -> checkpoint.Pause | None:
    if checkpoints is None:
        return None
    following = state.round + 1 if state else 0
    return checkpoint.load_pause(checkpoints, first.head, following, backbone=first.backbone)


def _next_stage(
    state: checkpoint.State | None,
    pause: checkpoint.Pause | None,
    first: Networks,
    run: Run,
) -> checkpoint.State:
    """Pre-train, or do the next round; its networks are new, so that `state` can be gone back to.

    Args:
        state: After the last stage.
        pause: Of the stage, where it was stopped.
        first: What pre-training starts with.
        run: All the rest.
    """
    run.begin()
    found = pause.discovery if pause else _discover(state, run) if state else None
    before = state.networks if state else first
    outputs = run.num_known + (found.k_star if found else 1)
    number = state.round + 1 if state else 0
    if found:
        run.on_discovery(number, found.k_star)

    def fresh() -> Networks:
        head, backbone = copy.deepcopy(before.head), copy.deepcopy(before.backbone)
        classifier = nn.Linear(run.config.head_widths[-1], outputs)
        networks = Networks(head, classifier, backbone, run.config.precision)
        networks.modules.to(chosen_device(run.config))
        return networks

    with Deferred() as stop:
        stage = run.trained(number, fresh, found, pause, stop)
        run.look(number, stage.networks)
        if number == 1 and found and run.config.novel == "auto":
            found = _judged(found, stage.networks, run)
        return run.end(stage, found, state)


def _judged(found: Discovery, networks: Networks, run: Run) -> Discovery:
    if found.k_star or run.config.k:
        return found
    logits = infer(networks, run.target)[0].numpy()
    return novelty.judged(found, logits, run.target.numpy(), run.graph, run.num_known)


@torch.no_grad()
def _reject_more(classifier: nn.Module, num_known: int, nats: float) -> None:
    """Add to the logits of everything new; after the last checkpoint, so that it counts once."""
    assert isinstance(classifier, nn.Linear)
    classifier.bias[num_known:] += nats


def _notes(state: checkpoint.State, run: Run) -> list[str]:
    found = state.discovery
    warnings = trust.warnings(
        source=run.source.features.numpy(),
        source_labels=run.source.labels.numpy(),
        target=run.target.numpy(),
        predicted=infer(state.networks, run.target)[0].argmax(dim=1).numpy(),
        num_known=run.num_known,
        discovery=found,
    )
    of_discovery = [note for note in (found.verdict, *found.notes) if note] if found else []
    return of_discovery + warnings + list(state.warnings)


def _discover(state: checkpoint.State, run: Run) -> Discovery:
    """Algorithm 1 for the state of the last stage, or the closed round of choice 22b."""
    logits, features = (tensor.numpy() for tensor in infer(state.networks, run.target))
    before, backbone, num_known = state.discovery, run.target.numpy(), run.num_known
    if not _anything_new(state, logits, num_known, run.config):
        called_new = np.flatnonzero(_spread(logits, run).argmax(axis=1) >= num_known)
        suspects = before.suspects if before else called_new
        return novelty.closed(_spread(logits[:, :num_known], run), before, suspects)
    if before and len(before.suspects):
        candidates = novelty.among_suspects(before, _spread(logits, run))
        found = divide(candidates, features, backbone, num_known=num_known, config=run.config)
    else:
        found = discover(
            _spread(logits, run), features, backbone, num_known=num_known, config=run.config
        )
    if before:
        found = replace(found, verdict=before.verdict, k_path=before.k_path)
    return aligned(replace(found, k_path=(*found.k_path, found.k_star)), before)


def _spread(logits: Points, run: Run) -> Points:
    reach = run.config.propagation
    return propagated(logits, run.graph, reach) if reach else logits


def _anything_new(
    state: checkpoint.State, logits: Points, num_known: int, config: TrainConfig
) -> bool:
    if config.k or config.novel != "auto":  # who gives their number says that there are some
        return config.novel != "no"
    if state.discovery is not None:  # decided in the first round
        return state.discovery.k_star > 0 or len(state.discovery.suspects) > 0
    return bool((logits.argmax(axis=1) >= num_known).mean() > novelty.SURE_SHARE)
