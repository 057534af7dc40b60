import numpy as np

from scda.adapt.picking.selection import choose


def test_every_group_is_picked_from_and_the_uncertain_one_first() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(4), 20)
    features = np.eye(4, 8)[groups] + 0.05 * rng.standard_normal((80, 8))
    entropies = np.where(groups == 2, 1.0, 0.1).astype(np.float32)
    rows = choose(features.astype(np.float32), entropies, 4, seed=0)
    assert groups[rows[0]] == 2
    assert set(groups[rows]) == {0, 1, 2, 3}


def test_certain_images_give_way() -> None:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((60, 6)).astype(np.float32)
    entropies = np.where(np.arange(60) < 30, 1.0, 0.0).astype(np.float32)
    assert (choose(features, entropies, 10, seed=1) < 30).sum() >= 8


def test_copies_are_picked_once_and_few_images_all() -> None:
    features = np.repeat(np.eye(3, dtype=np.float32), 2, axis=0)
    rows = choose(features, np.arange(6, dtype=np.float32), 5, seed=0)
    assert sorted((rows // 2).tolist()) == [0, 1, 2]
    assert len(choose(features[:1], np.ones(1, np.float32), 3, seed=0)) == 1
