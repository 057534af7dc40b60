import dataclasses
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator, nn

from scda.adapt.discovery.counting.estimate import Curve
from scda.adapt.discovery.discover import Discovery
from scda.adapt.discovery.findings import Finding, Status
from scda.adapt.discovery.selection import Candidates, empty_ids
from scda.adapt.training.checkpoint import LAYOUT, PAUSED, load, load_paused, save
from scda.adapt.training.loop import Progress
from scda.adapt.training.networks import Networks
from scda.adapt.training.state import RunState
from scda.models.errors import GateError
from scda.models.networks.network import FeatureHead

K_UNSURE = Finding(Status.K_UNSURE, "a count", "a look")
CURVE = Curve([3, 4], [2.0, 1.0], [0.5, 1.0], 4, [4], 3)


def state(stage: int, discovery: Discovery | None = None) -> RunState:
    torch.manual_seed(stage)
    networks = Networks(FeatureHead(5, (4, 3)), nn.Linear(3, 2 + stage))
    generator = Generator().manual_seed(3).get_state()
    return RunState(stage, networks, generator, discovery, unknown_share=0.25, findings=(K_UNSURE,))


def found(*findings: Finding) -> Discovery:
    candidates = Candidates(np.array([4, 6]), np.array([1, 0]), np.array([0, 2, 3]))
    return Discovery(
        2,
        candidates,
        np.array([1, 0, 1]),
        CURVE,
        findings,
        verdict=Finding(Status.NOTHING_NEW, "as seen", "inspect"),
        votes={"scda": 5, "graph": 3},
        k_path=(1, 2),
    )


def fresh() -> Networks:
    torch.manual_seed(99)
    return Networks(FeatureHead(5, (4, 3)), nn.Identity())


def same_weights(one: nn.Module, two: nn.Module) -> bool:
    pairs = zip(one.state_dict().items(), two.state_dict().items(), strict=True)
    return all(a[0] == b[0] and torch.equal(a[1], b[1]) for a, b in pairs)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_without_a_checkpoint_nothing_is_loaded(tmp_path: Path) -> None:
    assert load(tmp_path, fresh()) is None
    assert load(tmp_path / "gone", fresh()) is None


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    saved = state(1, found(K_UNSURE))
    save(tmp_path, saved)
    like = fresh()
    loaded = load(tmp_path, like)
    assert loaded is not None
    assert loaded.stage == 1
    assert not same_weights(like.head, saved.networks.head)  # only their architecture counts
    assert same_weights(loaded.networks.head, saved.networks.head)
    assert same_weights(loaded.networks.classifier, saved.networks.classifier)
    assert (loaded.unknown_share, loaded.findings) == (0.25, (K_UNSURE,))
    assert loaded.discovery is not None
    assert loaded.discovery.curve == CURVE
    assert (loaded.discovery.k_star, loaded.discovery.findings) == (2, (K_UNSURE,))
    before = found()
    for name in ("verdict", "votes", "k_path"):
        assert getattr(loaded.discovery, name) == getattr(before, name)
    for actual, expected in (
        (loaded.discovery.candidates.known, before.candidates.known),
        (loaded.discovery.candidates.known_labels, before.candidates.known_labels),
        (loaded.discovery.candidates.implicit, before.candidates.implicit),
        (loaded.discovery.implicit_labels, before.implicit_labels),
    ):
        np.testing.assert_array_equal(actual, expected)
        assert actual.dtype == np.int64


def test_a_backbone_that_learnt_comes_back(tmp_path: Path) -> None:
    torch.manual_seed(0)
    learnt, like = nn.BatchNorm2d(3), replace(fresh(), backbone=nn.BatchNorm2d(3), precision="bf16")
    learnt(torch.randn(2, 3, 4, 4))
    networks = Networks(fresh().head, nn.Linear(3, 2), learnt)
    save(tmp_path, replace(state(1), networks=networks))
    save(tmp_path, replace(paused(2), networks=networks))
    for loaded in (load(tmp_path, like), load_paused(tmp_path, like, 2)):
        assert loaded is not None
        assert same_weights(loaded.networks.backbone, learnt)
        assert not same_weights(like.backbone, learnt)
        assert loaded.networks.precision == "bf16"


