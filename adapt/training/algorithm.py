"""Algorithm 2: pre-train once, then discover, restructure C and retrain, round after round."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from torch import Generator, Tensor, nn

from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.adapt.discovery import diagnostics, novelty
from scda.adapt.discovery.discover import Discovery, cluster_candidates, discover, match_to_previous
from scda.adapt.discovery.findings import Finding, Status
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.propagation import propagate
from scda.adapt.runtime import distributed, rng
from scda.adapt.runtime.device import chosen_device
from scda.adapt.runtime.signals import Deferred
from scda.adapt.training import checkpoint
from scda.adapt.training.inputs import FeatureInputs, Inputs
from scda.adapt.training.loop import Diverged, OnStep
from scda.adapt.training.networks import Networks, infer, reject_more
from scda.adapt.training.runner import OnStage, Run, Seen
from scda.models.errors import UsageError
from scda.models.network import FeatureHead


@dataclass(frozen=True)
class Adapted:
    """The end of Algorithm 2."""

    networks: Networks  # on the CPU
    discovery: Discovery | None  # of the last round; None without a round
    source: Labelled  # as the backbone sees it at the end
    target: Tensor  # (M, D_backbone), the same
    findings: list[Finding]  # what the user should know
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
        UsageError: If the processes of the run do not share their checkpoints.

    Source: SCDA, Algorithm 2.
    """
    rng.seed_all(config.seed)
    generator = Generator().manual_seed(config.seed)
    num_known = int(source.labels.max()) + 1
    inputs = images or FeatureInputs(source.features, target)
    start = _start(target.shape[1], inputs, config)
    run = Run(
        source,
        inputs,
        Seen(target),
        num_known,
        config,
        generator,
        checkpoints,
        on_step,
        on_discovery,
        on_stage,
    )
    state = checkpoint.load(checkpoints, start, generator) if checkpoints else None
    following = state.round + 1 if state else 0
    pause = checkpoint.load_pause(checkpoints, start, following) if checkpoints else None
    at = (state.round if state else -1, pause.progress.step if pause else 0)
    if set(distributed.all_gather_object(at)) != {at}:
        raise UsageError(
            f"{checkpoints}: other processes see other checkpoints there; "
            "want --out on a disk that all machines share"
        )
    if state or pause:
        on_resume(*at)
    if state and state.round:
        run.look(state.networks.backbone)
    failure = ""
    try:
        while state is None or state.round < config.rounds:
            state, pause = _next_stage(state, pause, start, run), None
    except Diverged as error:
        if state is None or state.round == 0:
            raise Diverged(f"{error}; no round was finished, so there is no bundle") from None
        failure = f"round {state.round + 1}: {error}; the bundle is that of round {state.round}"
    # After the last checkpoint, so that it counts once.
    reject_more(state.networks, num_known, config.unknown_logit_bias)
    if state.round:
        source = replace(source, features=inputs.source(state.networks.backbone))
    state.networks.modules.cpu()
    findings = _findings(state, source, run)
    if failure:
        found = f"round {state.round + 1} diverged, so the bundle is that of round {state.round}"
        advice = f"use a smaller --lr than {config.lr}"
        findings.insert(0, Finding(Status.DIVERGED, found, advice))
    return Adapted(state.networks, state.discovery, source, run.target, findings, failure)


def _start(backbone_width: int, inputs: Inputs, config: TrainConfig) -> Networks:
    """Return what pre-training starts with; every stage brings its own C."""
    head = FeatureHead(backbone_width, config.head_widths)
    networks = Networks(head, nn.Identity(), inputs.backbone, config.precision)
    networks.modules.to(chosen_device(config))
    return networks


def _next_stage(
    state: checkpoint.State | None,
    pause: checkpoint.Pause | None,
    start: Networks,
    run: Run,
) -> checkpoint.State:
    """Pre-train, or do the next round; its networks are new, so that `state` can be gone back to.

    Args:
        state: After the last stage.
        pause: Of the stage, where it was stopped.
        start: What pre-training starts with.
        run: All the rest.
    """
    run.begin()
    found = pause.discovery if pause else None
    if state and not pause:
        found = distributed.broadcast_from_main(partial(_discover, state, run))
    before = state.networks if state else start
    outputs = run.num_known + (found.k_star if found else 1)
    number = state.round + 1 if state else 0
    if found:
        run.on_discovery(number, found.k_star)

    def fresh() -> Networks:
        classifier = nn.Linear(run.config.head_widths[-1], outputs).to(before.device)
        return replace(copy.deepcopy(before), classifier=classifier)

    with Deferred(distributed.all_reduce_max) as stop:
        stage = run.trained(number, fresh, found, pause, stop)
        if number:  # pre-training leaves the backbone as it was
            run.look(stage.networks.backbone)
        if number == 1 and found and run.config.novel == "auto":
            found = _judged(found, stage.networks, run)
        return run.end(stage, found, state)


def _judged(found: Discovery, networks: Networks, run: Run) -> Discovery:
    if found.k_star or run.config.k:
        return found
    logits, target = infer(networks, run.target)[0].numpy(), run.target.numpy()
    return distributed.broadcast_from_main(
        lambda: novelty.judge_closed_round(found, logits, target, run.seen.graph, run.num_known)
    )


def _findings(state: checkpoint.State, source: Labelled, run: Run) -> list[Finding]:
    found = state.discovery
    at_the_end = diagnostics.diagnose(
        source=source.features.numpy(),
        source_labels=source.labels.numpy(),
        target=run.target.numpy(),
        predicted=infer(state.networks, run.target)[0].argmax(dim=1).numpy(),
        num_known=run.num_known,
        discovery=found,
    )
    verdict = [found.verdict] if found and found.verdict else []
    of_discovery = found.findings if found else ()
    return [*verdict, *of_discovery, *at_the_end, *state.findings]


def _discover(state: checkpoint.State, run: Run) -> Discovery:
    """Algorithm 1 for the state of the last stage, or the closed round of choice 22b."""
    logits, features = (tensor.numpy() for tensor in infer(state.networks, run.target))
    before, backbone, num_known = state.discovery, run.target.numpy(), run.num_known
    if not novelty.expects_new_classes(before, logits, num_known, run.config):
        called_new = np.flatnonzero(_spread(logits, run).argmax(axis=1) >= num_known)
        suspects = before.suspects if before else called_new
        return novelty.closed_round(_spread(logits[:, :num_known], run), before, suspects)
    if before and len(before.suspects):
        candidates = novelty.suspect_candidates(before, _spread(logits, run))
        found = cluster_candidates(
            candidates, features, backbone, num_known=num_known, config=run.config
        )
    else:
        found = discover(
            _spread(logits, run), features, backbone, num_known=num_known, config=run.config
        )
    if before:
        found = replace(found, verdict=before.verdict, k_path=before.k_path)
    return match_to_previous(replace(found, k_path=(*found.k_path, found.k_star)), before)


def _spread(logits: Points, run: Run) -> Points:
    reach = run.config.propagation_alpha
    return propagate(logits, run.seen.graph, reach) if reach else logits
