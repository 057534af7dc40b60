"""`scda-adapt label`: label a folder of images as a table."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scda.adapt.cli.errors import ExitCode
from scda.adapt.cli.options import Bundle, MaxBytes, MaxPixels, Quiet, Verbose, given
from scda.adapt.cli.predictor import load
from scda.models.errors import UsageError
from scda.models.limits import MAX_BYTES, MAX_PIXELS, ImageLimits

if TYPE_CHECKING:
    from scda.adapt.runtime.progress import Reporter
    from scda.models.excluded import Excluded
    from scda.serve.labelling.outputs import Options
    from scda.serve.labelling.sources import FileSelection
    from scda.serve.labelling.summary import Summary
    from scda.serve.labelling.throughput import Throughput

_input = partial(typer.Option, rich_help_panel="Input")
_output = partial(typer.Option, rich_help_panel="Output")
_speed = partial(typer.Option, rich_help_panel="Speed")
# Options that the engine on a Ray cluster does not support.
_LOCAL_ONLY = ("sort_into", "embeddings", "image_root", "workers", "exclude_from")
_RAY_WINDOW_SECONDS = 600.0  # files arrive by parts, which can take minutes


def label(
    context: typer.Context,
    bundle: Bundle,
    images: Annotated[
        list[str] | None,
        typer.Argument(help="Folders, files or quoted patterns; URIs with --engine ray."),
    ] = None,
    out: Annotated[
        list[str] | None,
        _output(
            help="Table to write; its ending sets the format: .csv, .jsonl, .parquet, "
            ".labelstudio.json or .fiftyone.json; may be repeated; - prints CSV."
        ),
    ] = None,
    embeddings: Annotated[
        Path | None,
        _output(help="File ending in .npy for the features, one row per file."),
    ] = None,
    sort_into: Annotated[
        Path | None,
        _output(help="New folder to sort the files into, one folder per class."),
    ] = None,
    mode: Annotated[
        str,
        _output(
            metavar="copy|hardlink|symlink", help="How files are placed into the class folders."
        ),
    ] = "copy",
    summary_file: Annotated[
        Path | None,
        _output("--summary", help="JSON file for counts, rate and provider."),
    ] = None,
    min_confidence: Annotated[
        float,
        _output(min=0, max=1, help="Confidence below which the column `review` is true."),
    ] = 0.0,
    top: Annotated[
        int | None,
        _output(min=1, help="Number of entries in `top`; default: 5."),
    ] = None,
    image_root: Annotated[
        str | None,
        _output(help="URL or path under which Label Studio finds the images."),
    ] = None,
    files_from: Annotated[
        str | None,
        _input(
            help="List of names instead of IMAGES, one per line or NUL-separated; - reads "
            "standard input; with --engine ray also a URI, or a folder of lists."
        ),
    ] = None,
    include: Annotated[
        list[str] | None,
        _input(help="Pattern of files to label, such as '*.jpg' or 'a/*'; may be repeated."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        _input(help="Pattern of files to leave out; wins over --include; may be repeated."),
    ] = None,
    exclude_from: Annotated[
        Path | None,
        _input(
            help="Files to leave out: a list, one per line, as `audit --fix-list` writes it, or "
            "audit.csv with its column `remove`.",
        ),
    ] = None,
    follow_symlinks: Annotated[
        bool,
        _input("--follow-symlinks", help="Include the images of linked folders."),
    ] = False,
    recursive: Annotated[bool, _input(help="Include the images of sub-folders.")] = True,
    max_bytes: MaxBytes = MAX_BYTES,
    max_pixels: MaxPixels = MAX_PIXELS,
    batch_size: Annotated[
        int | None,
        _speed(min=1, help="Number of images per call of the model; default: 8, on a GPU 32."),
    ] = None,
    workers: Annotated[
        int | None,
        _speed(
            min=0,
            help="Number of decoding processes, at most 4 per CPU; 0: the main process; "
            "default: one per CPU.",
        ),
    ] = None,
    provider: Annotated[
        str,
        _speed(
            metavar="auto|cpu|cuda|openvino",
            help="Device of the model in ONNX Runtime, or OpenVINO on the CPU.",
        ),
    ] = "auto",
    threads: Annotated[
        int,
        _speed(min=0, help="Threads per batch, at most one per CPU; batches run in parallel."),
    ] = 1,
    engine: Annotated[
        str,
        _speed(
            metavar="local|ray",
            help="Engine: on this machine, or on a Ray cluster (docs/labelling.md).",
        ),
    ] = "local",
    resume: Annotated[bool, typer.Option("--resume", help="Continue a stopped labelling.")] = False,
    max_errors: Annotated[
        int | None, typer.Option(min=0, help="Number of failed files above which labelling stops.")
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Label images: one row per file, unusable files included."""
    _check_engine(engine, images or [], given(context, dict.fromkeys(_LOCAL_ONLY)))
    from scda.adapt.runtime.progress import Reporter
    from scda.models.excluded import NOTHING
    from scda.serve.labelling.outputs import DEFAULTS, Options
    from scda.serve.labelling.sources import FileSelection

    options = Options(
        embeddings=embeddings,
        sort_into=sort_into,
        summary=summary_file,
        mode=mode,
        image_root=DEFAULTS.image_root if image_root is None else image_root,
        top=top,
        min_confidence=min_confidence,
        limits=ImageLimits(max_bytes=max_bytes, max_pixels=max_pixels),
    )
    selection = FileSelection(
        recursive=recursive,
        follow_links=follow_symlinks,
        include=tuple(include or ()),
        exclude=tuple(exclude or ()),
        excluded=_read_excluded(exclude_from, images or []) if exclude_from else NOTHING,
    )
    job = _Job(
        bundle,
        images or [],
        out or [],
        options,
        selection,
        files_from,
        batch_size,
        provider,
        threads,
        resume,
        max_errors,
    )
    reporter = Reporter(quiet=quiet, verbose=verbose)
    if engine == "ray":
        summary = _label_on_ray(job, reporter)
    else:
        summary = _label_locally(job, reporter, workers)
    _print_summary(summary, reporter)


