import numpy as np

from scda.adapt.data.shared import shared_images


def test_labelled_target_images_are_found_by_their_content() -> None:
    shared = shared_images(["a", "b", "c", "d"], np.array([0, 0, 1, 1]), ["x", "c", "a", "y"])
    assert shared is not None
    assert shared.rows.tolist() == [0, 2]
    assert shared.twins.tolist() == [2, 1]
    assert shared.labels.tolist() == [-1, 1, 0, -1]
    assert shared.elsewhere(4).tolist() == [False, True, False, True]


def test_domains_without_a_common_image_share_none() -> None:
    assert shared_images(["a", "b"], np.array([0, 1]), ["x", "y"]) is None


def test_all_copies_in_the_target_get_the_label() -> None:
    shared = shared_images(["a", "a", "b"], np.array([1, 1, 0]), ["a", "x", "a"])
    assert shared is not None
    assert shared.twins.tolist() == [0, 0]
    assert shared.labels.tolist() == [1, -1, 1]


def test_an_image_in_two_classes_stays_an_image_of_the_source() -> None:
    shared = shared_images(["a", "a", "a", "b"], np.array([0, 1, 0, 1]), ["a", "b"])
    assert shared is not None
    assert shared.rows.tolist() == [3]
    assert shared.labels.tolist() == [-1, 1]
    assert shared_images(["a", "a", "c"], np.array([0, 1, 1]), ["a"]) is None


def test_a_part_of_the_target_keeps_what_it_shares() -> None:
    shared = shared_images(["a", "b", "c"], np.array([0, 1, 1]), ["c", "x", "a"])
    assert shared is not None
    part = shared.of_target(np.array([1, 2]))
    assert part is not None
    assert part.rows.tolist() == [0]
    assert part.twins.tolist() == [1]
    assert part.labels.tolist() == [-1, 0]
    assert shared.of_target(np.array([1])) is None
