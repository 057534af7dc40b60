"""Choose the statistics of the backbone's normalisation: of its pre-training, or of each domain."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Data, Labelled, features_again
from scda.adapt.data.domain_statistics import (
    SAMPLE,
    DomainStatistics,
    domain_backbone,
    domain_features,
    domain_statistics,
    evenly,
)
from scda.adapt.data.job import Job
from scda.adapt.data.recorded import Recorded
from scda.adapt.discovery.closeness import Closeness, closeness, is_closer, is_far_off
from scda.adapt.runtime import distributed
from scda.adapt.runtime.progress import Reporter
from scda.models.limits import LIMITS, ImageLimits
from scda.models.networks.backbones import Backbone
from scda.models.networks.statistics import has_statistics

_COMPARED = 2000  # images of each domain, at most, on which the choice is made
_GLIMPSED = 128  # images of each domain that show whether the choice is worth its time
_OF_EACH_CLASS = 8  # images of the source, on average and up to SAMPLE in all

DOMAINS = ("source", "target")
Paths: TypeAlias = tuple[list[Path], list[Path]]  # of the source and of the target
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

    With `auto`, those of the domains are taken if they bring the domains closer together. Images
    of the source that the target holds, too, are images of the target: no statistics of the source
    are computed from them, and their features are those of the target.

    Args:
        job: Folders and configuration.
        data: Features with the statistics of the pre-training.
        backbone: Frozen backbone with these statistics.
        reporter: Reporter of progress.
        recorded: What a resumed run began with; it keeps its choice.
    """
    rows = _own_rows(data)
    own = [data.source_images.paths[row] for row in rows.tolist()]
    paths = own, list(data.target_images.paths)
    labelled = data.source if data.shared is None else data.source.only(rows)
    before = Chosen(labelled, data.target, backbone, {})

    def features(paths: list[Path], of_domain: Backbone, what: str) -> Tensor | None:
        images = data.source_images if what == "source" else data.target_images
        return features_again(images.only(paths), of_domain, job, reporter, f"{what} images again")

    def offered() -> dict[str, DomainStatistics]:
        return offered_statistics(
            before, paths, job.config, cache=job.cache, limits=job.limits, reporter=reporter
        )

    is_resumed = recorded.statistics is not None
    found = recorded.statistics if is_resumed else distributed.broadcast_from_main(offered)
    chosen = choose(
        replace(before, statistics=dict(found or {})),
        paths,
        features,
        always=is_resumed or job.config.backbone_statistics == "domain",
    )
    if not chosen.statistics:
        return replace(chosen, source=data.source)
    reporter.say("the backbone normalises by the statistics of each domain")
    if data.shared is None:
        return chosen
    whole = torch.empty((len(data.source.labels), chosen.target.shape[1]))
    whole[rows] = chosen.source.features
    whole[data.shared.rows] = chosen.target[data.shared.twins]
    return replace(chosen, source=replace(data.source, features=whole))


def _own_rows(data: Data) -> Tensor:
    """Return the rows of the source that the target lacks; all rows if these are of one class."""
    count = len(data.source.labels)
    if data.shared is None:
        return torch.arange(count)
    own = torch.from_numpy(data.shared.elsewhere(count)).nonzero()[:, 0]
    return own if len(data.source.labels[own].unique()) > 1 else torch.arange(count)


def adapts_statistics(config: TrainConfig) -> bool:
    """Return whether the statistics of the domains may be taken: only by a frozen backbone."""
    return config.backbone_statistics != "pretrained" and config.finetune == "none"


def offered_statistics(
    before: Chosen,
    paths: Paths,
    config: TrainConfig,
    *,
    cache: Path,
    limits: ImageLimits = LIMITS,
    reporter: Reporter | None = None,
) -> dict[str, DomainStatistics]:
    """Return the statistics of both domains by name; nothing if they are not worth a comparison.

    Args:
        before: Features and backbone of the pre-training.
        paths: Image files of source and target, in the order of the features.
        config: Configuration of the run.
        cache: Folder that keeps what is computed.
        limits: The largest image that is read.
        reporter: Reporter of progress.
    """
    reporter = reporter or Reporter(quiet=True)
    parts = before.backbone.parts or (before.backbone,)
    if not adapts_statistics(config) or not any(map(has_statistics, parts)):
        return {}
    if config.backbone_statistics == "auto":
        reporter.say("comparing the batch statistics of the domains with those of the pre-training")

        def glimpse(files: list[Path], domain: str) -> Tensor | None:
            reporter.begin(f"glimpse of {domain} images", len(files))
            return domain_features(
                files, before.backbone, cache_folder=cache, limits=limits, on_progress=reporter.done
            )

        if not _may_be_closer(before, paths, glimpse):
            return {}
    found = {}
    for domain, files in zip(DOMAINS, paths, strict=True):
        reporter.begin(f"statistics of {domain} images", min(SAMPLE, len(files)))
        statistics = domain_statistics(
            files, before.backbone, cache_folder=cache, limits=limits, on_progress=reporter.done
        )
        if statistics is None:
            return {}
        found[domain] = statistics
    return found


def choose(offered: Chosen, paths: Paths, features: Features, *, always: bool = False) -> Chosen:
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
    both = [domain_backbone(offered.backbone, offered.statistics[domain]) for domain in DOMAINS]

    def again(most: int) -> tuple[Tensor, Tensor] | None:
        of_source = features(evenly(paths[0], most), both[0], "source")
        of_target = features(evenly(paths[1], most), both[1], "target")
        return None if of_source is None or of_target is None else (of_source, of_target)

    every = max(map(len, paths))
    found = again(every if always else _COMPARED)
    if found is None or not (always or is_closer(*_compared(offered, found, _COMPARED))):
        return kept
    if not always and every > _COMPARED:
        found = again(every)
    if found is None:
        return kept
    source = replace(offered.source, features=found[0])
    return Chosen(source, found[1], both[1], offered.statistics)


def _may_be_closer(
    before: Chosen, paths: Paths, glimpse: Callable[[list[Path], str], Tensor | None]
) -> bool:
    """Return False where few images of each domain show that their statistics do not help."""
    num_known = int(before.source.labels.max()) + 1
    count = min(SAMPLE, max(_GLIMPSED, _OF_EACH_CLASS * num_known))
    of_source, of_target = (
        glimpse(evenly(files, count), domain) for files, domain in zip(paths, DOMAINS, strict=True)
    )
    if of_source is None or of_target is None:
        return True
    return not is_far_off(*_compared(before, (of_source, of_target), count))


def _compared(
    before: Chosen, after: tuple[Tensor, Tensor], most: int
) -> tuple[Closeness, Closeness]:
    """Return how close the domains lie with the features after, and on the same images before.

    Args:
        before: All features of the pre-training.
        after: Other features of evenly spaced images of both domains.
        most: The largest number of images of each.
    """
    rows = torch.tensor(evenly(range(len(before.source.labels)), most))
    others = torch.tensor(evenly(range(len(before.target)), most))
    labels = before.source.labels[rows].numpy()
    return (
        closeness(after[0].numpy(), labels, after[1].numpy()),
        closeness(before.source.features[rows].numpy(), labels, before.target[others].numpy()),
    )