def _read_excluded(listed: Path, images: list[str]) -> "Excluded":
    from scda.models.excluded import read_excluded

    # The table of an audit of the target names files relative to this one folder.
    only = Path(images[0]) if len(images) == 1 else None
    return read_excluded(listed, {"target": only} if only and only.is_dir() else {})


@dataclass(frozen=True)
class _Job:
    """A labelling that either engine can do."""

    bundle: Path
    images: list[str]
    outs: list[str]
    options: "Options"
    selection: "FileSelection"
    files_from: str | None
    batch_size: int | None
    provider: str
    threads: int
    resume: bool
    max_errors: int | None

    @property
    def common(self) -> dict[str, Any]:
        """Arguments that have the same name in both engines."""
        names = ("options", "selection", "files_from", "batch_size", "resume", "max_errors")
        return {name: getattr(self, name) for name in names}


def _label_locally(job: _Job, reporter: "Reporter", workers: int | None) -> "Summary":
    from scda.serve.labelling.label import check_places
    from scda.serve.labelling.label import label as label_images
    from scda.serve.labelling.throughput import Throughput

    images = list(map(Path, job.images))
    check_places(images, job.outs, job.options, job.selection, job.files_from, resume=job.resume)
    predictor = load(job.bundle, provider=job.provider, threads=job.threads)
    with reporter:
        return label_images(
            predictor,
            images,
            job.outs,
            workers=workers,
            on_progress=_progress(reporter, Throughput()),
            **job.common,
        )


def _label_on_ray(job: _Job, reporter: "Reporter") -> "Summary":
    from scda.serve.labelling.ray.engine import label_on_ray
    from scda.serve.labelling.ray.validation import check_output, check_summary
    from scda.serve.labelling.throughput import Throughput

    check_output(job.outs, job.images)  # before the model is loaded, which takes seconds
    check_summary(job.options.summary)
    predictor = load(job.bundle, provider="cpu", threads=job.threads)  # the driver may have no GPU
    with reporter:
        return label_on_ray(
            predictor,
            job.images,
            job.outs,
            provider=job.provider,
            threads=job.threads,
            on_progress=_progress(reporter, Throughput(_RAY_WINDOW_SECONDS)),
            **job.common,
        )


def _progress(reporter: "Reporter", throughput: "Throughput") -> Callable[[int, int, int], None]:
    reporter.begin("labelling", 0)
    has_bar = sys.stderr.isatty()  # it shows the time left itself

    def show(done: int, total: int, failed: int) -> None:
        note = throughput.describe(done, failed, 0 if has_bar else total)
        reporter.done(done, total, note=note)

    return show


def _print_summary(summary: "Summary", reporter: "Reporter") -> None:
    for line in summary.lines():
        reporter.say(line)
    if summary.num_failed:
        raise typer.Exit(ExitCode.SOME_INPUTS_FAILED)


def _check_engine(engine: str, images: list[str], local_only: dict[str, Any]) -> None:
    """Check that the engine supports the inputs and the options.

    Args:
        engine: Name of the engine.
        images: Inputs.
        local_only: Options on the command line that `ray` does not support.

    Raises:
        UsageError: If it does not.
    """
    if engine not in ("local", "ray"):
        raise UsageError(f"--engine is {engine!r}; expected local or ray")
    uris = [image for image in images if "://" in image]
    if engine == "local" and uris:
        raise UsageError(f"{uris[0]}: a URI needs --engine ray")
    if engine == "ray" and local_only:
        option = "--" + next(iter(local_only)).replace("_", "-")
        raise UsageError(f"--engine ray does not support {option}; leave it out")
