from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator, nn

from scda.adapt.discovery.discover import Discovery
from scda.adapt.discovery.estimate import Curve
from scda.adapt.discovery.findings import Finding, Status
from scda.adapt.discovery.selection import Candidates, empty_ids
from scda.adapt.training.checkpoint import PAUSED, Pause, State, load, load_pause, save, save_pause
from scda.adapt.training.loop import Progress
from scda.adapt.training.networks import Networks
from scda.models.errors import GateError
from scda.models.network import FeatureHead

K_UNSURE = Finding(Status.K_UNSURE, "a count", "a look")
CURVE = Curve([3, 4], [2.0, 1.0], [0.5, 1.0], 4, [4], 3)


def state(round_number: int, discovery: Discovery | None = None) -> State:
    torch.manual_seed(round_number)
    head = FeatureHead(5, (4, 3))
    return State(
        round_number, Networks(head, nn.Linear(3, 2 + round_number)), discovery, 0.25, (K_UNSURE,)
    )


def found(*findings: Finding) -> Discovery:
    candidates = Candidates(np.array([4, 6]), np.array([1, 0]), np.array([0, 2, 3]))
    return Discovery(
        2,
        candidates,
        np.array([1, 0, 1]),
        CURVE,
        findings,
        verdict=Finding(Status.FEW_NEW, "as seen", "inspect"),
        suspects=np.array([2, 5, 9]),
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


def test_without_a_checkpoint_there_is_nothing_to_load(tmp_path: Path) -> None:
    assert load(tmp_path, fresh(), Generator()) is None
    assert load(tmp_path / "gone", fresh(), Generator()) is None


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    saved = state(1, found(K_UNSURE))
    save(tmp_path, saved, Generator())
    form = fresh()
    loaded = load(tmp_path, form, Generator())
    assert loaded is not None
    assert loaded.round == 1
    assert not same_weights(form.head, saved.networks.head)  # only its form was asked for
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
        (loaded.discovery.suspects, before.suspects),
    ):
        np.testing.assert_array_equal(actual, expected)
        assert actual.dtype == np.int64


def test_a_backbone_that_learnt_comes_back(tmp_path: Path) -> None:
    torch.manual_seed(0)
    learnt, form = nn.BatchNorm2d(3), replace(fresh(), backbone=nn.BatchNorm2d(3), precision="bf16")
    learnt(torch.randn(2, 3, 4, 4))
    networks = Networks(fresh().head, nn.Linear(3, 2), learnt)
    save(tmp_path, State(1, networks, None, 0.0), Generator())
    save_pause(tmp_path, replace(paused(2), networks=networks))
    for loaded in (load(tmp_path, form, Generator()), load_pause(tmp_path, form, 2)):
        assert loaded is not None
        assert same_weights(loaded.networks.backbone, learnt)
        assert not same_weights(form.backbone, learnt)
        assert loaded.networks.precision == "bf16"


def test_a_discovery_of_nothing_comes_back(tmp_path: Path) -> None:
    nothing = Candidates(np.array([4]), np.array([1]), empty_ids())
    save(tmp_path, state(1, Discovery(0, nothing, empty_ids(), None)), Generator())
    loaded = load(tmp_path, fresh(), Generator())
    assert loaded is not None
    found = loaded.discovery
    assert found is not None
    assert (found.k_star, found.verdict, found.votes, found.k_path) == (0, None, {}, ())
    for rows in (found.candidates.implicit, found.implicit_labels, found.suspects):
        assert rows.shape == (0,)
        assert rows.dtype == np.int64


def test_a_state_before_any_discovery_comes_back_without_one(tmp_path: Path) -> None:
    save(tmp_path, state(0), Generator())
    loaded = load(tmp_path, fresh(), Generator())
    assert loaded is not None
    assert (loaded.round, loaded.discovery) == (0, None)


def test_both_random_generators_go_on_where_they_were(tmp_path: Path) -> None:
    saved, generator = state(0), Generator().manual_seed(7)
    torch.randn(3, generator=generator)
    torch.randn(5)
    save(tmp_path, saved, generator)
    expected = (torch.randn(4, generator=generator), torch.randn(4))
    again = Generator()
    load(tmp_path, fresh(), again)
    assert torch.equal(torch.randn(4, generator=again), expected[0])
    assert torch.equal(torch.randn(4), expected[1])


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    for number in range(4):
        save(folder, state(number), Generator())
    assert names(folder) == ["round-0002.pt", "round-0003.pt"]
    loaded = load(folder, fresh(), Generator())
    assert loaded is not None
    assert loaded.round == 3


def test_the_last_two_are_the_latest_whatever_their_number_of_digits(tmp_path: Path) -> None:
    for number in (9999, 10_000, 10_001):
        save(tmp_path, state(number), Generator())
    loaded = load(tmp_path, fresh(), Generator())
    assert loaded is not None
    assert loaded.round == 10_001
    assert names(tmp_path) == ["round-10000.pt", "round-10001.pt"]


