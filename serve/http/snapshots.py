"""The metrics of one process as plain values, which other processes can add up."""

from collections.abc import Iterable
from typing import TypedDict


class Family(TypedDict):
    """All samples of one metric, as JSON values."""

    name: str
    help: str
    type: str  # counter, gauge or histogram
    largest: bool  # the processes agree on it: their largest value counts, and not their sum
    samples: list[tuple[str, dict[str, str], float]]  # name, labels, value


Snapshot = list[Family]


def add(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Return the sum of the metrics of several processes, sample by sample."""
    families: dict[str, Family] = {}
    sums: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for family in (family for one in snapshots for family in one):
        name = family["name"]
        families.setdefault(name, family)
        sums.setdefault(name, {})
        for sample, labels, value in family["samples"]:
            key = sample, tuple(labels.items())
            before = sums[name].get(key)
            if before is None:
                sums[name][key] = value
            else:
                sums[name][key] = max(before, value) if family["largest"] else before + value
    for name, family in families.items():
        values = [(sample, dict(labels), value) for (sample, labels), value in sums[name].items()]
        families[name] = Family(**{**family, "samples": values})
    return list(families.values())


def lasting(one: Snapshot) -> Snapshot:
    """Return what still counts when its process has ended: counters and histograms."""
    return [family for family in one if family["type"] != "gauge"]
