"""Naming what was found: the review page, the names command, promotion."""
