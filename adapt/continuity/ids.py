"""Ids of classes; one that was given once is never given to another class."""

from collections.abc import Iterable, Iterator
from itertools import count


def fresh_ids(kind: str, taken: Iterable[str] = ()) -> Iterator[str]:
    """Yield the ids of new classes, from the first one above all that were ever given.

    Args:
        kind: known or discovered.
        taken: All ids that were ever given.
    """
    numbers = (class_id.removeprefix(f"{kind}-") for class_id in taken)
    first = max((int(number) + 1 for number in numbers if number.isdecimal()), default=0)
    return (f"{kind}-{number:03d}" for number in count(first))
