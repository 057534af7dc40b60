"""The report: one self-contained HTML page, written from the files of a run alone."""

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scda.adapt.audit.findings import Kind, read_findings
from scda.adapt.audit.images import MOST_COMPARED
from scda.adapt.discovery.findings import Status
from scda.adapt.evaluation.confusions import Truth
from scda.adapt.report import figures
from scda.adapt.report.agreement import agreed
from scda.adapt.report.audit_pictures import AuditPictures, audit_pictures
from scda.adapt.report.chart import Chart, make_chart
from scda.adapt.report.environment import page_environment
from scda.adapt.report.groups import Groups, make_groups
from scda.adapt.report.sheets import Sheet, SheetImage, from_exemplars, make_sheets, outliers
from scda.adapt.report.thumbnails import Thumbnails, make_thumbnails
from scda.adapt.runs.folder import RunFolder, check_finished, read_config
from scda.adapt.runs.images_table import read_images
from scda.adapt.runs.tables import TargetRow, read_discovery, read_held_out, read_rejected
from scda.adapt.runs.target_map import read_map
from scda.adapt.runtime.progress import Reporter
from scda.models.bundle import Manifest, read_manifest
from scda.models.errors import GateError
from scda.models.files import write_atomically
from scda.models.limits import ImageLimits

_MAX_REJECTED = 200  # rows shown
_MOST_LABELS, _MOST_GROUPS = 12, 6  # of the audit, shown
_NOTHING = Thumbnails({}, None, 0)


@dataclass(frozen=True)
class _Run:
    """What the report reads from a run."""

    folder: RunFolder
    manifest: Manifest
    config: dict[str, Any]  # content of config.json
    records: list[dict[str, Any]]
    rows: list[TargetRow]
    groups: Groups

    @property
    def target(self) -> Path | None:
        """The target folder; None if it no longer exists."""
        return self.roots.get("target")

    @property
    def roots(self) -> dict[str, Path]:
        """Domain → its folder, of those that still exist."""
        names = {domain: self.config.get(domain) for domain in ("source", "target")}
        return {
            domain: Path(name) for domain, name in names.items() if name and Path(name).is_dir()
        }


@dataclass(frozen=True)
class _ReportImages:
    """The contact sheets and the images on them."""

    sheets: dict[str, Sheet]
    bare: frozenset[str]  # classes without readable target images, shown by their exemplars
    exemplars: dict[str, str]  # path in the bundle → data URL
    thumbnails: Thumbnails  # images of the target
    far: list[SheetImage]  # outliers
    audit: AuditPictures | None  # None in a run of an earlier version


def write_report(root: Path, reporter: Reporter, *, truth: Truth | None = None) -> Path:
    """Write RUN/report.html and return its path.

    Args:
        root: Folder of the run.
        reporter: Reporter of the progress.
        truth: Metrics and confusions on a labelled target; None leaves that section out.

    Raises:
        UsageError: If `root` is not a finished run.
        GateError: If files of the run are damaged.
    """
    run = _read(root)
    places = read_map(run.folder.map)
    images = _load_images(run, places, reporter)
    chart = make_chart(run.rows, run.groups, images.thumbnails.sprite, places)
    page = _render(run, images, chart, truth)
    write_atomically(run.folder.report, page)
    return run.folder.report


def _read(root: Path) -> _Run:
    run = RunFolder(root)
    check_finished(root)
    manifest, rows = read_manifest(run.bundle), read_discovery(run.discovery)
    unknown_ids = {name for row in rows for name in (row.cluster, row.second)}
    unknown_ids -= set(manifest.class_ids)
    if unknown_ids:
        raise GateError(f"{run.discovery}: {min(unknown_ids)!r} is not a class of {run.bundle}")
    groups = make_groups(run.bundle, manifest, rows)
    return _Run(run, manifest, read_config(run), run.records(), rows, groups)


