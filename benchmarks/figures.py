"""The figures of docs/method.md, from a run and from the records of `office31.py`.

python -m benchmarks.figures --run RUN --results FILE.jsonl --out docs
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.open_set import results, tables
from benchmarks.open_set.results import Record
from scda.adapt.report.figures import BLUE, as_svg, curve_svg, new_figure, styled
from scda.adapt.runs.folder import RunFolder
from scda.models.bundle import read_manifest
from scda.models.errors import UsageError
from scda.models.files import write_atomically

_WIDEST = 4  # largest bias in nats; beyond it, OS* or UNK is close to 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Write discovery.svg and rejection.svg."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="a finished run")
    parser.add_argument("--results", type=Path, required=True, help="records of the main study")
    parser.add_argument("--out", type=Path, required=True, help="folder for the figures")
    options = parser.parse_args(arguments)
    run = RunFolder(options.run)
    rounds = [record for record in run.records() if "unknown_share" in record]
    num_known = read_manifest(run.bundle).num_known
    records = main_records(results.read(options.results))
    write_atomically(options.out / "discovery.svg", curve_svg(rounds, num_known, alone=True))
    write_atomically(options.out / "rejection.svg", rejection_svg(records))


def main_records(records: Sequence[Record]) -> list[Record]:
    """Return the records that docs/method.md shows: main study, P1, preset `robust`.

    Raises:
        UsageError: If there are none.
    """
    fields = {"study": "main", "protocol": "P1", "preset": "robust"}
    chosen = [record for record in records if fields.items() <= record.items()]
    if not chosen:
        raise UsageError("no record of the main study on P1 with preset robust")
    return chosen


@styled
def rejection_svg(records: Sequence[Record]) -> str:
    """Draw OS* against UNK, means over tasks, for every value of `unknown_logit_bias`."""
    star, unknown = (tables.rejection_means(records, place) for place in (0, 1))
    star = {value: share for value, share in star.items() if abs(float(value)) <= _WIDEST}
    figure, axes = new_figure()
    drawn = [unknown[value] for value in star]
    axes.plot(list(star.values()), drawn, color=BLUE, marker="o")
    for value in star:
        place: dict[str, Any] = {"xytext": (6, 6), "textcoords": "offset points", "fontsize": 8}
        axes.annotate(f"{float(value):+g}", (star[value], unknown[value]), **place)
    axes.set_xlabel("OS*: known images with the right class, in percent")
    axes.set_ylabel("UNK: new images predicted as new, in percent")
    return as_svg(figure, alone=True)


if __name__ == "__main__":
    main()
