"""scda-adapt: the command line, and the only module that touches both sides, lazily."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from scda.adapt.cli.errors import run
from scda.adapt.runtime.signals import Terminated
from scda.models.errors import UsageError

if TYPE_CHECKING:
    from scda.models.predictor import Predictor

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Find, count and serve the classes nobody named in an unlabelled folder of images.",
)

FAILED_INPUTS = 3  # exit code: done, but some inputs failed

Quiet = Annotated[bool, typer.Option("--quiet", help="Only warnings and errors.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Details, and a traceback for a bug.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Bundle = Annotated[Path, typer.Argument(help="A bundle, or the run that holds it.")]
Provider = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Threads = Annotated[int, typer.Option(min=0, help="Of the model; 0: all CPUs it may use.")]
Recursive = Annotated[bool, typer.Option(help="Look into sub-folders.")]


@app.command()
def train(
    source: Annotated[Path, typer.Option(help="Labelled images: one folder per class.")],
    target: Annotated[Path, typer.Option(help="Unlabelled images, in any order of folders.")],
    out: Annotated[Path, typer.Option(help="Folder of the run; must be new.")],
    preset: Annotated[
        str | None,
        typer.Option(help="robust (default), paper, office31, office-home or domainnet."),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(help="efficientnet_lite0 (default), resnet50, timm/NAME or conv4."),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="The backbone's weights: safetensors or a state dict.")
    ] = None,
    finetune: Annotated[
        str | None,
        typer.Option(help="What of the backbone learns: none (default), its last stage, or all."),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of the alternation.")] = None,
    iterations: Annotated[int | None, typer.Option(hidden=True)] = None,
    novel: Annotated[
        str | None, typer.Option(help="Are there new classes: auto, yes or no.")
    ] = None,
    k_method: Annotated[
        str | None, typer.Option(help="How new classes are counted: both (default), scda or graph.")
    ] = None,
    k_max: Annotated[int | None, typer.Option(help="Most new classes looked for.")] = None,
    k: Annotated[int | None, typer.Option(help="Fixes the number of new classes.")] = None,
    unknown_logit_bias: Annotated[
        float | None, typer.Option(help="Above 0 predicts more images as new, below 0 fewer; nats.")
    ] = None,
    rejection: Annotated[float | None, typer.Option(hidden=True)] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per domain and step.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    clip_grad: Annotated[
        float | None, typer.Option(help="Largest norm of a step's gradient; 0: any.")
    ] = None,
    image_size: Annotated[int | None, typer.Option(help="Pixels; 0: the backbone's own.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None,
    precision: Annotated[
        str | None, typer.Option(help="Of training passes: fp32 (default), bf16 or fp16.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Decode images; 0: all CPUs.")] = None,
    neighbours: Annotated[
        bool | None, typer.Option(help="Keep the target's features in the bundle.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with any option.")] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for features; default: the user's cache.")
    ] = None,
    recursive: Recursive = True,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a stopped run.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a run that is there.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Event files in the run's folder tensorboard.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Scan, print the plan, stop.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Adapt to an unlabelled folder: a bundle, a report, and the classes nobody named."""
    options = {
        "preset": preset,
        "backbone": backbone,
        "weights": str(weights) if weights else None,
        "finetune": finetune,
        "rounds": rounds,
        "iterations": iterations,
        "novel": novel,
        "k_method": k_method,
        "k_max": k_max,
        "k": k,
        "unknown_logit_bias": unknown_logit_bias,
        "rejection": rejection,
        "batch_size": batch_size,
        "lr": lr,
        "clip_grad": clip_grad,
        "image_size": image_size,
        "seed": seed,
        "device": device,
        "precision": precision,
        "workers": workers,
        "neighbours": neighbours,
    }
    with _needs_train_extra():
        from scda.adapt.config import resolve
        from scda.adapt.data.dataset import Job, plan
        from scda.adapt.pipeline.run import train as run_job
        from scda.adapt.runtime.progress import Reporter
    from scda.models.cache import user_cache

    job = Job(
        source=source,
        target=target,
        out=out,
        cache=cache or user_cache() / "features",
        config=resolve(options, config),
        recursive=recursive,
        overwrite=overwrite,
        resume=resume,
        tensorboard=tensorboard,
    )
    if dry_run:
        planned = plan(job)
        _print_json(planned) if as_json else _print_table(planned)
        return
    with Reporter(quiet=quiet, verbose=verbose) as reporter:
        trained = run_job(job, reporter)
    if trained is None:  # of several processes, one speaks
        return
    manifest = trained.manifest
    discovered = len(manifest.classes) - manifest.num_known
    if as_json:
        _print_json({"bundle": str(out / "bundle"), "id": manifest.id, "k_star": discovered})
    else:
        for note in manifest.run["notes"]:
            typer.echo(f"note: {note}", err=True)
        typer.echo(f"{discovered} discovered classes; look at {out / 'report.html'}")
        typer.echo(f"the bundle is {out / 'bundle'}")
    if trained.rejected:
        raise typer.Exit(FAILED_INPUTS)


