"""The extras of the package, and the error if the libraries of one are missing."""

from collections.abc import Iterator
from contextlib import contextmanager

from scda.models.errors import UsageError


@contextmanager
def needs_extra(name: str) -> Iterator[None]:
    """Turn the error of a missing library into one line with the extra to install.

    Args:
        name: The extra of the package that brings the libraries imported in the block.

    Raises:
        UsageError: If one of them is missing.

    Example:
        >>> with needs_extra("train"):
        ...     import torch
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("scda"):  # an error of our own
            raise
        raise UsageError(f"{error.name} is missing; pip install 'scda[{name}]'") from None
