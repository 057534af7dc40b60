"""The figure of the ratio study: OS*, UNK and k* over the number of implicit classes.

Source: SCDA, supplement, "The ratio of unobserved classes".
"""

from collections.abc import Sequence

from benchmarks.open_set.aggregate import grouped, over_tasks
from benchmarks.open_set.projection import as_png
from benchmarks.open_set.results import Record

_PANELS = {"os_star": "OS*, percent", "unk_pooled": "UNK, percent", "k_star": "k*"}


def ratio_png(records: Sequence[Record]) -> bytes:
    """Draw one line per method with means over tasks and seeds; the true k is dotted."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.4), layout="constrained")
    panels = figure.subplots(1, len(_PANELS))
    counts = sorted({int(record["variant"]) for record in records})
    for axes, (field, title) in zip(panels, _PANELS.items(), strict=True):
        for method, members in grouped(records, "method").items():
            of_count = grouped(members, "variant")
            means = [over_tasks(of_count[str(count)], field) for count in counts]
            axes.plot(counts, means, marker="o", markersize=3, label=method)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("implicit classes", fontsize=9)
        axes.tick_params(labelsize=8)
    panels[-1].plot(counts, counts, color="black", linestyle=":", label="true")
    panels[-1].legend(fontsize=8)
    return as_png(figure)
