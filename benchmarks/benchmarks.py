"""Make this folder importable as the package `benchmarks` for `python benchmarks/NAME.py`.

Python puts the folder of a script, not the repository root, first on the path, so the name
`benchmarks` resolves to this file. `python -m benchmarks.NAME` from the root does not read it.
"""

from pathlib import Path

__path__ = [str(Path(__file__).resolve().parent)]