def test_a_discovery_of_nothing_comes_back(tmp_path: Path) -> None:
    nothing = Candidates(np.array([4]), np.array([1]), empty_ids())
    save(tmp_path, state(1, Discovery(0, nothing, empty_ids(), None)))
    loaded = load(tmp_path, fresh())
    assert loaded is not None
    found = loaded.discovery
    assert found is not None
    assert (found.k_star, found.verdict, found.votes, found.k_path) == (0, None, {}, ())
    for rows in (found.candidates.implicit, found.implicit_labels):
        assert rows.shape == (0,)
        assert rows.dtype == np.int64


def test_a_state_before_any_discovery_comes_back_without_one(tmp_path: Path) -> None:
    save(tmp_path, state(0))
    loaded = load(tmp_path, fresh())
    assert loaded is not None
    assert (loaded.stage, loaded.discovery) == (0, None)


def test_random_generators_are_restored(tmp_path: Path) -> None:
    torch.randn(5)
    saved = state(0)
    save(tmp_path, saved)
    expected = torch.randn(4)
    loaded = load(tmp_path, fresh())
    assert loaded is not None
    assert torch.equal(torch.randn(4), expected)
    assert torch.equal(loaded.generator, saved.generator)


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    for number in range(4):
        save(folder, state(number))
    assert names(folder) == ["round-0002.pt", "round-0003.pt"]
    loaded = load(folder, fresh())
    assert loaded is not None
    assert loaded.stage == 3


def test_the_last_two_are_the_latest_whatever_their_number_of_digits(tmp_path: Path) -> None:
    for number in (9999, 10_000, 10_001):
        save(tmp_path, state(number))
    loaded = load(tmp_path, fresh())
    assert loaded is not None
    assert loaded.stage == 10_001
    assert names(tmp_path) == ["round-10000.pt", "round-10001.pt"]


def test_an_incomplete_file_is_removed_with_the_next_checkpoint(tmp_path: Path) -> None:
    (tmp_path / ".round-0000.pt.x8f2").write_bytes(b"half")
    save(tmp_path, state(1))
    assert names(tmp_path) == ["round-0001.pt"]


