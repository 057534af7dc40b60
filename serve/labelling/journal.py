"""The journal of a labelling: a killed one resumes where it stopped.

It is a hidden file of JSON lines beside the first output: the job, then a flushed line per batch.
A resumed labelling writes its outputs anew from it, and removes it when they are complete.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from scda.models.errors import ImageError, UsageError
from scda.models.files import lock_path, only_writer, remove_left_behind, write_errors
from scda.models.predictor import Prediction
from scda.serve.labelling.formats.rows import Row

Job = dict[str, Any]  # plain JSON values that rows depend on


class Journal:
    """An open journal: the batches of an earlier labelling, and room for the next ones."""

    def __init__(self, path: Path, file: BinaryIO, *, resumed: bool) -> None:
        """Take a file positioned behind the line of its job, which may be an earlier one."""
        self._path, self._file = path, file
        self.resumed = resumed

    def batches(self) -> Iterator[list[Row]]:
        """Yield the rows of every complete batch, and cut off an incomplete one."""
        while True:
            start = self._file.tell()
            rows = _parsed(self._file.readline())
            if rows is None:
                break
            yield [_row(fields) for fields in rows]
        with write_errors(self._path):
            self._file.seek(start)
            self._file.truncate()

    def append(self, rows: Sequence[Row], *, features: bool) -> None:
        """Append a batch, with features if they are an output."""
        line = json.dumps([_fields(row, features=features) for row in rows]).encode()
        with write_errors(self._path):
            self._file.write(line + b"\n")
            self._file.flush()


@contextmanager
def open_journal(outputs: Sequence[Path], job: Job, *, resume: bool) -> Iterator[Journal | None]:
    """Open the journal of a labelling; it is removed at the end, and stays after an error.

    Args:
        outputs: Every file that will be written; the journal is beside the first one. Without
            outputs there is no journal.
        job: Properties that a resumed labelling must share with the earlier one.
        resume: Whether to continue an earlier labelling; otherwise its journal is discarded.

    Raises:
        UsageError: If the resumed job differs, no output is a file, or another process holds the
            journal.
    """
    if not outputs:
        if resume:
            raise UsageError(
                "--resume needs an output file; rows on standard output cannot be resumed"
            )
        yield None
        return
    path = journal_path(outputs[0])
    with only_writer(path):
        with _opened(path) as file:
            if not resume:
                file.truncate()
            resumed = _settle_job(path, file, job)
            for output in outputs:
                remove_left_behind(output)
            yield Journal(path, file, resumed=resumed)
        path.unlink()


def is_resumed(journal: Journal | None) -> bool:
    """Return whether the journal is that of an earlier labelling."""
    return journal is not None and journal.resumed


def replayed_batches(
    journal: Journal | None, files: Iterator[tuple[str, Path]]
) -> Iterator[list[Row]]:
    """Yield the batches of an earlier labelling, and advance `files` past theirs.

    Raises:
        UsageError: If the files have changed.
    """
    for rows in journal.batches() if journal else ():
        if [row.path for row in rows] != [name for name, _ in islice(files, len(rows))]:
            raise UsageError(
                f"cannot resume: the files up to {rows[-1].path} have changed; "
                "rerun without --resume to start again"
            )
        yield rows


def recorded(
    journal: Journal | None, batches: Iterable[list[Row]], *, features: bool
) -> Iterator[list[Row]]:
    """Yield batches of rows after appending them to the journal."""
    for rows in batches:
        if journal:
            journal.append(rows, features=features)
        yield rows


def journal_path(output: Path) -> Path:
    """Return the path of the journal of a labelling with this first output."""
    return output.with_name(f".{output.name}.journal")


def job_files(output: Path) -> tuple[Path, Path]:
    """Return the hidden files beside a first output: its journal, and that one's lock."""
    journal = journal_path(output)
    return journal, lock_path(journal)


def _opened(path: Path) -> BinaryIO:
    """Return a journal, created if it does not exist, opened at its start."""
    with write_errors(path):
        path.touch()
        return path.open("r+b")


def _settle_job(path: Path, file: BinaryIO, job: Job) -> bool:
    """Write the job, or compare it with the earlier one; return whether there was one."""
    before = _parsed(file.readline())
    if before is None:  # a new file, or an incomplete first line
        with write_errors(path):
            file.seek(0)
            file.truncate()
            file.write(json.dumps(job).encode() + b"\n")
            file.flush()
        return False
    check_same_job(path, before, job, "rerun without --resume to start again")
    return True


def check_same_job(place: object, before: Any, job: Job, advice: str) -> None:
    """Check that a resumed labelling does what the earlier one did.

    Args:
        place: What holds the earlier job, for the message.
        before: The earlier job, as read from JSON.
        job: Properties that both must share.
        advice: What to do if they differ.

    Raises:
        UsageError: If they differ; the message names the first difference.
    """
    if difference := find_difference(before, job):
        name, was, now = difference
        raise UsageError(f"{place}: cannot resume: {name} was {was!r}, is {now!r}; {advice}")


def find_difference(before: Any, job: Job) -> tuple[str, Any, Any] | None:
    """Return the first property that differs, as its name, the earlier value and the new one."""
    for name, now in json.loads(json.dumps(job)).items():
        was = before.get(name) if isinstance(before, dict) else None
        if now != was:
            return name, was, now
    return None


def _parsed(line: bytes) -> Any:
    """Return the value of a line, or None if it is incomplete."""
    if not line.endswith(b"\n"):
        return None
    try:
        return json.loads(line)
    except ValueError:
        return None


def _fields(row: Row, *, features: bool) -> dict[str, Any]:
    if isinstance(row.answer, ImageError):
        return {"path": row.path, "code": row.answer.code, "error": str(row.answer)}
    fields = {"path": row.path, "answer": row.answer.to_json(), "review": row.review}
    if features and row.features is not None:
        fields["features"] = base64.b64encode(row.features.astype("<f4").tobytes()).decode()
    return fields


def _row(fields: dict[str, Any]) -> Row:
    if "code" in fields:
        return Row(fields["path"], ImageError(fields["code"], fields["error"]))
    answer = fields["answer"]
    lists = {name: tuple(answer[name]) for name in ("nearest", "top")}
    text = fields.get("features")
    features = None if text is None else np.frombuffer(base64.b64decode(text), "<f4")
    return Row(fields["path"], Prediction(**{**answer, **lists}), fields["review"], features)
