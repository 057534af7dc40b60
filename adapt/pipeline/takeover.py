"""Take over the classes and the names of an earlier model: the option `after`."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from scda.adapt.config import TrainConfig
from scda.adapt.continuity.anchors import anchors_of
from scda.adapt.continuity.continued import Continued, Found, continued, num_in_common
from scda.adapt.continuity.earlier import Earlier
from scda.adapt.continuity.known import known_classes
from scda.adapt.continuity.memory import Memory, remember
from scda.adapt.data.dataset import Data
from scda.adapt.data.domain_statistics import read_statistics
from scda.adapt.data.recorded import Recorded
from scda.adapt.export.final_model import FinalModel
from scda.adapt.runs.earlier_run import read_earlier
from scda.adapt.runs.folder import RunFolder, read_config
from scda.adapt.runtime.progress import Reporter
from scda.models.bundle import bundle_folder
from scda.models.errors import DataError, ScdaError
from scda.models.files import printable
from scda.models.index import Ids
from scda.models.names import read_names
from scda.models.networks.backbones import Backbone
from scda.models.places import is_run


@dataclass(frozen=True)
class Takeover:
    """What a training takes over from an earlier model, and leaves to a later one."""

    earlier: Earlier | None  # None without the option `after`
    place: Path  # run or bundle of the earlier model
    target: Tensor  # (M, D_backbone), by the backbone with the statistics of its pre-training
    backbone: str  # stands for the backbone and its preprocessing

    @property
    def fingerprint(self) -> dict[str, str | None]:
        """What must be the same when the run is resumed."""
        return {"earlier model": self.earlier.manifest.id if self.earlier else None}

    def anchors(self, data: Data) -> Ids | None:
        """Return the classes that the discovery does not unite, (M,), -1 for other images."""
        if self.earlier is None:
            return None
        known = known_classes(self.earlier, _known(data), _source(data))
        return anchors_of(self.earlier, data.target_images.digests, known.promoted)

    def finish(self, final: FinalModel, data: Data) -> tuple[FinalModel, Memory, Continued | None]:
        """Return the final model with its ids, its memory, and what it took over."""
        memory = remember(self.backbone, self.target.numpy(), final.predicted, len(final.centroids))
        if self.earlier is None:
            return final, memory, None
        known, digests = _known(data), data.target_images.digests
        found = Found(known, final.predicted, digests, memory, _source(data))
        after = continued(_with_latest_names(self.earlier, self.place), found)
        return final.with_ids(after.class_ids), after.memory, after


def open_takeover(
    config: TrainConfig, data: Data, backbone: Backbone, reporter: Reporter
) -> Takeover:
    """Return what a training takes over.

    Args:
        config: Configuration of the run.
        data: Features with the statistics of the pre-training.
        backbone: Frozen backbone with these statistics.
        reporter: Reporter of progress.

    Raises:
        UsageError: If the earlier model is neither a run nor a bundle.
        GateError: If it is damaged.
        DataError: If there is nothing by which its classes could be found again.
    """
    earlier, digests = _earlier_model(config), data.target_images.digests
    if earlier:
        reporter.say(f"after {_described(earlier, config, digests, _key(backbone))}")
    return Takeover(earlier, Path(config.after), data.target, _key(backbone))


def planned_takeover(
    config: TrainConfig, backbone: Backbone, digests: Sequence[str]
) -> dict[str, str]:
    """Return what `--dry-run` prints of the earlier model, nothing without one.

    Raises:
        As `open_takeover`.
    """
    earlier = _earlier_model(config)
    return {"after": _described(earlier, config, digests, _key(backbone))} if earlier else {}


def with_choice(recorded: Recorded, data: Data, config: TrainConfig) -> Recorded:
    """Return what is recorded with the earlier run's choice of statistics, where it holds.

    It holds for the same source, backbone and preprocessing; then the features of all images that
    were seen before are in the cache.
    """
    run = RunFolder(Path(config.after))
    if recorded.statistics is not None or not config.after or not is_run(run.root):
        return recorded
    before = read_config(run)
    same = ("source", "backbone", "preprocessing")
    is_same = all(before["data"].get(name) == data.fingerprint[name] for name in same)
    chosen = (config.backbone_statistics, before["config"].get("backbone_statistics"))
    if not is_same or chosen != ("auto", "auto") or config.finetune != "none":
        return recorded
    return dataclasses.replace(recorded, statistics=read_statistics(run.statistics))


def _known(data: Data) -> list[str]:
    """Return the labels of the known classes."""
    return list(map(printable, data.class_names))


def _source(data: Data) -> dict[str, str]:
    """Return SHA-256 → label of the source images."""
    labels = np.array(_known(data), object)[data.source.labels.numpy()]
    return dict(zip(data.source_images.digests, labels.tolist(), strict=True))


def _key(backbone: Backbone) -> str:
    return f"{backbone.id} {backbone.preprocessing.id}"


def _earlier_model(config: TrainConfig) -> Earlier | None:
    return read_earlier(Path(config.after)) if config.after else None


def _described(earlier: Earlier, config: TrainConfig, digests: Sequence[str], key: str) -> str:
    """Return what is known of an earlier model before the training."""
    infos, shared = earlier.manifest.classes, num_in_common(earlier, digests)
    discovered = [info.class_id for info in infos if info.kind == "discovered"]
    has_centroids = earlier.memory is not None and earlier.memory.backbone == key
    if discovered and not shared and not has_centroids:
        raise DataError(
            f"{config.after}: its discovered classes cannot be found again: the target has none of "
            "its images, and it has no centroids of this backbone and preprocessing; expected "
            f"a model of backbone {config.backbone} with the same --image-size, or images in common"
        )
    named = sum(class_id in earlier.names.labels for class_id in discovered)
    return (
        f"{config.after}: model {earlier.manifest.id}, {len(infos) - len(discovered)} known and "
        f"{len(discovered)} discovered classes, {named} of them with names; {shared} of "
        f"{len(digests)} target images were in its target"
    )


def _with_latest_names(earlier: Earlier, place: Path) -> Earlier:
    """Return the earlier model with the names that people gave during the training."""
    try:
        names = read_names(bundle_folder(place), earlier.manifest)
    except ScdaError:  # moved or replaced meanwhile
        return earlier
    return dataclasses.replace(earlier, names=names)
