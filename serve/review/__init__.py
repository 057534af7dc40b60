"""Name the discovered classes: the review page, the names command, promotion."""
