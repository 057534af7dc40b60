"""Two processes, as torchrun starts them: the collectives, and whole runs that they share."""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scda.adapt.cli.main import main
from scda.adapt.data.job import Job
from scda.adapt.pipeline.run import train
from scda.adapt.runs.folder import RunFolder
from scda.adapt.runs.tables import read_discovery
from scda.adapt.runtime import distributed
from scda.adapt.runtime.progress import Reporter
from scda.adapt.runtime.signals import DeferredSignals, Terminated
from scda.adapt.training.checkpoint import PAUSED
from scda.adapt.training.finetune import TunedBackbone
from scda.adapt.training.losses import class_confusion, class_correlation
from scda.models.bundle import read_manifest
from scda.models.cpus import local_world_size
from scda.models.errors import DataError, GateError, UsageError
from scda.models.networks.backbones import Backbone
from scda.models.preprocess import Preprocessing
from tests import exports
from tests.conftest import Scda, TinyData
from tests.launched import torchrun, words_of
from tests.serving import free_port

LONGEST_SECONDS = 240


@pytest.fixture(autouse=True)
def _found_by_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a process of its own import this module, however pytest was started."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3]))


def in_one(index: int, port: int, check: Callable[[], Any], results: Any) -> None:
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    numbers = {"RANK": index, "LOCAL_RANK": index, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    os.environ.update(address, OMP_NUM_THREADS="1", **{n: str(v) for n, v in numbers.items()})
    distributed.init(torch.device("cpu"))
    results.put((index, check()))
    distributed.destroy()


def in_two(check: Callable[[], Any], answers: int = 2) -> list[Any]:
    """Return what a function returns in rank 0 of two processes, and in rank 1."""
    context = multiprocessing.get_context("forkserver")  # its imports are done once
    context.set_forkserver_preload(["scda.adapt.pipeline.run"])
    results = context.Queue()
    port = free_port()
    workers = [
        context.Process(target=in_one, args=(index, port, check, results)) for index in range(2)
    ]
    for worker in workers:
        worker.start()
    try:
        got = [results.get(timeout=LONGEST_SECONDS) for _ in range(answers)]
        return [answer for _, answer in sorted(got, key=itemgetter(0))]
    finally:
        for worker in workers:
            worker.join(60)
            worker.kill()


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh())


def classifier() -> nn.Module:
    torch.manual_seed(1)
    return nn.Linear(8, 3)


def gradients(rows: int) -> list[Tensor]:
    """One step as in training, with a loss that needs the whole batch."""
    below, above = network(), classifier()
    batch = torch.arange(4.0 * rows).view(rows, 4).sin()
    features = distributed.all_gather_rows(below(batch[distributed.shard(range(rows))]))
    correlation = class_correlation(above(features), temperature=1.0)
    class_confusion(correlation, num_classes=3, rows="all").backward()
    both = nn.ModuleList([below, above])
    distributed.average_gradients(both)
    return [weight.grad.clone() for weight in both.parameters() if weight.grad is not None]


def everything() -> dict[str, Any]:
    """All checks of two processes at once: starting them takes longer than the checks."""
    made: list[int] = []

    def make() -> str:
        made.append(distributed.rank())
        return f"by {distributed.rank()}"

    own = distributed.rank()
    norm = nn.BatchNorm1d(2)
    frozen = nn.BatchNorm1d(2).eval()
    both = nn.ModuleList([norm, frozen])
    for layer in (norm, frozen):
        nn.init.constant_(layer.state_dict()["running_mean"], own)
    distributed.average_statistics(both, weight=1 + 2 * own)
    means = [
        layer.running_mean[0].item() for layer in (norm, frozen) if layer.running_mean is not None
    ]
    linear = nn.Linear(2, 2)
    nn.init.constant_(linear.weight, own)
    distributed.broadcast_weights(linear)
    return {
        "world_size": distributed.world_size(),
        "is_main": distributed.is_main(),
        "cpus": distributed.cpus(),
        "shard": distributed.shard(range(5)),
        "too_few": refused(lambda: distributed.shard(range(1))),
        "broadcast": (distributed.broadcast_from_main(make), made),
        "error": failed_broadcast(),
        "objects": distributed.all_gather_object({"own": own}),
        "max": distributed.all_reduce_max(7 * own),
        "rows": distributed.all_gather_rows(torch.full((1 + own, 2), float(own)))[:, 0].tolist(),
        "no_rows": distributed.all_gather_rows(torch.ones(0, 2)).shape,
        "refreshed": refreshed(),
        "rows_of_one": distributed.all_gather_rows(torch.full((2 * own, 2), 1.0)).shape,
        "means": means,
        "weights": linear.weight.sum().item(),
        "gradients": [gradient.tolist() for gradient in gradients(7)],
        "received": receive(),
    }


