"""The description of a data set, and the open-set tasks of Office-31: source and target images.

The lists are read from the data set's own folders; nothing is copied.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Any

from scda.adapt.data.scan import scan_source
from scda.models.errors import UsageError

DOMAINS = {"A": "amazon", "D": "dslr", "W": "webcam"}
TASKS = tuple(f"{source}-{target}" for source, target in permutations(DOMAINS, 2))


@dataclass(frozen=True)
class Classes:
    """The names of the known and of the implicit classes; all others are left out."""

    known: tuple[str, ...]
    implicit: tuple[str, ...]


PROTOCOLS = {
    # The ten classes that Office-31 shares with Caltech-256 are known, the last eleven implicit.
    "P1": Classes(
        known=(
            *("back_pack", "bike", "calculator", "headphones", "keyboard"),
            *("laptop_computer", "monitor", "mouse", "mug", "projector"),
        ),
        implicit=(
            *("pen", "phone", "printer", "punchers", "ring_binder", "ruler", "scissors"),
            *("speaker", "stapler", "tape_dispenser", "trash_can"),
        ),
    ),
    # The first ten classes in alphabetical order are known, as in ROS and UADAL.
    "P2": Classes(
        known=(
            *("back_pack", "bike", "bike_helmet", "bookcase", "bottle", "calculator"),
            *("desk_chair", "desk_lamp", "desktop_computer", "file_cabinet"),
        ),
        implicit=(
            *("phone", "printer", "projector", "punchers", "ring_binder", "ruler", "scissors"),
            *("speaker", "stapler", "tape_dispenser", "trash_can"),
        ),
    ),
}


@dataclass(frozen=True)
class Lists:
    """The images of one task; `truth` is for scoring alone and is not passed to training."""

    source: tuple[Path, ...]
    labels: tuple[int, ...]  # classes of the source images, 0 to K - 1
    target: tuple[Path, ...]
    truth: tuple[int, ...]  # classes of the target images; K and above are implicit
    num_known: int


@dataclass(frozen=True)
class DataSet:
    """One benchmark: its tasks, its protocols, and the function that lists the images of a task."""

    name: str
    layout: str  # folders that --root contains
    tasks: tuple[str, ...]
    protocols: tuple[str, ...]
    lists: Callable[[Path, str, str], Lists]  # takes root, protocol and task
    settings: Mapping[str, Any] = field(default_factory=dict)  # options that replace a preset's


@dataclass(frozen=True)
class Files:
    """The files of every class of one domain."""

    where: str  # description of the folder for messages
    of_class: Mapping[str, Sequence[Path]]


def task_lists(root: Path, task: str, classes: Classes) -> Lists:
    """Return the source with known classes only, and the target with known and implicit ones.

    Raises:
        UsageError: If `root` is not Office-31, or the task does not exist.
    """
    if task not in TASKS:
        raise UsageError(f"task is {task!r}, expected {' or '.join(TASKS)}")
    of_source, of_target = (DOMAINS[letter] for letter in task.split("-"))
    source, target = (scanned(root / name / "images", name) for name in (of_source, of_target))
    return open_set_lists(source, target, classes, of_target)


def open_set_lists(source: Files, target: Files, classes: Classes, domain: str) -> Lists:
    """Return the lists of a task from the files of its two domains.

    The target is sorted by hashes, so that its order does not reveal the classes. The hashes are
    the file names of the same task built as folders, which therefore gives the same run.

    Args:
        source: Files of the source domain; known classes are taken from them.
        target: Files of the target domain; known and implicit classes are taken from them.
        classes: Names of the known and the implicit classes; all others are left out.
        domain: Name of the target in the hash.

    Raises:
        UsageError: If a class has no image.
    """
    of_source = _labelled(source, classes.known)
    of_target = _labelled(target, classes.known + classes.implicit)
    of_target.sort(key=lambda pair: _hiding_name(domain, pair[0]))
    return Lists(
        tuple(path for path, _ in of_source),
        tuple(label for _, label in of_source),
        tuple(path for path, _ in of_target),
        tuple(label for _, label in of_target),
        len(classes.known),
    )


def scanned(folder: Path, role: str) -> Files:
    """Return the files of a domain whose folder holds one folder per class.

    Raises:
        UsageError: If there is no such folder.
    """
    return Files(f"{folder}: {role}", scan_source(folder, role=role).classes)


def class_names(root: Path) -> list[str]:
    """Return the names of all classes of Office-31, sorted."""
    return list(scan_source(root / DOMAINS["A"] / "images", role="amazon").classes)


def _labelled(files: Files, names: Sequence[str]) -> list[tuple[Path, int]]:
    missing = [name for name in names if not files.of_class.get(name)]
    if missing:
        raise UsageError(f"{files.where} has no images of {', '.join(missing)}")
    return [(path, label) for label, name in enumerate(names) for path in files.of_class[name]]


def _hiding_name(domain: str, path: Path) -> str:
    key = f"{domain}/{path.parent.name}/{path.name}"
    return hashlib.sha256(key.encode()).hexdigest()


OFFICE31 = DataSet(
    "office31",
    "amazon, dslr and webcam, each with images/CLASS",
    TASKS,
    tuple(PROTOCOLS),
    lambda root, protocol, task: task_lists(root, task, PROTOCOLS[protocol]),
)
