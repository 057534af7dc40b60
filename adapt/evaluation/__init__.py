"""Metrics on a labelled target, and what is confused with what."""
