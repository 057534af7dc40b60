"""Open-set adaptation with class discovery on the six tasks of Office-31.

    python -m benchmarks.office31 --root DIR --out FILE.jsonl [--study NAME] [--method NAME …]

Appends one JSON object per run to the file, skips runs that it already contains, and prints tables.
"""

import sys
from collections.abc import Sequence

from benchmarks.open_set import harness
from benchmarks.open_set.protocols import OFFICE31


def main(arguments: Sequence[str] | None = None) -> int:
    """Do the missing runs, print the tables, and return the exit code."""
    return harness.main(OFFICE31, arguments)


if __name__ == "__main__":
    sys.exit(main())
