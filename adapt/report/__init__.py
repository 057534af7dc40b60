"""The report of a run: pictures first, made from the run's files alone."""
