"""The command line: one file per command, the only place that touches both sides, lazily."""
