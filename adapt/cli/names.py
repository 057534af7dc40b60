"""`scda-adapt names`: edit the names of classes from the shell."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scda.adapt.cli.options import AsJson, Bundle, Verbose
from scda.adapt.cli.output import print_json, print_report_hint

if TYPE_CHECKING:
    from scda.models.names import Names
    from scda.serve.review.names_command import Progress


def names(
    bundle: Bundle,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="ID=LABEL", help="Name a class; an empty label removes its name."
        ),
    ] = None,
    merge: Annotated[
        list[str] | None,
        typer.Option(metavar="ID,ID", help="Merge classes into the first one."),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Drop a class: its images become `unknown`."),
    ] = None,
    restore: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Undo the merge or drop of a class.")
    ] = None,
    if_version: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Refuse if an edited class has changed since this version of the names "
            "(`names_version` of --json).",
        ),
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Undo the last change.")] = False,
    show: Annotated[
        bool, typer.Option("--list", help="List every class with its current name (default).")
    ] = False,
    history: Annotated[bool, typer.Option("--history", help="List every change so far.")] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Name, merge and drop classes; a call makes all of its edits or none."""
    from scda.models.bundle import bundle_folder, read_manifest
    from scda.models.names import read_names
    from scda.models.naming import change_names
    from scda.serve.review.names_command import Orders, lines, listing, progress

    orders = Orders(
        undo=undo,
        restores=restore or (),
        drops=drop or (),
        merges=merge or (),
        labels=labels or (),
        version=if_version,
    )
    folder = bundle_folder(bundle)
    manifest = read_manifest(folder, checked=False)
    if orders:
        current = change_names(folder, orders.apply)
        print_report_hint(folder)
    else:
        current = read_names(folder, manifest)
    rows, covered = listing(manifest, current), progress(manifest, current)
    if as_json:
        _print_as_json(current, rows, covered, history=history)
        return
    if show or not history:
        typer.echo("\n".join([*lines(rows), *covered.lines]))
    if history:
        for change in current.history:
            typer.echo(f"{change.version:5}  {change.at}  {change.did}")


def _print_as_json(
    current: "Names", rows: list[dict[str, Any]], covered: "Progress", *, history: bool
) -> None:
    changes = [{"version": c.version, "at": c.at, "did": c.did} for c in current.history]
    fields = {"names_version": current.version, "classes": rows, "progress": asdict(covered)}
    print_json(fields | ({"history": changes} if history else {}))
