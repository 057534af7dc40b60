"""`scda-adapt train`: train on two folders; write a run with a bundle and a report."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scda.adapt.cli.errors import ExitCode
from scda.adapt.cli.options import (
    AsJson,
    MaxBytes,
    MaxPixels,
    Quiet,
    Verbose,
    given,
    with_config_options,
)
from scda.adapt.cli.output import print_json, print_table
from scda.adapt.config_file import resolve
from scda.models.cache import user_cache
from scda.models.extras import needs_extra
from scda.models.limits import MAX_BYTES, MAX_PIXELS, ImageLimits

if TYPE_CHECKING:
    from scda.adapt.pipeline.run import TrainResult


@with_config_options
def train(
    context: typer.Context,
    source: Annotated[Path, typer.Option(help="Folder of labelled images: one folder per class.")],
    target: Annotated[Path, typer.Option(help="Folder of unlabelled images, in any sub-folders.")],
    out: Annotated[
        Path,
        typer.Option(
            help="Folder of the run; it must be new, except with --resume or --overwrite."
        ),
    ],
    recursive: Annotated[bool, typer.Option(help="Include the images of sub-folders.")] = True,
    exclude_from: Annotated[
        Path | None,
        typer.Option(
            help="Files to leave out: a list, one per line, as `audit --fix-list` writes it, or "
            "audit.csv with its column `remove`.",
            rich_help_panel="Input",
        ),
    ] = None,
    max_bytes: MaxBytes = MAX_BYTES,
    max_pixels: MaxPixels = MAX_PIXELS,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a stopped run.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Scan the folders, print the plan and stop.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    config: Annotated[
        Path | None,
        typer.Option(
            help="TOML file with any option of the configuration.", rich_help_panel="Configuration"
        ),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Folder for backbone features; default: the user's cache folder.",
            rich_help_panel="Output",
        ),
    ] = None,
    tensorboard: Annotated[
        bool,
        typer.Option(
            "--tensorboard",
            help="Write event files for TensorBoard into the run.",
            rich_help_panel="Output",
        ),
    ] = False,
    **options: Any,
) -> None:
    """Adapt a classifier to an unlabelled folder and discover the classes it lacks."""
    from scda.adapt.data.job import Job, check_job
    from scda.adapt.runs.folder import check_run
    from scda.models.excluded import NOTHING, read_excluded

    roots = {"source": source, "target": target}
    job = Job(
        source=source,
        target=target,
        out=out,
        cache=cache or user_cache() / "features",
        config=resolve(given(context, options), config),
        recursive=recursive,
        overwrite=overwrite,
        resume=resume,
        tensorboard=tensorboard,
        limits=ImageLimits(max_bytes=max_bytes, max_pixels=max_pixels),
        excluded=read_excluded(exclude_from, roots) if exclude_from else NOTHING,
    )
    # Before the imports below, which take seconds.
    check_job(job)
    check_run(out, overwrite=overwrite, resume=resume)
    with needs_extra("train"):
        from scda.adapt.data.dataset import plan
        from scda.adapt.pipeline.run import train as run_job
        from scda.adapt.pipeline.takeover import planned_takeover
        from scda.adapt.runtime.progress import Reporter

    if dry_run:
        _print_plan(plan(job, partial(planned_takeover, job.config)), as_json=as_json)
        return
    with Reporter(quiet=quiet, verbose=verbose) as reporter:
        trained = run_job(job, reporter)
    if trained:  # the main process of a distributed run
        _print_result(trained, out, as_json=as_json)


def _print_plan(planned: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(planned)
        return
    for warning in planned.pop("warnings"):
        typer.echo(f"warning: {warning}", err=True)
    print_table(planned)


def _print_result(trained: "TrainResult", out: Path, *, as_json: bool) -> None:
    manifest = trained.manifest
    discovered = len(manifest.classes) - manifest.num_known
    if as_json:
        fields = {"bundle": str(out / "bundle"), "id": manifest.id, "k_star": discovered}
        previous = manifest.to_json().get("previous")
        print_json(fields | ({"previous": previous} if previous else {}))
    else:
        for note in manifest.run["notes"]:
            typer.echo(f"note: {note}", err=True)
        typer.echo(f"{discovered} discovered classes")
        if manifest.trust:
            typer.echo(manifest.trust.sentence)
        if manifest.previous:
            typer.echo("\n".join(manifest.previous.lines))
        typer.echo(f"report: {out / 'report.html'}\nbundle: {out / 'bundle'}")
    if trained.rejected:
        raise typer.Exit(ExitCode.SOME_INPUTS_FAILED)
