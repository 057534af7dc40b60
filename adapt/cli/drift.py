"""`scda-adapt drift`: whether labelled files differ from what the model was trained on."""

from pathlib import Path
from typing import Annotated, Any

import typer

from scda.adapt.cli.errors import ExitCode
from scda.adapt.cli.options import AsJson, Bundle, Verbose
from scda.adapt.cli.output import print_json


def drift(
    bundle: Bundle,
    labels: Annotated[
        list[Path],
        typer.Argument(help="CSV, JSONL or Parquet files that `label` wrote, one per stream."),
    ],
    reference: Annotated[
        Path | None,
        typer.Option(help="Labels of an earlier stream to compare with; default: the training."),
    ] = None,
    page: Annotated[Path | None, typer.Option(help="HTML page to write, with pictures.")] = None,
    images: Annotated[
        Path | None,
        typer.Option(help="Folder that the labels' paths are relative to; shows the images."),
    ] = None,
    alpha: Annotated[
        float,
        typer.Option(min=0.001, max=0.5, help="Share of false alarms, all tests together."),
    ] = 0.01,
    fail_on_drift: Annotated[
        bool, typer.Option("--fail-on-drift", help="Exit with code 5 if a new training is due.")
    ] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Tell whether a folder or a week of images differs, and by which classes."""
    from scda.models.bundle import bundle_folder, read_manifest
    from scda.models.drift.compare import compare, reference_from, reference_of
    from scda.models.errors import UsageError
    from scda.models.files import write_atomically, write_errors
    from scda.models.names import read_names
    from scda.serve.drift.labels import read_labels
    from scda.serve.drift.page import Compared, make_page

    folder = bundle_folder(bundle)
    manifest = read_manifest(folder, checked=False)
    names = read_names(folder, manifest)
    if images and not images.is_dir():
        raise UsageError(f"{images}: no such folder; expected the folder that was labelled")
    before = reference_of(manifest, names)
    if reference:
        before = reference_from(read_labels(reference, manifest, names).sample)
    compared = []
    for path in labels:
        read = read_labels(path, manifest, names)
        compared.append(Compared(read, compare(before, read.sample, alpha=alpha)))
    if page:
        what = str(reference) if reference else "the target of the training"
        text = make_page(compared, folder, manifest, names, reference=what, root=images)
        with write_errors(page):
            write_atomically(page, text)
    due = any(one.drift.training_due for one in compared)
    labelled = {info.class_id: names.label(info) for info in manifest.classes}
    files = [_fields(one, labelled) for one in compared]
    if as_json:
        print_json({"bundle_id": manifest.id, "alpha": alpha, "training_due": due, "files": files})
    else:
        _print(files)
        if before.distance is None:
            typer.echo(
                "compared by class alone, because the bundle does not tell how new images look; "
                "pass the labels of an earlier stream with --reference",
                err=True,
            )
    if due and fail_on_drift:
        raise typer.Exit(ExitCode.GATE)


def _fields(compared: Any, labels: dict[str, str]) -> dict[str, Any]:
    """Return the comparison of one file as plain JSON values."""
    found = compared.drift
    return {
        "path": str(compared.labels.path),
        "images": found.images,
        "failed": compared.labels.failed,
        "changed": list(found.changed),
        "training_due": found.training_due,
        "verdict": found.verdict,
        "p_values": {name: round(value, 4) for name, value in found.p_values.items()},
        "classes": [
            {
                "class_id": one.class_id,
                "label": labels.get(one.class_id, one.class_id),
                "expected_share": round(one.expected, 4),
                "share": round(one.found, 4),
                "p_value": round(one.p_value, 4),
            }
            for one in found.classes
        ],
    }


def _print(files: list[dict[str, Any]]) -> None:
    for one in files:
        typer.echo(f"{one['path']}: {one['images']} images: {one['verdict']}")
        for name, value in one["p_values"].items():
            typer.echo(f"  {name:10}  p {value:.4f}{'  changed' if name in one['changed'] else ''}")
        for change in one["classes"]:
            shares = f"{change['expected_share']:.1%} -> {change['share']:.1%}"
            typer.echo(f"  {change['class_id']}  {shares}  {change['label']}")
