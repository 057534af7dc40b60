from pathlib import Path

import pytest

from benchmarks.suites.tasks import DEVELOPMENT, read_tasks
from scda.models.errors import UsageError

LIST = """
[domain.near]
folder = "here"
names = { cup = "mug" }
[domain.near-first]
folder = "here"
parts = 2
part = 0
[domain.far]
folder = "there"
[[task]]
name = "shapes-half"
family = "shapes"
kind = "half"
source = "near"
target = "far"
known = ["pen", "cup"]
new = ["zip", "axe"]
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for domain, names in (("here", ("pen", "mug")), ("there", ("pen", "cup", "axe", "zip"))):
        for name in names:
            (tmp_path / domain / name).mkdir(parents=True)
            for number in range(3):
                (tmp_path / domain / name / f"{number}.jpg").write_bytes(b"no image")
    return tmp_path


def written(folder: Path, text: str) -> Path:
    path = folder / "list.toml"
    path.write_text(text)
    return path


def test_a_task_becomes_lists(data: Path) -> None:
    (task,) = read_tasks(written(data, LIST))
    lists = task.lists(data)
    assert lists.num_known == 2
    assert [path.parent.name for path in lists.source] == ["mug"] * 3 + ["pen"] * 3
    assert lists.labels == (0, 0, 0, 1, 1, 1)
    named = {
        (path.parent.name, label) for path, label in zip(lists.target, lists.truth, strict=True)
    }
    assert named == {("cup", 0), ("pen", 1), ("axe", 2), ("zip", 3)}
    # The order of the target hides the classes, and is the same every time.
    assert list(lists.truth) != sorted(lists.truth)
    assert task.lists(data) == lists


def test_absent_classes_are_known_and_not_in_the_target(data: Path) -> None:
    (task,) = read_tasks(written(data, LIST + 'absent = ["cup"]\n'))
    lists = task.lists(data)
    assert (lists.num_known, set(lists.labels), set(lists.truth)) == (2, {0, 1}, {1, 2, 3})


def test_a_domain_may_be_every_second_image(data: Path) -> None:
    text = LIST.replace('source = "near"', 'source = "near-first"').replace('"cup"]', '"mug"]')
    text = text.replace('target = "far"', 'target = "near"').replace('["zip", "axe"]', "[]")
    (task,) = read_tasks(written(data, text))
    assert [path.name for path in task.lists(data).source] == ["0.jpg", "2.jpg"] * 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[[task]]", "[task", "cannot read the list of tasks"),
        ("[[task]]", "[[tasks]]", "expected tables [[task]], found none"),
        ('source = "near"', 'source = "moon"', "expected source to be one of near, near-first"),
        ('kind = "half"', 'kind = "most"', "expected kind half or few or none or missing"),
        ('family = "shapes"\n', "", "task shapes-half: "),
        ("part = 0", "part = 2", "domain near-first: part is 2, expected 0 to parts - 1 = 1"),
        ('["zip", "axe"]', '["pen"]', "new classes that are not known"),
    ],
)
def test_a_wrong_list_is_refused(data: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_tasks(written(data, LIST.replace(old, new)))
    assert message in str(caught.value)


def test_a_class_without_images_is_refused(data: Path) -> None:
    (task,) = read_tasks(written(data, LIST.replace('"axe"', '"saw"')))
    with pytest.raises(UsageError, match="cannot read the folder"):
        task.lists(data)
    (data / "there/saw").mkdir()
    with pytest.raises(UsageError, match="expected images of the class saw, found none"):
        task.lists(data)


def test_the_development_suite_has_88_tasks_of_18_groups_and_missing_classes() -> None:
    tasks = read_tasks(DEVELOPMENT)
    assert len(tasks) == 88
    groups = {(task.family, task.kind) for task in tasks if task.kind != "missing"}
    assert len(groups) == 18
    assert sum(task.kind == "missing" for task in tasks) == 5
    for task in tasks:
        assert bool(task.new) == (task.kind != "none")
        assert bool(task.absent) == (task.kind == "missing")
        assert task.name.startswith(task.family)
