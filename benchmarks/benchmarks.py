"""Let `python benchmarks/NAME.py` import this folder as the package `benchmarks`.

Python puts the folder of a script first on the path, not the repository root, so that the name
`benchmarks` is found here. `python -m benchmarks.NAME` from the root never reads this file.
"""

from pathlib import Path

__path__ = [str(Path(__file__).resolve().parent)]
