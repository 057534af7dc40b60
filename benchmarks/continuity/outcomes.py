"""What a run predicts for its target, under its names, and what it has kept of the one before."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from statistics import mean

from benchmarks.open_set.results import Record
from scda.models.bundle import Manifest
from scda.models.names import Names
from scda.models.naming import Naming


@dataclass(frozen=True)
class Outcome:
    """What a run predicts for its target, and what the images are."""

    manifest: Manifest
    names: Names
    truth: list[str]
    predicted: list[str]  # class ids

    @property
    def majorities(self) -> dict[str, str]:
        """Discovered class → true class of more than half of its images."""
        return {i: of for i, (of, share) in self.most.items() if share > 1 / 2}

    @property
    def most(self) -> dict[str, tuple[str, float]]:
        """Discovered class → most frequent true class of its images, and its share."""
        counts: dict[str, Counter[str]] = {}
        for class_id, true in zip(self.predicted, self.truth, strict=True):
            if class_id.startswith("discovered-"):
                counts.setdefault(class_id, Counter())[true] += 1
        top = {class_id: of.most_common(1)[0] for class_id, of in counts.items()}
        return {
            class_id: (name, n / counts[class_id].total()) for class_id, (name, n) in top.items()
        }

    def called(self, class_id: str) -> str:
        """Return what a class is called."""
        naming = Naming(self.manifest.classes)
        answer = self.names.resolve(class_id)
        return naming.label(self.names, answer) if answer in naming.class_ids else answer

    def accuracy(self, only: Collection[str] = ()) -> float:
        """Return the share of images that are called by their true class, in percent.

        Args:
            only: True classes whose images count; all if there are none.
        """
        calls = {class_id: self.called(class_id) for class_id in self.manifest.class_ids}
        pairs = zip(self.predicted, self.truth, strict=True)
        return 100 * mean(calls[p] == t for p, t in pairs if not only or t in only)

    @property
    def named(self) -> set[str]:
        """The true classes that some class is called."""
        return {self.called(class_id) for class_id in self.manifest.class_ids} & {*self.truth}

    def named_by_majority(self) -> "Outcome":
        """Return the outcome after somebody named the classes that had no name."""
        naming, names = Naming(self.manifest.classes), self.names
        active = [i for i in naming.class_ids if names.resolve(i) == i]
        holders = {naming.label(names, i): i for i in active}
        for class_id in active:
            label = self.majorities.get(class_id)
            if label is None or class_id in names.labels or holders.get(label) == class_id:
                continue
            if label in holders:
                names = naming.merge(names, [holders[label], class_id])
            else:
                names, holders[label] = naming.name(names, class_id, label), class_id
        return replace(self, names=names)


def compared(before: Outcome, after: Outcome) -> Record:
    """Return what a training after a named one has kept."""
    there = set(after.majorities.values())
    named = {i: label for i, label in before.names.labels.items() if i.startswith("discovered-")}
    still = {class_id for class_id, label in named.items() if label in there}
    kept = {i for i in still if after.majorities.get(i) == named[i] == after.called(i)}
    calls = {i: after.called(i) for i in after.most}
    carried = {i: label for i, label in calls.items() if label != i}
    wrong = [i for i, label in carried.items() if after.majorities.get(i, label) != label]
    previous = after.manifest.previous
    fates = previous.classes if previous else ()
    told = set(previous.to_confirm) if previous else set()
    return {
        "named": len(named),
        "still": len(still),
        "kept": len(kept),
        "carried": len(carried),
        "wrong": len(wrong),
        "to_confirm": len(told & {*carried}),
        "wrong_told": len(told & {*wrong}),
        # How pure a class was whose name is wrong now; a half is a coin toss.
        "wrong_before": [round(before.most[i][1], 2) if i in before.most else None for i in wrong],
        "wrong_most": sum(after.most[i][0] != label for i, label in carried.items()),
        "became": dict(Counter(str(fate.became) for fate in fates)),
        "accuracy_carried": round(after.accuracy(), 2),
    }


def unnamed(carried: Outcome, named: Outcome) -> Record:
    """Return why images are not called by their true class by carried names alone, in percent.

    Args:
        carried: The outcome with the names that were carried over.
        named: The same one after all classes were named.
    """
    rest = [i for i in carried.most if carried.called(i) != named.called(i)]
    reasons = Counter[str]()
    for class_id, true in zip(carried.predicted, carried.truth, strict=True):
        if class_id in rest and named.called(class_id) == true:
            reasons["named_before" if true in carried.named else "new_name"] += 1
    return {name: round(100 * reasons[name] / len(carried.truth), 2) for name in _REASONS}


_REASONS = ("new_name", "named_before")
