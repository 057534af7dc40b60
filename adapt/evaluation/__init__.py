"""Metrics and confusions on a labelled target."""
