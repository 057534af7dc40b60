"""Options of the configuration: default, help, allowed values and visibility, each stated once.

The command line, the TOML reader, the checks and the tables of the documentation read them here.
"""

import dataclasses
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from typing import Any

from scda.models.errors import UsageError

LARGEST = 100_000  # of a whole number: no machine does more steps, classes or processes
_KINDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    tuple: "a list of whole numbers",
}


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option; its bounds apply to every number of a list."""

    name: str
    type: type  # str, int, float, bool, or tuple for whole numbers
    default: Any
    help: str  # one sentence
    panel: str  # group in the help of the command line and in the tables
    metavar: str = ""  # stands for the value in the help; empty shows the choices or the type
    choices: tuple[str, ...] = ()  # empty allows any text
    minimum: float = -math.inf  # inclusive
    maximum: float = math.inf  # inclusive; of whole numbers `LARGEST` if none is stated
    above: float = -math.inf  # exclusive
    below: float = math.inf  # exclusive
    shown: bool = True  # on the command line; otherwise only in a TOML file and in Python
    aliases: tuple[str, ...] = ()  # old names, which still work

    @property
    def allowed(self) -> str:
        """Description of the allowed values; empty if the type is the only condition."""
        if self.choices:
            *others, last = self.choices
            return f"{', '.join(others)} or {last}"
        bounds = {
            "at least": self.minimum,
            "more than": self.above,
            "at most": self.maximum,
            "less than": self.below,
        }
        return " and ".join(f"{word} {n}" for word, n in bounds.items() if math.isfinite(n))

    def check(self, value: Any) -> None:
        """Check the type and the bounds of a value.

        Raises:
            UsageError: If the value is not allowed.
        """
        if expected := self._expected_instead_of(value):
            found = list(value) if isinstance(value, tuple) else value
            raise UsageError(f"{self.name} is {found!r}; expected {expected}")

    def _expected_instead_of(self, value: Any) -> str:
        """Return what was expected, or an empty text if the value is allowed."""
        if not self._has_type(value):
            return _KINDS[self.type]
        if self.type is str:
            return self.allowed if self.choices and value not in self.choices else ""
        numbers = value if self.type is tuple else (value,)
        if not numbers:
            return "at least one number"
        if not all(map(math.isfinite, numbers)):  # TOML knows nan and inf
            return "a finite number"
        return "" if all(map(self._is_within, numbers)) else self.allowed

    def _has_type(self, value: Any) -> bool:
        if self.type is tuple:
            return isinstance(value, tuple) and all(map(_is_whole, value))
        if self.type is int:
            return _is_whole(value)
        if self.type is float:
            return isinstance(value, Real) and not isinstance(value, bool)
        return isinstance(value, self.type)

    def _is_within(self, number: float) -> bool:
        return self.minimum <= number <= self.maximum and self.above < number < self.below


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def option(default: Any, *, help: str, panel: str, **more: Any) -> Any:
    """Return a dataclass field that is an option.

    Args:
        default: Value where none is given.
        help: What the option does, in one sentence.
        panel: Group of options that it belongs to.
        more: Other fields of `Option`; the name and the type come from the dataclass.
    """
    whole = isinstance(default, int | tuple) and not isinstance(default, bool)
    bounds = {"maximum": LARGEST} if whole else {}
    stated = {"help": help, "panel": panel, **bounds, **more}
    return dataclasses.field(default=default, metadata={"option": stated})


@cache
def options_of(config: type) -> dict[str, Option]:
    """Return the options of a dataclass by name, in its order."""
    return {
        field.name: Option(
            name=field.name,
            type=typing.get_origin(field.type) or typing.cast(type, field.type),
            default=field.default,
            **field.metadata["option"],
        )
        for field in dataclasses.fields(config)
    }


def current_names(renamed: Mapping[str, str], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values under the names that options have now.

    Args:
        renamed: Current names by old name.
        fields: Values by old or current name.

    Raises:
        UsageError: If an option is given under its old name and its new one.
    """
    for old, new in renamed.items():
        if old in fields and new in fields:
            raise UsageError(f"{old} is the old name of {new}; expected one of them")
    return {renamed.get(name, name): value for name, value in fields.items()}
