import itertools
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Generator, Tensor, nn

from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Data, job_backbone, read_data
from scda.adapt.data.scan import scan_source, scan_target
from scda.adapt.pipeline.run import train
from scda.adapt.pipeline.run_reporter import RunReporter
from scda.adapt.runtime.progress import Reporter
from scda.adapt.runtime.signals import Terminated
from scda.adapt.training import checkpoint
from scda.adapt.training.algorithm import Adapted, adapt
from scda.adapt.training.finetune import ImageInputs, TunedBackbone, trained_backbone
from scda.adapt.training.inputs import PseudoLabels
from scda.adapt.training.loop import Progress, Stopped, retrain
from scda.adapt.training.losses import class_confusion
from scda.adapt.training.networks import Networks, infer
from scda.adapt.training.runner import Callbacks
from scda.models.bundle import read_manifest
from scda.models.networks.backbones import Backbone, load_backbone
from scda.models.networks.network import FeatureHead, PixelClassifier
from scda.models.session import Session
from tests.conftest import TinyData

LAST = {"layers.11", "layers.12"}
SHORT: dict[str, Any] = {
    "pretrain_steps": 20,
    "round_steps": 5,
    "rounds": 1,
    "batch_size": 8,
    "workers": 1,
}


def tuned(tiny: TinyData, out: Path, **changes: Any) -> None:
    """Train, with the backbone's last stage, in this process alone."""
    job = tiny.job(out, **{**SHORT, "rounds": 2, "workers": 0, "finetune": "last", **changes})
    with pytest.MonkeyPatch.context() as patch, Reporter(quiet=True) as reporter:
        patch.setattr("scda.adapt.runtime.distributed.cpus", lambda: 0)
        train(job, reporter)


