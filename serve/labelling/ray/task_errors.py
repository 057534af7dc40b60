"""Errors of a user that a task on another machine finds."""

from collections.abc import Iterator
from contextlib import contextmanager

from scda.models.errors import ScdaError


class TaskError(Exception):
    """Carries an error of a user; Ray appends lines of its own to the text of an exception."""


@contextmanager
def carried_errors() -> Iterator[None]:
    """Raise every error of a user as a `TaskError`."""
    try:
        yield
    except ScdaError as error:
        raise TaskError(error) from None


def carried_error(error: object) -> ScdaError | None:
    """Return the error of a user that a task raised, or None if there is none."""
    found = error.args[0] if isinstance(error, TaskError) and error.args else None
    return found if isinstance(found, ScdaError) else None
