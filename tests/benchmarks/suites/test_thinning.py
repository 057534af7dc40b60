from pathlib import Path

import numpy as np

from benchmarks.open_set.protocols import Lists
from benchmarks.suites.thinning import thinned

SIZES = (40, 40, 40, 40, 40, 2)


def lists() -> Lists:
    truth = tuple(label for label, size in enumerate(SIZES) for _ in range(size))
    target = tuple(Path(f"{number}.jpg") for number in range(len(truth)))
    return Lists((Path("s.jpg"),), (0,), target, truth, 3)


def test_classes_of_a_skewed_target_differ_in_size_and_none_is_lost() -> None:
    kept = thinned(lists(), "skewed", 0)
    sizes = np.bincount(kept.truth, minlength=6)
    assert sizes[5] == 2  # all that there are
    # Twice the median of 40 images over 1 to 6; one of these places is the small class's.
    expected = [min(40, 80 // place) for place in range(1, 7)]
    assert all(size in expected for size in sizes[:5].tolist())
    assert np.ptp(sizes[:5]) >= 20
    assert kept.source == lists().source


def test_an_even_target_has_as_many_images_and_both_keep_the_order_and_the_truth() -> None:
    skewed, even = (thinned(lists(), how, 1) for how in ("skewed", "even"))
    assert len(skewed.target) == len(even.target) < len(lists().target)
    for kept in (skewed, even):
        rows = [int(path.stem) for path in kept.target]
        assert rows == sorted(set(rows))
        assert [lists().truth[row] for row in rows] == list(kept.truth)
    assert np.ptp(np.bincount(even.truth)[:5]) < np.ptp(np.bincount(skewed.truth)[:5])


def test_the_draws_depend_on_the_seed_alone() -> None:
    first, again, other = (thinned(lists(), "skewed", seed).target for seed in (0, 0, 1))
    assert first == again != other
