"""Labelling folders: sources in, one row per file out."""
