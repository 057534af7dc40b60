"""DomainNet*: Office-Home as source, Office-Home merged with DomainNet as target, 65 known classes.

    python -m benchmarks.domainnet --root DIR --out FILE.jsonl [--method NAME …]

The paper merges classes of the same meaning, which leaves 297 implicit ones, and reduces a random
quarter of them to 10 images each. It lists neither; `MERGED` and `SEED` are our choice. The 48
entries of `MERGED` leave 297 of DomainNet's 345 classes, as in the paper.
Source: SCDA, "Datasets" and supplement; Peng et al. 2019, https://arxiv.org/abs/1812.01754
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.officehome import DOMAINS
from benchmarks.open_set import harness
from benchmarks.open_set.protocols import Classes, DataSet, Files, Lists, open_set_lists, scanned
from scda.models.errors import UsageError

# Class of DomainNet → class of Office-Home that its images count as. DomainNet's `mouse` mixes
# animals and devices: as a class of its own, it would make the devices implicit.
MERGED = {
    "alarm_clock": "Alarm_Clock",
    "backpack": "Backpack",
    "bed": "Bed",
    "bicycle": "Bike",
    "bucket": "Bucket",
    "calculator": "Calculator",
    "calendar": "Calendar",
    "candle": "Candles",
    "ceiling_fan": "Fan",
    "cell_phone": "Telephone",
    "chair": "Chair",
    "coffee_cup": "Mug",
    "computer": "Computer",
    "couch": "Couch",
    "cup": "Mug",
    "drill": "Drill",
    "eraser": "Eraser",
    "eyeglasses": "Glasses",
    "flip_flops": "Flipflops",
    "flower": "Flowers",
    "fork": "Fork",
    "frying_pan": "Pan",
    "hammer": "Hammer",
    "helmet": "Helmet",
    "keyboard": "Keyboard",
    "knife": "Knives",
    "laptop": "Laptop",
    "marker": "Marker",
    "mouse": "Mouse",
    "mug": "Mug",
    "oven": "Oven",
    "paper_clip": "Paper_Clip",
    "pencil": "Pencil",
    "radio": "Radio",
    "scissors": "Scissors",
    "screwdriver": "Screwdriver",
    "shoe": "Sneakers",
    "sink": "Sink",
    "spoon": "Spoon",
    "stereo": "Speaker",
    "stove": "Oven",
    "table": "Table",
    "teapot": "Kettle",
    "teddy-bear": "Toys",
    "telephone": "Telephone",
    "television": "TV",
    "toothbrush": "ToothBrush",
    "wine_bottle": "Bottle",
}
TARGETS = {"Rw": "real", "Cl": "clipart"}  # Office-Home's domain → DomainNet's
TASKS = ("Ar-Rw", "Ar-Cl", "Pr-Rw", "Pr-Cl")
PROTOCOL = "65/297"
_CLASSES = (65, 297)
SEED = 0  # random seed of the thinned classes and their images
_THINNED, _LEFT = 0.25, 10  # share of the implicit classes; images left of each


def task_lists(root: Path, protocol: str, task: str) -> Lists:
    """Return Office-Home as source and the merged, thinned target.

    Raises:
        UsageError: If `root` lacks one of the data sets, or classes are missing.
    """
    source_name, target_name = task.split("-")
    home = [
        scanned(root / "OfficeHome" / DOMAINS[name], name) for name in (source_name, target_name)
    ]
    extra = scanned(root / "DomainNet" / TARGETS[target_name], TARGETS[target_name])
    known = tuple(sorted(home[0].of_class))
    target = merged(home[1], extra)
    implicit = tuple(sorted(set(target.of_class) - set(known)))
    if (len(known), len(implicit)) != _CLASSES:
        found = f"{len(known)} known and {len(implicit)} implicit classes"
        raise UsageError(f"{target.where}: {found}, expected {_CLASSES[0]} and {_CLASSES[1]}")
    return open_set_lists(home[0], thinned(target, implicit), Classes(known, implicit), target_name)


def merged(home: Files, extra: Files) -> Files:
    """Return the classes of both data sets, with classes of the same meaning merged.

    Raises:
        UsageError: If one of them lacks a class to merge.
    """
    for files, names in ((extra, MERGED.keys()), (home, set(MERGED.values()))):
        if missing := sorted(names - files.of_class.keys()):
            raise UsageError(f"{files.where} has no images of {', '.join(missing)}")
    of_class = {name: list(paths) for name, paths in home.of_class.items()}
    for name, paths in extra.of_class.items():
        # Equal names that are not merged would put two classes under one name.
        of_class.setdefault(MERGED.get(name, f"domainnet/{name}"), []).extend(paths)
    return Files(f"{home.where} with {extra.where}", of_class)


def thinned(files: Files, implicit: Sequence[str]) -> Files:
    """Return the files with a random quarter of the implicit classes reduced to 10 images each."""
    rng = np.random.default_rng(SEED)
    chosen = rng.permutation(list(implicit))[: round(_THINNED * len(implicit))]
    cut = {
        str(name): [files.of_class[name][row] for row in _rows(len(files.of_class[name]), rng)]
        for name in chosen
    }
    return Files(files.where, {**files.of_class, **cut})


def _rows(count: int, rng: np.random.Generator) -> list[int]:
    return sorted(rng.permutation(count)[:_LEFT].tolist())


# Batch size and k_max from SCDA's table of hyper-parameters.
DOMAINNET = DataSet(
    "domainnet",
    "OfficeHome (Art, Clipart, Product, Real World) and DomainNet (real, clipart)",
    TASKS,
    (PROTOCOL,),
    task_lists,
    {"k_max": 650, "batch_size": 64},
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do the missing runs, print the tables, and return the exit code."""
    return harness.main(DOMAINNET, arguments)


if __name__ == "__main__":
    sys.exit(main())
