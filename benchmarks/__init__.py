"""Measured comparisons: run one with `python -m benchmarks.NAME` from the repository root."""
