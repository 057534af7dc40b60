"""The report: one self-contained HTML page, pictures first, made from a run's files alone."""

import base64
import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from scda.adapt.rundir import RunFolder, read_config
from scda.models.bundle import ClassInfo, Manifest, read_manifest
from scda.models.errors import UsageError
from scda.models.files import write_atomically

_MAX_REJECTED = 200  # rows shown


@dataclass(frozen=True)
class _Sheet:
    info: ClassInfo
    pictures: list[str]  # data URLs, most typical first
    nearest: str | None  # label of the nearest known class


def write_report(root: Path) -> Path:
    """Write RUN/report.html and return its path.

    Raises:
        UsageError: If `root` is no finished run.
        GateError: If its files are damaged.
    """
    run = RunFolder(root)
    if not run.bundle.is_dir():
        raise UsageError(f"{root}: no bundle in it; want a finished run")
    manifest, records = read_manifest(run.bundle), run.records()
    rounds = [record for record in records if "unknown_share" in record]
    environment = Environment(
        loader=PackageLoader("scda.adapt", "."), autoescape=True, undefined=StrictUndefined
    )
    page = environment.get_template("report.html").render(
        manifest=manifest,
        discovered=_sheets(run, manifest, "discovered"),
        known=_sheets(run, manifest, "known"),
        notes=manifest.run.get("notes", []),
        rounds=rounds,
        curve=curve_svg(rounds, manifest.num_known),
        losses=_losses_svg(records),
        rejected=_rejected(run),
        max_rejected=_MAX_REJECTED,
        config=read_config(run)["config"],
    )
    write_atomically(run.report, page)
    return run.report


def _sheets(run: RunFolder, manifest: Manifest, kind: str) -> list[_Sheet]:
    labels = {info.class_id: info.label for info in manifest.classes}
    return [
        _Sheet(
            info,
            [_data_url(run.bundle / name) for name in info.exemplars],
            labels[info.nearest_known] if info.nearest_known else None,
        )
        for info in manifest.classes
        if info.kind == kind
    ]


def _data_url(path: Path) -> str:
    return "data:image/jpeg;base64," + base64.b64encode(path.read_bytes()).decode()


def _rejected(run: RunFolder) -> list[dict[str, str]]:
    if not run.rejected.is_file():
        return []
    text = run.rejected.read_text(errors="replace")
    return list(csv.DictReader(io.StringIO(text)))


def curve_svg(rounds: list[dict[str, Any]], num_known: int) -> str:
    """Draw SSE and CA over k as the last sweep found them; nothing where k* was given."""
    curves = [record["curve"] for record in rounds if record.get("curve")]
    if not curves:
        return ""
    curve, k_star = curves[-1], rounds[-1]["k_star"]
    figure, left = new_figure()
    left.plot(curve["k"], curve["sse"], color="#2a78d6", marker=".")
    left.set_ylabel("SSE (squared feature units)", color="#2a78d6")
    left.set_xlabel("clusters k, known classes included")
    right = left.twinx()
    right.plot(curve["k"], curve["accuracy"], color="#c2410c", marker=".")
    right.set_ylabel("clustering accuracy of T_kn", color="#c2410c")
    chosen = num_known + k_star
    for k, name, line in (
        (curve["k_accuracy"], "best CA", ":"),
        (curve["k_elbow"], "elbow", "--"),
        (chosen, f"chosen: {num_known} known + {k_star} discovered", "-"),
    ):
        colour = "#16803c" if line == "-" else "#888888"
        left.axvline(k, linestyle=line, color=colour, label=f"{name} ({k})")
    figure.legend(loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    return as_svg(figure)


def _losses_svg(records: list[dict[str, Any]]) -> str:
    """Draw every loss over the run, one line each; stages follow one another."""
    intervals = [record for record in records if "step" in record]
    if not intervals:
        return ""
    names = sorted({name for record in intervals for name in record["losses"]})
    figure, axes = new_figure()
    for name in names:
        points = [(i, r["losses"][name]) for i, r in enumerate(intervals) if name in r["losses"]]
        axes.plot(*zip(*points, strict=True), marker=".", label=name)
    axes.set_ylabel("loss")
    starts = {record["during"]: i for i, record in reversed(list(enumerate(intervals)))}
    axes.set_xticks(list(starts.values()))
    names_of_stages = [f"round {stage}" if stage else "pre-training" for stage in starts]
    axes.set_xticklabels(names_of_stages, fontsize=8)
    axes.legend(fontsize=8, frameon=False)
    return as_svg(figure)


def new_figure() -> tuple[Any, Any]:
    """Return a matplotlib figure and its axes, in the report's size and style."""
    # The object interface: pyplot would keep state and look for a display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top"]].set_visible(False)
    return figure, axes


def as_svg(figure: Any) -> str:
    """Return the figure as an `<svg>` element."""
    import matplotlib as mpl

    buffer = io.StringIO()
    # Without date and with fixed ids the same run gives the same page.
    with mpl.rc_context({"svg.hashsalt": "scda"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
