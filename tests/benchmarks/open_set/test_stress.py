from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.open_set import stress
from benchmarks.open_set.protocols import PROTOCOLS, Lists, class_names
from benchmarks.open_set.studies import Request

KNOWN, PER_CLASS = 4, 60
SHARES = [0.05, 0.1, 0.2, 0.5]


@pytest.fixture
def lists() -> Lists:
    """4 known and 6 implicit classes of 60 images, in an order without classes."""
    truth = np.random.default_rng(0).permutation(np.repeat(np.arange(10), PER_CLASS))
    target = tuple(Path(f"target/{row}") for row in range(len(truth)))
    labels = tuple(np.repeat(np.arange(KNOWN), 50).tolist())
    source = tuple(Path(f"source/{row}") for row in range(len(labels)))
    return Lists(source, labels, target, tuple(truth.tolist()), KNOWN)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def new_share(lists: Lists) -> float:
    return float(np.mean([label >= KNOWN for label in lists.truth]))


def pairs(lists: Lists) -> Counter[tuple[Path, int]]:
    return Counter(zip(lists.target, lists.truth, strict=True))


@pytest.mark.parametrize("share", [0, *SHARES])
def test_the_share_of_new_images_is_as_asked_and_every_known_image_stays(
    lists: Lists, share: float
) -> None:
    treated = stress.with_new(lists, rng(), share=share)
    assert new_share(treated) == pytest.approx(share, abs=0.003)
    assert sum(label < KNOWN for label in treated.truth) == KNOWN * PER_CLASS
    assert pairs(treated) <= pairs(lists)


def test_too_few_new_images_all_stay(lists: Lists) -> None:
    assert stress.with_new(lists, rng(), share=0.9) == lists


def test_a_smaller_share_is_part_of_a_larger_one(lists: Lists) -> None:
    fewer, more = (stress.with_new(lists, rng(), share=share) for share in (0.05, 0.2))
    assert set(fewer.target) < set(more.target)


def test_new_only_has_no_known_image(lists: Lists) -> None:
    treated = stress.new_only(lists, rng())
    assert new_share(treated) == 1
    assert len(treated.target) == 6 * PER_CLASS


def test_imbalance_falls_geometrically_to_a_fiftieth(lists: Lists) -> None:
    sizes = sorted(Counter(stress.imbalanced(lists, rng()).truth).values(), reverse=True)
    assert sizes == [max(1, round(60 * 50 ** (-turn / 9))) for turn in range(10)]
    assert (sizes[0], sizes[-1]) == (60, 1)


def test_one_in_twenty_source_labels_is_another_known_class(lists: Lists) -> None:
    treated = stress.mislabelled(lists, rng(), share=0.05)
    changed = [(a, b) for a, b in zip(lists.labels, treated.labels, strict=True) if a != b]
    assert len(changed) == 10  # of 200
    assert all(0 <= label < KNOWN for label in treated.labels)
    assert (treated.source, treated.target, treated.truth) == (
        lists.source,
        lists.target,
        lists.truth,
    )


def test_a_third_of_the_target_is_there_three_times(lists: Lists) -> None:
    treated = stress.duplicated(lists, rng())
    assert Counter(pairs(treated).values()) == {1: 400, 3: 200}
    assert pairs(treated).keys() == pairs(lists).keys()


TREATMENTS = [
    partial(stress.with_new, share=0.1),
    stress.new_only,
    stress.imbalanced,
    stress.duplicated,
]


@pytest.mark.parametrize("treat", TREATMENTS)
def test_a_treated_target_keeps_its_hidden_order_and_the_source(
    lists: Lists, treat: stress.Treatment
) -> None:
    treated = treat(lists, rng())
    order = [lists.target.index(path) for path in treated.target]
    assert order == sorted(order)
    assert (treated.source, treated.labels) == (lists.source, lists.labels)


@pytest.mark.parametrize("treat", [*TREATMENTS[:1], *TREATMENTS[2:]])
def test_the_seed_decides(lists: Lists, treat: stress.Treatment) -> None:
    assert treat(lists, rng(1)) == treat(lists, rng(1)) != treat(lists, rng(2))


def test_cases_of_other_classes(office31: Path) -> None:
    names = class_names(office31)
    two = stress.two_known(PROTOCOLS["P1"], names)
    assert two.known == ("back_pack", "bike")
    assert len(two.implicit) == 19
    assert set(PROTOCOLS["P1"].implicit) < set(two.implicit)
    most = stress.most_known(PROTOCOLS["P1"], names)
    assert most.known + most.implicit == tuple(names)
    assert (len(most.known), len(most.implicit)) == (25, 6)


def request_for(office31: Path, cache: Path, *rows: str) -> Request:
    return Request(office31, "P1", "stress", "robust", ("A-W", "D-W"), 2, cache, rows)


def test_every_case_runs_in_every_mode_and_says_so(office31: Path, tmp_path: Path) -> None:
    rows = [case.name for case in stress.CASES if not case.drawn]
    runs = stress.stress_runs(request_for(office31, tmp_path, *rows))
    assert len(runs) == 11 * 3 * 2 * 2
    assert all(run.name["variant"].endswith(f"/{run.config.novel}") for run in runs)
    assert len({(r.name["variant"], r.name["task"], r.name["seed"]) for r in runs}) == len(runs)


def test_the_modes_of_a_case_see_the_same_images(office31: Path, tmp_path: Path) -> None:
    runs = stress.stress_runs(request_for(office31, tmp_path, "20%"))
    chosen = {(run.name["task"], run.name["seed"], run.lists) for run in runs}
    assert len(chosen) == 4


def test_one_mode_alone_may_be_asked_for(office31: Path, tmp_path: Path) -> None:
    runs = stress.stress_runs(request_for(office31, tmp_path, "none/auto"))
    assert {run.name["variant"] for run in runs} == {"none/auto"}


def test_edge_drawings_are_written_once_and_show_edges(tmp_path: Path) -> None:
    root, folder = tmp_path / "root", tmp_path / "edges"
    root.mkdir()
    picture = Image.new("RGB", (20, 20), "white")
    picture.paste("black", (10, 0, 20, 20))
    picture.save(root / "a.png")
    drawing = stress.edge_drawing(root / "a.png", root, folder)
    assert drawing.parent == folder
    columns = np.asarray(Image.open(drawing))[5:15].max(axis=0)
    assert columns[9:11].max() == 255
    assert columns[2:8].max() == columns[12:18].max() == 0
    drawing.write_bytes(b"kept")
    assert stress.edge_drawing(root / "a.png", root, folder).read_bytes() == b"kept"
    picture.transpose(Image.Transpose.ROTATE_90).save(root / "a.png")
    assert stress.edge_drawing(root / "a.png", root, folder) != drawing  # another image by now
