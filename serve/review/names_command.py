"""`scda-adapt names`: the edits of the review page from the shell, all of one call or none."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scda.models.bundle import Manifest
from scda.models.errors import UsageError
from scda.models.names import Names
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
