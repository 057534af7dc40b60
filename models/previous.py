"""What became of the classes of the model before: the field `previous` of bundle.json."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from scda.models.fields import check_names, count, table, tables, text, texts


class Became(StrEnum):
    """What became of a class; the values stand in bundle.json."""

    KEPT = "kept"
    SPLIT = "split"
    UNITED = "united"
    VANISHED = "vanished"
    NOW_KNOWN = "now known"
    RETURNED = "returned"


@dataclass(frozen=True, kw_only=True)
class Fate:
    """What became of one class of the model before."""

    class_id: str
    label: str  # what people called it then; its id if nobody named it
    became: Became
    into: tuple[str, ...] = ()  # the classes that have its images now, its own id first

    @property
    def name(self) -> str:
        """Its id, with its label if it had one."""
        return _name(self.class_id, self.label)

    @property
    def keeps_id(self) -> bool:
        """Whether a class of the model has its id."""
        return self.class_id in self.into

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Return what `dataclasses.asdict` gave.

        Raises:
            TypeError: If a field is missing, unknown or of another type.
            ValueError: If there is no such fate.
        """
        check_names(fields, {"class_id", "label", "became", "into"})
        return cls(
            class_id=text(fields, "class_id"),
            label=text(fields, "label"),
            became=Became(text(fields, "became")),
            into=texts(fields, "into"),
        )


@dataclass(frozen=True, kw_only=True)
class Newcomer:
    """A class that the model before did not have."""

    class_id: str
    label: str
    of: tuple[str, ...] = ()  # classes before that many of its images had; empty if none

    @property
    def name(self) -> str:
        """Its id, with its label if it has one."""
        return _name(self.class_id, self.label)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Return what `dataclasses.asdict` gave.

        Raises:
            TypeError: If a field is missing, unknown or of another type.
        """
        check_names(fields, {"class_id", "label", "of"})
        return cls(
            class_id=text(fields, "class_id"), label=text(fields, "label"), of=texts(fields, "of")
        )


@dataclass(frozen=True, kw_only=True)
class Previous:
    """The model before, and what changed since."""

    id: str  # of the model before
    in_common: int  # images of the target that its target had, too
    # In the order of its outputs, then those that had vanished and returned.
    classes: tuple[Fate, ...]
    new: tuple[Newcomer, ...]  # in the order of the outputs
    retired: dict[str, str]  # ids that are never given again, and what the classes were called
    # Classes that keep a name, a merge or a drop although many of their images were in others, and
    # which those are; none where half or more of the images in common under their earlier name, or
    # of their own, are in other classes now.
    to_confirm: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def lines(self) -> list[str]:
        """What changed since, one sentence per line."""
        alone = (
            "" if self.in_common else "; classes are found by their centroids: check their names"
        )
        return [
            f"after {self.id}: {self.in_common} of the target's images were in its target{alone}",
            *self._kept(),
            *(f"{fate.name}: {_told(fate)}" for fate in self.changed),
            *(f"{one.name}: new{_origin(one)}" for one in self.new),
            *(f"{self.name(i)}: to confirm: {self.why_to_confirm(i)}" for i in self.to_confirm),
        ]

    def why_to_confirm(self, class_id: str) -> str:
        """Return why a class of `to_confirm` is one, as the end of a sentence."""
        others = self.to_confirm[class_id]
        if not others:
            return (
                "half or more of the images in common under its earlier name, or of its own, "
                "are in other classes now"
            )
        is_new = "it is a new class, and " if class_id in {one.class_id for one in self.new} else ""
        return f"{is_new}many of its images were {', '.join(map(self.name, others))} before"

    def name(self, class_id: str) -> str:
        """Return the id of a class, with the label that people gave it if there is one."""
        labels = {fate.class_id: fate.label for fate in self.classes}
        labels |= {one.class_id: one.label for one in self.new}
        return _name(class_id, labels.get(class_id, class_id))

    @property
    def changed(self) -> list[Fate]:
        """The classes that were not simply kept."""
        return [fate for fate in self.classes if fate.became is not Became.KEPT]

    def _kept(self) -> Iterator[str]:
        there = [fate for fate in self.classes if fate.became is not Became.RETURNED]
        kept = [fate for fate in there if fate.keeps_id]
        found = [fate for fate in kept if fate.class_id.startswith("discovered-")]
        named = sum(fate.label != fate.class_id for fate in found)
        yield (
            f"{len(kept)} of {len(there)} classes keep their ids, {len(found)} of them "
            f"discovered ones, of which {named} have names"
        )

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Return what `dataclasses.asdict` gave.

        Raises:
            TypeError: If a field is missing, unknown or of another type.
            ValueError: If a class became what is none of `Became`.
        """
        check_names(fields, {"id", "in_common", "classes", "new", "retired", "to_confirm"})
        retired = table(fields, "retired")
        to_confirm = table({"to_confirm": {}, **fields}, "to_confirm")  # not in the first version
        return cls(
            id=text(fields, "id"),
            in_common=count(fields, "in_common"),
            classes=tuple(map(Fate.from_json, tables(fields, "classes"))),
            new=tuple(map(Newcomer.from_json, tables(fields, "new"))),
            retired={class_id: text(retired, class_id) for class_id in retired},
            to_confirm={class_id: texts(to_confirm, class_id) for class_id in to_confirm},
        )


def _name(class_id: str, label: str) -> str:
    return class_id if label == class_id else f"{class_id} ({label})"


def _told(fate: Fate) -> str:
    others = ", ".join(class_id for class_id in fate.into if class_id != fate.class_id)
    if fate.became is Became.SPLIT:
        kept = ", and keeps its id" if fate.keeps_id else ""
        return f"split: many of its images are in {others} now{kept}"
    if fate.became is Became.UNITED:
        return f"united with others: most of its images are in {others} now"
    if fate.became is Became.NOW_KNOWN:
        return f"now known: the source has it as {others}"
    if fate.became is Became.RETURNED:
        return "had vanished, and is back with its id and name"
    return f"vanished{f'; its images are in {others} now' if others else ''}"


def _origin(new: Newcomer) -> str:
    return f", with many images of {', '.join(new.of)}" if new.of else ""
