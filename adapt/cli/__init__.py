"""The command line: one file per command; imports `adapt` and `serve` only when a command runs."""
