from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.open_set.protocols import PROTOCOLS, TASKS, class_names, task_lists
from scda.models.errors import UsageError


@pytest.mark.parametrize("protocol", ["P1", "P2"])
def test_ten_classes_are_known_and_eleven_others_implicit(protocol: str) -> None:
    classes = PROTOCOLS[protocol]
    assert (len(set(classes.known)), len(set(classes.implicit))) == (10, 11)
    assert not set(classes.known) & set(classes.implicit)


def test_the_second_protocol_knows_the_first_ten_by_alphabet(office31: Path) -> None:
    assert list(PROTOCOLS["P2"].known) == class_names(office31)[:10]


def test_there_are_six_tasks() -> None:
    assert len(set(TASKS)) == 6
    assert all(task[0] != task[-1] for task in TASKS)


@pytest.mark.parametrize("protocol", ["P1", "P2"])
def test_the_source_holds_known_classes_and_the_target_both(office31: Path, protocol: str) -> None:
    classes = PROTOCOLS[protocol]
    lists = task_lists(office31, "A-W", classes)
    assert (len(lists.source), len(lists.target)) == (10 * 4, 21 * 3)
    assert all("amazon" in path.parts for path in lists.source)
    assert all("webcam" in path.parts for path in lists.target)
    names = classes.known + classes.implicit
    assert [names[label] for label in lists.labels] == [path.parent.name for path in lists.source]
    assert [names[label] for label in lists.truth] == [path.parent.name for path in lists.target]
    assert lists.num_known == 10


def test_the_order_of_the_target_hides_its_classes(office31: Path) -> None:
    truth = task_lists(office31, "A-W", PROTOCOLS["P1"]).truth
    changes = sum(a != b for a, b in pairwise(truth))
    assert changes > 40  # 20 if the classes stood together


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="amazon folder does not exist"):
        task_lists(tmp_path, "A-W", PROTOCOLS["P1"])


def test_a_missing_class_is_named(tmp_path: Path) -> None:
    for domain in ("amazon", "webcam"):
        (tmp_path / domain / "images" / "bike").mkdir(parents=True)
    with pytest.raises(UsageError, match="amazon has no images of back_pack, bike, calculator"):
        task_lists(tmp_path, "A-W", PROTOCOLS["P1"])


def test_an_unknown_task_is_refused(office31: Path) -> None:
    with pytest.raises(UsageError, match="task is 'A-A', expected A-D or A-W"):
        task_lists(office31, "A-A", PROTOCOLS["P1"])
