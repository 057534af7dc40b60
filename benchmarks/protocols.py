"""The open-set tasks of Office-31: which images are the source, which the target.

The lists are read from the data set's own folders; nothing is copied.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

from scda.adapt.scan import scan_source
from scda.models.errors import UsageError

DOMAINS = {"A": "amazon", "D": "dslr", "W": "webcam"}
TASKS = tuple(f"{source}-{target}" for source, target in permutations(DOMAINS, 2))


@dataclass(frozen=True)
class Classes:
    """Which class names are known and which implicit; all others are left out."""

    known: tuple[str, ...]
    implicit: tuple[str, ...]


PROTOCOLS = {
    # The ten classes that Office-31 shares with Caltech-256; implicit: the last eleven by alphabet.
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
    # The first ten by alphabet, as in ROS and UADAL.
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
    """The images of one task; `truth` is for scoring alone and never reaches training."""

    source: tuple[Path, ...]
    labels: tuple[int, ...]  # of the source, 0 to K - 1
    target: tuple[Path, ...]
    truth: tuple[int, ...]  # of the target; K and above are implicit classes
    num_known: int


def task_lists(root: Path, task: str, classes: Classes) -> Lists:
    """Return the source with known classes only and the target with both kinds.

    The target comes in an order that hides the classes: by the hash that names the files of the
    same task built as folders, so that both ways give the same run.

    Raises:
        UsageError: If `root` is not Office-31, or the task is none of its six.
    """
    if task not in TASKS:
        raise UsageError(f"task is {task!r}, want {' or '.join(TASKS)}")
    of_source, of_target = (DOMAINS[letter] for letter in task.split("-"))
    source = _labelled(root, of_source, classes.known)
    target = _labelled(root, of_target, classes.known + classes.implicit)
    target.sort(key=lambda pair: _hiding_name(of_target, pair[0]))
    return Lists(
        tuple(path for path, _ in source),
        tuple(label for _, label in source),
        tuple(path for path, _ in target),
        tuple(label for _, label in target),
        len(classes.known),
    )


def class_names(root: Path) -> list[str]:
    """Return the names of all classes, sorted."""
    return list(scan_source(root / DOMAINS["A"] / "images", role="amazon").classes)


def _labelled(root: Path, domain: str, names: Sequence[str]) -> list[tuple[Path, int]]:
    files = scan_source(root / domain / "images", role=domain).classes
    missing = [name for name in names if not files.get(name)]
    if missing:
        raise UsageError(f"{root}: {domain} has no images of {', '.join(missing)}")
    return [(path, label) for label, name in enumerate(names) for path in files[name]]


def _hiding_name(domain: str, path: Path) -> str:
    key = f"{domain}/{path.parent.name}/{path.name}"
    return hashlib.sha256(key.encode()).hexdigest()