def paused(stage: int) -> RunState:
    start = state(stage, found(K_UNSURE))
    optimizer = torch.optim.SGD(start.networks.classifier.parameters(), lr=0.1, momentum=0.9)
    start.networks.classifier(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    return replace(start, progress=Progress(7, (2, 5), optimizer.state_dict()), restarts=2)


def test_a_paused_stage_comes_back_with_its_optimiser_and_its_random_generators(
    tmp_path: Path,
) -> None:
    saved = paused(2)
    save(tmp_path, saved)
    expected = torch.randn(4)
    torch.manual_seed(99)
    like = fresh()
    loaded = load_paused(tmp_path, like, 2)
    assert loaded is not None
    assert torch.equal(torch.randn(4), expected)
    assert not same_weights(like.head, saved.networks.head)
    assert same_weights(loaded.networks.head, saved.networks.head)
    assert same_weights(loaded.networks.classifier, saved.networks.classifier)
    assert loaded.progress is not None
    assert saved.progress is not None
    assert (loaded.progress.step, loaded.progress.skipped, loaded.restarts) == (7, (2, 5), 2)
    assert torch.equal(loaded.generator, saved.generator)
    assert loaded.discovery is not None
    assert loaded.discovery.k_star == 2
    one, two = loaded.progress.optimizer, saved.progress.optimizer
    assert one is not None
    assert two is not None
    assert one["param_groups"] == two["param_groups"]
    assert torch.equal(one["state"][0]["momentum_buffer"], two["state"][0]["momentum_buffer"])


def test_a_paused_stage_other_than_the_next_is_ignored(tmp_path: Path) -> None:
    save(tmp_path, paused(2))
    like = fresh()
    torch.manual_seed(5)
    expected = torch.randn(2)
    torch.manual_seed(5)
    assert load_paused(tmp_path, like, 3) is None
    assert load_paused(tmp_path / "gone", like, 2) is None
    assert torch.equal(torch.randn(2), expected)


def test_a_damaged_paused_stage_is_ignored(tmp_path: Path) -> None:
    save(tmp_path, paused(2))
    data = (tmp_path / PAUSED).read_bytes()
    (tmp_path / PAUSED).write_bytes(data[: len(data) // 2])
    assert load_paused(tmp_path, fresh(), 2) is None


def test_a_finished_stage_removes_its_paused_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, paused(2))
    save(tmp_path, state(2))
    assert names(tmp_path) == ["round-0002.pt"]


def test_a_checkpoint_is_plain_data_and_no_code(tmp_path: Path) -> None:
    save(tmp_path, state(1, found()))
    fields = torch.load(tmp_path / "round-0001.pt", weights_only=True)
    of_state = {field.name for field in dataclasses.fields(RunState)}
    assert set(fields) == of_state | {"layout", "random"}


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (tmp_path / "ran",)  # type: ignore[return-value]  # a trap

    torch.save({"round": Trap()}, tmp_path / "round-0000.pt")
    with pytest.raises(GateError, match="no checkpoint can be read"):
        load(tmp_path, fresh())
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "bit", "fields", "shape"])
def test_a_damaged_newest_falls_back_to_the_one_before(tmp_path: Path, damage: str) -> None:
    older, newer = state(1), state(2)
    save(tmp_path, older)
    save(tmp_path, newer)
    path = tmp_path / "round-0002.pt"
    data = bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "text":
        path.write_bytes(b"not a checkpoint")
    elif damage == "bit":  # inside a weight: torch itself would load it
        weight = newer.networks.classifier.state_dict()["weight"].numpy().tobytes()
        data[data.index(weight)] ^= 1
        path.write_bytes(data)
    elif damage == "fields":
        torch.save({"layout": LAYOUT, "stage": 2}, path)
    else:
        wider = replace(state(2), networks=Networks(FeatureHead(6, (4, 3)), nn.Linear(3, 2)))
        save(tmp_path, wider)
    loaded = load(tmp_path, fresh())
    assert loaded is not None
    assert loaded.stage == 1
    assert same_weights(loaded.networks.head, older.networks.head)


def test_unreadable_checkpoints_are_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "round-0001.pt").write_bytes(b"x")
    with pytest.raises(
        GateError, match="no checkpoint can be read; rerun with --overwrite to start again"
    ):
        load(tmp_path, fresh())


def test_no_damaged_byte_ends_in_another_error(tmp_path: Path) -> None:
    save(tmp_path, state(0, found(K_UNSURE)))
    path = tmp_path / "round-0000.pt"
    data, rng = path.read_bytes(), np.random.default_rng(0)
    for position in rng.integers(0, len(data), 60):
        broken = bytearray(data)
        broken[position] ^= int(rng.integers(1, 256))
        path.write_bytes(broken)
        try:
            loaded = load(tmp_path, fresh())
        except GateError:
            continue
        assert loaded is not None  # a byte that is never read
        assert same_weights(loaded.networks.classifier, state(0).networks.classifier)


@pytest.mark.parametrize("name", ["round-0000.pt", PAUSED])
def test_a_checkpoint_of_another_layout_is_refused_with_what_to_do(
    tmp_path: Path, name: str
) -> None:
    torch.save({"round": 0, "head": {}, "classifier": {}}, tmp_path / name)
    with pytest.raises(GateError, match=r"incompatible layout, .* rerun with --overwrite"):
        assert load(tmp_path, fresh()) or load_paused(tmp_path, fresh(), 0)
