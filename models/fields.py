"""Fields of JSON files, of the type that is expected; another one is told with its name."""

import math
import os
from collections.abc import Collection, Mapping
from typing import Any

_LONGEST = 60  # largest number of characters of a value in a message


def check_names(fields: Mapping[str, Any], known: Collection[str]) -> None:
    """Check that there is no unknown field.

    Raises:
        TypeError: If there is one.
    """
    if unknown := min(fields.keys() - known, default=""):
        raise TypeError(f"{unknown!a} is an unknown field")


def text(fields: Mapping[str, Any], name: str) -> str:
    """Return a text.

    Raises:
        TypeError: If the field is missing or of another type. So do the other functions.
    """
    value: str = _checked(fields, name, str, "text")
    return value if _is_unicode(value) else _refuse(name, value, "Unicode text")


def path(fields: Mapping[str, Any], name: str) -> str:
    """Return a text that can be a path on this machine."""
    value: str = _checked(fields, name, str, "a path")
    try:
        is_path = b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        is_path = False
    return value if is_path else _refuse(name, value, "a path")


def texts(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return a list of texts."""
    values = _checked(fields, name, list, "a list of texts")
    if not all(isinstance(value, str) and _is_unicode(value) for value in values):
        _refuse(name, values, "a list of texts")
    return tuple(values)


def tables(fields: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a list of JSON objects."""
    values: list[Any] = _checked(fields, name, list, "a list of objects")
    if not all(isinstance(value, dict) for value in values):
        _refuse(name, values, "a list of objects")
    return values


def table(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a JSON object."""
    value: dict[str, Any] = _checked(fields, name, dict, "an object")
    return value


def optional_table(fields: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return a JSON object, or None if the field is missing or null."""
    return None if fields.get(name) is None else table(fields, name)


def count(fields: Mapping[str, Any], name: str) -> int:
    """Return a whole number from 0."""
    value: int = _checked(fields, name, int, "a whole number")
    return value if value >= 0 and not isinstance(value, bool) else _refuse(name, value, "a count")


def number(fields: Mapping[str, Any], name: str) -> float:
    """Return a finite number."""
    value: float = _checked(fields, name, int | float, "a number")
    try:
        is_finite = not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # more than a float can hold
        is_finite = False
    return value if is_finite else _refuse(name, value, "a finite number")


def numbers(fields: Mapping[str, Any], name: str) -> dict[str, float]:
    """Return an object of finite numbers."""
    values = table(fields, name)
    return {key: number(values, key) for key in values}


def _checked(fields: Mapping[str, Any], name: str, kind: Any, expected: str) -> Any:
    if name not in fields:
        raise TypeError(f"{name} is missing")
    value = fields[name]
    return value if isinstance(value, kind) else _refuse(name, value, expected)


def _is_unicode(value: str) -> bool:
    """Return whether a text has no half of a surrogate pair, which JSON can hold."""
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def _refuse(name: str, value: object, expected: str) -> Any:
    shown = ascii(value)
    shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
    raise TypeError(f"{name} is {shown}; expected {expected}")