@app.command()
def label(
    bundle: Bundle,
    images: Annotated[
        list[str] | None,
        typer.Argument(help="Folders, files or quoted patterns; URIs with --engine ray."),
    ] = None,
    out: Annotated[
        list[str] | None,
        typer.Option(
            help="FILE.csv, .jsonl, .parquet, .labelstudio.json or .fiftyone.json; may be repeated;"
            " - is CSV on stdout."
        ),
    ] = None,
    embeddings: Annotated[
        Path | None, typer.Option(help="FILE.npy for the features, a row per file.")
    ] = None,
    sort_into: Annotated[
        Path | None, typer.Option(help="New folder: every file in a folder of its class.")
    ] = None,
    mode: Annotated[str, typer.Option(help="copy, hardlink or symlink.")] = "copy",
    min_confidence: Annotated[
        float, typer.Option(min=0, max=1, help="Below it, `review` is true.")
    ] = 0.0,
    top: Annotated[
        int | None, typer.Option(min=1, help="Entries of `top`, five without it.")
    ] = None,
    image_root: Annotated[
        str | None, typer.Option(help="What Label Studio finds images under: a URL or a path.")
    ] = None,
    files_from: Annotated[
        str | None,
        typer.Option(help="A list of files in place of IMAGES, by lines or NUL; - is stdin."),
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option(help="Only files that fit a pattern: '*.jpg', 'a/*'.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="No file that fits a pattern; wins over --include.")
    ] = None,
    follow_symlinks: Annotated[
        bool, typer.Option("--follow-symlinks", help="Look into linked folders as well.")
    ] = False,
    recursive: Recursive = True,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Images per call of the model; 8, on a GPU 32.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="Decoding processes; 0: none. Default: as many as CPUs."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a stopped labelling.")
    ] = False,
    max_errors: Annotated[
        int | None, typer.Option(min=0, help="Give up when more files have failed.")
    ] = None,
    summary_file: Annotated[
        Path | None, typer.Option("--summary", help="FILE.json for counts, rate and provider.")
    ] = None,
    provider: Provider = "auto",
    threads: Annotated[
        int, typer.Option(min=0, help="Of one batch; so many batches at a time fill the CPUs.")
    ] = 1,
    engine: Annotated[
        str, typer.Option(help="local, or ray: many machines; see docs/labelling.md.")
    ] = "local",
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Label every image: one row per file, bad files included."""
    if engine not in ("local", "ray"):
        raise UsageError(f"--engine {engine}; want local or ray")
    if engine == "local" and (uris := [image for image in images or [] if "://" in image]):
        raise UsageError(f"{uris[0]}: for URIs there is --engine ray")
    if engine == "ray":
        refused = {
            "--sort-into": sort_into,
            "--embeddings": embeddings,
            "--image-root": image_root,
            "--workers": workers is not None,
            "--resume": resume,
            "--max-errors": max_errors is not None,
        }
        for name in (name for name, given in refused.items() if given):
            raise UsageError(f"{name} is not for --engine ray; leave it out")
    from scda.adapt.runtime.progress import Reporter
    from scda.serve.labelling.label import label as label_images
    from scda.serve.labelling.outputs import DEFAULTS, Options
    from scda.serve.labelling.ray.engine import label_on_ray
    from scda.serve.labelling.sources import FileSelection
    from scda.serve.labelling.throughput import Throughput

    options = Options(
        embeddings=embeddings,
        sort_into=sort_into,
        summary=summary_file,
        mode=mode,
        image_root=DEFAULTS.image_root if image_root is None else image_root,
        top=top,
        min_confidence=min_confidence,
    )
    selection = FileSelection(
        recursive=recursive,
        follow_links=follow_symlinks,
        include=tuple(include or ()),
        exclude=tuple(exclude or ()),
    )
    # A driver without a GPU may lead a cluster of them.
    predictor = _load(bundle, provider="cpu" if engine == "ray" else provider, threads=threads)
    reporter = Reporter(quiet=quiet, verbose=verbose)
    if engine == "ray":
        summary = label_on_ray(
            predictor,
            images or [],
            out or [],
            options=options,
            selection=selection,
            files_from=files_from,
            batch_size=batch_size,
            provider=provider,
            threads=threads,
            progress=sys.stderr.isatty() and not quiet,
        )
    else:
        with reporter:
            reporter.begin("labelling", 0)
            throughput = Throughput()
            summary = label_images(
                predictor,
                list(map(Path, images or [])),
                out or [],
                options=options,
                selection=selection,
                files_from=files_from,
                batch_size=batch_size,
                workers=workers,
                resume=resume,
                max_errors=max_errors,
                on_progress=lambda done, total, failed: reporter.done(
                    done, total, note=throughput.describe(done, failed)
                ),
            )
    for line in summary.lines():
        reporter.say(line)
    if summary.num_failed:
        raise typer.Exit(FAILED_INPUTS)


@app.command()
def serve(
    bundle: Bundle,
    host: Annotated[str, typer.Option(help="IP address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.")] = 3000,
    workers: Annotated[int, typer.Option(min=1, help="Server processes.")] = 1,
    verbose: Verbose = False,
) -> None:
    """Answer over HTTP with one bundle; this process becomes the server."""
    from scda.models.bundle import bundle_folder
    from scda.serve.http.command import serve_command

    folder = bundle_folder(bundle)
    _load(folder)  # a bad bundle is told here, in one line, not by a dying worker
    argv, environment = serve_command(folder, host=host, port=port, workers=workers)
    os.execvpe(argv[0], argv, environment)


@app.command()
def evaluate(
    bundle: Bundle,
    labelled: Annotated[Path, typer.Argument(help="Target images in class folders.")],
    as_json: AsJson = False,
    provider: Provider = "auto",
    threads: Threads = 0,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Measure a bundle on a labelled target: every metric, in percent."""
    with _needs_train_extra():
        from scda.adapt.evaluation.evaluate import evaluate as measure
        from scda.adapt.evaluation.evaluate import score
    from scda.adapt.runtime.progress import Reporter

    predictor = _load(bundle, provider=provider, threads=threads)
    with Reporter(quiet=quiet, verbose=verbose) as reporter:
        reporter.begin("evaluating", 0)
        scored = score(predictor, labelled, on_progress=reporter.done)
        fields = measure(scored, predictor)
    _print_json(fields) if as_json else _print_table(fields)
    if scored.rejected:
        raise typer.Exit(FAILED_INPUTS)


@app.command()
def review(
    bundle: Bundle,
    port: Annotated[int, typer.Option(min=0, help="0: a free one.")] = 0,
    target: Annotated[
        Path | None, typer.Option(help="The target images; default: where training found them.")
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Look at what was discovered on a local page: name, merge, drop; Ctrl-C ends it."""
    from scda.models.bundle import bundle_folder
    from scda.serve.review.server import serve_review

    def say(address: str) -> None:
        typer.echo(address)
        if not quiet:
            note = "the address is a key: whoever has it can change names; Ctrl-C ends"
            typer.echo(note, err=True)

    with suppress(KeyboardInterrupt, Terminated):  # the ordinary end
        serve_review(
            bundle_folder(bundle), port=port, target=target, browser=browser, on_address=say
        )
    _hint_at_report(bundle_folder(bundle))


@app.command()
def names(
    bundle: Bundle,
    labels: Annotated[
        list[str] | None,
        typer.Option("--set", help="CLASS_ID=LABEL; an empty label takes it away."),
    ] = None,
    merge: Annotated[
        list[str] | None, typer.Option(help="CLASS_ID,CLASS_ID,...: the first answers for all.")
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="CLASS_ID: its images become `unknown`.")
    ] = None,
    restore: Annotated[
        list[str] | None, typer.Option(help="CLASS_ID: out of a merge or a drop again.")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take the last change back.")] = False,
    show: Annotated[
        bool, typer.Option("--list", help="Every class as it is called now (default).")
    ] = False,
    history: Annotated[bool, typer.Option("--history", help="Every change so far.")] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Name, merge and drop classes from the shell; a call is carried out whole or not at all."""
    from scda.models.bundle import NAMES, bundle_folder, read_manifest
    from scda.models.names import read_names
    from scda.models.naming import change_names
    from scda.serve.review.names_command import Orders, lines, listing

    orders = Orders(
        undo=undo,
        restores=restore or (),
        drops=drop or (),
        merges=merge or (),
        labels=labels or (),
    )
    folder = bundle_folder(bundle)
    manifest = read_manifest(folder, checked=False)
    if orders:
        said = change_names(folder, orders.apply)
        _hint_at_report(folder)
    else:
        said = read_names(folder / NAMES, manifest.class_ids)
    rows = listing(manifest, said)
    if as_json:
        changes = [{"version": c.version, "at": c.at, "did": c.did} for c in said.history]
        fields = {"names_version": said.version, "classes": rows}
        _print_json(fields | ({"history": changes} if history else {}))
    elif show or not history:
        typer.echo("\n".join(lines(rows)))
    if history and not as_json:
        for change in said.history:
            typer.echo(f"{change.version:5}  {change.at}  {change.did}")


@app.command()
def promote(
    bundle: Bundle,
    out: Annotated[Path, typer.Option(help="New folder, a class folder in it per class.")],
    target: Annotated[
        Path | None, typer.Option(help="The target images; default: where training found them.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option(help="Labelled images of the training, to be added.")
    ] = None,
    min_confidence: Annotated[
        float, typer.Option(min=0, max=1, help="Target images below it are left out.")
    ] = 0.8,
    mode: Annotated[str, typer.Option(help="copy, hardlink or symlink.")] = "copy",
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Write the reviewed, confident target images as class folders: the next training's source."""
    from scda.adapt.runtime.progress import Reporter
    from scda.models.bundle import bundle_folder
    from scda.serve.review.promote import promote as promote_images

    with Reporter(quiet=quiet, verbose=verbose) as reporter:
        reporter.begin("promoting", 0)
        promotion = promote_images(
            bundle_folder(bundle),
            out,
            target=target,
            source=source,
            min_confidence=min_confidence,
            mode=mode,
            on_progress=reporter.done,
        )
        for line in promotion.lines():
            reporter.say(line)
    if promotion.missing:
        raise typer.Exit(FAILED_INPUTS)


@app.command()
def inspect(
    bundle: Bundle,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check every checksum, replay the parity images.")
    ] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show what a bundle holds."""
    from scda.models.bundle import bundle_folder, read_manifest

    folder = bundle_folder(bundle)
    manifest = read_manifest(folder, checked=verify)
    if as_json:
        _print_json(manifest.to_json())
    else:
        typer.echo(f"bundle {manifest.id}, status: {', '.join(manifest.status)}")
        for info in manifest.classes:
            nearest = f"  near {info.nearest_known}" if info.nearest_known else ""
            typer.echo(f"{info.class_id}  {info.size:6} images  {info.label}{nearest}")
    if verify:
        _load(folder)
        typer.echo("verified: checksums, model, index, parity images", err=True)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A finished run.")],
    labelled: Annotated[
        Path | None,
        typer.Option(help="Target images in class folders: adds metrics and confusions."),
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Write a run's report again, with the names given since."""
    with _needs_train_extra():
        from scda.adapt.evaluation.confusions import make_truth
        from scda.adapt.evaluation.evaluate import evaluate as measure
        from scda.adapt.evaluation.evaluate import score
        from scda.adapt.report.report import write_report
    from scda.adapt.runtime.progress import Reporter

    truth, rejected = None, 0
    with Reporter(quiet=quiet, verbose=verbose) as reporter:
        if labelled:
            predictor = _load(run)
            reporter.begin("evaluating", 0)
            scored = score(predictor, labelled, on_progress=reporter.done)
            truth = make_truth(scored, measure(scored, predictor), predictor)
            rejected = scored.rejected
        written = write_report(run, reporter, truth=truth)
    typer.echo(str(written))
    if rejected:
        raise typer.Exit(FAILED_INPUTS)


@app.command()
def doctor(
    bundle: Annotated[
        Path | None,
        typer.Argument(help="A bundle or run to verify as well.", envvar="SCDA_BUNDLE"),
    ] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Say what is installed, what a session really runs on, and what is wrong with it."""
    from scda.adapt.runtime.doctor import examine

    found = examine(bundle)
    if as_json:
        _print_json(found.to_json())
    else:
        _print_table({name: _listed(value) for name, value in found.facts.items()})
        for problem in found.problems:
            typer.echo(f"problem: {problem.message}", err=True)
    if found.problems:
        raise typer.Exit(found.exit_code)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for data, run and labels.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a demo that is there.")
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run the main job on digits that install with the package: printed 0-5, handwritten 0-9."""
    with _needs_train_extra():
        from scda.adapt.demo.demo import run_demo
    from scda.adapt.runtime.progress import Reporter
    from scda.serve.labelling.label import label as label_images

    with Reporter(quiet=quiet, verbose=verbose) as reporter:
        result = run_demo(out, seed=seed, overwrite=overwrite, reporter=reporter)
        reporter.begin("labelling", 0)
        labels = out / "labels.csv"
        label_images(
            _load(result.bundle, threads=1),
            [result.target],
            [str(labels)],
            on_progress=lambda done, total, failed: reporter.done(done, total),
        )
    _print_table(result.metrics)
    typer.echo("these figures come from the digits' true labels, which training never saw")
    typer.echo(f"report: {result.report}\nlabels: {labels}\nbundle: {result.bundle}")


def main() -> NoReturn:
    """Run a command; every error a user can cause is one line and an exit code."""
    run(app)


@contextmanager
def _needs_train_extra() -> Iterator[None]:
    """Turn a missing torch into what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("scda"):
            raise
        raise UsageError(f"{error.name} is missing; pip install 'scda[train]'") from None


def _load(bundle: Path, *, provider: str = "auto", threads: int = 0) -> "Predictor":
    from scda.models.bundle import bundle_folder
    from scda.models.predictor import load_predictor

    return load_predictor(bundle_folder(bundle), provider=provider, threads=threads)


def _hint_at_report(bundle: Path) -> None:
    """Say how the one file that does not follow names by itself is brought up to date."""
    run = bundle.resolve().parent
    if (run / "report.html").is_file():
        typer.echo(f"scda-adapt report {run} writes the report with the names", err=True)


def _print_json(fields: dict[str, Any]) -> None:
    typer.echo(json.dumps(fields, ensure_ascii=True))


def _listed(value: Any) -> Any:
    return (", ".join(value) or "none") if isinstance(value, list) else value


def _print_table(fields: dict[str, Any]) -> None:
    width = max(map(len, fields))
    for name, value in fields.items():
        typer.echo(f"{name:{width}}  {value}")
