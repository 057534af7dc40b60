"""The figures of the report as SVG elements; lines and text take the text colour of the page."""

import functools
import io
import math
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

import numpy as np

from scda.adapt.runs.tables import TargetRow

# Readable on white and on near-black alike.
BLUE, ORANGE, GREEN, GREY = "#3f83d9", "#d9722e", "#2f9e62", "#8a94a0"
_COLOURS = (BLUE, ORANGE, GREEN, "#a46bd6", "#c8549a", "#b58a12", GREY)
_INK = "#010203"  # stands for the colour of the page's text
_BINS = 24
_VOTES = {
    "k_graph": ("s", ORANGE, "neighbour graph"),
    "k_accuracy": ("s", ORANGE, "communities"),
    "k_size": ("o", BLUE, "size of a class"),
    "k_surroundings": ("^", GREEN, "communities of the whole target"),
}
_STYLE: dict[Any, Any] = {  # Any: matplotlib types its keys one by one
    "svg.hashsalt": "scda",  # with fixed ids the same run gives the same page
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
}

Records = Sequence[dict[str, Any]]
P = ParamSpec("P")


def styled(draw: Callable[P, str]) -> Callable[P, str]:
    """Return `draw` with the report's matplotlib style."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **options: P.kwargs) -> str:
        import matplotlib as mpl

        with mpl.rc_context(_STYLE):
            return draw(*args, **options)

    return drawn


@styled
def curve_svg(rounds: Records, num_known: int, *, alone: bool = False) -> str:
    """Draw SSE with its knee and CA with its best k, as the last sweep found them.

    Args:
        rounds: Records of the stages.
        num_known: Number of known classes, K.
        alone: Whether the SVG is a file of its own, which needs a background.

    Returns:
        The element; nothing where k* was given.
    """
    curves = [record["curve"] for record in rounds if record.get("curve")]
    if not curves:
        return ""
    curve, k_star = curves[-1], rounds[-1]["k_star"]
    chosen = num_known + k_star
    figure, (above, below) = new_figure(rows=2, height=3.6)
    above.plot(curve["k"], curve["sse"], color=BLUE, marker=".")
    above.set_ylabel("SSE")
    below.plot(curve["k"], curve["accuracy"], color=ORANGE, marker=".")
    below.set_ylabel("CA of T_kn")
    below.set_xlabel("clusters k, known classes included")
    for axes, name, k in (
        (above, "knee", curve["k_elbow"]),
        (below, "best CA", curve["k_accuracy"]),
    ):
        axes.axvline(k, linestyle="--", color=GREY, linewidth=1.2, label=f"{name}: {k}")
        axes.axvline(chosen, color=GREEN, linewidth=1.2, label=f"used: {num_known} + {k_star}")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 0.96), ncols=2)
    return as_svg(figure, alone=alone)


@styled
def counts_svg(rounds: Records, num_known: int) -> str:
    """Draw k* of every round by each estimator, with the spread over k-means restarts."""
    found = [record for record in rounds if "k_star" in record]
    if not found:
        return ""
    figure, axes = new_figure()
    numbers = [record["round"] for record in found]
    swept = [record for record in found if record.get("curve") and record.get("k_scda")]
    if swept:
        at = [record["round"] for record in swept]
        middle = [record["k_scda"] for record in swept]
        spans = [_span(record["curve"], num_known, record["k_scda"]) for record in swept]
        errors = np.array(spans).T
        style = {"color": BLUE, "capsize": 4, "marker": "o", "linestyle": "none"}
        axes.errorbar(at, middle, errors, label="Algorithm 1, span of restarts", **style)
    for vote, (marker, color, label) in _VOTES.items():
        counted = [(record["round"], record[vote]) for record in found if record.get(vote)]
        if counted:
            axes.plot(*zip(*counted, strict=True), marker, color=color, label=label)
    axes.plot(numbers, [r["k_star"] for r in found], color=GREEN, marker="D", label="k* used")
    axes.set_xticks(numbers)
    axes.set_xlabel("round")
    axes.set_ylabel("new classes")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.15)
    axes.legend(loc="lower right")
    return as_svg(figure)


@styled
def losses_svg(records: Records) -> str:
    """Draw one line per loss over all steps of the run."""
    intervals = [record for record in records if "step" in record]
    if not intervals:
        return ""
    figure, axes = new_figure()
    names = sorted({name for record in intervals for name in record["losses"]})
    for number, name in enumerate(names):
        points = [(i, r["losses"][name]) for i, r in enumerate(intervals) if name in r["losses"]]
        colour = _COLOURS[number % len(_COLOURS)]
        axes.plot(*zip(*points, strict=True), color=colour, label=name)
    axes.set_ylabel("loss")
    starts = {record["during"]: i for i, record in reversed(list(enumerate(intervals)))}
    for place in list(starts.values())[:-1]:
        axes.axvline(place, color=GREY, linewidth=0.6, linestyle=":")
    axes.set_xticks(list(starts.values()))
    axes.set_xticklabels([_stage(stage) for stage in starts], ha="left")
    axes.legend(loc="upper right")
    return as_svg(figure)


@styled
def unknown_svg(rounds: Records) -> str:
    """Draw the share of the target that is predicted as new after every stage."""
    if not rounds:
        return ""
    figure, axes = new_figure()
    numbers = [record["round"] for record in rounds]
    shares = [100 * record["unknown_share"] for record in rounds]
    axes.bar(numbers, shares, color=BLUE, width=0.5)
    for number, share in zip(numbers, shares, strict=True):
        axes.annotate(f"{share:.0f}%", (number, share), ha="center", va="bottom", fontsize=8)
    axes.set_xticks(numbers)
    axes.set_xticklabels([_stage(number) for number in numbers])
    axes.set_ylabel("predicted as new, % of target")
    axes.set_ylim(0, 100)
    return as_svg(figure)


@styled
def entropies_svg(rows: Sequence[TargetRow]) -> str:
    """Draw histograms of the prediction entropy of T_kn, T_im and the rest of the target."""
    if not rows:
        return ""
    parts: dict[str, list[float]] = {"T_kn": [], "T_im": [], "the rest": []}
    for row in rows:
        kind = row.pseudo_label.partition("-")[0]
        name = {"known": "T_kn", "discovered": "T_im"}.get(kind, "the rest")
        parts[name].append(row.entropy)
    edges = np.linspace(0, max(row.entropy for row in rows) or 1.0, _BINS + 1)
    figure, panels = new_figure(rows=3, height=3.6)
    for axes, (name, values), colour in zip(
        panels, parts.items(), (BLUE, ORANGE, GREY), strict=True
    ):
        axes.hist(values, edges, color=colour)
        axes.set_title(f"{name}: {len(values)}", fontsize=8, loc="right", pad=-8)
    panels[1].set_ylabel("images")
    panels[-1].set_xlabel("entropy, nats")
    return as_svg(figure)


@styled
def reliability_svg(
    bins: Records, *, share: str = "share of right images", alone: bool = False
) -> str:
    """Draw the share of right images over their confidence, of known and discovered classes.

    Args:
        bins: The field `reliability` of `evaluate`, or others of its form.
        share: What the height of a point is.
        alone: Whether the SVG is a file of its own, which needs a background.

    Returns:
        The element; nothing without a bin.
    """
    if not bins:
        return ""
    figure, axes = new_figure()
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle="--", label="as it says")
    most = max(one["images"] for one in bins)
    for kind, colour in (("known", BLUE), ("discovered", ORANGE)):
        of_kind = [one for one in bins if one["kind"] == kind]
        places = [one["confidence"] for one in of_kind], [one["accuracy"] for one in of_kind]
        sizes = [8 + 112 * one["images"] / most for one in of_kind]
        axes.plot(*places, color=colour, linewidth=0.8)
        axes.scatter(*places, sizes, color=colour, label=kind, alpha=0.8, linewidths=0)
    axes.set_xlabel("confidence")
    axes.set_ylabel(share)
    axes.set_xlim(0, 1.03)
    axes.set_ylim(0, 1.03)
    legend = axes.legend(loc="upper left")
    for handle in legend.legend_handles[1:]:
        handle.set_sizes([36])
    return as_svg(figure, alone=alone)


def new_figure(*, rows: int = 1, height: float = 2.9) -> tuple[Any, Any]:
    """Return a matplotlib figure and its axes, one above the other, for a `styled` function.

    Args:
        rows: Number of axes, which share x.
        height: Height in inches; the width is 4.8.
    """
    # The object interface: pyplot would keep state and look for a display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.8, height), layout="constrained")
    return figure, figure.subplots(rows, sharex=True)


def as_svg(figure: Any, *, alone: bool = False) -> str:
    """Return the figure as an `<svg>` element; `alone` with a white background and black text."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=not alone, metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :].replace(_INK, "#1b1f24" if alone else "currentColor")


def _span(curve: dict[str, Any], num_known: int, k_scda: int) -> tuple[int, int]:
    """Return how far the counts of single restarts lie below and above k*."""
    alone = [
        max(1, math.ceil((k + curve["k_elbow"]) / 2) - num_known)
        for k in curve["k_accuracy_spread"]
    ]
    return max(0, k_scda - min(alone)), max(0, max(alone) - k_scda)


def _stage(number: int) -> str:
    return f"round {number}" if number else "pre-training"
