"""An earlier model, as far as a new one takes over from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from scda.adapt.continuity.memory import Memory
from scda.models.bundle import ClassInfo, Manifest
from scda.models.names import UNKNOWN, Names


@dataclass(frozen=True)
class Earlier:
    """An earlier model: its classes, their names, and which class every image of its target had."""

    manifest: Manifest
    names: Names
    images: Mapping[str, str] = field(default_factory=dict)  # SHA-256 → class id
    memory: Memory | None = None  # None in a bundle of an older version

    @cached_property
    def row(self) -> dict[str, int]:
        """The output index of every class id."""
        return {class_id: row for row, class_id in enumerate(self.manifest.class_ids)}

    @property
    def answers(self) -> list[int]:
        """The class that each class was merged into, or itself; drops do not count."""
        merges = self.names.merges
        return [self.row[merges.get(class_id, class_id)] for class_id in self.row]

    @property
    def retired(self) -> dict[str, str]:
        """Ids that are never given again, and what their classes were called."""
        return self.manifest.previous.retired if self.manifest.previous else {}

    def label(self, info: ClassInfo) -> str:
        """Return what people called a class: the label of the class that answers for it."""
        into = self.names.resolve(info.class_id)
        if into in (UNKNOWN, info.class_id):
            return self.names.label(info)
        return self.names.label(self.manifest.classes[self.row[into]])
