"""`scda-adapt audit`: find wrong labels, copies, leaks and poor classes in folders of images."""

from pathlib import Path
from typing import Annotated

import typer

from scda.adapt.cli.options import AsJson, MaxBytes, MaxPixels, Quiet, Verbose
from scda.adapt.cli.output import print_json
from scda.models.cache import user_cache
from scda.models.errors import UsageError
from scda.models.extras import needs_extra
from scda.models.limits import MAX_BYTES, MAX_PIXELS, ImageLimits

_PAGE, _TABLE = "audit.html", "audit.csv"
_HEADS = {_PAGE: b"<!doctype html>", _TABLE: b"finding,domain,path"}


def audit(
    source: Annotated[Path, typer.Option(help="Folder of labelled images: one folder per class.")],
    target: Annotated[
        Path | None, typer.Option(help="Folder of unlabelled images, in any sub-folders.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for audit.html and audit.csv; earlier ones are replaced.")
    ] = Path("audit"),
    fix_list: Annotated[
        Path | None,
        typer.Option(help="File for the images to leave out, for `train --exclude-from`."),
    ] = None,
    backbone: Annotated[
        str, typer.Option(metavar="NAME", help="Backbone, as in `train`.")
    ] = "efficientnet_lite0",
    weights: Annotated[
        str, typer.Option(metavar="FILE", help="Weights of the backbone, as in `train`.")
    ] = "",
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder for backbone features; default: the user's cache folder."),
    ] = None,
    recursive: Annotated[bool, typer.Option(help="Include the images of sub-folders.")] = True,
    max_bytes: MaxBytes = MAX_BYTES,
    max_pixels: MaxPixels = MAX_PIXELS,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Find labels that look wrong, copies, leaks and poor classes; nothing is changed."""
    from scda.adapt.config import TrainConfig
    from scda.adapt.data.scan import require_folder

    config = TrainConfig(backbone=backbone, weights=weights)
    # Before the imports below, which take seconds.
    require_folder(source, "source")
    if target:
        require_folder(target, "target")
    _check_places(source, target, out, fix_list, cache)
    with needs_extra("train"):
        from scda.adapt.audit.audit import AuditJob
        from scda.adapt.audit.audit import audit as look
        from scda.adapt.audit.findings import write_findings, write_fix_list
        from scda.adapt.data.dataset import job_backbone
        from scda.adapt.report.audit_page import render_audit
        from scda.adapt.runtime.progress import Reporter
    from scda.models.files import write_atomically

    job = AuditJob(
        source=source,
        target=target,
        cache=cache or user_cache() / "features",
        recursive=recursive,
        limits=ImageLimits(max_bytes=max_bytes, max_pixels=max_pixels),
    )
    with Reporter(quiet=quiet, verbose=verbose) as reporter:
        result = look(job, job_backbone(config, reporter.say), reporter)
        page = render_audit(result, job, reporter)
    out.mkdir(parents=True, exist_ok=True)
    write_findings(out / _TABLE, result.findings)
    write_atomically(out / _PAGE, page.encode("utf-8", "backslashreplace"))
    excluded = write_fix_list(fix_list, result.findings, job.roots) if fix_list else None
    if as_json:
        sizes = {"source": result.num_source, "target": result.num_target}
        # Null without a list; the same file can be among several findings.
        places = {"page": str(out / _PAGE), "fix_list_files": excluded}
        print_json({**sizes, **result.counts(), **places})
        return
    for kind, count in result.counts().items():
        if count:
            typer.echo(f"{kind:12}  {count}")
    if excluded is not None:
        typer.echo(f"{fix_list}: {excluded} files to leave out; look at them first")
    typer.echo(f"page: {out / _PAGE}\ntable: {out / _TABLE}")


def _check_places(
    source: Path, target: Path | None, out: Path, fix_list: Path | None, cache: Path | None
) -> None:
    """Check that nothing is written among the images, or over other files.

    Raises:
        UsageError: If it would be.
    """
    from scda.models.places import check_outside, check_replaceable

    targets = [target] if target else []
    for place in filter(None, (out, fix_list, cache)):
        check_outside(place, targets, [source])
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: is a file; expected a folder for {_PAGE} and {_TABLE}")
    for name, head in _HEADS.items():
        check_replaceable(out / name, {head: b""})
    if fix_list and (fix_list.is_dir() or not fix_list.absolute().parent.is_dir()):
        found = "is a folder" if fix_list.is_dir() else f"no folder {fix_list.parent}"
        raise UsageError(f"{fix_list}: {found}; expected a file name in an existing folder")
    if fix_list:
        check_replaceable(fix_list, {b"/": b""})