def failed_broadcast() -> str:
    def fail() -> str:
        raise DataError(f"found by {distributed.rank()}")

    with pytest.raises(DataError) as raised:
        distributed.broadcast_from_main(fail)
    return str(raised.value)


def refreshed() -> list[float]:
    """Batch statistics of five batches, of which the second process has one more."""
    summed = nn.Conv2d(3, 2, 1, bias=False)
    nn.init.ones_(summed.weight)
    layers = nn.Sequential(summed, nn.BatchNorm2d(2), nn.Flatten())
    preprocessing = Preprocessing(resize_px=2, crop_px=2, mean=(0, 0, 0), std=(1, 1, 1))
    backbone = TunedBackbone(Backbone("tiny", layers, 8, preprocessing, frozenset()), "all")
    backbone.train()  # as training leaves it
    batches = [torch.full((2, 2, 2, 3), value, dtype=torch.uint8) for value in range(5)]
    backbone.refresh_batchnorm(distributed.shard(batches))
    means: list[float] = backbone.state_dict()["network.1.running_mean"].tolist()
    return means


def refused(work: Callable[[], object]) -> str:
    with pytest.raises(UsageError) as raised:
        work()
    return str(raised.value)


def receive() -> list[Any]:
    """Send a signal to the second process alone."""
    received, ended = [], ""
    try:
        with DeferredSignals(distributed.all_reduce_max) as signals:
            received.append(signals.received())
            if distributed.rank():
                os.kill(os.getpid(), signal.SIGTERM)
            received.append(signals.received())
    except Terminated:
        ended = "terminated"
    return [*received, ended]


@pytest.fixture(scope="module")
def two() -> list[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[3]))
        return in_two(everything)


def test_rank_0_is_the_main_process(two: list[dict[str, Any]]) -> None:
    assert [one["world_size"] for one in two] == [2, 2]
    assert [one["is_main"] for one in two] == [True, False]
    assert two[0]["cpus"] * 2 <= max(2, os.cpu_count() or 1)


def test_shards_are_all_rows_once(two: list[dict[str, Any]]) -> None:
    assert [*two[0]["shard"], *two[1]["shard"]] == list(range(5))
    assert "2 processes share 1 images" in two[0]["too_few"]


def test_the_result_of_rank_0_is_broadcast(two: list[dict[str, Any]]) -> None:
    assert [one["broadcast"] for one in two] == [("by 0", [0]), ("by 0", [])]
    assert [one["weights"] for one in two] == [0, 0]


def test_an_error_of_rank_0_is_raised_everywhere(two: list[dict[str, Any]]) -> None:
    assert [one["error"] for one in two] == ["found by 0"] * 2


def test_objects_and_rows_are_gathered_by_rank(two: list[dict[str, Any]]) -> None:
    for one in two:
        assert one["objects"] == [{"own": 0}, {"own": 1}]
        assert one["max"] == 7
        assert one["rows"] == [0, 1, 1]
        assert one["rows_of_one"] == (2, 2)
        assert one["no_rows"] == (0, 2)


def test_statistics_are_averaged_by_weight_where_they_are_learnt(two: list[dict[str, Any]]) -> None:
    assert [one["means"] for one in two] == [[0.75, 0], [0.75, 1]]


def test_statistics_of_the_target_are_those_of_all_batches(two: list[dict[str, Any]]) -> None:
    for one in two:
        assert one["refreshed"] == pytest.approx([6.0, 6.0], rel=1e-4)


