from collections.abc import Callable
from pathlib import Path

import pytest

from scda.models.errors import ImageError, ScdaError
from scda.models.predictor import Predictor
from scda.serve.labelling.formats.rows import Row
from scda.serve.labelling.label import label_rows
from scda.serve.labelling.outputs import DEFAULTS
from scda.serve.labelling.ray.attempts import (
    MOST_DEATHS,
    Attempt,
    Attempts,
    NamedFiles,
    check_attempt,
    rows_one_by_one,
)
from tests.bundles import RGB, picture

PART = "part-0000-0000000-0.parquet"


class DeathError(Exception):
    """A worker ended; only what `Attempts` counted is left of it."""


def attempts_until_done(
    attempts: Attempts, work: Callable[[Attempt, Callable[[int | None], None]], None]
) -> int:
    """Repeat a part whose worker dies, as Ray does; return the number of attempts."""
    for number in range(1, 1000):
        attempt = attempts.begin(PART)
        check_attempt(PART, attempt)
        try:
            work(attempt, lambda index: attempts.note(PART, index))
        except DeathError:
            continue
        return number
    raise AssertionError("endless")


@pytest.fixture
def files(tmp_path: Path) -> NamedFiles:
    for number in range(7):
        data = picture(list(RGB)[number % len(RGB)]) if number != 2 else b"text"
        (tmp_path / f"{number}.jpg").write_bytes(data)
    return [(path.name, str(path)) for path in sorted(tmp_path.iterdir())]


def batches(files: NamedFiles) -> list[NamedFiles]:
    return [files[first : first + 3] for first in range(0, len(files), 3)]


def test_files_that_end_their_worker_become_rows_and_the_others_keep_theirs(
    predictor: Predictor, files: NamedFiles, tmp_path: Path
) -> None:
    rows: list[Row] = []

    def work(attempt: Attempt, note: Callable[[int | None], None]) -> None:
        if not attempt.one_by_one:
            raise DeathError

        def deadly(index: int | None) -> None:
            note(index)
            if index in (1, 5):
                raise DeathError

        found = rows_one_by_one(predictor, batches(files), attempt, deadly, DEFAULTS)
        rows[:] = [row for batch in found for row in batch]

    assert attempts_until_done(Attempts(), work) == MOST_DEATHS + 2 * MOST_DEATHS + 1
    bad = {row.path: row.answer for row in rows if isinstance(row.answer, ImageError)}
    assert {name: error.code for name, error in bad.items()} == {
        "1.jpg": "cannot_decode",
        "2.jpg": "not_an_image",
        "5.jpg": "cannot_decode",
    }
    assert str(bad["1.jpg"]) == "the file ended its worker 3 times"
    for number in (1, 5):  # the model got the good files of the same batches
        (tmp_path / f"{number}.jpg").write_bytes(b"no image")
    local = list(label_rows(predictor, [tmp_path], batch_size=3))
    assert [row.path for row in rows] == [row.path for row in local]
    good = [row for row in rows if not isinstance(row.answer, ImageError)]
    assert [row.answer for row in good] == [
        row.answer for row in local if not isinstance(row.answer, ImageError)
    ]


def test_a_worker_that_died_for_other_reasons_blames_no_file() -> None:
    attempts = Attempts()
    died: list[Attempt] = []

    def work(attempt: Attempt, note: Callable[[int | None], None]) -> None:
        assert not attempt.deadly
        assert attempt.one_by_one == (len(died) >= MOST_DEATHS)
        if len(died) < 5:
            note(7)
            note(None)  # all files of the batch are decoded
            died.append(attempt)
            raise DeathError

    assert attempts_until_done(attempts, work) == 6
    assert attempts.begin("part-0000-0000001-1.parquet") == Attempt()


def test_a_file_is_tried_as_often_as_a_part_before_it_is_given_up() -> None:
    attempts = Attempts()
    tried: list[Attempt] = []

    def work(attempt: Attempt, note: Callable[[int | None], None]) -> None:
        if len(tried) < MOST_DEATHS + 2:
            tried.append(attempt)
            note(0 if attempt.one_by_one else None)
            raise DeathError
        assert not attempt.deadly  # two deaths at file 0

    attempts_until_done(attempts, work)


def test_a_part_whose_workers_die_without_a_file_ends_the_labelling() -> None:
    def work(attempt: Attempt, note: Callable[[int | None], None]) -> None:
        raise DeathError

    with pytest.raises(ScdaError, match=rf"{PART}: its worker died 7 times, and not by a file; .*"):
        attempts_until_done(Attempts(), work)
