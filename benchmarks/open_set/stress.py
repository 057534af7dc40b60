"""Unusual targets and sources, to test whether the status of a run reports failures.

A case chooses classes and modifies the lists of images. It may use the truth, because it simulates
a target; training gets the modified lists without the truth.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray
from PIL import ImageFilter

from benchmarks.open_set.protocols import PROTOCOLS, Classes, Lists, class_names, task_lists
from benchmarks.open_set.runs import Run
from benchmarks.open_set.studies import Request
from scda.models.bundle import file_sha256
from scda.models.files import write_atomically
from scda.models.images import read_file

Treatment = Callable[[Lists, Generator], Lists]
MODES = ("auto", "yes", "no")  # --novel
TASKS = ("A-W", "D-W", "W-D", "A-D")
_LARGEST_RATIO = 50


def untreated(lists: Lists, rng: Generator) -> Lists:
    """Return the lists as they are."""
    return lists


def with_new(lists: Lists, rng: Generator, *, share: float) -> Lists:
    """Return the target with all known images and a share of new ones, 0 to 1.

    If there are too few new images, all of them are used. For one seed, a smaller share is a
    subset of a larger one.
    """
    truth = np.array(lists.truth)
    known, new = (np.flatnonzero(rows) for rows in (truth < lists.num_known, _is_new(lists)))
    count = round(share / (1 - share) * len(known))
    return _of_target(lists, np.concatenate([known, rng.permutation(new)[:count]]))


def new_only(lists: Lists, rng: Generator) -> Lists:
    """Return the target without images of known classes."""
    return _of_target(lists, np.flatnonzero(_is_new(lists)))


def imbalanced(lists: Lists, rng: Generator) -> Lists:
    """Return the target with class sizes that fall geometrically, up to 50 to 1.

    The classes are in random order; a class with fewer images than its place allows keeps all of
    them, and every class keeps at least one.
    """
    truth = np.array(lists.truth)
    labels = rng.permutation(np.unique(truth))
    largest = np.bincount(truth).max()
    sizes = largest * _LARGEST_RATIO ** -np.linspace(0, 1, len(labels))
    kept = [
        rng.permutation(np.flatnonzero(truth == label))[: max(1, round(size))]
        for label, size in zip(labels, sizes, strict=True)
    ]
    return _of_target(lists, np.concatenate(kept))


def mislabelled(lists: Lists, rng: Generator, *, share: float) -> Lists:
    """Return the source with `share` of its labels changed to another known class."""
    labels = np.array(lists.labels)
    rows = rng.permutation(len(labels))[: round(share * len(labels))]
    shifts = rng.integers(1, lists.num_known, len(rows))
    labels[rows] = (labels[rows] + shifts) % lists.num_known
    return dataclasses.replace(lists, labels=tuple(labels.tolist()))


def duplicated(lists: Lists, rng: Generator) -> Lists:
    """Return the target with a third of its images present three times."""
    count = len(lists.target)
    rows = rng.permutation(count)[: count // 3]
    return _of_target(lists, np.concatenate([np.arange(count), rows, rows]))


def two_known(classes: Classes, names: list[str]) -> Classes:
    """Return the first two known classes as known, all others of the protocol as implicit."""
    return Classes(classes.known[:2], classes.known[2:] + classes.implicit)


def most_known(classes: Classes, names: list[str]) -> Classes:
    """Return all 31 classes in alphabetical order, the first 25 known and the last 6 implicit."""
    return Classes(tuple(names[:25]), tuple(names[25:]))


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str
    treat: Treatment = untreated
    classes: Callable[[Classes, list[str]], Classes] = lambda classes, names: classes
    drawn: bool = False  # whether the target consists of edge drawings


CASES = (
    Case("none", partial(with_new, share=0)),
    Case("5%", partial(with_new, share=0.05)),
    Case("10%", partial(with_new, share=0.1)),
    Case("20%", partial(with_new, share=0.2)),
    Case("50%", partial(with_new, share=0.5)),
    Case("implicit only", new_only),
    Case("edges", drawn=True),
    Case("2 known", classes=two_known),
    Case("25 known, 6 implicit", classes=most_known),
    Case("imbalance 1:50", imbalanced),
    Case("5% mislabelled", partial(mislabelled, share=0.05)),
    Case("duplicates", duplicated),
)


def stress_runs(request: Request) -> list[Run]:
    """Return the runs of every case, mode, task and seed; `variant` is `case/mode`."""
    runs = []
    for case in CASES:
        modes = [mode for mode in MODES if request.selects(f"{case.name}/{mode}")]
        if not modes:
            continue
        lists = {pair: case_lists(case, request, *pair) for pair in request.pairs()}
        for mode in modes:
            for task, seed in request.pairs():
                config = request.config(seed, novel=mode)
                name = request.name(config, variant=f"{case.name}/{mode}", task=task)
                runs.append(Run(name, lists[task, seed], config))
    return runs


def case_lists(case: Case, request: Request, task: str, seed: int) -> Lists:
    """Return the lists of a case; the seed is that of the run."""
    classes = case.classes(PROTOCOLS[request.protocol], class_names(request.root))
    lists = case.treat(task_lists(request.root, task, classes), np.random.default_rng(seed))
    if not case.drawn:
        return lists
    folder = request.cache / "edges"
    target = tuple(edge_drawing(path, request.root, folder) for path in lists.target)
    return dataclasses.replace(lists, target=target)


def edge_drawing(path: Path, root: Path, folder: Path) -> Path:
    """Return the file with the edges of an image, and create it if it does not exist yet."""
    name = path.relative_to(root)
    drawing = folder / name.parent / f"{name.name}.{file_sha256(path)[:16]}.png"
    if not drawing.exists():
        drawing.parent.mkdir(parents=True, exist_ok=True)
        data = BytesIO()
        read_file(path).convert("L").filter(ImageFilter.FIND_EDGES).save(data, "PNG")
        write_atomically(drawing, data.getvalue())
    return drawing


def _is_new(lists: Lists) -> NDArray[np.bool_]:
    return np.array(lists.truth) >= lists.num_known


def _of_target(lists: Lists, rows: ArrayLike) -> Lists:
    """Return rows of the target in the order of the lists, which does not reveal the classes."""
    chosen = np.sort(np.asarray(rows)).tolist()
    return dataclasses.replace(
        lists,
        target=tuple(lists.target[row] for row in chosen),
        truth=tuple(lists.truth[row] for row in chosen),
    )
