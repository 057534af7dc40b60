"""`scda-adapt names`: the edits of the review page from the shell, all of one call or none."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scda.models.bundle import Manifest
from scda.models.errors import UsageError
from scda.models.names import UNKNOWN, Names
from scda.models.naming import Edit, Naming


@dataclass(frozen=True, kw_only=True)
class Orders:
    """The edits of one call, in the order in which they are applied."""

    undo: bool = False
    restores: Sequence[str] = ()  # class ids
    drops: Sequence[str] = ()  # class ids
    merges: Sequence[str] = ()  # comma-separated class ids, the one that remains first
    labels: Sequence[str] = ()  # CLASS_ID=LABEL
    version: int | None = None  # of the names that the person saw; None checks nothing

    def __bool__(self) -> bool:
        """Return whether there is any edit."""
        return any((self.undo, self.restores, self.drops, self.merges, self.labels))

    def edits(self) -> Iterator[Edit]:
        """Yield the edits in order.

        Raises:
            UsageError: If a label is not of the form CLASS_ID=LABEL.
        """
        if self.undo:
            yield Edit("undo", version=self.version)
        for class_id in self.restores:
            yield Edit("restore", [class_id], version=self.version)
        for class_id in self.drops:
            yield Edit("drop", [class_id], version=self.version)
        for class_ids in self.merges:
            parts = [part.strip() for part in class_ids.split(",")]
            yield Edit("merge", parts, version=self.version)
        for order in self.labels:
            class_id, equals, label = order.partition("=")
            if not equals:
                raise UsageError(f"--set {order}: expected CLASS_ID=LABEL")
            yield Edit("name", [class_id.strip()], label, self.version)

    def apply(self, naming: Naming, names: Names) -> Names:
        """Return the names after every edit; made for `change_names`.

        Raises:
            ConflictError: If a class of one of them has changed since the version seen.
            UsageError: If one of them is refused; then none is applied.
        """
        edits = list(self.edits())
        for edit in edits:  # before the first of them changes what the next one would see
            naming.check_seen(names, edit)
        for edit in edits:
            names = naming.apply(names, replace(edit, version=None))
        return names


def listing(manifest: Manifest, names: Names) -> list[dict[str, Any]]:
    """Return one row per class of the bundle, with its current name."""
    return [
        {
            "class_id": info.class_id,
            "kind": info.kind,
            "size": info.size,
            "label": names.label(info),
            "answers_as": names.resolve(info.class_id),
            "doubts": list(info.trust.doubts) if info.trust else [],
        }
        for info in manifest.classes
    ]


def lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the rows of `listing` as lines of text."""
    return [
        f"{row['class_id']:16} {row['size']:7} images  {row['label']}"
        + (f"  -> {row['answers_as']}" if row["answers_as"] != row["class_id"] else "")
        + (f"  (doubtful: {', '.join(row['doubts'])})" if row["doubts"] else "")
        for row in rows
    ]


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How much of the target has a name, in images as predicted after training.

    Known classes have a name, and so has what was merged into a class with one.
    """

    images: int
    images_named: int
    images_dropped: int
    classes: int  # discovered classes that are neither merged nor dropped
    classes_named: int
    next_id: str | None  # largest class without a name, doubtful ones last; None without one
    next_images: int

    @property
    def text(self) -> str:
        """One line that says how far one is."""
        named = f"{self.classes_named} of {self.classes} discovered classes named"
        share = f"{self._share(self.images_named)} of {self.images} target images under a name"
        dropped = f", {self._share(self.images_dropped)} dropped" if self.images_dropped else ""
        return (f"{named}; " if self.classes else "") + share + dropped

    @property
    def next_text(self) -> str:
        """One line that says what the next name would cover; empty if every class has one."""
        if not self.next_id:
            return ""
        images = f"{self.next_images} image{'' if self.next_images == 1 else 's'}"
        return f"next: {self.next_id} covers {self._share(self.next_images)} more ({images})"

    @property
    def lines(self) -> list[str]:
        """Both lines, as far as they say something."""
        return [line for line in (self.text, self.next_text) if line and self.images]

    def _share(self, images: int) -> str:
        # Rounded, but neither nothing nor everything unless it is.
        least, most = min(1, images), 100 - min(1, self.images - images)
        return f"{min(most, max(least, round(100 * images / max(1, self.images))))}%"


def progress(manifest: Manifest, names: Names) -> Progress:
    """Return how much of the target has a name, and which class should be named next."""
    images: Counter[str] = Counter()
    for info in manifest.classes:
        images[names.resolve(info.class_id)] += info.size
    discovered = [info for info in manifest.classes if info.kind == "discovered"]
    remaining = [info for info in discovered if names.resolve(info.class_id) == info.class_id]
    unnamed = [info for info in remaining if info.class_id not in names.labels]
    unnamed.sort(key=lambda info: (info.doubtful, -images[info.class_id]))
    without = images[UNKNOWN] + sum(images[info.class_id] for info in unnamed)
    following = unnamed[0].class_id if unnamed else None
    return Progress(
        images=images.total(),
        images_named=images.total() - without,
        images_dropped=images[UNKNOWN],
        classes=len(remaining),
        classes_named=len(remaining) - len(unnamed),
        next_id=following,
        next_images=images[following] if following else 0,
    )
