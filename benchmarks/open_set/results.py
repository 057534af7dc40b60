"""The file of results: one flat JSON object per run, one per line; a key identifies a run."""

import json
from pathlib import Path
from typing import Any

from scda.models.errors import UsageError

Record = dict[str, Any]
Key = tuple[Any, ...]
_KEY = ("method", "backbone", "weights", "preset", "protocol", "study", "variant", "task", "seed")


def key(record: Record) -> Key:
    """Return the key of a record, which is equal for two records of the same run."""
    return tuple(record.get(name) for name in _KEY)


def read(path: Path) -> list[Record]:
    """Return the records of a file; an incomplete last line of a killed run is left out.

    Raises:
        UsageError: If another line is not a JSON object, or the file cannot be read.
    """
    try:
        text = path.read_text("utf-8") if path.exists() else ""
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot read the results: {error}") from None
    *whole, last = text.split("\n")
    records = [_record(path, number, line) for number, line in enumerate(whole, 1) if line]
    return records + [record for record in [_parsed(last)] if isinstance(record, dict)]


def append(path: Path, record: Record) -> None:
    """Append a record; an incomplete last line is overwritten.

    Raises:
        UsageError: If the file is not a file of results.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    with path.open("r+b") as file:
        text = file.read()
        end = text.rfind(b"\n") + 1
        torn = text[end:]
        if torn and not isinstance(_parsed(torn.decode(errors="replace")), dict):
            if not torn.startswith(b'{"'):
                raise UsageError(f"{path}: not a results file; --out would overwrite it")
            file.seek(end)
            file.truncate()
        elif torn:
            file.write(b"\n")
        file.write(json.dumps(record).encode() + b"\n")


def _record(path: Path, number: int, line: str) -> Record:
    record = _parsed(line)
    if not isinstance(record, dict):
        raise UsageError(f"{path}: line {number} is not a JSON object; expected a results file")
    return record


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
