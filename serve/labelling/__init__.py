"""Labelling of folders, lists and object stores: one row per file."""
