"""Choose the statistics of the backbone's normalisation: of its pre-training, or of each domain."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Data, Labelled, features_again
from scda.adapt.data.domain_statistics import (
    DomainStatistics,
    domain_backbone,
    domain_statistics,
    evenly,
)
from scda.adapt.data.job import Job
from scda.adapt.data.recorded import Recorded
from scda.adapt.discovery.closeness import closeness, is_closer
from scda.adapt.runtime import distributed
from scda.adapt.runtime.progress import Reporter
from scda.models.networks.backbones import Backbone

_COMPARED = 2000  # images of each domain, at most, on which the choice is made

Features: TypeAlias = Callable[[list[Path], Backbone, str], Tensor | None]


@dataclass(frozen=True)
class Chosen:
    """The features of both domains, the backbone of the target, and the statistics of both."""

    source: Labelled
    target: Tensor
    backbone: Backbone
    statistics: dict[str, DomainStatistics]  # by domain; empty if those of the pre-training stay


def choose_statistics(
    job: Job, data: Data, backbone: Backbone, reporter: Reporter, recorded: Recorded
) -> Chosen:
    """Return the features with the statistics that the config asks for.

    With `auto`, those of the domains are taken if they bring the domains closer together.

    Args:
        job: Folders and configuration.
        data: Features with the statistics of the pre-training.
        backbone: Frozen backbone with these statistics.
        reporter: Reporter of progress.
        recorded: What a resumed run began with; it keeps its choice.
    """
    source, target = list(data.source_images.paths), list(data.target_images.paths)

    def features(paths: list[Path], of_domain: Backbone, what: str) -> Tensor | None:
        images = data.source_images if what == "source" else data.target_images
        return features_again(images.only(paths), of_domain, job, reporter, f"{what} images again")

    if recorded.statistics is not None:
        found = dict(recorded.statistics)
    else:
        found = _statistics(job, source, target, backbone)
    chosen = choose(
        Chosen(data.source, data.target, backbone, found),
        (source, target),
        features,
        always=recorded.statistics is not None or job.config.backbone_statistics == "domain",
    )
    if chosen.statistics:
        reporter.say("the backbone normalises by the statistics of each domain")
    return chosen


def choose(
    offered: Chosen,
    paths: tuple[list[Path], list[Path]],
    features: Features,
    *,
    always: bool = False,
) -> Chosen:
    """Return the features with the statistics of the domains, if those bring them closer.

    Args:
        offered: Features and backbone of the pre-training, and the statistics of the domains.
        paths: Image files of source and target, in the order of the features.
        features: Returns the features of image files with a backbone; None if one is lost.
        always: Whether to take the statistics of the domains in any case.
    """
    kept = replace(offered, statistics={})
    if not offered.statistics:
        return kept
    both = [domain_backbone(offered.backbone, offered.statistics[d]) for d in ("source", "target")]

    def again(most: int) -> tuple[Tensor, Tensor] | None:
        of_source = features(evenly(paths[0], most), both[0], "source")
        of_target = features(evenly(paths[1], most), both[1], "target")
        return None if of_source is None or of_target is None else (of_source, of_target)

    every = max(map(len, paths))
    found = again(every if always else _COMPARED)
    if found is None or not (always or _is_closer(offered, found)):
        return kept
    if not always and every > _COMPARED:
        found = again(every)
    if found is None:
        return kept
    source = replace(offered.source, features=found[0])
    return Chosen(source, found[1], both[1], offered.statistics)


def adapts_statistics(config: TrainConfig) -> bool:
    """Return whether the statistics of the domains may be taken: only by a frozen backbone."""
    return config.backbone_statistics != "pretrained" and config.finetune == "none"


def _is_closer(offered: Chosen, after: tuple[Tensor, Tensor]) -> bool:
    rows = torch.tensor(evenly(range(len(offered.source.labels)), _COMPARED))
    others = torch.tensor(evenly(range(len(offered.target)), _COMPARED))
    labels = offered.source.labels[rows].numpy()
    before = closeness(
        offered.source.features[rows].numpy(), labels, offered.target[others].numpy()
    )
    return is_closer(closeness(after[0].numpy(), labels, after[1].numpy()), before)


def _statistics(
    job: Job, source: list[Path], target: list[Path], backbone: Backbone
) -> dict[str, DomainStatistics]:
    if not adapts_statistics(job.config):
        return {}

    def of_both() -> dict[str, DomainStatistics]:
        find = partial(domain_statistics, cache_folder=job.cache, limits=job.limits)
        of_source, of_target = find(source, backbone), find(target, backbone)
        return {"source": of_source, "target": of_target} if of_source and of_target else {}

    return distributed.broadcast_from_main(of_both)
