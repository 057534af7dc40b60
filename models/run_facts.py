"""The facts about a run that its bundle.json and config.json state, where they are read later."""

from collections.abc import Callable, Mapping
from typing import Any

from scda.models import fields

_KINDS: dict[str, Callable[[Mapping[str, Any], str], object]] = {
    "source": fields.path,
    "target": fields.path,
    "config": fields.table,
    "limits": fields.table,
    "notes": fields.texts,
    "failure": fields.text,
    "seconds": fields.number,
}


def check_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts about a run; those that are read later have the type that they need.

    Args:
        facts: `run` of bundle.json, or config.json; every fact may be missing.

    Raises:
        TypeError: If one has another type.
    """
    for name, kind in _KINDS.items():
        if name in facts:
            kind(facts, name)
    return facts
