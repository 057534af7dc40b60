"""Suites of open-set tasks: lists of tasks, the label-free estimate, and the summary by group."""
