"""The list of a suite: the folders, the classes and the kind of target of each task."""

import hashlib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.open_set.protocols import Lists
from scda.models.errors import UsageError
from scda.models.folders import walk

DEVELOPMENT = Path(__file__).with_name("development.toml")
_T = TypeVar("_T")
KINDS = ("half", "few", "none", "missing")


@dataclass(frozen=True)
class Domain:
    """A folder of class folders, or every `parts`-th image of each of its classes."""

    folder: str  # path relative to the data folder
    names: Mapping[str, str] = field(default_factory=dict)  # class → folder, if they differ
    parts: int = 1
    part: int = 0

    def __post_init__(self) -> None:
        """Check that the part exists."""
        if not 0 <= self.part < self.parts:
            raise TypeError(f"part is {self.part}, expected 0 to parts - 1 = {self.parts - 1}")

    def images(self, data: Path, label: str) -> list[Path]:
        """Return the images of a class, sorted by path.

        Raises:
            UsageError: If there is no such folder, or it is empty.
        """
        folder = data / self.folder / self.names.get(label, label)
        if paths := list(walk(folder))[self.part :: self.parts]:
            return paths
        raise UsageError(f"{folder}: expected images of the class {label}, found none")


@dataclass(frozen=True)
class Task:
    """One pair of source and target with the classes of both."""

    name: str
    family: str
    kind: str  # one of KINDS
    source: Domain
    target: Domain
    known: tuple[str, ...]
    new: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()  # known classes that the target lacks

    def lists(self, data: Path) -> Lists:
        """Return the images of both domains.

        Known classes are numbered by name, as in `scda-adapt train`. The target is sorted by a hash
        of the paths, so that its order does not reveal the classes.

        Raises:
            UsageError: If a class has no image.
        """
        known = sorted(self.known)
        numbers = {label: number for number, label in enumerate([*known, *sorted(self.new)])}
        source = [
            (path, numbers[label]) for label in known for path in self.source.images(data, label)
        ]
        present = [label for label in self.known if label not in self.absent]
        target = sorted(
            (self._hiding_name(label, number, path), path, numbers[label])
            for label in (*present, *self.new)
            for number, path in enumerate(self.target.images(data, label))
        )
        return Lists(
            tuple(path for path, _ in source),
            tuple(label for _, label in source),
            tuple(path for _, path, _ in target),
            tuple(label for _, _, label in target),
            len(known),
        )

    def _hiding_name(self, label: str, number: int, path: Path) -> str:
        key = hashlib.sha256(f"{self.name}/{label}/{number}".encode()).hexdigest()
        return key[:12] + path.suffix.lower()


def read_tasks(path: Path) -> list[Task]:
    """Return the tasks of a list file, in its order.

    Raises:
        UsageError: If the file cannot be read, or a task or a domain is described wrongly.
    """
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot read the list of tasks: {error}") from None
    domains = {
        name: _built(path, f"domain {name}", Domain, values)
        for name, values in content.get("domain", {}).items()
    }
    tasks = [_task(path, values, domains) for values in content.get("task", [])]
    if not tasks:
        raise UsageError(f"{path}: expected tables [[task]], found none")
    names = [task.name for task in tasks]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"{path}: expected every task once, found {twice[0]} twice")
    return tasks


def _task(path: Path, values: Mapping[str, Any], domains: Mapping[str, Domain]) -> Task:
    where = f"task {values.get('name')}"
    for side in ("source", "target"):
        if values.get(side) not in domains:
            raise UsageError(
                f"{path}: {where}: expected {side} to be one of {', '.join(domains)}, "
                f"found {values.get(side)!r}"
            )
    both = {side: domains[values[side]] for side in ("source", "target")}
    classes = {name: tuple(values.get(name, ())) for name in ("known", "new", "absent")}
    task = _built(path, where, Task, {**values, **both, **classes})
    if task.kind not in KINDS:
        raise UsageError(
            f"{path}: {where}: expected kind {' or '.join(KINDS)}, found {task.kind!r}"
        )
    if len(task.known) < 2 or set(task.known) & set(task.new) or set(task.absent) - set(task.known):
        raise UsageError(
            f"{path}: {where}: expected two or more known classes, new classes that are not known, "
            "and absent ones that are"
        )
    return task


def _built(path: Path, where: str, kind: Callable[..., _T], values: Mapping[str, Any]) -> _T:
    try:
        return kind(**values)
    except TypeError as error:
        raise UsageError(f"{path}: {where}: {error}") from None