def test_a_step_of_two_is_the_step_of_one(two: list[dict[str, Any]]) -> None:
    alone = gradients(7)
    assert all(gradient.abs().max() > 1e-4 for gradient in alone)
    for one in two:
        for shared, whole in zip(one["gradients"], alone, strict=True):
            torch.testing.assert_close(torch.tensor(shared), whole, rtol=1e-4, atol=1e-7)


def test_a_signal_to_one_process_stops_all_at_the_same_step(two: list[dict[str, Any]]) -> None:
    assert [one["received"] for one in two] == [[False, True, "terminated"]] * 2


def test_alone_nothing_is_shared() -> None:
    rows = torch.ones(3, 2)
    assert distributed.all_gather_rows(rows) is rows
    assert distributed.shard([]) == []
    assert (distributed.world_size(), distributed.rank(), local_world_size()) == (
        1,
        0,
        1,
    )
    distributed.destroy()


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UsageError, match="2 processes on this machine, but torch finds 1 GPUs"):
        distributed.init(torch.device("cuda"))


def lose_the_other() -> str:
    if distributed.rank():
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(GateError) as raised:
        distributed.all_reduce_max(1)
    return str(raised.value)


def test_the_end_of_another_process_is_reported_in_one_line() -> None:
    (line,) = in_two(lose_the_other, answers=1)
    assert re.fullmatch(
        r"lost the other processes of this run: .+; rerun with --resume to continue", line
    )


# Whole runs, as a user starts them.

TUNED = {"finetune": "last", "pretrain_steps": 30, "round_steps": 120, "rounds": 1}


def command(words: Sequence[str], folder: Path, kept_exports: Path) -> int:
    """Run the command line in this process; what it writes is kept in files of the folder."""
    torch.onnx.export = exports.remembered(exports.in_earnest, kept_exports)
    for stream, name in ((1, "said"), (2, "told")):
        file = folder / f"{name}-{distributed.rank()}"
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), stream)
    sys.argv = ["scda-adapt", *words]
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_head_on_features_comes_out_the_same(
    tiny: TinyData, tiny_run: Path, tmp_path: Path, kept_exports: Path
) -> None:
    # Both processes compute features; the cache of other tests is not used.
    words = [*words_of(tiny, tmp_path / "two"), "--cache", str(tmp_path / "cache")]
    codes = in_two(partial(command, words, tmp_path, kept_exports))
    said, told = (
        "".join((tmp_path / f"{name}-{rank}").read_text() for rank in range(2))
        for name in ("said", "told")
    )
    assert codes == [0, 0], told
    assert read_manifest(tmp_path / "two" / "bundle").id == read_manifest(tiny_run / "bundle").id
    assert said.count("bundle: ") == 1
    assert told.count("source: 60 images of 3 classes") == 1


@pytest.mark.slow
def test_a_backbone_is_trained_by_two_processes_stopped_and_resumed(
    scda: Scda, tiny: TinyData, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    trained(tiny.job(one, workers=1, **TUNED))

    stopped = torchrun(words_of(tiny, two, **TUNED))
    until(lambda: '"during": 1' in metrics_of(two), stopped)
    stopped.send_signal(signal.SIGTERM)
    told = stopped.communicate(timeout=LONGEST_SECONDS)[1]
    assert "terminated; rerun with --resume to continue" in told
    assert stopped.returncode != 0
    assert (two / "checkpoints" / PAUSED).exists()

    in_two(partial(trained, tiny.job(two, workers=1, resume=True, **TUNED)))
    assert scda("inspect", two / "bundle", "--verify").returncode == 0
    rows = [read_discovery(out / "discovery.csv") for out in (one, two)]
    assert [row.path for row in rows[1]] == [row.path for row in rows[0]]
    assert len({row.path for row in rows[1]}) == 100
    k_star = [RunFolder(out).records()[-1]["k_star"] for out in (one, two)]
    assert k_star[0] == k_star[1]
    alike = [a.cluster == b.cluster for a, b in zip(*rows, strict=True)]
    assert sum(alike) >= 90


def trained(job: Job) -> None:
    with Reporter(quiet=True) as reporter:
        train(job, reporter)


def metrics_of(run: Path) -> str:
    path = RunFolder(run).metrics
    return path.read_text() if path.exists() else ""


def until(happened: Callable[[], bool], run: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while not happened():
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
