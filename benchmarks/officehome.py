"""Open-set adaptation with class discovery on the twelve tasks of Office-Home, 25 known classes.

    python -m benchmarks.officehome --root DIR --out FILE.jsonl [--method NAME …]

Appends one JSON object per run to the file, skips runs that it already contains, and prints tables.
Source: SCDA, "Datasets"; Venkateswara et al. 2017, https://arxiv.org/abs/1706.07522
"""

import sys
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

from benchmarks.open_set import harness
from benchmarks.open_set.protocols import Classes, DataSet, Lists, open_set_lists, scanned
from scda.models.errors import UsageError

DOMAINS = {"Ar": "Art", "Cl": "Clipart", "Pr": "Product", "Rw": "Real World"}
TASKS = tuple(f"{source}-{target}" for source, target in permutations(DOMAINS, 2))
PROTOCOL = "25/40"  # the first 25 of 65 classes in alphabetical order are known, the rest implicit
_KNOWN, _CLASSES = 25, 65


def task_lists(root: Path, protocol: str, task: str) -> Lists:
    """Return the source with the known classes only and the target with all 65.

    Raises:
        UsageError: If `root` is not Office-Home.
    """
    source, target = (scanned(root / DOMAINS[short], DOMAINS[short]) for short in task.split("-"))
    names = sorted(source.of_class)
    if len(names) != _CLASSES:
        raise UsageError(f"{source.where} has {len(names)} class folders, expected {_CLASSES}")
    classes = Classes(tuple(names[:_KNOWN]), tuple(names[_KNOWN:]))
    return open_set_lists(source, target, classes, target_name(task))


def target_name(task: str) -> str:
    """Return the folder name of a task's target domain."""
    return DOMAINS[task.split("-")[1]]


# k_max from SCDA's table of hyper-parameters.
OFFICE_HOME = DataSet(
    "officehome",
    "Art, Clipart, Product and Real World, each with CLASS folders",
    TASKS,
    (PROTOCOL,),
    task_lists,
    {"k_max": 120},
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do the missing runs, print the tables, and return the exit code."""
    return harness.main(OFFICE_HOME, arguments)


if __name__ == "__main__":
    sys.exit(main())
