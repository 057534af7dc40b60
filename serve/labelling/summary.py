"""Counts and summary of a labelling."""

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scda.models.errors import ImageError
from scda.models.files import write_atomically, write_errors
from scda.serve.labelling.formats.rows import Row

HEAD = b'{\n "labels": {'  # beginning of every summary file


@dataclass(frozen=True)
class Tally:
    """The counts of a labelling so far."""

    classes: Counter[tuple[str, str]] = field(default_factory=Counter)  # id and label
    errors: Counter[str] = field(default_factory=Counter)

    def add(self, rows: Sequence[Row]) -> None:
        """Count rows."""
        for answer in (row.answer for row in rows):
            if isinstance(answer, ImageError):
                self.errors[answer.code] += 1
            else:
                self.classes[answer.class_id, answer.label] += 1

    @property
    def num_done(self) -> int:
        """Number of files with a row."""
        return self.classes.total() + self.num_failed

    @property
    def num_failed(self) -> int:
        """Number of files with an error."""
        return self.errors.total()

    def counts(self) -> dict[str, dict[str, int]]:
        """Return files per label and per error code, most frequent first."""
        return {
            "labels": by_label(self.classes),
            "errors": dict(self.errors.most_common()),
        }


def by_label(classes: Counter[tuple[str, str]]) -> dict[str, int]:
    """Return files per label, most frequent first; behind a label of several classes is the id.

    Args:
        classes: Files per class id and label.
    """
    shared = Counter(label for _, label in classes)
    return {
        label if shared[label] == 1 else f"{label} ({class_id})": count
        for (class_id, label), count in classes.most_common()
    }


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Results of one labelling."""

    labels: dict[str, int]  # files per class, as in `by_label`
    errors: dict[str, int]  # error code → files, most frequent first
    hidden: int  # files and folders skipped because their name starts with a dot
    linked_folders: int  # links to folders that were not followed
    seconds: float
    provider: str  # cpu, cuda or openvino
    model_id: str
    names_version: int
    resumed: int = 0  # files labelled before the labelling was resumed
    excluded: int | None = None  # files left out by a list; None without a list

    @property
    def num_failed(self) -> int:
        """Number of files with an error row."""
        return sum(self.errors.values())

    @property
    def num_files(self) -> int:
        """Number of files with a row."""
        return sum(self.labels.values()) + self.num_failed

    @property
    def images_per_second(self) -> float:
        """Files per second, with bad files and without resumed ones."""
        return (self.num_files - self.resumed) / max(self.seconds, 1e-9)

    def to_json(self) -> dict[str, Any]:
        """Return the fields, the totals and the rate as plain JSON values."""
        return {
            **dataclasses.asdict(self),
            "files": self.num_files,
            "failed": self.num_failed,
            "images_per_second": round(self.images_per_second, 2),
        }

    def write(self, path: Path) -> None:
        """Write the summary to a JSON file.

        Raises:
            UsageError: If it cannot be written.
        """
        with write_errors(path):
            write_atomically(path, json.dumps(self.to_json(), indent=1) + "\n")

    def lines(self) -> list[str]:
        """Return the summary as lines of text."""
        return [
            f"{self.num_files} files in {self.seconds:.1f} s, "
            f"{self.images_per_second:.1f} images/s on {self.provider}",
            *(f"{count:8}  {label}" for label, count in self.labels.items()),
            *(f"{count:8}  error: {code}" for code, count in self.errors.items()),
            *([f"{self.resumed:8}  resumed from an earlier labelling"] if self.resumed else []),
            *([] if self.excluded is None else [self._excluded_line()]),
            *([f"{self.hidden:8}  hidden, skipped"] if self.hidden else []),
            *(
                [f"{self.linked_folders:8}  linked folders, skipped (see --follow-symlinks)"]
                if self.linked_folders
                else []
            ),
        ]

    def _excluded_line(self) -> str:
        expected = "" if self.excluded else "; expected absolute paths, or those of rows"
        return f"{self.excluded:8}  left out by the list of --exclude-from{expected}"