def test_what_a_kill_left_half_written_goes_with_the_next(tmp_path: Path) -> None:
    (tmp_path / ".round-0000.pt.x8f2").write_bytes(b"half")
    save(tmp_path, state(1), Generator())
    assert names(tmp_path) == ["round-0001.pt"]


def paused(round_number: int) -> Pause:
    of = state(round_number)
    optimizer = torch.optim.SGD(of.networks.classifier.parameters(), lr=0.1, momentum=0.9)
    of.networks.classifier(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    progress = Progress(7, (2, 5), optimizer.state_dict())
    begun = Generator().manual_seed(3).get_state()
    return Pause(round_number, of.networks, found(K_UNSURE), progress, 2, begun)


def test_a_pause_comes_back_with_its_optimiser_and_its_random_generators(tmp_path: Path) -> None:
    saved = paused(2)
    save_pause(tmp_path, saved)
    expected = torch.randn(4)
    torch.manual_seed(99)
    form = fresh()
    loaded = load_pause(tmp_path, form, 2)
    assert loaded is not None
    assert torch.equal(torch.randn(4), expected)
    assert not same_weights(form.head, saved.networks.head)
    assert same_weights(loaded.networks.head, saved.networks.head)
    assert same_weights(loaded.networks.classifier, saved.networks.classifier)
    assert (loaded.progress.step, loaded.progress.skipped, loaded.returns) == (7, (2, 5), 2)
    assert torch.equal(loaded.generator, saved.generator)
    assert loaded.discovery is not None
    assert loaded.discovery.k_star == 2
    one, two = loaded.progress.optimizer, saved.progress.optimizer
    assert one is not None
    assert two is not None
    assert one["param_groups"] == two["param_groups"]
    assert torch.equal(one["state"][0]["momentum_buffer"], two["state"][0]["momentum_buffer"])


def test_a_pause_of_another_stage_is_none(tmp_path: Path) -> None:
    save_pause(tmp_path, paused(2))
    form = fresh()
    torch.manual_seed(5)
    expected = torch.randn(2)
    torch.manual_seed(5)
    assert load_pause(tmp_path, form, 3) is None
    assert load_pause(tmp_path / "gone", form, 2) is None
    assert torch.equal(torch.randn(2), expected)


def test_a_damaged_pause_is_none(tmp_path: Path) -> None:
    save_pause(tmp_path, paused(2))
    data = (tmp_path / PAUSED).read_bytes()
    (tmp_path / PAUSED).write_bytes(data[: len(data) // 2])
    assert load_pause(tmp_path, fresh(), 2) is None


def test_a_finished_stage_takes_its_pause_away(tmp_path: Path) -> None:
    save_pause(tmp_path, paused(2))
    save(tmp_path, state(2), Generator())
    assert names(tmp_path) == ["round-0002.pt"]


def test_a_checkpoint_is_plain_data_and_no_code(tmp_path: Path) -> None:
    save(tmp_path, state(1, found()), Generator())
    fields = torch.load(tmp_path / "round-0001.pt", weights_only=True)
    of_model = {"round", "head", "classifier", "backbone", "discovery"}
    assert set(fields) == of_model | {"unknown_share", "findings", "generator", "random"}


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (tmp_path / "ran",)  # type: ignore[return-value]

    torch.save({"round": Trap()}, tmp_path / "round-0000.pt")
    with pytest.raises(GateError, match="no checkpoint can be read"):
        load(tmp_path, fresh(), Generator())
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "bit", "fields", "shape"])
def test_a_damaged_newest_falls_back_to_the_one_before(tmp_path: Path, damage: str) -> None:
    older, newer = state(1), state(2)
    save(tmp_path, older, Generator())
    save(tmp_path, newer, Generator())
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
        torch.save({"round": 2}, path)
    else:
        wider = State(2, Networks(FeatureHead(6, (4, 3)), nn.Linear(3, 2)), None, 0.0)
        save(tmp_path, wider, Generator())
    loaded = load(tmp_path, fresh(), Generator())
    assert loaded is not None
    assert loaded.round == 1
    assert same_weights(loaded.networks.head, older.networks.head)


def test_when_none_can_be_read_it_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "round-0001.pt").write_bytes(b"x")
    with pytest.raises(GateError, match="no checkpoint can be read; start again with --overwrite"):
        load(tmp_path, fresh(), Generator())


def test_no_damaged_byte_ends_in_another_error(tmp_path: Path) -> None:
    save(tmp_path, state(0, found(K_UNSURE)), Generator())
    path = tmp_path / "round-0000.pt"
    data, rng = path.read_bytes(), np.random.default_rng(0)
    for position in rng.integers(0, len(data), 60):
        broken = bytearray(data)
        broken[position] ^= int(rng.integers(1, 256))
        path.write_bytes(broken)
        try:
            loaded = load(tmp_path, fresh(), Generator())
        except GateError:
            continue
        assert loaded is not None  # a byte that nobody reads
        assert same_weights(loaded.networks.classifier, state(0).networks.classifier)
