"""Output of commands: one JSON object, or a table of names and values."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from scda.models.files import real_path


def print_json(fields: Mapping[str, Any]) -> None:
    """Print one JSON object on one line, in ASCII."""
    typer.echo(json.dumps(fields, ensure_ascii=True))


def print_table(fields: Mapping[str, Any]) -> None:
    """Print one line per name and value; a list takes one line as well, None is `-`."""
    width = max(map(len, fields))
    for name, value in fields.items():
        text = (", ".join(value) or "none") if isinstance(value, list) else value
        typer.echo(f"{name:{width}}  {'-' if text is None else text}")


def print_report_hint(bundle: Path) -> None:
    """Print the command that writes the current names into the report."""
    run = real_path(bundle).parent
    if (run / "report.html").is_file():
        typer.echo(f"run `scda-adapt report {run}` to write the names into the report", err=True)
