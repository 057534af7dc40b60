"""Attempts at parts whose workers die, and the files that end them.

Ray repeats the part of a worker that died, without end. A worker may die for reasons of its own: a
machine that is lost, memory that another worker took. But a file that ends its worker each time
would be tried for ever. After `MOST_DEATHS` deaths a part is decoded one file at a time, and each
file is noted before; one at which a worker died `MOST_DEATHS` more times is not tried again.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from scda.models.decoding.decoders import Decode, decoders
from scda.models.errors import ImageError, ScdaError
from scda.models.predictor import Predictor
from scda.models.preprocess import Prepared
from scda.serve.labelling.formats.rows import Row
from scda.serve.labelling.outputs import Options
from scda.serve.labelling.pipeline import rows_of

MOST_DEATHS = 3  # as many as Ray's `max_retries` of a task

NamedFiles = Sequence[tuple[str, str]]  # path in the row, and file or URI
Note = Callable[[int | None], None]  # takes the index of the file that is decoded next, or None


@dataclass(frozen=True)
class Attempt:
    """How a part is labelled this time."""

    one_by_one: bool = False
    deadly: frozenset[int] = frozenset()  # indices of files that are not tried again
    deaths_elsewhere: int = 0  # since files are decoded one by one, while none of them was


@dataclass
class Attempts:
    """The attempts at every part of one labelling; an actor on the machine of the driver."""

    _begun: Counter[str] = field(default_factory=Counter)
    _decoded: dict[str, int] = field(default_factory=dict)  # the file at work, of each part
    _deaths: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))

    def begin(self, part: str) -> Attempt:
        """Count an attempt, and the death that ended the one before."""
        self._begun[part] += 1
        if (index := self._decoded.pop(part, None)) is not None:
            self._deaths[part][index] += 1
        deaths = self._deaths[part]
        deadly = (index for index, count in deaths.items() if count >= MOST_DEATHS)
        unexplained = self._begun[part] - 1 - deaths.total() - MOST_DEATHS
        return Attempt(unexplained >= 0, frozenset(deadly), max(0, unexplained))

    def note(self, part: str, index: int | None) -> None:
        """Note the file of a part that is decoded next; None where none is."""
        self._decoded.pop(part, None)
        if index is not None:
            self._decoded[part] = index


def start_attempts(ray: ModuleType, selector: dict[str, str]) -> Any:
    """Return the handle of an actor of `Attempts` on the machines that a selector names."""
    # Without restarts: what it has counted would be lost.
    options = {"num_cpus": 0, "max_restarts": 0, "label_selector": selector}
    return ray.remote(Attempts).options(**options).remote()


def check_attempt(part: str, attempt: Attempt) -> None:
    """Check that a part is worth another attempt.

    Raises:
        ScdaError: If its workers died too often while no file was decoded.
    """
    if attempt.deaths_elsewhere > MOST_DEATHS:
        raise ScdaError(
            f"{part}: its worker died {MOST_DEATHS + attempt.deaths_elsewhere} times, and not by a "
            "file; check the memory of the machines, and rerun with --resume to continue"
        )


def rows_one_by_one(
    predictor: Predictor,
    batches: Iterable[NamedFiles],
    attempt: Attempt,
    note: Note,
    options: Options,
) -> Iterator[list[Row]]:
    """Yield the rows of batches, decoding one file at a time.

    The model gets the batches that it always gets: another division changes the last digits.

    Args:
        predictor: Loaded bundle.
        batches: Files of a part.
        attempt: The files that are not tried.
        note: Called before a file is decoded, and after the last one of a batch.
        options: Options of the rows.
    """
    index = 0
    with decoders(predictor.manifest.preprocessing, 1, options.limits) as decode:
        for batch in batches:
            prepared = []
            for number, (_, file) in enumerate(batch, index):
                prepared.append(_decoded(decode, number, file, attempt, note))
            note(None)
            index += len(batch)
            yield rows_of(predictor, [name for name, _ in batch], prepared, options)


def _decoded(decode: Decode, index: int, file: str, attempt: Attempt, note: Note) -> Prepared:
    if index in attempt.deadly:
        return ImageError("cannot_decode", f"the file ended its worker {MOST_DEATHS} times")
    note(index)
    return decode([file])[0]
