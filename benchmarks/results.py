"""The file of results: one flat JSON object per run, one per line; a run is known by its key."""

import json
from pathlib import Path
from typing import Any

from scda.models.errors import UsageError

Record = dict[str, Any]
Key = tuple[Any, ...]
_KEY = ("method", "backbone", "preset", "protocol", "study", "variant", "task", "seed")


def key(record: Record) -> Key:
    """Return what makes two records the same run."""
    return tuple(record.get(name) for name in _KEY)


def read(path: Path) -> list[Record]:
    """Return the records of a file; a last line that a killed run left torn is no record.

    Raises:
        UsageError: If another line is no JSON object, or the file cannot be read.
    """
    try:
        text = path.read_text("utf-8") if path.exists() else ""
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot read the results: {error}") from None
    *whole, _ = text.split("\n")  # what follows the last line feed was not finished
    return [_record(path, number, line) for number, line in enumerate(whole, 1) if line]


def append(path: Path, record: Record) -> None:
    """Add a record; a torn last line is overwritten."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    with path.open("r+b") as file:
        file.seek(file.read().rfind(b"\n") + 1)
        file.truncate()
        file.write(json.dumps(record).encode() + b"\n")


def _record(path: Path, number: int, line: str) -> Record:
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise UsageError(f"{path}: line {number} is no JSON object; is it a results file?")
    return record
