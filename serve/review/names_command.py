"""`scda-adapt names`: what the review page does, from the shell, all of a call or nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scda.models.bundle import Manifest
from scda.models.errors import UsageError
from scda.models.names import Names
from scda.models.naming import Naming


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What one call of the command asks for; carried out in this order."""

    undo: bool = False
    restores: Sequence[str] = ()  # class ids
    drops: Sequence[str] = ()  # class ids
    merges: Sequence[str] = ()  # class ids with commas between, the one that stays first
    labels: Sequence[str] = ()  # CLASS_ID=LABEL

    def __bool__(self) -> bool:
        """Return whether anything is asked for."""
        return any((self.undo, self.restores, self.drops, self.merges, self.labels))

    def apply(self, naming: Naming, names: Names) -> Names:
        """Return the names after every order; made for `change_names`.

        Raises:
            UsageError: If one of them is refused; then none is carried out.
        """
        if self.undo:
            names = naming.undo(names)
        for class_id in self.restores:
            names = naming.restore(names, class_id)
        for class_id in self.drops:
            names = naming.drop(names, class_id)
        for class_ids in self.merges:
            names = naming.merge(names, [part.strip() for part in class_ids.split(",")])
        for order in self.labels:
            class_id, equals, label = order.partition("=")
            if not equals:
                raise UsageError(f"--set {order}: want CLASS_ID=LABEL")
            names = naming.name(names, class_id.strip(), label)
        return names


def listing(manifest: Manifest, names: Names) -> list[dict[str, Any]]:
    """Return one row per class of the bundle, as it is called now."""
    return [
        {
            "class_id": info.class_id,
            "kind": info.kind,
            "size": info.size,
            "label": names.label(info),
            "answers_as": names.resolve(info.class_id),
        }
        for info in manifest.classes
    ]


def lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the rows of `listing` as a person reads them."""
    return [
        f"{row['class_id']:16} {row['size']:7} images  {row['label']}"
        + (f"  -> {row['answers_as']}" if row["answers_as"] != row["class_id"] else "")
        for row in rows
    ]