def _load_images(run: _Run, places: dict[str, Any], reporter: Reporter) -> _ReportImages:
    sheets, far = make_sheets(run.groups), outliers(run.rows, run.groups)
    made = _NOTHING
    if run.target:
        singles = [p.name for sheet in sheets.values() for p in sheet.images]
        singles += [image.name for image in far]
        most_typical = [sheet.typical[0].name for sheet in sheets.values() if sheet.typical]
        reporter.say(f"reading images for the report from {run.target}")
        reporter.begin("images", len({*singles, *places}))
        cells = list(dict.fromkeys([*places, *most_typical]))
        made = make_thumbnails(
            run.target,
            singles,
            cells,
            limits=ImageLimits.of_run(run.config),
            on_progress=reporter.done,
            digests=read_images(run.folder.images).target,
        )
    bare = frozenset(
        i for i, sheet in sheets.items() if not any(p.name in made.urls for p in sheet.images)
    )
    sheets |= {class_id: from_exemplars(sheets[class_id]) for class_id in bare}
    names = [image.name for class_id in bare for image in sheets[class_id].images]
    exemplars = make_thumbnails(run.folder.bundle, names, [], on_progress=lambda done, total: None)
    return _ReportImages(sheets, bare, exemplars.urls, made, far, _load_audit(run))


def _load_audit(run: _Run) -> AuditPictures | None:
    findings = read_findings(run.folder.audit)
    if findings is None:
        return None
    recorded = read_images(run.folder.images)
    return audit_pictures(
        findings,
        run.roots,
        most_labels=_MOST_LABELS,
        most_groups=_MOST_GROUPS,
        limits=ImageLimits.of_run(run.config),
        digests={"source": recorded.source, "target": recorded.target},
    )


def _render(run: _Run, images: _ReportImages, chart: Chart, truth: Truth | None) -> str:
    folder = Path(__file__).parent
    script = (folder / "report.js").read_text("utf-8")
    rounds = [record for record in run.records if "unknown_share" in record]
    second = agreed(read_held_out(run.folder.held_out))
    rejected, recorded = read_rejected(run.folder.rejected), read_images(run.folder.images)
    return (
        page_environment()
        .get_template("report.html")
        .render(
            style=(folder / "report.css").read_text("utf-8"),
            script=script,
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            manifest=run.manifest,
            notes=[_headed(note) for note in run.manifest.run.get("notes", [])],
            groups=run.groups,
            images=images,
            audit=images.audit,
            most_compared=MOST_COMPARED,
            compared=len(recorded.source) + len(recorded.target) <= MOST_COMPARED,
            kinds=Kind,
            chart=chart,
            rounds=rounds,
            target=run.config.get("target", "the target folder"),
            target_there=run.target is not None,
            num_rows=len(run.rows),
            num_outliers=sum(row.outlier for row in run.rows),
            figures=_figures(run, rounds, truth),
            second=second,
            expected=run.manifest.calibration.expected if run.manifest.calibration else {},
            truth=truth,
            rejected=rejected[:_MAX_REJECTED],
            num_rejected=len(rejected),
            config=run.config["config"],
        )
    )


def _headed(note: str) -> tuple[str, str]:
    """Return the status that a note begins with, empty where it has none, and the rest of it."""
    status = next((status.value for status in Status if note.startswith(f"{status}: ")), "")
    return status, note.removeprefix(f"{status}: ")


def _figures(run: _Run, rounds: list[dict[str, Any]], truth: Truth | None) -> dict[str, str]:
    num_known = run.manifest.num_known
    return {
        "curve": figures.curve_svg(rounds, num_known),
        "counts": figures.counts_svg(rounds, num_known),
        "unknown": figures.unknown_svg(rounds),
        "losses": figures.losses_svg(run.records),
        "entropies": figures.entropies_svg(run.rows),
        "reliability": figures.reliability_svg(truth.fields["reliability"]) if truth else "",
    }