@pytest.fixture(scope="module")
def tuned_run(tiny: TinyData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "tuned"
    tuned(tiny, out)
    return out


@pytest.fixture
def backbone(tiny: TinyData) -> Backbone:
    return load_backbone("conv4", weights=tiny.weights)


@pytest.fixture(scope="module")
def data(tiny: TinyData, tmp_path_factory: pytest.TempPathFactory) -> Data:
    job = tiny.job(tmp_path_factory.mktemp("unused"))
    source = scan_source(job.source, recursive=True)
    target = scan_target(job.target, recursive=True)
    return read_data(job, source, target, job_backbone(job.config), Reporter(quiet=True))


def inputs(data: Data, backbone: Backbone, part: str, workers: int = 0) -> ImageInputs:
    return ImageInputs(
        backbone, data.source_images, data.target_images, layers=part, workers=workers
    )


def networks(of: ImageInputs, precision: str = "fp32") -> Networks:
    torch.manual_seed(0)
    head = FeatureHead(128, (16, 8))
    return Networks(head, nn.Linear(8, 5), of.backbone, precision)


def step(data: Data, nets: Networks, of: ImageInputs, **fields: Any) -> dict[str, float]:
    settings = TrainConfig(**{"round_steps": 1, "batch_size": 8, "lr": 0.01, **fields})
    pseudo = PseudoLabels(torch.arange(6), torch.tensor([0, 1, 2, 3, 4, 3]))
    losses: list[dict[str, float]] = []
    retrain(
        nets,
        of,
        data.source.labels,
        pseudo,
        settings,
        Generator().manual_seed(0),
        lambda number, named: losses.append(named),
    )
    return losses[-1]


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def changed(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    """Return the layers of which a weight or a statistic is another."""
    names = {name for name in before if not torch.equal(before[name], after[name])}
    return {name.rpartition(".")[0] for name in names}


def test_only_what_is_to_learn_changes(data: Data, tiny: TinyData) -> None:
    every = {name.rpartition(".")[0] for name in load_file(tiny.weights)}
    for part, expected in {"last": LAST, "all": every}.items():
        backbone = load_backbone("conv4", weights=tiny.weights)
        before = state(backbone.network)
        of = inputs(data, backbone, part)
        step(data, networks(of), of)
        assert changed(before, state(trained_backbone(backbone, of.backbone).network)) == expected
        assert not changed(before, state(backbone.network))


def test_the_caller_keeps_its_backbone_on_the_cpu(data: Data, backbone: Backbone) -> None:
    before, of = backbone.id, inputs(data, backbone, "all")
    of.backbone.to("meta")
    assert backbone.id == before
    assert not any(weight.requires_grad for weight in backbone.network.parameters())


def test_the_backbone_moves_at_its_own_rate(data: Data, tiny: TinyData) -> None:
    moved = []
    for rate in (1.0, 0.1):
        backbone = load_backbone("conv4", weights=tiny.weights)
        before = state(backbone.network)["layers.11.weight"]
        of = inputs(data, backbone, "last")
        step(data, networks(of), of, backbone_lr_scale=rate, weight_decay=0.0)
        after = state(trained_backbone(backbone, of.backbone).network)["layers.11.weight"]
        moved.append(after - before)
    torch.testing.assert_close(moved[0], 10 * moved[1], rtol=1e-3, atol=1e-6)


def test_frozen_layers_infer_while_the_others_train(backbone: Backbone) -> None:
    tuned = TunedBackbone(backbone, "last").train()
    training = {name for name, layer in tuned.network.named_modules() if layer.training}
    assert training == LAST
    assert not any(layer.training for layer in tuned.eval().modules())
    pixels = torch.zeros(4, 32, 32, 3, dtype=torch.uint8)
    before_last: list[Tensor] = []
    layer = tuned.network.get_submodule("layers.11")
    layer.register_forward_hook(lambda module, given, out: before_last.append(given[0]))
    tuned.train()(pixels)
    assert not before_last[0].requires_grad  # nothing is kept for a backward pass up to here


def test_refreshed_statistics_are_the_targets_where_it_learns_and_nowhere_else(
    data: Data, backbone: Backbone
) -> None:
    before = state(backbone.network)
    of = inputs(data, backbone, "last")
    of.refresh_batchnorm(of.backbone)
    after = state(trained_backbone(backbone, of.backbone).network)
    assert changed(before, after) == {"layers.12"}
    seen: list[Tensor] = []
    layer = of.backbone.get_submodule("network.layers.12")
    layer.register_forward_hook(lambda module, given, out: seen.append(given[0]))
    of.target_features(of.backbone)
    torch.testing.assert_close(
        after["layers.12.running_mean"], torch.cat(seen).mean(dim=(0, 2, 3)), rtol=0.05, atol=0.01
    )
    assert isinstance(layer, nn.BatchNorm2d)
    assert layer.momentum == 0.1


def test_an_inference_pass_gives_the_features_of_the_cache(data: Data, backbone: Backbone) -> None:
    of = inputs(data, backbone, "all")
    torch.testing.assert_close(of.target_features(of.backbone), data.target, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(
        of.source_features(of.backbone), data.source.features, atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_losses_are_float32_whatever_the_passes_compute_in(
    precision: str, data: Data, backbone: Backbone
) -> None:
    of = inputs(data, backbone, "last")
    nets = networks(of, precision)
    computed: list[torch.dtype] = []
    layer = of.backbone.get_submodule("network.layers.11")
    layer.register_forward_hook(lambda module, given, out: computed.append(out.dtype))
    losses = step(data, nets, of, precision=precision)
    assert set(computed) == {torch.float32 if precision == "fp32" else torch.bfloat16}
    pixels = torch.zeros(4, 32, 32, 3, dtype=torch.uint8)
    assert nets.logits(pixels).dtype == nets.features(pixels).dtype == torch.float32
    assert all(value == value for value in losses.values())


def test_a_clipped_step_goes_no_further_than_it_may(data: Data, tiny: TinyData) -> None:
    lengths = []
    for norm in (0.0, 1e-3):
        of = inputs(data, load_backbone("conv4", weights=tiny.weights), "last")
        nets = networks(of)
        before = [weight.detach().clone() for weight in nets.modules.parameters()]
        step(data, nets, of, clip_grad=norm, weight_decay=0.0, backbone_lr_scale=1.0)
        pairs = zip(nets.modules.parameters(), before, strict=True)
        lengths.append(torch.cat([(a - b).flatten() for a, b in pairs]).norm().item())
    assert lengths[1] == pytest.approx(0.01 * 1e-3, rel=0.01)
    assert lengths[0] > 10 * lengths[1]


def test_discovery_sees_what_the_backbone_became(data: Data, backbone: Backbone) -> None:
    settings = TrainConfig(**SHORT, finetune="last", novel="yes", k_max=6)
    of = inputs(data, backbone, "last")
    adapted = adapt(data.source, data.target, settings, images=of)
    assert not torch.allclose(adapted.target, data.target, atol=1e-2)
    tuned = adapted.networks.backbone
    torch.testing.assert_close(adapted.target, of.target_features(tuned))
    torch.testing.assert_close(adapted.source.features, of.source_features(tuned))
    # And what is exported is what was trained.
    nets = adapted.networks
    module = PixelClassifier(trained_backbone(backbone, tuned), nets.head, nets.classifier).eval()
    pixels = [data.target_images.read(row, backbone.preprocessing) for row in range(5)]
    with torch.no_grad():
        probabilities, features = module(torch.from_numpy(np.stack(pixels)))
    logits, expected = infer(adapted.networks, adapted.target[:5])
    torch.testing.assert_close(features, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(probabilities, logits.softmax(dim=1), atol=1e-4, rtol=1e-4)


def test_pretraining_leaves_the_backbone_alone(data: Data, backbone: Backbone) -> None:
    before, of = state(backbone.network), inputs(data, backbone, "all")
    settings = TrainConfig(**{**SHORT, "rounds": 0}, finetune="all", novel="yes", k_max=6)
    adapted = adapt(data.source, data.target, settings, images=of)
    assert not changed(before, state(trained_backbone(backbone, adapted.networks.backbone).network))
    assert adapted.source is data.source
    assert adapted.target is data.target


def run(data: Data, tiny: TinyData, rounds: int, workers: int = 0, **options: Any) -> Adapted:
    fields = {**SHORT, "rounds": rounds, "workers": workers, "round_steps": 12, "ensemble": 1}
    settings = TrainConfig(**fields, finetune="last", novel="yes", k_max=6)
    backbone = load_backbone("conv4", weights=tiny.weights)
    of = inputs(data, backbone, "last", workers=workers)
    return adapt(data.source, data.target, settings, images=of, **options)


def test_a_run_stopped_by_ctrl_c_goes_on_to_the_same_backbone(
    data: Data, tiny: TinyData, tmp_path: Path
) -> None:
    whole = run(data, tiny, 2)
    finished: list[int] = []
    apart: set[bool] = set()

    def interrupt(step: int, losses: dict[str, float]) -> None:
        # A terminal sends it to all of a group, and the step under way needs its images.
        for process in multiprocessing.active_children():
            assert process.pid is not None
            apart.add(os.getpgid(process.pid) != os.getpgrp())
        if (finished, step) == ([0, 1], 10):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(
            data,
            tiny,
            2,
            workers=1,
            checkpoints=tmp_path,
            callbacks=Callbacks(
                on_step=interrupt, on_stage=lambda state: finished.append(state.stage)
            ),
        )
    assert apart == {True}
    resumed: list[tuple[int, int]] = []
    callbacks = Callbacks(on_resume=lambda *at: resumed.append(at))
    again = run(data, tiny, 2, checkpoints=tmp_path, callbacks=callbacks)
    assert resumed == [(1, 10)]
    one, two = state(whole.networks.modules), state(again.networks.modules)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert torch.equal(whole.target, again.target)
    assert torch.equal(whole.source.features, again.source.features)


def test_losses_that_are_no_numbers_lead_back_to_the_last_good_backbone(
    data: Data, tiny: TinyData, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = run(data, tiny, 1)
    calls = itertools.count(1)
    begun: list[dict[str, Tensor]] = []

    def confusion(*arguments: Any, **options: Any) -> Tensor:
        loss: Tensor = class_confusion(*arguments, **options)
        return loss * torch.nan if next(calls) >= 20 + 12 + 3 else loss  # from step 3 of round 2

    def watched(networks: Networks, *rest: Any, **options: Any) -> tuple[int, ...]:
        begun.append(state(networks.backbone))
        return retrain(networks, *rest, **options)

    monkeypatch.setattr("scda.adapt.training.loop.class_confusion", confusion)
    monkeypatch.setattr("scda.adapt.training.algorithm.retrain", watched)
    adapted = run(data, tiny, 2)
    assert adapted.failure.startswith("round 2: training diverged")
    expected = state(good.networks.backbone)
    assert changed(begun[0], expected)
    assert len(begun) == 1 + 4  # round 1; round 2 and three returns
    for weights in (*begun[1:], state(adapted.networks.backbone)):
        assert not changed(weights, expected)
    assert torch.equal(adapted.target, good.target)


def half(data: Data, of: ImageInputs, nets: Networks, stop_at: int, progress: Progress) -> None:
    settings = TrainConfig(round_steps=4, batch_size=8, lr=0.01, precision="fp16")
    pseudo, generator = PseudoLabels(torch.arange(5), torch.arange(5)), Generator().manual_seed(0)

    def on_step(step: int, losses: dict[str, float]) -> bool:
        return step == stop_at

    retrain(nets, of, data.source.labels, pseudo, settings, generator, on_step, progress)


def test_a_round_in_fp16_goes_on_with_the_scale_of_its_losses(data: Data, tiny: TinyData) -> None:
    one = inputs(data, load_backbone("conv4", weights=tiny.weights), "last")
    two = inputs(data, load_backbone("conv4", weights=tiny.weights), "last")
    whole, stopped = networks(one, "fp16"), networks(two, "fp16")
    half(data, one, whole, 0, Progress())
    with pytest.raises(Stopped) as told:
        half(data, two, stopped, 2, Progress())
    progress = told.value.progress
    assert progress.scaler is not None
    assert progress.scaler["_growth_tracker"] + (progress.scaler["scale"] < 2**16) > 0  # it moved
    half(data, two, stopped, 0, progress)
    first, second = state(whole.modules), state(stopped.modules)
    assert all(torch.equal(first[name], second[name]) for name in first)


class DeathError(Exception):
    pass


@pytest.mark.parametrize("signalled", [True, False])
def test_a_run_that_ended_inside_a_round_goes_on_to_the_same_bundle(
    signalled: bool, tuned_run: Path, tiny: TinyData, tmp_path: Path
) -> None:
    whole = RunReporter.on_step

    def end(self: RunReporter, step: int, losses: dict[str, float]) -> None:
        whole(self, step, losses)
        if (self._stage, step) == (2, 3) and signalled:
            os.kill(os.getpid(), signal.SIGTERM)
        elif (self._stage, step) == (2, 3):
            raise DeathError  # nothing is written any more, as by SIGKILL

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunReporter, "on_step", end)
        with pytest.raises(Terminated if signalled else DeathError):
            tuned(tiny, tmp_path / "run")
    left = {path.name for path in (tmp_path / "run/checkpoints").iterdir()}
    assert left == {"round-0000.pt", "round-0001.pt", *(["paused.pt"] if signalled else [])}
    tuned(tiny, tmp_path / "run", resume=True)
    ids = {read_manifest(run / "bundle").id for run in (tuned_run, tmp_path / "run")}
    assert len(ids) == 1


@pytest.mark.slow
def test_a_run_that_learns_ends_in_a_bundle_that_holds_what_was_learnt(
    tiny: TinyData, data: Data, backbone: Backbone, tmp_path: Path
) -> None:
    job = tiny.job(tmp_path / "run", **SHORT, finetune="all", precision="bf16", clip_grad=1.0)
    with Reporter(quiet=True) as reporter:
        train(job, reporter)
    pixels = [data.target_images.read(row, backbone.preprocessing) for row in range(16)]
    session = Session(tmp_path / "run/bundle/model.onnx", provider="cpu", threads=1)
    _, exported = session.run(np.stack(pixels))
    head, tuned = FeatureHead(128, (512, 256, 256)), TunedBackbone(backbone, "all")
    form = Networks(head, nn.Identity(), tuned)
    saved = checkpoint.load(tmp_path / "run/checkpoints", form)
    assert saved is not None
    trained = saved.networks.backbone
    assert isinstance(trained, TunedBackbone)
    before, after = (of.features([torch.from_numpy(np.stack(pixels))]) for of in (tuned, trained))
    for features, same in ((before, False), (after, True)):
        of_head = infer(saved.networks, features)[1].numpy()
        assert np.allclose(exported, of_head, atol=1e-3) == same
