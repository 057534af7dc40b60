"""What an audit finds: one finding per image, file or class, as rows of a table."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from scda.adapt.runs.tables import write_table
from scda.models.errors import GateError
from scda.models.files import write_atomically


class Kind(StrEnum):
    """The kinds of findings, in the order of the page."""

    LABEL = "label"
    TWO_CLASSES = "two classes"
    LEAK = "leak"
    COPY = "copy"
    FEW = "few images"
    ALIKE = "alike images"
    NAME = "name"
    REJECTED = "rejected"


COLUMNS = ("finding", "domain", "path", "class", "suggested", "score", "other", "remove", "message")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One finding.

    Attributes:
        kind: What was found.
        domain: `source` or `target`.
        path: Path relative to the folder of the domain; of a class, its folder.
        label: Class of a source image or of a class folder.
        suggested: Class that a wrong label should perhaps be.
        score: Of a label: score of the label minus that of the suggested class, below 0.
        other: Image that it is a copy of, or the most similar one of the suggested class.
        remove: Whether the list of files to leave out has it.
        message: What was found, and what to do.
    """

    kind: Kind
    domain: str
    path: str
    label: str = ""
    suggested: str = ""
    score: float | None = None
    other: str = ""
    remove: bool = False
    message: str


def write_findings(path: Path, findings: Iterable[Finding]) -> None:
    """Write the table of findings."""
    write_table(
        path,
        COLUMNS,
        (
            (
                *(one.kind.value, one.domain, one.path, one.label, one.suggested),
                "" if one.score is None else f"{one.score:.4f}",
                *(one.other, str(one.remove).lower(), one.message),
            )
            for one in findings
        ),
    )


def read_findings(path: Path) -> list[Finding] | None:
    """Return the findings of a table; None if there is no such file.

    Raises:
        GateError: If it is damaged.
    """
    if not path.is_file():
        return None
    # A spreadsheet that people edit the table with writes a mark in front, and TRUE.
    text = path.read_bytes().removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    try:
        return [
            Finding(
                kind=Kind(row["finding"]),
                domain=row["domain"],
                path=row["path"],
                label=row["class"],
                suggested=row["suggested"],
                score=float(row["score"]) if row["score"] else None,
                other=row["other"],
                remove=row["remove"].casefold() == "true",
                message=row["message"],
            )
            for row in csv.DictReader(io.StringIO(text, newline=""))
        ]
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise GateError(f"{path}: damaged: {error!r}; remove it, or train the run again") from None


def write_fix_list(path: Path, findings: Sequence[Finding], roots: dict[str, Path]) -> int:
    """Write the files to leave out, one absolute path per line, and return their number.

    Args:
        path: File to write.
        findings: All findings.
        roots: Domain → its folder.
    """
    files = dict.fromkeys(roots[one.domain].absolute() / one.path for one in findings if one.remove)
    # Names with a line break cannot be told from two names; NUL bytes end those of `find -print0`.
    end = "\0" if any("\n" in str(file) for file in files) else "\n"
    text = "".join(f"{file}{end}" for file in files)
    write_atomically(path, text.encode("utf-8", "surrogateescape"))
    return len(files)
