import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.adapt.data.domain_statistics import read_statistics
from scda.adapt.data.job import Job
from scda.adapt.pipeline import statistics as module
from scda.adapt.pipeline.run import train
from scda.adapt.pipeline.statistics import Chosen, adapts_statistics, choose, offered_statistics
from scda.adapt.runs.folder import RunFolder
from scda.adapt.runtime.progress import Reporter
from scda.models.bundle import Manifest
from scda.models.networks.backbones import Backbone, load_backbone
from scda.models.networks.statistics import batch_statistics
from tests.adapt.discovery.two_domains import WIDTH, groups
from tests.conftest import KNOWN, TinyData

pytestmark = pytest.mark.usefixtures("no_figures")
CLASSES, EACH = [0, 1, 2, 3], 30
PATHS = ([Path(f"s{i}") for i in range(120)], [Path(f"t{i}") for i in range(120)])


@pytest.fixture(scope="module")
def offered(tiny: TinyData) -> Chosen:
    """Domains that lie far apart: every class of the target is moved its own way."""
    backbone = load_backbone("conv4", weights=tiny.weights)
    pixels = torch.full((8, 32, 32, 3), 30, dtype=torch.uint8)
    statistics = {backbone.id: batch_statistics(backbone, [pixels])}
    source, labels = groups(CLASSES, EACH, shift=0, seed=0)
    target, numbers = groups(CLASSES, EACH, shift=0, seed=1)
    moved = torch.randn((4, WIDTH), generator=torch.Generator().manual_seed(0))
    return Chosen(
        Labelled(torch.from_numpy(source), torch.from_numpy(labels)),
        torch.from_numpy(target) + 6 * moved[torch.from_numpy(numbers)],
        backbone,
        {"source": statistics, "target": statistics},
    )


def near(paths: list[Path], backbone: Backbone, domain: str) -> Tensor:
    return torch.from_numpy(groups(CLASSES, EACH, shift=0, seed=2 + (domain == "target"))[0])


def test_statistics_that_bring_the_domains_closer_are_taken(offered: Chosen) -> None:
    chosen = choose(offered, PATHS, near)
    assert chosen.statistics == offered.statistics
    assert torch.equal(chosen.source.features, near([], offered.backbone, "source"))
    assert torch.equal(chosen.target, near([], offered.backbone, "target"))
    assert chosen.backbone.id != offered.backbone.id
    assert torch.equal(chosen.source.labels, offered.source.labels)


def test_others_are_not_taken_unless_they_are_asked_for(offered: Chosen) -> None:
    close = choose(offered, PATHS, near)
    both = replace(close, backbone=offered.backbone)

    def far(paths: list[Path], backbone: Backbone, domain: str) -> Tensor:
        return offered.source.features if domain == "source" else offered.target

    kept = choose(both, PATHS, far)
    assert kept == replace(both, statistics={})
    asked = choose(both, PATHS, far, always=True)
    assert torch.equal(asked.target, offered.target)
    assert asked.statistics == offered.statistics


def test_a_lost_image_keeps_the_statistics_of_the_pretraining(offered: Chosen) -> None:
    assert choose(offered, PATHS, lambda *_: None) == replace(offered, statistics={})
    assert choose(offered, PATHS, lambda *_: None, always=True).statistics == {}


@pytest.mark.parametrize(
    ("mode", "shift", "expected"),
    [("auto", 0, True), ("auto", 6, False), ("domain", 6, True), ("pretrained", 0, False)],
)
def test_statistics_are_computed_only_where_a_glimpse_of_them_does_not_lead_far_off(
    offered: Chosen,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    shift: int,
    expected: bool,
) -> None:
    """The domains of the pre-training lie close; those of the glimpse as far apart as `shift`."""
    before = choose(offered, PATHS, near)
    moved = torch.randn((4, WIDTH), generator=torch.Generator().manual_seed(0))

    def glimpse(paths: list[Path], *unused: object, **options: object) -> Tensor:
        domain = "source" if paths[0].name[0] == "s" else "target"
        features = near(paths, offered.backbone, domain)
        is_target = domain == "target"
        return features + shift * is_target * moved[torch.arange(4).repeat_interleave(EACH)]

    monkeypatch.setattr(module, "domain_features", glimpse)
    monkeypatch.setattr(module, "domain_statistics", lambda *_, **__: offered.statistics["source"])
    config = TrainConfig(backbone_statistics=mode)
    found = offered_statistics(before, PATHS, config, cache=tmp_path)
    assert found == (offered.statistics if expected else {})


def test_a_domain_of_few_images_keeps_the_statistics_of_the_pretraining(
    offered: Chosen, tmp_path: Path
) -> None:
    assert offered_statistics(offered, PATHS, TrainConfig(), cache=tmp_path) == {}  # none is there


def test_a_backbone_that_learns_has_statistics_of_its_own() -> None:
    assert adapts_statistics(TrainConfig())
    assert not adapts_statistics(TrainConfig(finetune="last"))
    assert not adapts_statistics(TrainConfig.from_preset("paper"))


def trained(job: Job) -> Manifest:
    with Reporter(quiet=True) as reporter:
        result = train(job, reporter)
    assert result
    return result.manifest


def test_a_run_with_the_statistics_of_the_domains_is_resumed_with_them(
    tiny: TinyData, tmp_path: Path
) -> None:
    options = {"backbone_statistics": "domain", "rounds": 1, "pretrain_steps": 20}
    job = tiny.job(tmp_path / "run", **options)
    manifest = trained(job)
    run = RunFolder(job.out)
    assert run.statistics.is_file()
    pretrained = {**options, "backbone_statistics": "pretrained"}
    other = trained(tiny.job(tmp_path / "other", **pretrained))
    assert other.id != manifest.id
    assert not RunFolder(tmp_path / "other").statistics.exists()
    run.report.unlink()  # so that it is resumed, with the checkpoint of its last round
    assert trained(replace(job, resume=True)).id == manifest.id


def test_a_labelled_image_of_the_target_says_nothing_about_the_source(
    tiny: TinyData, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    shutil.copytree(tiny.source, source)
    shutil.copy(min(tiny.target.iterdir()), source / min(KNOWN) / "labelled.png")
    options = {"backbone_statistics": "domain", "rounds": 0, "pretrain_steps": 1}
    found = []
    for name, folder in (("without", tiny.source), ("with", source)):
        trained(tiny.job(tmp_path / name, source=folder, **options))
        found.append(read_statistics(RunFolder(tmp_path / name).statistics)["source"])
    (without,), (with_label,) = (of_backbone.values() for of_backbone in found)
    assert all(torch.equal(with_label[key], value) for key, value in without.items())
